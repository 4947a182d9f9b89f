"""What the pages beside the laboratory share: one component that plays in the browser and asks its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import panel as pn
import param
from panel.custom import JSComponent

from ..address import GALLERY, LABORATORY, SIDE_BY_SIDE
from ..browser.callbacks import at_end, served_document
from ..connections import Arrivals, follow_connection

LINKS = {
    label: f"?page={page}"
    for label, page in (("Stories", GALLERY), ("Side by side", SIDE_BY_SIDE), ("Laboratory", LABORATORY))
}


class Screen(JSComponent):
    """The only component of a page."""

    notice = param.String(doc="A sentence that takes the place of the headline.")
    links = param.Dict(LINKS, doc="Labels and addresses of the other pages.")

    def __init__(self, **params: Any) -> None:
        super().__init__(sizing_mode="stretch_width", **params)

    async def answer(self, request: Mapping[str, Any]) -> None:
        """Do what the browser asks for; it is not to be trusted, and a page that has nothing to do ignores it."""

    async def begin(self) -> None:
        """Called once the page is on the screen."""

    def end(self) -> None:
        """Called once no browser shows the page."""

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, Mapping):
            pn.state.execute(partial(self.answer, dict(msg)), schedule=True)


def screen_page(screen: Screen, on_close: Callable[[], None] | None = None, arrivals: Arrivals | None = None) -> Screen:
    """Return a screen as the page of the present session.

    Parameters
    ----------
    screen : Screen
        What is shown.
    on_close : callable, optional
        Called when the page was closed.
    arrivals : Arrivals, optional
        The pages of a server that are on their way.
    """
    document = served_document()
    if document is not None:
        document.title = "gpexplorer"
        pn.state.onload(lambda: (arrivals or Arrivals()).complete(document, lambda: None))
        pn.state.onload(screen.begin)
        follow_connection(document, screen.end)
        if on_close is not None:
            at_end(on_close)
    return screen
