"""The sidebar of a narrow page: a drawer over the page, which starts closed and has a button to close it."""

from __future__ import annotations

from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from ..styles import DRAWER_BELOW, beside


class Drawer(JSComponent):
    """The heading of the drawer with its button; invisible where the sidebar stands beside the page."""

    below = param.Integer(DRAWER_BELOW, constant=True, doc="Width of the window below which it is a drawer.")
    closings = param.Integer(0, doc="How often it was asked to close.")

    def close(self, _event: Any = None) -> None:
        """Close the drawer over a narrow page; a sidebar beside the page stays."""
        self.closings += 1

    _esm = beside(__file__, "drawer.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "drawer.css")]
