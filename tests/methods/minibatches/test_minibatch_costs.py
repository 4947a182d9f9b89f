"""What a minibatch is said to cost, beside the arithmetic that torch was asked for."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gpexplorer.methods.base import registry
from gpexplorer.methods.minibatches import minimax
from gpexplorer.methods.minibatches.model import factorisation_flops
from oracles_minibatches import begun, problem


class Counting(TorchDispatchMode):
    """Flops of products, factors, inverses, eigenvalues and triangular solves."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, out = func.__name__.split(".")[0].rstrip("_"), func(*args, **(kwargs or {}))
        shapes = [part.shape for part in args if isinstance(part, Tensor)]
        if name in ("mm", "addmm", "mv", "addmv", "bmm", "baddbmm"):
            self.flops += 2.0 * math.prod(shapes[-2]) * (shapes[-1][-1] if "mm" in name else 1)
        if name in ("linalg_cholesky_ex", "cholesky_inverse"):
            self.flops += factorisation_flops(shapes[0][-1]) * (1.0 if name.endswith("ex") else 2.0) / 3.0
        if name.endswith("linalg_eigh"):
            self.flops += 7.0 * factorisation_flops(shapes[0][-1])
        if name == "linalg_solve_triangular":
            self.flops += 1.0 * shapes[0][-1] * math.prod(shapes[1])
        return out


CASES = [
    ("scgd", {}, 1.1),
    ("scgd", {"kernel": "gaussian"}, 1.25),
    ("minimax", {}, 1.1),
    ("minimax", {"metric": "flat"}, 1.1),
    ("bsgd", {}, 1.1),
    ("full-batch", {}, 1.1),
    ("svgp", {}, 1.5),
]


@pytest.mark.parametrize(("key", "settings", "within"), CASES)
def test_a_minibatch_takes_the_flops_that_its_formula_says(
    key: str, settings: dict[str, Any], within: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(minimax, "LIFTS", 0.0)  # the first minibatch raises no eigenvalue
    at, size = problem(n=640, d=8), {"width": 128, "num_features": 128}
    small: Any = registry[key](minibatches=1, evaluate_every=10**9, **size, **settings)
    _, learner = begun(small, at)
    index = learner.rows(0)

    with Counting() as counted:
        learner.before(0)
        learner.gradient(index, 0)
        learner.optimiser.move(learner.parameters.x, learner.parameters.g, learner.averages, 0, 1e-3)
        learner.after(0, *learner.indices(0)[1:])

    assert counted.flops / within < small.cost(at).flops < counted.flops * within


@pytest.mark.parametrize("key", ["scgd", "minimax", "bsgd", "svgp"])
def test_what_a_minibatch_method_holds_does_not_grow_with_the_rows(key: str):
    small = registry[key](width=128)
    cost = [small.cost(problem(n=n, d=8)).arrays for n in (20_000, 40_000)]

    grown = {name for name in cost[0] if cost[1][name] > cost[0][name]}

    assert grown <= {"order of the rows"}
