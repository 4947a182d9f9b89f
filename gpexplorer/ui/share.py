"""Take it with you: a link that opens the same screen, the program behind it, and files of what was computed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pandas as pd
import panel as pn
import panel_material_ui as pmui

from ..errors import GPExplorerError
from ..runs import Spec
from ..runs import code as programs
from ..runs import link as links
from ..runs.link import Link
from ..views.base import registry as pictures
from .escape import text

CODE = "font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace;white-space:pre;overflow-x:auto;margin:0"


class Shown(NamedTuple):
    """What is on the screen: a spec, the step and the picture looked at, and whether a person's clicks led there."""

    spec: Spec
    at: int = 0
    view: str = ""
    by_hand: bool = False


class Share(pn.viewable.Viewer):
    """`shown` says what is on the screen, `table` gives the open run's table."""

    def __init__(self, shown: Callable[[], Shown], table: Callable[[], pd.DataFrame], **params: Any) -> None:
        super().__init__(**params)
        self._look, self._table = shown, table
        self._shown: Shown | None = None
        self.link = pmui.TextInput(
            label="Link to this screen", value="", sizing_mode="stretch_width", size="small", margin=(8, 10),
            description="Opens the same data, method, settings, seed, picture and step.",
        )  # fmt: skip
        self.code = pn.pane.HTML("", sizing_mode="stretch_width", margin=(4, 12))
        files = {
            "program.py": lambda: programs.program(self._look().spec, self._look().at),
            "notebook.ipynb": lambda: programs.notebook(self._look().spec, self._look().at),
            "spec.json": self._json,
            "steps.csv": lambda: self._table().to_csv(index=False),
            "steps.parquet": self._parquet,
        }
        self.downloads = pmui.Row(*(_download(name, make) for name, make in files.items()))
        self._layout = pmui.Column(self.link, self.downloads, self.code, sizing_mode="stretch_width")

    def update(self) -> None:
        """Show the link and the program of this step, unless a person's clicks led to it."""
        shown = self._look()
        if shown == self._shown:
            return
        self._shown = shown
        if shown.by_hand:
            self.link.value, self.code.object = "", "A click led to this step, which no program repeats; undo it first."
            return
        try:
            self.link.value = address("?" + links.write(shown.spec, shown.view, shown.at))
        except GPExplorerError as error:
            self.link.value = str(error)
        self.code.object = f'<div style="{CODE}">{text(programs.program(shown.spec, shown.at), 4000)}</div>'

    def set_theme(self, theme: str) -> None:
        """The page's own colours do."""

    def close(self) -> None:
        """There is nothing to end."""

    def _json(self) -> str:
        return self._look().spec.to_json()

    def _parquet(self) -> bytes:
        held = io.BytesIO()
        self._table().to_parquet(held, index=False)
        return held.getvalue()

    def __panel__(self) -> Any:
        return self._layout


def address(query: str) -> str:
    """The page's own address with this query; the query alone where there is no page."""
    location = pn.state.location
    if location is None or not location.hostname:
        return query
    port = f":{location.port}" if location.port else ""
    return f"{location.protocol}//{location.hostname}{port}{location.pathname}{query}"


def asked(start: Spec) -> Link:
    """What the address of this session asks for; `start` where it asks for nothing."""
    document = pn.state.curdoc
    request = document.session_context.request if document is not None and document.session_context else None
    arguments = {
        name: [value.decode("utf-8", "replace") for value in values]
        for name, values in (request.arguments if request is not None else {}).items()
        if not name.startswith("bokeh-")
    }
    return links.read(urlencode(arguments, doseq=True), start, pictures)


def _download(name: str, make: Callable[[], str | bytes]) -> pmui.FileDownload:
    def file() -> io.BytesIO:
        made = make()
        return io.BytesIO(made.encode() if isinstance(made, str) else made)

    return pmui.FileDownload(callback=file, filename=name, label=name, variant="outlined", size="small", margin=(4, 6))
