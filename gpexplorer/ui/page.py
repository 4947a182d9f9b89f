"""The page around an explorer: title bar, sidebar, theme, keys and tour. Each session has one explorer of its own.

Pages are built in advance (`ready_sessions.py`), and the tabs and the controls are added after the first picture is on
the screen.
"""

from __future__ import annotations

import gc
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..runs import Spec, Store
from .address import session_request
from .browser.batch import together
from .browser.bokeh_fix import BokehLayoutFix
from .browser.button_names import ButtonNames
from .browser.drawer import Drawer
from .browser.keys import Keys
from .browser.tour import Tour
from .connections import Arrivals, follow_connection
from .explorer import START, Explorer, load_resources
from .shared_limits import Shares, heavy_link
from .styles import MAIN, PAGE, THEME
from .text import record

WHITE = {"color": "#ffffff !important"}  # icons in the title bar, in both themes
SIDEBAR = 320  # pixels
COLLECTION = (20_000, 20, 50)  # thresholds of garbage collection, which took an eighth of the time of a page


def app(store: Store | None = None, notice: str = "", shares: Shares | None = None) -> Any:
    """Build the page of one session.

    Parameters
    ----------
    store
        Where kept runs and notes stay; None for nowhere.
    notice
        A warning to show on the page.
    shares
        The memory and the cores that all sessions share.

    Returns
    -------
    panel_material_ui.Page or panel.pane.HTML
        The page. Where building it raises, a sentence with a number, under which the log has the exception: Panel
        would show the traceback, with text from the address in it unescaped.
    """
    try:
        request = session_request(Spec(**START))
        load_resources()
        spec = request.link.spec
        explorer = Explorer(spec, store=store, shares=shares, wait_message=heavy_link(spec))
        explorer.adopt(request)
        if notice:
            explorer.status.say(notice)
        arrivals = shares.arrivals if shares is not None else Arrivals()
        return _page(explorer, arrivals, show_controls="controls" not in request.hide)
    except Exception as error:
        number = record(error, "the page was being built")
        return pn.pane.HTML(
            f"<p>The page could not be built. The reason is in the log under {number}. Load the page again.</p>"
        )


def warm() -> None:
    """Prepare the server: draw once, so that the first visitor need not wait for imports and caches.

    Objects that exist by then stay for ever. They are excluded from garbage collection, which would otherwise walk
    through all of them while pages are being built.
    """
    explorer = Explorer()
    explorer.settle()
    explorer.close()
    del explorer
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION)


def _page(explorer: Explorer, arrivals: Arrivals, show_controls: bool) -> pmui.Page:
    keys = pmui.IconButton(
        icon="keyboard", description="Keys (?)", color="default", sx=WHITE, on_click=lambda _: explorer.key("?")
    )
    tour = Tour(welcome=show_controls)
    guide = pmui.IconButton(icon="explore", description="A tour of the page", sx=WHITE, on_click=tour.begin)
    # These are on the page from the beginning: a component that is added later may be drawn and dropped again.
    listeners = [explorer.pulse, Keys(explorer.key), tour]
    side = pn.Column(sizing_mode="stretch_width")
    rest = pn.Column(sizing_mode="stretch_width", css_classes=["rest"])
    page = pmui.Page(
        title="gpexplorer",
        header=[pmui.Row(pn.layout.HSpacer(), guide, keys, sizing_mode="stretch_width")],
        sidebar=[Drawer(), side] if show_controls else [],
        main=[
            pn.Column(
                BokehLayoutFix(),
                ButtonNames(),
                *explorer.top,
                rest,
                *listeners,
                sizing_mode="stretch_width",
                stylesheets=[MAIN],
            )
        ],
        sidebar_width=SIDEBAR,
        theme_config=THEME,
        raw_css=[PAGE],
        busy_indicator=None,
    )
    _ignore_busy_flag(page)
    page.param.watch(lambda event: explorer.set_dark(event.new), "dark_theme")
    explorer.set_dark(bool(page.dark_theme))
    explorer.settle()
    later = [(rest, explorer.rest), *([(side, explorer.controls)] if show_controls else [])]
    pn.state.onload(lambda: arrivals.complete(pn.state.curdoc, lambda: _complete(explorer, later)))
    if pn.state.curdoc is not None and pn.state.curdoc.session_context is not None:
        pn.state.on_session_destroyed(lambda _: explorer.close())
        follow_connection(pn.state.curdoc, explorer.pause)
    return page


def _complete(explorer: Explorer, later: list[tuple[pn.Column, list[Any]]]) -> None:
    """Add what can wait until the first picture is on the screen: tabs, controls, and following the run."""
    with together():
        for place, parts in later:
            place[:] = parts
        explorer.start()


def _ignore_busy_flag(page: pmui.Page) -> None:
    """Remove the page's watcher of Panel's process-wide busy flag.

    Each change of the flag walks through every model of the page, which takes about 30 ms twice per event, and the
    watcher would keep a closed page alive.
    """
    for watcher in pn.state.param.watchers.get("busy", {}).get("value", []):
        if getattr(getattr(watcher.fn, "__self__", None), "self", None) is page:
            pn.state.param.unwatch(watcher)
