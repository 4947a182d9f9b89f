"""A compiled try does what the try in torch does: the same swaps, and the same numbers to rounding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from commands import call
from gpexplorer import kernels
from gpexplorer.methods.inducing.swapping import compiled_swapper
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.methods.inducing.swapping.compiled_swapper import CompiledSwapper
from gpexplorer.methods.inducing.swapping.factor import Factor
from gpexplorer.methods.inducing.swapping.policies import POLICIES
from gpexplorer.methods.inducing.swapping.swap import Swapper, Tried
from gpexplorer.problem import Dataset, Problem, Step
from swap_problems import dense, hard_problem
from whole_run import finished

pytestmark = pytest.mark.long  # the code is compiled first
TRIES, REFRESH = 200, 16
OF_FACTOR = ("G", "P", "T", "TPT", "TGT", "c", "Pc", "D", "trace", "inducing")
OF_PIVOTS = ("rows", "is_inducing", "least", "E", "HP", "EE", "C", "Ey")


@pytest.fixture(scope="module")
def code() -> Iterator[Any]:
    """The module, with code in a folder of its own: beside the module, runs after the tests would use it.

    The folder stays, since compiling takes 20 seconds of a processor; Numba compiles again what another version of
    itself, another processor, or another state of the module has written.
    """
    numba = pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        folder = str(Path(__file__).with_name("__pycache__") / "compiled")
        patch.setenv("NUMBA_CACHE_DIR", folder)  # of other processes
        patch.setattr(numba.config, "CACHE_DIR", folder)
        from gpexplorer.methods.inducing.swapping import compiled_try

        for dtype in ("float64", "float32"):
            compiled_try.compile_try(dtype)
        assert str(compiled_try.one_try.stats.cache_path).startswith(folder)
        yield compiled_try


@pytest.fixture
def calls(code: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the compiled tries return; they are used from here on."""
    found, one_try = [], code.one_try

    def counted(*arguments: Any) -> Any:
        found.append(one_try(*arguments))
        return found[-1]

    monkeypatch.setattr(code, "one_try", counted)
    monkeypatch.setattr(compiled_swapper, "compiled_code", lambda dtype: code)
    return found


def smooth(
    noise: float = 0.1, shift: float = 0.0, lengthscale: float = 1.0, dtype: torch.dtype = torch.float64
) -> Problem:
    rng = torch.Generator().manual_seed(2)
    X = shift + 2.0 * torch.rand(400, 3, generator=rng, dtype=torch.float64)
    y = torch.sin(2.0 * X[:, 0] * X[:, 1]) + torch.cos(3.0 * X[:, 2])
    y = y - y.mean() + noise * torch.randn(400, generator=rng, dtype=torch.float64)
    theta = torch.tensor([1.0, *3 * [lengthscale], noise], dtype=torch.float64).log()
    return Problem(Dataset(X.to(dtype), y.to(dtype)), kernels.make("se-ard", 3), theta.to(dtype))


def pair(task: Problem, objective: str, m: int = 24, z: int = 16) -> tuple[Swapper, CompiledSwapper]:
    """Two swappers on the same points: in torch, and compiled."""
    rows = torch.randperm(len(task.train), generator=torch.Generator().manual_seed(1))[:m]
    first, second = (Factor(task.kernel, task.theta, task.train, rows, objective) for _ in range(2))
    policy = POLICIES["scored"]
    return Swapper(first, z, 0, 0, policy), CompiledSwapper(second, z, 0, 0, policy)


def tries(s: Swapper, count: int) -> list[tuple[Tried, float]]:
    """So many tries, as in a run; each with the objective after it."""
    slots: list[int] = []
    found = []
    for k in range(count):
        slots = slots[1:]
        if k % REFRESH == 0:
            slots = s.factor.losses().topk(REFRESH, largest=False).indices.tolist()
            s.refresh(k, slots)
        found.append((s.swap(slots, k), s.factor.total))
    return found


def distance(a: Any, b: Any) -> float:
    """The largest difference of two tensors or numbers, relative to the largest entry, or to 1e-3."""
    a, b = (torch.as_tensor(part, dtype=torch.float64) for part in (a, b))
    return float((a - b).abs().max() / a.abs().max().clamp_min(1e-3))


def carried(s: Swapper) -> dict[str, Any]:
    """All that the next try depends on."""
    f, p, removals = s.factor, s.pivots, s.removals
    assert p is not None
    assert removals is not None
    return {
        "L": f.L.rows(torch.arange(len(f.D))),
        "terms": torch.tensor(f.terms),
        "inducing rows": torch.tensor(f.inducing_rows),
        "V": removals.V,
        "products": removals.products,
        **{name: getattr(f, name) for name in OF_FACTOR},
        **{name: getattr(p, name) for name in OF_PIVOTS},
    }


@pytest.mark.parametrize("objective", ["vfe", "pp"])
@pytest.mark.parametrize(
    ("task", "tolerance"),
    [
        pytest.param(smooth(), 1e-12, id="smooth"),
        pytest.param(smooth(shift=1e3), 1e-11, id="off the origin"),
        pytest.param(smooth(noise=1e-6, lengthscale=0.3), 1e-12, id="noise 1e-6"),
        pytest.param(smooth(lengthscale=2e-4), 1e-12, id="tiny lengthscale"),
        pytest.param(hard_problem(), 1e-10, id="signal to noise 6e4"),
    ],
)
def test_200_tries_accept_the_same_swaps_and_carry_the_same_numbers(
    task: Problem, tolerance: float, objective: str, calls: list[Any]
) -> None:
    plain, fast = pair(task, objective)
    for a, b in zip(tries(plain, TRIES - 2), tries(fast, TRIES - 2), strict=True):  # ends between two draws of pivots
        assert a[0][:3] == b[0][:3]
        scale = sum(map(abs, plain.factor.terms))
        assert b[0][4:] == pytest.approx(a[0][4:], abs=tolerance * scale, nan_ok=True)
        assert b[1] == pytest.approx(a[1], abs=tolerance * scale)
    assert len(calls) == TRIES - 2
    assert sum(result.accepted for result in calls) > 20
    there = carried(fast)
    assert {k: d for k, part in carried(plain).items() if (d := distance(part, there[k])) > tolerance} == {}
    assert fast.factor.reads == plain.factor.reads


@pytest.mark.parametrize("objective", ["vfe", "pp"])
def test_in_float32_the_same_swaps_are_accepted_and_hard_scales_cost_no_more_than_in_torch(
    objective: str, calls: list[Any]
) -> None:
    plain, fast = pair(smooth(dtype=torch.float32), objective)
    both = list(zip(tries(plain, TRIES), tries(fast, TRIES), strict=True))
    assert [a[0].accepted for a, _ in both] == [b[0].accepted for _, b in both]
    assert sum(a[0].proposed != b[0].proposed for a, b in both) <= TRIES // 20
    assert all(b[1] == pytest.approx(a[1], abs=1e-3 * sum(plain.factor.terms)) for a, b in both)

    task = hard_problem(ratio=1e3, dtype=torch.float32)
    errors = []
    for s in pair(task, objective):
        carried_objective = tries(s, TRIES)[-1][1]
        in_float64 = Problem(task.train.to("cpu", torch.float64), task.kernel, task.theta.double())
        errors.append(abs(carried_objective - dense(in_float64, s.factor.inducing, objective)))
    assert errors[1] < 2.0 * errors[0] + 1.0


def test_an_inverse_that_is_wrong_is_computed_again_as_in_torch(calls: list[Any]) -> None:
    found = []
    for s in pair(hard_problem(n=120, ratio=1e3), "pp", m=10, z=6):
        s.refresh(0, [3, 4])
        s.factor.P.mul_(1.0 + 1e-6)
        s.factor.logdet += 1e-3
        s.set_pivots(s.pivots.rows, 0, [3, 4])
        found.append((s.swap([3, 4], 1), s.factor.total))
    assert len(calls) == 2
    assert found[1][0].inverse_error == pytest.approx(1e-6, rel=1e-3)
    assert found[1][0][:3] == found[0][0][:3]
    assert found[1][0].exact == pytest.approx(found[0][0].exact, abs=1e-8)
    assert found[1][1] == pytest.approx(found[0][1], abs=1e-8)


def test_a_pivot_that_was_forced_in_and_is_removed_again_is_a_candidate_again(calls: list[Any]) -> None:
    for k in range(16):
        found = []
        for s in pair(smooth(), "vfe"):
            s.refresh(0)
            rows = s.pivots.rows.clone()
            s.force(5, int(rows[k]))
            s.removals = None
            s.set_pivots(rows, 0, [5, 6])
            assert s.pivots.is_inducing.sum() == 1
            found.append((s.swap([5, 6], 1), s.pivots.is_inducing.tolist(), s.pivots.rows.tolist()))
        assert found[1][0][:3] == found[0][0][:3]
        assert found[1][1:] == found[0][1:]
    assert {result.accepted for result in calls} == {True, False}


def run(task: Problem, **settings: Any) -> list[Step]:
    return finished(CholQR(num_inducing=20, num_pivots=16, max_epochs=2, seed=3, **settings), task)[0]


def test_a_run_with_learning_and_without_is_the_same_and_resumes(calls: list[Any], monkeypatch: pytest.MonkeyPatch):
    fast = run(smooth(), evaluations=5)
    count = len(calls)
    middle = [step for step in fast if step.info.phase == "swap"][5]
    method = CholQR(num_inducing=20, num_pivots=16, max_epochs=2, seed=3, evaluations=5)
    rest = list(method.steps(smooth(), resume=middle.state))
    monkeypatch.setattr(compiled_swapper, "compiled_code", lambda dtype: None)
    plain = run(smooth(), evaluations=5)

    assert count == sum(step.info.phase == "swap" for step in fast)
    assert [step.info.objective for step in fast[1:]] == pytest.approx(
        [step.info.objective for step in plain[1:]], rel=1e-8
    )
    assert torch.equal(rest[-1].state.inducing, fast[-1].state.inducing)
    assert torch.equal(plain[-1].state.inducing, fast[-1].state.inducing)


@pytest.mark.parametrize("settings", [{"objective": "tight-vfe"}, {"num_proposals": 2}, CholQR.published])
def test_other_tries_stay_in_torch(settings: dict[str, Any], calls: list[Any]) -> None:
    method = CholQR(**{"num_inducing": 20, "max_epochs": 1, "learn": False} | settings)
    assert len(list(method.steps(smooth()))) > 2
    assert calls == []


def test_many_rows_stay_in_torch(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_swapper, "MOST_ENTRIES", 16 * 399)
    run(smooth(), learn=False)
    assert calls == []


@pytest.mark.parametrize("part", ["y", "E", "T"])
def test_arrays_that_are_not_in_one_piece_stay_in_torch(part: str, calls: list[Any]) -> None:
    """Numba would compile code of their own for them, in the middle of a run."""
    task = smooth()
    if part == "y":
        train = task.train
        task = Problem(Dataset(train.X, torch.stack([train.y, train.y], 1)[:, 0]), task.kernel, task.theta)
    plain, fast = pair(task, "vfe")
    for s in (plain, fast):
        s.refresh(0, [3, 4, 5])
        if part == "E":
            s.pivots.E = s.pivots.E.T.contiguous().T
        if part == "T":
            s.factor.T = s.factor.T.contiguous()
    assert fast.swap([3, 4, 5], 1) == pytest.approx(plain.swap([3, 4, 5], 1), nan_ok=True)
    assert calls == []


# -- where the code comes from -----------------------------------------------------------------------------------------

ASK = """
import json, os, sys, torch
from gpexplorer.methods.inducing.swapping.compiled_swapper import compiled_code
assert "numba" not in sys.modules  # it reads its own variables when it is imported
for environment in json.loads(sys.argv[1]):
    if os.fork() == 0:
        os.environ |= environment
        print([compiled_code(dtype) is not None for dtype in (torch.float64, torch.float32)], flush=True)
        os._exit(0)
    os.wait()
"""


def answers(*environments: dict[str, str]) -> list[str]:
    """Whether there is code for each precision, in a process for each of these environments."""
    command = [sys.executable, "-c", ASK, json.dumps(environments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks of one that has imported torch")
def test_code_is_used_only_if_it_is_on_disk_and_nothing_compiles_it_in_a_run(code: Any, tmp_path: Path) -> None:
    used = {"GPEXPLORER_COMPILED": "1"}
    asked = (used, {"GPEXPLORER_COMPILED": "0"}, used | {"NUMBA_CACHE_DIR": str(tmp_path)})
    assert answers(*asked, used | {"NUMBA_DISABLE_JIT": "1"}) == ["[True, True]", *3 * ["[False, False]"]]
    assert not list(tmp_path.rglob("*.nbc"))


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(compiled_swapper.ENV, "1")
    compiled_swapper.compiled_code.cache_clear()
    yield
    compiled_swapper.compiled_code.cache_clear()


@pytest.mark.usefixtures("asked_anew")
def test_without_numba_or_a_folder_for_its_code_tries_stay_in_torch_and_the_command_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "gpexplorer.methods.inducing.swapping.compiled_try"

    class NoFolder:
        def find_spec(self, module: str, *_: Any) -> None:
            if module == name:
                raise RuntimeError("cannot cache function 'one_try': no locator available")

    monkeypatch.setattr(compiled_swapper, "find_spec", lambda module: object())
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(sys.modules[name.rpartition(".")[0]], "compiled_try", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoFolder(), *sys.meta_path])
    assert compiled_swapper.compiled_code(torch.float64) is None
    assert call("compile") == 2
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err

    compiled_swapper.compiled_code.cache_clear()
    monkeypatch.setattr(compiled_swapper, "find_spec", lambda module: None)
    assert compiled_swapper.compiled_code(torch.float64) is None
    assert call("compile") == 2
    assert "gpexplorer[fast]" in capsys.readouterr().err


def test_the_command_compiles_both_precisions_and_names_the_folder(
    code: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("compile") == 0
    assert code.one_try.stats.cache_path in capsys.readouterr().out
