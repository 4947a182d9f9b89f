"""The data box of the sidebar: a data set by name, or an uploaded file with a column picker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

import pandas as pd
import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...runs import Spec
from ..styles import TEXT
from ..text import named, sentence, text
from .field import Field
from .file_upload import FileUpload

CAP = data_sets.UPLOAD.file_bytes
HINT = "Public sets are downloaded once, checked against their checksum, and cached."
ACCEPT = ".csv,.tsv,.txt,.gz,.parquet,.pq,.npz"


class DataSource(pn.viewable.Viewer):
    """The data of a spec, and the widgets to choose other data.

    Parameters
    ----------
    spec : the spec whose data are shown first.
    on_choose : called with (data, read): the data of a spec, and None or, for an upload, a function of the split that
        reads it.
    show_message : called with a sentence when a file cannot be read.
    show_busy : called with a sentence while a file is being read, and with "" afterwards.
    """

    def __init__(
        self,
        spec: Spec,
        on_choose: Callable[[Any, Any], None],
        show_message: Callable[[str], None],
        show_busy: Callable[[str], None],
        **params: Any,
    ) -> None:
        super().__init__(**params)
        self._on_choose, self._show_message, self._show_busy = on_choose, show_message, show_busy
        self._file: tuple[str, bytes] | None = None
        self._table = data_sets.available()
        self.names = Field(
            "Data (rows × inputs)", None, self._choose_name, _groups(self._table, {}), heading=True, hint=HINT
        )
        self.adopt(spec)
        self.upload = FileUpload(
            show_message, CAP,
            **named(
                f"Your own table (at most {CAP // 10**6} MB)", "CSV, Parquet or NPZ with a header and numeric columns"
            ),
            accept=ACCEPT, variant="outlined",
            sizing_mode="stretch_width", margin=(2, 10),
        )  # fmt: skip
        self.upload.param.watch(self._read_upload, "value")
        self._make_column_picker()
        self.columns = pn.Column(
            self.file_summary, self.target, self.inputs, self.use, visible=False, sizing_mode="stretch_width"
        )
        self.note = pn.pane.HTML("", margin=(0, 12), sizing_mode="stretch_width", stylesheets=[TEXT])
        self._layout = pn.Column(self.names, self.note, self.upload, self.columns, sizing_mode="stretch_width")

    def _make_column_picker(self) -> None:
        wide = {"sizing_mode": "stretch_width", "margin": (6, 10)}
        self.file_summary = pn.pane.HTML("", margin=(0, 14), sizing_mode="stretch_width")
        self.target = pmui.Select(label="Column to predict", options=[], size="small", **wide)
        self.inputs = pmui.MultiSelect(label="Input columns", options=[], size=6, **wide)
        self.target.param.watch(self._update_inputs, "value")
        self.use = pmui.Button(
            label="Use these columns", color="primary", variant="outlined", on_click=self._use_columns,
            sizing_mode="stretch_width", margin=(6, 10),
        )  # fmt: skip

    def describe(self, rows: int, test_rows: int, inputs: int, notes: tuple[str, ...]) -> None:
        """Show the size of the open data, and the notes on them: in the hint for data that have a name."""
        line = f"{rows:,} training rows, {test_rows:,} test rows, {inputs} input{'s' if inputs > 1 else ''}."
        own = "" if self.names.value else "".join(f"<br>{text(note)}" for note in notes[:4])
        self.note.object = f'<span class="hint">{line}{own}</span>'
        self.names.hint = " ".join([*notes[:4], HINT])

    def adopt(self, spec: Spec) -> None:
        """Show the data of this spec without calling `on_choose`."""
        data = {"name": spec.data} if isinstance(spec.data, str) else spec.data
        groups = _groups(self._table, data)
        names = {name for group in groups.values() for name in group.values()}
        self.names.choose_from(groups, data["name"] if data.get("name") in names else None)

    def _choose_name(self) -> None:
        self._on_choose(self.names.value, None)

    async def _read_upload(self, event: Any) -> None:
        if not event.new:
            return
        name, data = str(self.upload.filename or "upload.csv"), event.new
        self._file, self.columns.visible = None, False
        self._show_busy("Reading the columns of your file …")
        try:
            preview = await asyncio.to_thread(data_sets.preview, name, data)
        except Exception as error:
            self._show_message(sentence(error, "your file was being read"))
        else:
            self._file = (name, data)
            self._show_columns(name, preview)
        finally:
            self._show_busy("")

    def _show_columns(self, name: str, preview: data_sets.Preview) -> None:
        """Fill the column picker with the columns of the file."""
        numbers = list(preview.numbers)
        size = f"{preview.rows:,} rows, {len(preview.columns):,} columns"
        self.file_summary.object = f'<span style="font-size:12px"><b>{text(name, 80)}</b>: {size}</span>'
        self.target.param.update(options=numbers, value=preview.target)
        self._update_inputs(None)
        self.columns.visible = True

    def _update_inputs(self, _: Any) -> None:
        others = [column for column in self.target.options if column != self.target.value]
        self.inputs.param.update(options=others, value=others)

    def _use_columns(self, _: Any) -> None:
        """Open the chosen columns; the player's thread has the file read by a child process with limits."""
        if self._file is None:
            return
        name, data = self._file
        choice = data_sets.Choice(target=self.target.value, inputs=tuple(self.inputs.value))
        self.names.value = None
        entries = {"target": choice.target, "inputs": list(choice.inputs or ())}
        self._on_choose(
            {"name": "upload", "file": PurePosixPath(name).name, **entries},
            lambda split: data_sets.read_upload(name, data, choice, split),
        )

    def __panel__(self) -> Any:
        return self._layout


def _groups(table: pd.DataFrame, open_data: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return {source: {label: name}} of all data sets; the label of the open set shows the size that is open."""
    groups: dict[str, dict[str, str]] = {"Generated from a formula": {}, "On this machine": {}, "To download": {}}
    for name, row in table.iterrows():
        group = 0 if row["source"] == "generator" else 1 if row["cached"] else 2
        sizes = {letter: row[letter] for letter in ("n", "d")}
        if open_data.get("name") == name:
            sizes |= {letter: open_data[letter] for letter in sizes if isinstance(open_data.get(letter), int)}
        inputs = "molecules" if pd.isna(sizes["d"]) else f"× {int(sizes['d'])}"
        groups[list(groups)[group]][f"{name} · {int(sizes['n']):,} {inputs}"] = str(name)
    return {title: group for title, group in groups.items() if group}
