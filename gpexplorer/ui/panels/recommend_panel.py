"""The panel that answers "What should I use?", or "What predicts price?": it tries methods on held-out rows.

The sentences of the answer have the page's own names in place of options of Python. Beside the answer stand the
questions about the rows, each with a button that asks again with the option it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...data.quoting import about, data_title, what_is_seen
from ...data.splits import ALL
from ...runs import Spec
from ...views.runs.comparison_charts import CandidateScores
from ..browser.callbacks import change
from ..inputs.own_file import FileRows
from ..inputs.presets import what_predicts
from ..pictures.chart import Chart
from ..playback.background_worker import BackgroundWorker
from ..playback.trained_run import TrainedRun
from ..session import Session
from ..shared_limits import Turns
from ..styles import FACTS, SHEET, TEXT
from ..text import cut, named, sentence, span, text, with_minus_signs
from ..widgets import WIDE, button, column, download, hidden_column, line_of_text, number_in, row, select, watch, whole
from .study_panel import StudyPanel

if TYPE_CHECKING:
    from ...recommendation import Progress, Recommendation

LEAST_SECONDS, MOST_SECONDS = 2, 3600
HEIGHT, LINE = 120, 22  # pixels of the picture, and of each model in it
SHARE_OF_MEMORY = 0.5  # of what is free, for one candidate
WHAT_TO_USE = "What should I use?"
BEFORE = "Every method is tried on rows that it has not seen; {}."
TRAINING_ROWS = BEFORE.format("test rows are not used")
ALL_ROWS = BEFORE.format("all rows of the file are used, also those that are test rows of a run")
IN_USE = (
    "The trained answer is open: “Predict” in the bar or its menu predicts new rows, Save the model writes it. It has "
    "no test rows: the error to expect is that of the search, on rows that were held out."
)
BEGIN_HINT = "try the methods on held-out rows for a minute, and say which one to use."
HELD_OUT_HINT = (
    "Later rows say what to expect after the last row, whole groups what to expect of new patients or places, and "
    "single rows what to expect between the given ones. Rows in order of time and panels are recognised."
)
FROM_HINT = "Rows from this date or number on are held out; without it the last rows are, in blocks."
OTHER_ROWS = "Other rows are open now; this answer is about {}: ask again for these."
PREFER_HINT = "What decides between models: means alone, or also how far a row may be from its mean."


class RecommendWorker(BackgroundWorker):
    """The thread of a recommendation.

    Parameters
    ----------
    read : callable
        Returns the rows as `recommend` takes them: all rows of a file; of other data, the test rows are not used.
    turns : Turns
        The cores that the sessions of a server share.
    **options : object
        Options of `recommend`.
    """

    def __init__(self, read: Callable[[], Any], turns: Turns, **options: Any) -> None:
        super().__init__("gpexplorer-recommend")
        self._read, self._turns, self._options = read, turns, options
        self.progress: Progress | None = None
        self.answer: Recommendation | None = None
        self.error = ""
        self.over = False
        self.start()

    def work(self) -> None:
        """Find the recommendation; after `close`, the best one so far."""
        from ...recommendation import recommend  # with scikit-learn, which takes a second to import

        try:
            rows = self._read()
            with self._turns.turn():
                report = partial(setattr, self, "progress")
                options = {"on_progress": report, "should_stop": self.closed.is_set, **self._options}
                self.answer = recommend(rows, **options)
        except Exception as error:
            self.error = sentence(error, "a recommendation was being computed")
        self.over = True


class RecommendPanel(StudyPanel):
    """The question, the time for it, the answer, and a button that uses it, for the rows open in `session`.

    Parameters
    ----------
    session : Session
        The session.
    choose_again : callable, optional
        Opens a person's file again without some inputs, or with columns read as other kinds; returns whether it could.

    Attributes
    ----------
    begin : Button
        The button that shows the panel; it stands beside the data.
    """

    def __init__(self, session: Session, choose_again: Callable[..., bool] = lambda **_: False) -> None:
        super().__init__(session)
        self._answer: Recommendation | None = None
        self._asked_for: Any = None  # the rows of the answer
        self._about = ""  # and their name
        self._choose_again = choose_again
        hint = "Wall-clock time for all of it. A step that has begun is not interrupted."
        self.seconds = whole("Seconds", 60, LEAST_SECONDS, MOST_SECONDS, 115, size="medium", description=hint)
        self.held_out = select("Held-out rows", HELD_OUT, "", 230, size="medium", description=HELD_OUT_HINT)
        look = {"placeholder": "2020-01-31", "width": 130, "max_length": 40, "size": "medium", "margin": (6, 8)}
        self.before = pmui.TextInput(label=FROM, description=FROM_HINT, visible=False, **look)
        watch(lambda: self.before.param.update(visible=self.held_out.value == "time"), self.held_out)
        self.prefer = select("Wanted", PREFERRED, "nlpd", 250, size="medium", description=PREFER_HINT)
        self.begin = button(WHAT_TO_USE, "help", self.open, BEGIN_HINT, **WIDE, margin=(3, 10))
        self.go = button("Find out", "search", self.ask, variant="contained")
        self.hide = button("Close", "", self.shut, variant="text")
        self.cancel = button("Cancel", "stop", self.pause, disabled=True)
        self.adopt = button("Use it", "check", self.use, color="primary", visible=False)
        self.files = pn.Row(margin=0)  # the button that saves the model, once there is one
        self.bar = pmui.LinearProgress(value=0, variant="determinate", **WIDE, margin=(2, 12))
        self.say(_before(session.read))
        self.words, self.reasons = (line_of_text(margin=(6, 12), styles=[TEXT, FACTS]) for _ in range(2))
        self.questions = column(margin=(0, 4))
        self.chart = Chart(session.theme, legend_margin=(6, 12))
        self.picture = column(self.chart, self.reasons, margin=0, visible=False)
        self.details = column(self.words, self.questions, self.picture, margin=0)
        ask = [self.seconds, self.held_out, self.before, self.prefer, self.go, self.cancel, self.hide]
        head = row(*ask, self.adopt, self.files, gap="4px")
        parts = [head, self.bar, self.note, self.details]
        self._layout = hidden_column(*parts, margin=(4, 8), stylesheets=[SHEET])

    def ask_about(self, target: str) -> None:
        """Ask what predicts this column of a person's own rows, or, with "", what to use for other rows."""
        self.begin.param.update(**named(what_predicts(target) if target else WHAT_TO_USE, BEGIN_HINT))

    def open(self) -> None:
        """Show the panel, and the answer if there is one."""
        self._layout.visible = self.details.visible = True

    def shut(self) -> None:
        """Hide the panel, and cancel what is being computed."""
        self.pause()
        self._layout.visible = False

    def ask(self) -> None:
        """Begin a recommendation for the open rows, once the page says so: its thread keeps the processor busy."""
        self.go.disabled = True
        self.say("Reading the rows …")
        change(pn.state.curdoc, self._begin)

    def _begin(self) -> None:
        if not self.start("a recommendation", self._recommending):
            self.go.disabled = False
            return
        self.forget()
        self.cancel.disabled, self.details.visible = False, True
        self.say("Reading the rows …")

    def forget(self) -> None:
        """Remove the answer, because it is asked for again, or other rows are open."""
        self._answer = None
        self.words.object, self.picture.visible, self.adopt.visible = "", False, False
        self.files.clear()
        self.questions.clear()
        self.say(_before(self._session.read))

    def _recommending(self) -> RecommendWorker:
        session = self._session
        spec, read = session.spec, session.read
        seconds = number_in(self.seconds)
        session.begin_study("a recommendation")
        options: dict[str, Any] = {"prefer": self.prefer.value, "folds": self.held_out.value or None}
        if self.held_out.value == "time":
            options["before"] = str(self.before.value or "").strip() or None
        self._asked_for, self._about = self._open_rows, data_title(spec.data)
        return RecommendWorker(
            lambda: _rows(spec, read),
            session.shares.turns,
            seconds=seconds,
            memory=SHARE_OF_MEMORY * max(session.shares.limits.memory - session.shares.reserved, 1.0),
            seed=spec.seed,
            **options,
        )

    @property
    def _open_rows(self) -> Any:
        """What tells whether the same rows are open as before."""
        spec, read = self._session.spec, self._session.read
        return read or (spec.data, spec.split)

    def use(self) -> None:
        """Show the trained answer, with which new rows are then predicted."""
        answer, session = self._answer, self._session
        if answer is None:
            return
        if self._open_rows != self._asked_for:
            self.say(OTHER_ROWS.format(self._about))
            return
        chosen = ("method", "settings", "seed", "target_transform", "input_transform")
        kernel = answer.spec.kernel if isinstance(answer.spec.kernel, str) else answer.spec.kernel["name"]
        # without the theta of the answer, which other rows opened after these would not fit
        spec = replace(session.spec, kernel=kernel, **{name: getattr(answer.spec, name) for name in chosen})
        run = TrainedRun(answer)
        session.open_other(spec, run, in_use(answer, run.problem.train.target))
        self.details.visible = False
        self.say(IN_USE)

    def follow(self, way: Way) -> None:
        """Ask again as a button beside a sentence says."""
        widgets = {"folds": self.held_out, "prefer": self.prefer}
        for name, value in way.options.items():
            widgets[name].value = value
        if (way.drop or way.kinds) and not self._choose_again(drop=way.drop, kinds=way.kinds):
            self.say(
                "Only columns of a file that was opened on this page can be changed, and one input has to be left."
            )
            return
        self.ask()

    def update(self) -> None:
        """Show how far the recommendation is, or its answer."""
        worker = self._worker
        if self._answer is not None:
            self._say_whose()
        if worker is None:
            if self.note.object in (text(TRAINING_ROWS), text(ALL_ROWS)):  # other rows may be open since
                self.say(_before(self._session.read))
            return
        progress = worker.progress
        if worker.over:
            self._worker = None
            self.go.disabled, self.cancel.disabled, self.bar.value = False, True, 0
            self._show(worker)
        elif progress is not None:
            self.bar.value = round(100 * progress.fraction)
            stopping = "Cancelling after the step under way. " if worker.closed.is_set() else ""
            self.say(f"{stopping}{progress.fraction:.0%}, {span(progress.seconds_left)} to go: {progress.sentence}")

    def _say_whose(self) -> None:
        """Say so where the answer is about other rows than those that are open now, which cannot use it."""
        is_of_others = self._open_rows != self._asked_for
        if is_of_others and self.adopt.visible:
            self._note_before = str(self.note.object)
            self.say(OTHER_ROWS.format(self._about))
        elif not (is_of_others or self.adopt.visible) and self.note.object == text(OTHER_ROWS.format(self._about)):
            self.note.object = self._note_before
        self.adopt.visible = not is_of_others

    def pause(self) -> None:
        """Cancel: the best answer so far is shown after the step under way."""
        if self._worker is not None:
            self._worker.close()

    def _show(self, worker: RecommendWorker) -> None:
        answer = worker.answer
        if answer is None:
            self.say(reworded(worker.error))
            return
        self._answer = answer
        cancelled = " It was cancelled, so this is the best answer so far." if worker.closed.is_set() else ""
        self.say(answer.sentences[-1] + cancelled)
        self._show_words(answer)
        candidates = CandidateScores(answer.table)
        height = HEIGHT + LINE * len(candidates.table)
        self.chart.draw(candidates.data(), candidates.plot, "Recommendation, NLPD of models", height)
        self.picture.visible = self.adopt.visible = True
        hint = "a file that predicts new rows: python -m gpexplorer predict FILE ROWS."
        save = download("model.safetensors", lambda: _saved_model(answer), "Save the model", hint, margin=(6, 8))
        self.files[:] = [save]

    def _show_words(self, answer: Recommendation) -> None:
        """Show the answer, the error to expect, and every sentence that a button can act on as a line of its own.

        The other sentences, which give reasons, are below the picture.
        """
        headline, *lines = answer.sentences[:-1]
        ways = {line: ways_of(line) for line in lines}
        self.words.object = f"<h2>{text(headline, 900)}</h2>{promised(answer)}"
        self.reasons.object = "".join(f"<p>{text(reworded(line), 900)}</p>" for line in lines if not ways[line])
        self.questions[:] = [self._question(reworded(line), own) for line, own in ways.items() if own]
        asked = {"folds": self.held_out.value, "prefer": self.prefer.value}
        back = [way for name, way in BACK.items() if asked[name] != way.options[name]]
        if back:
            self.questions.append(self._question("It was asked for otherwise than by default:", back))

    def _question(self, sentence: str, ways: Sequence[Way]) -> Any:
        """A sentence with its buttons."""
        words = line_of_text(f"<p>{text(sentence, 900)}</p>", (2, 8))
        words.styles = {"flex": "1 1 420px"}
        acts = [button(way.label, "", partial(self.follow, way), size="small", margin=(2, 4)) for way in ways]
        return row(words, *acts, gap="4px", **WIDE)


def _saved_model(answer: Recommendation) -> bytes:
    """The file of the model of an answer, which is an average of several if that is better."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        answer.posterior.save(path)
        return path.read_bytes()


def _before(read: Callable[..., Any] | None) -> str:
    """What is said before a recommendation: which of these rows it will use, see `_rows`."""
    return ALL_ROWS if isinstance(read, FileRows) else TRAINING_ROWS


def _rows(spec: Spec, read: Callable[..., Any] | None) -> Any:
    """The rows as `recommend` takes them: all of a file, which it may read again with a column of groups."""
    if isinstance(read, FileRows):
        return lambda groups="": read(ALL, groups)
    return read(spec.split) if read else data_sets.load(spec.data, split=spec.split)


HELD_OUT = {
    "as the rows suggest": "",
    "later rows": "time",
    "whole groups": "groups",
    "single rows at random": "random",
}
PREFERRED = {"best bands (NLPD)": "nlpd", "smallest error (RMSE)": "rmse", "Gaussian processes only": "gp"}
FROM = "Held out from"
CHOOSE_GROUPS = "choose “Rows that belong together” under “Choose columns”"
WORDS = (  # an option in a sentence, and what the page says
    *((f'folds="{value}"', f"“{label}”") for label, value in HELD_OUT.items() if value),
    *((f'prefer="{value}"', f"“{label}”") for label, value in PREFERRED.items()),
    (r"name it with groups=, or give the group of each row", CHOOSE_GROUPS),
    (r"name it with dates=", "tick it under “Choose columns”"),
    (r"\bbefore= sets where", "“later rows” has a field for the date or number where"),  # it is hidden until then
    (r"\bbefore=|^before(?= )", f"“{FROM}”"),
)
LEFT_OUT = re.compile(r'drop=\[((?:"[^"]+"(?:, )?)+)\]')
GAPS = re.compile(r'kinds=\{"([^"]+)": "(number missing ([^"]+))"\}')
AS_WORDS = re.compile(r'kinds=\{"([^"]+)": "(words)"\}')


class Way(NamedTuple):
    """What a button beside a sentence does.

    Attributes
    ----------
    label : str
        What is written on it.
    options : mapping of str to str
        Options of `recommend` to ask again with.
    drop : tuple of str
        Inputs to ask again without.
    kinds : mapping of str to str
        How columns are read when it is asked again.
    """

    label: str
    options: Mapping[str, str] = {}
    drop: tuple[str, ...] = ()
    kinds: Mapping[str, str] = {}


OPTIONS = {
    'folds="random"': Way("Hold out single rows", {"folds": "random"}),
    'prefer="rmse"': Way("Take the smaller error", {"prefer": "rmse"}),
    'prefer="gp"': Way("Take the Gaussian process", {"prefer": "gp"}),
}
BACK = {
    "prefer": Way("Take the better bands", {"prefer": "nlpd"}),
    "folds": Way("Hold out as the rows suggest", {"folds": ""}),
}


def reworded(sentence: str) -> str:
    """What a sentence of `recommend` says is seen, with the names that options have on the page."""
    sentence = what_is_seen(sentence)
    for pattern, words in WORDS:
        sentence = re.sub(pattern, words, sentence)
    return sentence


def ways_of(sentence: str) -> list[Way]:
    """The buttons beside a sentence of `recommend`: each option and each input to leave out that it names."""
    ways = [way for option, way in OPTIONS.items() if option in sentence]
    if words := dict(AS_WORDS.findall(sentence)):
        read = f"ead {cut(', '.join(words), 40)} as words"
        ways = [way._replace(label=f"{way.label}, and r{read}", kinds=words) for way in ways]
        ways = ways or [Way(f"R{read}", kinds=words)]
    names = tuple(re.findall('"([^"]+)"', "".join(LEFT_OUT.findall(sentence))))
    if names:
        ways.append(Way(f"Leave out {cut(', '.join(names), 40)}", drop=names))
    return ways + [
        Way(f"Read {with_minus_signs(gap)} as a gap", kinds={name: kind}) for name, kind, gap in GAPS.findall(sentence)
    ]


def promised(answer: Recommendation) -> str:
    """The expected error as markup: in large figures, and twice where it depends on which rows are meant."""
    from ...recommendation.promises import unit_of

    unit = f" {text(unit_of(answer.run.problem.train))}".rstrip()
    where = {"time": ("between your rows", "after the last row"), "groups": ("more rows of your groups", "new groups")}
    between, beyond = where.get(answer.held_out_by, ("", "new rows"))
    errors = [(beyond, answer.expected["rmse"])]
    if answer.between is not None and between:
        errors.insert(0, (between, answer.between["rmse"]))
    cells = "".join(
        f"<div><b>± {text(about(rmse.value))}{unit}</b><span>expected error (RMSE), {place}<br>"
        f"95 %: {text(about(rmse.low))} to {text(about(rmse.high))}</span></div>"
        for place, rmse in errors
    )
    return f'<div class="facts">{cells}</div>'


def in_use(answer: Recommendation, target: str) -> str:
    """What the heading says while the trained answer is open: what predicts, and what the pictures show of it."""
    from ...recommendation.result import shares

    average, name, picture = answer.average, cut(target, 60), "“Data and prediction” is of"
    if average is None:
        trained = answer.sentences[0].removeprefix("Use ")
        return f"A trained model predicts {name}: {trained} Predict and Save the model use it."
    names, others = list(average.weights), "the other pictures are of the chosen Gaussian process"
    if len(names) == 1:
        return (
            f"One simple model predicts {name}: {names[0]}. {picture} this model, {others}, which was trained beside "
            "it. Predict and Save the model use this model."
        )
    return (
        f"The average of {len(names)} trained models predicts {name}: {shares(average)}. {picture} the average, "
        f"{others}. Predict and Save the model use the average."
    )
