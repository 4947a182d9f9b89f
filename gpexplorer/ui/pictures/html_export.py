"""The pictures on the screen as one HTML file that needs no server and no network.

It stands apart because it makes a file: it has no session and no widget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.embed import components
from bokeh.util.paths import bokehjs_path
from jinja2 import Template

from ...runs import Spec
from ...views import View
from ...views.drawing.live import Live
from ..playback.open_run import Layers
from ..playback.status import CSS as STATUS_CSS
from ..text import text

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
    figures = [_figure(view, layers, theme) for view, layers in pictures]
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
        footer=f"<h2>Spec</h2><pre>{text(spec.to_json(), 20_000)}</pre>",
    )


def written(note: str) -> str:
    """Return the markup of a person's note, one paragraph per line."""
    return "".join(f"<p><i>{text(line, 2000)}</i></p>" for line in note.splitlines() if line.strip())


def _figure(view: View, layers: Layers, theme: str) -> Any:
    """A new figure of this view: the figure on the page belongs to the page's document."""
    figure = Live(view, {name: frame.copy() for name, frame in layers.items()}, theme).figure
    figure.update(sizing_mode="stretch_width", height=HEIGHT, max_width=WIDTH, output_backend="canvas")
    return figure
