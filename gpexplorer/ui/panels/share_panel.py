"""The share panel: a link to the current screen, the program that reproduces it, and files of the results.

One of the files has the pictures on the screen, and needs no server and no network.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import panel as pn
import panel_material_ui as pmui
from bokeh.embed import components
from bokeh.util.paths import bokehjs_path
from jinja2 import Template

from ... import data as data_sets
from ...errors import DataError, GPExplorerError, SettingError
from ...runs import Spec
from ...runs import code as programs
from ...runs import link as links
from ...runs.spec import LARGEST
from ...runs.store import LONGEST_NOTE
from ...views import View
from ...views.drawing.live import Live
from ...views.saved_page.page_file import page_of
from ..address import HIDE, full_address
from ..browser.callbacks import change
from ..browser.components import CopyButton
from ..playback.open_run import Layers
from ..playback.status import CSS as STATUS_CSS
from ..playback.trained_run import TrainedRun
from ..session import Screen, Session
from ..text import cut, escaped, named, sentence, text
from ..widgets import WIDE, FileUpload, column, download, line_of_text, row, watch
from .study_panel import StudyPanel

NOTE_HELP = (  # without a store, with a store
    "Shown in Compare while this page is open, and written into the notebook and the pictures.",
    "Shown in Compare, written into the notebook and the pictures, and stored when the run is kept.",
)
LINK_HELP = (
    "The link writes every setting, so it opens the same in later versions. The address of this page is shorter: it "
    "leaves out what is at its default."
)
ONE_AT_A_TIME = asyncio.Semaphore(1)  # a page of many steps takes some seconds of one core
CODE = "font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace;white-space:pre;overflow-x:auto;margin:0"


class SharePanel(StudyPanel):
    """Link, program, note and files of the run that `session` shows.

    Parameters
    ----------
    session : Session
        The session.
    sheet : callable
        Returns the pictures on the screen as HTML, given the note.
    pictures : callable, optional
        Returns the keys of the pictures on the screen, with the options of each.
    """

    def __init__(
        self, session: Session, sheet: Callable[[str], str], pictures: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        super().__init__(session)
        self._notes, self._pictures = session.notes, pictures
        self._screen: Screen | None = None
        field = {**WIDE, "size": "small", "margin": (8, 10)}
        self.link = pmui.TextInput(label="Link to this screen", description=LINK_HELP, **field)
        self.refusal = line_of_text(margin=(8, 12))  # why there is no link
        self.copy_link, self.copy_code = (CopyButton(what=what, margin=(8, 12)) for what in ("the link", "the program"))
        hidden = {title: key for key, title in HIDE.items()}
        self.hide = pmui.CheckBoxGroup(label="Hide for a lecture", options=hidden, inline=True, margin=(0, 10))
        watch(self._write_link, self.hide)
        self.code = line_of_text(margin=(4, 12), styles=[])
        hint = NOTE_HELP[self._notes.store is not None]
        self.own_note = pmui.TextAreaInput(
            label="Note on this run", rows=2, max_length=LONGEST_NOTE, description=hint, **field
        )
        self.own_note.param.watch(lambda event: self._notes.write(self._session.screen.key, event.new), "value")
        hint = named("Open a spec.json", "open the run that the file describes.")
        self.spec_file = FileUpload(self.say, LARGEST, **hint, variant="outlined", margin=(4, 6))
        self.spec_file.param.watch(self._open_spec, "value")
        hint = "one HTML file that plays the run without a server or a network."
        self.page = download("run.html", self._page, "Save as a page", hint)
        files: dict[str, Callable[[], str | bytes]] = {
            "program.py": self._program,
            "notebook.ipynb": self._notebook,
            "pictures.html": lambda: sheet(self.own_note.value),
            "spec.json": self._json,
            "steps.csv": lambda: session.table().to_csv(index=False),
            "steps.parquet": lambda: session.table().to_parquet(index=False),
        }
        self._files = [self.page, *(download(name, make) for name, make in files.items())]
        self.downloads = row(*self._files, self.spec_file)
        parts = [self.hide, self.own_note, self.downloads, self.note, self.copy_code, self.code]
        self._linked = pn.Row(self.link, self.copy_link, **WIDE)
        self._layout = column(self._linked, self.refusal, *parts)

    def update(self) -> None:
        """Show the link and the program of the current step, unless a person's clicks led to it."""
        screen, missing = self._session.screen, self._session.missing_run
        self.require(missing, *self._files)
        if screen == self._screen or (missing and not screen.key):
            return
        if self._screen is None or screen.key != self._screen.key:
            self.own_note.value = self._notes.of(screen.key)
        self._screen = screen
        if screen.by_hand:
            self._show_link("")
            self.copy_code.copied = ""
            self.code.object = "A click or a drag led to this step, which no program can repeat. Press Undo first."
            return
        self._write_link()
        self.copy_code.copied = program = self._program()
        self.code.object = f'<div style="{CODE}">{escaped(cut(program, 4000))}</div>'

    def _open_spec(self, event: Any) -> None:
        """Open the spec of an uploaded file; it is checked first, and its data must be known by name."""
        if not event.new:
            return
        try:
            spec = Spec.from_json(event.new)
            if not data_sets.is_named(spec.data):
                raise DataError(
                    "The data of this spec came from memory or from a file. Open them first, then choose the method."
                )
        except GPExplorerError as error:
            self.say(str(error))
            return
        self.say("")
        self._session.choose(spec)

    def _write_link(self) -> None:
        screen = self._session.screen
        hidden = "&hide=" + ",".join(self.hide.value) if self.hide.value else ""
        try:
            self._show_link(full_address("?" + links.write(screen.spec, screen.view, screen.step) + hidden))
        except GPExplorerError as error:
            self._show_link("", str(error))

    def _show_link(self, address: str, refusal: str = "") -> None:
        """Show the link, or a sentence that says why there is none, which a field of one line would cut."""
        self.link.value = self.copy_link.copied = address
        self.refusal.object = text(refusal, 400)
        self.refusal.visible, self._linked.visible = bool(refusal), not refusal

    async def _page(self) -> io.BytesIO:
        """The run up to its newest step as a page that plays by itself; where that fails, a page that says why."""
        run, document = self._session.run, pn.state.curdoc
        message = ""
        self.say("The pictures of all steps are being drawn. The page is saved when they are done.")
        try:
            if run is None:
                raise SettingError("No run is open: choose rows and a method first.")
            async with ONE_AT_A_TIME:
                content = await asyncio.to_thread(page_of, run.fork(), self._pictures())
        except Exception as error:
            message = sentence(error, "the page was being written")
            content = f"<p>{text(message)}</p>"
        change(document, lambda: self.say(message))
        return io.BytesIO(content.encode())

    @property
    def _is_answer(self) -> bool:
        """Whether a trained answer is shown, which no spec repeats."""
        run = self._session.run
        return isinstance(run, TrainedRun) and self._session.screen.step == run.answered_at

    def _program(self) -> str:
        screen = self._session.screen
        return programs.SAVED_MODEL if self._is_answer else programs.program(screen.spec, screen.step)

    def _notebook(self) -> str:
        screen, note = self._session.screen, self.own_note.value
        if self._is_answer:
            return programs.notebook_of_saved_model(note)
        return programs.notebook(screen.spec, screen.step, note=note)

    def _json(self) -> str:
        return self._session.screen.spec.to_json()


WIDTH, HEIGHT = 720, 380  # pixels of a picture
PAGE_CSS = """
body { font-family: system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; max-width: 760px; margin: 32px auto;
       padding: 0 16px; color: #22303c; background: #ffffff }
body.dark { color: #dfe6ec; background: #1c2229 }
h2 { font-size: 15px; margin: 28px 0 0 } p, pre, .facts { margin: 12px 0 } p { font-size: 13px; opacity: .8 }
pre { font-size: 12px; white-space: pre-wrap; overflow-wrap: anywhere }
"""
PAGE = Template(
    """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{{ css }}</style><script>{{ bokeh }}</script></head>
<body class="{{ theme }}">{{ heading }}
{% for caption, figure in pictures %}{{ caption }}{{ figure }}{% endfor %}
{{ footer }}{{ script }}</body></html>"""
)


def sheet(spec: Spec, heading: Sequence[str], pictures: Sequence[tuple[View, Layers]], theme: str) -> str:
    """Write pictures into one HTML document.

    Parameters
    ----------
    spec : Spec
        What was run; it is printed at the end.
    heading : sequence of str
        Markup to put above the pictures. It must be escaped already.
    pictures : sequence of tuple of View and Layers
        Views, each with the layers it shows.
    theme : str
        "light" or "dark".

    Returns
    -------
    str
        The document, about 1 MB, as it contains Bokeh's own program.
    """
    figures = [_figure(view, layers, theme, view.saved_as(spec.method)) for view, layers in pictures]
    captions = [f"<h2>{text(view.title)}</h2><p>{text(view.help)}</p>" for view, _ in pictures]
    script, elements = components(figures)
    return PAGE.render(
        title=f"gpexplorer: {spec.method}",
        css=STATUS_CSS + PAGE_CSS,
        theme=theme,
        heading="".join(heading),
        script=script,
        bokeh=(bokehjs_path() / "js" / "bokeh.min.js").read_text("utf-8"),
        pictures=list(zip(captions, elements, strict=True)),
        footer=f"<h2>Spec</h2><pre>{escaped(cut(spec.to_json(), 20_000))}</pre>",
    )


def written(note: str) -> str:
    """Return the markup of a person's note, one paragraph per line."""
    return "".join(f"<p><i>{text(line, 2000)}</i></p>" for line in note.splitlines() if line.strip())


def _figure(view: View, layers: Layers, theme: str, name: str) -> Any:
    """A new figure of this view: the figure on the page belongs to the page's document."""
    figure = Live(view, {name: frame.copy() for name, frame in layers.items()}, theme, name).figure
    figure.update(sizing_mode="stretch_width", height=HEIGHT, max_width=WIDTH, output_backend="canvas")
    return figure
