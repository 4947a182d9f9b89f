"""The panel that answers "What should I use?": it tries methods on held-out rows within a time, and says which one."""

from __future__ import annotations

import io
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
from ...errors import GPExplorerError
from ...runs.setting_checks import number
from ...views.drawing.live import Live
from ...views.runs.candidate_scores import CandidateScores
from ..pictures.legend_line import LegendLine
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..shared_limits import Turns
from ..styles import TEXT
from ..text import named, sentence, span, text

if TYPE_CHECKING:
    from ...recommendation import Progress, Recommendation

LEAST_SECONDS, MOST_SECONDS = 2, 3600
HEIGHT, LINE = 120, 22  # pixels of the picture, and of each model in it
SHARE_OF_MEMORY = 0.5  # of what is free, for one candidate


class RecommendWorker(BackgroundWorker):
    """The thread of a recommendation.

    Parameters
    ----------
    read : reads the rows; their test rows are not used.
    seconds : the time for all of it.
    memory : the most bytes that one candidate may hold.
    seed : seed of the held-out rows and of every method.
    turns : the cores that the sessions of a server share.
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


class RecommendPanel(pn.viewable.Viewer):
    """The question, the time for it, the answer, and a button that uses it, for the rows open in `session`.

    Attributes
    ----------
    begin
        The button that shows the panel; it stands beside the data.
    """

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(**params)
        self._session, self._theme = session, "light"
        self._worker: RecommendWorker | None = None
        self._answer: Recommendation | None = None
        self._asked_for: Any = None  # the rows of the answer
        self._live: Live | None = None
        wide = {"margin": (6, 10)}
        self.seconds = pmui.IntInput(
            label="Seconds", value=60, start=LEAST_SECONDS, end=MOST_SECONDS, width=130,
            description="Wall-clock time for all of it. A step that has begun is not interrupted.", **wide,
        )  # fmt: skip
        self.begin = pmui.Button(
            **named("What should I use?", "try the methods on held-out rows for a minute, and say which one to use."),
            icon="help", variant="outlined", on_click=lambda _: self.open(),
            sizing_mode="stretch_width", margin=(3, 10),
        )  # fmt: skip
        self.go = pmui.Button(
            label="Find out", icon="search", color="primary", variant="contained", on_click=lambda _: self.ask(), **wide
        )
        self.hide = pmui.Button(label="Close", variant="text", on_click=lambda _: self.shut(), **wide)
        self.cancel = pmui.Button(
            label="Cancel", icon="stop", variant="outlined", on_click=lambda _: self.pause(), disabled=True, **wide
        )
        self.adopt = pmui.Button(
            label="Use it", icon="check", color="primary", variant="outlined", on_click=lambda _: self.use(),
            visible=False, **wide,
        )  # fmt: skip
        self.files = pn.Row(margin=0)  # the button that saves the model, once there is one
        self.bar = pmui.LinearProgress(value=0, variant="determinate", sizing_mode="stretch_width", margin=(2, 12))
        self.state = pn.pane.HTML(
            "Every method is tried on rows that it has not seen; test rows are not used.",
            margin=(0, 12), sizing_mode="stretch_width", stylesheets=[TEXT],
        )  # fmt: skip
        self.words = pn.pane.HTML("", margin=(6, 12), sizing_mode="stretch_width", stylesheets=[TEXT])
        self.legend = LegendLine(self._toggle, margin=(6, 12), sizing_mode="stretch_width")
        self.picture = pn.Column(sizing_mode="stretch_width", margin=0, visible=False)
        parts = [self.seconds, self.go, self.cancel, self.adopt, self.files, self.hide]
        head = pmui.FlexBox(*parts, align_items="center", gap="4px")
        self._layout = pn.Column(
            head, self.bar, self.state, self.words, self.picture, sizing_mode="stretch_width", visible=False, margin=0
        )

    def open(self) -> None:
        """Show the panel."""
        self._layout.visible = True

    def shut(self) -> None:
        """Hide the panel, and cancel what is being computed."""
        self.pause()
        self._layout.visible = False

    def ask(self) -> None:
        """Begin a recommendation for the open rows."""
        session = self._session
        spec, read = session.spec, session.read
        try:
            seconds = number("Seconds", self.seconds.value, whole=False, low=LEAST_SECONDS, high=MOST_SECONDS)
            session.begin_study("a recommendation")
        except GPExplorerError as error:
            self.state.object = text(str(error))
            return
        limits = session.shares.limits
        memory = SHARE_OF_MEMORY * max(limits.memory - session.shares.reserved, 1.0)
        rows = (lambda: read(spec.split)) if read else (lambda: data_sets.load(spec.data, split=spec.split))
        self._asked_for = (spec.data, spec.split)
        self._worker = RecommendWorker(rows, seconds, memory, spec.seed, session.shares.turns)
        session.add_study("the recommendation", self._worker)
        self._answer = None
        self.words.object, self.picture.visible, self.adopt.visible = "", False, False
        self.files.clear()
        self.go.disabled, self.cancel.disabled = True, False
        self.state.object = "Reading the rows …"

    def use(self) -> None:
        """Set the page to the answer, on the rows that it was found for."""
        answer, session = self._answer, self._session
        if answer is None:
            return
        if (session.spec.data, session.spec.split) != self._asked_for:
            self.state.object = "Other rows are open now: ask again for these."
            return
        alone = " It is the chosen model alone; the average is in the file of Save the model." if answer.average else ""
        self.state.object = (
            "The answer is open and begins at step 0, so that you can watch it learn. Press Play, and predict new rows "
            f"when the run has ended.{alone}"
        )
        spec = answer.spec
        session.adopt(
            replace(
                session.spec, method=spec.method, settings=dict(spec.settings), kernel=spec.kernel, seed=spec.seed,
                target_transform=spec.target_transform,
            )
        )  # fmt: skip

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
            message = f"{stopping}{progress.fraction:.0%}, {span(progress.seconds_left)} to go: {progress.sentence}"
            if message != self.state.object:
                self.state.object = text(message)

    def set_theme(self, theme: str) -> None:
        """Draw the figure for the theme "light" or "dark"."""
        self._theme = theme
        if self._live is not None:
            self._live.set_theme(theme)
            self.legend.fill(self._live.legend)

    def pause(self) -> None:
        """Cancel: the best answer so far is shown after the step under way."""
        if self._worker is not None:
            self._worker.close()

    def close(self) -> None:
        """Stop, because the session has ended."""
        self.pause()
        self._worker = None

    def _show(self, worker: RecommendWorker) -> None:
        answer = worker.answer
        if answer is None:
            self.state.object = text(worker.error)
            return
        self._answer = answer
        cancelled = " It was cancelled, so this is the best answer so far." if worker._stopped.is_set() else ""
        self.state.object = text(answer.sentences[-1] + cancelled)
        headline, *lines = answer.sentences[:-1]
        self.words.object = f"<h2>{text(headline)}</h2>" + "".join(f"<p>{text(line)}</p>" for line in lines)
        self._draw(answer)
        self.adopt.visible = True
        self.files[:] = [
            pmui.FileDownload(
                callback=lambda: _saved_model(answer), filename="model.safetensors",
                **named("Save the model", "a file that predicts new rows: python -m gpexplorer predict FILE ROWS."),
                variant="outlined", margin=(6, 10),
            )
        ]  # fmt: skip

    def _draw(self, answer: Recommendation) -> None:
        view = CandidateScores(answer.table)
        self._live = Live(view, view.data(), self._theme)
        height = HEIGHT + LINE * len(view.table)
        self._live.figure.update(sizing_mode="stretch_width", height=height, output_backend="canvas")
        self._live.leave_words_to_page()
        self.legend.fill(self._live.legend)
        self.picture[:] = [self.legend, pn.pane.Bokeh(self._live.figure, sizing_mode="stretch_width", height=height)]
        self.picture.visible = True

    def _toggle(self, entry: int) -> None:
        """Hide the models of an entry of the legend, or show them again."""
        if self._live is not None:
            self._live.toggle(entry)
            self.legend.fill(self._live.legend)

    def __panel__(self) -> Any:
        return self._layout


def _saved_model(answer: Recommendation) -> io.BytesIO:
    """The file of the model of an answer, which is an average of several if that is better."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        answer.posterior.save(path)
        return io.BytesIO(path.read_bytes())
