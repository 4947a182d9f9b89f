"""Which rows: a data set by name, or a file of one's own with a column picker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...runs import Spec
from ..text.error_sentences import sentence
from ..text.escape import text
from ..text.number_format import named

CAP = data_sets.UPLOAD.file_bytes
ACCEPT = ".csv,.tsv,.txt,.gz,.parquet,.pq,.npz"


class Sources(pn.viewable.Viewer):
    """Shows the data of a spec. `chosen(data, read)` is told a name, or how an upload is read for a split; `say` gets
    sentences, `busy` waits.
    """

    def __init__(
        self,
        spec: Spec,
        chosen: Callable[[Any, Any], None],
        say: Callable[[str], None],
        busy: Callable[[str], None],
        **params: Any,
    ) -> None:
        super().__init__(**params)
        self._chosen, self._say, self._busy = chosen, say, busy
        self._file: tuple[str, bytes] | None = None
        self._quiet = False
        self._table = data_sets.available()
        self.names = pmui.Select(
            label="Data (rows × inputs)", groups=_groups(self._table, {}), value=None, searchable=True, size="small",
            sizing_mode="stretch_width", margin=(10, 10, 4, 10),
            description="Sets to download are fetched once, checked against their checksum, and kept.",
        )  # fmt: skip
        self.names.param.watch(self._named, "value")
        self.adopt(spec)
        self.upload = pmui.FileInput(
            **named(f"Your own table (at most {CAP // 10**6} MB)", "CSV, Parquet or NPZ, numbers with a header line"),
            accept=ACCEPT, max_file_size=CAP, variant="outlined",
            sizing_mode="stretch_width", margin=(6, 10),
        )  # fmt: skip
        self.upload.param.watch(self._uploaded, "value")
        self._picker()
        self.columns = pn.Column(
            self.shown, self.target, self.inputs, self.use, visible=False, sizing_mode="stretch_width"
        )
        self.note = pn.pane.HTML("", margin=(0, 14), sizing_mode="stretch_width")
        self._layout = pn.Column(self.names, self.note, self.upload, self.columns, sizing_mode="stretch_width")

    def _picker(self) -> None:
        wide = {"sizing_mode": "stretch_width", "margin": (6, 10)}
        self.shown = pn.pane.HTML("", margin=(0, 14), sizing_mode="stretch_width")
        self.target = pmui.Select(label="Column to predict", options=[], size="small", **wide)
        self.inputs = pmui.MultiSelect(label="Columns to predict it from", options=[], size=6, **wide)
        self.target.param.watch(self._retarget, "value")
        self.use = pmui.Button(
            label="Use these columns", color="primary", variant="outlined", on_click=self._take,
            sizing_mode="stretch_width", margin=(6, 10),
        )  # fmt: skip

    def describe(self, rows: int, test: int, inputs: int, notes: tuple[str, ...]) -> None:
        """Say what is open now, traps included."""
        line = f"{rows:,} training rows, {test:,} test rows, {inputs} input{'s' if inputs > 1 else ''}."
        said = "".join(f"<br>{text(note)}" for note in notes[:4])
        self.note.object = f'<span style="font-size:12px;opacity:.75">{line}{said}</span>'

    def adopt(self, spec: Spec) -> None:
        """Name the data of this spec; nobody is told."""
        self._quiet = True
        asked = {"name": spec.data} if isinstance(spec.data, str) else spec.data
        groups = _groups(self._table, asked)
        if groups != self.names.groups:
            self.names.groups = groups
        known = {key for group in groups.values() for key in group.values()}
        self.names.value = asked["name"] if asked.get("name") in known else None
        self._quiet = False

    def _named(self, event: Any) -> None:
        if event.new is not None and not self._quiet:
            self._chosen(event.new, None)

    async def _uploaded(self, event: Any) -> None:
        if not event.new:
            return
        name, data = str(self.upload.filename or "upload.csv"), event.new
        self._file, self.columns.visible = None, False
        self._busy("Reading the columns of your file …")
        try:
            seen = await asyncio.to_thread(data_sets.preview, name, data)
        except Exception as error:
            self._say(sentence(error, "your file was being read"))
        else:
            self._file = (name, data)
            self._offer(name, seen)
        finally:
            self._busy("")

    def _offer(self, name: str, seen: Any) -> None:
        """Fill the picker with what the file holds."""
        numbers = list(seen.numbers)
        size = f"{seen.rows:,} rows, {len(seen.columns):,} columns"
        self.shown.object = f'<span style="font-size:12px"><b>{text(name, 80)}</b>: {size}</span>'
        self.target.param.update(options=numbers, value=seen.target)
        self._retarget(None)
        self.columns.visible = True

    def _retarget(self, _: Any) -> None:
        others = [column for column in self.target.options if column != self.target.value]
        self.inputs.param.update(options=others, value=others)

    def _take(self, _: Any) -> None:
        """Go on with these columns; the file itself is read in the player's thread, by a child process with limits."""
        if self._file is None:
            return
        name, data = self._file
        choice = data_sets.Choice(target=self.target.value, inputs=tuple(self.inputs.value))
        self.names.value = None
        self._chosen({"name": "upload"}, lambda split: data_sets.read_upload(name, data, choice, split))

    def __panel__(self) -> Any:
        return self._layout


def _groups(table: pd.DataFrame, asked: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Title -> name of every set, by where it comes from; the one that is open has the size that was asked for."""
    groups: dict[str, dict[str, str]] = {"Drawn from a formula": {}, "On this machine": {}, "To download": {}}
    for name, row in table.iterrows():
        kind = 0 if row["source"] == "generator" else 1 if row["cached"] else 2
        sizes = {word: row[word] for word in ("n", "d")}
        if asked.get("name") == name:
            sizes |= {word: asked[word] for word in sizes if isinstance(asked.get(word), int)}
        inputs = "molecules" if pd.isna(sizes["d"]) else f"× {int(sizes['d'])}"
        groups[list(groups)[kind]][f"{name} · {int(sizes['n']):,} {inputs}"] = str(name)
    return {title: group for title, group in groups.items() if group}
