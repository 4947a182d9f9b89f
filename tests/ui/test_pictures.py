"""Cards of pictures: they are built when they are looked at, and show a sentence if there is nothing to draw."""

from __future__ import annotations

import gc
import time
import weakref
from dataclasses import replace

import pytest

from gpexplorer.runs import Spec
from gpexplorer.ui.explorer import Explorer
from gpexplorer.ui.pictures import picture_cards
from gpexplorer.ui.pictures.chart import Chart, LegendLine
from gpexplorer.ui.playback import open_run
from gpexplorer.ui.styles import FigureTheme
from gpexplorer.views import for_run
from gpexplorer.views.base import arranged
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.drawing.palette import ROLES


@pytest.mark.parametrize(
    ("method", "hero"),
    [
        ("cholqr", "landscape"), ("titsias", "survival"), ("gbcd", "gbcd-gradient"), ("grief", "grief-eigenfunctions"),
        ("gpcv-admm", "admm-paths"), ("scgd", "stochastic-estimate"), ("ml", "hyperparameters"),
    ],
)  # fmt: skip
def test_the_picture_of_the_family_stands_between_prediction_and_convergence(method: str, hero: str):
    views = for_run(Spec(method, data={"name": "snelson-like", "n": 40}).open())

    keys = [view.key for view in arranged(views)]
    assert keys[:3] == ["fit", hero, "convergence"]
    assert sorted(keys) == sorted(view.key for view in views)

    view_keys = [view.key for view in arranged(views, "calibration")]
    assert view_keys[:3] == ["fit", "calibration", "convergence"]
    assert hero in view_keys[3:]
    assert arranged(views, "fit") == arranged(views, "nonsense") == arranged(views)


def test_a_word_of_the_legend_hides_its_layers_and_brings_them_back():
    run = Spec("cholqr", {"num_inducing": 4}, {"name": "snelson-like", "n": 40}).open()
    run.finish(steps=1)
    [view] = [view for view in for_run(run) if view.key == "fit"]
    live = Live(view, view.data(run, 1))
    live.leave_words_to_page()
    line = LegendLine(live.toggle)
    line.fill(live.legend)

    words = {entry.label: entry for entry in live.legend}
    assert words["mean"].sign == "━"
    assert words["truth"].sign == "╍"
    assert words["inducing"][1:3] == ("▲", ROLES["inducing"])
    assert not any(legend.visible for legend in live.figure.legend)
    [mean] = [glyphs for glyphs in live.figure.renderers if glyphs.data_source.name == "mean"]
    position = [entry.label for entry in live.legend].index("mean")
    for hostile in (-1, 99, "0", None, True, 1.0):
        line._handle_msg(hostile)
    assert all(entry.visible for entry in live.legend)
    line._handle_msg(position)
    assert not mean.visible
    assert not live.legend[position].visible
    line._handle_msg(position)
    assert mean.visible


def test_all_figures_of_a_page_follow_its_theme_until_nothing_refers_to_them():
    run = Spec("cholqr", {"num_inducing": 4}, {"name": "snelson-like", "n": 40}).open()
    run.finish(steps=1)
    [view] = [view for view in for_run(run) if view.key == "fit"]
    layers = view.data(run, 1)
    background = {name: Live(view, layers, name).figure.background_fill_color for name in ("light", "dark")}
    theme = FigureTheme()
    first, second, empty = (Chart(theme, legend_margin=(0, 0)) for _ in range(3))
    for chart in (first, second):
        chart.show(view, layers, view.title)
    light_entries, freed = first.legend.entries, weakref.ref(second)

    theme.set_dark(True)
    empty.draw(layers, view.plot, view.title)

    assert background["light"] != background["dark"]
    for chart in (first, second, empty):
        assert chart._live.figure.background_fill_color == background["dark"]
    assert first.legend.entries != light_entries
    del chart, second
    gc.collect()
    assert freed() is None
    theme.set_dark(False)
    assert first._live.figure.background_fill_color == background["light"]
    assert first.legend.entries == light_entries


def follow(explorer: Explorer, key: str, empty: bool = False) -> None:
    """Let the page take frames until this picture is drawn, or has a frame with nothing to draw."""
    end = time.monotonic() + 30
    card = explorer.pictures.pictures[key]
    while not card.layers or (card._live is None and not empty):
        assert time.monotonic() < end
        explorer.update(wait=0.5)


@pytest.mark.parametrize("method", ["cholqr", "gbcd", "grief"])
def test_the_hero_stands_under_the_prediction_on_the_same_axis_where_there_is_one_input(method: str):
    settings = {"num_inducing": 5} if method == "cholqr" else {}
    explorer = Explorer(Spec(method, settings, {"name": "snelson-like", "n": 40}, kernel="se"))
    end = time.monotonic() + 30
    while not explorer.pictures.pictures and time.monotonic() < end:
        explorer.settle()
    keys = list(explorer.pictures.pictures)
    for key in keys[:2]:
        follow(explorer, key)

    assert "stacked" in explorer.pictures.classes
    prediction, hero = (explorer.pictures.pictures[key]._live.figure.x_range for key in keys[:2])
    assert (hero.start, hero.end) == pytest.approx((prediction.start, prediction.end), rel=1e-9)
    explorer.session.adopt(Spec(method, settings, {"name": "friedman1", "n": 40}))
    end = time.monotonic() + 30
    while explorer.session.player.run is None or "stacked" in explorer.pictures.classes:
        assert time.monotonic() < end
        explorer.update(wait=0.5)
    explorer.close()


def test_a_card_is_built_when_it_is_looked_at_and_says_when_it_is_empty():
    explorer = Explorer(Spec("ivm", data="snelson-like"))  # whose first record has no objective
    end = time.monotonic() + 30
    while not explorer.pictures.pictures and time.monotonic() < end:
        explorer.settle()
    cards = explorer.pictures.pictures
    assert "calibration" in cards
    assert not len(cards["calibration"].card)

    follow(explorer, "convergence", empty=True)
    card = cards["convergence"]
    assert list(card._place) == [card._sentence]  # a quiet line, and no empty frame
    assert "There is nothing to draw" in card._sentence.object
    assert not card.legend.visible
    explorer.session.player.step()
    while list(card._place) == [card._sentence] and time.monotonic() < end:
        explorer.update(wait=0.5)
    assert card.legend.visible
    assert (card.legend.caption, card.legend.number) == (card._live.caption, card._live.number)
    assert not len(cards["calibration"].card)

    cards["fit"].update({name: frame[:0] for name, frame in cards["fit"].layers.items()})
    assert "There is nothing to draw" in cards["fit"]._place[0].object
    waiting = {name: frame[:0] for name, frame in cards["fit"].layers.items()}
    next(iter(waiting.values())).attrs["title"] = "no draws yet: warming up <20 of 50>"
    cards["fit"].update(waiting)
    assert "No draws yet: warming up &lt;20 of 50&gt;." in cards["fit"]._place[0].object
    explorer.close()


def test_the_legend_names_the_bands_of_the_run_that_is_shown():
    spec = Spec("cholqr", {"num_inducing": 4}, {"name": "snelson-like", "n": 40})
    explorer = Explorer(spec)
    while not explorer.pictures.pictures:
        explorer.settle()
    follow(explorer, "fit")
    card, end = explorer.pictures.pictures["fit"], time.monotonic() + 30
    for target_transform, words in (
        ("", "± 2 sd of y and f"),
        ("yeo-johnson", "95 % of y and f"),
        ("", "± 2 sd of y and f"),
    ):
        explorer.session.adopt(replace(spec, target_transform=target_transform))
        while card.legend.entries[0][0] != words:
            assert time.monotonic() < end
            explorer.update(wait=0.5)
    explorer.close()


def test_a_slow_picture_continues_while_it_is_looked_at_and_does_not_block_requests(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_run, "PATIENCE", 0.0)
    settings = {"width": 4, "layers": 1, "batch_size": 16, "minibatches": 2, "epochs": 4, "evaluate_every": 1}
    explorer = Explorer(Spec("scgd", settings, {"name": "hypercube", "n": 40, "d": 2}))
    while not explorer.pictures.pictures:
        explorer.settle()
    keys = list(explorer.pictures.pictures)
    explorer.pictures.tabs.active = keys.index("stochastic-batches") - picture_cards.ON_TOP
    explorer.pictures.pictures["stochastic-batches"].view.minibatches = 24
    explorer.session.player.step()
    titles: list[str] = []

    end = time.monotonic() + 30
    while not titles or "remaining" in titles[-1]:
        assert time.monotonic() < end
        explorer.update(wait=0.5)
        layers = explorer.pictures.pictures["stochastic-batches"].layers
        title = layers["minimax"].attrs["title"] if layers else ""
        if title and "take a step" not in title and title not in titles[-1:]:
            titles.append(title)
        if len(titles) == 3:
            explorer.session.player.step()

    explorer.close()
    assert len(titles) > 5
    assert "about" in titles[0]
    assert titles[-1].startswith("24 minibatches per panel")
