"""One line of numbers, what the next step costs, and the sentences a person should read."""

from __future__ import annotations

import math
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..text.escape import text
from ..text.number_format import nbytes, number, span
from .messages import Frame
from .open_run import Opened
from .readings import Facts

CSS = """
:host { color: inherit; }
.facts { display: flex; flex-wrap: wrap; gap: 6px 26px; align-items: baseline; color: inherit; }
.facts div { min-width: 58px; }
.facts b { display: block; font-size: 17px; font-weight: 600; font-variant-numeric: tabular-nums; }
.facts span { font-size: 12px; opacity: 0.72; }
"""
PATIENCE = 1.0  # seconds after which a step under way is spoken of


class Status(pn.viewable.Viewer):
    """Status line, progress bar, cost line and alert."""

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._seen = 0
        self.line = pn.pane.HTML(
            _facts([("step", "0")]), stylesheets=[CSS], margin=(4, 14), sizing_mode="stretch_width", min_height=46
        )
        self.bar = pmui.LinearProgress(value=0, variant="determinate", sizing_mode="stretch_width", margin=(2, 14))
        self.cost = pn.pane.HTML("", stylesheets=[CSS], margin=(0, 14), sizing_mode="stretch_width")
        self.sentence = pn.pane.HTML("", margin=0)  # an alert's own `object` reads markup into what it is told
        self.alert = pmui.Alert(
            self.sentence, visible=False, closeable=True, severity="warning", sizing_mode="stretch_width",
            margin=(4, 14),
        )  # fmt: skip
        self._layout = pn.Column(self.alert, self.line, self.bar, self.cost, sizing_mode="stretch_width")

    def update(self, frame: Frame, since: float) -> None:
        """Show this frame; `since` is how long the step under way has taken."""
        if frame.notice[0] > self._seen:
            self._seen = frame.notice[0]
            self.say(frame.notice[1], "info" if _is_good(frame) else "warning")
        if frame.facts is not None and frame.opened is not None:
            self.line.object = _facts(_entries(frame.facts, frame.opened))
            fraction = frame.facts.budget
            self.bar.value = 0 if math.isnan(fraction) else round(100 * fraction)
        if frame.opened is not None and frame.facts is not None:
            self.cost.object = self._cost(frame.opened, frame.facts, since)

    def busy(self, what: str) -> None:
        """Show that something is being waited for, or no longer."""
        variant = "indeterminate" if what else "determinate"
        if self.bar.variant != variant:
            self.bar.variant = variant
        if what:
            self.cost.object = f"<span>{text(what)}</span>"

    def say(self, message: str, severity: str = "warning") -> None:
        """A sentence in an alert that can be closed; escaped, as it may repeat what a person gave us."""
        self.sentence.object = f'<span class="said">{text(message, 800)}</span>'
        self.alert.param.update(severity=severity, visible=True, closed=False)

    def report(self, message: str) -> None:
        """Show a warning; an empty message closes the alert."""
        if message:
            self.say(message)
        else:
            self.alert.visible = False

    def _cost(self, opened: Opened, facts: Facts | None, since: float) -> str:
        """What a step takes and holds; the arrays one by one, the largest first, under the pointer."""
        arrays = sorted(opened.cost.arrays.items(), key=lambda item: -item[1])
        every = ", ".join(f"{name} {nbytes(size)}" for name, size in arrays)
        parts = [f"{span(opened.seconds)} a step expected"]
        if facts is not None and facts.last > 0:
            parts = [f"{span(facts.total / facts.last)} a step so far"]
        most = f" (most in {arrays[0][0]}: {nbytes(arrays[0][1])})" if arrays else ""
        parts.append(f"memory {nbytes(opened.cost.memory)}{most}")
        if facts is not None:
            parts += [f"history {nbytes(facts.memory)}", *filter(None, [facts.jitter])]
            if not math.isnan(facts.eta) and facts.outcome is None:
                parts.append(f"about {span(facts.eta)} of work until the pause")
        if since > PATIENCE:
            parts.append(f"step {facts.last + 1 if facts else 0} under way for {span(since)}")
        line = " · ".join(text(part) for part in parts)
        return f'<span style="font-size:12px;opacity:.72" title="{text(every)}">{line}</span>'

    def __panel__(self) -> Any:
        return self._layout


def _is_good(frame: Frame) -> bool:
    outcome = frame.facts.outcome if frame.facts else None
    return outcome is None or outcome.reason in ("converged", "budget", "stopped")


def _facts(entries: list[tuple[str, str]]) -> str:
    cells = "".join(f"<div><b>{text(value)}</b><span>{text(label)}</span></div>" for label, value in entries)
    return f'<div class="facts" role="status">{cells}</div>'


def _entries(facts: Facts, opened: Opened) -> list[tuple[str, str]]:
    step = f"{facts.at}" if facts.at == facts.last else f"{facts.at} of {facts.last}"
    objective = opened.channels[0].label if opened.channels else "objective"
    return [
        ("step", step),
        ("phase", {"swap": "swapping", "learn": "learning", "choose": "choosing"}.get(facts.phase, facts.phase or "—")),
        (objective, number(facts.objective)),
        ("SMSE on test rows", number(facts.scores.get("smse", math.nan))),
        ("SNLP on test rows", number(facts.scores.get("snlp", math.nan))),
        ("seconds of work", f"{facts.seconds:.2f}"),
        ("kernel entries", f"{facts.entries:,}"),
    ]
