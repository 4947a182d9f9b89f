"""Pictures of runs whose target is transformed: bands are skewed, in the units of the file, and say what they hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import ndtr

import gpexplorer as gpx
from gpexplorer import views
from gpexplorer.data.standardising import targets
from gpexplorer.runs import Run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.drawing.run_rows import targets_of

ENDS = ndtr(np.array([-2.0, 2.0]))  # the probabilities of mean -+ 2 sd of a normal distribution


def skewed(inputs: int = 1, factor: float = 1.0, n: int = 120) -> pd.DataFrame:
    """Rows whose errors grow with the target; the last column is the target."""
    rng = np.random.default_rng(2)
    X = rng.uniform(0.0, 6.0, (n, inputs))
    y = factor * np.exp(1.5 * np.sin(X[:, 0]) + 0.5 * rng.standard_normal(n))
    return pd.DataFrame({**{f"x{q + 1}": X[:, q] for q in range(inputs)}, "price": y})


def played(
    data: pd.DataFrame, target_transform: str, method: str = "cholesky", kernel: str = "se", steps: int = 4, **settings
) -> Run:
    run = gpx.Spec(method, settings, kernel=kernel, target_transform=target_transform).open(data=data)
    run.finish(steps=steps)
    return run


def view(run: Run, key: str) -> views.View:
    return next(view for view in views.for_run(run) if view.key == key)


@pytest.mark.parametrize("factor", [1.0, 1e-5, 1e6])
@pytest.mark.parametrize("target_transform", ["log", "yeo-johnson", "yeo-johnson 0.3"])
def test_the_bands_of_one_input_lie_between_quantiles(target_transform: str, factor: float):
    run = played(skewed(factor=factor), target_transform)
    at = len(run.trace) - 1

    layers = view(run, "fit").data(run, at)

    posterior, X = run.posterior(at), torch.tensor(layers["mean"]["x"].to_numpy())[:, None]
    for name, noise in (("band_y", True), ("band_f", False)):
        lower, upper = posterior.quantile(X, list(ENDS), noise=noise)
        assert layers[name]["lower"].to_numpy() == pytest.approx(lower.numpy())
        assert layers[name]["upper"].to_numpy() == pytest.approx(upper.numpy())
    mean, band = layers["mean"]["y"], layers["band_y"]
    assert mean.to_numpy() == pytest.approx(posterior.mean(X).numpy())
    assert (band["upper"] - mean > mean - band["lower"]).all()  # skewed to the right
    if target_transform == "log":
        assert (band["lower"] > 0.0).all()
    labels = [entry[0] for entry in Live(view(run, "fit"), layers).legend]
    assert labels[:2] == ["95 % of y and f", "training"]


def test_the_band_of_y_holds_95_percent_of_the_rows_and_that_of_a_normal_model_too_few_of_the_large_ones():
    data = skewed(n=400)
    share = {}
    for target_transform in ("", "log"):
        run = played(data, target_transform, steps=15)
        layers = view(run, "fit").data(run, len(run.trace) - 1)
        train, band = layers["train"], layers["band_y"]
        lower, upper = (np.interp(train["x"], band["x"], band[end]) for end in ("lower", "upper"))
        inside, large = train["y"].between(lower, upper), train["y"] > train["y"].quantile(0.8)
        share[target_transform] = inside.mean(), inside[large].mean()
        assert (band["lower"] < 0.0).any() == (target_transform == "")
    assert 0.92 < share["log"][0] < 0.99
    assert share["log"][1] > 0.92
    assert share[""][1] < 0.9


@pytest.mark.parametrize("factor", [1.0, 1e6])
def test_nothing_changes_for_a_target_that_is_not_transformed(factor: float):
    run = played(skewed(factor=factor), "")
    at = len(run.trace) - 1

    layers = view(run, "fit").data(run, at)

    posterior, X = run.posterior(at), torch.tensor(layers["mean"]["x"].to_numpy())[:, None]
    for name, noise in (("band_y", True), ("band_f", False)):
        mean, sd = posterior.mean(X).numpy(), posterior.sd(X, noise=noise).numpy()
        assert layers[name]["lower"].to_numpy() == pytest.approx(mean - 2 * sd, rel=1e-12)
        assert layers[name]["upper"].to_numpy() == pytest.approx(mean + 2 * sd, rel=1e-12)
    live = Live(view(run, "fit"), layers)
    assert live.legend[0][0] == "± 2 sd of y and f"
    live.toggle(0)  # hides both bands
    bands = [part for part in live.figure.renderers if str(part.data_source.name).startswith("band")]
    assert [part.visible for part in bands] == [False, False]


@pytest.mark.parametrize("band", ["some rows", "joint"])
def test_a_second_band_is_positive_and_contains_the_band_of_f(band: str):
    run = played(skewed(), "log", learn=False)
    fit = view(run, "fit")
    fit.band = band

    layers = fit.data(run, 1)

    lower, upper = layers["second"]["y"].to_numpy().reshape(2, -1)[:, :-1]
    assert (lower > 0.0).all()
    assert (lower <= layers["band_f"]["lower"] * (1 + 1e-9)).all()
    assert (upper >= layers["band_f"]["upper"] * (1 - 1e-9)).all()
    assert layers["second"].attrs["label"] == {"joint": "95 % of functions", "some rows": "95 % of f, some rows"}[band]


@pytest.mark.parametrize(("target_transform", "words"), [("", "± 2 sd of y"), ("log", "95 % of y")])
def test_the_bars_of_more_inputs_lie_between_quantiles(target_transform: str, words: str):
    run = played(skewed(inputs=3), target_transform, kernel="se-ard")
    at = len(run.trace) - 1

    layers = view(run, "fit").data(run, at)

    posterior, X = run.posterior(at), torch.tensor(skewed_inputs(run))
    lower, upper = posterior.quantile(X, list(ENDS), noise=True)
    assert layers["bars"]["y0"].to_numpy() == pytest.approx(lower.numpy())
    assert layers["bars"]["y1"].to_numpy() == pytest.approx(upper.numpy())
    assert layers["points"]["y"].to_numpy() == pytest.approx(run.posterior(at, of="y").mean(X).numpy())
    assert layers["points"]["x"].to_numpy() == pytest.approx(targets_of(run.split.test))
    assert words in layers["points"].attrs["ylabel"]
    assert words in [entry[0] for entry in Live(view(run, "fit"), layers).legend]


def skewed_inputs(run: Run) -> np.ndarray:
    """The inputs of the test rows in the units of the file."""
    scale = run.problem.train.scale
    return (run.split.test.X * scale.x_sd + scale.x_mean).numpy()


@pytest.mark.parametrize("target_transform", ["log", "yeo-johnson"])
def test_calibration_counts_the_rows_between_quantiles(target_transform: str):
    run = played(skewed(n=400), target_transform, steps=10)
    at = len(run.trace) - 1

    shown = view(run, "calibration").data(run, at)["observed"]

    posterior, X = run.posterior(at), torch.tensor(skewed_inputs(run))
    y = targets_of(run.split.test)
    for k in (3, 12, 22):
        lower, upper = posterior.quantile(X, [0.5 - shown["x"][k] / 2, 0.5 + shown["x"][k] / 2], noise=True).numpy()
        assert shown["y"][k] == pytest.approx(((lower <= y) & (y <= upper)).mean())
    assert np.abs(shown["y"] - shown["x"]).max() < 0.2


def test_the_features_are_coloured_in_the_units_of_the_file():
    run = played(skewed(), "log", method="scgd", steps=3)

    frame = view(run, "stochastic-features").data(run, 2)["rows"]

    np.testing.assert_allclose(np.sort(frame["value"]), np.sort(targets(run.problem.train.y, run.problem.train)))
    assert frame["value"].min() > 0.0


@pytest.mark.parametrize(("target_transform", "word"), [("", "mean"), ("log", "median")])
def test_the_curve_of_the_mixer_is_named_for_what_it_is(target_transform: str, word: str):
    run = played(skewed(), target_transform, method="grief", steps=1)
    mixer = view(run, "grief-mixer")

    layers = mixer.data(run, 0)

    X = torch.tensor(layers["mean"]["x"].to_numpy())[:, None]
    assert layers["mean"]["y"].to_numpy() == pytest.approx(run.posterior(0).quantile(X, 0.5).numpy(), rel=1e-6)
    labels = [entry[0] for entry in Live(mixer, layers).legend]
    assert {word, f"{word}, changed"} <= set(labels)
