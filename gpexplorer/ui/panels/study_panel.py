"""What the panels for the run or the rows of a session have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import GPExplorerError
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..text import sentence, text
from ..widgets import WithLayout, line_of_text


class StudyPanel(WithLayout):
    """A panel for the run or the rows that a session has open.

    A subclass builds its controls, assigns `_layout`, and implements `update`. One that computes has a thread, which
    it begins with `start`.

    Parameters
    ----------
    session : Session
        The session.

    Attributes
    ----------
    note : HTML
        A sentence: what is going on, what came out, or what is wrong.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._worker: Any = None
        self._layout: Any = None
        self._missing, self._note_before = "", ""
        self.note = line_of_text()

    def say(self, message: str, most: int = 400) -> None:
        """Show this sentence, which need not be escaped."""
        self.note.object = text(message, most)

    def require(self, missing: str, *starts: Any, is_said: bool = True) -> None:
        """Disable what begins a study while something is missing; called at each update.

        Parameters
        ----------
        missing : str
            What is missing, as a sentence; empty where nothing is.
        *starts : Widget
            Buttons and fields that begin the study.
        is_said : bool, default True
            Whether the sentence takes the place of the note, which comes back afterwards.
        """
        if missing == self._missing:
            return
        before, self._missing = self._missing, missing
        for start in starts:
            start.disabled = bool(missing)
        if is_said and not before:
            self._note_before = str(self.note.object)
        if is_said and missing:
            self.say(missing)
        elif is_said and self.note.object == text(before):
            self.note.object = self._note_before

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

    def pause(self) -> None:
        """Stop all work once no browser shows the page. A person can continue it."""
        self.close()

    def close(self) -> None:
        """Stop all work, because the session has ended or the study is discarded."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
