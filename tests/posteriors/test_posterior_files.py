"""Saved posteriors and torch modules predict the same, hold what they state, and refuse what is not theirs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

import gpexplorer as gpx
from gpexplorer import kernels, methods
from gpexplorer.errors import PosteriorError
from gpexplorer.kernels.row_scaled import RowScaled
from gpexplorer.posteriors import (
    CholeskySolver,
    InducingPosterior,
    InUnits,
    MarginalPosterior,
    NearestRowsPosterior,
    PriorPosterior,
    RowsPosterior,
    StatesPosterior,
    UnitRowsPosterior,
    exact_gp_posterior,
    load_posterior,
)
from gpexplorer.problem import Columns, Dataset, MixedRows, Scale
from gpexplorer.runs import Run
from model_files import changed, parts_of, rewritten
from steps_of import small_run

FIXED = 4096  # bytes of a small file beside its tensors


@pytest.fixture(scope="module", params=sorted(methods))
def run(request: pytest.FixtureRequest) -> Run:
    return small_run(str(request.param), d=2)


def near_and_far(run: Run) -> Tensor:
    X = run.problem.train.X[:6] * 0.3 + 0.5
    X[-1] += 40.0
    return X


def test_a_saved_posterior_predicts_the_same_without_the_training_rows(run: Run, tmp_path: Path):
    posterior, X = run.posterior(of="y"), near_and_far(run)
    if isinstance(posterior.inner, MarginalPosterior):
        with pytest.raises(PosteriorError, match="cannot be saved"):
            posterior.save(tmp_path / "model.safetensors")
        assert not list(tmp_path.iterdir())
        return

    size = posterior.save(tmp_path / "model.safetensors")
    loaded = load_posterior(tmp_path / "model.safetensors")

    close: dict[str, float] = (
        {"rtol": 1e-9, "atol": 1e-12} if "admm" not in run.method.key else {"rtol": 1e-5, "atol": 1e-7}
    )
    torch.testing.assert_close(loaded(X).mean, posterior(X).mean, **close)
    torch.testing.assert_close(loaded(X).var, posterior(X).var, **close)
    assert loaded.of == "y"
    assert loaded.noise_variance == pytest.approx(posterior.noise_variance)
    assert loaded.columns.names == posterior.columns.names
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert size == (tmp_path / "model.safetensors").stat().st_size
    tensors = load_file(tmp_path / "model.safetensors")
    assert size < 8 * sum(tensor.numel() for tensor in tensors.values()) + FIXED
    if isinstance(posterior.inner, InducingPosterior):
        m, p = len(posterior.inner.Z), len(posterior.inner.theta)
        assert sum(tensor.numel() for tensor in tensors.values()) == 2 * m * m + 2 * m + m + p + 4
    if not isinstance(posterior.inner, RowsPosterior | NearestRowsPosterior | StatesPosterior):
        assert all(len(run.problem.train) not in tensor.shape for tensor in tensors.values())


def test_its_torch_module_predicts_the_same(run: Run):
    posterior, X = run.posterior(of="y"), near_and_far(run)
    if isinstance(posterior.inner, MarginalPosterior | NearestRowsPosterior | StatesPosterior):
        with pytest.raises(PosteriorError, match="cannot be a torch module"):
            posterior.to_torch()
        return

    mean, var = posterior.to_torch()(X)

    torch.testing.assert_close(mean, posterior(X).mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(var, posterior(X).var, rtol=1e-6, atol=1e-9)


def test_the_tensors_of_a_torch_module_are_its_buffers():
    posterior = (run := small_run("cholqr", d=2, steps=3)).posterior(of="y")
    module, X = posterior.to_torch(), near_and_far(run)
    assert {"inner_L_mm", "inner_alpha", "inner_Z", "columns_scale_x_sd"} <= set(module.state_dict())

    module.load_state_dict({**module.state_dict(), "inner_alpha": torch.zeros_like(posterior.inner.alpha)})

    torch.testing.assert_close(module(X)[0], torch.full_like(X[:, 0], posterior.columns.scale.y_mean))


@pytest.mark.parametrize("key", ["svgp", "grief", "scgd", "ml", "ski"])
def test_torch_export_accepts_the_module_for_any_number_of_rows(key: str):
    run = small_run(key, d=2, steps=3)
    posterior, X = run.posterior(of="y"), near_and_far(run)

    exported = torch.export.export(
        posterior.to_torch(), (X,), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=10_000)},)
    )

    mean, var = exported.module()(X[:3])
    torch.testing.assert_close(mean, posterior(X[:3]).mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(var, posterior(X[:3]).var, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        "se",
        "matern12-ard",
        "matern32",
        "rq-ard",
        "periodic",
        "lp",
        "linear-ard + se * periodic",
        "matern12-product",
        "anova-matern52 * matern52-product",
    ],
)
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_an_exported_kernel_is_right_for_rows_that_it_was_not_recorded_with(text: str, shift: float):
    kernel, X = kernels.make(text, d=3), torch.rand(7, 3, generator=torch.Generator().manual_seed(1)).double()
    theta = torch.linspace(-0.4, 0.3, len(kernel.names), dtype=torch.float64)

    class Covariances(torch.nn.Module):
        def forward(self, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
            return kernel(theta, X, Z), kernel.diag(theta, X)

    rows = torch.export.Dim("rows", min=2, max=100)
    K, diag = torch.export.export(Covariances(), (X, X[:4]), dynamic_shapes=({0: rows}, None)).module()(
        X[1:] + shift, X[:4] + shift
    )

    torch.testing.assert_close(K, kernel(theta, X[1:] + shift, X[:4] + shift), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(diag, kernel.diag(theta, X[1:] + shift))


@pytest.mark.parametrize("key", ["grief", "ski"])
def test_a_grid_of_a_sum_of_products_is_saved_and_becomes_a_torch_module(key: str, tmp_path: Path):
    posterior = (run := small_run(key, d=2, steps=4, kernel="anova + matern32-product")).posterior(of="y")
    X = near_and_far(run)
    assert posterior.inner.features.choice.index.shape[1] == 3  # two axes, and which product
    posterior.save(tmp_path / "model")

    loaded, module = load_posterior(tmp_path / "model"), posterior.to_torch()

    torch.testing.assert_close(loaded(X).var, posterior(X).var, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loaded.cov(X), posterior.cov(X), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(module(X)[0], posterior(X).mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(module(X)[1], posterior(X).var, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("key", ["cholqr", "grief", "scgd", "sdd"])
def test_a_file_holds_nothing_that_is_not_read(key: str, tmp_path: Path):
    small_run(key, d=2, steps=3).posterior().save(tmp_path / "model")

    with safe_open(tmp_path / "model", "pt") as file:
        tensors, text = load_file(tmp_path / "model"), file.metadata()["posterior"]

    for place in places_in(json.loads(text)):
        description = json.loads(text)
        inside = description
        for name in place[:-1]:
            inside = inside[name]
        del inside[place[-1]]
        if place != ("columns", "target") and place[-1] != "unseen":  # which have defaults
            with pytest.raises(PosteriorError):
                load_posterior(rewritten(tmp_path / "bad", tensors, description))


def places_in(description: Any, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of every entry of nested mappings."""
    own = [(*before, name) for name in description]
    return own + [
        place
        for name in description
        if isinstance(description[name], dict)
        for place in places_in(description[name], (*before, name))
    ]


def test_texts_and_the_prior_are_saved_and_have_no_torch_module(tmp_path: Path):
    texts, kernel = ["abab", "abba", "bbbb", "aaab"], kernels.make("spectrum")
    train = Dataset(texts, torch.tensor([1.0, 0.5, -1.0, 0.7], dtype=torch.float64))
    posterior = exact_gp_posterior(kernel, kernel.start(train), train)
    posterior.save(tmp_path / "a")
    loaded = gpx.load_posterior(tmp_path / "a")

    torch.testing.assert_close(loaded.cov(["abbb", "b"]), posterior.cov(["abbb", "b"]))
    with pytest.raises(PosteriorError, match="'spectrum' cannot be part of a torch module"):
        posterior.to_torch()

    se = kernels.make("se-ard", 2)
    prior = PriorPosterior(se, torch.tensor([0.0, 1.0, 0.3, -1.0], dtype=torch.float64))
    prior.save(tmp_path / "b")
    X = torch.rand(3, 2, dtype=torch.float64)
    torch.testing.assert_close(gpx.load_posterior(tmp_path / "b").cov(X), prior.cov(X))
    scale = Scale(torch.zeros(2).double(), torch.ones(2).double(), 1.0, 2.0)
    columns = Dataset(X, X[:, 0], ("a", "b"), scale=scale)
    of_rows = InUnits(UnitRowsPosterior(PriorPosterior(RowScaled(se), prior.theta)), columns)
    of_rows.save(tmp_path / "c")
    torch.testing.assert_close(gpx.load_posterior(tmp_path / "c").cov(X), of_rows.cov(X))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a good file."""
    path = tmp_path_factory.mktemp("good") / "model"
    small_run("cholqr", d=2, steps=3).posterior().save(path)
    return parts_of(path)


HOSTILE: list[tuple[tuple[str, ...], Any, str]] = [
    (("kind",), "__import__('os')", "its kind is"),
    (("kind",), ["units"], "its kind is"),
    (("of",), "z", "its of is"),
    (("noise_variance",), "1", "its noise_variance"),
    (("noise_variance",), -1.0, "its noise_variance"),
    (("columns", "d"), 3, "names 2 columns and needs 3"),
    (("columns", "d"), 10**30, "its d is"),
    (("columns", "y_sd"), float("nan"), "its y_sd"),
    (("columns", "y_sd"), 0.0, "its y_sd"),
    (("columns", "y_sd"), 1e-308, "its y_sd"),
    (("columns", "y_mean"), 1e200, "its y_mean"),
    (("noise_variance",), 1e308, "its noise_variance"),
    (("inner", "s2"), 0.0, "its s2"),
    (("inner", "kernel", "text"), "matern12-ard", "not the Cholesky factor of the covariances"),
    (("columns", "names"), 7, "not a list of texts"),
    (("columns",), None, "no columns"),
    (("inner",), {"kind": "units"}, "its kind is 'units'"),
    (("inner", "weights"), "root", "tensor 'S_root' is missing"),
    (("inner", "s2"), float("inf"), "its s2"),
    (("inner", "kernel", "text"), "se-ard*" * 300, "characters"),
    (("inner", "kernel", "text"), "nonsense", "is not known"),
    (("inner", "kernel", "text"), 7, "named by text"),
    (("inner", "kernel", "d"), 10**9, "has 1000000000 inputs"),
    (("inner", "kernel"), {"map": {"sizes": [2, 10**9], "activation": "relu"}, "linear": True}, "not what theta holds"),
    (("inner", "kernel"), {"map": {"sizes": [2, -1], "activation": "relu"}, "linear": True}, "positive whole"),
]


@pytest.mark.parametrize(("place", "value", "says"), HOSTILE)
def test_a_hostile_description_is_refused_in_a_sentence(
    place: tuple[str, ...], value: Any, says: str, saved: tuple[dict[str, Tensor], Any], tmp_path: Path
):
    tensors, description = saved
    load_posterior(rewritten(tmp_path / "good", tensors, description))

    with pytest.raises(PosteriorError, match="(?s)bad.*" + says):
        load_posterior(rewritten(tmp_path / "bad", tensors, changed(description, *place, value=value)))


@pytest.mark.parametrize(
    ("name", "tensor", "says"),
    [
        ("L_mm", torch.zeros(6, 6, dtype=torch.float64), "not a Cholesky factor"),
        ("L_mm", torch.zeros(3, 6, dtype=torch.float64), "does not fit"),
        ("Z", torch.zeros(6, 3, dtype=torch.float64), "hyperparameters|inputs|contradicts"),
        ("theta", torch.full((4,), torch.nan, dtype=torch.float64), "not finite"),
        ("x_sd", torch.zeros(2, dtype=torch.float64), "not positive"),
        ("x_sd", torch.full((2,), 1e-308, dtype=torch.float64), "not positive"),
        ("x_mean", torch.full((2,), 1e200, dtype=torch.float64), "numbers above"),
        ("weights", torch.full((6,), 1e300, dtype=torch.float64), "numbers above"),
        ("theta", torch.full((4,), 120.0, dtype=torch.float64), "hyperparameter"),
        ("L_mm", torch.eye(6, dtype=torch.float64), "not the Cholesky factor of the covariances"),
        ("L", 1e-60 * torch.eye(6, dtype=torch.float64), "not a finite number"),
        ("weights", torch.zeros(6, dtype=torch.int64), "does not fit"),
        ("extra", torch.zeros(2, dtype=torch.bool), "has type"),
    ],
)
def test_hostile_tensors_are_refused(
    name: str, tensor: Tensor, says: str, saved: tuple[dict[str, Tensor], Any], tmp_path: Path
):
    tensors, description = saved

    with pytest.raises(PosteriorError, match=says):
        load_posterior(rewritten(tmp_path / "bad", {**tensors, name: tensor}, description))


def test_other_files_are_refused(saved: tuple[dict[str, Tensor], Any], tmp_path: Path):
    tensors, description = saved
    (tmp_path / "text").write_text("hello")

    for path, says in (
        (tmp_path / "text", "cannot be read as a safetensors file"),
        (tmp_path / "absent", "There is no file '/"),
        (rewritten(tmp_path / "other", tensors, description, format="pt"), "no posterior of gpexplorer"),
        (rewritten(tmp_path / "later", tensors, description, version="99"), "install a newer one"),
        (rewritten(tmp_path / "deep", tensors, "[" * 100_000), "contradicts itself|cannot be read"),
        (rewritten(tmp_path / "broken", tensors, "{"), "contradicts itself"),
    ):
        with pytest.raises(PosteriorError, match=says):
            load_posterior(path)
    with pytest.raises(PosteriorError, match=r"cannot be read on device 'gpu' .*: give .cpu"):
        load_posterior(rewritten(tmp_path / "whole", tensors, description), "gpu")


def test_noise_of_the_rows_is_saved_and_has_to_be_positive(tmp_path: Path):
    kernel, theta = kernels.make("se-ard", 2), torch.tensor([0.0, 1.0, 0.3, -1.0], dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    X, y = torch.rand(9, 2, generator=draw).double(), torch.rand(9, generator=draw).double()
    noise = 0.1 + torch.rand(9, generator=draw).double()
    A = kernel(theta, X, X) + noise.diag()
    solver = CholeskySolver(kernel, theta, X, noise=noise)
    RowsPosterior(kernel, theta, (X, torch.linalg.solve(A, y)), X, solver).save(tmp_path / "a")

    across = kernel(theta, X[:4] + 0.1, X)
    exact = kernel(theta, X[:4], X[:4]) - across @ torch.linalg.solve(A, across.T)
    torch.testing.assert_close(gpx.load_posterior(tmp_path / "a").cov(X[:4] + 0.1), exact)
    tensors, description = parts_of(tmp_path / "a")
    for wrong in (0.0, -0.1):
        bad = {**tensors, "row_noise": tensors["row_noise"].index_fill(0, torch.tensor([3]), wrong)}
        with pytest.raises(PosteriorError, match="a number of row_noise is not positive"):
            load_posterior(rewritten(tmp_path / "bad", bad, description))


def test_columns_of_text_have_one_text_per_row(tmp_path: Path):
    columns = Columns(("size",), ("colour",))
    kernel = kernels.make("se * category", 2, columns)
    sizes = torch.tensor([[1.0], [2.0], [0.5]], dtype=torch.float64)
    train = Dataset(MixedRows(sizes, (("red", "blue", "red"),)), sizes[:, 0], ("size", "colour"))
    exact_gp_posterior(kernel, kernel.start(train), train).save(tmp_path / "a")
    tensors, description = parts_of(tmp_path / "a")
    assert description["X columns of text"] == [["red", "blue", "red"]]
    load_posterior(rewritten(tmp_path / "good", tensors, description))
    for wrong in ([["red", "blue"]], [], "red"):
        bad = changed(description, "X columns of text", value=wrong)
        with pytest.raises(PosteriorError, match="one text per row in each column"):
            load_posterior(rewritten(tmp_path / "bad", tensors, bad))


@pytest.mark.parametrize("key", ["grief", "grief-mcmc", "ski"])
def test_a_library_with_other_eigenvectors_predicts_the_same_from_a_file_or_a_copy(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = small_run(key, d=2, steps=4)
    posterior, X = run.posterior(of="y"), near_and_far(run)
    expected = posterior(X)
    posterior.save(tmp_path / "model.safetensors")
    copied = pickle.dumps(posterior.inner)
    monkeypatch.setattr(torch.linalg, "eigh", lambda A, eigh=torch.linalg.eigh: other_eigenvectors(*eigh(A)))

    for other in (load_posterior(tmp_path / "model.safetensors").inner, pickle.loads(copied)):
        for part, own in zip(other(X), posterior.inner(X), strict=True):
            torch.testing.assert_close(part, own)
    for part, own in zip(load_posterior(tmp_path / "model.safetensors")(X), expected, strict=True):
        torch.testing.assert_close(part, own)


def other_eigenvectors(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Every second eigenvector with the other sign, and others of the plane of two that have nearly equal values."""
    vectors = vectors * (torch.arange(len(values)) % 2 * 2.0 - 1.0)
    if len(values) > 1 and values[1] - values[0] < 1e-9 * values[-1]:
        vectors[:, :2] = vectors[:, :2] @ torch.tensor([[0.6, -0.8], [0.8, 0.6]]).to(vectors)
    return values, vectors


def test_a_file_that_holds_no_eigenvectors_is_read_with_those_of_this_machine(tmp_path: Path):
    path, run = tmp_path / "model.safetensors", small_run("grief", d=2, steps=4)
    posterior, X = run.posterior(of="y"), near_and_far(run)
    posterior.save(path)
    tensors, text = parts_of(path)
    kept = {name: tensor for name, tensor in tensors.items() if "eigen" not in name}
    assert len(kept) < len(tensors)
    rewritten(path, kept, text)

    torch.testing.assert_close(load_posterior(path)(X).mean, posterior(X).mean)


def test_a_model_of_rows_without_noise_is_read_although_rounding_exceeds_its_variances(tmp_path: Path):
    x = torch.linspace(0.0, 10.0, 60, dtype=torch.float64)[:, None]
    spec = gpx.Spec("ml", {"evaluations": 1}, kernel={"name": "se", "theta": [6.0, 7.5, -13.0]})  # sf2 / s2 = 6e17
    run = spec.open(data=(x.numpy(), x[:, 0].numpy()))
    run.finish(steps=1)
    (posterior := run.posterior(of="y")).save(tmp_path / "model.safetensors")
    read, new = load_posterior(tmp_path / "model.safetensors"), torch.tensor([[0.5], [5.01], [30.0]]).double()
    torch.testing.assert_close(read.mean(new), posterior.mean(new))
    assert bool((read.var(new) > 0).all())
