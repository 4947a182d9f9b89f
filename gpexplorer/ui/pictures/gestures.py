"""What a person can do in the picture of the data: drag inducing points, add rows and remove rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import panel_material_ui as pmui
from bokeh.events import Pan, PanEnd, PanStart, Tap

from ...views.drawing.palette import ROLES
from ..browser.callbacks import weakly
from ..playback.open_run import Layers, RunSummary
from ..playback.readings import StatusNumbers
from ..session import Session
from ..text import number, text
from ..widgets import WithLayout, button, hidden_column, line_of_text, watch

LOOK, MOVE_POINTS, EDIT_ROWS = "Look", "Move points", "Edit rows"
HELP = {
    MOVE_POINTS: "Drag an inducing point; the terms of the bound below follow it. Undo takes the last drag back.",
    EDIT_ROWS: (
        "Click a free place to add a row, or click a row to remove it. "
        "The prediction is updated by a new row at once; then the run is repeated on the edited rows up to this step."
    ),
}
REACH = (0.03, 0.08)  # part of the x and the y axis within which a pointer counts as being on a mark
TERMS = {"fit": "data fit", "logdet": "complexity", "trace": "trace", "objective": "bound"}
COLOURS = {"fit": ROLES["fit"], "logdet": ROLES["complexity"], "trace": ROLES["trace"], "objective": ROLES["reference"]}
BUTTON_STYLE = {"& button": {"textTransform": "none", "whiteSpace": "nowrap", "padding": "2px 9px"}}
CSS = """
.split { display: flex; flex-wrap: wrap; gap: 2px 26px; font-size: 13px; font-variant-numeric: tabular-nums; }
.split b { font-weight: 600; } .split i { font-style: normal; opacity: .72; }
.split u { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 6px; }
"""


class Gestures(WithLayout):
    """The choice of what a click or drag in the picture of the data does, and the result of it.

    Parameters
    ----------
    run : RunSummary
        The open run, which decides what can be done.
    session : Session
        Carries it out.

    Attributes
    ----------
    mode : RadioButtonGroup
        The widget to choose between looking, moving points and editing rows. The card places it.
    """

    def __init__(self, run: RunSummary, session: Session) -> None:
        self._session = session
        self._dragged: int | None = None  # index of the inducing point that is being dragged
        self._first_move = False
        self._layers: Callable[[], Layers] = dict
        self._figure: Any = None
        look = {"size": "small", "margin": (8, 12), "sx": BUTTON_STYLE}
        self.mode = pmui.RadioButtonGroup(label="", options=[LOOK], value=LOOK, **look)
        self.message = line_of_text(styles=[CSS])
        self.value = pmui.FloatInput(label="y of a new row", value=0.0, width=130, size="small", margin=(4, 8))
        self.back = button("Take back the last edit", "undo", lambda: self._edit_rows(None), size="small")
        self.edits = pmui.Row(self.value, self.back, visible=False, margin=0)
        watch(self._change_mode, self.mode)
        self._layout = hidden_column(self.message, self.edits, margin=0)
        self.adopt(run)

    def adopt(self, run: RunSummary) -> None:
        """Offer what can be done with this run."""
        has_axes = run.inputs in (1, 2)
        modes = [LOOK]
        if has_axes and run.can_drag:
            modes.append(MOVE_POINTS)
        if has_axes and run.can_edit:
            modes.append(EDIT_ROWS)
        self.mode.param.update(options=modes, value=self.mode.value if self.mode.value in modes else LOOK)
        self.mode.visible = len(modes) > 1
        self.value.visible = run.inputs == 2
        self.value.label = f"{run.target[:20]} of a new row"
        data = run.spec.data
        self.back.disabled = not (isinstance(data, dict) and data.get("edits"))

    def listen(self, figure: Any, layers: Callable[[], Layers]) -> None:
        """Listen to the clicks and drags on a figure, which shows these layers, except in the mode "Look"."""
        self._figure, self._layers = figure, layers
        if self.mode.value == LOOK:
            return
        if self.mode.value == EDIT_ROWS:
            figure.on_event(Tap, weakly(self._tap))
            return
        figure.on_event(PanStart, weakly(self._start_drag))
        figure.on_event(Pan, weakly(self._drag))
        figure.on_event(PanEnd, weakly(self._end_drag))

    def report(self, numbers: StatusNumbers | None) -> None:
        """Show the terms of the bound, and how the last step changed each."""
        if self.mode.value == MOVE_POINTS and numbers is not None:
            self.message.object = _terms_table(numbers.terms)

    def _change_mode(self) -> None:
        mode = self.mode.value
        self.message.object = _small(HELP.get(mode, ""))
        self.edits.visible, self._layout.visible = mode == EDIT_ROWS, mode != LOOK
        self._session.player.redraw()

    def _edit_rows(self, edit: list[float] | None) -> None:
        refusal = self._session.edit_rows(edit)
        if refusal:
            self.message.object = _small(refusal)

    def _start_drag(self, event: Any) -> None:
        self._dragged = self._nearest("inducing", event)
        self._first_move = True

    def _drag(self, event: Any) -> None:
        if self._dragged is None:
            return
        position = (event.x, event.y) if self._is_map else (event.x,)
        self._session.drag(self._first_move, self._dragged, position)
        self._first_move = False

    def _end_drag(self, _: Any) -> None:
        self._dragged = None

    def _tap(self, event: Any) -> None:
        if event.x is None or event.y is None or not math.isfinite(event.x + event.y):
            return
        row, (x, y) = self._nearest("train", event, finer=3.0), self._rounded(event)
        if row is not None:
            self._edit_rows([int(self._layers()["train"]["row"].iloc[row])])
        elif not self._is_map:
            self._edit_rows([x, y])
        elif self.value.value is not None:
            self._edit_rows([x, y, self.value.value])

    @property
    def _is_map(self) -> bool:
        """Whether both axes are inputs; the y axis of other pictures is the target."""
        return "map" in self._layers()

    def _axis_lengths(self) -> list[float]:
        return [abs(axis.end - axis.start) or 1.0 for axis in (self._figure.x_range, self._figure.y_range)]

    def _rounded(self, event: Any) -> tuple[float, float]:
        """Position of a click to a thousandth of each axis, as a link has to carry it."""
        x, y = (
            round(value, 3 - math.floor(math.log10(length)))
            for value, length in zip((event.x, event.y), self._axis_lengths(), strict=True)
        )
        return x, y

    def _nearest(self, layer: str, event: Any, finer: float = 1.0) -> int | None:
        """Index of the mark of a layer under the pointer; None where no mark is within reach divided by `finer`."""
        frame = self._layers().get(layer, pd.DataFrame())
        if not len(frame) or event.x is None or event.y is None:
            return None
        reach = (REACH[0], REACH[0] * 1.6) if self._is_map else REACH
        scaled = [
            (frame[axis].to_numpy() - value) / (length * part / finer)
            for axis, value, length, part in zip("xy", (event.x, event.y), self._axis_lengths(), reach, strict=True)
        ]
        distance = np.hypot(*scaled)
        return int(distance.argmin()) if distance.min() < 1 else None


def _small(sentence: str) -> str:
    return f'<span style="font-size:12.5px;opacity:.75">{text(sentence)}</span>'


def _terms_table(terms: Mapping[str, tuple[float, float]]) -> str:
    """Each term of the bound, and by how much it rose or fell."""
    if not terms:
        return _small(HELP[MOVE_POINTS])
    cells = []
    for name, title in TERMS.items():
        value, change = terms[name]
        arrow = "" if math.isnan(change) else f" {'▲' if change > 0 else '▼'} {number(abs(change))}"
        swatch = f'<u style="background:{COLOURS[name]}"></u>'
        cells.append(f"<div>{swatch}<i>{title}</i> <b>{number(value)}</b>{arrow}</div>")
    return f'<div class="split" role="status">{"".join(cells)}</div>'
