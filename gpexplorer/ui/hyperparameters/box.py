"""The hyperparameters of the open run in the sidebar: a fold under the kernel, closed at first.

It is apart because a notebook cell shows the sliders without a session.
"""

from __future__ import annotations

from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..inputs.method_settings import SLIM
from ..playback.open_run import Frame
from ..session import Session
from ..widgets import WIDE, column, line_of_text
from .sliders import Sliders

HINT = (
    '<p class="hint">Move one: the run pauses, every picture shows what it would do, and learning goes on from there. '
    "Undo (U) takes it back. A lock keeps a value fixed.</p>"
)
OWN_FEATURES = '<p class="hint">This method learns features of its own in place of the kernel.</p>'


class HyperparameterBox(pn.viewable.Viewer):
    """Sliders and locks of the hyperparameters at the step shown; while the fold is closed, nothing is computed.

    Parameters
    ----------
    session : Session
        Whose run is shown, and which carries out what a person sets.
    **params : object
        Parameters of `panel.viewable.Viewer`.
    """

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(**params)
        self._session, self._opening = session, -1
        self.sliders = Sliders(self._set_value, self._set_fixed)
        self.words = line_of_text(HINT)
        content = column(self.words, self.sliders, margin=0)
        # It is built with the page: a content that was sent when the fold opened stayed away on a busy machine.
        look = {"title_variant": "subtitle2", "margin": (0, 10), "sx": SLIM}
        self.fold = pmui.Accordion(("Hyperparameters", content), active=[], **WIDE, **look)
        self.fold.param.watch(lambda event: session.player.show_hyperparameters(bool(event.new)), "active")

    def update(self, frame: Frame) -> None:
        """Show the values of the step shown."""
        if frame.run is None or frame.hyperparameters is None:
            return
        is_new, self._opening = frame.opening != self._opening, frame.opening
        own = not len(frame.hyperparameters)
        self.words.object = OWN_FEATURES if own else HINT
        self.sliders.adopt(frame.hyperparameters, is_new)

    def _set_value(self, name: str, value: float) -> None:
        tied = next(row["tied"] for row in self.sliders.rows if row["name"] == name)
        self._session.set_hyperparameters(dict.fromkeys([name, *(tied.split(", ") if tied else [])], value))

    def _set_fixed(self, name: str, fixed: bool) -> None:
        rows = {row["name"]: row for row in self.sliders.rows}
        tied = rows[name]["tied"]
        together = [name, *(tied.split(", ") if tied else [])]  # one number, fixed or learned as a whole
        kept = [each for each in rows if (rows[each]["fixed"] and each not in together) or (fixed and each == name)]
        self._session.fix_hyperparameters({each: rows[each]["value"] for each in kept})

    def __panel__(self) -> Any:
        return self.fold
