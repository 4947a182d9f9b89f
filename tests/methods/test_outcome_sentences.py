"""Why a method ended: the numbers of each sentence, and from which number on it is another sentence."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpexplorer.evidence_limits import EvidenceLimits
from gpexplorer.methods.cross_validation import consensus, learning
from gpexplorer.methods.eigenfunctions.kept_variance import with_share_kept
from gpexplorer.methods.exact.reliability import StepCheck, used_up
from gpexplorer.methods.inducing.settings import LearningMethod
from gpexplorer.methods.inducing.swapping import after_swaps
from gpexplorer.methods.minibatches.held_out_refit import Refit
from gpexplorer.methods.neighbours import recorded_descent, states, vecchia
from gpexplorer.problem import Outcome


def record(**fields: Any) -> Any:
    """A state, a method or a problem with nothing but these fields."""
    return SimpleNamespace(**fields)


FOLDS = [
    ({}, "", ""),
    ({"best": math.inf}, "diverged", "C z = y has no finite solution"),
    ({"rollbacks": 4}, "", ""),
    ({"rollbacks": 5}, "diverged", "5 consecutive steps violated C z = y too much and were taken back; raise rho. The"),
    ({"rollbacks": 6, "dtype": torch.float32}, "diverged", "taken back; use dtype float64, or raise rho."),
    ({"rollbacks": 5, "rule": "z eliminated"}, "diverged", "were taken back; bound the noise from below. The best"),
    ({"rollbacks": 5, "gradient": 1e-3, "gap": 1.1e-3}, "diverged", "5 consecutive steps violated C z = y too much"),
    ({"rollbacks": 5, "gradient": 1e-3, "distance": 0.2}, "converged", "theta is accurate to about 0.2, and depends"),
    ({"rollbacks": 4, "gradient": 1e-3}, "", ""),
    ({"still": 2, "gradient": 1e-3}, "", ""),
    ({"still": 3, "gradient": 1e-3, "gap": 1.1e-3}, "", ""),
    ({"still": 3, "gradient": 1.1e-3, "resets": 2}, "", ""),
    ({"still": 3, "gradient": 1.1e-3, "resets": 3}, "stopped", "error is 0.0011: this is not a minimum. Lower cg_tol"),
    ({"still": 3, "gradient": 1.1e-3, "resets": 3, "gap": 4e-4}, "stopped", "this is not a minimum. Rounding leaves a "
     "residual of C z = y of 0.0004; bound the noise from below. The best"),
    ({"still": 3, "gradient": 1e-3}, "converged", "error is 0.001, and the residual of C z = y is 0.0002; theta is "
     "accurate to about 0.0003, and depends on rounding below that. The best theta has a cross-validated error of 1.2"),
    ({"still": 3, "gradient": 1e-3, "distance": 1e-5, "gap": 1e-3}, "converged", "accurate to about 0.001, and"),
    ({"iteration": 39}, "", ""),
    ({"iteration": 40}, "budget", "All 40 iterations are done; raise max_iterations. The best theta has a"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "reason", "words"), FOLDS)
def test_iterations_over_folds_end_at_their_limits(changed: dict[str, Any], reason: str, words: str):
    rule = changed.get("rule", "z follows")
    scheme = record(max_rollbacks=5, patience=3, tolerance=1e-3, max_iterations=40, theta_method=rule)
    goes_on = {
        "folds": [record(tolerance=3e-4), record(tolerance=1e-4)],
        "rollbacks": 0,
        "still": 0,
        "gap": 2e-4,
        "gradient": 0.5,
        "resets": 0,
        "iteration": 7,
        "distance": 3e-4,
    }
    theta = torch.zeros(2, dtype=changed.get("dtype", torch.float64))

    outcome = consensus.outcome_of(scheme, record(**(goes_on | {"best": 1.25, "theta": theta} | changed)))

    assert (outcome.reason if outcome else "") == reason
    assert words in (outcome.message if outcome else "")


def of_learning(name: str, evaluations: int, largest: float, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Outcome:
    """The outcome of a method that allows six evaluations and a tolerance of a hundredth, after 9 steps in 2 rounds."""
    state = record(step=9, round=1, answers=range(evaluations), theta=None, objective=more.pop("objective", -3.0))
    if name == "ml":
        method = record(**({"evaluations": 6, "tolerance": 1e-2, "optimiser": "CG", "is_sum_of_squares": False} | more))
        monkeypatch.setattr(learning, "_largest_derivative", lambda problem, state: largest)
        return learning._outcome(method, record(), state)
    monkeypatch.setattr(recorded_descent, "slope_of", lambda kernel, state: largest)
    monkeypatch.setattr(recorded_descent, "slope_nearby", lambda *_: 0.0)
    settings = {"evaluations": 6, "tolerance": 1e-2} | more
    if name == "states":
        return states.States(**settings).ended(record(kernel=None), state)
    return vecchia.Vecchia(**settings)._outcome(record(kernel=None), state, 1.25)


LEARNT = [
    ("ml", 5, 0.03, "converged", "The largest derivative is 0.03 after 5 evaluations."),  # .01 |objective|
    ("ml", 6, 0.031, "budget", "All 6 evaluations are done; the largest derivative is 0.031. Raise evaluations."),
    (
        "ml",
        5,
        0.031,
        "budget",
        "CG finds no lower value after 5 evaluations, though the largest derivative is 0.031: ro",
    ),
    ("vecchia", 5, 0.03, "converged", "The largest derivative is 0.03 after 9 evaluations in 2 rounds."),
    (
        "vecchia",
        5,
        0.031,
        "budget",
        "L-BFGS-B finds no lower value after 9 evaluations in 2 rounds, though the largest ",
    ),
    ("vecchia", 6, 0.5, "budget", "All evaluations are used after 9 steps; the largest derivative is 0.5. Raise eval"),
    ("states", 5, 0.03, "converged", "The largest derivative is 0.03 after 9 evaluations."),
    (
        "states",
        5,
        0.031,
        "budget",
        "L-BFGS-B finds no lower value after 9 evaluations, though the largest derivative is",
    ),
    ("states", 6, 0.5, "budget", "All evaluations are used after 9 steps; the largest derivative is 0.5."),
]


@pytest.mark.parametrize(("name", "evaluations", "largest", "reason", "words"), LEARNT)
def test_learning_ends_by_its_evaluations(name, evaluations, largest, reason, words, monkeypatch):
    outcome = of_learning(name, evaluations, largest, monkeypatch)

    assert outcome.reason == reason
    assert outcome.message.startswith(words)
    if name != "ml":
        assert "Turn on learn" in of_learning(name, evaluations, largest, monkeypatch, learn=False).message


def test_of_an_objective_near_zero_the_tolerance_itself_is_the_limit(monkeypatch: pytest.MonkeyPatch):
    reasons = [of_learning("ml", 5, largest, monkeypatch, objective=0.1).reason for largest in (0.01, 0.011)]

    assert reasons == ["converged", "budget"]


def test_neighbours_that_would_change_again_need_more_rounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recorded_descent, "slope_of", lambda kernel, state: 0.5)
    monkeypatch.setattr(recorded_descent, "slope_nearby", lambda *_: 0.0)
    method = vecchia.Vecchia(evaluations=6, tolerance=1.0)
    state = record(step=4, round=0, answers=range(5), objective=3.0, theta=None)

    messages = [method._outcome(record(kernel=None), state, stretch).message for stretch in (1.25, 1.26)]

    assert messages[0].endswith("after 4 evaluations in 1 round.")
    assert messages[1] == "All rounds are used after 4 steps; the largest derivative is 0.5. Raise rounds."


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_an_epoch_ends_a_run_by_its_decrease_of_objective_and_priors(shift: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpexplorer.methods.inducing.settings.log_prior", lambda kernel, theta: theta)
    slopes = {"of theta": 2.2}  # sqrt(4 * 25 rows * .05 nat) = 2.236
    method = record(tolerance=1e-2, optimiser="CG", _slope=lambda problem, state: slopes["of theta"])
    problem = record(kernel=None, train=range(25))

    def ended(begin: float, objective: float, prior_gain: float = 0.0) -> Outcome | None:
        state = record(epoch=2, epoch_begin=begin, theta=shift + prior_gain, theta_begin=shift, position=7)
        return LearningMethod.ending(method, problem, state, objective)

    assert ended(-47.9, -50.0) is None  # 2.1 is more than .5
    assert ended(-49.49, -50.0) is None
    words = "Epoch 3 improved the objective by 0.5, less than the tolerance 0.01 of 50."
    assert ended(-49.5, -50.0).message.startswith(words)
    assert ended(-49.5, -50.0).reason == "budget"  # more than .005 nat
    assert "more than 0.05 nat together: lower tolerance" in ended(-49.9949, -50.0).message
    assert ended(-49.9951, -50.0).reason == "converged"
    assert ended(-49.9951, -50.0).message.endswith("the tolerance 0.01 of 50.")
    assert ended(-49.5, -50.0, prior_gain=0.1) is None
    assert "by 0, less than" in ended(-51.0, -50.0).message  # it rose
    assert ended(0.109, 0.1) is not None  # of an objective near 0, the tolerance itself
    assert ended(0.111, 0.1) is None
    slopes["of theta"] = 2.3
    assert ended(-50.0, -50.0).reason == "budget"
    words = "CG finds no lower value after 7 evaluations, though the largest derivative is 2.3"
    assert words in ended(-50.0, -50.0).message


def test_functions_that_represent_less_than_a_twentieth_are_warned_of():
    assert with_share_kept("Done.", 0.05, 30) == "Done."
    assert "The 30 basis functions represent only 4.9 % of the prior variance" in with_share_kept("Done.", 0.049, 30)


@pytest.mark.parametrize(
    ("dtype", "way_out"), [(torch.float32, "Use dtype float64"), (torch.float64, "Raise the noise")]
)
def test_rounding_that_ends_a_run_is_written_with_its_numbers(dtype: torch.dtype, way_out: str):
    system: Any = record(diag=torch.tensor([3.0, 8.0]), s2=2e-5, y=torch.zeros(2, dtype=dtype))
    rising, small = StepCheck(-0.25, 1e-3, 1e-6), StepCheck(4e-5, -3e-3, 1e-6)

    messages = [used_up(check, 17, system).message for check in (rising, small)]

    assert messages[0].startswith("The objective would rise by 0.25 in iteration 17, although")
    assert messages[1].startswith(
        "Rounding changes the objective by 0.003 in iteration 17, which decreases it by 4e-05"
    )
    assert "decreases it by 4e-05: " in messages[1]
    bands = "Bands contain an estimate of the error of the mean."
    assert all(f"the signal variance is 4e+05 times the noise. {bands} {way_out}" in message for message in messages)
    assert [used_up(check, 1, system).reason for check in (rising, small)] == ["diverged", "budget"]


def test_a_refit_names_the_noise_before_and_after_as_standard_deviations():
    refit = Refit(torch.tensor([0.0, math.log(0.5)]), 1.234, 0.567, 40, True)

    assert refit.sentence(0.09).endswith("their NLPD from 1.23 to 0.567 (noise sd 0.3 becomes 0.5).")


@pytest.mark.parametrize(
    ("gap", "most", "words"),
    [
        (1.5, 9, "With 3 points: at most 1.5 nat from the exact model with these hyperparameters."),
        (1.51, 9, "That is more than the gap of 1.5, but every row is explained."),
        (1.51, 3, "That is more than the gap of 1.5, but a factor with more points would be too large."),
    ],
)
def test_points_that_follow_a_gap_say_what_keeps_them_from_it(gap: float, most: int, words: str, monkeypatch):
    monkeypatch.setattr(after_swaps, "resized", lambda *_: (None, EvidenceLimits(-20.0, -20.0 + gap)))
    monkeypatch.setattr(after_swaps, "most_points", lambda n, m: most)
    problem, state = record(train=range(50)), record(inducing=range(3))

    steps = after_swaps.resize(problem, state, "elbo", 1.5)
    with pytest.raises(StopIteration) as end:
        next(steps)

    changed, sentence = end.value.value
    assert changed is None
    assert sentence.strip().endswith(words)
