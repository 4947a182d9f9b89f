"""The columns of a file beside each other: what each contains, whether it is an input, and a box that searches them.

It stands apart because it is one component with a script of its own; what a file offers is decided in `own_file`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NamedTuple

import param
from panel.custom import JSComponent

from ..styles import beside


class ColumnLine(NamedTuple):
    """One line of the list.

    Attributes
    ----------
    name : str
        The column.
    kind : str
        What it contains, in a word or two.
    remark : str
        What to know of it; empty if there is nothing.
    cells : tuple of str
        Its first cells.
    use : bool
        Whether it is ticked at first.
    usable : bool
        Whether it can be ticked at all.
    """

    name: str
    kind: str
    remark: str
    cells: tuple[str, ...]
    use: bool
    usable: bool = True


class ColumnTable(JSComponent):
    """A list of columns with a tick for each input.

    The browser sends which lines were ticked; this is checked here.

    Parameters
    ----------
    on_change : callable, optional
        Called without arguments after a person ticked a column.
    **params : object
        Parameters of a component.
    """

    lines = param.List(default=[], doc="Lines, each [name, kind, remark, cells, usable].")
    ticked = param.List(default=[], doc="Numbers of the ticked lines.")
    target = param.Integer(-1, doc="Number of the line that is predicted; it cannot be ticked.")
    group = param.Integer(-1, doc="Number of the line that names the group of each row; it cannot be ticked.")

    _esm = beside(__file__, "column_table.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "column_table.css")]

    def __init__(self, on_change: Callable[[], None] = lambda: None, **params: Any) -> None:
        super().__init__(**{"margin": (3, 12), "sizing_mode": "stretch_width", **params})
        self._on_change = on_change
        self._lines: list[ColumnLine] = []
        self._used: set[int] = set()

    def offer(self, lines: Sequence[ColumnLine], target: str) -> None:
        """Show these columns, of which one is the target."""
        self._lines = list(lines)
        self._used = {index for index, line in enumerate(lines) if line.use}
        shown = [[line.name, line.kind, line.remark, " · ".join(line.cells), line.usable] for line in lines]
        self.param.update(lines=shown, target=self._index(target), group=-1)
        self.ticked = self._inputs

    def choose_target(self, target: str) -> None:
        """Say which column is predicted."""
        self.target = self._index(target)
        self.ticked = self._inputs

    def choose_group(self, column: str) -> None:
        """Say which column names the group of each row; "" for none."""
        self.group = self._index(column)
        self.ticked = self._inputs

    def untick(self, names: Collection[str]) -> None:
        """Take these columns out of the inputs."""
        self._used -= {index for index, line in enumerate(self._lines) if line.name in names}
        self.ticked = self._inputs

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the ticked columns, in the order of the file."""
        return tuple(self._lines[index].name for index in self._inputs)

    @property
    def _inputs(self) -> list[int]:
        return sorted(self._used - {self.target, self.group})

    def _index(self, name: str) -> int:
        return next((index for index, line in enumerate(self._lines) if line.name == name), -1)

    def _handle_msg(self, msg: Any) -> None:
        """Take ticks from the browser, if they are for columns that can be ticked."""
        pairs = msg if isinstance(msg, list) else []
        for pair in pairs:
            if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], bool)):
                continue
            index, use = pair
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(self._lines):
                continue
            self._tick(index, use)
        self.ticked = self._inputs
        self.param.trigger("ticked")
        self._on_change()

    def _tick(self, index: int, use: bool) -> None:
        """Tick or untick one line."""
        if use and self._lines[index].usable:
            self._used.add(index)
        else:
            self._used.discard(index)
