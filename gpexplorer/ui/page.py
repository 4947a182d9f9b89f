"""The page around an explorer: title bar, sidebar, theme, keys and tour.

The tabs and the controls are added after the first picture is on the screen.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import panel as pn
import panel_material_ui as pmui
from bokeh.themes import Theme

from .address import FIRST, GALLERY, SIDE_BY_SIDE
from .browser.callbacks import at_end, once_settled, served_document, together, weakly
from .browser.components import OWN_PAGE, ButtonNames, Drawer, HostTheme, Keys, PageTheme, Tour, Ways, repaired
from .connections import BUILT_AHEAD, Arrivals, Withheld, follow_connection
from .notebook.shown_in_cells import in_notebook
from .styles import BESIDE, GUEST, MAIN, PAGE, PAGE_TOOLTIP, THEME, TOOLTIP_IN_BAR

ICON = {"color": "inherit !important"}  # in the title bar
NOT_ON_PHONES = {"@media (max-width: 599px)": {"display": "none"}}
SIDEBAR = 320  # pixels
# Parts of figures that keep their own look: the page gives its own to those that the theme of a document does not name.
OWN_LOOK = Theme(json={"attrs": {part: {} for part in ("Axis", "ColorBar", "Figure", "Grid", "Legend", "Title")}})
AS_WIDE_AS_ITS_SCREEN = {"viewport": "width=device-width, initial-scale=1"}  # without it, a phone shows 980 pixels
SETTLED = 300  # milliseconds without another change of the theme, after which the server paints the figures too
PICTURES_WAIT = 0.5  # seconds that a page that is built in advance waits at most for its pictures
PAGES = {
    "First screen": f"?page={FIRST}", "Stories": f"?page={GALLERY}", "Side by side": f"?page={SIDE_BY_SIDE}"
}  # fmt: skip


def load_resources() -> None:
    """Load the browser parts that an explorer needs; they come from this machine, not from the network."""
    # Into a notebook's own page pn.extension would load files of other hosts, and in a script there is no page yet.
    if in_notebook() or pn.state.curdoc is None:
        for name in ("katex", "tabulator"):
            importlib.import_module(f"panel.models.{name}")
    else:
        pn.extension("katex", "tabulator")


@contextmanager
def in_own_design() -> Iterator[None]:
    """Build parts for a cell in the design of our pages: in a dark one, that of the kernel writes dark on dark."""
    with pn.config.set(design=pmui.theme.MaterialDesign) if in_notebook() else nullcontext():
        yield


def own_page() -> None:
    """Give the page of the present session its design and its rules; the pages of a host keep theirs."""
    if pn.state.curdoc is None:
        return
    pn.state.curdoc.template_variables["meta"] = AS_WIDE_AS_ITS_SCREEN  # a `pmui.Page` puts its own in the place
    pn.config.design = pmui.theme.MaterialDesign
    pn.state.curdoc.theme = OWN_LOOK
    pn.config.notifications = False
    pn.config.respect_explicit_sizing = True  # a figure that fills its card does not stretch the page around it


class LivePage(pn.viewable.Viewer):
    """An object whose page follows a run; at any time one page shows it, in a cell, in a host or by itself.

    A subclass has parameters that say what is on the screen. While `_is_following`, they change because the screen did,
    and not because somebody asks for other values.

    Attributes
    ----------
    widgets : list
        The widgets of the cells that show it.
    """

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self.widgets: list[Any] = []
        self._is_following = False
        self._stop: Callable[[], None] | None = None

    def pause(self) -> None:
        """Stop computing after the step under way once no browser shows the page."""

    def leave(self) -> None:
        """Stop following the run and computing, because the page is gone; a new page can show the object again."""
        self._stop_following()
        self.pause()

    def _follow_screen(self, **shown: Any) -> None:
        """Let the parameters say what is on the screen."""
        self._is_following = True
        try:
            self.param.update(**shown)
        finally:
            self._is_following = False

    def _stop_following(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def _begin_page(self) -> bool:
        """Begin a page of a cell, which takes the place of the page before, and return whether it is dark."""
        own_page()
        load_resources()
        self._stop_following()
        return bool(pn.state.session_args.get("dark", [b"0"])[0] == b"1")

    def _end_widgets(self, notice: str) -> None:
        """Close the views of all cells, which say why."""
        for widget in self.widgets:
            widget.end(notice)


def guest_sheet(parts: Sequence[Any], set_dark: Callable[[bool], None]) -> pn.Column:
    """Lay parts on a sheet in the page of a host, in its colours.

    Parameters
    ----------
    parts : sequence
        The parts, from top to bottom.
    set_dark : callable
        Called with whether the page is dark: at once, when the browser has drawn it, and at every change.

    Returns
    -------
    panel.Column
        The sheet.
    """
    sheet = pmui.Paper(*parts, elevation=0, theme_config=THEME, sizing_mode="stretch_width", margin=0)
    set_dark(bool(sheet.dark_theme))

    def follow_host(dark: bool) -> None:
        with together():
            sheet.dark_theme = dark
            set_dark(dark)

    return repaired(HostTheme(follow_host), sheet, sizing_mode="stretch_width", margin=0, stylesheets=[GUEST])


def explorer_in_host(explorer: Any, end: Callable[[], None]) -> pn.Column:
    """Put the parts of an explorer on a sheet in the page of a host.

    Parameters
    ----------
    explorer : Explorer
        The explorer.
    end : callable
        Called when the session of the host is over.
    """
    side, rest = pn.Column(*explorer.controls, width=SIDEBAR), pn.Column(sizing_mode="stretch_width")
    main = pn.Column(*explorer.top, rest, explorer.pulse, sizing_mode="stretch_width", stylesheets=[MAIN])
    explorer.settle()
    pn.state.onload(lambda: _complete(explorer, [(rest, explorer.rest)]))
    at_end(end)
    both = pn.Row(side, main, sizing_mode="stretch_width", stylesheets=[BESIDE])
    return guest_sheet([ButtonNames(), both], explorer.set_dark)


def explorer_page(
    explorer: Any,
    end: Callable[[], None],
    show_controls: bool = True,
    dark: bool | None = None,
    arrivals: Arrivals | None = None,
    listeners: Sequence[Any] = (),
) -> pmui.Page:
    """Put the parts of an explorer on a page of the present session.

    Parameters
    ----------
    explorer : Explorer
        The explorer.
    end : callable
        Called when the session is over.
    show_controls : bool, default True
        Whether the page has a sidebar.
    dark : bool, optional
        Whether the page begins dark; None for what a person chose before, or else the operating system is set to.
    arrivals : Arrivals, optional
        The pages of a server that are on their way; what can wait waits for them.
    listeners : sequence, optional
        Further invisible components.

    Returns
    -------
    panel_material_ui.Page
        The page.
    """
    arrivals = arrivals or Arrivals()
    keys = pmui.IconButton(
        icon="keyboard", description="Keys (?)", color="default", sx=ICON | NOT_ON_PHONES,
        stylesheets=[TOOLTIP_IN_BAR], on_click=lambda _: explorer.key("?"),
    )  # fmt: skip
    ways = Ways(explorer.below.open, pages={} if in_notebook() else PAGES, tools=explorer.tools, align="center")
    tour = Tour()
    guide = pmui.IconButton(
        icon="explore", description="A tour of the page", sx=ICON, stylesheets=[TOOLTIP_IN_BAR], on_click=tour.begin
    )
    # These are on the page from the beginning: a component that is added later may be drawn and dropped again.
    theme = [PageTheme()] if dark is None else []
    listeners = [explorer.pulse, Keys(explorer.key), tour, *theme, *listeners]
    drawer = Drawer()
    for button in explorer.openers:
        button.on_click(weakly(drawer.close))  # what it opens would be behind the drawer
    side = pn.Column(sizing_mode="stretch_width")
    rest = pn.Column(sizing_mode="stretch_width", css_classes=["rest"])
    page = pmui.Page(
        title="gpexplorer",
        header=[pmui.Row(pn.layout.HSpacer(), ways, guide, keys, sizing_mode="stretch_width")],
        sidebar=[drawer, side] if show_controls else [],
        main=[
            pn.Column(ButtonNames(), *explorer.top, rest, *listeners, sizing_mode="stretch_width", stylesheets=[MAIN])
        ],
        sidebar_width=SIDEBAR,
        theme_config=THEME,
        template=OWN_PAGE,
        raw_css=[PAGE],
        stylesheets=[PAGE_TOOLTIP],
        busy_indicator=None,
        dark_theme=bool(dark),
    )
    _ignore_busy_flag(page)
    page.param.watch(once_settled(lambda: explorer.set_dark(bool(page.dark_theme)), SETTLED), "dark_theme")
    explorer.set_dark(bool(page.dark_theme))
    explorer.settle()
    later = [(rest, explorer.rest), *([(side, explorer.controls)] if show_controls else [])]
    complete = _prepared(explorer, later) if BUILT_AHEAD.get() else partial(_complete, explorer, later)
    pn.state.onload(lambda: arrivals.complete(pn.state.curdoc, complete))
    at_end(end)
    if (document := served_document()) is not None:
        follow_connection(document, explorer.pause)
    return page


def _complete(explorer: Any, later: list[tuple[pn.Column, list[Any]]]) -> None:
    """Add what can wait until the first picture is on the screen: tabs, controls, and following the run."""
    with together():
        for place, parts in later:
            place[:] = parts
        explorer.start()


def _prepared(explorer: Any, later: list[tuple[pn.Column, list[Any]]]) -> Callable[[], None]:
    """Build what can wait in advance; the function that is returned sends it."""
    for place, parts in later:
        place[:] = parts
    end = time.monotonic() + PICTURES_WAIT
    while len(explorer.pictures.drawn()) < len(explorer.pictures.visible) and time.monotonic() < end:
        explorer.update(wait=PICTURES_WAIT)
    withheld = Withheld(pn.state.curdoc, [*(place for place, _ in later), *explorer.pictures.later_places])

    def complete() -> None:
        with together():
            withheld.show()
            explorer.start()
            explorer.pulse.send()

    return complete


def _ignore_busy_flag(page: pmui.Page) -> None:
    """Remove the page's watcher of Panel's process-wide busy flag.

    Each change of the flag walks through every model of the page, which takes about 30 ms twice per event, and the
    watcher would keep a closed page alive.
    """
    for watcher in pn.state.param.watchers.get("busy", {}).get("value", []):
        if getattr(getattr(watcher.fn, "__self__", None), "self", None) is page:
            pn.state.param.unwatch(watcher)
