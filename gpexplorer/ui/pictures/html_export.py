"""The pictures on the screen as one HTML file that needs nothing else: no server, no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.embed import components
from bokeh.util.paths import bokehjs_path
from jinja2 import Template

from ...runs import Spec
from ...views.drawing.live import Live
from ..playback.open_run import Layers
from ..playback.status import CSS
from ..text.escape import text

WIDTH, HEIGHT = 720, 380
LOOK = """
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
<body class="{{ theme }}">{{ said }}
{% for head, figure in parts %}{{ head }}{{ figure }}{% endfor %}
{{ tail }}{{ script }}</body></html>"""
)


def sheet(spec: Spec, said: Sequence[str], drawn: Sequence[tuple[Any, Layers]], theme: str) -> str:
    """HTML of these views and their layers under what the page says (`said`: markup, escaped already)."""
    figures = [_figure(view, layers, theme) for view, layers in drawn]
    heads = [f"<h2>{text(view.title)}</h2><p>{text(view.help)}</p>" for view, _ in drawn]
    script, places = components(figures)
    return PAGE.render(
        title=f"gpexplorer: {spec.method}", css=CSS + LOOK, theme=theme, said="".join(said), script=script,
        bokeh=(bokehjs_path() / "js" / "bokeh.min.js").read_text("utf-8"), parts=list(zip(heads, places, strict=True)),
        tail=f"<h2>Spec</h2><pre>{text(spec.to_json(), 20_000)}</pre>",
    )  # fmt: skip


def written(note: str) -> str:
    """Markup of what a person wrote about the run, a paragraph a line."""
    return "".join(f"<p><i>{text(line, 2000)}</i></p>" for line in note.splitlines() if line.strip())


def _figure(view: Any, layers: Layers, theme: str) -> Any:
    """The view drawn again: a figure of the page belongs to its session."""
    figure = Live(view, {name: frame.copy() for name, frame in layers.items()}, theme).figure
    figure.update(sizing_mode="stretch_width", height=HEIGHT, max_width=WIDTH, output_backend="canvas")
    return figure
