"""Methods that choose rows one after another, against dense algebra: the rows, the exact objective, and resuming."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from baseline_problems import SHIFTS, problem, trajectory
from gpexplorer import kernels, methods
from gpexplorer.methods.inducing.distinct_rows import distinct_rows, random_order
from gpexplorer.methods.inducing.selection.loop import RowRule, RowSelection
from gpexplorer.methods.inducing.selection.streamed_gp import GrowingGP
from gpexplorer.problem import Dataset, Problem
from oracles_baselines import conditional_variances, objective_of

CHOOSERS = ["random", "greedy-variance", "titsias", "ivm"]


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_growing_model_has_the_dense_objective_and_exact_reductions(objective: str, shift: float) -> None:
    task = problem(shift)
    model = GrowingGP(task.kernel, task.theta, task.train, objective, 12)
    assert model.total == pytest.approx(objective_of(task, [], objective), rel=1e-12)
    for row in (3, 17, 44, 9, 60, 31, 2, 50):
        before, rows = model.total, model.rows.tolist()
        candidates = torch.tensor([row, 5, 66])
        reductions = model.reductions(candidates)
        for candidate, reduction in zip(candidates.tolist(), reductions.tolist(), strict=True):
            exact = objective_of(task, rows, objective) - objective_of(task, [*rows, candidate], objective)
            assert reduction == pytest.approx(exact, abs=1e-8)
        assert model.add(row) == pytest.approx(float(reductions[0]), abs=1e-9)
        assert before - model.total == pytest.approx(float(reductions[0]), abs=1e-9)
        assert model.total == pytest.approx(objective_of(task, model.rows.tolist(), objective), rel=1e-9)
        assert torch.allclose(model.D, conditional_variances(task, model.rows.tolist(), noise=False), atol=1e-9)
    assert float(model.reductions(torch.tensor([3]))[0]) == -math.inf


@pytest.mark.parametrize("shift", SHIFTS)
def test_greedy_variance_takes_the_row_that_is_explained_least(shift: float) -> None:
    task = problem(shift)
    *_, last = trajectory("greedy-variance", task, num_inducing=9, learn=False)
    rows = last.state.inducing.tolist()
    for k in range(1, 9):
        assert int(conditional_variances(task, rows[:k], noise=False).argmax()) == rows[k]


@pytest.mark.parametrize("noise", [0.2, 1.5])
@pytest.mark.parametrize("shift", SHIFTS)
def test_ivm_takes_the_row_of_largest_variance_given_noisy_observations(shift: float, noise: float) -> None:
    task = problem(shift)
    task.theta[-1] = math.log(noise)
    *_, last = trajectory("ivm", task, num_inducing=12, learn=False)
    rows = last.state.inducing.tolist()
    for k in range(1, 12):
        zeta = conditional_variances(task, rows[:k], noise=True)
        assert float(zeta[rows[k]]) >= float(zeta.index_fill(0, torch.tensor(rows[:k]), 0.0).max()) * (1.0 - 1e-8)


@pytest.mark.parametrize("objective", ["vfe", "tight-vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_titsias_over_all_rows_takes_the_best_by_the_dense_objective(objective: str, shift: float) -> None:
    task = problem(shift, n=40)
    *_, last = trajectory("titsias", task, num_inducing=5, num_candidates=0, objective=objective, learn=False)
    rows = last.state.inducing.tolist()
    for k in range(5):
        values = {j: objective_of(task, [*rows[:k], j], objective) for j in range(40) if j not in rows[:k]}
        assert min(values, key=values.__getitem__) == rows[k]


def test_more_candidates_choose_better_sets() -> None:
    task = problem(n=200)
    reached = [
        trajectory("titsias", task, num_inducing=10, num_candidates=count, learn=False)[-1].info.objective
        for count in (1, 16, 0)
    ]
    assert reached[0] > reached[1] > reached[2]
    assert reached[0] > trajectory("random", task, num_inducing=150, learn=False)[-1].info.objective


def test_random_rows_are_those_that_cholqr_starts_from() -> None:
    task = problem(1000.0, repeats=15)
    *_, last = trajectory("random", task, num_inducing=20, learn=False, seed=3)
    begin = next(methods["cholqr"](num_inducing=20, seed=3).steps(task)).state.inducing
    order = random_order(task, 3)
    assert order[:20].tolist() == begin.tolist()
    assert last.state.inducing.tolist() == distinct_rows(task.kernel, task.theta, task.train, order, 20).tolist()


@pytest.mark.parametrize("key", CHOOSERS)
@pytest.mark.parametrize("shift", SHIFTS)
def test_the_objective_decreases_with_every_point_and_every_epoch(key: str, shift: float) -> None:
    task = problem(shift)
    steps = trajectory(key, task, num_inducing=8, max_epochs=4, evaluations=6)
    values = [step.info.objective for step in steps[1:]]
    assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(values))
    assert {step.info.phase for step in steps} == {"start", "choose", "learn"}
    last = steps[-1]
    at_theta = Problem(task.train, task.kernel, last.state.theta)
    assert last.info.objective == pytest.approx(objective_of(at_theta, last.state.inducing.tolist(), "vfe"), rel=1e-8)
    assert last.info.objective == pytest.approx(last.info.fit + last.info.logdet + last.info.trace, rel=1e-12)


def test_a_new_set_replaces_the_old_one_when_it_is_complete_and_better() -> None:
    task = problem(n=120)
    steps = trajectory("titsias", task, num_inducing=6, num_candidates=4, max_epochs=6, evaluations=5)
    later = [step for step in steps if step.state.epoch > 0 and step.info.phase == "choose"]
    assert len(later) >= 6
    for step in later:
        assert len(step.state.inducing) == 6
        at_theta = Problem(task.train, task.kernel, step.state.theta)
        rows = step.state.growing.tolist()
        assert step.info.growing == pytest.approx(objective_of(at_theta, rows, "vfe"), rel=1e-9)
        assert step.info.objective == pytest.approx(
            objective_of(at_theta, step.state.inducing.tolist(), "vfe"), rel=1e-8
        )


@pytest.mark.parametrize("key", CHOOSERS)
def test_too_few_distinct_rows_end_the_choice_with_a_sentence(key: str) -> None:
    task = problem(n=20, repeats=8)
    steps = methods[key](num_inducing=500, learn=False).steps(task)
    while True:
        try:
            last = next(steps)
        except StopIteration as end:
            outcome = end.value
            break
    assert len(last.state.inducing) == 12
    assert outcome.message == "All 12 points are chosen; the hyperparameters stay fixed."
    assert len(torch.unique(task.train.X[last.state.inducing], dim=0)) == 12


@pytest.mark.parametrize("key", CHOOSERS)
def test_the_first_prediction_is_the_prior(key: str) -> None:
    task = problem()
    method = methods[key]()
    mean, var = method.posterior(task, next(method.steps(task)).state)(task.train.X[:4])
    assert mean.tolist() == [0.0] * 4
    assert var.tolist() == pytest.approx([math.exp(0.2)] * 4)


@pytest.mark.parametrize("key", CHOOSERS)
def test_strings_can_be_chosen_too(key: str) -> None:
    texts = ["".join(word) for word in itertools.product("abc", repeat=4)]
    y = torch.tensor([word.count("ab") - word.count("c") for word in texts], dtype=torch.float64)
    train = Dataset(texts, y - y.mean())
    kernel = kernels.make("spectrum", 1)
    task = Problem(train, kernel, kernel.start(train))
    first, *_, last = trajectory(key, task, num_inducing=12, max_epochs=2, evaluations=5)
    mean, _ = methods[key]().posterior(task, last.state)(texts)
    assert len(first.state.inducing) == 0
    assert float((mean - train.y).square().mean()) < 0.8 * float(train.y.square().mean())


class CountingRule(RowRule):
    """Its next row depends on how many rows have joined, which it counts itself."""

    def __init__(self) -> None:
        self.joined_rows: list[int] = []

    def choose(self, model: GrowingGP, epoch: int) -> int:
        return (7 * len(self.joined_rows) + 3) % 40

    def joined(self, row: int) -> None:
        self.joined_rows.append(row)


class Forgetful(CountingRule):
    """Counts its own choices, which a resumed run does not repeat."""

    def __init__(self, count: Callable[[Forgetful], None]) -> None:
        super().__init__()
        self.choices, self.counts, self.total = 0, [], torch.zeros(1)
        self.rng = torch.Generator()
        self.count = count

    def choose(self, model: GrowingGP, epoch: int) -> int:
        self.count(self)
        return super().choose(model, epoch)


def selection_by(make: Callable[[], RowRule]) -> RowSelection:
    class Selection(RowSelection):
        def rule(self, problem: Problem, theta: torch.Tensor) -> RowRule:
            return make()

    return Selection(num_inducing=9, learn=False)


def test_a_rule_with_memory_continues_alike_from_any_state() -> None:
    method, task = selection_by(CountingRule), problem()
    steps = list(method.steps(task))
    for begin in range(len(steps)):
        rest = list(method.steps(task, resume=steps[begin].state))
        assert [step.info.proposed for step in rest] == [step.info.proposed for step in steps[begin + 1 :]]


@pytest.mark.parametrize(
    ("attribute", "count"),
    [
        ("choices", lambda rule: setattr(rule, "choices", rule.choices + 1)),
        ("counts", lambda rule: rule.counts.append(1)),
        ("total", lambda rule: rule.total.add_(1.0)),
        ("rng", lambda rule: torch.rand(1, generator=rule.rng)),
    ],
)
def test_a_rule_that_changes_while_it_chooses_is_refused(attribute: str, count: Callable[[Forgetful], None]) -> None:
    steps = selection_by(lambda: Forgetful(count)).steps(problem())
    next(steps)
    with pytest.raises(TypeError, match=f"Forgetful.choose changed {attribute} of the rule.*`joined`"):
        next(steps)
