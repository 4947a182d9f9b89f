"""A Bokeh figure as SVG, written without a browser: the picture that a saved notebook keeps.

It knows the marks that the pictures here are made of: lines, points, areas, segments, grids of values, spans and words.
Coordinates are rounded to a tenth of a pixel, so the same figure always gives the same bytes.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np
from bokeh.models import LogScale, Span

from .legend import entries

WIDTH, HEIGHT = 720, 320  # pixels
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 50, 46  # pixels around the frame; more on the left where numbers are long
NAME = 26  # pixels of the name of the vertical axis, from the left
MOST_MARKS = 1200  # of a layer with more points, evenly spaced ones are drawn
LETTER = 6.4  # pixels of the width of a letter, about
LINE = 13  # pixels from one line of words to the next
TEXT_COLOUR, LINE_COLOUR, GRID_COLOUR = "#22303c", "#c4ccd4", "#e8ecf0"
SHAPES: dict[str, Callable[[float], str]] = {
    "circle": lambda r: f"M{-r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0",
    "x": lambda r: f"M{-r:.1f} {-r:.1f}L{r:.1f} {r:.1f}M{-r:.1f} {r:.1f}L{r:.1f} {-r:.1f}",
    "cross": lambda r: f"M{-r:.1f} 0H{r:.1f}M0 {-r:.1f}V{r:.1f}",
    "triangle": lambda r: f"M0 {-r:.1f}L{r:.1f} {r:.1f}H{-r:.1f}Z",
    "inverted_triangle": lambda r: f"M0 {r:.1f}L{r:.1f} {-r:.1f}H{-r:.1f}Z",
    "diamond": lambda r: f"M0 {-r:.1f}L{r:.1f} 0L0 {r:.1f}L{-r:.1f} 0Z",
    "square": lambda r: f"M{-r:.1f} {-r:.1f}H{r:.1f}V{r:.1f}H{-r:.1f}Z",
    "star": lambda r: "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in STAR * r) + "Z",
}
_TURNS = np.arange(10) * np.pi / 5  # the five points of a star and the corners between them, from the top
STAR = np.column_stack([np.sin(_TURNS), -np.cos(_TURNS)]) * np.where(np.arange(10) % 2, 0.382, 1.0)[:, None]


def figure_svg(figure: Any, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Draw a figure.

    Parameters
    ----------
    figure : object
        The Bokeh figure, with ranges that have numbers at both ends.
    width, height : int, optional
        Size in pixels.

    Returns
    -------
    str
        SVG. Layers of other glyphs than those of the pictures here are left out.
    """
    canvas = _Canvas(figure, width, height)
    layers = []
    for renderer in [*figure.center, *figure.renderers]:
        if isinstance(renderer, Span):
            layers.append(canvas.span(renderer))
        elif renderer.visible and hasattr(renderer, "glyph"):
            draw = _GLYPHS.get(type(renderer.glyph).__name__)
            layers.append(draw(canvas, renderer) if draw is not None else "")
    box = f'x="{canvas.left}" y="{TOP}" width="{canvas.width}" height="{canvas.height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        f'<clipPath id="frame"><rect {box}/></clipPath>{canvas.axes()}'
        f'<g clip-path="url(#frame)">{"".join(layers)}</g>{canvas.words()}</svg>'
    )


class _Canvas:
    """The frame of a figure: where a number lies in pixels, and the axes and words around the layers."""

    def __init__(self, figure: Any, width: int, height: int) -> None:
        self.figure, self.full_width = figure, width
        self.log = [isinstance(scale, LogScale) for scale in (figure.x_scale, figure.y_scale)]
        ranges = (figure.x_range, figure.y_range)
        self.ends = [_scaled(np.array([r.start, r.end], float), log) for r, log in zip(ranges, self.log, strict=True)]
        self.ticks = [_ticks(self.ends[k], self.log[k], most) for k, most in enumerate((8, 6))]
        self.numbers = [_in_words(ticks) for ticks in self.ticks]
        self.left = max(LEFT, math.ceil(NAME + 6 + LETTER * max(map(len, self.numbers[1]), default=0)))
        self.width, self.height = width - self.left - RIGHT, height - TOP - BOTTOM

    def x(self, values: Any) -> np.ndarray:
        """Pixels of these numbers from the left."""
        low, high = self.ends[0]
        return self.left + self.width * (_scaled(np.asarray(values, float), self.log[0]) - low) / ((high - low) or 1.0)

    def y(self, values: Any) -> np.ndarray:
        """Pixels of these numbers from the top."""
        low, high = self.ends[1]
        share = (_scaled(np.asarray(values, float), self.log[1]) - low) / ((high - low) or 1.0)
        return TOP + self.height * (1.0 - share)

    def axes(self) -> str:
        """Grid, ticks and labels of both axes; nothing for a picture without axes."""
        if not any(axis.visible for axis in (*self.figure.xaxis, *self.figure.yaxis)):
            return ""
        parts = [f'<g stroke="{GRID_COLOUR}">']
        bottom, right = TOP + self.height, self.left + self.width
        across, upward = self.x(self.ticks[0]), self.y(self.ticks[1])
        parts += [f'<path d="M{at:.1f} {TOP}V{bottom}"/>' for at in across]
        parts += [f'<path d="M{self.left} {at:.1f}H{right}"/>' for at in upward]
        parts.append(f'</g><path d="M{self.left} {TOP}V{bottom}H{right}" fill="none" stroke="{LINE_COLOUR}"/>')
        parts.append(f'<g fill="{TEXT_COLOUR}">')
        for number, at in zip(self.numbers[0], across, strict=True):
            parts.append(f'<text x="{at:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{number}</text>')
        for number, at in zip(self.numbers[1], upward, strict=True):
            parts.append(f'<text x="{self.left - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">{number}</text>')
        names = [escape(str(getattr(axis, "axis_label", "") or "")) for axis in (self.figure.xaxis, self.figure.yaxis)]
        middle = TOP + self.height / 2
        centred = 'text-anchor="middle" font-size="12"'
        room = self.height + 2.0 * BOTTOM  # a long name is smaller in a low picture, and not cut
        beside = (
            f'text-anchor="middle" font-size="{min(12.0, 12.0 * room / (1.08 * LETTER * len(names[1]) or 1.0)):.3g}"'
        )
        parts.append(f'<text x="{self.left + self.width / 2:.0f}" y="{bottom + 34}" {centred}>{names[0]}</text>')
        parts.append(f'<text transform="translate(14 {middle:.0f}) rotate(-90)" {beside}>{names[1]}</text></g>')
        return "".join(parts)

    def words(self) -> str:
        """The title in at most two lines, and the entries of the legend in the lines below it."""
        title = str(self.figure.title.text or "") if self.figure.title is not None else ""
        letters = int((self.full_width - self.left) / (1.08 * LETTER))
        lines = wrap(title, letters, max_lines=2, placeholder=" …") or [""]
        parts = [
            f'<text x="{self.left}" y="{16 + 14 * k}" fill="{TEXT_COLOUR}" font-size="12.5">{escape(line)}</text>'
            for k, line in enumerate(lines)
        ]
        x, y = float(self.left), 17 + 14 * len(lines)
        for entry in entries(self.figure):
            width = LETTER * (len(entry.label) + 3)
            if x + width > self.full_width:
                x, y = float(self.left), y + LINE
            if x + width > self.full_width or y > TOP:
                break
            parts.append(
                f'<text x="{x:.0f}" y="{y}" fill="{TEXT_COLOUR}"><tspan fill="{escape(entry.colour)}" '
                f'fill-opacity="{entry.alpha:.2g}">{entry.sign}</tspan> {escape(entry.label)}</text>'
            )
            x += width
        return "".join(parts)

    def span(self, span: Span) -> str:
        """A line across the whole frame."""
        location = float(span.location) if span.location is not None else math.nan
        if not math.isfinite(location):
            return ""
        if span.dimension == "height":
            path = f"M{float(self.x(location)):.1f} {TOP}v{self.height}"
        else:
            path = f"M{self.left} {float(self.y(location)):.1f}h{self.width}"
        return f'<path d="{path}" {_stroke(span)}/>'


def _scaled(values: np.ndarray, log: bool) -> np.ndarray:
    if not log:
        return values
    return np.log10(np.where(values > 0, values, np.nan))


def _ticks(ends: np.ndarray, log: bool, most: int) -> list[float]:
    """Round numbers between the ends of an axis."""
    low, high = float(ends[0]), float(ends[1])
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return []
    if log and high - low < 2.5:
        powers = range(math.floor(low), math.ceil(high))
        round_numbers = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        inside = [number for number in round_numbers if low <= math.log10(number) <= high]
        return inside if len(inside) > 1 else _ticks(10.0**ends, False, most)
    step = 10 ** math.floor(math.log10((high - low) / most))
    step = next(step * k for k in (1, 2, 5, 10) if (high - low) / (step * k) <= most)
    step = max(round(step), 1) if log else step
    ticks = step * np.arange(math.ceil(low / step), math.floor(high / step) + 1)
    return [10.0 ** float(tick) if log else float(tick) for tick in np.round(ticks, 12)]


def _in_words(ticks: Sequence[float]) -> list[str]:
    """The numbers beside the ticks, in full up to ten millions, with as many digits as say where the ticks are."""
    written: list[str] = []
    allowed = 1e-3 * min(np.diff(ticks), default=math.inf)
    for digits in range(4, 13):
        written = [f"{t:,.{digits - 4}f}" if 1000 <= abs(t) < 1e7 else f"{t:.{digits}g}" for t in ticks]
        if all(abs(float(text.replace(",", "")) - t) <= allowed for text, t in zip(written, ticks, strict=True)):
            break
    return [text.replace("-", "−") for text in written]


def _values(renderer: Any, name: str) -> np.ndarray:
    """The numbers of a property of a glyph: of a column, or one for all marks."""
    value = getattr(renderer.glyph, name)
    field = value if isinstance(value, str) else getattr(value, "field", None)
    if field is not None and field in renderer.data_source.data:
        return np.asarray(renderer.data_source.data[field])
    return np.asarray([value if not hasattr(value, "value") else value.value])


def _colours(renderer: Any, name: str) -> list[str]:
    """One colour per mark, or one for all."""
    colour = getattr(renderer.glyph, name)
    transform = getattr(colour, "transform", None)
    if transform is not None and getattr(colour, "field", None) in renderer.data_source.data:
        numbers = np.asarray(renderer.data_source.data[colour.field], float)
        share = (numbers - transform.low) / ((transform.high - transform.low) or 1.0)
        place = np.clip(np.nan_to_num(share), 0, 1) * (len(transform.palette) - 1)
        missing = np.isnan(numbers)
        return ["none" if gap else str(transform.palette[int(k)]) for k, gap in zip(place, missing, strict=True)]
    if colour is None or isinstance(colour, str):
        return [colour or "none"]
    return [str(value) if value is not None else "none" for value in _values(renderer, name)]


def _number(part: Any, name: str, default: float) -> float:
    value = getattr(part, name, default)
    value = getattr(value, "value", value)
    return float(value) if isinstance(value, int | float) else default


def _stroke(part: Any) -> str:
    """The attributes of a line in the colour, width and dashes of a glyph."""
    colour = part.line_color
    colour = getattr(colour, "value", colour)
    dash = part.line_dash
    dash = " ".join(str(number) for number in dash) if isinstance(dash, list | tuple) else ""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    alpha = _number(part, "line_alpha", 1.0)
    name = escape(str(colour)) if isinstance(colour, str) else "none"
    return (
        f'fill="none" stroke="{name}" stroke-width="{_number(part, "line_width", 1.0):.2g}" '
        f'stroke-opacity="{alpha:.2g}"{dashes}'
    )


def _path(x: np.ndarray, y: np.ndarray) -> str:
    """A path through these pixels, with a gap where a number is missing."""
    pen, parts = "M", []
    for a, b in zip(np.clip(x, -1e5, 1e5), np.clip(y, -1e5, 1e5), strict=True):
        if math.isfinite(a) and math.isfinite(b):
            parts.append(f"{pen}{a:.1f} {b:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def _line(canvas: _Canvas, renderer: Any) -> str:
    x, y = canvas.x(_values(renderer, "x")), canvas.y(_values(renderer, "y"))
    drawn = np.union1d(_thinned(np.arange(len(x))), np.flatnonzero(np.isnan(y)))  # gaps stay
    return f'<path d="{_path(x[drawn], y[drawn])}" {_stroke(renderer.glyph)}/>'


def _patch(canvas: _Canvas, renderer: Any) -> str:
    path = _path(canvas.x(_values(renderer, "x")), canvas.y(_values(renderer, "y")))
    alpha = _number(renderer.glyph, "fill_alpha", 1.0)
    colour = escape(_colours(renderer, "fill_color")[0])
    return f'<path d="{path}Z" fill="{colour}" fill-opacity="{alpha:.2g}"/>' if path else ""


def _scatter(canvas: _Canvas, renderer: Any) -> str:
    glyph = renderer.glyph
    marker = glyph.marker if isinstance(glyph.marker, str) else getattr(glyph.marker, "value", "circle")
    radius = _number(glyph, "size", 6.0) / 2
    shape = SHAPES.get(str(marker), SHAPES["circle"])(radius)
    x, y = canvas.x(_values(renderer, "x")), canvas.y(_values(renderer, "y"))
    inner, outer = _colours(renderer, "fill_color"), _colours(renderer, "line_color")
    if str(marker) in ("x", "cross"):
        inner = ["none"]
    fill_alpha, line_alpha = _number(glyph, "fill_alpha", 1.0), _number(glyph, "line_alpha", 1.0)
    alpha = f'fill-opacity="{fill_alpha:.2g}" stroke-opacity="{line_alpha:.2g}"'
    marks: dict[tuple[str, str], list[str]] = {}
    for k in _thinned(np.flatnonzero(np.isfinite(x) & np.isfinite(y))):
        colours = (inner[k % len(inner)], outer[k % len(outer)])
        marks.setdefault(colours, []).append(f'<path transform="translate({x[k]:.1f} {y[k]:.1f})" d="{shape}"/>')
    return "".join(
        f'<g fill="{escape(fill)}" stroke="{escape(line)}" {alpha}>{"".join(paths)}</g>'
        for (fill, line), paths in marks.items()
    )


def _segments(canvas: _Canvas, renderer: Any) -> str:
    axes = {"x0": canvas.x, "y0": canvas.y, "x1": canvas.x, "y1": canvas.y}
    ends = [place(_values(renderer, name)) for name, place in axes.items()]
    finite = np.flatnonzero(np.all(np.isfinite(ends), axis=0))
    path = "".join(f"M{ends[0][k]:.1f} {ends[1][k]:.1f}L{ends[2][k]:.1f} {ends[3][k]:.1f}" for k in _thinned(finite))
    return f'<path d="{path}" {_stroke(renderer.glyph)}/>'


def _spans(canvas: _Canvas, renderer: Any) -> str:
    x = canvas.x(_values(renderer, "x"))
    path = "".join(f"M{pixel:.1f} {TOP}v{canvas.height}" for pixel in x[np.isfinite(x)])
    return f'<path d="{path}" {_stroke(renderer.glyph)}/>'


def _words(canvas: _Canvas, renderer: Any) -> str:
    """Texts at their positions, one line below another: centred, or as the glyph aligns them."""
    anchor = {"left": "start", "right": "end"}.get(str(_values(renderer, "text_align")[0]), "middle")
    below = {"top": 12, "bottom": -4}.get(str(_values(renderer, "text_baseline")[0]), 4)
    x, y, texts = canvas.x(_values(renderer, "x")), canvas.y(_values(renderer, "y")), _values(renderer, "text")
    parts = []
    for a, b, text in zip(x, y, texts, strict=True):
        if math.isfinite(a) and math.isfinite(b):
            lines = str(text).split("\n")
            top = b + below - LINE * (len(lines) - 1) / 2
            parts += [
                f'<text x="{a:.1f}" y="{top + LINE * k:.1f}" fill="{TEXT_COLOUR}" text-anchor="{anchor}">'
                f"{escape(line)}</text>"
                for k, line in enumerate(lines)
            ]
    return "".join(parts)


def _image(canvas: _Canvas, renderer: Any) -> str:
    """A grid of values, as a PNG with one pixel per value."""
    grid = np.asarray(_values(renderer, "image")[0], float)
    mapper = renderer.glyph.color_mapper
    palette = np.array([list(bytes.fromhex(str(colour).lstrip("#")[:6])) for colour in mapper.palette], np.uint8)
    share = (grid - mapper.low) / ((mapper.high - mapper.low) or 1.0)
    place = (np.clip(np.nan_to_num(share), 0, 1) * (len(palette) - 1)).astype(int)
    pixels = palette[place]
    if np.isnan(grid).any():  # what is missing is transparent
        pixels = np.dstack([pixels, np.where(np.isnan(grid), 0, 255).astype(np.uint8)])
    picture = base64.b64encode(_png(pixels[::-1])).decode()
    x, y = float(_values(renderer, "x")[0]), float(_values(renderer, "y")[0])
    dw, dh = float(_values(renderer, "dw")[0]), float(_values(renderer, "dh")[0])
    left, right, low, high = (float(v) for v in (*canvas.x([x, x + dw]), *canvas.y([y, y + dh])))
    return (
        f'<image x="{left:.1f}" y="{high:.1f}" width="{right - left:.1f}" height="{low - high:.1f}" '
        f'preserveAspectRatio="none" image-rendering="pixelated" href="data:image/png;base64,{picture}"/>'
    )


def _png(pixels: np.ndarray) -> bytes:
    """An image of [rows, columns, 3] bytes as PNG; of [rows, columns, 4] with opacity."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows, columns, parts = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 2 if parts == 3 else 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def _thinned(places: np.ndarray) -> np.ndarray:
    """At most `MOST_MARKS` of these, evenly spaced."""
    return places[:: max(1, math.ceil(len(places) / MOST_MARKS))]


_GLYPHS: dict[str, Callable[[_Canvas, Any], str]] = {
    "Line": _line,
    "Patch": _patch,
    "Scatter": _scatter,
    "Segment": _segments,
    "VSpan": _spans,
    "Text": _words,
    "Image": _image,
}
