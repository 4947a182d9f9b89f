"""A small `benchmarks trust`: every method on two small draws from the model, with the red results listed by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.trust.cells import Cell, Plan, read_cells, run_cells
from benchmarks.trust.dense_objectives import FORMULAS, dense_objective
from benchmarks.trust.problems import SYNTHETIC, problems, public_sets
from benchmarks.trust.report import by_result, markdown, red_reasons
from benchmarks.trust.simple_baselines import BASELINES
from gpexplorer import Spec, data, methods
from gpexplorer.data import Split
from gpexplorer.errors import SettingError
from gpexplorer.problem import Dataset

pytestmark = pytest.mark.timeout(500)  # the cells take 36 s on a quiet core, and several times as long on a busy one
SETS = ("model draw", "duplicates")
PLAN = Plan(budget={"steps": 60}, dtypes=("float64",), seeds=1, rows=80)
NARROW, WIDE = (0.92, 0.97), (0.88, 0.99)  # a coverage next to the ends of .90 to .98 may fall on either side

CUT = "60 steps end before the refit: until then 16 rows set aside choose the width of the bands (finished: 95 %)"
VARIES = (
    "hyperparameters that are chosen by squared errors of 80 rows vary from draw to draw: over 8 draws the bands of "
    "95 % cover 83 to 98 %, 92 % on the mean (maximum likelihood: 91 to 97, 95); rounding decides on this draw"
)
OF_ONE_LEFT_OUT = (
    "likewise by squared errors: over 8 draws the bands cover 53 to 96 %; 60 steps end this descent before it has "
    "converged, at 85 or 93 % by rounding"
)
# Results that are red today, each with its reason. A cure removes a line here; a line that is missing is a new defect.
KNOWN: dict[tuple[str, str, str], str] = {
    ("model draw", "scgd", "coverage"): CUT,
}
# Results that rounding makes red or not, from one process to another.
BY_ROUNDING: dict[tuple[str, str, str], str] = {
    ("model draw", "gpcv-admm", "coverage"): VARIES,
    ("model draw", "loo", "coverage"): OF_ONE_LEFT_OUT,
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    return run_cells(problems(SETS), sorted(methods), PLAN, tmp_path_factory.mktemp("trust") / "cells.jsonl")


def test_what_is_red_is_known_and_what_is_known_is_red(cells: list[Cell]) -> None:
    certainly, possibly = (
        {
            (name, method, reason)
            for (name, method, _), group in by_result(cells).items()
            for reason in red_reasons(group, True, coverage_range)
        }
        for coverage_range in (WIDE, NARROW)
    )

    assert certainly - set(KNOWN) - set(BY_ROUNDING) == set(), "a new red result: mend it, or say here why it is red"
    assert set(KNOWN) - possibly == set(), "these results are cured: remove their lines"


def test_every_method_has_a_cell_and_every_dense_objective_is_that_reported(cells: list[Cell]) -> None:
    compared = {cell.method for cell in cells if math.isfinite(cell.dense)}

    assert {cell.method for cell in cells} == {*methods, *BASELINES}
    assert compared == set(FORMULAS)
    for cell in cells:
        if math.isfinite(cell.dense):
            assert cell.objective == pytest.approx(cell.dense, rel=1e-8), cell.method


def test_the_exact_gp_of_the_baselines_is_that_of_maximum_likelihood(cells: list[Cell]) -> None:
    for name in SETS:
        dense, ml = (next(c for c in cells if (c.set, c.method) == (name, key)) for key in ("dense GP", "ml"))
        assert ml.smse == pytest.approx(dense.smse, rel=2e-2)
        assert ml.coverage95 == pytest.approx(dense.coverage95, abs=0.02)


@pytest.mark.parametrize("key", ["cholqr", "fitc", "ml", "gbcd"])
def test_a_wrong_objective_is_red(key: str, cells: list[Cell]) -> None:
    cell = next(cell for cell in cells if cell.method == key)
    wrong = Cell(**{**vars(cell), "objective": cell.objective * (1 + 1e-4)})

    assert "objective" not in red_reasons([cell], False)
    assert red_reasons([wrong], False) == ["objective"]


def test_red_reasons_are_those_of_the_definition() -> None:
    good = {
        "method": "cholqr", "set": "model draw", "seed": 0, "dtype": "float64", "budget": {"steps": 1}, "rows": 80,
        "outcome": "budget", "smse": 0.2, "nlpd": 0.5, "coverage68": 0.7, "coverage95": 0.95,
        "beyond_constant": (-0.5, 0.1), "beyond_ridge": (-0.2, 0.05),
    }  # fmt: skip

    def reasons(from_model: bool = True, **changes: object) -> list[str]:
        return red_reasons([Cell(**{**good, **changes})], from_model)

    assert reasons() == []
    assert reasons(coverage95=0.89) == reasons(coverage95=0.99) == ["coverage"]
    assert reasons(from_model=False, coverage95=0.5) == []
    assert reasons(beyond_constant=(0.3, 0.1)) == ["constant"]
    assert reasons(beyond_constant=(0.1, 0.1)) == []
    assert reasons(beyond_ridge=(0.2, 0.05)) == ["ridge"]
    assert reasons(outcome="failed") == reasons(nlpd=math.nan) == ["failed"]
    assert reasons(outcome="refused", nlpd=math.nan) == []


def test_dense_objectives_are_the_textbook_formulas() -> None:
    split = SYNTHETIC[0].split(3, 40)
    run = Spec("random", {"num_inducing": 7, "learn": False}).open(data=split)
    run.finish(steps=2)
    state, train = run.trace[-1].step.state, run.problem.train
    X, y, theta = train.X.numpy(), train.y.numpy(), state.theta.numpy()

    def k(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        r2 = (((A[:, None] - B) / np.exp(theta[1:-1])) ** 2).sum(2)
        return np.exp(2 * theta[0] - 0.5 * r2)

    Z, s2 = X[state.inducing.numpy()], np.exp(2 * theta[-1])
    K_hat = k(X, Z) @ np.linalg.solve(k(Z, Z), k(Z, X))
    S = K_hat + s2 * np.eye(len(X))
    want = y @ np.linalg.solve(S, y) + np.linalg.slogdet(S)[1] + np.trace(k(X, X) - K_hat) / s2

    assert dense_objective(run, run.trace[-1]) == pytest.approx(want / 2, rel=1e-9)


def test_baselines_find_what_they_can_represent() -> None:
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(200, 3)) * 5 + 100)
    y = X @ torch.tensor([1.0, -2.0, 0.5]).double() + 7 + 0.3 * torch.from_numpy(rng.normal(size=200))
    split = Split(Dataset(X[:120], y[:120]), Dataset(X[120:], y[120:]), "line", key="line")

    mean, var = BASELINES["ridge"](split)
    assert float((mean - split.test.y).square().mean()) == pytest.approx(0.09, rel=0.4)
    assert float(var.mean()) == pytest.approx(0.09, rel=0.4)
    assert BASELINES["constant"](split)[0].tolist() == [float(split.train.y.mean())] * 80
    error = [float((BASELINES[name](split)[0] - split.test.y).square().mean()) for name in BASELINES]
    assert error[1] < error[3] < error[2] < error[0]


@pytest.mark.parametrize("problem", SYNTHETIC, ids=lambda problem: problem.name)
def test_synthetic_sets_are_repeatable_and_as_large_as_asked(problem) -> None:
    split, repeated, other = problem.split(0, 60), problem.split(0, 60), problem.split(1, 60)

    assert len(split.train) == (30 if problem.name == "few rows" else 60)
    assert torch.equal(split.train.y, repeated.train.y)
    assert not torch.equal(split.train.y, other.train.y)
    if problem.name == "tiny lengthscale":
        assert float(split.train.X[:, 0].max() - split.train.X[:, 0].min()) > 1e3


def test_cells_are_kept_and_a_second_call_computes_only_what_is_missing(tmp_path: Path) -> None:
    path, computed = tmp_path / "cells.jsonl", list[str]()
    plan = Plan(budget={"steps": 2}, dtypes=("float64", "float32"), seeds=1, rows=30)
    first = run_cells(problems(["few rows"]), ["random"], plan, path, computed.append)
    path.write_text(path.read_text() + '{"method": "torn')

    repeated = run_cells(problems(["few rows"]), ["random", "cholqr"], plan, path, computed.append)

    assert len(computed) == len(BASELINES) + 2 + 2
    assert len(read_cells(path)) == len(computed)
    assert json.dumps([vars(c) for c in first]) == json.dumps([vars(c) for c in repeated if c.method != "cholqr"])


def test_the_command_prints_a_table_and_says_what_it_does_not_know(tmp_path: Path) -> None:
    run = CliRunner().invoke
    options = ["--sets", "few rows", "--seconds", "0.05", "--seeds", "1", "--dtypes", "float64", "--out", str(tmp_path)]

    result = run(app, ["trust", "--methods", "random,ski", *options])

    assert result.exit_code == 0, result.output
    assert "| method | few rows |" in result.stdout
    assert "| dense GP | " in (tmp_path / "trust.md").read_text()
    with pytest.raises(SettingError, match="Method 'randm' is not known; did you mean 'random'"):
        run(app, ["trust", "--methods", "randm", *options], catch_exceptions=False)
    with pytest.raises(SettingError, match="There is no set 'no set'"):
        run(app, ["trust", "--sets", "no set"], catch_exceptions=False)


def test_a_refused_set_is_shown_as_refused_and_not_as_red() -> None:
    cell = Cell("grief", "model draw", 0, "float64", {"steps": 1}, 80, "refused", "Not with this kernel.")

    table = markdown([cell], problems(["model draw"]))

    assert "| grief | – |" in table
    assert "| grief | refused |" in table


@pytest.mark.parametrize("sets", ["no-such-set", "airfoil, no-such-set"])
def test_a_set_that_is_not_on_this_machine_is_refused_and_not_left_out(
    sets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = pd.DataFrame({"cached": [True]}, index=["airfoil"])
    monkeypatch.setattr(data, "available", lambda: cached)
    with pytest.raises(SettingError, match=r"'no-such-set' is not on this machine.*gpexplorer data fetch no-such-set"):
        public_sets(sets)
    assert public_sets("airfoil") == ["airfoil"]
