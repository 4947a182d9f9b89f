"""A small sweep from the page: what to vary, over which values, for how many steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ...errors import GPExplorerError, SettingError
from ...methods.base import registry
from ...runs.studies.comparison import Finished
from ...runs.studies.sweep import around, grid
from ..inputs.method_settings import label_of
from ..session import Session
from ..text.escape import text
from .sweep_thread import Sweeper

SMALL = {"size": "small", "margin": (6, 8)}
LONGEST = 600  # characters of values


class Sweeps(pn.viewable.Viewer):
    """Sweeps over the open spec of `session`; `add` takes each run that ended."""

    def __init__(self, session: Session, add: Callable[[str, Finished], None], **params: Any) -> None:
        super().__init__(**params)
        self._session, self._add = session, add
        self._sweeper: Sweeper | None = None
        self._method, self._left = "", 0
        self.what = pmui.Select(label="Vary", options=["seed"], value="seed", width=190, searchable=True, **SMALL)
        self.values = pmui.TextInput(
            label="over", value="0, 1, 2, 3", width=200, max_length=LONGEST, description="Separated by commas.", **SMALL
        )
        self.steps = pmui.IntInput(label="steps each", value=50, start=1, end=100_000, width=110, **SMALL)
        self.go = pmui.Button(
            label="Sweep", icon="grid_view", variant="outlined", margin=(6, 8), on_click=lambda _: self.toggle()
        )
        self.note = pn.pane.HTML("", margin=(4, 8))
        self.what.param.watch(lambda _: self._suggest(), "value")
        self._layout = pmui.FlexBox(self.what, self.values, self.steps, self.go, self.note, align_items="center")
        self._offer()

    def toggle(self) -> None:
        """Begin with the open spec, or end after the step under way."""
        if self._sweeper is not None:
            self.close()
            return
        spec, read = self._session.spec, self._session.read
        try:
            given = replace(spec, budget={"steps": self.steps.value or 1})
            specs = grid(given, {self.what.value: values(self.values.value)})
        except GPExplorerError as error:
            self.note.object = text(str(error), LONGEST)
            return
        self._session.pause()
        self._left = len(specs)
        self._sweeper = Sweeper(specs, read)
        self.go.param.update(label="Stop", icon="stop")
        self.note.object = self._to_go

    def update(self) -> None:
        """Hand on the runs that have ended since, and offer the settings of the method that is open now."""
        self._offer()
        sweeper = self._sweeper
        if sweeper is None:
            return
        over = sweeper.over
        while (swept := sweeper.take()) is not None:
            self._left -= 1
            self.note.object = self._to_go if swept.finished else text(swept.sentence, LONGEST)
            if swept.finished is not None:
                self._add(swept.name, swept.finished)
        if over:
            self.close()

    def close(self) -> None:
        """End the sweep under way, if there is one."""
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.close()
            self.go.param.update(label="Sweep", icon="grid_view")
            self.note.object = "" if self._left == 0 else f"Ended, with {self._to_go}"

    @property
    def _to_go(self) -> str:
        return f"{self._left} run{'s' * (self._left != 1)} to go."

    def _offer(self) -> None:
        method = self._session.spec.method
        if method == self._method:
            return
        self._method, own = method, registry[method].param.objects()
        named = {label_of(name, own[name].doc or ""): name for name in own if name not in ("name", "seed")}
        first = "num_inducing" if "num_inducing" in own else "seed"
        self.what.param.update(options=named | {"Seed": "seed", "Split": "split"}, value=first)
        self._suggest()

    def _suggest(self) -> None:
        found = around(self._session.spec, self.what.value)
        self.values.value = ", ".join(value if isinstance(value, str) else json.dumps(value) for value in found)

    def __panel__(self) -> Any:
        return self._layout


def values(written: str) -> list[Any]:
    """What stands between commas: numbers, true, false, or words. SettingError where there is nothing."""
    parts = [part.strip() for part in written.split(",") if part.strip()]
    if not parts:
        raise SettingError("There is no value to sweep over; write some, separated by commas, such as 8, 16, 32.")
    return [_value(part) for part in parts]


def _value(written: str) -> Any:
    try:
        return json.loads(written)
    except ValueError:
        return written
