"""Pictures of the inducing-point methods: the swap landscape, lives of points, and states after polishing."""

from __future__ import annotations

import holoviews as hv
import numpy as np
import pytest
from bokeh.models import LinearColorMapper
from scipy import stats

from gpexplorer import Spec, views
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.families import landscape_view
from gpexplorer.views.families.swap_history import lives

hv.extension("bokeh")


def finished_run(d: int, steps: int = 14, **settings: object) -> Run:
    rows = {"name": "hypercube", "n": 70, "d": d, "noise": 0.2, "seed": 2}
    all_settings = {"num_inducing": 6, "swaps_per_epoch": 5, "evaluations": 4} | settings
    run = Spec("cholqr", all_settings, data=rows).open()
    run.finish(steps=steps)
    return run


def view(run: Run, key: str) -> views.View:
    return next(view for view in views.for_run(run) if view.key == key)


@pytest.mark.parametrize("colour", ["exact", "predicted"])
@pytest.mark.parametrize("d", [2, 5])
def test_the_value_colours_each_row_at_its_position(d: int, colour: str) -> None:
    run = finished_run(d)
    landscape = view(run, "landscape")
    landscape.colour = colour
    layers = landscape.data(run, 13)

    exact, train = layers["exact"], run.problem.train
    assert np.array_equal(exact["value"], exact["exact" if colour == "exact" else "approx"])
    X = (train.X * train.scale.x_sd + train.scale.x_mean).numpy()
    if d == 2:
        assert np.allclose(exact[["x", "y"]], X[exact["row"]])
    else:
        scaled = train.X.numpy() - train.X.numpy().mean(0)
        first = np.linalg.svd(scaled, full_matrices=False)[2][:2]
        assert np.allclose(np.abs(exact[["x", "y"]]), np.abs(scaled[exact["row"]] @ first.T))
        assert "principal component 1" in exact.attrs["xlabel"]
    best = exact.loc[exact["value"].idxmax(), ["x", "y"]]
    assert np.allclose(layers["best"].to_numpy(float), best.to_numpy(float))
    assert landscape.plot(layers) is not None


@pytest.mark.parametrize(("d", "show"), [(1, "over the data"), (2, "over the data"), (5, "predicted against exact")])
def test_axis_and_colours_do_not_magnify_decreases_that_decide_nothing(d: int, show: str, monkeypatch) -> None:
    run = finished_run(d, steps=2)
    landscape = view(run, "landscape")
    landscape.show = show
    value = landscape_view.landscape_at(run, 1)
    ends = []
    for factor in (1e3, 1e-5):
        shown = value._replace(exact=value.exact * factor, approx=value.approx * factor)
        monkeypatch.setattr(landscape_view, "landscape_at", lambda run, at, shown=shown: shown)
        live = Live(landscape, landscape.data(run, 1))
        mapper = live.figure.select_one({"type": LinearColorMapper})
        ends.append(live.figure.y_range.end if mapper is None else mapper.high)
    assert ends[0] >= 1e3 * float(value.exact[value.exact.isfinite()].max()) > 1.2
    assert 1.0 <= ends[1] < 1.2


def test_rank_one_is_the_best_and_ranks_agree_with_the_correlation() -> None:
    run = finished_run(5)
    landscape = view(run, "landscape")
    landscape.show = "ranks"
    exact = landscape.data(run, 13)["exact"]

    assert exact.loc[exact["exact"].idxmax(), "y"] == 1.0
    assert exact.loc[exact["approx"].idxmax(), "x"] == 1.0
    correlation = stats.pearsonr(exact["x"], exact["y"]).statistic
    assert f"rank correlation {correlation:.2f}" in exact.attrs["title"]


def test_lives_begin_and_end_at_the_expected_steps() -> None:
    sets = [np.array(rows) for rows in ([7, 3], [7, 3, 5], [2, 3, 5], [2, 3, 7], [7, 3, 7])]
    begin, end, alive = lives(sets)
    all_lives = sorted(zip(begin.tolist(), end.tolist(), alive.tolist(), strict=True))
    assert all_lives == [(0, 2, False), (0, 4, True), (1, 3, False), (2, 4, False), (3, 4, True), (4, 4, True)]


@pytest.mark.parametrize("method", ["cholqr", "titsias"])
def test_every_step_has_as_many_lives_as_inducing_points(method: str) -> None:
    run = (
        finished_run(3, steps=25)
        if method == "cholqr"
        else Spec("titsias", {"num_inducing": 5}, data="friedman1").open()
    )
    run.finish(steps=9)
    last = len(run.trace) - 1
    layers = view(run, "survival").data(run, last)
    lives = [layers[name] for name in ("gone", "alive")]
    for at in range(last + 1):
        lived = sum(int(((f["x0"] <= at) & ((f["x1"] > at) | (name == "alive"))).sum())
                    for name, f in zip(("gone", "alive"), lives, strict=True))  # fmt: skip
        assert lived == len(run.trace[at].step.state.inducing)
    assert len(layers["epochs"]) == run.trace[last].step.state.epoch
    assert view(run, "survival").plot(layers) is not None


def test_a_polished_state_has_no_swap_landscape() -> None:
    run = finished_run(2, steps=20, max_epochs=1, polish=8, learn=False)
    last = len(run.trace) - 1
    assert run.trace[last].step.state.Z is not None
    landscape = view(run, "landscape")
    layers = landscape.data(run, last)
    assert "no longer rows of the data" in layers["exact"].attrs["title"]
    assert landscape.plot(layers) is not None
    assert landscape.clicked(run, last, 0.0, 0.0) is None
    moves = view(run, "swaps").data(run, last)["inducing"]
    assert len(moves) == 0
