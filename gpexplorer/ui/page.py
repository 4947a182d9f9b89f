"""The page around an explorer: title bar, sidebar, theme toggle, keys; one explorer a session, closed with it."""

from __future__ import annotations

import gc
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..runs import Spec, Store
from .address import Request, asked
from .browser.batch import together
from .browser.bokeh_fix import BokehLayoutFix
from .browser.button_names import ButtonNames
from .browser.keys import Keys
from .browser.tour import Tour
from .explorer import START, Explorer, load_resources
from .prebuilt import Shelf
from .text.error_sentences import record
from .theme import CSS, THEME

shelf = Shelf()


def app(store: Store | None = None) -> Any:
    """The page of one session. An exception while it is built becomes constant text and an id; the log has the rest."""
    try:
        request = asked(Spec(**START))
        load_resources()
        explorer = (shelf.take() if _is_plain(request) else None) or Explorer(request.link.spec, store=store)
        explorer.adopt(request)
        return _page(explorer, "controls" not in request.hide)
    except Exception as error:
        number = record(error, "the page was being built")
        return pn.pane.HTML(f"<p>The page could not be built. The log has the reason as {number}. Load it again.</p>")


def warm(store: Store | None = None) -> None:
    """Draw once with nobody looking: the first visitor need not wait for imports and caches, nor for the pictures.

    What is there by now stays, so the collector of garbage need not look at it again while pages are being built.
    """
    explorer = Explorer()
    explorer.settle()
    explorer.close()
    del explorer
    gc.collect()
    gc.freeze()
    shelf.fill(lambda: _settled(Explorer(store=store)))


def _settled(explorer: Explorer) -> Explorer:
    explorer.settle()
    return explorer


def _is_plain(request: Request) -> bool:
    """Whether this is the page as it opens by itself."""
    return request.link.spec == Spec(**START) and not (request.link.at or request.link.view)


def _page(explorer: Explorer, controls: bool) -> pmui.Page:
    keys = pmui.IconButton(
        icon="keyboard", description="Keys (?)", color="default", on_click=lambda _: explorer.key("?")
    )

    tour = Tour(welcome=controls)
    guide = pmui.IconButton(icon="explore", description="A tour of the page", color="default", on_click=tour.begin)
    ears = [explorer.pulse, Keys(explorer.key), tour]  # from the beginning: one added later may be drawn and dropped
    side, rest = pn.Column(sizing_mode="stretch_width"), pn.Column(sizing_mode="stretch_width")
    page = pmui.Page(
        title="gpexplorer",
        header=[pmui.Row(pn.layout.HSpacer(), guide, keys, sizing_mode="stretch_width")],
        sidebar=[side] if controls else [],
        main=[pn.Column(BokehLayoutFix(), ButtonNames(), *explorer.top, rest, *ears, sizing_mode="stretch_width")],
        sidebar_width=370,
        theme_config=THEME,
        raw_css=[CSS],
        busy_indicator=None,
    )
    _hush(page)
    page.param.watch(lambda event: explorer.set_dark(event.new), "dark_theme")
    explorer.set_dark(bool(page.dark_theme))
    explorer.settle()
    later = [(rest, explorer.rest), *([(side, explorer.controls)] if controls else [])]
    pn.state.onload(lambda: _complete(explorer, later))
    if pn.state.curdoc is not None and pn.state.curdoc.session_context is not None:
        pn.state.on_session_destroyed(lambda _: explorer.close())
    return page


def _complete(explorer: Explorer, later: list[tuple[pn.Column, list[Any]]]) -> None:
    """What can wait until the first picture is on the screen: the tabs, the controls, and to follow the run."""
    with together():
        for place, parts in later:
            place[:] = parts
        explorer.start()
    shelf.later()


def _hush(page: pmui.Page) -> None:
    """Stop the page from following the process-wide busy flag.

    Each change of the flag walks every model of the page, some 30 ms twice an event, and the watcher would keep a
    closed page alive.
    """
    for watcher in pn.state.param.watchers.get("busy", {}).get("value", []):
        if getattr(getattr(watcher.fn, "__self__", None), "self", None) is page:
            pn.state.param.unwatch(watcher)
