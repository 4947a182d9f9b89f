"""Hands on the picture of the data: look at it, move its inducing points, add and take out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import panel as pn
import panel_material_ui as pmui
from bokeh.events import Pan, PanEnd, PanStart, Tap

from ...views.drawing.palette import ROLES
from ..browser.weak_callback import weakly
from ..playback.open_run import Layers, Opened
from ..playback.readings import Facts
from ..session import Session
from ..text.escape import text
from ..text.number_format import number

LOOK, POINTS, ROWS = "Look", "Move points", "Edit rows"
SAYS = {
    POINTS: "Drag an inducing point; the bound splits below as you go. Undo takes the last drag back.",
    ROWS: "Click a free place to add a row, a row to take it out; the run comes back to this step on the edited rows.",
}
REACH = (0.03, 0.08)  # of each axis: how near counts as on it
TERMS = {"fit": "data fit", "logdet": "complexity", "trace": "trace", "objective": "bound"}
COLOURS = {"fit": ROLES["fit"], "logdet": ROLES["complexity"], "trace": ROLES["trace"], "objective": ROLES["reference"]}
PLAIN = {"& button": {"textTransform": "none", "whiteSpace": "nowrap", "padding": "2px 9px"}}
CSS = """
.split { display: flex; flex-wrap: wrap; gap: 2px 26px; font-size: 13px; font-variant-numeric: tabular-nums; }
.split b { font-weight: 600; } .split i { font-style: normal; opacity: .72; }
.split u { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 6px; }
"""


class Hands(pn.viewable.Viewer):
    """The choice of what a hand does, and what came of it. `session` carries it out."""

    def __init__(self, opened: Opened, session: Session, **params: Any) -> None:
        super().__init__(**params)
        self._session = session
        self._slot: int | None = None
        self._layers: Callable[[], Layers] = dict
        self._figure: Any = None
        self.mode = pmui.RadioButtonGroup(label="", options=[LOOK], value=LOOK, size="small", margin=(8, 12), sx=PLAIN)
        self.said = pn.pane.HTML("", stylesheets=[CSS], margin=(0, 12), sizing_mode="stretch_width", visible=False)
        self.value = pmui.FloatInput(label="y of a new row", value=0.0, width=130, size="small", margin=(4, 8))
        self.back = pmui.Button(
            label="Take back the last edit", icon="undo", variant="outlined", size="small", margin=(6, 8),
            on_click=lambda _: self._tell(self._session.edit_rows(None)),
        )  # fmt: skip
        self.edits = pmui.Row(self.value, self.back, visible=False, margin=0)
        self.mode.param.watch(lambda _: self._turn(), "value")
        self._layout = pmui.Column(self.said, self.edits, sizing_mode="stretch_width", margin=0)
        self.adopt(opened)

    def adopt(self, opened: Opened) -> None:
        """What can be done with this run."""
        flat = opened.inputs in (1, 2)
        modes = [LOOK, *([POINTS] if flat and opened.moves else []), *([ROWS] if flat and opened.edits else [])]
        self.mode.param.update(options=modes, value=self.mode.value if self.mode.value in modes else LOOK)
        self.mode.visible = len(modes) > 1
        self.value.visible = opened.inputs == 2
        self.value.label = f"{opened.target[:20]} of a new row"
        data = opened.spec.data
        self.back.disabled = not (isinstance(data, dict) and data.get("edits"))

    def take(self, figure: Any, layers: Callable[[], Layers]) -> None:
        """Listen to this figure, which shows these layers; it pans only while a person looks."""
        self._figure, self._layers = figure, layers
        if self.mode.value == LOOK:
            return
        figure.toolbar.active_drag = None
        if self.mode.value == ROWS:
            figure.on_event(Tap, weakly(self._tapped))
            return
        figure.on_event(PanStart, weakly(self._grab))
        figure.on_event(Pan, weakly(self._move))
        figure.on_event(PanEnd, weakly(self._let_go))

    def report(self, facts: Facts | None) -> None:
        """The bound, term by term, and what the last step changed."""
        if self.mode.value == POINTS and facts is not None:
            self.said.object = _split(facts.split)

    def _turn(self) -> None:
        mode = self.mode.value
        self.said.param.update(visible=mode != LOOK, object=_quiet(SAYS.get(mode, "")))
        self.edits.visible = mode == ROWS
        self._session.player.redraw()

    def _tell(self, sentence: str) -> None:
        if sentence:
            self.said.object = _quiet(sentence)

    def _grab(self, event: Any) -> None:
        self._slot = self._near("inducing", event)
        self._first = True

    def _move(self, event: Any) -> None:
        if self._slot is None:
            return
        flat = "map" in self._layers()
        self._session.drag(self._first, self._slot, (event.x, event.y) if flat else (event.x,))
        self._first = False

    def _let_go(self, _: Any) -> None:
        self._slot = None

    def _tapped(self, event: Any) -> None:
        if event.x is None or event.y is None or not math.isfinite(event.x + event.y):
            return
        near, (x, y) = self._near("train", event, finer=3.0), self._rounded(event)
        if near is not None:
            self._tell(self._session.edit_rows([int(self._layers()["train"]["row"].iloc[near])]))
        elif "map" not in self._layers():
            self._tell(self._session.edit_rows([x, y]))
        elif self.value.value is not None:
            self._tell(self._session.edit_rows([x, y, self.value.value]))

    def _rounded(self, event: Any) -> tuple[float, float]:
        """Where a click was, to a thousandth of each axis: a link carries it."""
        spans = [abs(end.end - end.start) or 1.0 for end in (self._figure.x_range, self._figure.y_range)]
        x, y = (round(at, 3 - math.floor(math.log10(span))) for at, span in zip((event.x, event.y), spans, strict=True))
        return x, y

    def _near(self, name: str, event: Any, finer: float = 1.0) -> int | None:
        """Index of the mark of this layer under the pointer."""
        frame = self._layers().get(name, pd.DataFrame())
        if not len(frame) or event.x is None or event.y is None:
            return None
        spans = [abs(end.end - end.start) or 1.0 for end in (self._figure.x_range, self._figure.y_range)]
        reach = REACH if "map" not in self._layers() else (REACH[0], REACH[0] * 1.6)
        far = [
            (frame[axis].to_numpy() - at) / (span * part / finer)
            for axis, at, span, part in zip("xy", (event.x, event.y), spans, reach, strict=True)
        ]
        distance = np.hypot(*far)
        return int(distance.argmin()) if distance.min() < 1 else None

    def __panel__(self) -> Any:
        return self._layout


def _quiet(sentence: str) -> str:
    return f'<span style="font-size:12.5px;opacity:.75">{text(sentence)}</span>'


def _split(split: Mapping[str, tuple[float, float]]) -> str:
    """Each term, and by how much it fell or rose."""
    if not split:
        return _quiet(SAYS[POINTS])
    cells = []
    for name, title in TERMS.items():
        value, change = split[name]
        moved = "" if math.isnan(change) else f" {'▲' if change > 0 else '▼'} {number(abs(change))}"
        swatch = f'<u style="background:{COLOURS[name]}"></u>'
        cells.append(f"<div>{swatch}<i>{title}</i> <b>{number(value)}</b>{moved}</div>")
    return f'<div class="split" role="status">{"".join(cells)}</div>'
