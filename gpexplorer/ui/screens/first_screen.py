"""The first screen: ten inducing points that swap, and how far they are from the exact model.

The lesson plays in the browser without a message. A row that is clicked, a point that is dragged, and another number of
points ask the server for another lesson, which takes a fifth of a second.

Apart because it is a screen of its own, with the runs of one lesson.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import param

from ...errors import GPExplorerError
from ...runs.run import Run
from ...views.screens.lesson_page import PLAYER, STYLE, Lesson, document_json, lesson_of, lesson_spec
from ..styles import beside
from ..text import record
from .screen import Screen

POINTS = range(4, 21)
MOST_UNDONE = 50
_one_at_a_time = threading.Lock()  # lessons are computed by one thread, so that a class leaves a core to the server


class FirstScreen(Screen):
    """The first screen of one session."""

    lesson = param.Dict(doc="What is shown: a `Lesson`.")
    figures = param.Dict(doc="The Bokeh document of the figures, which belongs to the browser alone.")

    _esm = f"{PLAYER}\n{beside(__file__, 'first_screen.js')}"
    _stylesheets: ClassVar[list[str]] = [STYLE, ":host { width: 100%; }"]

    def __init__(self, **params: Any) -> None:
        run, lesson = _begun(10)
        self._runs: list[Run] = [run]  # before each forced swap, and the one that is shown
        super().__init__(lesson=dict(lesson), figures=_figures(), **params)

    async def answer(self, request: Mapping[str, Any]) -> None:
        """Show the lesson that is asked for, or say why it cannot be shown."""
        try:
            self.lesson = dict(await asyncio.to_thread(self._answered, request))
            self.notice = ""
        except GPExplorerError as error:
            self.notice = str(error)
        except Exception as error:  # an unknown request, or a fault of ours
            self.notice = f"That swap could not be computed; the log has the reason under {record(error, 'a lesson')}."

    def end(self) -> None:
        """Free the runs of forced swaps once no browser shows the page."""
        del self._runs[:-1]

    def _answered(self, request: Mapping[str, Any]) -> Lesson:
        with _one_at_a_time:
            if request["kind"] == "points":
                run, lesson = _begun(min(max(int(request["m"]), POINTS[0]), POINTS[-1]))
                self._runs = [run]
                return lesson
            if request["kind"] == "undo":
                at = len(self._runs[-1].trace) - 1
                if len(self._runs) > 1:
                    at = self._forced_at(self._runs.pop())
                return lesson_of(self._runs[-1], at)
            run, at = self._runs[-1], int(request["at"])
            state = run.trace[at].step.state
            step = run.method.force_swap(run.problem, state, int(request["row"]), int(request["slot"]))  # type: ignore[attr-defined]
            forced = run.fork(at, step)
            forced.finish()
            self._runs = [*self._runs[-MOST_UNDONE:], forced]
            return lesson_of(forced, at + 1)

    def _forced_at(self, forced: Run) -> int:
        """The frame from which this run was forced: the last record that it shares with the run before."""
        shared = [a.step is b.step for a, b in zip(forced.trace, self._runs[-1].trace, strict=False)]
        return max(0, sum(shared) - 1)


@cache
def _begun(points: int) -> tuple[Run, Lesson]:
    """The run and the lesson with this many points, as every page begins with them."""
    run = lesson_spec(points).open()
    run.finish()
    return run, lesson_of(run)


@cache
def _figures() -> dict[str, Any]:
    """The figures with which every page begins."""
    return document_json(_begun(10)[1])
