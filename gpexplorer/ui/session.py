"""What one visitor works on: the open run, the notes on runs, and what the screen shows. It contains no widgets.

The page (`explorer.py`) draws a session, and the pictures and panels read it and send it their requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import pandas as pd

from .. import data as data_sets
from .. import kernels
from ..data.edits import MAX_EDITS
from ..errors import GPExplorerError, SettingError, StoreError
from ..hyperparameters import Hyperparameters
from ..runs import Run, Spec, Store
from ..runs.store import LONGEST_NOTE
from ..runs.studies.comparison import Finished
from ..runs.studies.memory_need import Rows
from ..views.runs.steps_table import steps_table
from .inputs.presets import says_what_happened
from .playback.background_worker import BackgroundWorker
from .playback.open_run import Frame, OpenRequest, OpenRun
from .playback.player import Player
from .shared_limits import Shares, long_replay
from .styles import FigureTheme

MOST_REPEATED = 200  # steps repeated at most after rows were edited; Play takes the steps after these
OF_OBJECTS, NUMERIC_KERNEL = "cholqr", "se-ard"  # the method for molecules, and the kernel after them
CHOOSE = "choose data and settings that can be opened"
NEWEST = -1  # in place of a step: the newest record, once the changes before are carried out
HYPERPARAMETERS = "hyperparameters"  # the kind of a change by hand
RowReader = Callable[[Any], Any]  # a split -> the rows of that split


class Screen(NamedTuple):
    """What the screen shows.

    Attributes
    ----------
    spec : Spec
        The spec of the run.
    step : int
        The step shown.
    view : str
        Key of the picture that a person chose; empty where it is the one that belongs to the method.
    by_hand : bool
        Whether a person changed the run, such as by clicks or drags. No spec repeats it.
    key : str
        The name of the run in the store and for notes.
    """

    spec: Spec
    step: int = 0
    view: str = ""
    by_hand: bool = False
    key: str = ""


class ByHand(NamedTuple):
    """The newest change by hand, while the screen does not show it yet: what follows continues from it.

    Attributes
    ----------
    kind : str
        What was changed.
    asked : int
        The number of its request; see `Player.asked`.
    step : int
        The step from which hyperparameters are set.
    options : mapping
        What is set of them since then; see `OpenRun.set_hyperparameters`.
    """

    kind: str
    asked: int
    step: int = NEWEST
    options: Mapping[str, Any] = {}


class Working(Protocol):
    """A panel that works beside the run."""

    def update(self) -> None:
        """Show what has changed; called about ten times per second."""

    def pause(self) -> None:
        """Stop all work once no browser shows the page. A person can continue it."""

    def close(self) -> None:
        """Stop all work, because the session has ended."""


class Notes:
    """What a person wrote about the runs of a page, by the name of the run.

    Parameters
    ----------
    store : Store, optional
        A note is also written here where the store contains its run. Without a store, notes end with the page.
    report : callable, optional
        Receives the message of a store that refuses a note.

    Attributes
    ----------
    version : int
        Number of changes so far: a panel that shows notes compares it with the version that it has drawn.
    """

    def __init__(self, store: Store | None = None, report: Callable[[str], None] = lambda _: None) -> None:
        self.store, self.version = store, 0
        self._report = report
        self._notes: dict[str, str] = {}

    def of(self, key: str) -> str:
        """Return the note on this run; empty where there is none."""
        return self._notes.get(key, "")

    def write(self, key: str, note: str) -> None:
        """Keep this note, cut to `LONGEST_NOTE` characters, also in the store where the store contains the run."""
        note = note[:LONGEST_NOTE]
        if note == self.of(key):
            return
        self._notes[key] = note
        self.version += 1
        self._write_to_store(key)

    def learn(self, key: str, note: str) -> None:
        """Take over a note from the store; a note that was written on this page has precedence."""
        self._notes.setdefault(key, note)

    def store_run(self, run: Run) -> str:
        """Put this run and its note into the store; returns a sentence that says where it is, or what went wrong."""
        if self.store is None:
            return ""
        try:
            key = self.store.put(run)
        except StoreError as error:
            return str(error)
        self._write_to_store(key)
        return f"In the store as {key}, with {len(run.trace)} records."

    def _write_to_store(self, key: str) -> None:
        if self.store is None or key not in self.store.names():
            return
        try:
            self.store.annotate(key, self.of(key))
        except StoreError as error:
            self._report(str(error))


def _name_of_kernel_by_hand(kernel: Any) -> str:
    """The name of a kernel for which a person gave values, bounds or priors of hyperparameters, else ""."""
    return str(kernel["name"]) if isinstance(kernel, dict) and kernel.keys() - {"name", "start"} else ""


def _source(data: Any) -> tuple[Any, Any]:
    """The data set, and the file of an upload: rows that differ only in number or by edits are of one source."""
    return (data.get("name"), data.get("file")) if isinstance(data, dict) else (data, None)


def _takes_texts(kernel: Any) -> bool:
    """Whether this kernel, or a part of it, is one of strings or molecules."""
    try:
        return kernels.make(kernel if isinstance(kernel, str) else kernel["name"], 1).inputs in ("strings", "mixed")
    except GPExplorerError:
        return False


def _with_fixed(kernel: Any, fixed: dict[str, float], table: Hyperparameters) -> Any:
    """The kernel of a spec in which these hyperparameters are fixed at these values, and no others.

    Values of what was fixed before go, and so do those of what is tied to one that is fixed now.
    """
    options: dict[str, Any] = {"name": kernel} if isinstance(kernel, str) else dict(kernel)
    values, before = options.pop("values", {}), options.pop("fixed", [])
    replaced = [row for name in [*before, *fixed] for row in table.matching(name)]
    gone = {each for row in replaced for each in (row.name, *row.partners)}
    given = {row.name for name in values for row in table.matching(name)} - gone
    numbers = table.kernel(values=values)["values"]  # of two names for one of them, the one that means fewer counts
    options["values"] = {name: numbers[name] for name in numbers if name in given} | fixed
    options["fixed"] = list(fixed)
    options = {name: value for name, value in options.items() if value}
    return options if len(options) > 1 else options["name"]


class Session:
    """The run that one visitor has open, and what they may ask of it.

    Parameters
    ----------
    spec : Spec
        The run to begin with; `open` opens it.
    read : RowReader, optional
        Reads the rows of a split, where no data set name in the spec brings them (a table in memory, an upload).
    store : Store, optional
        Where kept runs and their notes stay; None for nowhere.
    shares : Shares, optional
        The memory and the cores that the sessions of a server share.
    report : callable, optional
        Shows a message to the person; an empty message removes the last one.
    adopt : callable, optional
        Sets the controls to a spec that was chosen in another place than the controls.

    Attributes
    ----------
    spec : Spec
        The spec that was chosen last. Its run may still be opening; `screen.spec` is the one on the screen.
    shares : Shares, optional
        The memory and the cores that the sessions of a server share.
    player : Player
        The thread that opens the run and takes its steps.
    notes : Notes
        The notes on runs.
    screen : Screen
        What the screen shows.
    theme : FigureTheme
        The theme of all figures of the page.
    panels : list of Working
        The panels that have been built.
    question : str
        Key of the preset that the open run belongs to; empty where it belongs to none.
    answer : str
        What is said of the trained model of a recommendation, where that is open; else empty.
    has_failed : bool
        Whether the run that was asked for last could not be opened; the one on the screen is the one before.
    """

    def __init__(
        self,
        spec: Spec,
        read: RowReader | None = None,
        store: Store | None = None,
        shares: Shares | None = None,
        *,
        report: Callable[[str], None] = lambda _: None,
        adopt: Callable[[Spec], None] = lambda _: None,
    ) -> None:
        self.spec, self.read = spec, read
        self.shares = shares or Shares()
        self.player, self.notes = Player(shares=self.shares), Notes(store, report)
        self.theme = FigureTheme()
        self.panels: list[Working] = []
        self._studies: list[tuple[str, BackgroundWorker]] = []
        self.screen, self.question, self.answer, self.has_failed = Screen(spec), "", "", False
        self._report, self._adopt = report, adopt
        self._drag_start = 0
        self._unseen: ByHand | None = None

    @property
    def run(self) -> Run | None:
        """The open run, for reading: only the player's thread takes its steps."""
        return self.player.run

    @property
    def missing_run(self) -> str:
        """What a panel that uses the open run waits for, as a sentence; empty where a run is open."""
        run = self.run
        if run is not None and len(run.trace):
            return ""
        if self.has_failed:
            return f"No run is open: {CHOOSE}."
        if self.screen.key:  # another run is being opened in its place
            return ""
        return "No run is open yet: press Play." if self.player.waits_for_play else "The run is being opened."

    @property
    def missing_settings(self) -> str:
        """What a panel that uses the chosen settings waits for, as a sentence; empty where they were not refused."""
        return f"The run that was asked for last could not be opened: {CHOOSE}." if self.has_failed else ""

    def open(self, play: bool = False, row: Sequence[float] = ()) -> None:
        """Open the chosen spec at step 0; `row` is a row that it adds to the open run."""
        self.answer, self._unseen = "", None
        self.player.open(OpenRequest(self.spec, self.read, tuple(row), self.screen.step), play)

    def prepare(self, message: str) -> None:
        """Show this message, and open the chosen spec when a person first asks for a step."""
        self.player.prepare(OpenRequest(self.spec, self.read), message)

    def replay(self, steps: int) -> str:
        """Take the steps that a link asks for, if they take short; otherwise return a sentence that says so."""
        message = long_replay(self.spec, steps)
        if not message:
            self.player.run_to(steps)
        return message

    def begin_study(self, title: str) -> None:
        """Pause the run for a study, such as a sweep; the steps that a link has asked for are still taken.

        Raises
        ------
        SettingError
            Where another study of this session is still computing.
        """
        self._studies = [study for study in self._studies if study[1].thread.is_alive()]
        if self._studies:
            other = self._studies[0][0]
            raise SettingError(f"One page computes one study at a time: {title} can start when {other} has ended.")
        if self.player.playing:
            self.player.pause()

    def add_study(self, title: str, worker: BackgroundWorker) -> None:
        """Count this study as computing for as long as its thread lives."""
        self._studies.append((title, worker))

    def rows(self) -> Rows | None:
        """Return the size of the open data, where no name gives it."""
        train = self.run.problem.train if self.run is not None else None
        return Rows(len(train), train.d) if train is not None and self.read is not None else None

    def choose(self, spec: Spec, steps: int = 0) -> None:
        """Open another spec, whose data have a name, take this many steps, and set the controls to it."""
        self.read = None
        self.open_other(spec)
        if steps:
            self.player.run_to(steps)

    def show(self, run: Run) -> None:
        """Show a run that exists already, where it is; other settings are tried on its rows."""
        spec, rows = run.spec, run.split
        if not isinstance(spec, Spec):
            raise SettingError("A run made without a Spec cannot be shown: open it with Spec.open.")
        self.read = None if data_sets.is_named(spec.data) else lambda _: rows
        self.open_other(spec, run)

    def open_other(self, spec: Spec, given: Run | None = None, answer: str = "") -> None:
        """Open this spec on the open rows, or show a run of it that exists already, and set the controls to it.

        `answer` is what is said of a run that was trained.
        """
        self.spec, self.question, self.answer, self._unseen = spec, "", answer, None
        self._adopt(spec)
        self._report("")
        self.player.open(OpenRequest(spec, self.read, given=given))

    def change(self, spec: Spec, row: Sequence[float] = ()) -> None:
        """Open a spec that the controls show already; a run that plays goes on playing. `row` is as for `open`."""
        is_other = (spec.method, spec.data) != (self.spec.method, self.spec.data)
        if is_other or (spec != self.spec and says_what_happened(self.question)):
            self.question = ""
        self.spec = spec
        self._report("")
        self.open(self.player.playing, row)

    def adopt(self, spec: Spec) -> None:
        """Open a spec on the rows that are open, and set the controls to it."""
        self._adopt(spec)
        self.change(spec)

    def change_rows(
        self, data: Any, read: RowReader | None = None, kernel: str = "", row: Sequence[float] = ()
    ) -> None:
        """Open the same method on other rows, with this kernel if their inputs need one. `row` is as for `open`.

        Hyperparameters that were given by hand belong to their rows: on those of another source the method begins with
        its own settings.
        """
        try:
            spec, method = replace(self.spec, data=data), OF_OBJECTS if kernel else self.spec.method
            has_texts = data != self.spec.data and _takes_texts(self.spec.kernel)
            if not (kernel or has_texts) and _source(data) != _source(self.spec.data):
                kernel = _name_of_kernel_by_hand(spec.kernel)  # its numbers were chosen for the other rows
            if kernel:
                spec = Spec(
                    method, data=data, split=spec.split, kernel=kernel, seed=spec.seed, budget=spec.budget,
                    target_transform=spec.target_transform,
                )  # fmt: skip
            elif has_texts:
                spec = replace(spec, kernel=NUMERIC_KERNEL)
        except GPExplorerError as error:
            self._report(str(error))
            return
        self.read = read
        if spec.kernel != self.spec.kernel:
            self._adopt(spec)
        self.change(spec, row)

    def take(self, wait: float = 0.0) -> Frame | None:
        """Return the newest frame of the player, if there is one; within `wait` seconds if a drawn one comes."""
        frame = self.player.take(wait)
        if frame is not None:
            self.has_failed = bool(frame.failed)
        if frame is not None and frame.run is not None and frame.numbers is not None:
            run, numbers = frame.run, frame.numbers
            self.screen = Screen(run.spec, numbers.at, self.screen.view, numbers.by_hand, run.key)
            if self._unseen is not None and frame.answered >= self._unseen.asked and not frame.busy:
                self._unseen = None
                if not self.has_failed:  # such as after undo, or if a lock was refused
                    self.spec = replace(self.spec, kernel=run.kernel)
        return frame

    def show_view(self, view: str) -> None:
        """Note which picture a person chose."""
        self.screen = self.screen._replace(view=view)

    def click(self, view: str, x: float, y: float) -> None:
        """Take the step that a click at (x, y) on the picture with this key asks for."""
        step = self.screen.step
        self._change("click", lambda run: run.click(view, step, x, y))

    def drag(self, first: bool, slot: int, position: tuple[float, ...]) -> None:
        """Move inducing point `slot` to this position in the units of the file.

        A drag sends many positions. Each starts from the step that was shown when the drag began (`first`), so the
        newest position replaces the ones before it.
        """
        if first:
            self._drag_start = self.screen.step
        step = self._drag_start
        self._change("drag", lambda run: run.drag(step, slot, position))

    def undo(self) -> None:
        """Take back the last change by hand, also from the kernel of the next run."""
        self._change("", OpenRun.undo)

    def set_hyperparameters(self, values: dict[str, float]) -> None:
        """Pause, and give hyperparameters of the step shown these values, by name and in the units of the file."""
        self._set_by_hand(values=values)

    def fix_hyperparameters(self, fixed: dict[str, float]) -> None:
        """Pause, and learn all hyperparameters but these from here on; the next run has these values as well."""
        if self.run is None:
            return
        if not self.has_failed:  # else the spec is not that of the run on the screen
            kernel = _with_fixed(self.spec.kernel, fixed, self.run.hyperparameters_at(curvature=False))
            self.spec = replace(self.spec, kernel=kernel)
        self._set_by_hand(fixed=list(fixed))

    def _set_by_hand(self, **options: Any) -> None:
        """Set hyperparameters of the step shown, with those that were set since then and are not shown yet."""
        unseen, step = self._unseen, self.screen.step if self._unseen is None else NEWEST
        if unseen is not None and unseen.kind == HYPERPARAMETERS:
            values = unseen.options.get("values", {}) | options.get("values", {})
            step, options = unseen.step, {**unseen.options, **options, **({"values": values} if values else {})}
        kernel = None if self.has_failed else self.spec.kernel
        self._change(HYPERPARAMETERS, lambda run: run.set_hyperparameters(step, kernel, **options), step, options)

    def _change(self, kind: str, change: Callable[[OpenRun], None], *parts: Any) -> None:
        self.player.change(change, kind)
        self._unseen = ByHand(kind, self.player.asked, *parts)

    def edit_rows(self, edit: Sequence[float] | None) -> str:
        """Add or remove a training row, then return to the step shown on the edited rows.

        The prediction with a new row is shown at once where the posterior can be updated.

        Parameters
        ----------
        edit : sequence of float or None
            The coordinates and target of a new row, or the number of a row to remove; None takes back the last edit.

        Returns
        -------
        str
            A message where the edit is refused, else empty.
        """
        data = dict(self.spec.data) if isinstance(self.spec.data, dict) else {"name": self.spec.data}
        edits = list(data.pop("edits", []))
        if edit is not None and len(edits) >= MAX_EDITS:
            return (
                f"{MAX_EDITS:,} rows are edited, which is the most that a link can carry. Take some edits back first."
            )
        edits = edits[:-1] if edit is None else [*edits, list(edit)]
        step = min(self.screen.step, MOST_REPEATED)
        if edits:
            self.change_rows({**data, "edits": edits}, row=edit if edit is not None and len(edit) > 1 else ())
        else:
            self.change_rows(data["name"] if set(data) == {"name"} else data)
        if step:
            self.player.run_to(step)
        return ""

    def pause(self) -> None:
        """Stop computing after the step under way, in the run and in all panels."""
        self.player.pause()
        for panel in self.panels:
            panel.pause()

    def finished(self) -> Finished | None:
        """Return the open run up to its newest step, as comparisons need it."""
        return Finished.of(self.run) if self.run is not None else None

    def table(self) -> pd.DataFrame:
        """Return the table of steps of the open run, with what each did; empty where no run is open."""
        return steps_table(self.run) if self.run is not None else pd.DataFrame()

    def store_run(self) -> str:
        """Put the open run into the store; returns a sentence about it, or nothing where there is no store."""
        run = self.run
        if self.notes.store is None or run is None:
            return ""
        if run.changes:
            return "It is not in the store: it was changed by hand, which no spec repeats. Save the page or the model."
        return self.notes.store_run(run)

    def close(self) -> None:
        """End all threads and free the run and the rows."""
        for panel in self.panels:
            panel.close()
        self.player.close()
        self.read = None
