"""The panels below the pictures: their base class, and the accordion that builds each when it is first opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import panel as pn
import panel_material_ui as pmui

from ...errors import GPExplorerError
from ..browser.callbacks import together
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..text import sentence, text
from ..widgets import WithLayout, line_of_text


class Themed(Protocol):
    """A figure, or anything else that has a light and a dark theme."""

    def set_theme(self, theme: str) -> None:
        """Use the colours of "light" or "dark"."""


class StudyPanel(WithLayout):
    """A panel for the run or the rows that a session has open.

    A subclass builds its controls, assigns `_layout`, and implements `update`. One that computes has a thread, which
    it begins with `start`.

    Parameters
    ----------
    session : Session
        The session.
    **params : object
        Parameters of `panel.viewable.Viewer`.

    Attributes
    ----------
    note : HTML
        A sentence: what is going on, what came out, or what is wrong.
    """

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(**params)
        self._session, self._theme = session, "light"
        self._worker: Any = None
        self._layout: Any = None
        self.note = line_of_text()

    @property
    def figures(self) -> Iterable[Themed]:
        """What follows the theme of the page."""
        return ()

    def say(self, message: str, most: int = 400) -> None:
        """Show this sentence, which need not be escaped."""
        words = text(message, most)
        if self.note.object != words:
            self.note.object = words

    def start(self, title: str, worker: Callable[[], BackgroundWorker], *, counted: bool = True) -> bool:
        """Begin a study, or say why it cannot begin.

        Parameters
        ----------
        title : str
            What it is, with its article, such as "a race".
        worker : callable
            Checks what a person asked for, calls `Session.begin_study`, and returns the thread.
        counted : bool, default True
            Whether no other study of the page may begin while the thread lives.

        Returns
        -------
        bool
            Whether it began.
        """
        try:
            self._worker = worker()
        except (GPExplorerError, TypeError) as error:
            self.say(sentence(error, f"{title} was being prepared"), 600)
            return False
        if counted:
            self._session.add_study(f"the {title.partition(' ')[2]}", self._worker)
        return True

    def update(self) -> None:
        """Show what has changed; called about ten times per second."""

    def set_theme(self, theme: str) -> None:
        """Draw the figures for the theme "light" or "dark"."""
        self._theme = theme
        for figure in self.figures:
            figure.set_theme(theme)

    def pause(self) -> None:
        """Stop all work once no browser shows the page. A person can continue it."""
        self.close()

    def close(self) -> None:
        """Stop all work, because the session has ended or the study is discarded."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


class PanelAccordion(WithLayout):
    """An accordion of panels.

    Parameters
    ----------
    builders : mapping of str to callable
        For each title, a function that builds the panel.
    """

    def __init__(self, builders: Mapping[str, Callable[[], StudyPanel]], **params: Any) -> None:
        super().__init__(**params)
        self._builders, self._theme = list(builders.values()), "light"
        self.titles = list(builders)
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

    def open(self, index: int) -> None:
        """Open one panel, as a person does, and close the others."""
        if 0 <= index < len(self.titles):
            self._layout.active = [index]

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
