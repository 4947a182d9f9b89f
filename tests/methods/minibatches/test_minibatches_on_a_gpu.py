"""On a GPU a minibatch is a graph that reads nothing; cases that it assumes away are noticed and taken again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from a_gpu import a_gpu
from benchmarks.gpu.simulated_gpu import DeviceWork, SimulatedGPU
from benchmarks.gpu.simulated_graph import SimulatedGraph
from gpexplorer import Spec
from gpexplorer.linalg import cholesky
from gpexplorer.linalg.deferred_reads import WARM_UP
from gpexplorer.methods.minibatches import learner as learner_module
from gpexplorer.methods.minibatches.learner import Learner
from gpexplorer.methods.minibatches.minimax import MinimaxLearner
from gpexplorer.methods.minibatches.model import Model

SETTINGS: dict[str, Any] = {"width": 8, "layers": 1, "batch_size": 16, "validation": 0.1}
DATA = {"name": "hypercube", "n": 160, "d": 3, "noise": 0.1, "seed": 0}


def learner_on(device: str, key: str, **settings: Any) -> Learner:
    run = Spec(key, SETTINGS | settings, data=DATA, device=device).open()
    method: Any = run.method
    return method.learner(Model(method, run.problem, method.validation), next(method.steps(run.problem)).state)


def numbers(learner: Learner) -> list[Tensor]:
    return [part.cpu() for part in (*learner.moved(), *learner.matrices())]


def assert_same(learner: Learner, other: Learner, tolerance: float = 1e-8) -> None:
    for on_cpu, on_gpu in zip(numbers(learner), numbers(other), strict=True):
        torch.testing.assert_close(on_gpu, on_cpu, rtol=tolerance, atol=tolerance)


CASES = [
    ("scgd", {}),
    ("scgd", {"head": "descend", "gram_update": "before", "optimiser": "sgd", "rate": 1e-3}),
    ("scgd", {"refresh": 7, "optimiser": "adadelta", "rate": 1.0, "rate_decay": 0.75}),
    ("scgd", {"averaging_decay": 0.5}),
    ("minimax", {}),
    ("minimax", {"mu_growth": 1.5, "mu": 1e4, "schedule": "cosine", "epochs": 4}),
    ("minimax", {"metric": "flat"}),
    ("bsgd", {"kernel": "gaussian", "num_features": 20}),
]


@pytest.mark.parametrize(("key", "settings"), CASES)
def test_minibatches_on_a_gpu_move_as_on_a_cpu(key: str, settings: dict[str, Any]):
    learner = learner_on("cpu", key, **settings)
    learner.take(0, 24)
    with a_gpu():
        other = learner_on("cuda", key, **settings)
        other.take(0, 13)
        other.take(13, 24)
        assert_same(learner, other)
        assert other.estimate() == pytest.approx(learner.estimate(), rel=1e-8)


@pytest.mark.parametrize(("key", "launches"), [("scgd", 4), ("minimax", 5), ("bsgd", 4)])
def test_minibatches_between_evaluations_ask_a_gpu_for_one_graph_and_no_value(key: str, launches: int):
    with SimulatedGPU() as gpu:
        learner = learner_on("cuda", key)
        per_epoch = learner.rows.per_epoch
        assert per_epoch > WARM_UP
        learner.take(0, per_epoch)
        gpu.work = DeviceWork()
        learner.take(per_epoch, 2 * per_epoch)

    copies = len(learner._changed())  # kept, in case that they are needed again
    assert gpu.work.reads == 1  # whether a case happened that was assumed away
    assert gpu.work.uploads <= 2  # the orders of the rows
    assert gpu.work.launches <= per_epoch * launches + copies


def test_a_case_that_a_graph_assumes_away_is_taken_again_with_reads(monkeypatch: pytest.MonkeyPatch):
    restricted = 0
    original = MinimaxLearner._restricted_harmonic_mean

    def counted(self: MinimaxLearner, scale: Any) -> Tensor:
        nonlocal restricted
        restricted += 1
        return original(self, scale)

    monkeypatch.setattr(MinimaxLearner, "_restricted_harmonic_mean", counted)
    rates = {"rate_ascent": 5.0, "rate_scaling": "constant"}
    learner = learner_on("cpu", "minimax", **rates)
    learner.take(0, 12)
    on_cpu = restricted
    with a_gpu():
        other = learner_on("cuda", "minimax", **rates)
        other.take(0, 12)
        assert_same(learner, other, 1e-6)

    assert on_cpu > 0
    assert restricted == 2 * on_cpu


def test_eigenvalues_far_below_the_floor_are_raised_on_a_gpu_too():
    A = torch.diag(torch.tensor([1.0, 0.02, 3.0], dtype=torch.float64))
    inverse, logdet = cholesky.lift_above(A, 0.5, 0.05)
    with a_gpu():
        on_gpu = torch.diag(torch.tensor([1.0, 0.02, 3.0], dtype=torch.float64)).to("cuda")
        results = cholesky.lift_above(on_gpu, torch.tensor(0.5, device="cuda"), 0.05)
        for result, expected in zip((on_gpu, *results), (A, inverse, torch.tensor(logdet)), strict=True):
            torch.testing.assert_close(result.cpu(), expected, check_dtype=False)


@pytest.mark.parametrize("key", ["scgd", "minimax"])
def test_where_no_graph_can_be_recorded_minibatches_are_launched_piece_by_piece(
    key: str, monkeypatch: pytest.MonkeyPatch
):
    learner, warnings = learner_on("cpu", key), []
    learner.take(0, 16)
    monkeypatch.setattr(learner_module._log, "warning", lambda *arguments: warnings.append(arguments))
    with a_gpu():
        other = learner_on("cuda", key)
        original = type(other).after

        def after_a_read(self: Learner, t: int, *indices: Tensor) -> None:
            float(self.parameters.s2())
            original(self, t, *indices)

        monkeypatch.setattr(type(other), "after", after_a_read)
        other.take(0, 16)
        assert_same(learner, other)

    assert len(warnings) == 1


def test_a_recorded_graph_changes_nothing_until_it_is_replayed_and_refuses_reads():
    with SimulatedGPU() as gpu:
        x, factor = torch.tensor([1.0, 2.0], device="cuda"), torch.tensor(3.0, device="cuda")
        graph: Any = torch.cuda.CUDAGraph()
        assert isinstance(graph, SimulatedGraph)
        with torch.cuda.graph(graph):
            x.add_(torch.full((2,), 1.0, device="cuda").mul_(factor))
        assert x.cpu().tolist() == [1.0, 2.0]
        gpu.work = DeviceWork()
        graph.replay()
        factor.fill_(5.0)
        graph.replay()
        assert gpu.work.launches == 3
        assert x.cpu().tolist() == [9.0, 10.0]
        with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.sum().item()
