"""Kernels on named columns, and rows of numbers and texts from a file to a prediction, beside dense algebra."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import gpexplorer as gpx
from gpexplorer import Estimator, Spec, data, kernels
from gpexplorer.__main__ import app
from gpexplorer.errors import DataError, GPExplorerError, KernelError
from gpexplorer.methods.base import registry
from gpexplorer.problem import Columns, Dataset, MixedRows
from gpexplorer.recommendation.candidates import candidates
from gpexplorer.ui.playback.open_run import OpenRequest, OpenRun
from gpexplorer.views.base import registry as registry_of_views

KERNEL = "se-ard + se-ard[width] * category[colour] + spectrum[word]"
COLUMNS = Columns(("width", "height"), ("colour", "word"))
# Methods whose inducing points, features or grids lie between the rows.
REFUSE = {
    "bsgd", "fitc", "full-batch", "grief", "grief-mcmc", "kmeans", "minimax", "rff", "scgd", "sgpr", "ski", "states",
    "svgp", "vecchia",
}  # fmt: skip
THETA = [0.1, -0.3, 0.4, 0.2, 0.1, -0.2, 0.3, 0.5, -1.0]  # of KERNEL, the noise last


def frame(n: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    colours = rng.choice(["red", "green", "blue"], n)
    words = ["".join(rng.choice(list("abc"), 5)) for _ in range(n)]
    width, height = 1000.0 + 5.0 * rng.normal(size=n), rng.normal(size=n)
    y = np.sin(width / 5.0) * (colours == "red") + 0.5 * height + 0.3 * np.array([w.count("ab") for w in words])
    table = {"colour": colours, "width": width, "word": words, "height": height}
    return pd.DataFrame({**table, "y": y + 0.05 * rng.normal(size=n)})


def rows(n: int = 7, seed: int = 0) -> MixedRows:
    table = frame(n, seed)
    numbers = torch.tensor(table[["width", "height"]].to_numpy())
    return MixedRows((numbers - 1000.0) / 5.0, (tuple(table["colour"]), tuple(table["word"])))


def dense(theta: np.ndarray, X: MixedRows, Z: MixedRows) -> np.ndarray:
    """KERNEL, entry by entry."""

    def counts(word: str) -> dict[str, int]:
        parts = [word[i : i + 3] for i in range(len(word) - 2)]
        return {part: parts.count(part) for part in parts}

    def similarity(a: dict[str, int], b: dict[str, int]) -> float:
        size = [sum(v * v for v in each.values()) ** 0.5 for each in (a, b)]
        return sum(a[part] * b.get(part, 0) for part in a) / (size[0] * size[1])

    K = np.zeros((len(X), len(Z)))
    for i, (width, height, colour, word) in enumerate(X):
        for j, (other_width, other_height, other_colour, other_word) in enumerate(Z):
            r2 = ((width - other_width) / np.exp(theta[1])) ** 2 + ((height - other_height) / np.exp(theta[2])) ** 2
            alone = ((width - other_width) / np.exp(theta[4])) ** 2
            same = theta[5] * 2 - 0.5 * np.exp(-2 * theta[6]) * (colour != other_colour)
            K[i, j] = np.exp(2 * theta[0] - r2 / 2) + np.exp(2 * theta[3] - alone / 2 + same)
            K[i, j] += np.exp(2 * theta[7]) * similarity(counts(word), counts(other_word))
    return K


def test_a_kernel_on_named_columns_and_its_gradient_are_those_of_a_loop_over_entries():
    kernel, X, Z = kernels.make(KERNEL, 4, COLUMNS), rows(), rows(5, seed=1)
    theta = torch.tensor(THETA, dtype=torch.float64)
    assert len(kernel.names) == len(theta)
    K = kernel(theta, X, Z)
    np.testing.assert_allclose(K.numpy(), dense(theta.numpy(), X, Z), rtol=1e-12)
    np.testing.assert_allclose(kernel.diag(theta, X).numpy(), np.diag(dense(theta.numpy(), X, X)), rtol=1e-12)
    filled = torch.empty_like(K)
    kernel.fill(theta, X, Z, filled)
    torch.testing.assert_close(filled, K, rtol=1e-12, atol=0)

    G = torch.linspace(-1.0, 1.0, K.numel(), dtype=torch.float64).reshape(K.shape)
    u, z = G[:, 0].clone(), G[0].clone()
    for given, gradient in (
        (G, kernel.theta_gradient(theta, X, Z, G)),
        (torch.outer(u, z), kernel.theta_gradient_bilinear(theta, X, Z, (u, z))),
    ):
        for k in range(len(theta)):
            step = np.eye(len(theta))[k] * 1e-6
            difference = dense(theta.numpy() + step, X, Z) - dense(theta.numpy() - step, X, Z)
            assert float(gradient[k]) == pytest.approx(float((difference * given.numpy()).sum()) / 2e-6, abs=1e-7)
    on_diagonal = kernel.theta_gradient_diag(theta, X, torch.ones(len(X), dtype=torch.float64))
    assert float(on_diagonal[3]) == pytest.approx(2 * len(X) * float(torch.exp(2 * (theta[3] + theta[5]))))


def test_active_columns_of_numbers_have_factors_and_features():
    X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = kernels.make("se-ard[c, a]", 3, Columns(("a", "b", "c")))
    theta = torch.tensor([0.2, -0.5, 0.3, -1.0], dtype=torch.float64)
    want = kernels.make("se-ard", 2)(theta, X[:, [2, 0]], X[:, [2, 0]])
    torch.testing.assert_close(kernel(theta, X, X), want)
    factors = kernel.by_input(theta)
    product = torch.stack([factor(X[:, q], X[:, q]) for q, factor in enumerate(factors)]).prod(0)
    torch.testing.assert_close(product, want)
    features = kernel.random_features(theta, 40_000, torch.Generator().manual_seed(1))(X)
    assert float((features @ features.T / 40_000 - want).abs().max()) < 0.05
    assert kernel.stationary
    assert kernels.make("linear[b] * periodic[a]", 3, Columns(("a", "b", "c"))).terms(torch.zeros(5)) is not None


def test_all_but_some_columns_are_those_that_are_left():
    X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    names = Columns(("a", "all but b", "c, d"))
    for text, places in (
        ("se-ard[all but a]", [1, 2]),
        ('se-ard[all but "c, d"]', [0, 1]),
        ('se-ard[all but "all but b", a]', [2]),
        ('se-ard["all but b"]', [1]),
    ):
        kernel = kernels.make(text, 3, names)
        theta = torch.linspace(-1.0, 0.5, kernel.size + 1, dtype=torch.float64)
        want = kernels.make("se-ard", len(places))(theta, X[:, places], X[:, places])
        torch.testing.assert_close(kernel(theta, X, X), want)
        assert kernel.key == text
    with pytest.raises(KernelError, match="there is no column 'e'"):
        kernels.make("se-ard[all but e]", 3, names)
    with pytest.raises(KernelError, match=r"reads numbers, but the columns of numbers are 'a', 'all but b'"):
        kernels.make('se-ard[all but a, "all but b", "c, d"]', 3, names)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("se-ard * category[size] * spectrum[word]", "no column 'size'; the columns of text are 'colour', 'word'"),
        ("se-ard * category[width] * spectrum[word]", "reads text, but column 'width' holds none"),
        ("se-ard[colour] * category[colour] * spectrum[word]", "reads numbers, but column 'colour' holds none"),
        ("se-ard * category", r"reads one column of text, but got 'colour', 'word'; say which, such as category\["),
        ("se-ard * category[colour]", r"reads the column of text 'word'; add one, such as category\[word\]"),
        ("category[colour] * spectrum[word]", "reads the columns of numbers 'width', 'height'"),
        ("se-ard[width, width] * category[colour] * spectrum[word]", "names a column twice"),
        ("se-ard[width,] * category[colour]", "is not a list of columns"),
        ("se-ard[] + linear", "is not a list of columns"),
        ("se-ard[width", "is not a list of columns"),
    ],
)
def test_a_kernel_of_columns_that_do_not_fit_gets_a_sentence(text, words):
    with pytest.raises(KernelError, match=words):
        kernels.make(text, 4, COLUMNS)


def test_names_with_signs_are_quoted_and_the_text_is_read_again():
    columns = Columns(("a, b", "weight (kg)", "c[1]"), ("x*y",))
    text = 'se-ard["a, b", weight (kg)] * category[x*y]+linear["c[1]"]'
    kernel = kernels.make(text, 4, columns)
    assert kernel.key == 'se-ard["a, b", weight (kg)]*category[x*y]+linear["c[1]"]'
    assert kernels.make(kernel.key, 4, columns).names == kernel.names
    assert kernels.make(text).key == kernel.key  # as a Spec reads it, before any rows are known
    with pytest.raises(KernelError, match="without the columns of the rows"):
        kernels.make(text).check(torch.zeros(2, 4))


@pytest.fixture
def spec(tmp_path) -> Spec:
    frame().to_csv(tmp_path / "parts.csv", index=False)
    source = {"name": str(tmp_path / "parts.csv"), "texts": ["colour", "word"]}
    return Spec("cholqr", {"num_inducing": 8, "max_epochs": 2, "evaluations": 5}, source, kernel=KERNEL)


def test_a_file_with_texts_is_learned_from_and_every_swap_has_the_dense_bound(spec):
    run = Spec.from_json(spec.to_json()).open()
    run.finish(steps=12)
    train, state = run.problem.train, run.trace[-1].step.state
    assert train.columns == COLUMNS
    assert train.X.numbers.mean(0).abs().max() < 1e-12  # numbers are standardised, and texts are left as they are
    theta = state.theta.numpy()
    chosen = train.X[state.inducing]
    K_nm, K_mm = dense(theta, train.X, chosen), dense(theta, chosen, chosen)
    K_hat, s2, y = K_nm @ np.linalg.solve(K_mm, K_nm.T), np.exp(2 * theta[-1]), train.y.numpy()
    S = K_hat + s2 * np.eye(len(y))
    bound = y @ np.linalg.solve(S, y) + np.linalg.slogdet(S)[1]
    bound += (np.diag(dense(theta, train.X, train.X)) - np.diag(K_hat)).sum() / s2
    assert run.trace[-1].step.info.objective == pytest.approx(bound / 2, rel=1e-8)
    points = registry_of_views["fit"]().data(run, run.done)["points"]  # observed and predicted
    rmse = float(np.sqrt(np.mean((points["x"] - points["y"]) ** 2)))
    assert rmse == pytest.approx(run.scores()["rmse"], rel=1e-9)
    with pytest.raises(DataError, match="is read as text"):
        data.load({**spec.data, "inputs": ["width", "colour"]})


def test_a_model_of_numbers_and_texts_is_saved_and_predicts_a_new_file(spec, tmp_path):
    run = spec.open()
    run.finish(steps=6)
    posterior = run.posterior(of="y")
    new = frame(9, seed=3)
    want = posterior(new)
    as_tuples = new[["width", "height", "colour", "word"]].itertuples(index=False)
    assert torch.equal(want.mean, posterior(list(as_tuples)).mean)
    posterior.save(tmp_path / "model.safetensors")
    loaded = gpx.load_posterior(tmp_path / "model.safetensors")(new)
    torch.testing.assert_close(loaded.mean, want.mean)
    torch.testing.assert_close(loaded.var, want.var)

    new.loc[2, "colour"] = None
    new.loc[4, "height"] = np.nan
    new.loc[5, "width"] = 5000.0
    new.drop(columns="y").to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "answers.csv"
    command = ["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "new.csv"), "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    answers = pd.read_csv(out)
    assert answers["mean"].isna().tolist() == [False, False, True, *[False] * 6]
    kept = [0, 1, 3, 6, 7, 8]
    np.testing.assert_allclose(answers["mean"][kept], want.mean.numpy()[kept], rtol=1e-6)
    assert answers["far"][5] == 1


def test_the_estimator_takes_a_frame_with_columns_of_text():
    table = frame(60)
    X, y = table.drop(columns="y"), table["y"]
    model = Estimator("cholqr", kernel=KERNEL, num_inducing=20, budget={"steps": 15}).fit(X, y)
    mean, sd = model.predict(X[["word", "height", "colour", "width"]], return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.6 * y.std()
    assert (sd > 0.0).all()
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict(X), mean, rtol=1e-12)
    assert {row[2] for row in model.inducing_points_} <= {"red", "green", "blue"}
    assert min(row[0] for row in model.inducing_points_) > 900.0  # in the units of the file
    plain = Estimator("ml", budget={"steps": 3}).fit(X.drop(columns="word"), y)  # without such a kernel: 0 and 1
    words = {"colour = blue", "colour = green", "colour = red"}
    assert set(plain.posterior_.columns.names) == {"width", "height", *words}
    with pytest.raises(DataError, match="Column 'word' has a missing"):
        Estimator("cholqr", kernel=KERNEL).fit(X.assign(word=[None, *X["word"][1:]]), y)


def test_rows_are_added_to_a_posterior_of_numbers_and_texts():
    table = frame(60)
    X, y = table.drop(columns="y"), table["y"].to_numpy()
    model = Estimator("cholesky", kernel={"name": KERNEL, "theta": THETA}, settings={"learn": False})
    answers = model.fit(X[:40], y[:40]).partial_fit(X[40:], y[40:]).predict(X[::7])

    scale, theta = model.posterior_.columns.scale, np.array(THETA)
    numbers = (torch.tensor(X[["width", "height"]].to_numpy()) - scale.x_mean) / scale.x_sd
    old_rows = MixedRows(numbers, (tuple(X["colour"]), tuple(X["word"])))
    K = dense(theta, old_rows, old_rows) + np.exp(2 * theta[-1]) * np.eye(60)
    want = dense(theta, old_rows[slice(0, 60, 7)], old_rows) @ np.linalg.solve(K, (y - scale.y_mean) / scale.y_sd)
    np.testing.assert_allclose(answers, want * scale.y_sd + scale.y_mean, rtol=1e-9)


@pytest.mark.parametrize("key", sorted(registry))
def test_every_method_learns_from_such_rows_or_refuses_in_a_sentence(key):
    table = frame(40)
    numbers = torch.tensor(table[["width", "height"]].to_numpy())
    texts = (tuple(table["colour"]), tuple(table["word"]))
    y = torch.tensor(table["y"].to_numpy())
    whole = Dataset(MixedRows(numbers, texts), y, (*COLUMNS.numbers, *COLUMNS.texts))
    split = data.Split(whole.rows(range(30)), whole.rows(range(30, 40)), "parts", key="parts")
    run = Spec(key, kernel=KERNEL, budget={"steps": 2}).open(data=split)
    run.finish()
    if run.outcome.reason == "failed":
        assert isinstance(run.error, GPExplorerError), repr(run.error)
        assert key in REFUSE, run.error
        assert "rows of numbers and texts" in str(run.error)
    else:
        assert key not in REFUSE
        assert np.isfinite(run.scores()["nlpd"])


def test_a_recommendation_tries_sums_and_products_of_a_kernel_for_each_column(spec):
    answer = gpx.recommend(spec.data, seconds=1.0, clock=time.process_time)
    tried = {candidate.kernel for candidate in candidates(data.load(spec.data), 1.0)}
    texts = ("category[colour]", "spectrum[word]")
    assert {sign.join(("se-ard", *texts)) for sign in "+*"} < tried
    assert answer.kernel in tried
    assert {"mean", "ridge (numbers only)"} <= set(answer.table["model"])


def test_rows_with_words_are_neither_dragged_nor_added_by_a_click():
    opened = OpenRun()
    opened.open(OpenRequest(Spec("cholqr", {"num_inducing": 5}, "doses", kernel="se*category")))
    assert opened.run is not None
    opened.run.finish(steps=2)
    assert opened.summary is not None
    assert (opened.summary.can_drag, opened.summary.can_edit) == (False, False)
    opened.close()


def test_molecules_beside_numbers_are_drawn():
    pytest.importorskip("rdkit")
    smiles = ["C" * k + tail for k in range(1, 9) for tail in ("", "O", "N", "Cl")]
    table = pd.DataFrame({"smiles": smiles, "heat": np.linspace(0.0, 1.0, 32), "y": np.sin(np.arange(32.0))})
    spec = Spec("cholqr", {"num_inducing": 5, "learn": False}, kernel="se-ard+molecules")
    run = spec.open(data=data.load(table, texts=["smiles"]))
    run.finish(steps=2)
    view = registry_of_views["structures"]()
    assert view.applies(run)
    assert len(view.data(run, 1)["bonds"]) > 10
