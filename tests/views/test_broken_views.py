"""A view that raises, in any of its functions, shows its own error and takes nothing else with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

import holoviews as hv
import pandas as pd
import pytest

from gpexplorer import Spec, views
from gpexplorer.ui.explorer import Explorer
from gpexplorer.views.base import Layers, View, layer, registry

SPEC = Spec("cholqr", {"num_inducing": 5}, {"name": "hypercube", "n": 40, "d": 1, "seed": 3}, kernel="se")
FUNCTIONS = ("applies", "data", "unfinished", "plot")


@pytest.fixture(params=FUNCTIONS)
def guest(request: pytest.FixtureRequest) -> Iterator[str]:
    """A view on top of the page that raises in one function; the name of that function."""
    broken = request.param

    class Guest(View):
        key: ClassVar[str] = "guest"
        title: ClassVar[str] = "A guest"
        order: ClassVar[int] = -1

        def applies(self, run: Any) -> bool:
            return bool(raise_in("applies")) or True

        def data(self, run: Any, at: int) -> Layers:
            raise_in("data")
            return {"line": pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, float(at)]})}

        def unfinished(self, run: Any, at: int) -> bool:
            raise_in("unfinished")
            return False

        def plot(self, layers: Layers) -> hv.Overlay:
            raise_in("plot")
            return hv.Overlay([layer(hv.Curve(layers["line"], "x", "y"), "line")])

    def raise_in(function: str) -> None:
        if function == broken:
            raise ZeroDivisionError(f"raised in {function}")

    yield broken
    del registry["guest"]


def test_for_run_gives_all_other_views(guest: str):
    run = SPEC.open()
    run.finish(steps=2)

    views_by_key = {view.key: view for view in views.for_run(run)}

    assert {"guest", "fit", "convergence", "landscape"} <= set(views_by_key)
    assert views_by_key["guest"].title == "A guest"
    assert set(views_by_key["fit"].data(run, 2))
    if guest in ("applies", "data"):
        with pytest.raises(ZeroDivisionError, match=f"raised in {guest}"):
            views_by_key["guest"].data(run, 2)


def test_the_page_draws_the_others_and_says_what_failed(guest: str):
    explorer = Explorer(SPEC)
    end = time.monotonic() + 30
    explorer.session.player.run_to(3)
    while explorer.session.screen.step < 3 or not explorer.pictures.pictures["fit"].layers:
        assert time.monotonic() < end
        explorer.update(wait=0.5)
    cards = explorer.pictures.pictures
    explorer.close()

    assert list(cards)[:3] == ["guest", "landscape", "fit"]
    assert cards["fit"]._live is not None
    shown = cards["guest"]._place[0].object
    assert "“A guest” was being drawn" in shown
    assert shown.count("<") == 2  # of the span around the sentence
    assert not explorer.status.alert.visible
    assert explorer.session.screen.step == 3
