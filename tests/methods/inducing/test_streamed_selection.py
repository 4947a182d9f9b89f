"""Methods that choose rows one after another, for more rows than fit: the same rows and numbers by passes over them."""

from __future__ import annotations

import math

import pytest
import torch

from baseline_problems import problem, trajectory
from gpexplorer import kernels, objectives
from gpexplorer.methods.base import registry
from gpexplorer.methods.inducing.selection import streamed_gp, unsupervised
from gpexplorer.methods.inducing.selection.loop import grow
from gpexplorer.methods.inducing.selection.streamed_gp import StreamedGP, growing_model
from gpexplorer.methods.inducing.selection.titsias import BestCandidate
from gpexplorer.problem import Dataset, Problem
from work_counter import Work

CHOOSERS = ["random", "greedy-variance", "titsias", "ivm"]
OBJECTIVES = ["vfe", "tight-vfe", "pp"]


def fit_nothing(monkeypatch: pytest.MonkeyPatch, shortlist: int = 15) -> None:
    """No column is kept; blocks have a few rows, and the last one fewer; shortlists are far from complete."""
    monkeypatch.setattr(objectives, "KEPT_BYTES", 0)
    monkeypatch.setattr(streamed_gp, "BLOCK", 2 * 8 * 12 * 25)
    monkeypatch.setattr(unsupervised, "SHORTLIST", shortlist)


@pytest.mark.parametrize(
    ("key", "objective"),
    [("random", "tight-vfe"), ("greedy-variance", "vfe"), ("ivm", "vfe"), *(("titsias", name) for name in OBJECTIVES)],
)
def test_a_run_of_many_rows_equals_one_that_keeps_its_columns(
    key: str, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = problem(10.0)
    settings = {"num_inducing": 8, "objective": objective, "max_epochs": 2, "evaluations": 1}
    kept = trajectory(key, task, **settings)
    fit_nothing(monkeypatch)

    streamed = trajectory(key, task, **settings)

    assert len(streamed) == len(kept)
    for streamed_step, kept_step in zip(streamed, kept, strict=True):
        assert streamed_step.info.proposed == kept_step.info.proposed
        assert streamed_step.info.objective == pytest.approx(kept_step.info.objective, rel=1e-7, nan_ok=True)
        assert streamed_step.info.exact == pytest.approx(kept_step.info.exact, rel=1e-6, abs=1e-7, nan_ok=True)
    resumed = list(registry[key](seed=0, **settings).steps(task, resume=streamed[5].state))
    assert [step.info.proposed for step in resumed] == [step.info.proposed for step in streamed[6:]]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_residual_variances_and_reductions_are_those_of_kept_columns(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = problem(0.0)
    kept = streamed_gp.GrowingGP(task.kernel, task.theta, task.train, objective, 8)
    fit_nothing(monkeypatch)
    streamed = growing_model(task.kernel, task.theta, task.train, objective, 8)
    assert isinstance(streamed, StreamedGP)
    for row in (3, 17, 44, 9):
        candidates = torch.tensor([row, 5, 60, 3])
        streamed_reductions, kept_reductions = streamed.reductions(candidates), kept.reductions(candidates)
        assert torch.allclose(streamed_reductions, kept_reductions, rtol=1e-9, atol=1e-8)
        assert streamed.add(row) == pytest.approx(kept.add(row), abs=1e-8)
        assert torch.allclose(streamed.D, kept.D, atol=1e-10)
        assert torch.equal(streamed.is_eligible, kept.is_eligible)
    assert float(streamed.reductions(torch.tensor([3]))[0]) == -math.inf


def test_expected_rows_take_one_pass_and_other_rows_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    task = problem(0.0)
    fit_nothing(monkeypatch)
    model = StreamedGP(task.kernel, task.theta, task.train, "vfe", 6)
    passes: list[int] = []
    blocks = StreamedGP._blocks
    monkeypatch.setattr(StreamedGP, "_blocks", lambda *given: (passes.append(1), blocks(*given))[1])

    model.expect([4, 8, 15])
    for row in (4, 8):
        model.add(row)
    assert len(passes) == 1
    model.add(16)  # not the row that was expected
    model.add(15)

    assert len(passes) == 3
    kept = streamed_gp.GrowingGP(task.kernel, task.theta, task.train, "vfe", 6)
    for row in (4, 8, 16, 15):
        kept.add(row)
    assert model.terms == pytest.approx(kept.terms, rel=1e-9)


def test_a_smooth_function_needs_fewer_passes_than_points(monkeypatch: pytest.MonkeyPatch) -> None:
    X = torch.rand(300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    train, kernel = Dataset(X, torch.sin(6.0 * X[:, 0])), kernels.make("se-ard", 2)
    task = Problem(train, kernel, kernel.start(train))
    kept = unsupervised.GreedyVariance(num_inducing=16, learn=False)
    *_, expected = kept.steps(task)
    fit_nothing(monkeypatch, shortlist=60)
    passes: list[int] = []
    blocks = StreamedGP._blocks
    monkeypatch.setattr(StreamedGP, "_blocks", lambda *given: (passes.append(1), blocks(*given))[1])

    *_, last = unsupervised.GreedyVariance(num_inducing=16, learn=False).steps(task)

    assert last.state.inducing.tolist() == expected.state.inducing.tolist()
    assert len(passes) < 14  # two per shortlist: variances of all rows, and sums over all rows


def test_duplicates_are_not_chosen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    few = problem(0.0, n=6).train
    train = Dataset(few.X.repeat(10, 1), few.y.repeat(10))
    kernel = kernels.make("se-ard", train.d)
    task = Problem(train, kernel, kernel.start(train))
    fit_nothing(monkeypatch)
    for key in CHOOSERS:
        *_, last = trajectory(key, task, num_inducing=12, learn=False)
        assert sorted(row % 6 for row in last.state.inducing.tolist()) == list(range(6))
    assert len(grow(task, 12, "vfe", BestCandidate(0, 0))) == 6


@pytest.mark.parametrize("key", ["random", "greedy-variance"])
def test_memory_does_not_grow_with_the_number_of_points(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    train, kernel = Dataset(X, torch.sin(6.0 * X[:, 0])), kernels.make("se-ard", 2)
    task = Problem(train, kernel, kernel.start(train))
    monkeypatch.setattr(objectives, "KEPT_BYTES", 2**20)
    monkeypatch.setattr(streamed_gp, "BLOCK", 2**18)
    monkeypatch.setattr(unsupervised, "SHORTLIST", 2000)
    method = registry[key](num_inducing=25, learn=False)

    with Work() as work:
        *_, last = method.steps(task)

    assert len(last.state.inducing) == 25
    assert work.memory < 3e6  # 1.2 and 2.4 MB; the columns would take 4 MB more
    assert "factor L" not in method.cost(task).arrays
