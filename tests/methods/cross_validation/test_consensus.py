"""The loop over the folds with given results of each fold: what is counted, averaged, kept and reported."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation import consensus
from gpexplorer.methods.cross_validation.consensus import FAR_BELOW, ConsensusState, Setup
from gpexplorer.methods.cross_validation.fold_steps import FoldReport, FoldScore, Local
from gpexplorer.methods.cross_validation.learning import initial_values
from gpexplorer.methods.cross_validation.scale_direction import scale_direction
from oracles_admm import problem

N, P, RHOS = 12, 4, (2.0, 4.0, 16.0)


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_folds() -> list[Local]:
    """Three folds of 8 training rows each, with arbitrary numbers."""
    folds = []
    for k in range(3):
        R = numbers(P, P, seed=k)
        folds.append(
            Local(
                theta=numbers(P, seed=10 + k),
                z=numbers(8, seed=20 + k),
                dual=numbers(8, seed=30 + k),
                nu=numbers(P, seed=40 + k),
                B=R @ R.T + torch.eye(P, dtype=torch.float64),
                g=numbers(P, seed=50 + k),
                loss=1.5 + k,
                slack=0.0,
                gap=0.0,
                rho=RHOS[k],
                length=(0.25, 3.0, 5.0)[k],
            )
        )
    return folds


SCORES = [
    FoldScore(loss, energy, (numbers(8, seed=60 + k),)) for k, (loss, energy) in enumerate([(3, 4), (6, 20), (9, 30)])
]
REPORTS = [FoldReport(1.0, 0.1, 0.6, 10), FoldReport(2.0, 0.3, 0.4, 20), FoldReport(4.0, 0.2, 0.5, 60)]


class Answers:
    """A mapper that answers with given results, and notes what it was asked."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers, self.asked = answers, dict[str, list[Any]]()

    def __call__(self, function: Any, *pieces: Iterable[Any]) -> list[Any]:
        self.asked.setdefault(function.__name__, []).append(list(zip(*pieces, strict=False)))
        return self.answers[function.__name__]


def three_copies(reports: list[FoldReport], **settings: Any) -> tuple[Setup, ConsensusState, Answers]:
    """Three folds with copies of theta, whose iterations end in `some_folds`."""
    folds = some_folds()
    answers = Answers(
        iterate=[((fold,), report, None) for fold, report in zip(folds, reports, strict=True)],
        score_folds=SCORES,
        prepare=[(fold._replace(rho=9.0),) for fold in folds],
    )
    usual = {"folds": 3, "copies": True, "coupling": 0.5, "tolerance": 0.01, "patience": 2}
    method = registry["gpcv-admm"](**usual | settings).with_mapper(answers)
    task = problem(n=N)
    state = ConsensusState(
        task.theta, task.theta + 0.1, 5, "iterate", 4, 1.8, tuple(folds), moved=0.5, gap=0.2, rollbacks=2, still=1
    )
    return consensus.make_setup(method, task), state, answers


def test_an_iteration_counts_averages_and_reports():
    setup, state, answers = three_copies(REPORTS)
    expected_mean, expected_folds = consensus.form_consensus(setup, state, some_folds())

    after, info = consensus.iterate_folds(setup, state)

    assert (after.step, after.iteration, after.rollbacks, after.still, after.phase) == (6, 5, 0, 0, "iterate")
    torch.testing.assert_close(after.mean, expected_mean)
    for fold, other in zip(after.folds, expected_folds, strict=True):
        torch.testing.assert_close(fold.nu, other.nu)
    assert after.best == info.objective == pytest.approx(18 / N)
    assert (setup.validation_rows, setup.training_rows) == (N, 2 * N)
    assert info.scale == pytest.approx(0.5 * math.log(54 / (2 * N)))
    assert (after.gap, info.gap, info.slope, info.lagrangian) == (0.3, 0.3, 0.6, 7.0)
    assert (info.iterations, info.rolled_back) == (30.0, 0)
    assert after.moved == pytest.approx(float((after.mean - state.mean).norm()))
    copies, z = torch.stack([fold.theta for fold in some_folds()]), torch.cat([fold.z for fold in some_folds()])
    assert info.disagreement == pytest.approx(float((copies - after.mean).norm(dim=1).max()))
    assert info.rho == pytest.approx((2.0 * 4.0 * 16.0) ** (1 / 3))
    assert info.z_norm == pytest.approx(float(z.norm()))
    exact = torch.cat([score.zs[0] for score in SCORES])
    assert info.z_gap == pytest.approx(float((exact - z).square().sum()))
    torch.testing.assert_close(info.thetas, copies)
    [requests] = answers.asked["iterate"]
    assert [(len(folds), alone) for _, folds, _, _, alone in requests] == [(1, False)] * 3
    assert requests[0][2].kappa == pytest.approx(0.5 * (N / 3) * 1.8)
    [scored] = answers.asked["score_folds"]
    assert all(torch.equal(theta, after.mean) for _, theta, _, _ in scored)


def test_the_first_order_condition_sums_gradients_and_hessians_without_their_inflation():
    setup, _, _ = three_copies(REPORTS)
    folds = some_folds()
    g = sum(fold.g for fold in folds)
    B = folds[0].B + folds[1].B / 3.0 + folds[2].B / 5.0
    copies = torch.stack([fold.theta for fold in folds])
    far = float((copies - copies.mean(0)).abs().max())
    newton, relative = float(torch.linalg.solve(B, g).norm()), float(g.abs().max()) / 7.5  # type: ignore[union-attr, arg-type]

    assert consensus._first_order(setup, folds) == pytest.approx((max(relative, far), max(newton, far)))
    alike = [fold._replace(theta=folds[0].theta) for fold in folds]
    assert consensus._first_order(setup, alike) == pytest.approx((relative, newton))
    loose = consensus.make_setup(registry["gpcv-admm-naive"](folds=3), setup.problem)
    assert consensus._first_order(loose, folds) == pytest.approx((relative, newton))
    blank = [fold._replace(B=0.0 * fold.B) for fold in alike]
    assert consensus._first_order(setup, blank) == (pytest.approx(relative), math.inf)
    lost = [alike[0]._replace(B=math.nan * alike[0].B), *alike[1:]]
    assert consensus._first_order(setup, lost)[1] == math.inf
    lost = [alike[0]._replace(g=math.nan * alike[0].g), *alike[1:]]
    assert consensus._first_order(setup, lost)[1] == math.inf


@pytest.mark.parametrize(
    ("move", "gradient", "refused", "rolled_back", "still"),
    [
        (0.005, 1.0, 0.0, False, 2),
        (1.0, 1.0, 0.0, False, 0),
        (1.0, 0.9 * FAR_BELOW * 0.01, 0.0, False, 2),
        (1.0, 1.1 * FAR_BELOW * 0.01, 0.0, False, 0),
        (0.005, 1.0, 0.02, False, 0),
        (0.005, 1.0, 0.0, True, 0),
    ],
)
def test_theta_is_at_rest_where_its_step_or_its_gradient_is_small(
    move: float, gradient: float, refused: float, rolled_back: bool, still: int, monkeypatch: pytest.MonkeyPatch
):
    reports = [report._replace(refused=refused * (k == 1), rolled_back=rolled_back) for k, report in enumerate(REPORTS)]
    setup, state, _ = three_copies(reports)
    state = state._replace(distance=7.0)
    mean = state.mean + move * torch.eye(P, dtype=torch.float64)[1]
    monkeypatch.setattr(consensus, "form_consensus", lambda *_: (mean, some_folds()))
    monkeypatch.setattr(consensus, "_first_order", lambda *_: (gradient, 0.125))

    after, info = consensus.iterate_folds(setup, state)

    assert after.moved == pytest.approx(max(move, refused))
    assert (after.still, after.rollbacks) == (still, 3 if rolled_back else 0)
    assert after.gradient == gradient
    assert (after.gap, after.distance) == ((0.2, 7.0) if rolled_back else (0.3, 0.125))  # those of the theta it keeps
    assert info.rolled_back == 3 * rolled_back
    one_back = [REPORTS[0]._replace(rolled_back=True), *REPORTS[1:]]
    setup, state, _ = three_copies(one_back)
    assert consensus.iterate_folds(setup, state)[0].rollbacks == 0


@pytest.mark.parametrize(("still", "gradient", "is_prepared"), [(2, 0.02, True), (1, 0.02, False), (2, 0.01, False)])
def test_folds_are_prepared_again_where_theta_rests_and_the_gradient_is_not_small(
    still: int, gradient: float, is_prepared: bool
):
    setup, state, answers = three_copies(REPORTS)

    after, _ = consensus.iterate_folds(setup, state._replace(still=still, gradient=gradient, resets=1))

    assert after.resets == 1 + is_prepared
    assert ("prepare" in answers.asked) == is_prepared
    [requests] = answers.asked["iterate"]
    assert [folds[0].rho for _, folds, *_ in requests] == ([9.0] * 3 if is_prepared else list(RHOS))
    reset = consensus._prepared_again(setup, state._replace(still=still))
    assert (reset.still, reset.shared) == (0, False)


def test_the_initial_theta_of_lowest_error_begins_with_its_scale():
    setup, _, given = three_copies(REPORTS, restarts=2)
    errors = iter([3.0, 1.0, 2.0])

    class Scored(Answers):
        def __call__(self, function: Any, *pieces: Iterable[Any]) -> list[Any]:
            results = super().__call__(function, *pieces)
            if function.__name__ == "score_folds":
                factor = next(errors)
                return [score._replace(loss=factor * score.loss) for score in results]
            return results

    answers = Scored(**given.answers)
    method = registry["gpcv-admm"](folds=3, copies=True, coupling=0.5, restarts=2).with_mapper(answers)
    setup = consensus.make_setup(method, setup.problem)

    steps = consensus.run(method, setup.problem, None)
    start, (after, info) = next(steps).state, next(steps)

    thetas = list(initial_values(setup.problem.theta, 2, method.seed))
    u = scale_direction(setup.problem)
    assert u is not None
    assert (start.step, start.iteration, start.rollbacks, start.still, start.shared) == (0, 0, 0, 0, False)
    assert (after.step, after.phase, after.best) == (1, "prepare", pytest.approx(18 / N))
    torch.testing.assert_close(after.mean, thetas[1])
    torch.testing.assert_close(after.theta, thetas[1] + 0.5 * math.log(54 / (2 * N)) * u)
    assert torch.equal(start.mean, setup.problem.theta)
    assert info.scale == pytest.approx(0.5 * math.log(54 / (2 * N)))
    zeros = [z for _, _, zs, _ in answers.asked["score_folds"][0] for z in zs]
    assert all(torch.equal(z, torch.zeros(8, dtype=torch.float64)) for z in zeros)
    [prepared] = answers.asked["prepare"]
    penalty = prepared[0][4]
    torch.testing.assert_close(penalty.u, u / u.norm())
    assert penalty.kappa == pytest.approx(0.5 * (N / 3) * 18 / N)
    small = [score._replace(energy=0.1) for score in SCORES]
    assert consensus._log_scale(setup, small) == pytest.approx(0.5 * math.log(0.3 / (2 * N)))
    for energy in (math.nan, -1.0, 0.0):
        assert consensus._log_scale(setup, [SCORES[0]._replace(energy=energy)]) == 0.0
    assert consensus._cross_validated_error(setup, [SCORES[0]._replace(loss=math.nan)]) == math.inf


def test_folds_of_one_theta_and_a_single_fold_have_no_penalty():
    task = problem(n=N)
    for key, groups in (("gpcv-admm", 1), ("gpcv-admm-holdout", 1), ("gpcv-admm-naive", 4)):
        setup = consensus.make_setup(registry[key](), task)
        assert len(setup.groups) == groups
        assert setup.kappa(3.0) == 0.0
    assert [len(part) for part in setup.by_group(range(4))] == [1] * 4
    uncalibrated = consensus.make_setup(registry["gpcv-admm"](calibrate=False), task)
    assert torch.equal(consensus._with_scale(uncalibrated, task.theta, 3.0), task.theta)


def test_two_copies_have_a_consensus_and_two_folds_of_one_theta_are_one_group():
    setup, state, _ = three_copies(REPORTS)
    folds, task = [fold._replace(z=numbers(6, seed=2)) for fold in some_folds()[:2]], setup.problem
    answers = Answers(
        iterate=[((fold,), report, None) for fold, report in zip(folds, REPORTS, strict=False)],
        score_folds=[score._replace(zs=(numbers(6, seed=1),)) for score in SCORES[:2]],
    )
    pair = consensus.make_setup(registry["gpcv-admm"](folds=2, copies=True).with_mapper(answers), task)

    after, _ = consensus.iterate_folds(pair, state._replace(folds=tuple(folds)))

    kappa = pair.kappa(state.best)
    expected = sum(fold.theta + fold.nu / kappa for fold in folds) / 2  # type: ignore[operator]
    torch.testing.assert_close(after.mean, expected)
    assert [alone for *_, alone in answers.asked["iterate"][0]] == [False, False]
    naive = consensus.make_setup(registry["gpcv-admm-naive"](folds=2), task)
    mean, same = consensus.form_consensus(naive, state, folds)
    torch.testing.assert_close(mean, (folds[0].theta + folds[1].theta) / 2)
    assert same == folds
    [shared] = consensus.make_setup(registry["gpcv-admm"](folds=2), task).groups
    assert len(shared.validation) == 2


def test_without_a_finite_error_nothing_is_prepared():
    setup, state, answers = three_copies(REPORTS)
    answers.answers["score_folds"] = [score._replace(loss=math.inf) for score in SCORES]

    after, _ = consensus._prepare_folds(setup, state._replace(step=0))

    assert (after.step, after.phase, after.best) == (1, "prepare", state.best)
    assert "prepare" not in answers.asked


@pytest.mark.parametrize("shared", [False, True])
def test_a_run_continues_with_the_folds_of_its_state_unless_they_are_of_the_other_kind(shared: bool):
    setup, state, answers = three_copies(REPORTS)

    after = next(consensus.run(setup.scheme, setup.problem, state._replace(shared=shared))).state

    assert (after.step, after.shared) == (6, False)
    assert ("prepare" in answers.asked) == shared


def test_a_run_ends_after_its_last_iteration_or_too_many_steps_taken_back():
    setup, state, _ = three_copies(REPORTS, max_iterations=7, max_rollbacks=3)
    method = setup.scheme

    def reason(**changes: Any) -> str | None:
        outcome = consensus.outcome_of(method, state._replace(**changes))
        return outcome.reason if outcome else None

    assert [reason(iteration=k) for k in (6, 7)] == [None, "budget"]
    assert [reason(rollbacks=k) for k in (2, 3)] == [None, "diverged"]
    assert reason(best=math.inf) == "diverged"
    outcome = consensus.outcome_of(method, state._replace(rollbacks=3))
    assert "bound the noise from below" in outcome.message  # type: ignore[union-attr]
    single = consensus.outcome_of(method, state._replace(rollbacks=3, theta=state.theta.float()))
    assert "float64" not in outcome.message  # type: ignore[union-attr]
    assert "use dtype float64" in single.message  # type: ignore[union-attr]
