"""The page for users of other libraries: its programs run, agree with each other, and ours is never the longest."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-other-libraries.md"
BLOCK = re.compile(r'^```py(?:thon)?(?: title="([^"]+)")?\n(.*?)^```', flags=re.M | re.S)
TASKS = PAGE.read_text("utf-8").split("\n## ")[1:]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What all programs of the page leave, but for those of GPflow, which is not installed."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # GPyTorch's import uses what torch deprecates
        warnings.simplefilter("ignore", ConvergenceWarning)  # scikit-learn's, of a value at a bound
        patch.chdir(tmp_path_factory.mktemp("page"))
        for title, program in BLOCK.findall(PAGE.read_text("utf-8")):
            if "not run" not in title:
                exec(compile(program, PAGE.name, "exec"), names)
            if title == "GPyTorch" and "gt_sd" in program:
                names["before"] = names["model"].predict(names["X_new"])
    return names


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.splitlines()[0])
def test_a_program_is_at_most_as_long_as_in_the_best_other_library(task: str) -> None:
    lengths = {title: len([line for line in text.splitlines() if line.strip()]) for title, text in BLOCK.findall(task)}
    ours = lengths.pop("gpexplorer")

    assert len(lengths) >= 1
    assert ours <= min(lengths.values()), lengths


def test_twenty_tasks_are_solved() -> None:
    assert len(TASKS) == 20


def test_means_and_bands_agree(names: dict[str, Any]) -> None:
    assert names["mean"] == pytest.approx(names["sk_mean"], abs=1e-3)
    assert names["sd"] == pytest.approx(names["sk_sd"], abs=1e-3)
    assert names["mean"] == pytest.approx(names["gt_mean"].numpy(), abs=0.02)
    assert names["sd"] == pytest.approx(names["gt_sd"].numpy(), abs=0.01)


def test_the_marginal_likelihood_is_the_same_number(names: dict[str, Any]) -> None:
    scaled = names["sk_evidence"] - len(names["y"]) * np.log(names["y"].std())  # scikit-learn standardises the targets
    assert names["evidence"] == pytest.approx(scaled, abs=0.05)
    assert names["evidence"] == pytest.approx(names["gt_evidence"], abs=2.0)  # Adam has not converged


@pytest.mark.parametrize(("kind", "tolerance"), [("summed", 0.15), ("known", 0.15), ("sparse", 0.05)])
def test_other_models_agree(names: dict[str, Any], kind: str, tolerance: float) -> None:
    ours = names[kind].predict(names["X_new"])

    assert names[f"gt_{kind}"](names["new"]).mean.detach().numpy() == pytest.approx(ours, abs=tolerance)
    if kind == "summed":
        assert names["sk_summed"].predict(names["X_new"]) == pytest.approx(ours, abs=0.03)
    if kind == "known":
        assert names["sk_known"].predict(names["X_new"]) + names["y"].mean() == pytest.approx(ours, abs=0.01)
    if kind == "sparse":
        assert ours == pytest.approx(names["before"], abs=0.01)
        assert np.shape(names["places"]) == tuple(names["gt_places"].shape) == (20, 2)


def test_draws_derivatives_new_rows_files_and_folds_agree(names: dict[str, Any]) -> None:
    X, new = names["X_new"], names["new"]
    spread = names["draws"].std(0).numpy()
    assert spread == pytest.approx(names["gt_draws"].std(0).numpy(), rel=0.4)
    noisy = np.sqrt(spread**2 + names["model"].hyperparameters_["noise"].value ** 2)
    assert names["sk_draws"].std(1) == pytest.approx(noisy, rel=0.25)
    assert names["derivative"].numpy() == pytest.approx(names["gt_derivative"].numpy(), abs=0.3)
    more = names["model"].predict(X)
    assert np.abs(more - names["before"]).max() > 1e-3
    assert more == pytest.approx(names["sk_more"].predict(X), abs=2e-3)
    assert more == pytest.approx(names["gt_more"](new).mean.detach().numpy(), abs=0.02)
    assert names["loaded"](X).mean.numpy() == pytest.approx(more, abs=1e-12)
    assert names["scores"] == pytest.approx(names["sk_scores"], abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [("fixed", 0.05), ("bounded", 0.1), ("mode", 0.02), ("tied", 0.02), ("own", 0.02), ("wider", 0.15)],
)
def test_models_with_restrictions_agree(names: dict[str, Any], kind: str, tolerance: float) -> None:
    ours = names[kind].predict(names["X_new"])

    assert names[f"gt_{kind}"](names["new"]).mean.detach().numpy() == pytest.approx(ours, abs=tolerance)
    if f"sk_{kind}" in names:
        centre = names["y"].mean() if kind == "fixed" else 0.0
        assert names[f"sk_{kind}"].predict(names["X_new"]) + centre == pytest.approx(ours, abs=1e-3)


def test_restrictions_hold_and_values_have_units(names: dict[str, Any]) -> None:
    bounded, tied = names["bounded"].hyperparameters_, names["tied"].hyperparameters_
    assert bounded["lengthscale[x0]"].value == pytest.approx(0.2)  # the best one lies beyond
    assert names["wider"].hyperparameters_["lengthscale[x0]"].value == pytest.approx(
        names["model"].hyperparameters_["lengthscale[x0]"].value, rel=0.2
    )  # the other model has ten more rows
    assert tied["lengthscale[x0]"].value == pytest.approx(tied["lengthscale[x1]"].value)
    assert names["noise"] == pytest.approx(0.1)
    assert names["sk_noise"] == pytest.approx(0.1)
    assert names["gt_noise"] == pytest.approx(0.1, abs=1e-6)
    assert list(names["table"].index) == [row.name for row in names["model"].hyperparameters_]
    assert len(names["gt_table"]) == len(names["table"])  # a mean in place of one lengthscale


def test_runs_are_watched_and_go_on_from_a_value_set_by_hand(names: dict[str, Any]) -> None:
    trace = names["watched"].run_.trace
    assert 1 < len(trace) < len(names["model"].run_.trace)
    assert trace[-1].step.info.objective < -200.0 <= trace[-2].step.info.objective
    learned = names["wider"].hyperparameters_["lengthscale[x0]"].value
    assert names["healed"].hyperparameters["lengthscale[x0]"].value == pytest.approx(learned, rel=1e-2)
    healed = names["sk_healed"].kernel_.get_params()["k1__k2__length_scale"]
    assert names["sk_wider"].kernel_.get_params()["k1__k2__length_scale"] == pytest.approx(healed, rel=1e-2)
