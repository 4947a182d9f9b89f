"""The base class of the panels below the pictures: a sentence, figures, and perhaps a thread that computes a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import panel as pn

from ...errors import GPExplorerError
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..text import sentence, text
from ..widgets import line_of_text


class Themed(Protocol):
    """A figure, or anything else that has a light and a dark theme."""

    def set_theme(self, theme: str) -> None:
        """Use the colours of "light" or "dark"."""


class StudyPanel(pn.viewable.Viewer):
    """A panel for the run or the rows that a session has open.

    A subclass builds its controls, assigns `_layout`, and implements `update`. One that computes has a thread, which
    it begins with `start`.

    Parameters
    ----------
    session
        The session.
    **params
        Parameters of `panel.viewable.Viewer`.

    Attributes
    ----------
    note
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
        title
            What it is, with its article, such as "a race".
        worker
            Checks what a person asked for, calls `Session.begin_study`, and returns the thread.
        counted
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

    def __panel__(self) -> Any:
        return self._layout
