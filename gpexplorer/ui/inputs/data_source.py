"""The data of the sidebar: a data set by name, or a file of one's own.

Apart because the other controls are about a run, and know nothing of the list of data sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from ... import data as data_sets
from ...data.quoting import what_is_seen
from ...data.sets.generators import GENERATORS
from ...runs import Spec
from ..text import text, with_minus_signs
from ..widgets import WithLayout, column, line_of_text
from .field import Field
from .own_file import MOLECULES, OwnFile

OWN = "upload"  # the entry of the list that is a file of one's own
HINT = "Public sets are downloaded once, checked against their checksum, and cached."


class DataSource(WithLayout):
    """The data of a spec, and the widgets to choose other data.

    Parameters
    ----------
    spec : Spec
        The spec whose data are shown first.
    on_choose : called with the data of a spec, and None or, for an upload, a function of the split
        that reads it and the kernel that its inputs need, or "".
    show_message : callable
        Called with a sentence when a file cannot be read.
    show_busy : callable
        Called with a sentence while a file is being read, and with "" afterwards.

    Attributes
    ----------
    own : OwnFile
        The upload of a file, which has a place of its own.
    summary : str
        Name and number of training rows of what is open, "" before.
    """

    def __init__(
        self,
        spec: Spec,
        on_choose: Callable[..., None],
        show_message: Callable[[str], None],
        show_busy: Callable[[str], None],
    ) -> None:
        self._on_choose, self.summary = on_choose, ""
        self._opened: tuple[dict[str, Any], Callable[[Any], Any], str] | None = None  # the upload that was used last
        self._table = data_sets.available()
        self.names = Field(
            "Data (rows × inputs)", None, self._choose_name, _groups(self._table, {}), bare=True, hint=HINT
        )
        self.adopt(spec)
        self.own = OwnFile(self._choose_own, show_message, show_busy)
        self.note = line_of_text()
        self._layout = column(self.names, self.note, margin=0)

    def describe(self, rows: int, test_rows: int, inputs: int, notes: tuple[str, ...]) -> None:
        """Show the size of the open data, and the notes on them: in the hint for data that have a name."""
        line = f"{rows:,} training rows, {test_rows:,} test rows, {inputs} input{'s' if inputs > 1 else ''}."
        notes = tuple(map(what_is_seen, notes[:4]))
        note_lines = "" if self.names.value not in (None, OWN) else "".join(f"<br>{text(note)}" for note in notes)
        self.note.object = f'<span class="hint">{line}{note_lines}</span>'
        self.names.hint = with_minus_signs(" ".join([*notes, HINT]))
        self.summary = f"{self.names.chosen_label.rpartition(' · ')[0] or 'rows in memory'}, {rows:,} rows"

    def _describe_later(self) -> None:
        """Show no size: what is chosen is not open yet, and may be refused."""
        self.note.object = '<span class="hint">These rows are not open yet.</span>'
        self.summary = self.names.chosen_label.rpartition(" · ")[0] or "rows in memory"

    def adopt(self, spec: Spec, in_memory: bool = False) -> None:
        """Show the data of this spec, or none where rows in memory take their place, without calling `on_choose`."""
        data = {"name": spec.data} if isinstance(spec.data, str) else spec.data
        self._show({} if in_memory and "file" not in data else data)

    def open_own(self) -> bool:
        """Open the rows of the file that was used last; returns whether there are any."""
        if self._opened is not None:
            self._choose_own(*self._opened)
        return self._opened is not None

    def _choose_name(self) -> None:
        if not (self.names.value == OWN and self.open_own()):
            self._describe_later()
            self._on_choose(self.names.value, None, _kernel_for(self._table, str(self.names.value)))

    def _choose_own(self, data: dict[str, Any], read: Callable[[Any], Any], kernel: str) -> None:
        self._opened = (data, read, kernel)
        self._show(data)
        self._describe_later()
        self._on_choose(data, read, kernel)

    def _show(self, data: Mapping[str, Any]) -> None:
        """Show this entry of the list, in which an upload has the name of its file."""
        groups = _groups(self._table, data)
        if self._opened is not None:
            groups = {"Your file": {_file_label(self._opened[0]): OWN}, **groups}
        names = {name for group in groups.values() for name in group.values()}
        name = OWN if "file" in data and self._opened is not None else data.get("name")
        self.names.choose_from(groups, name if name in names else None)


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


def _kernel_for(table: pd.DataFrame, name: str) -> str:
    """The kernel that the rows of a data set need; "" for any kernel of numbers."""
    if name in GENERATORS:
        return GENERATORS[name].kernel
    return MOLECULES if name in table.index and pd.isna(table.loc[name, "d"]) else ""


def _file_label(data: Mapping[str, Any]) -> str:
    """The name of a file, and its inputs."""
    inputs = [*(data.get("inputs") or ()), *(data.get("texts") or ())] or [data.get("objects", "")]
    return f"{str(data['file'])[:60]} · {len(inputs)} column{'s' if len(inputs) > 1 else ''}"
