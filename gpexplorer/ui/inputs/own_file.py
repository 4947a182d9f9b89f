"""A file of one's own: its upload, a searchable list of its columns, and the choice of target and inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, ClassVar

import panel as pn
import param
from panel.custom import JSComponent

from ... import data as data_sets
from ...data.quoting import display_name, what_is_seen
from ...kernels.composites import quoted_name
from ..browser.callbacks import change, work_in_thread
from ..browser.components import is_index
from ..styles import SHEET, beside
from ..text import named, text
from ..widgets import WIDE, FileUpload, WithLayout, button, column, hidden_column, line_of_text, row
from .field import Field


class ColumnTable(JSComponent):
    """A list of columns with a tick for each input.

    The browser sends which lines were ticked; this is checked here.
    """

    lines = param.List(default=[], doc="Lines, each [name, kind, remark, cells, usable].")
    ticked = param.List(default=[], doc="Numbers of the ticked lines.")
    target = param.Integer(-1, doc="Number of the line that is predicted; it cannot be ticked.")
    group = param.Integer(-1, doc="Number of the line that names the group of each row; it cannot be ticked.")

    _esm = beside(__file__, "column_table.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "column_table.css")]

    def __init__(self) -> None:
        super().__init__(margin=(3, 12), sizing_mode="stretch_width")
        self._names, self._usable = list[str](), list[bool]()  # of `lines`, which a browser can set to anything
        self._used: set[int] = set()

    def offer(self, lines: Sequence[list[Any]], used: Collection[int], target: str) -> None:
        """Show these lines, of which some are ticked at first and one is the target."""
        self._names, self._usable = [name for name, *_ in lines], [usable for *_, usable in lines]
        self._used = set(used)
        self.param.update(lines=list(lines), target=self._index(target), group=-1)
        self.ticked = self._inputs

    def choose(self, **columns: str) -> None:
        """Say which column is the `target`, or names the `group` of each row; "" for none."""
        self.param.update(**{role: self._index(name) for role, name in columns.items()})
        self.ticked = self._inputs

    def untick(self, names: Collection[str]) -> None:
        """Take these columns out of the inputs."""
        self._used -= {self._index(name) for name in names}
        self.ticked = self._inputs

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the ticked columns, in the order of the file."""
        return tuple(self._names[index] for index in self._inputs)

    @property
    def _inputs(self) -> list[int]:
        return sorted(self._used - {self.target, self.group})

    def _index(self, name: str) -> int:
        return self._names.index(name) if name in self._names else -1

    def _handle_msg(self, msg: Any) -> None:
        """Take ticks from the browser, if they are for columns that can be ticked."""
        for pair in msg if isinstance(msg, list) else []:
            match pair:
                case [index, True] if is_index(index, len(self._names)) and self._usable[index]:
                    self._used.add(index)
                case [index, bool()] if is_index(index, len(self._names)):
                    self._used.discard(index)
        self.ticked = self._inputs
        self.param.trigger("ticked")


CAP = data_sets.UPLOAD.file_bytes
CELLS = 3  # of each column in the list
MOLECULES, NUMBERS = "molecules", "se-ard"  # the kernels of SMILES, and of the numbers beside them
KINDS = {"decimal comma": "number, decimal comma", "levels": "text", "SMILES": "molecule (SMILES)"}  # else the same
UPLOAD_HINT = "CSV, Parquet or NPZ; texts, dates and gaps can be used"
USABLE = ("number", "decimal comma", "date", "levels", "SMILES")
ALONE = "None: each row stands for itself"  # the choice of no column of groups
GROUPS_HINT = (
    "Choose the column that says which rows belong together, such as the patient, the batch or the place. Where rows "
    "are held out to judge a model, those with the same value are held out together: otherwise a model is judged on "
    "patients that it has seen, and looks better than it is. The column is then no input."
)
CHOOSE_HINT = "which column of the file is predicted, and which ones are inputs."
MISSING = {"Fill them in": "fill", "Leave these rows out": "drop"}


@dataclass(frozen=True, eq=False)
class FileRows:
    """The chosen columns of an uploaded file, which a child process with limits reads for each split.

    Attributes
    ----------
    name : str
        Name of the file.
    data : bytes
        Its contents.
    choice : Choice
        The columns.
    """

    name: str
    data: bytes
    choice: data_sets.Choice

    def __call__(self, split: Any, groups: str = "") -> data_sets.Split:
        """Read the rows; with a column of groups, which is then no input."""
        choice = self.choice
        if groups:
            roles = {role: getattr(choice, role) or () for role in ("inputs", "encode", "dates", "texts")}
            others = {role: tuple(c for c in columns if c != groups) for role, columns in roles.items()}
            choice = replace(choice, groups=groups, **others)
        return data_sets.read_upload(self.name, self.data, choice, split)


class OwnFile(WithLayout):
    """The upload of a file, which stands in the sidebar, and its column picker, which uses the width of the page.

    Parameters
    ----------
    on_choose : called with (data, read, kernel): the data of a spec, a function of the split that reads it, and the key
        of the kernel that the inputs need, or "" for any kernel of numbers.
    show_error : callable
        Called with a sentence when a file cannot be used, and with "" when the next one is read.
    show_busy : callable
        Called with a sentence while a file is being read, and with "" afterwards.

    Attributes
    ----------
    picker : Column
        The columns of the file, with the button that uses them.
    again : Button
        Shows the picker, as a file that was read does.
    """

    def __init__(
        self,
        on_choose: Callable[[dict[str, Any], Callable[[Any], Any], str], None],
        show_error: Callable[[str], None],
        show_busy: Callable[[str], None],
    ) -> None:
        self._on_choose, self._show_error, self._show_busy = on_choose, show_error, show_busy
        self._file: tuple[str, bytes] | None = None
        self._read_as: dict[str, str] = {}  # the kinds of columns that were asked for
        self._about: dict[str, Any] = {}  # column -> what the preview says of it
        # Any file can be chosen: one that cannot be read gets a sentence, and the browser would drop it without a word.
        style = {"variant": "outlined", "sizing_mode": "stretch_width", "margin": (2, 10)}
        words = named(f"Your own table (at most {CAP // 10**6} MB)", UPLOAD_HINT)
        self.upload = FileUpload(self._refuse, CAP, **words, **style)
        self.upload.param.watch(self._read_upload, "value")
        look = {**WIDE, "margin": (3, 10), "visible": False}
        self.again = button("Choose columns", "view_column", self._show, CHOOSE_HINT, **look)
        self.summary = line_of_text(margin=(2, 12))
        narrow = {"sizing_mode": None, "width": 240}
        self.target = Field("Column to predict", None, self._change_target, {}, **narrow)
        self.columns = ColumnTable()
        self.groups = Field(
            "Rows that belong together", "", self._change_group, {ALONE: ""}, hint=GROUPS_HINT, **narrow
        )
        hint = (
            "A number or date is filled in with the median of all rows of its column; a missing text is a text of its "
            "own. Rows without a target are always left out."
        )
        self.missing = Field("Missing values", "fill", lambda: None, MISSING, hint=hint, **narrow)
        hint = "Without it, a comma may separate thousands, and the file is refused."
        self.decimal = Field("Decimal commas: 3,5 is 3.5", True, lambda: None, hint=hint, **narrow)
        self.use = button("Use these columns", "", self._use_columns, variant="contained")
        self.hide = button("Close", "", self._hide, "leave the rows on the page as they are.", variant="text")
        fields = row(self.target, self.groups, self.missing, self.decimal, self.use, self.hide, align_items="end")
        self.picker = hidden_column(self.summary, fields, self.columns, margin=(4, 8), stylesheets=[SHEET])
        self._layout = column(self.upload, self.again, margin=0)

    def choice(self) -> data_sets.Choice:
        """The columns as they are ticked now."""
        ticked, kinds = self.columns.inputs, ("SMILES", "levels", "date")
        molecules, words, dates = (tuple(c for c in ticked if self._about[c].kind == kind) for kind in kinds)
        inputs = tuple(name for name in ticked if name not in molecules)
        column_roles: dict[str, Any] = {"inputs": inputs, "encode": words, "dates": dates, "texts": molecules}
        if len(molecules) == 1 and not inputs:
            column_roles = {"objects": molecules[0]}
        target = str(self.target.value)
        commas = self.decimal.value and not self._with_commas.isdisjoint((*inputs, target))
        return data_sets.Choice(
            target=target,
            missing=self.missing.value if self._has_gaps else None,
            decimal="," if commas else ".",
            groups=self.groups.value or None,
            kinds=tuple((name, kind) for name, kind in self._read_as.items() if name in (*inputs, target)),
            **column_roles,
        )

    def offer(self, name: str, data: bytes, preview: data_sets.Preview) -> None:
        """Fill the column picker with the columns of this file."""
        self._file, self._read_as = (name, data), {}
        self._about = dict(zip(preview.columns, preview.about, strict=True))
        notes = "".join(f"<br>{text(what_is_seen(note), 160)}" for note in preview.notes[:3])
        self.summary.object = (
            f"<b>{text(name, 80)}</b>: {preview.rows:,} rows, {len(preview.columns):,} columns"
            f'<span class="hint">{notes}</span>'
        )
        self.target.choose_from({column: column for column in preview.numbers}, preview.target)
        self.columns.offer(_lines(preview), self._first_inputs(preview.target), preview.target)
        self._offer_groups("")
        self.missing.value = "fill"
        # A column such as 3,50 that cannot have thousands says how the whole file writes its decimals.
        self.decimal.visible = bool(self._with_commas)
        self.decimal.value = any(note.certain and note.kind == "decimal comma" for note in preview.about)
        self.again.visible = True
        self.again.clicks += 1  # as a press of it, which also closes the drawer of a narrow page

    def choose_again(self, drop: Sequence[str] = (), kinds: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Open the file without the columns from which some inputs are made, and read columns as other kinds.

        Returns
        -------
        bool
            Whether it could be done: the columns are there, and an input is left.
        """
        ticked, ends = self.columns.inputs, (" = ", ": ", " is missing")
        sources = {c for c in ticked for name in drop if name == c or name.startswith(tuple(c + end for end in ends))}
        known = all(name in self._about for name in kinds) and (bool(kinds) or bool(sources))
        if self._file is None or not known or len(sources) == len(ticked):
            return False
        self.columns.untick(sources)
        self._read_as |= kinds
        self._use_columns()
        return True

    def _show(self) -> None:
        self.picker.visible = self._file is not None

    def _hide(self) -> None:
        self.picker.visible = False

    @property
    def _with_commas(self) -> set[str]:
        """The columns whose commas are decimal ones, or may be."""
        return {name for name, note in self._about.items() if note.kind == "decimal comma" or not note.certain}

    @property
    def _has_gaps(self) -> bool:
        group = self.groups.value
        return any(note.missing and (note.kind in USABLE or name == group) for name, note in self._about.items())

    def _first_inputs(self, target: str) -> list[int]:
        """The columns that are ticked at first. The first molecules are ticked only where nothing else can be."""
        notes = list(self._about.values())
        kinds = [note.kind for note in notes]
        used = [k for k, note in enumerate(notes) if note.use]
        others = [k for k in used if kinds[k] in USABLE and list(self._about)[k] != target]
        return used if others or "SMILES" not in kinds else [*used, kinds.index("SMILES")]

    async def _read_upload(self, event: Any) -> None:
        if not event.new:
            return
        name, data = str(self.upload.filename or "upload.csv"), event.new
        self._forget()
        self._show_error("")
        self._show_busy(f"Opening {display_name(name)} …")
        document = pn.state.curdoc
        read, offer = partial(data_sets.preview, name, data), partial(self.offer, name, data)
        await work_in_thread(read, offer, self._refuse, "your file was being read")
        change(document, lambda: self._show_busy(""))

    def _refuse(self, message: str) -> None:
        """Show why a file cannot be used, and hide the columns of the file before it."""
        self._forget()
        self._show_error(message)

    def _forget(self) -> None:
        self._file, self.picker.visible, self.again.visible = None, False, False

    def _change_target(self) -> None:
        target, group = str(self.target.value), str(self.groups.value)
        self.columns.choose(target=target)
        self._offer_groups("" if group == target else group)

    def _offer_groups(self, group: str) -> None:
        """Offer every column with values but the target as the one of groups, and choose this one."""
        target = self.target.value
        possible = {name: name for name, note in self._about.items() if name != target and note.kind != "empty"}
        self.groups.choose_from({"": {ALONE: ""}, "Columns": possible}, group)
        self._change_group()

    def _change_group(self) -> None:
        self.columns.choose(group=str(self.groups.value))
        self.missing.visible = self._has_gaps

    def _use_columns(self) -> None:
        """Open the chosen columns; the player's thread has the file read."""
        if self._file is None:
            return
        name, data = self._file
        choice = self.choice()
        if not choice.inputs and not choice.objects and not choice.texts:
            self._show_error("No column is ticked: tick at least one input.")
            return
        file_name = PurePosixPath(name).name
        entries = {key: list(value) if isinstance(value, tuple) else value for key, value in choice.identity.items()}
        given_entries = {key: value for key, value in entries.items() if value and value != "refuse"}
        self._hide()
        self._on_choose(
            {"name": "upload", "file": file_name, **given_entries}, FileRows(name, data, choice), kernel_for(choice)
        )


def _lines(preview: data_sets.Preview) -> list[list[Any]]:
    """The lines of the list, as `ColumnTable` shows them."""
    columns = list(zip(*preview.head[:CELLS], strict=True)) or [()] * len(preview.columns)
    cells = [" · ".join(filter(str.strip, first_cells)) for first_cells in columns]
    return [
        [name, KINDS.get(note.kind, note.kind), note.remark, written, note.kind in USABLE]
        for name, note, written in zip(preview.columns, preview.about, cells, strict=True)
    ]


def kernel_for(choice: data_sets.Choice) -> str:
    """The kernel that these columns need: of molecules, of numbers and molecules, or "" for any kernel of numbers."""
    if choice.objects:
        return MOLECULES
    molecule_kernels = [f"{MOLECULES}[{quoted_name(name)}]" for name in choice.texts]
    return "+".join([NUMBERS, *molecule_kernels] if choice.inputs else molecule_kernels) if molecule_kernels else ""
