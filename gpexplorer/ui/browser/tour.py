"""A tour of the page: cards that explain one part of the page each, shown once per browser.

A person can leave the tour at any time, and the page works normally while a card is shown. The part of the page that a
card explains is found by its text (a label or a title), also inside shadow roots.
"""

from __future__ import annotations

from typing import Any

import param
from panel.custom import JSComponent

from ..styles import beside

STEPS = (
    ("Play", "Press Play", "A run advances step by step. You can pause, step back, or drag the bar to any earlier "
     "step. The space bar and the arrow keys do the same."),
    ("Data and prediction", "Look at the data", "Orange triangles are the inducing points. With “Move points” you "
     "can drag one and see how the bound changes. With “Edit rows” a click adds a row."),
    ("Swap landscape", "See why", "Each tab answers one question about the method. In the landscape, a click on a "
     "row forces its swap, and Undo restores the previous points."),
    ("Compare: runs you keep", "Compare", "Keep a run, change one setting, and keep the next run. The panels below "
     "race several methods in equal turns and predict the cost for larger data."),
    ("Link, code and files", "Save and share", "Here are a link that opens this screen, a program that "
     "reproduces its numbers, a notebook, and the pictures as files."),
)  # fmt: skip


class Tour(JSComponent):
    """The tour starts by itself in a browser that has not seen it; `begin` starts it again."""

    steps = param.List(default=[list(step) for step in STEPS], doc="Text to find, title and sentence of each card.")
    begun = param.Integer(0, doc="How often the tour was started on request.")
    welcome = param.Boolean(True, doc="Whether the tour starts by itself the first time.")

    _esm = beside(__file__, "tour.js")
    _stylesheets = [beside(__file__, "tour.css")]  # noqa: RUF012 - Panel declares it as a plain list

    def begin(self, _: Any = None) -> None:
        """Start the tour, whether or not this browser has seen it."""
        self.begun += 1
