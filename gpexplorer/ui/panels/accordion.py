"""The panels under a run, each built when it is first unfolded: most people never open most of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import panel as pn
import panel_material_ui as pmui

from ..browser.batch import together
from ..text.error_sentences import sentence
from ..text.escape import text


class Folded(Protocol):
    """What a panel answers to."""

    def update(self) -> None:
        """Show what is new; called some ten times a second."""

    def set_theme(self, theme: str) -> None:
        """Light or dark."""

    def close(self) -> None:
        """The session is over."""


class Below(pn.viewable.Viewer):
    """An accordion of panels, by title."""

    def __init__(self, makers: Mapping[str, Callable[[], Folded]], **params: Any) -> None:
        super().__init__(**params)
        self._makers, self._theme = list(makers.values()), "light"
        self.panels: dict[int, Folded] = {}
        self._places = [pn.Column(sizing_mode="stretch_width", margin=0) for _ in makers]
        self._layout = pmui.Accordion(
            *zip(makers, self._places, strict=True),
            title_variant="subtitle2", sizing_mode="stretch_width", margin=(8, 10),
        )  # fmt: skip
        self._layout.param.watch(lambda event: self._unfold(event.new), "active")

    @property
    def visible(self) -> bool:
        """Whether the panels are on the page at all."""
        return bool(self._layout.visible)

    @visible.setter
    def visible(self, shown: bool) -> None:
        self._layout.visible = shown

    def update(self) -> None:
        """Let every panel there is show what is new."""
        for panel in self.panels.values():
            panel.update()

    def set_theme(self, theme: str) -> None:
        """Light or dark, for those there are and those to come."""
        self._theme = theme
        for panel in self.panels.values():
            panel.set_theme(theme)

    def close(self) -> None:
        """End what they are doing."""
        for panel in self.panels.values():
            panel.close()

    def _unfold(self, active: list[int]) -> None:
        with together():
            for index in active:
                if index not in self.panels:
                    self._build(index)

    def _build(self, index: int) -> None:
        try:
            panel = self._makers[index]()
            panel.set_theme(self._theme)
            panel.update()
        except Exception as error:
            self._places[index][:] = [pn.pane.HTML(text(sentence(error, "a panel was being unfolded")))]
            return
        self.panels[index] = panel
        self._places[index][:] = [panel]

    def __panel__(self) -> Any:
        return self._layout
