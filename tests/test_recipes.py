"""CONTRIBUTING's recipes, run as they stand: methods, a kernel, a card, a view, each with what is promised of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data.sets.cards import parse_card
from gpexplorer.kernels.base import registry as kernels
from gpexplorer.methods.base import registry as methods
from gpexplorer.views import for_run
from gpexplorer.views.base import registry as views
from gpexplorer.views.drawing.live import Live

TEXT = (Path(__file__).resolve().parent.parent / "CONTRIBUTING.md").read_text("utf-8")
METHOD, SOLVER, KERNEL, VIEW = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.M | re.S)
[CARD] = re.findall(r"^```yaml\n(.*?)^```", TEXT, flags=re.M | re.S)


@pytest.fixture(autouse=True)
def _guests_leave() -> Iterator[None]:
    """What a recipe registers is gone when its test is over."""
    before = dict(methods), dict(kernels), dict(views)
    yield
    for registry, held in zip((methods, kernels, views), before, strict=True):
        registry.clear()
        registry.update(held)


def follow(recipe: str) -> None:
    exec(compile(recipe, "CONTRIBUTING.md", "exec"), {"__name__": "recipe"})


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
    ends = {}
    for key, asked in (("random-blocks", {**settings, "block": 40}), ("cholesky", settings)):
        run = gpx.Spec(method=key, settings=asked, kernel="se").open(data=data)
        assert run.finish().reason == "converged"
        ends[key] = run.trace[-1].step.state.alpha

    torch.testing.assert_close(ends["random-blocks"], ends["cholesky"], rtol=1e-6, atol=1e-7)


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
    [source] = [found for found in live.figure.select({"name": "pace"}) if hasattr(found, "data")]

    assert live.figure.xaxis[0].axis_label == "step"
    assert list(source.data["x"]) == list(range(7))
    assert sum(source.data["y"]) == pytest.approx(run.trace[6].seconds)
