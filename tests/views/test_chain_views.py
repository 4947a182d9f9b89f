"""The pictures of Langevin chains: their draws, the posterior of the weights, and the time of a step."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.methods.chain_diagnostics import bulk_ess, rhat
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.families import step_time
from gpexplorer.views.families.chain_traces import MAX_WEIGHTS, diagnosed

SETTINGS = {
    "num_eigenfunctions": 12,
    "grid_points": 5,
    "subset": 25,
    "evaluations": 3,
    "basis": "eigenvalues",
    "spacing": "equispaced",
}
CHAINS = {"chains": 3, "per_step": 6, "warm_up": 2, "thin": 2, "samples": 6}


@cache
def played() -> Run:
    rows = {"name": "hypercube", "n": 80, "d": 2, "noise": 0.2, "seed": 3}
    run = gpx.Spec("grief-mcmc", SETTINGS | CHAINS, data=rows).open()
    run.finish(steps=40)
    return run


def view(run: Run, key: str) -> views.View:
    return next(result for result in views.for_run(run) if result.key == key)


def with_state(run: Run, state: Any) -> Any:
    """What a picture reads of a run whose only record has this state."""
    return SimpleNamespace(
        method=run.method, problem=run.problem, trace=[SimpleNamespace(step=SimpleNamespace(state=state))]
    )


def test_every_picture_of_the_chains_draws_the_first_and_the_last_record():
    run = played()
    result = [picture for picture in views.for_run(run) if ".families." in picture.__module__]
    assert {"grief-chains", "grief-weights", "grief-eigenfunctions", "grief-error"} <= {
        picture.key for picture in result
    }
    for picture in result:
        live = Live(picture, picture.data(run, 0))
        live.update(picture.data(run, len(run.trace) - 1))
        assert live.figure.xaxis[0].axis_label
        assert live.figure.yaxis[0].axis_label


def test_chains_are_drawn_from_the_state_and_weights_from_its_moments():
    run = played()
    state = run.trace[-1].step.state
    chains, weights = view(run, "grief-chains"), view(run, "grief-weights").data(run, len(run.trace) - 1)

    chains.watched = "log weight 1"
    layers = chains.data(run, len(run.trace) - 1)

    assert len(layers) == 3
    np.testing.assert_allclose(layers["chain2"]["y"], state.watched[1, :, 2])
    draws = state.watched[:, :, 2].numpy()
    sentence = f"R-hat {rhat(draws):.3f}; {draws.size:,} draws, worth {bulk_ess(draws):,.0f} independent ones"
    assert layers["chain1"].attrs["title"] == f"sampling: {sentence}"
    assert diagnosed(draws[:, :3]) == ""
    np.testing.assert_allclose(weights["mean"]["y"] * np.log(10), state.moments.weight)
    sd = (state.moments.weight2 / state.moments.size).sqrt()
    prior = run.method.priors(state.theta)[0]
    for sign, end in ((-1, ("y0", "lower")), (1, ("y1", "upper"))):
        np.testing.assert_allclose(weights["spread"][end[0]] * np.log(10), state.moments.weight + sign * 2 * sd)
        np.testing.assert_allclose(weights["prior"][end[1]] * np.log(10), [prior.mu + sign * 2 * prior.tau] * 2)
    assert weights["prior"]["x"].tolist() == [1, len(state.moments.weight)]
    assert weights["mean"]["x"].tolist() == weights["spread"]["x0"].tolist() == [*range(1, 1 + len(sd))]
    assert f"{state.moments.size} draws" == weights["mean"].attrs["title"]
    assert view(run, "grief-weights").data(run, 0)["mean"].attrs["title"] == "no draws yet"


def test_chains_and_weights_of_other_numbers_than_those_of_the_run():
    run = played()
    state, chains = run.trace[-1].step.state, view(run, "grief-chains")
    two = state._replace(watched=torch.arange(20.0).reshape(2, 5, 2), stride=3)

    chains.watched = list(chains.param.watched.objects)[1]
    layers = chains.data(with_state(run, two), 0)

    assert [len(layers[f"chain{c}"]) for c in (1, 2, 3)] == [5, 5, 0]  # a chain that has no draws
    assert layers["chain2"]["y"].tolist() == [11, 13, 15, 17, 19]
    assert layers["chain2"]["x"].tolist() == [0, 3, 6, 9, 12]
    chains.watched = list(chains.param.watched.objects)[2]  # a number that these draws do not have
    layers = chains.data(with_state(run, two), 0)
    assert all(frame.empty for frame in layers.values())
    assert layers["chain1"].attrs["title"] == "sampling"
    for count, end in ((1, 2), (MAX_WEIGHTS + 1, MAX_WEIGHTS)):
        some = torch.linspace(0.5, 1.5, count)
        moments = state.moments._replace(weight=some, weight2=some, size=4)
        layers = view(run, "grief-weights").data(with_state(run, state._replace(moments=moments)), 0)
        assert len(layers["mean"]) == min(count, MAX_WEIGHTS)
        assert layers["prior"]["x"].tolist() == [1, end]


def test_the_cost_of_a_step_is_measured_once_per_run_at_every_size():
    run = played()
    picture = view(run, "grief-growth")
    picture.largest = 10_000

    layers = picture.data(run, 3)
    repeated = picture.data(run, len(run.trace) - 1)

    assert layers["step"]["x"].tolist() == [1000, 3162, 10_000]
    microseconds = 1e6 * layers["step"]["y"].median()
    assert f": {microseconds:.0f} microseconds per likelihood of 3 chains" in layers["step"].attrs["title"]
    for name in ("once", "theta", "step"):
        assert (layers[name]["y"] > 0.0).all()
        assert layers[name]["y"].equals(repeated[name]["y"])
    assert "12 eigenfunctions" in layers["step"].attrs["title"]
    assert "3 chains" in layers["step"].attrs["title"]


def test_two_sizes_per_decade_are_timed_with_as_many_functions_as_all_of_them_have(monkeypatch: pytest.MonkeyPatch):
    def times(problem: Any, choice: Any, theta: Any, n: int) -> step_time.Times:
        return step_time.Times(n, 1e-6 * n, 2e-6 * n, SimpleNamespace(e=range(7 if n > 5000 else 9)))

    monkeypatch.setattr(step_time, "_times", times)
    monkeypatch.setattr(step_time, "_step_seconds", lambda basis, p, chains: 100.0 * p + chains)

    table = step_time.measured(played(), 3, 1_000_000)

    sizes = [round(10 ** (3 + k / 2)) for k in range(7)]
    expected = [[n, 1e-6 * n, 2e-6 * n, 703.0, 7] for n in sizes]
    np.testing.assert_allclose(table[["n", "once", "theta", "step", "p"]], expected)
    clock = iter([10.0, 12.5])
    monkeypatch.setattr(step_time.time, "perf_counter", lambda: next(clock))
    assert step_time._timed(lambda: "result") == (2.5, "result")


def test_a_step_needs_the_same_operations_for_every_n(monkeypatch):
    run, sizes = played(), []
    monkeypatch.setattr(
        step_time, "likelihood", lambda terms, z: sizes.append((len(terms.several._log2_e), tuple(z.shape)))
    )

    step_time.measured(run, 3, 10_000)

    assert len(set(sizes)) == 1
