"""The chains over weights and noise of learned features: where they begin, what a step reports, and R-hat."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.minibatches import weight_chains
from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood
from gpexplorer.methods.minibatches.held_out_refit import rows_set_aside
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.methods.minibatches.state import Chains, MinibatchState
from gpexplorer.methods.minibatches.weight_chains import (
    ACCEPTANCE,
    CHAINS,
    WARM_UP,
    HeldOutDensity,
    _initial,
    largest_rhat,
    mean_noise,
    sample_weights,
)
from oracles_minibatches import method, problem
from whole_run import whole_run


def learned(parts: int = 0) -> tuple[Model, MinibatchState]:
    """A model with rows set aside, and a state after its features were learned, with so many other parts."""
    at = problem(n=60, noise=0.5)
    algorithm = method("scgd", folds=1)
    state = next(algorithm.steps(at)).state._replace(phase="best", step=7)
    return Model(algorithm, at, 0.3), state._replace(fold_thetas=(state.theta,) * parts)


SEED, SAMPLES = 3, 5


def test_steps_are_counted_and_report_the_noise_the_acceptance_and_r_hat():
    model, state = learned()
    steps, last = whole_run(sample_weights(model, state, SEED, SAMPLES))
    assert len(steps) == WARM_UP + 5
    assert [step.state.step for step in steps] == list(range(8, 8 + WARM_UP + 5))
    assert [step.state.chains.position for step in steps] == list(range(1, WARM_UP + 6))
    assert [len(step.state.chains.draws) for step in steps] == [0] * WARM_UP + [1, 2, 3, 4, 5]
    assert all(step.state.phase == step.info.phase == "sample" for step in steps)
    for step in steps:
        chains = step.state.chains
        assert step.info.noise == pytest.approx(math.exp(0.5 * float(chains.z[:, -1].mean())))
        assert 0.0 <= step.info.acceptance <= 1.0
        if len(chains.draws):
            assert torch.equal(chains.draws[-1], chains.z)
    assert [math.isnan(step.info.rhat) for step in steps] == [True] * (WARM_UP + 3) + [False] * 2
    assert steps[-1].info.rhat == largest_rhat(last.chains.draws)
    tunings = [step.state.chains.tuning for step in steps]
    assert tunings[WARM_UP - 1].updates == WARM_UP * weight_chains.ITERATIONS
    assert tunings[-1].updates == tunings[WARM_UP - 1].updates  # the step size stays once draws are kept
    assert tunings[-1].log_eps == tunings[WARM_UP - 1].average
    assert ACCEPTANCE == 0.574
    repeated, _ = whole_run(sample_weights(model, steps[WARM_UP].state, SEED, SAMPLES))
    assert len(repeated) == 4
    assert torch.equal(repeated[-1].state.chains.draws, last.chains.draws)


def test_chains_begin_at_different_points_near_the_prior():
    model, state = learned()
    density = HeldOutDensity(rows_set_aside(model, state.theta, exact_likelihood(model, state.theta)))
    begun = _initial(density, 3)
    normal = torch.randn(CHAINS, model.D + 1, generator=generator(3, "weights"), dtype=torch.float64)
    torch.testing.assert_close(begun.z, density.mu + 0.5 * density.tau * normal)
    assert begun.draws.shape == (0, CHAINS, model.D + 1)
    assert begun.position == 0


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_the_prior_of_the_noise_is_as_narrow_as_the_rows_of_the_other_parts_allow(
    parts: int, monkeypatch: pytest.MonkeyPatch
):
    model, state = learned(parts)
    seen = []
    real = weight_chains.HeldOutDensity
    monkeypatch.setattr(weight_chains, "HeldOutDensity", lambda *inputs: seen.append(inputs[1]) or real(*inputs))
    next(sample_weights(model, state, SEED, SAMPLES))
    assert seen == [parts * 18]
    density = real(rows_set_aside(model, state.theta, exact_likelihood(model, state.theta)), seen[0])
    assert float(density.tau[-1]) == pytest.approx(math.sqrt(2.0 / max(18 * parts, 2)))
    assert float(density.mu[-1]) == pytest.approx(2.0 * float(state.theta[-1]))


def test_r_hat_watches_the_noise_and_the_leading_weights_alone():
    draws = torch.randn(60, 4, 9, dtype=torch.float64, generator=generator(7, "draws"))
    for place, seen in ((-1, True), (-2, True), (-4, True), (-5, False), (0, False)):
        apart = draws.clone()
        apart[:, 0, place] += 5.0
        assert (largest_rhat(apart) > 1.5) == seen
    assert not math.isnan(largest_rhat(draws[:4]))
    assert math.isnan(largest_rhat(draws[:3]))


def test_the_noise_is_the_mean_variance_over_the_draws():
    draws = torch.zeros(3, 4, 5, dtype=torch.float64)
    draws[..., -1] = torch.arange(12.0).view(3, 4).double() / 6.0
    assert mean_noise(Chains(draws[0], None, draws, 3)) == pytest.approx(  # type: ignore[arg-type]
        sum(math.exp(k / 6.0) for k in range(12)) / 12
    )
