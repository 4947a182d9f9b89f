"""Several initial values, choices by likelihood, and predictions with the functions used in learning."""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import cache, partial
from typing import Any

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.features.basis_choices import Leading
from gpexplorer.linalg.replayed_descent import Replayed
from gpexplorer.methods.eigenfunctions import learning
from gpexplorer.methods.eigenfunctions.evidence import regress
from gpexplorer.methods.eigenfunctions.grid_method import SPACINGS
from gpexplorer.methods.eigenfunctions.grief import Grief
from gpexplorer.methods.eigenfunctions.kept_variance import share_kept
from gpexplorer.methods.eigenfunctions.learning import (
    LEAST_GAIN,
    PATIENCE,
    _follow,
    _report,
    basis_descent,
    initial_hyperparameters,
    initial_state,
    learn_hyperparameters,
    longer_lengthscales,
)
from gpexplorer.methods.eigenfunctions.rff import RFF
from gpexplorer.problem import Dataset, Problem, Step
from oracles_grief import nlml, problem
from whole_run import whole_run

SETTINGS = {"num_eigenfunctions": 20, "grid_points": 8, "subset": 80, "evaluations": 20, "basis": "eigenvalues"}


def repeating(seed: int) -> Problem:
    """Five inputs; two of them are the sum and the difference of two others, as in designed experiments."""
    rng = torch.Generator().manual_seed(seed)
    a, b, c = (torch.randint(0, k, (80,), generator=rng).double() for k in (6, 4, 4))
    X = torch.stack([a + b, a - b, a, b, c], 1)
    X = (X - X.mean(0)) / X.std(0)
    y = torch.sin(1.5 * X[:, 2]) + 0.5 * X[:, 3] * X[:, 4] + 0.3 * X[:, 4] ** 2
    train = Dataset(X, (y - y.mean()) / y.std() + 0.03 * torch.randn(80, generator=rng, dtype=torch.float64))
    kernel = kernels.make("se-ard", 5)
    return Problem(train, kernel, kernel.start(train))


@cache
def learned(seed: int, starts: int = 2, spacing: str = "by likelihood") -> list[Step]:
    return list(Grief(**SETTINGS, starts=starts, spacing=spacing).steps(repeating(seed)))


def test_several_initial_values_avoid_a_poor_optimum_of_one():
    alone, several = (learned(7, starts)[-1].state.objective for starts in (1, 2))

    assert several < alone - 5.0


def test_a_shorter_lengthscale_is_tried_where_few_functions_fit_much_worse_than_the_exact_gp(
    monkeypatch: pytest.MonkeyPatch,
):
    """With 12 functions for five inputs, those chosen for one lengthscale too many leave no way to a shorter one."""
    task, few = repeating(7), Grief(**{**SETTINGS, "num_eigenfunctions": 12})

    states = [step.state for step in few.steps(task)]

    searches = [state for state in states if state.phase == "search"]
    ends = {state.phase: state for state in states}
    assert ends["trial"].objective > ends["subset"].objective + 20.0
    assert ends["search"].objective < ends["trial"].objective - 20.0
    assert ends["search"].exact == ends["subset"].objective
    resumed = [step.state for step in few.steps(task, searches[len(searches) // 2])]
    torch.testing.assert_close(resumed[-1].theta, states[-1].theta, rtol=0, atol=0)
    assert [state.step for state in (*searches[: len(searches) // 2 + 1], *resumed)] == [
        state.step for state in states if state.step >= searches[0].step
    ]
    monkeypatch.setattr(learning, "WORSE_PER_ROW", math.inf)
    assert states[-1].objective < list(few.steps(task))[-1].state.objective - 50.0


def test_no_shorter_lengthscale_is_tried_where_the_functions_fit_as_well_as_the_exact_gp():
    assert not [step for step in learned(0, 2, "equispaced") if step.state.phase == "search"]


@pytest.mark.parametrize(("seed", "spacing"), [(0, "equispaced"), (7, "by likelihood")])
def test_the_objective_of_a_record_is_that_of_the_functions_in_its_prediction(seed: int, spacing: str):
    """The largest eigenfunctions at the learned theta may be different ones, and a worse basis."""
    task, method = repeating(seed), Grief(**SETTINGS, spacing=spacing)
    steps = [step.state for step in learned(seed, 2, spacing) if step.state.phase == "learn"]

    for state in (steps[0], steps[-1]):
        choice = method.choose(task, state.chosen, state.spacing)
        assert regress(choice, state.theta, task.train).value == pytest.approx(state.objective, rel=1e-9)
        Phi = choice(state.theta)(task.train.X).T
        A = Phi @ Phi.T + math.exp(2.0 * float(state.theta[-1])) * torch.eye(80, dtype=torch.float64)
        mean = method.posterior(task, state)(task.train.X).mean
        torch.testing.assert_close(mean, Phi @ Phi.T @ torch.linalg.solve(A, task.train.y), rtol=1e-6, atol=1e-6)
    own = regress(method.choose(task, state.theta, state.spacing), state.theta, task.train).value
    assert own >= state.objective - 1e-4 * abs(state.objective)


def test_a_new_choice_is_used_only_if_the_rows_are_more_likely_and_an_incomplete_round_continues():
    states = [step.state for step in learned(0, 2, "equispaced") if step.state.phase == "learn"]
    ends = {state.round: state for state in states}
    begins = {state.round: state for state in reversed(states)}
    anew = [k for k in begins if k and not torch.equal(begins[k].chosen, ends[k - 1].chosen)]

    assert anew
    for k in begins:
        assert ends[k].objective <= begins[k].objective
        if k in anew:
            assert begins[k].objective < ends[k - 1].objective - 1e-4 * abs(ends[k - 1].objective)
            torch.testing.assert_close(begins[k].chosen, ends[k - 1].theta, rtol=0, atol=0)
        elif k:
            assert ends[k - 1].position == SETTINGS["evaluations"]
            assert begins[k].objective == pytest.approx(ends[k - 1].objective, rel=1e-9)


def test_the_trial_selects_the_best_initial_value_and_spacing():
    steps = learned(7)
    trials = [step.state for step in steps if step.state.phase == "trial"]
    first = next(step.state for step in steps if step.state.phase == "learn")

    assert {state.round for state in trials} == {0, 1, 2, 3, 4, 5}
    best = min(state.objective for state in trials)
    assert first.objective == pytest.approx(best, rel=1e-9)  # here the subset contains all rows
    assert first.spacing == trials[-1].spacing
    assert first.spacing in SPACINGS
    torch.testing.assert_close(first.chosen, trials[-1].chosen, rtol=0, atol=0)


def test_steps_rounds_and_evaluations_are_counted_without_gaps():
    states = [step.state for step in learned(0, 2, "equispaced")]
    rounds: dict[tuple[str, int], list[int]] = {}
    for state in states[1:]:
        rounds.setdefault((state.phase, state.round), []).append(state.position)

    assert states[0][:4] == (0, "subset", 0, 0)
    assert [state.step for state in states] == list(range(len(states)))
    assert all(positions == list(range(1, len(positions) + 1)) for positions in rounds.values())
    last = states[-1].round
    wanted = {"subset": range(2), "trial": range(2), "learn": range(last + 1)}
    assert list(rounds) == [(phase, k) for phase, numbers in wanted.items() for k in numbers]
    assert last > 0


class RecordingGrief(Grief):
    """A method that keeps what its choices were asked for."""

    key = ""  # not registered

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.asked: list[Any] = []

    def choose(self, problem: Problem, theta: torch.Tensor, spacing: str = "") -> Leading:
        self.asked.append((theta.clone(), spacing))
        return super().choose(problem, theta, spacing)

    def select(self, problem: Problem, theta: torch.Tensor, spacing: str = "", previous: Any = None) -> Leading:
        self.asked.append((spacing, previous))
        return super().select(problem, theta, spacing, previous)


def test_the_trial_doubles_the_lengthscales_until_the_functions_represent_half_of_the_kernel():
    task = problem(d=3)
    theta = task.theta.clone()
    theta[1:-1] = -3.0
    method = RecordingGrief(num_eigenfunctions=20, grid_points=8, subset=20, evaluations=1, starts=2, spacing="mixed")
    state = initial_state(task, "mixed")._replace(phase="trial", theta=theta, theta_begin=theta)

    list(initial_hyperparameters(method, task, state))
    asked = list(method.asked)

    count = (len(asked) + 1) // 2  # all but the first are asked for their share, and then all are tried
    doubled = [theta + k * math.log(2.0) * torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0]) for k in range(count)]
    torch.testing.assert_close([theta for theta, _ in asked], [*doubled[1:], *doubled])
    assert {spacing for _, spacing in asked} == {"mixed"}
    kept = []
    for each in doubled:
        Phi = method.choose(task, each, "mixed")(each)(task.train.X)
        kept.append(float((Phi.T @ Phi).trace() / task.kernel(each, task.train.X, task.train.X).trace()))
    assert 3 < len(kept) < 12
    assert max(kept[1:-1]) < 0.5 <= kept[-1]


def test_a_new_choice_begins_with_the_functions_of_its_own_spacing_only():
    settings = {"num_eigenfunctions": 9, "grid_points": 6, "evaluations": 2, "max_rounds": 3}
    task, method = problem(), RecordingGrief(**settings, spacing="by likelihood")
    state = initial_state(task, "mixed")._replace(phase="learn")

    list(learn_hyperparameters(method, task, state))

    selected = [each for each in method.asked if isinstance(each[0], str)]
    assert selected[0] == ("mixed", None)
    for k in range(0, len(selected) - 1, 4):
        asked = dict(selected[k + 1 : k + 4])
        assert set(asked) == set(SPACINGS)
        assert [spacing for spacing, previous in asked.items() if previous is not None] == [selected[k][0]]


def test_the_share_of_the_prior_variance_is_that_of_the_first_500_rows():
    task = problem(n=520)
    task.train.X[500:] += 1e-3
    choice = Grief(num_eigenfunctions=9, grid_points=6).choose(task, task.theta)
    X = task.train.X[:500]
    Phi = choice(task.theta)(X).T

    wanted = float((Phi @ Phi.T).trace() / task.kernel(task.theta, X, X).trace())

    assert share_kept(task, task.theta, choice) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("level", "share", "ends"), [
    (0.5, 0.75, False), (0.5, 1.25, True), (-0.5, 0.75, False), (-3.0, 1.25, True), (-3.0, 0.75, False),
])  # fmt: skip
def test_a_new_choice_is_used_if_it_gains_the_tolerance_times_the_objective(level: float, share: float, ends: bool):
    """In other units of y the gain is the same, and the objective takes the level that is asked for.

    Learning begins at an optimum for its functions. Of the functions that are then proposed, one is another.
    """
    source, settings = problem(), {"num_eigenfunctions": 9, "grid_points": 6, "evaluations": 30}
    grid = Grief(**settings).grid(source)
    index = grid.spectrum(source.theta, 11).axis_indices
    first, proposed = (Leading(grid, index[rows]) for rows in ([*range(9)], [0, 1, 2, 3, 10, 5, 6, 7, 8]))
    *_, best = basis_descent(Grief(**settings), source, first, source.train, source.theta)
    scale = math.exp((level - best.value) / 60)
    theta = best.theta + math.log(scale) * torch.tensor([1.0, 0.0, 0.0, 1.0])
    task = Problem(Dataset(source.train.X, scale * source.train.y), source.kernel, theta)
    s2 = torch.exp(2.0 * theta[-1])
    before, after = (float(nlml(each(theta)(task.train.X).T, task.train.y, s2)) for each in (first, proposed))
    gain = before - after

    class Begin(Grief):
        key = ""  # not registered

        def select(self, problem: Problem, theta: torch.Tensor, spacing: str = "", previous: Any = None) -> Leading:
            return first if previous is None else proposed

    method = Begin(**settings, tolerance=share * gain / max(abs(level), 1.0), max_rounds=2)
    begin = initial_state(task, "equispaced")._replace(phase="learn")
    _, (state, outcome) = whole_run(learn_hyperparameters(method, task, begin))

    assert gain > 0.1
    assert before == pytest.approx(level, abs=0.01)
    assert outcome.reason == "budget"  # the gain is more than CONVERGED allows
    assert state.round == (0 if ends else 1)
    assert (f"by only {gain:.2g} nat" in outcome.message) == ends
    assert ("Lower tolerance" in outcome.message) == ends


def test_a_run_with_spacing_by_likelihood_resumes_from_any_record():
    task, method = repeating(7), Grief(**SETTINGS, spacing="by likelihood")
    steps = [step.state for step in learned(7)]
    ends = [k for k in range(len(steps) - 1) if steps[k][1:3] != steps[k + 1][1:3]]

    for k in (*ends, ends[1] + 4, ends[2] + 3, len(steps) - 2):
        after = next(method.steps(task, steps[k])).state
        assert (after.step, after.phase, after.round, after.position) == steps[k + 1][:4]
        torch.testing.assert_close(after.theta, steps[k + 1].theta, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(after.chosen, steps[k + 1].chosen, rtol=1e-8, atol=1e-10)


def test_a_descent_stops_when_it_gains_too_little():
    task, closed = problem(), []
    begin = initial_state(task)._replace(phase="learn")

    def decreasing(has_converged: bool | None) -> Generator[Replayed, None, bool | None]:
        try:
            for k in range(100):
                yield Replayed(k + 1, task.theta, -1000.0 - 10.0 * min(k, 4) - 1e-3 * k, None)
            return has_converged
        finally:
            closed.append(True)

    cases = (
        (1e-4, False, 5 + PATIENCE, 1e-3 * PATIENCE, 40.0 + 1e-3 * (4 + PATIENCE)),
        (0.0, False, 100, 0.0, 40.0 + 1e-3 * 99),
        (0.0, None, 100, 0.0, 40.0 + 1e-3 * 99),  # all evaluations are used
        (0.0, True, 100, 0.0, 0.0),
    )
    for tolerance, has_converged, count, last, whole in cases:
        descent, report = decreasing(has_converged), partial(_report, task)
        steps, (_, rest) = whole_run(_follow(begin, descent, tolerance, lambda _: {}, report))
        assert len(steps) == count
        assert (rest.last, rest.whole) == pytest.approx((last, whole), rel=1e-6)
        assert (rest.is_cut, rest.value) == (has_converged is None, -1040.0 - 1e-3 * (count - 1))
    assert closed == [True] * 4


@pytest.mark.parametrize(("tolerance", "reason"), [(0.5, "budget"), (1e-9, "converged")])
def test_learning_has_converged_only_where_its_last_evaluations_gained_nothing(tolerance: float, reason: str):
    """The same functions are chosen again, so that only the descent could go on."""
    task = problem(2.0)

    class Same(Grief):
        key = ""  # not registered

        def select(self, problem: Problem, theta: torch.Tensor, spacing: str = "", previous: Any = None) -> Leading:
            return self.choose(task, task.theta)

    settings = {"num_eigenfunctions": 9, "grid_points": 6, "evaluations": 200, "tolerance": tolerance}
    begin = initial_state(task, "equispaced")._replace(phase="learn")
    _, (state, outcome) = whole_run(learn_hyperparameters(Same(**settings), task, begin))
    choice = Same(**settings).choose(task, task.theta)
    *_, best = basis_descent(Same(**settings), task, choice, task.train, state.theta)

    assert outcome.reason == reason
    assert (state.objective - best.value > LEAST_GAIN) == (reason == "budget")
    assert ("The last 6 evaluations still lowered it" in outcome.message) == (reason == "budget")


def test_only_lengthscales_are_made_longer():
    task = problem()
    result = longer_lengthscales(task.kernel, task.theta, 3)

    assert [name.startswith("lengthscale") for name in task.kernel.names] == [False, True, True, False]
    moved = torch.stack(result) - task.theta
    torch.testing.assert_close(moved[2], 2 * math.log(2.0) * torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    plain = kernels.make("linear", 2)
    assert len(longer_lengthscales(plain, torch.zeros(len(plain.names)), 3)) == 1


def rare_targets(rare: float) -> Problem:
    """400 rows whose targets are 0, but for the second, which no subset of 80 rows has with these seeds."""
    X = torch.rand(400, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 3.0
    y = torch.zeros(400, dtype=torch.float64)
    y[1] = rare
    kernel = kernels.make("se-ard", 2)
    train = Dataset(X, y)
    return Problem(train, kernel, kernel.start(train))


@pytest.mark.parametrize(
    ("method", "rare"), [(Grief(**SETTINGS, starts=1), 20.0), (RFF(num_features=20, subset=80, evaluations=20), 1e-3)]
)
def test_the_noise_of_a_subset_without_the_rare_targets_is_not_where_learning_from_all_rows_begins(
    method: Any, rare: float
):
    task = rare_targets(rare)
    assert not learning.subset_rows(method, task).y.any()
    steps = list(method.steps(task))
    states = [step.state for step in steps]
    first = next(i for i, state in enumerate(states) if state.phase == "learn")

    alone = 0.5 * 400 * (1.0 + math.log(rare**2 / 400))  # the NLML of noise alone
    assert math.exp(states[first - 1].theta[-1]) < 1e-3 * rare / 20.0
    assert all(alone - 20.0 < state.objective < alone + 1.0 for state in states[first:])
    for state in states[first:]:
        assert method.posterior(task, state).asked_for("y").var(task.train.X[:5]).sqrt().max() > 0.02 * rare
    assert [step.info for step in method.steps(task, states[first])] == [step.info for step in steps[first + 1 :]]
    assert [step.info for step in method.steps(task, states[first - 1])] == [step.info for step in steps[first:]]


def test_a_likelihood_without_a_number_on_all_rows_ends_the_run_with_a_sentence(monkeypatch: pytest.MonkeyPatch):
    task, method = rare_targets(20.0), Grief(**SETTINGS, starts=1)
    of_rows = learning.evidence_gradient

    def no_gradient(choice: Any, theta: torch.Tensor, rows: Dataset, *rest: Any) -> torch.Tensor:
        gradient = of_rows(choice, theta, rows, *rest)
        return gradient * math.nan if len(rows) == 400 else gradient

    monkeypatch.setattr(learning, "evidence_gradient", no_gradient)
    _, outcome = whole_run(method.steps(task))
    assert outcome.reason == "failed"
    assert outcome.message.startswith("With these basis functions the likelihood of all rows has no number or no")
    assert " inf " not in outcome.message
