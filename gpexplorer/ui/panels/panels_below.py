"""The accordion of panels under the pictures, in their order.

Apart because the explorer is long and knows none of them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..browser.callbacks import together
from ..session import Session
from ..text import sentence, text
from ..widgets import WIDE, WithLayout, column
from .compare_panel import ComparePanel
from .predict_panel import PredictPanel
from .race_panel import RacePanel
from .scaling_panel import ScalingPanel
from .share_panel import SharePanel
from .study_panel import StudyPanel


class PanelsBelow(WithLayout):
    """The panels of a session, none of which is built before it is opened.

    Parameters
    ----------
    session : Session
        The session.
    export : callable
        Returns the pictures on the screen as HTML, with a note.
    options : callable
        Returns the options of these pictures.

    Attributes
    ----------
    titles : list of str
        Their titles.
    panels : dict of int to StudyPanel
        Those that have been built, by their number.
    """

    def __init__(
        self, session: Session, export: Callable[[str], str], options: Callable[[], dict[str, dict[str, Any]]]
    ) -> None:
        builders: dict[str, Callable[[], StudyPanel]] = {
            "Compare: runs you keep, sweeps, the front of time and error": lambda: ComparePanel(session),
            "Race: several methods on these rows, in turns": lambda: RacePanel(session),
            "Predict: new rows by the run on the screen": lambda: PredictPanel(session),
            "Scaling: what would more rows cost?": lambda: ScalingPanel(session),
            "Link, code and files": lambda: SharePanel(session, export, options),
        }
        self._session, self._builders = session, list(builders.values())
        self.titles = list(builders)
        self.panels: dict[int, StudyPanel] = {}
        self._places = [column(margin=0) for _ in builders]
        style = {"title_variant": "subtitle2", **WIDE, "margin": (8, 10)}
        self._layout = pmui.Accordion(*zip(builders, self._places, strict=True), **style)
        self._layout.param.watch(lambda event: self._open(event.new), "active")

    @property
    def visible(self) -> bool:
        """Whether the accordion is shown on the page."""
        return bool(self._layout.visible)

    @visible.setter
    def visible(self, shown: bool) -> None:
        self._layout.visible = shown

    def open(self, index: int) -> None:
        """Open one panel, as a person does, and close the others."""
        if 0 <= index < len(self.titles):
            self._layout.active = [index]

    def _open(self, active: list[int]) -> None:
        with together():
            for index in active:
                if index not in self.panels:
                    self._build(index)

    def _build(self, index: int) -> None:
        try:
            panel = self._builders[index]()
            panel.update()
        except Exception as error:
            self._places[index][:] = [pn.pane.HTML(text(sentence(error, "a panel was being opened")))]
            return
        self.panels[index] = panel
        self._session.panels.append(panel)
        self._places[index][:] = [panel]
