"""The panel that answers "What should I use?": it tries methods on held-out rows within a time, and says which one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...data import Split
from ...runs.setting_checks import number
from ...views.runs.comparison_charts import CandidateScores
from ..pictures.chart import Chart, LegendLine
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..shared_limits import Turns
from ..text import sentence, span, text
from ..widgets import WIDE, button, column, download, line_of_text, row, whole
from .study_panel import StudyPanel

if TYPE_CHECKING:
    from ...recommendation import Progress, Recommendation

LEAST_SECONDS, MOST_SECONDS = 2, 3600
HEIGHT, LINE = 120, 22  # pixels of the picture, and of each model in it
SHARE_OF_MEMORY = 0.5  # of what is free, for one candidate


class RecommendWorker(BackgroundWorker):
    """The thread of a recommendation.

    Parameters
    ----------
    read : callable
        Reads the rows; their test rows are not used.
    seconds : float
        The time for all of it.
    memory : float
        The most bytes that one candidate may hold.
    seed : int
        Seed of the held-out rows and of every method.
    turns : Turns
        The cores that the sessions of a server share.
    """

    def __init__(self, read: Callable[[], Split], seconds: float, memory: float, seed: int, turns: Turns) -> None:
        super().__init__("gpexplorer-recommend")
        self._read, self._seconds, self._memory, self._seed, self._turns = read, seconds, memory, seed, turns
        self._stopped = threading.Event()
        self.progress: Progress | None = None
        self.answer: Recommendation | None = None
        self.error = ""
        self.over = False
        self.start()

    def close(self) -> None:
        """Ask for the best answer so far; the step that is being computed ends first."""
        self._stopped.set()

    def work(self) -> None:
        """Find the recommendation."""
        from ...recommendation import recommend  # with scikit-learn, which takes a second to import

        try:
            rows = self._read()
            with self._turns.turn():
                self.answer = recommend(
                    rows,
                    seconds=self._seconds,
                    memory=self._memory,
                    seed=self._seed,
                    on_progress=self._report,
                    should_stop=self._stopped.is_set,
                )
        except Exception as error:
            self.error = sentence(error, "a recommendation was being computed")
        self.over = True

    def _report(self, progress: Progress) -> None:
        self.progress = progress


class RecommendPanel(StudyPanel):
    """The question, the time for it, the answer, and a button that uses it, for the rows open in `session`.

    Attributes
    ----------
    begin : Button
        The button that shows the panel; it stands beside the data.
    """

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(session, **params)
        self._answer: Recommendation | None = None
        self._asked_for: Any = None  # the rows of the answer
        hint = "Wall-clock time for all of it. A step that has begun is not interrupted."
        self.seconds = whole("Seconds", 60, LEAST_SECONDS, MOST_SECONDS, 130, size="medium", description=hint)
        hint = "try the methods on held-out rows for a minute, and say which one to use."
        self.begin = button("What should I use?", "help", self.open, hint, **WIDE, margin=(3, 10))
        self.go = button("Find out", "search", self.ask, variant="contained")
        self.hide = button("Close", "", self.shut, variant="text")
        self.cancel = button("Cancel", "stop", self.pause, disabled=True)
        self.adopt = button("Use it", "check", self.use, color="primary", visible=False)
        self.files = pn.Row(margin=0)  # the button that saves the model, once there is one
        self.bar = pmui.LinearProgress(value=0, variant="determinate", **WIDE, margin=(2, 12))
        self.note.object = "Every method is tried on rows that it has not seen; test rows are not used."
        self.words = line_of_text(margin=(6, 12))
        self.legend, self.chart = LegendLine(self._toggle, margin=(6, 12), **WIDE), Chart()
        self.picture = column(self.legend, self.chart, margin=0, visible=False)
        head = row(self.seconds, self.go, self.cancel, self.adopt, self.files, self.hide, gap="4px")
        self._layout = column(head, self.bar, self.note, self.words, self.picture, visible=False, margin=0)

    @property
    def figures(self) -> list[Chart]:
        """The chart of the candidates."""
        return [self.chart]

    def open(self) -> None:
        """Show the panel."""
        self._layout.visible = True

    def shut(self) -> None:
        """Hide the panel, and cancel what is being computed."""
        self.pause()
        self._layout.visible = False

    def ask(self) -> None:
        """Begin a recommendation for the open rows."""
        if not self.start("a recommendation", self._recommending):
            return
        self._answer = None
        self.words.object, self.picture.visible, self.adopt.visible = "", False, False
        self.files.clear()
        self.go.disabled, self.cancel.disabled = True, False
        self.say("Reading the rows …")

    def _recommending(self) -> RecommendWorker:
        session = self._session
        spec, read = session.spec, session.read
        seconds = number("Seconds", self.seconds.value, whole=False, low=LEAST_SECONDS, high=MOST_SECONDS)
        session.begin_study("a recommendation")
        memory = SHARE_OF_MEMORY * max(session.shares.limits.memory - session.shares.reserved, 1.0)
        rows = (lambda: read(spec.split)) if read else (lambda: data_sets.load(spec.data, split=spec.split))
        self._asked_for = (spec.data, spec.split)
        return RecommendWorker(rows, seconds, memory, spec.seed, session.shares.turns)

    def use(self) -> None:
        """Set the page to the answer, on the rows that it was found for."""
        answer, session = self._answer, self._session
        if answer is None:
            return
        if (session.spec.data, session.spec.split) != self._asked_for:
            self.say("Other rows are open now: ask again for these.")
            return
        alone = " It is the chosen model alone; the average is in the file of Save the model." if answer.average else ""
        self.say(
            "The answer is open and begins at step 0, so that you can watch it learn. Press Play, and predict new rows "
            f"when the run has ended.{alone}"
        )
        chosen = ("method", "settings", "kernel", "seed", "target_transform", "input_transform")
        session.adopt(replace(session.spec, **{name: getattr(answer.spec, name) for name in chosen}))

    def update(self) -> None:
        """Show how far the recommendation is, or its answer."""
        worker = self._worker
        if worker is None:
            return
        progress = worker.progress
        if worker.over:
            self._worker = None
            self.go.disabled, self.cancel.disabled, self.bar.value = False, True, 0
            self._show(worker)
        elif progress is not None:
            self.bar.value = round(100 * progress.fraction)
            stopping = "Cancelling after the step under way. " if worker._stopped.is_set() else ""
            self.say(f"{stopping}{progress.fraction:.0%}, {span(progress.seconds_left)} to go: {progress.sentence}")

    def set_theme(self, theme: str) -> None:
        """Draw the figure for the theme "light" or "dark"."""
        super().set_theme(theme)
        self.legend.fill(self.chart.legend)

    def pause(self) -> None:
        """Cancel: the best answer so far is shown after the step under way."""
        if self._worker is not None:
            self._worker.close()

    def _show(self, worker: RecommendWorker) -> None:
        answer = worker.answer
        if answer is None:
            self.say(worker.error)
            return
        self._answer = answer
        cancelled = " It was cancelled, so this is the best answer so far." if worker._stopped.is_set() else ""
        self.say(answer.sentences[-1] + cancelled)
        headline, *lines = answer.sentences[:-1]
        self.words.object = f"<h2>{text(headline)}</h2>" + "".join(f"<p>{text(line)}</p>" for line in lines)
        candidates = CandidateScores(answer.table)
        self.chart.draw(candidates.data(), candidates.plot, HEIGHT + LINE * len(candidates.table), legend=False)
        self.legend.fill(self.chart.legend)
        self.picture.visible = self.adopt.visible = True
        hint = "a file that predicts new rows: python -m gpexplorer predict FILE ROWS."
        save = download("model.safetensors", lambda: _saved_model(answer), "Save the model", hint, margin=(6, 8))
        self.files[:] = [save]

    def _toggle(self, entry: int) -> None:
        """Hide the models of an entry of the legend, or show them again."""
        self.chart.toggle(entry)
        self.legend.fill(self.chart.legend)


def _saved_model(answer: Recommendation) -> bytes:
    """The file of the model of an answer, which is an average of several if that is better."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        answer.posterior.save(path)
        return path.read_bytes()
