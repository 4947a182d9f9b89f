"""What a run answers: predictions and scores in the units of the file, tables, progress, memory, entries counted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from gpexplorer import data, kernels
from gpexplorer.errors import DataError, OutOfMemory, RecordError
from gpexplorer.problem import Problem
from gpexplorer.runs import Run, Spec, scores
from gpexplorer.runs.budget import Budget
from gpexplorer.runs.counting import Counted, Counter
from gpexplorer.runs.trace import tensors
from toy_method import ROWS, N, Toy, toy_run


@pytest.fixture(scope="module")
def split() -> data.Split:
    return data.load(ROWS, split=0).scaled()


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (-5e3, 7.0)])
def test_predictions_and_scores_are_in_the_units_of_the_file(shift: float, scale: float):
    raw = moved(data.load(ROWS, split=0), shift, scale)
    run, plain = toy_run(rows=raw.scaled()), toy_run()
    for each in (run, plain):
        each.finish(steps=30)

    mean, var = run.posterior(of="y")(raw.test.X)
    home = plain.posterior(of="y")(data.load(ROWS, split=0).test.X)

    assert run.scores() == pytest.approx(scores.scores(raw.test.y, mean, var, raw.train.y), rel=1e-9)
    torch.testing.assert_close(mean, scale * home.mean + shift, rtol=1e-9, atol=0)
    torch.testing.assert_close(var, scale**2 * home.var, rtol=1e-9, atol=0)
    for name in ("smse", "snlp", "coverage68"):
        assert run.scores()[name] == pytest.approx(plain.scores()[name], rel=1e-7)
    assert run.scores()["smse"] < 0.5


def moved(split: data.Split, shift: float, scale: float) -> data.Split:
    """The same rows in other units, far from the origin."""
    parts = [replace(part, X=scale * part.X + shift, y=scale * part.y + shift) for part in (split.train, split.test)]
    return replace(split, train=parts[0], test=parts[1])


def test_the_noise_is_in_y_and_not_in_f(split: data.Split):
    run = toy_run()
    run.finish(steps=2)
    X = np.full((3, 10), 0.4)

    f, y = run.posterior(of="f")(X), run.posterior(of="y")(X)

    scale = split.train.scale
    assert scale is not None
    noise = math.exp(2 * float(run.problem.theta[-1])) * scale.y_sd**2
    torch.testing.assert_close(y.var - f.var, torch.full_like(f.var, noise), rtol=1e-9, atol=0)
    assert torch.equal(f.mean, y.mean)
    with pytest.raises(ValueError, match='give "f" for the function'):
        run.posterior(of="g")  # type: ignore[arg-type]


def test_inputs_may_be_arrays_frames_or_tensors_of_the_right_width():
    run = toy_run()
    run.finish(steps=3)
    X = np.random.default_rng(0).uniform(size=(5, 10))
    frame = pd.DataFrame(X, columns=list(run.problem.train.names))

    want = run.posterior()(X).mean

    assert torch.equal(run.posterior()(torch.tensor(X)).mean, want)
    assert torch.equal(run.posterior()(frame[frame.columns[::-1]].assign(other="text")).mean, want)
    assert len(run.posterior()(X[:0]).mean) == 0
    with pytest.raises(DataError, match=r"shape \[5, 9\]; the training data need \[rows, 10\]"):
        run.posterior()(X[:, :9])


def test_the_table_has_a_row_a_record_and_a_column_a_number():
    run = toy_run()
    run.finish(steps=4)

    table = run.table()

    assert list(table)[:5] == ["index", "seconds", "entries", "objective", "gradient"]
    assert table["index"].tolist() == [0, 1, 2, 3, 4]
    assert math.isnan(table["objective"][0])
    assert table["objective"].is_monotonic_decreasing is False  # the start has none
    assert (np.diff(table["objective"][1:]) <= 0).all()
    assert table["smse"].notna().tolist() == [True, True, True, False, True]
    assert run.trace.series("gradient")[4] == table["gradient"][4]


def test_progress_follows_the_limit_that_ends_first():
    run = toy_run()
    for _ in range(5):
        run.advance()

    assert run.progress({"steps": 16}) == (0.25, pytest.approx(15.0))
    assert run.progress({"seconds": 10.0}) == (0.5, 5.0)
    assert run.progress({"steps": 16, "seconds": 10.0}) == (0.5, 5.0)
    assert math.isnan(run.progress().fraction)
    assert math.isnan(Budget(steps=5).progress(0, 0.0).eta)
    run.finish(steps=4)
    assert run.progress({"steps": 16}) == (0.25, pytest.approx(15.0))  # this call has ended, and the run can go on
    assert math.isnan(run.progress().fraction)


def test_all_of_the_budget_is_used_only_at_an_end_after_which_no_step_follows():
    spec = Spec("cholqr", {"num_inducing": 4}, data="snelson-like", budget={"steps": 20})
    run = spec.open()
    run.finish(callback=lambda record: record.index == 5)
    assert run.outcome is not None
    assert (run.outcome.reason, run.progress().fraction) == ("stopped", 0.25)
    run.finish(steps=8)
    assert run.progress().fraction == 0.4
    run.finish()
    assert run.progress() == (1.0, 0.0)
    converged = Spec("cholesky", {"learn": False}, data="snelson-like", budget={"steps": 50}).open()
    outcome = converged.finish()
    assert outcome.reason == "converged"
    assert converged.done < 50
    assert converged.progress() == (1.0, 0.0)


def test_a_record_that_repeats_a_tensor_costs_nothing_more():
    run = toy_run()
    run.finish(steps=3)
    theta = [record.step.state.theta for record in run.trace]

    assert all(tensor is theta[0] for tensor in theta)
    unique = {part.data_ptr(): part.nbytes for record in run.trace for part in tensors(record.step)}
    assert run.memory == sum(unique.values())
    assert run.memory == 8 * (4 * N + 12 + 3 * 4)  # alphas, one theta, blocks that state and info share


def test_a_record_that_is_not_there_is_refused_by_its_number():
    run = toy_run()
    for ask in (run.posterior, run.scores, run.fork):
        with pytest.raises(RecordError, match="The run has no record yet: advance it first"):
            ask()

    run.stop()
    run.finish()
    with pytest.raises(RecordError, match="The run has no record yet: Stopped on request after 0 steps; it can go on"):
        run.posterior()

    run.finish(steps=3)
    with pytest.raises(IndexError, match="no record 9; it has 4, from 0 to 3"):
        run.posterior(9)


def test_a_run_that_failed_before_its_first_record_says_why_wherever_a_record_is_asked_for():
    run = Spec("states", data={"name": "friedman1", "n": 60}).open()
    message = run.finish().message
    assert message.startswith("States needs one input, such as time, but there are 10")
    assert "starts" not in message  # where it would have begun
    for ask in (run.posterior, run.scores):
        with pytest.raises(RecordError, match="has no record yet: States needs one input"):
            ask()


@pytest.mark.parametrize("late", [False, True])
def test_answers_that_need_more_memory_than_there_is_say_so(late: bool, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000000 bytes.")

    run = toy_run()
    run.advance()
    run.advance()
    monkeypatch.setattr(Toy, "posterior", (lambda *_: full) if late else full)

    with pytest.raises(OutOfMemory, match="Memory ran out for the answers of step 1: use fewer points"):
        run.scores(1)


def test_a_run_without_test_rows_has_no_scores(split: data.Split):
    kernel = kernels.make("se-ard", 10)
    run = Run(Toy(), Problem(split.train, kernel, kernel.start(split.train)))

    run.finish(steps=2)

    assert run.scores() == {}
    assert run.table()["index"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("key", ["se-ard", "se-ard*linear"])
def test_the_counting_kernel_computes_the_same_and_counts_all_of_it(key: str, split: data.Split):
    plain, counter = kernels.make(key, 10), Counter(5)
    counted, X = Counted(plain, counter), split.train.X
    theta = plain.start(split.train)
    G = torch.ones(N, 3, dtype=X.dtype)

    assert torch.equal(counted(theta, X, X[:7]), plain(theta, X, X[:7]))
    assert counter.entries == 5 + 7 * N
    assert torch.equal(counted.diag(theta, X), plain.diag(theta, X))
    assert counter.entries == 5 + 8 * N
    assert torch.equal(counted.theta_gradient(theta, X, X[:3], G), plain.theta_gradient(theta, X, X[:3], G))
    assert counter.entries == 5 + 11 * N
    assert torch.equal(counted.theta_gradient_diag(theta, X, G[:, 0]), plain.theta_gradient_diag(theta, X, G[:, 0]))
    assert counter.entries == 5 + 12 * N
    assert (counted.key, counted.names, counted.size) == (plain.key, plain.names, plain.size)
    assert torch.equal(counted.start(split.train), theta)


def test_the_counting_kernel_counts_its_parts_and_factors_too(split: data.Split):
    plain, counter, X = kernels.make("se-ard*se-ard", 10), Counter(), split.train.X
    counted, theta = Counted(plain, counter), plain.start(split.train)

    counted.parts[0](theta, X, X[:2])
    assert counter.entries == 2 * N

    factors = counted.by_input(theta)
    assert torch.equal(factors[1](X[:4, 1], X[:5, 1]), plain.by_input(theta)[1](X[:4, 1], X[:5, 1]))
    assert counter.entries == 2 * N + 20


def test_steps_and_answers_are_computed_without_denormal_numbers_and_callers_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
):
    """A matrix of them is factored 30 times as slowly."""
    half_of_tiny, kept = torch.tensor([torch.finfo(torch.float64).tiny / 2.0], dtype=torch.float64), list[bool]()
    run = toy_run()
    kernel = type(run.problem.kernel)

    def noting(self: object, *arguments: object) -> torch.Tensor:
        kept.append(bool((half_of_tiny * 1.0).view(torch.int64) != 0))
        return computed(self, *arguments)

    computed = kernel.__call__
    monkeypatch.setattr(kernel, "__call__", noting)
    run.finish(steps=1)
    in_steps = len(kept)
    run.posterior(of="f")(np.full((3, 10), 0.4))

    assert 0 < in_steps < len(kept)
    assert not any(kept)
    assert bool((half_of_tiny * 1.0).view(torch.int64) != 0)
