"""The recipes of CONTRIBUTING.md: each one keeps its promises alone, in the store, in a race and on the page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import gpexplorer as gpx
from gpexplorer.__main__ import app
from gpexplorer.data.sets.cards import parse_card
from gpexplorer.kernels.base import registry as kernels
from gpexplorer.methods.base import registry as methods
from gpexplorer.runs.studies.race import Race
from gpexplorer.views import for_run
from gpexplorer.views.base import registry as views
from gpexplorer.views.drawing.live import Live
from recipes import CARD, KERNEL, METHOD, RECIPES, SERIES, SOLVER, VIEW


@pytest.fixture(autouse=True)
def _guests_leave() -> Iterator[None]:
    """What a recipe registers is gone when its test is over."""
    before = dict(methods), dict(kernels), dict(views)
    yield
    for registry, contents in zip((methods, kernels, views), before, strict=True):
        registry.clear()
        registry.update(contents)


def follow(recipe: str) -> None:
    exec(compile(recipe, "CONTRIBUTING.md", "exec", dont_inherit=True), {"__name__": "recipe"})


@pytest.mark.parametrize("shift", [0.0, 40.0])
def test_the_recipe_for_a_method_gives_one_that_runs_from_a_spec(shift: float):
    follow(METHOD)
    rows = gpx.load("snelson-like").train
    spec = gpx.Spec(method="grow", settings={"num_inducing": 10}, kernel="se", split={"test": 0.25, "seed": 1})

    run = spec.open(data=gpx.load((rows.X.numpy() + shift, rows.y.numpy() - shift), split={"test": 0.25, "seed": 1}))
    outcome = run.finish()
    objective = run.table()["objective"].to_numpy()[1:]

    assert outcome.reason == "converged"
    assert "10 inducing points" in outcome.message
    assert (objective[1:] <= objective[:-1] + 1e-6).all()  # the bound tightens with every point, to rounding
    assert objective[-1] < objective[0] - 10
    assert run.scores()["smse"] < 0.9  # at the first theta, which nothing learns here


def test_the_recipe_for_a_method_resumes_where_it_stopped():
    follow(METHOD)
    run = gpx.Spec(method="grow", kernel="se").open()
    run.finish()

    fork = run.fork(4)
    fork.finish()

    assert fork.table()["objective"].iloc[-1] == pytest.approx(run.table()["objective"].iloc[-1], rel=1e-12)


@pytest.mark.parametrize("shift", [0.0, 40.0])
def test_the_recipe_for_a_solver_ends_at_the_exact_gp(shift: float):
    follow(SOLVER)
    rows = gpx.load("snelson-like").train
    data = gpx.load((rows.X.numpy() + shift, rows.y.numpy() - shift), split={"test": 0.25, "seed": 1})
    settings = {"learn": False, "tolerance": 1e-8}
    ends = []
    for key, more in (("cholesky", {}), ("random-blocks", {"block": 40}), ("random-blocks", {})):
        run = gpx.Spec(method=key, settings={**settings, **more}, kernel="se").open(data=data)
        assert run.finish().reason == "converged"
        assert run.method.cost(run.problem).flops > 0
        ends.append(run.trace[-1].step.state.alpha)

    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_the_recipe_for_a_kernel_gives_one_that_adds_and_learns(shift: float):
    follow(KERNEL)
    X = shift + torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = gpx.kernels.make("cauchy + linear", d=3)
    theta = torch.tensor([0.2, 0.5, -1.0, 0.1, -0.3], dtype=torch.float64)

    K = gpx.kernels.make("cauchy", d=3)(theta[[0, 1, 4]], X, X)
    sum_of_squares = (X[0] - X[1]).square().sum()

    assert K[0, 1] == pytest.approx(float(torch.exp(2 * theta[0]) / (1 + sum_of_squares / torch.exp(2 * theta[1]))))
    assert torch.linalg.eigvalsh(K).min() > 0
    assert kernel.names[-1] == "noise"
    torch.testing.assert_close(kernel(theta, X, X).diagonal(), kernel.diag(theta, X))


def test_the_recipe_for_a_data_set_is_a_card_that_is_taken():
    card = parse_card("ballpark", CARD)

    assert (card.n, card.d, card.target) == (100, 2, "price")
    assert card.traps == ("Row 17 was measured twice.",)


def test_the_recipe_for_a_view_gives_a_picture_that_follows_the_run():
    follow(VIEW)
    run = gpx.Spec(method="cholqr", settings={"num_inducing": 5}, kernel="se").open()
    run.finish(steps=6)

    [pace] = [view for view in for_run(run) if view.key == "pace"]
    live = Live(pace, pace.data(run, 2))
    live.update(pace.data(run, 6))
    [source] = [result for result in live.figure.select({"name": "pace"}) if hasattr(result, "data")]

    assert live.figure.xaxis[0].axis_label == "step"
    assert list(source.data["x"]) == list(range(7))
    assert sum(source.data["y"]) == pytest.approx(run.trace[6].seconds)


def test_the_recipe_for_a_series_draws_its_channels_up_to_the_record():
    follow(SERIES)
    run = gpx.Spec(method="cholqr", settings={"num_inducing": 5}, kernel="se").open()
    run.finish(steps=24)

    [series] = [view for view in for_run(run) if view.key == "swap-quality"]
    layers, table = series.data(run, 20), run.table().iloc[:21]
    live = Live(series, layers)

    assert [entry.label for entry in live.legend] == ["rank correlation", "accepted"]
    assert live.figure.yaxis[0].axis_label == "correlation and rate"
    np.testing.assert_array_equal(layers["acceptance"]["y"], table["acceptance"].dropna())
    assert not [view for view in for_run(gpx.Spec(method="ml", kernel="se").open()) if view.key == "swap-quality"]


GUESTS = {"grow": METHOD, "random-blocks": SOLVER}


@pytest.mark.parametrize("key", GUESTS)
def test_a_method_like_the_recipe_is_stored_and_continues_where_it_stopped(key: str, tmp_path: Path):
    follow(GUESTS[key])
    spec = gpx.Spec(method=key, kernel="se")
    whole = spec.open()
    whole.finish(steps=6)

    first = gpx.Store(tmp_path).open(spec)
    first.finish(steps=4)
    first.close()
    second = gpx.Store(tmp_path).open(spec)
    assert second.done == 4
    second.finish(steps=6)
    second.close()

    table = gpx.Store(tmp_path).table()
    assert table["method"].tolist() == [key]
    columns = ["objective"]
    np.testing.assert_allclose(second.table()[columns], whole.table()[columns], rtol=1e-10)


@pytest.mark.parametrize("key", GUESTS)
def test_a_method_like_the_recipe_runs_from_the_command_line_and_in_a_race(key: str, tmp_path: Path):
    follow(GUESTS[key])
    spec = gpx.Spec(method=key, kernel="se", budget={"steps": 3})
    (tmp_path / "spec.json").write_text(spec.to_json(), "utf-8")

    done = CliRunner().invoke(app, ["run", str(tmp_path / "spec.json")])
    race = Race({"guest": spec, "cholqr": gpx.Spec("cholqr", {"num_inducing": 5}, kernel="se")})
    race.finish(seconds=0.2)
    board = race.board().groupby("lane").last()
    race.close()

    assert done.exit_code == 0, done.output
    assert "smse" in done.output
    assert np.isfinite(board.loc["guest", "smse"])


@pytest.mark.parametrize("key", GUESTS)
def test_a_method_like_the_recipe_is_shown_on_the_page_with_its_settings(key: str):
    follow(GUESTS[key])
    explorer = gpx.Explorer(gpx.Spec(method=key, kernel="se"))
    try:
        explorer.session.player.run_to(4)
        begin = time.monotonic()
        while explorer.session.screen.step < 4 and time.monotonic() - begin < 30:
            explorer.update(wait=0.2)
        settings = explorer.choices.settings.widgets

        assert explorer.session.screen.step == 4
        assert explorer.pictures.drawn()
        assert set(settings) == {name for name in methods[key].param if name not in ("name", "seed")}
        assert "went wrong" not in str(explorer.status.line.object)
    finally:
        explorer.close()


PLACES = {  # where CONTRIBUTING says that each file goes
    "gpexplorer/methods/inducing/grow.py": METHOD,
    "gpexplorer/methods/exact/random_blocks.py": SOLVER,
    "gpexplorer/kernels/cauchy.py": KERNEL,
    "gpexplorer/views/runs/pace.py": VIEW,
    "gpexplorer/views/families/swap_quality.py": SERIES,
    "gpexplorer/data/cards/ballpark.yaml": CARD,
}
SLOW = "wheel or page_runs or readme_example or saved_by or shelf"  # they do not look at single files


@pytest.mark.long
def test_files_added_by_the_recipes_turn_no_rule_of_the_house_and_no_page_red(tmp_path: Path):
    clone, root = tmp_path / "clone", Path(__file__).resolve().parents[1]
    left_out = shutil.ignore_patterns(".*_cache", ".venv", "build", "dist", "*.egg-info")
    shutil.copytree(root, clone, ignore=left_out)
    for place, recipe in PLACES.items():
        assert not (clone / place).exists()
        (clone / place).write_text(recipe, "utf-8")

    files = ["tests/test_house.py", "tests/test_docs.py", "tests/data/test_loading.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-k", f"not ({SLOW})", *files]
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def test_recipes_are_whole_files():
    assert all(recipe.startswith(("import", "from")) for recipe in RECIPES.values())  # `make lint` checks the rest
