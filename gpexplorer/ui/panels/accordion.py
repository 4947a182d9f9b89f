"""The accordion of panels below the pictures. Each panel is built when it is first opened, because few are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..browser.batch import together
from ..text import sentence, text
from .study_panel import StudyPanel


class PanelAccordion(pn.viewable.Viewer):
    """An accordion of panels.

    Parameters
    ----------
    builders : for each title, a function that builds the panel.
    """

    def __init__(self, builders: Mapping[str, Callable[[], StudyPanel]], **params: Any) -> None:
        super().__init__(**params)
        self._builders, self._theme = list(builders.values()), "light"
        self.panels: dict[int, StudyPanel] = {}
        self._places = [pn.Column(sizing_mode="stretch_width", margin=0) for _ in builders]
        style = {"title_variant": "subtitle2", "sizing_mode": "stretch_width", "margin": (8, 10)}
        self._layout = pmui.Accordion(*zip(builders, self._places, strict=True), **style)
        self._layout.param.watch(lambda event: self._open(event.new), "active")

    @property
    def visible(self) -> bool:
        """Whether the accordion is shown on the page."""
        return bool(self._layout.visible)

    @visible.setter
    def visible(self, shown: bool) -> None:
        self._layout.visible = shown

    def update(self) -> None:
        """Update every panel that has been built."""
        for panel in self.panels.values():
            panel.update()

    def set_theme(self, theme: str) -> None:
        """Set the theme of the panels that have been built and of those built later."""
        self._theme = theme
        for panel in self.panels.values():
            panel.set_theme(theme)

    def pause(self) -> None:
        """Pause the work of all panels."""
        for panel in self.panels.values():
            panel.pause()

    def close(self) -> None:
        """Stop the work of all panels."""
        for panel in self.panels.values():
            panel.close()

    def _open(self, active: list[int]) -> None:
        with together():
            for index in active:
                if index not in self.panels:
                    self._build(index)

    def _build(self, index: int) -> None:
        try:
            panel = self._builders[index]()
            panel.set_theme(self._theme)
            panel.update()
        except Exception as error:
            self._places[index][:] = [pn.pane.HTML(text(sentence(error, "a panel was being opened")))]
            return
        self.panels[index] = panel
        self._places[index][:] = [panel]

    def __panel__(self) -> Any:
        return self._layout
