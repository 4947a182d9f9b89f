"""Take it with you: a link that opens the same screen, the program behind it, and files of what was computed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...errors import DataError, GPExplorerError
from ...runs import Spec
from ...runs import code as programs
from ...runs import link as links
from ...runs.spec import LARGEST
from ...runs.store import LONGEST_NOTE
from ..address import HIDE, address
from ..session import Screen, Session
from ..text.escape import text
from ..text.number_format import named

WHERE = (
    "Stands in Compare while this page is open, and in the files you take along.",
    "Stands in Compare, in the files you take along, and in the store once the run is kept.",
)
CODE = "font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace;white-space:pre;overflow-x:auto;margin:0"


class Share(pn.viewable.Viewer):
    """Links and files of what `session` shows; `sheet` gives its pictures, and a note, as HTML."""

    def __init__(self, session: Session, sheet: Callable[[str], str], **params: Any) -> None:
        super().__init__(**params)
        notes = session.notes
        self._session, self._notes = session, notes
        self._shown: Screen | None = None
        self.link = pmui.TextInput(
            label="Link to this screen", value="", sizing_mode="stretch_width", size="small", margin=(8, 10),
            description="Opens the same data, method, settings, seed, picture and step.",
        )  # fmt: skip
        self.hide = pmui.CheckBoxGroup(
            label="For a lecture, leave out", options={title: key for key, title in HIDE.items()}, inline=True,
            margin=(0, 10),
        )  # fmt: skip
        self.hide.param.watch(lambda _: self._write(), "value")
        self.code = pn.pane.HTML("", sizing_mode="stretch_width", margin=(4, 12))
        files = {
            "program.py": lambda: programs.program(self._session.screen.spec, self._session.screen.step),
            "notebook.ipynb": lambda: programs.notebook(
                self._session.screen.spec, self._session.screen.step, note=self.note.value
            ),
            "pictures.html": lambda: sheet(self.note.value),
            "spec.json": self._json,
            "steps.csv": lambda: self._session.table().to_csv(index=False),
            "steps.parquet": self._parquet,
        }
        self.note = pmui.TextAreaInput(
            label="Note on this run", value="", rows=2, max_length=LONGEST_NOTE, size="small", margin=(8, 10),
            sizing_mode="stretch_width", description=WHERE[notes.store is not None],
        )  # fmt: skip
        self.note.param.watch(lambda event: self._notes.write(self._session.screen.key, event.new), "value")
        self.again = pmui.FileInput(
            **named("Open a spec.json", "a run's spec, saved here or by a script, opened as it was."),
            accept=".json", max_file_size=LARGEST, variant="outlined", margin=(4, 6),
        )  # fmt: skip
        self.again.param.watch(self._opened, "value")
        self.wrong = pn.pane.HTML("", margin=(4, 12))
        self.downloads = pn.Row(*(_download(name, make) for name, make in files.items()), self.again)
        self._layout = pn.Column(
            self.link, self.hide, self.note, self.downloads, self.wrong, self.code, sizing_mode="stretch_width"
        )

    def update(self) -> None:
        """Show the link and the program of this step, unless a person's clicks led to it."""
        shown = self._session.screen
        if shown == self._shown:
            return
        if self._shown is None or shown.key != self._shown.key:
            self.note.value = self._notes.of(shown.key)
        self._shown = shown
        if shown.by_hand:
            self.link.value, self.code.object = "", "A click led to this step, which no program repeats; undo it first."
            return
        self._write()
        self.code.object = f'<div style="{CODE}">{text(programs.program(shown.spec, shown.step), 4000)}</div>'

    def _opened(self, event: Any) -> None:
        """A spec from a file is a stranger's: checked, and its data must be known here by name."""
        if not event.new:
            return
        try:
            spec = Spec.from_json(event.new)
            if not data_sets.is_named(spec.data):
                raise DataError("The spec's data were rows in memory or a file: open them first, then set the method.")
        except GPExplorerError as error:
            self.wrong.object = text(str(error))
            return
        self.wrong.object = ""
        self._session.choose(spec)

    def _write(self) -> None:
        shown = self._session.screen
        hidden = "&hide=" + ",".join(self.hide.value) if self.hide.value else ""
        try:
            self.link.value = address("?" + links.write(shown.spec, shown.view, shown.step) + hidden)
        except GPExplorerError as error:
            self.link.value = str(error)

    def set_theme(self, theme: str) -> None:
        """The page's own colours do."""

    def close(self) -> None:
        """There is nothing to end."""

    def _json(self) -> str:
        return self._session.screen.spec.to_json()

    def _parquet(self) -> bytes:
        held = io.BytesIO()
        self._session.table().to_parquet(held, index=False)
        return held.getvalue()

    def __panel__(self) -> Any:
        return self._layout


def _download(name: str, make: Callable[[], str | bytes]) -> pmui.FileDownload:
    def file() -> io.BytesIO:
        made = make()
        return io.BytesIO(made.encode() if isinstance(made, str) else made)

    return pmui.FileDownload(callback=file, filename=name, label=name, variant="outlined", size="small", margin=(4, 6))
