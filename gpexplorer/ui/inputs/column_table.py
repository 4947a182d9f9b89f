"""The list of the columns of a file: what each contains, whether it is an input, and a box that searches among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import param
from panel.custom import JSComponent


class ColumnLine(NamedTuple):
    """One line of the list.

    Attributes
    ----------
    name
        The column.
    kind
        What it contains, in a word or two.
    remark
        What to know of it; empty if there is nothing.
    cells
        Its first cells.
    use
        Whether it is ticked at first.
    usable
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
    on_change
        Called without arguments after a person ticked a column.
    **params
        Parameters of a component.
    """

    lines = param.List(default=[], doc="Lines, each [name, kind, remark, cells, usable].")
    ticked = param.List(default=[], doc="Numbers of the ticked lines.")
    target = param.Integer(-1, doc="Number of the line that is predicted; it cannot be ticked.")
    group = param.Integer(-1, doc="Number of the line that names the group of each row; it cannot be ticked.")

    _esm = """
    export function render({ model, el }) {
      const create = (tag, props = {}, ...children) => {
        const element = Object.assign(document.createElement(tag), props)
        element.append(...children)
        return element
      }
      const search = create("input", { type: "search", placeholder: "Search columns" })
      search.setAttribute("aria-label", "Search columns")
      const all = create("button", { type: "button", textContent: "Tick all" })
      const none = create("button", { type: "button", textContent: "Untick all" })
      const list = create("div", { className: "list" })
      list.setAttribute("role", "group")
      list.setAttribute("aria-label", "Input columns")
      const count = create("span", { className: "count" })
      el.append(create("div", { className: "top" }, search, all, none), list, count)
      let rows = []

      const shown = (index) => !rows[index].hidden && !rows[index].querySelector("input").disabled
      const send = (indices, use) => model.send_msg(indices.map((index) => [index, use]))
      const several = (use) => send(rows.map((_, index) => index).filter(shown), use)
      all.onclick = () => several(true)
      none.onclick = () => several(false)
      search.oninput = () => {
        const wanted = search.value.trim().toLowerCase()
        rows.forEach((row, index) => { row.hidden = !model.lines[index][0].toLowerCase().includes(wanted) })
      }
      const fill = () => {
        rows = model.lines.map(([name, kind, remark, cells, usable], index) => {
          const box = create("input", { type: "checkbox", onchange: () => send([index], box.checked) })
          const words = create("span", { className: "words" },
            create("b", { textContent: name }), create("i", { textContent: kind }),
            create("small", { textContent: remark }), create("code", { textContent: cells }))
          box.setAttribute("aria-label", name)
          return create("label", {}, box, words)
        })
        list.replaceChildren(...rows)
        search.oninput()
        show()
      }
      const show = () => {
        const ticked = new Set(model.ticked)
        rows.forEach((row, index) => {
          const box = row.querySelector("input")
          box.checked = ticked.has(index)
          box.disabled = index === model.target || index === model.group || !model.lines[index][4]
          row.classList.toggle("target", index === model.target)
          row.classList.toggle("group", index === model.group)
        })
        count.textContent = `${ticked.size} of ${rows.length} columns are inputs`
      }
      fill()
      model.on("lines", fill)
      for (const name of ["ticked", "target", "group"]) model.on(name, show)
    }
    """
    _stylesheets: ClassVar[list[str]] = [
        """
        :host { color: inherit; font-size: 13px; --ink: var(--mui-palette-text-primary, #22303c);
                --accent: var(--mui-palette-primary-main, #0b6e99);
                --paper: var(--mui-palette-background-paper, #fff); }
        .top { display: flex; gap: 6px; margin-bottom: 4px; }
        input[type=search] { flex: 1 1 90px; min-width: 0; height: 26px; font: inherit; padding: 0 6px;
            box-sizing: border-box; color: var(--ink); background: var(--paper); border: 1px solid #7d8894;
            border-radius: 6px; }
        button { flex: none; border: 0; background: none; color: var(--accent); font: inherit; cursor: pointer;
                 padding: 0 2px; min-height: 24px; }
        .list { max-height: 290px; overflow-y: auto; border: 1px solid rgba(127, 140, 153, .5); border-radius: 6px;
                color: var(--ink); background: var(--paper); }
        label { display: flex; gap: 6px; padding: 4px 6px; align-items: flex-start; cursor: pointer;
                border-bottom: 1px solid rgba(127, 140, 153, .25); }
        label[hidden] { display: none; }
        label input { width: 16px; height: 16px; margin: 1px 0 0; flex: none; accent-color: var(--accent); }
        .words { min-width: 0; display: flex; flex-wrap: wrap; column-gap: 8px; line-height: 1.3; }
        b { font-weight: 600; overflow-wrap: anywhere; } i { font-style: normal; opacity: .8; }
        small { font-size: 12px; flex-basis: 100%; } small:empty { display: none; }
        code { font: 11.5px ui-monospace, Menlo, monospace; flex-basis: 100%; opacity: .8; overflow: hidden;
               text-overflow: ellipsis; white-space: nowrap; }
        .target b::after { content: " (predicted)"; color: var(--accent); font-weight: 400; }
        .group b::after { content: " (the group of each row)"; color: var(--accent); font-weight: 400; }
        .count { font-size: 12px; color: var(--ink); opacity: .8; }
        :disabled { opacity: .45; }
        button:focus-visible, input:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
        """
    ]

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
