"""Sweeps from the page: one setting and a list of values, or the kept runs on ten splits."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ...errors import SettingError
from ...methods.base import registry
from ...runs import Run, Spec
from ...runs.setting_checks import typed_value
from ...runs.studies.comparison import Finished
from ...runs.studies.setting_labels import label_of
from ...runs.studies.split_comparison import repeated, rows_of
from ...runs.studies.sweep import Swept, around, grid, sweep
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..styles import TEXT
from ..text import sentence, text
from ..widgets import SMALL, button, number_in, row, select, watch, whole
from .study_panel import StudyPanel

MOST_STEPS = 100_000  # of each run
MOST_SECONDS = 3600  # likewise
MOST_RUNS = 50  # of a repetition on ten splits: five methods
MAX_LENGTH = 600  # characters of the list of values


class SweepWorker(BackgroundWorker):
    """The thread of a sweep: it runs one spec after another until its budget is used.

    Parameters
    ----------
    specs : mapping of str to Spec
        The specs by the names of their runs.
    read : callable or None
        Reads the rows of a split if the data of the specs have no name (an upload, a table in memory); else None.
    admit : callable, optional
        Called before each run; the GPExplorerError that it raises is reported in place of the run.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        read: Callable[[Any], Any] | None,
        admit: Callable[[Spec], None] = lambda _: None,
    ) -> None:
        super().__init__("gpexplorer-sweep")
        self.specs, self.over = dict(specs), False
        self._read, self._run, self._admit = read, None, admit
        self._done = deque[Swept]()
        self.start()

    def take(self) -> Swept | None:
        """Return the next run that has ended, or None."""
        return self._done.popleft() if self._done else None

    def close(self) -> None:
        """Ask the current run to stop; returns at once."""
        super().close()
        if (run := self._run) is not None:
            run.stop()

    def _register(self, run: Run) -> None:
        self._run = run
        if self.closed.is_set():
            run.stop()

    def work(self) -> None:
        """Run all specs, or those that are finished before `close` is called."""
        for name, spec in self.specs.items():
            if self.closed.is_set():
                break
            try:
                self._admit(spec)
                rows = None if self._read is None else self._read(spec.split)
                self._done.extend(sweep({name: spec}, data=rows, opened=self._register))
            except Exception as error:
                self._done.append(Swept(name, None, sentence(error, "a run of the sweep was being computed")))
            self._run = None
        self._admit = lambda _: None  # frees the memory that it has reserved
        self.over = True


class SweepPanel(StudyPanel):
    """The controls of a sweep over a setting of the open spec.

    Parameters
    ----------
    session : Session
        The session whose spec is varied.
    add : callable
        Called with the results of runs that have ended, by name.
    kept : callable
        Returns the runs that a person has kept, by name.

    Attributes
    ----------
    on_splits : Button
        Repeats the kept runs. It stands beside the button that keeps them, because no field of a sweep is for it.
    """

    def __init__(
        self,
        session: Session,
        add: Callable[[Mapping[str, Finished]], None],
        kept: Callable[[], Mapping[str, Finished]],
    ) -> None:
        super().__init__(session)
        self._add, self._kept, self._method = add, kept, ""
        self._total = self._remaining = 0
        self._begun, self._failure = 0.0, ""
        self.what = select("Vary", ["seed"], "seed", 190, searchable=True)
        hint = "Values separated by commas."
        self.values = pmui.TextInput(
            label="Values", value="0, 1, 2, 3", width=150, max_length=MAX_LENGTH, description=hint, **SMALL
        )
        self.steps = whole("Steps per run", 50, 1, MOST_STEPS, 110)
        hint = "Seconds of work; 0 means no limit. The first limit reached ends a run."
        self.seconds = whole("or seconds", 0, 0, MOST_SECONDS, 110, description=hint)
        self.go = button("Sweep", "grid_view", self.toggle)
        hint = "repeat the kept runs on ten splits of their rows, to see whether the better one is better on most."
        self.on_splits = button("Ten splits", "repeat", self.repeat, hint)
        self.note = pn.pane.HTML("", margin=(4, 8), stylesheets=[TEXT])
        watch(self._suggest_values, self.what)
        self._layout = row(self.what, self.values, self.steps, self.seconds, self.go, self.note)
        self._offer_settings()

    def toggle(self) -> None:
        """Start a sweep from the open spec, or stop the current sweep after its current step."""
        if self._worker is not None:
            self.close()
        else:
            self._begin(self._sweeping)

    def repeat(self) -> None:
        """Run the methods of the kept runs on ten splits."""
        if self._worker is None:
            self._begin(self._repeating)

    def _begin(self, worker: Callable[[], SweepWorker]) -> None:
        if self.start("a sweep", worker):
            self._begun, self._failure = time.monotonic(), ""
            self.go.param.update(label="Stop", icon="stop")
            self.on_splits.disabled = True
            self.note.object = self._progress

    def _repeating(self) -> SweepWorker:
        data = self._session.spec.data
        if isinstance(data, dict) and "content" in data and "file" not in data:
            raise SettingError("The open rows were given in memory, as one split: gpexplorer.sweep has others.")
        open_rows = {name: run for name, run in self._kept().items() if rows_of(run.spec.data) == rows_of(data)}
        specs = {name: replace(spec, data=data) for name, spec in repeated(open_rows).items()}
        if not specs:
            raise SettingError("There is no kept run of the open data to repeat: press Play, then Keep this run.")
        if len(specs) > MOST_RUNS:
            raise SettingError(
                f"The kept runs on ten splits are {len(specs):,} runs, and the most is {MOST_RUNS}: forget some."
            )
        return self._working(specs)

    def _sweeping(self) -> SweepWorker:
        spec = self._session.spec
        if self.what.value not in self.what.options.values():
            raise SettingError("A sweep varies the seed, the split or a setting of the method: choose one of them.")
        steps, seconds = number_in(self.steps), number_in(self.seconds, "Seconds per run")
        base = replace(spec, budget={"steps": steps} | ({"seconds": seconds} if seconds else {}))
        return self._working(grid(base, {self.what.value: values(self.values.value)}, labels=True))

    def _working(self, specs: Mapping[str, Spec]) -> SweepWorker:
        self._session.begin_study("a sweep")
        self._total = self._remaining = len(specs)
        memory, rows = self._session.shares.reservation(), self._session.rows()
        return SweepWorker(specs, self._session.read, lambda spec: memory.take(spec, rows))

    def update(self) -> None:
        """Pass on the runs that have ended, and offer the settings of the open method."""
        self._offer_settings()
        worker = self._worker
        missing = "" if worker is not None else self._session.missing_settings
        self.require(missing, self.go, self.on_splits, is_said=False)  # the panel around it says so
        if worker is None:
            return
        over, ended = worker.over, dict[str, Finished]()
        while (swept := worker.take()) is not None:
            self._remaining -= 1
            self._failure = self._failure if swept.finished else swept.sentence
            self.note.object = f"{self._progress} {text(self._failure, MAX_LENGTH)}"
            if swept.finished is not None:
                ended[swept.name] = swept.finished
        if ended:
            self._add(ended)
        if over:
            self.close()

    def close(self) -> None:
        """Stop the current sweep, if there is one."""
        if self._worker is not None:
            super().close()
            self.go.param.update(label="Sweep", icon="grid_view")
            self.on_splits.disabled = False
            stopped = f"Stopped. {self._words_remaining}." if self._remaining else ""
            self.note.object = f"{stopped} {text(self._failure, MAX_LENGTH)}".strip()

    @property
    def _progress(self) -> str:
        """How many runs remain, and for how long at the pace of those that have ended."""
        done = self._total - self._remaining
        left = (time.monotonic() - self._begun) / done * self._remaining if done else 0.0
        return self._words_remaining + (f", about {left:,.0f} s." if left >= 1 else ".")

    @property
    def _words_remaining(self) -> str:
        return f"{self._remaining} run{'s' * (self._remaining != 1)} remaining"

    def _offer_settings(self) -> None:
        method = self._session.spec.method
        if method == self._method:
            return
        self._method, settings = method, registry[method].used_settings()
        labels = {label_of(name, settings[name].doc or ""): name for name in settings if name not in ("name", "seed")}
        selected = "num_inducing" if "num_inducing" in settings else "seed"
        self.what.param.update(options=labels | {"Seed": "seed", "Split": "split"}, value=selected)
        self._suggest_values()

    def _suggest_values(self) -> None:
        suggested = around(self._session.spec, self.what.value)
        self.values.value = ", ".join(value if isinstance(value, str) else json.dumps(value) for value in suggested)


def values(typed: str) -> list[Any]:
    """Return the values in a text separated by commas: numbers, true, false, or words.

    Raises
    ------
    SettingError : if the text contains no value.
    """
    parts = [part.strip() for part in typed.split(",") if part.strip()]
    if not parts:
        raise SettingError("The list of values is empty. Type values separated by commas, such as 8, 16, 32.")
    return [typed_value(part) for part in parts]
