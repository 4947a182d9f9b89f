"""Draws the small pictures of the stories and the questions: `python docs/card_pictures.py`.

Each is a picture of a run of its own story or question, without words and axes, in the colours of the light theme. They
are stored in the package, where the page of cards reads them; the style sheet of that page has the dark theme.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree

import numpy as np
from bokeh.models import LinearColorMapper

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT = 320, 180  # units of the drawing: the page shows it half as large
STEPS = 20  # of a question whose run is shown where nothing else is chosen
MOST_MARKS, FEW = 160, 12  # of a picture with more marks some are left out, where a group has more than a few
THICK = 4.0  # units: a thinner line is drawn as wide as this, two pixels on the page
TOLERANCE = 0.7  # units by which a line may move where points are left out
SVG = "http://www.w3.org/2000/svg"
CHOSEN: dict[str, dict[str, str]] = {  # card -> what of the default link is replaced; "part" is that of a story
    "story=swaps": {"part": "2", "at": "60", "view": "fit"},
    "story=blocks": {"part": "4"},
    "story=eigenfunctions": {"part": "2"},
    "story=folds": {"part": "5", "view": "admm-paths"},
    "story=minibatches": {"part": "2"},
    "ask=four-groups": {"view": "fit"},
    "ask=stalls": {"at": "80", "view": "convergence"},
    "ask=saddle-point": {"at": "60"},
    "ask=mixed": {"at": "112"},
}


def main() -> None:
    """Draw all of them and store them."""
    from gpexplorer.ui.screens.gallery import PICTURES_FILE

    pictures = {address: drawn(query) for address, query in queries()}
    lines = ",\n".join(f"{json.dumps(address)}: {json.dumps(svg)}" for address, svg in pictures.items())
    PICTURES_FILE.write_text(f"{{\n{lines}\n}}\n", "utf-8")


def queries() -> Iterator[tuple[str, str]]:
    """The address of each card, and the link to what its picture shows."""
    from gpexplorer.ui.inputs.presets import PRESETS
    from gpexplorer.ui.stories import STORIES

    for key, story in STORIES.items():
        change = dict(CHOSEN.get(f"story={key}", {}))
        part = story.parts[int(change.pop("part", "1")) - 1]
        yield f"story={key}", urlencode(dict(parse_qsl(part.shown or part.link)) | change)
    for key, preset in PRESETS.items():
        change = CHOSEN.get(f"ask={key}", {})
        yield f"ask={key}", urlencode(dict(parse_qsl(preset.link)) | {"at": STEPS} | change)


def drawn(query: str) -> str:
    """The small picture of a link."""
    from docs.story_pages import advance_to, read_link
    from gpexplorer.ui.screens.gallery import some_colours
    from gpexplorer.views import for_run
    from gpexplorer.views.drawing.live import Live
    from gpexplorer.views.drawing.palette import DIVERGING, paint
    from gpexplorer.views.drawing.static_svg import BOTTOM, LEFT, RIGHT, TOP, figure_svg

    link = read_link(query)
    if link.corrected:
        raise ValueError(" ".join(link.corrected))
    run = link.spec.open()
    advance_to(run, link.at or 0)
    view = next(view for view in for_run(run) if view.key == link.view)
    figure = Live(view, view.data(run, run.trace[-1].index)).figure
    paint(figure, "light")
    image = "<image"
    for mapper in figure.select({"type": LinearColorMapper}):
        if mapper.palette == DIVERGING["light"]:
            image = '<image class="around-zero"'  # its zero has the colour of the paper
        mapper.palette = some_colours(mapper.palette)
    svg = figure_svg(figure, WIDTH + LEFT + RIGHT, HEIGHT + TOP + BOTTOM)
    return small(svg, LEFT, TOP).replace("<image", image)


def small(svg: str, left: int, top: int) -> str:
    """The layers of a drawing whose frame begins at this place, in whole units, with fewer marks and without words."""
    layers = ElementTree.fromstring(svg).find(f"{{{SVG}}}g[@clip-path]")
    assert layers is not None
    stride = -(-len(layers.findall(f"{{{SVG}}}g/*")) // MOST_MARKS) or 1
    parts = []
    for layer in layers:
        name, attributes = layer.tag.removeprefix(f"{{{SVG}}}"), dict(layer.attrib)
        if name == "g":
            name, attributes = "path", _marks(layer, stride, left, top)
        elif name == "path":
            attributes["d"] = re.sub(r"M[^MZ]*", lambda line: _line(line[0], left, top), attributes["d"])
            if "stroke-width" in attributes:
                attributes["stroke-width"] = f"{max(float(attributes['stroke-width']), THICK):g}"
        elif name == "image":
            attributes["x"] = f"{float(attributes['x']) - left:.0f}"
            attributes["y"] = f"{float(attributes['y']) - top:.0f}"
        if name in ("path", "image") and attributes.get("d") != "":
            parts.append(" ".join([f"<{name}", *(f'{key}="{value}"' for key, value in attributes.items())]) + "/>")
    return f'<svg xmlns="{SVG}" viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg>'


def _marks(layer: ElementTree.Element, stride: int, left: int, top: int) -> dict[str, str]:
    """The attributes of one path for the marks of a layer: dots are ends of lines without a length."""
    marks = list(layer)[:: stride if len(layer) > FEW else 1]
    places = [np.array(re.findall(r"-?[\d.]+", mark.attrib["transform"]), float) - (left, top) for mark in marks]
    shapes = [mark.attrib["d"] for mark in marks]
    colour = "none" if layer.attrib["fill-opacity"] == "0" else layer.attrib["fill"]
    if colour != "none" and all("a" in shape for shape in shapes):
        path = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in places)
        width, opacity = -2 * float(shapes[0][1:].split()[0]), layer.attrib["fill-opacity"]
        return _stroke(path, colour, width, opacity) | {"stroke-linecap": "round"}
    path = "".join(_moved(shape, x, y) for shape, (x, y) in zip(shapes, places, strict=True))
    return _stroke(path, layer.attrib["stroke"], 2, layer.attrib["stroke-opacity"]) | {"fill": colour}


def _stroke(path: str, colour: str, width: float, opacity: str) -> dict[str, str]:
    return {"d": path, "stroke": colour, "stroke-width": f"{width:.2g}", "stroke-opacity": opacity, "fill": "none"}


def _moved(shape: str, x: float, y: float) -> str:
    """The path of a mark at its place."""
    moves = {"M": (x, y), "L": (x, y), "H": (x,), "V": (y,)}

    def moved(match: re.Match[str]) -> str:
        numbers = np.array(match[2].split(), float) + moves.get(match[1], 0.0)
        return match[1] + " ".join(f"{number:.1f}".removesuffix(".0") for number in numbers)

    return re.sub(r"([A-Za-z])([-\d. ]*)", moved, shape)


def _line(path: str, left: int, top: int) -> str:
    """A line in whole units, without the points that it hardly needs."""
    if "v" in path or "h" in path:  # across the whole frame
        x, y, *_ = (float(number) for number in re.findall(r"-?[\d.]+", path))
        return f"M{x - left:.0f} {y - top:.0f}{re.sub(r'[^vh]*', '', path, count=1)}"
    points = np.array(re.findall(r"-?[\d.]+", path), float).reshape(-1, 2) - (left, top)
    kept = [0]
    for k in range(2, len(points)):
        way = points[k] - points[kept[-1]]
        across = points[kept[-1] + 1 : k] - points[kept[-1]]
        distance = np.abs(way[0] * across[:, 1] - way[1] * across[:, 0]) / (np.hypot(*way) or 1.0)
        if distance.max() > TOLERANCE:
            kept.append(k - 1)
    kept += [len(points) - 1] * (len(points) > 1)
    return "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in points[kept])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
