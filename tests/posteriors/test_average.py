"""An average of models against sums over its models, sampled mixtures, and its own files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

import gpexplorer as gpx
from gpexplorer.cli import app
from gpexplorer.errors import PosteriorError
from gpexplorer.posteriors import (
    AveragePosterior,
    InUnits,
    Marginals,
    MixtureMarginals,
    NormalMarginals,
    TransformedMarginals,
)
from gpexplorer.problem import Scale
from gpexplorer.runs.studies.prediction_table import prediction_table
from gpexplorer.target_transforms import Log, TargetTransform, YeoJohnson

WEIGHTS = (0.5, 0.3, 0.2)


def rows(n: int = 60) -> tuple[Tensor, Tensor]:
    """Rows far from the origin, in units of their own."""
    draw = torch.Generator().manual_seed(0)
    X = 50.0 + 3.0 * torch.randn(n, 2, generator=draw, dtype=torch.float64)
    y = 1000.0 + 40.0 * torch.sin(X[:, 0]) + 5.0 * X[:, 1] + torch.randn(n, generator=draw, dtype=torch.float64)
    return X, y


def fitted(method: str, n: int = 60, kernel: str | dict[str, object] = "se-ard", **settings: object) -> InUnits:
    """A model of the first n rows, so that models standardise the columns differently."""
    X, y = rows()
    split = {"test": 0.1, "seed": 0}
    spec = gpx.Spec(method, dict(settings), kernel=kernel, split=split, budget={"steps": 6})
    run = spec.open(data=(X[:n].numpy(), y[:n].numpy()))
    run.finish()
    return run.posterior(of="y")


@pytest.fixture(scope="module")
def parts() -> list[InUnits]:
    return [fitted("ml"), fitted("cholqr", n=40, num_inducing=10), fitted("scgd", num_features=8)]


@pytest.fixture(scope="module")
def average(parts: list[InUnits]) -> AveragePosterior:
    return AveragePosterior(parts, WEIGHTS)


def near_and_far() -> Tensor:
    return torch.cat([rows()[0][:5], torch.full((1, 2), 90.0, dtype=torch.float64)])


def test_moments_are_those_of_the_mixture(average: AveragePosterior, parts: list[InUnits]) -> None:
    X = near_and_far()
    mean, second = torch.zeros(6).double(), torch.zeros(6).double()
    for weight, part in zip(WEIGHTS, parts, strict=True):
        own = part(X)  # of y, with the noise of this model
        mean += weight * own.mean
        second += weight * (own.var + own.mean.square())

    torch.testing.assert_close(average(X).mean, mean, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(average(X).var, second - mean.square(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(average.mean(X), mean, rtol=1e-12, atol=0.0)
    assert average.of == "y"
    assert average.noise_variance == pytest.approx(
        sum(w * part.noise_variance for w, part in zip(WEIGHTS, parts, strict=True))
    )
    disagreement = average.var(X, noise=False) - sum(
        w * part.var(X, noise=False) for w, part in zip(WEIGHTS, parts, strict=True)
    )
    assert (disagreement > 0.0).all()


LEVELS = (1e-6, 0.025, 0.5, 0.975, 1.0 - 1e-6)
OF_LOG, OF_LEFT, OF_RIGHT = Log(), YeoJohnson(2.0, 0.0, 1.0), YeoJohnson(0.0, 0.0, 1.0)
MIXTURES: dict[str, list[tuple[float, float, float, TargetTransform | None]]] = {  # weight, mean, sd, transform
    "near": [(0.5, 1.0, 1.0, None), (0.5, 1.5, 2.0, None)],
    "far means": [(0.7, -1e8, 1.0, None), (0.3, 1e8, 1e-3, None)],
    "far scales": [(0.5, 0.0, 1e-9, None), (0.3, 1.0, 1e9, None), (0.2, 0.5, 1.0, None)],
    "far from the origin": [(0.4, 1e6, 1e-6, None), (0.6, 1e6 + 1e-5, 1e-4, None)],
    "a rare part": [(1.0 - 1e-5, 0.0, 1.0, None), (1e-5, 1e12, 1e3, None)],
    "large numbers": [(0.5, 1.2e308, 1e150, None), (0.5, 1.7e308, 1e150, None)],
    "logarithms": [(0.5, 0.0, 1.0, OF_LOG), (0.5, -3.0, 60.0, OF_LOG)],
    "logarithms without end": [(0.9, 2.0, 0.5, OF_LOG), (0.1, 2.0, 400.0, OF_LOG)],
    "logarithms that are mostly beyond": [(0.5, 800.0, 1.0, OF_LOG), (0.5, 700.0, 5.0, OF_LOG)],
    "a logarithm and a number": [(0.5, 1.0, 900.0, OF_LOG), (0.5, -5.0, 1.0, None)],
    "skewed to both sides": [(0.5, 0.0, 400.0, OF_LEFT), (0.5, 0.0, 400.0, OF_RIGHT)],
}


@pytest.mark.parametrize("case", MIXTURES)
def test_quantiles_are_those_of_a_dense_distribution_function(case: str) -> None:
    """Between neighbouring points of a grid that is dense where any part has its probability."""
    parts: list[Marginals] = []
    z, points = np.linspace(-8.0, 8.0, 40_001), []
    for _, mean, sd, transform in MIXTURES[case]:
        normal = NormalMarginals(*torch.tensor([[mean], [sd**2]], dtype=torch.float64))
        scale = Scale(torch.zeros(1), torch.ones(1), 0.0, 1.0, transform)
        parts.append(normal if transform is None else TransformedMarginals(normal, scale))
        points.append(scale.target_in_units(torch.from_numpy(mean + sd * z)).numpy())
    grid = np.unique(np.concatenate([*points, [-np.inf, np.inf]]))
    share = np.zeros(len(grid))
    for weight, mean, sd, transform in MIXTURES[case]:
        moved = grid if transform is None else transform.forward(torch.from_numpy(grid)).numpy()
        share += weight * scipy.stats.norm.cdf(moved, mean, sd)
    place = np.searchsorted(share, LEVELS)  # the first point with at least this share below it

    own = MixtureMarginals(parts, [part[0] for part in MIXTURES[case]])
    for levels in (LEVELS, *LEVELS):
        wanted = place if isinstance(levels, tuple) else place[LEVELS.index(levels)]
        quantile = own.quantile(levels).numpy()[..., 0]
        assert (quantile >= grid[np.maximum(wanted - 1, 0)]).all(), quantile
        assert (quantile <= grid[wanted]).all(), quantile
    quantiles = own.quantile(LEVELS).numpy()
    ends = (torch.nextafter(torch.from_numpy(quantiles), torch.tensor(end)) for end in (-math.inf, math.inf))
    below, above = (own.cdf(values)[:, 0].numpy() for values in ends)
    assert (below <= LEVELS).all()
    assert (above >= LEVELS).all()


def test_quantiles_of_no_rows_of_equal_parts_and_of_no_number_are_as_many() -> None:
    normal = NormalMarginals(torch.tensor([3.0, math.nan]).double(), torch.tensor([4.0, 1.0]).double())
    first, other = MixtureMarginals([normal, normal], [0.5, 0.5]).quantile(0.9)
    assert float(first) == float(normal.quantile(0.9)[0])
    assert math.isnan(other)
    none = NormalMarginals(torch.zeros(0).double(), torch.zeros(0).double())
    assert MixtureMarginals([none, none], [0.5, 0.5]).quantile((0.1, 0.9)).shape == (2, 0)


def test_covariances_agree_with_variances_and_with_differences_of_the_models(
    average: AveragePosterior, parts: list[InUnits]
) -> None:
    X, Z = near_and_far(), rows()[0][10:13]
    own = average.cov(X, noise=False).diagonal()
    torch.testing.assert_close(own, average.var(X, noise=False), rtol=1e-6, atol=1e-6)

    second = sum(
        w * (part.cov(X, Z) + torch.outer(part.mean(X), part.mean(Z))) for w, part in zip(WEIGHTS, parts, strict=True)
    )
    dense = second - torch.outer(average.mean(X), average.mean(Z))  # E[f f'] - E[f] E[f]'
    torch.testing.assert_close(average.cov(X, Z), dense, rtol=1e-6, atol=1e-5)


def test_paths_have_the_moments_of_the_mixture(average: AveragePosterior) -> None:
    X = near_and_far()[:5]
    values = average.paths(6000, seed=1)(X)  # [6000, 5]
    sd = average.sd(X, noise=False)

    assert ((values.mean(0) - average.mean(X)).abs() < 5.0 * sd / 6000**0.5 + 0.02 * sd).all()
    torch.testing.assert_close(values.std(0), sd, rtol=0.1, atol=0.0)
    assert torch.equal(average.paths(4, seed=1)(X), average.paths(4, seed=1)(X))


def test_gradients_are_those_of_differences(average: AveragePosterior) -> None:
    X, h = near_and_far()[:3], 1e-4
    gradient = average.gradient(X)
    for column in range(2):
        step = torch.zeros(2).double()
        step[column] = h
        above, below = average(X + step), average(X - step)
        torch.testing.assert_close(gradient.mean[:, column], (above.mean - below.mean) / (2 * h), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(gradient.var[:, column], (above.var - below.var) / (2 * h), rtol=1e-3, atol=1e-2)


def test_its_file_and_its_torch_module_predict_the_same(average: AveragePosterior, tmp_path: Path) -> None:
    X = near_and_far()
    average.save(tmp_path / "model.safetensors")

    for of in ("f", "y"):
        loaded = gpx.load_posterior(tmp_path / "model.safetensors").asked_for(of)
        torch.testing.assert_close(loaded(X).mean, average(X).mean, rtol=1e-9, atol=0.0)
        torch.testing.assert_close(loaded(X).var, average.asked_for(of)(X).var, rtol=1e-7, atol=1e-7)
    assert loaded.weights == pytest.approx(average.weights)
    mean, var = average.to_torch()(X)
    torch.testing.assert_close(mean, average(X).mean, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(var, average(X).var, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("change", ["weights", "nested", "none", "missing", "negative"])
def test_a_file_that_contradicts_itself_is_refused(average: AveragePosterior, tmp_path: Path, change: str) -> None:
    path = tmp_path / "model.safetensors"
    average.save(path)
    tensors = load_file(path)
    with safe_open(str(path), "pt") as file:
        header = file.metadata()
    description = json.loads(header["posterior"])
    if change == "weights":
        description["weights"] = description["weights"][:2]
    elif change == "nested":
        description["parts"][0] = json.loads(header["posterior"])
    elif change == "none":
        description["parts"] = []
    elif change == "missing":
        del tensors["0/alpha"]
    else:
        description["weights"][0] = -1.0
    save_file(tensors, path, {**header, "posterior": json.dumps(description)})

    with pytest.raises(PosteriorError, match=r"model\.safetensors"):
        gpx.load_posterior(path)


def test_new_rows_reach_every_model_that_can_use_them(parts: list[InUnits]) -> None:
    X, y = rows()
    average = AveragePosterior([parts[0], fitted("cholqr", num_inducing=10)], [0.25, 0.75])
    updated = average.with_rows(X[:2] + 0.1, y[:2])

    for part, own in zip(updated.parts, average.parts, strict=True):
        expected = own.with_rows(X[:2] + 0.1, y[:2])
        torch.testing.assert_close(part(X).mean, expected(X).mean, rtol=1e-9, atol=0.0)
    assert updated.weights == average.weights
    assert updated.of == "y"


@pytest.mark.parametrize("inputs", ["numbers and a word", "words"])
def test_inputs_may_be_texts(inputs: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=40), "word": rng.choice(["ab", "abc", "bca"], 40)})
    y = np.sin(table["x"]) + (table["word"] == "ab")
    is_mixed = inputs == "numbers and a word"
    source = table.assign(y=y) if is_mixed else (list(table["word"]), y.to_numpy())
    rows = gpx.data.load(source, texts=["word"], target="y") if is_mixed else gpx.data.load(source)
    models = []
    for kernel in ("se[x]+category[word]", "se[x]*spectrum[word]") if is_mixed else ("spectrum", "mismatch"):
        run = gpx.Spec("ml", kernel=kernel, budget={"steps": 2}).open(data=rows)
        run.finish()
        models.append(run.posterior(of="y"))
    X = table.iloc[:5] if is_mixed else ["ab", "bca", "abcabc"]

    average = AveragePosterior(models, [0.6, 0.4])
    average.save(tmp_path / "model.safetensors")
    loaded = gpx.load_posterior(tmp_path / "model.safetensors")

    mean = 0.6 * models[0](X).mean + 0.4 * models[1](X).mean
    torch.testing.assert_close(average(X).mean, mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(loaded(X).mean, mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(loaded(X).var, average(X).var, rtol=1e-6, atol=1e-9)


def test_weights_that_are_none_and_other_columns_are_refused(parts: list[InUnits]) -> None:
    with pytest.raises(PosteriorError, match="one above 0 per model"):
        AveragePosterior(parts, [0.5, 0.5])
    with pytest.raises(PosteriorError, match="one above 0 per model"):
        AveragePosterior(parts[:2], [1.0, 0.0])
    with pytest.raises(PosteriorError, match="one above 0 per model"):
        AveragePosterior([], [])
    X, y = rows()
    narrow = gpx.Spec("cholqr", {"num_inducing": 5}, budget={"steps": 1}).open(data=(X[:, :1].numpy(), y.numpy()))
    narrow.finish()
    table = pd.DataFrame(X.numpy(), columns=["x1", "x2"]).assign(y=y.numpy())  # other names than x0 and x1
    renamed = gpx.Spec("cholqr", {"num_inducing": 5}, budget={"steps": 1}).open(data=table)
    renamed.finish()
    for other in (narrow, renamed):
        with pytest.raises(PosteriorError, match="different input columns"):
            AveragePosterior([parts[0], other.posterior()], [0.5, 0.5])
    assert AveragePosterior(parts[:2], [3, 1]).weights == (0.75, 0.25)


def test_a_row_is_far_if_models_with_most_of_the_weight_say_so(parts: list[InUnits]) -> None:
    X = torch.tensor([[65.0, 50.0]])  # less than 6 standard deviations of the inputs away
    narrow = {"name": "se-ard", "theta": [0.0, -1.0, -1.0, -2.0]}
    by_kernel, by_features = fitted("subset-of-data", kernel=narrow, num_rows=50, learn=False), parts[2]
    assert prediction_table(by_kernel, X.numpy())["far"].tolist() == [1]
    assert prediction_table(by_features, X.numpy())["far"].tolist() == [0]
    for weight, far in ((0.7, 1), (0.3, 0)):
        average = AveragePosterior([by_kernel, by_features], [weight, 1.0 - weight])
        table = prediction_table(average, np.vstack([X.numpy(), [[np.nan, 0.0]]]))
        assert table["far"][0] == far
        assert table["far"].isna().tolist() == [False, True]


def test_the_command_predicts_with_an_average(average: AveragePosterior, tmp_path: Path) -> None:
    X = near_and_far()
    average.save(tmp_path / "model.safetensors")
    pd.DataFrame(X.numpy(), columns=list(average.columns.names)).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "predictions.csv"

    result = CliRunner().invoke(
        app, ["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "new.csv"), "--out", str(out)]
    )

    assert result.exit_code == 0, result.output
    table = pd.read_csv(out)
    np.testing.assert_allclose(table["mean"], average(X).mean, rtol=1e-9)
    np.testing.assert_allclose(table["sd"] ** 2, average(X).var, rtol=1e-6)
