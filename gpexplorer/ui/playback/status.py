"""The status line under the transport: the numbers of a record, what a step costs, and messages to the person."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ...data.quoting import size
from ..styles import beside
from ..text import LONGEST_MESSAGE, span, text
from ..widgets import WIDE, WithLayout, button, column, line_of_text, row
from .open_run import Frame, RunSummary
from .readings import Fact, StatusNumbers

CSS = beside(__file__, "status.css")
TOAST = """
:host { position: sticky !important; top: 4px; z-index: 1250; background: var(--mui-palette-background-paper, #fff);
        border-radius: 8px; box-shadow: 0 2px 8px rgba(0, 0, 0, .25); }
"""  # above the title, so that it covers neither words nor pictures; on a page that is scrolled, under the bar
OVER = """
:host(.over) { position: absolute !important; right: 52px; top: 6px; z-index: 2; width: auto !important; padding: 0 8px;
               border: 1px solid rgba(127, 140, 153, .35); border-radius: 6px;
               background: var(--mui-palette-background-paper, #fff); }
"""  # what is waited for, so that nothing moves for a moment; left of the button of a card
WAITING = {
    "@keyframes waiting": {"from": {"transform": "translateX(-100%)"}, "to": {"transform": "translateX(250%)"}},
    "&.MuiLinearProgress-indeterminate .MuiLinearProgress-bar1": {
        **{"left": 0, "right": "auto", "width": "40%", "animation": "waiting 1.8s linear infinite"},
        "@media (prefers-reduced-motion: reduce)": {"animation": "none", "width": "100%", "opacity": 0.5},
    },
    "&.MuiLinearProgress-indeterminate .MuiLinearProgress-bar2": {"display": "none"},
}  # the bar's own animation moves edges, for which the browser lays out the page sixty times a second
SAID = ":host { color: inherit; font-size: 13.5px; line-height: 1.4; }"
LONG_STEP = 1.0  # seconds after which the step under way is mentioned


class Status(WithLayout):
    """An alert for messages, the line of numbers, a progress bar, and a line on what a step costs.

    Three numbers are shown; a button unfolds the others, the costs, and `folded`, which a page adds.

    Parameters
    ----------
    on_message : callable, optional
        Called when a message has been shown or closed.
    """

    def __init__(self, on_message: Callable[[], None] = lambda: None) -> None:
        self._last_notice, self._unfolded, self._on_message, self._said = 0, False, on_message, ""
        self._last_cost, self._activity = "", ""
        self.line = line_of_text(_cells([Fact("step", "0")]), (2, 12), [CSS])
        self.line.param.update(min_height=38, sizing_mode=None, css_classes=["few"])
        self.more = button("All numbers", "", self.unfold, size="small", variant="text", margin=(2, 4))
        self.bar = pmui.LinearProgress(value=0, variant="determinate", **WIDE, margin=(0, 12), sx=WAITING)
        self.cost = line_of_text(styles=[CSS, OVER])
        self.cost.param.update(visible=False, css_classes=["over"])
        # not the alert's own `object`, which renders markup in messages
        self.sentence = pn.pane.HTML("", margin=0, stylesheets=[SAID])
        look = {"closeable": True, "severity": "warning", "margin": 0, "stylesheets": [TOAST]}
        self.alert = pmui.Alert(self.sentence, visible=False, **WIDE, **look)
        self.alert.param.watch(lambda _: self._on_message(), ["visible", "closed"])
        self.folded = row(visible=False, margin=0)
        self._layout = column(
            self.bar, self.folded, self.cost, margin=0, css_classes=["status"], styles={"position": "relative"}
        )

    def update(self, frame: Frame, step_seconds: float) -> None:
        """Show a frame; `step_seconds` is how long the step under way has taken so far."""
        number_of_notice, message = frame.notice
        if number_of_notice > self._last_notice:
            self._last_notice = number_of_notice
            if message:
                self.say(message, "error" if frame.failed else "info" if _went_well(frame) else "warning")
        if frame.numbers is None or frame.run is None:
            return
        self.line.object = _cells(frame.numbers.cells)
        budget = frame.numbers.budget
        self.bar.value = 0 if math.isnan(budget) else round(100 * budget)
        self._last_cost = self.cost.object = _cost_line(frame.run, frame.numbers, step_seconds)

    def beside(self, transport: Any, folded: Any) -> Any:
        """Return the row of the transport and three numbers, and add a part to those that unfold."""
        self.folded.append(folded)
        return row(row(transport, styles={"flex": "1 1 480px"}), self.line, self.more, **WIDE, css_classes=["playback"])

    def unfold(self) -> None:
        """Show all numbers and what a step costs, or three numbers only."""
        self._unfolded = not self._unfolded
        self.line.css_classes = [] if self._unfolded else ["few"]
        self.more.label = "Fewer numbers" if self._unfolded else "All numbers"
        self.folded.visible = self._unfolded
        self.cost.param.update(
            visible=self._unfolded or bool(self._activity), css_classes=[] if self._unfolded else ["over"]
        )

    def busy(self, activity: str) -> None:
        """Show that something is being waited for; an empty text shows that nothing is."""
        self.bar.variant = "indeterminate" if activity else "determinate"
        if activity:
            self.cost.object = f'<span class="cost">{text(activity)}</span>'
        elif self._activity:
            self.cost.object = self._last_cost
        self._activity = activity
        self.cost.visible = self._unfolded or bool(activity)

    def say(self, message: str, severity: str = "warning") -> None:
        """Show a message in an alert that can be closed. It is escaped, as it may repeat text that a person gave."""
        self._said = message
        self.sentence.object = f'<span class="said">{text(message, LONGEST_MESSAGE)}</span>'
        self.alert.param.update(severity=severity, visible=True, closed=False)
        self._on_message()

    def shows(self, message: str) -> bool:
        """Whether this message is in the alert, and a person has not closed it."""
        return bool(self._said == message and self.alert.visible and not self.alert.closed)

    def report(self, message: str, severity: str = "warning") -> None:
        """Show a message; an empty one closes the alert."""
        if message:
            self.say(message, severity)
        else:
            self.alert.visible = False


def _went_well(frame: Frame) -> bool:
    outcome = frame.numbers.outcome if frame.numbers else None
    return outcome is None or outcome.reason in ("converged", "budget", "stopped")


def _cells(facts: list[Fact]) -> str:
    cells = "".join(
        f'<div class="{"first" if fact.is_first else "more"}" title="{text(fact.about)}"><b>{text(fact.value)}</b>'
        f"<span>{text(fact.label)}</span></div>"
        for fact in facts
    )
    return f'<div class="facts" role="status">{cells}</div>'


def _cost_line(run: RunSummary, numbers: StatusNumbers, step_seconds: float) -> str:
    """Time and memory per step; the tooltip lists the arrays, the largest first."""
    arrays = sorted(run.cost.arrays.items(), key=lambda item: -item[1])
    tooltip = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in arrays)
    if numbers.last > 0:
        parts = [f"{span(numbers.total_seconds / numbers.last)} per step so far"]
    else:
        parts = [f"{span(run.seconds)} per step expected"]
    largest = f" (most in {arrays[0][0]}: {size(arrays[0][1])})" if arrays else ""
    parts += [f"memory {size(run.cost.memory)}{largest}", f"history {size(numbers.memory)}"]
    parts += [sentence for sentence in (numbers.rise, numbers.jitter) if sentence]
    if not math.isnan(numbers.eta) and numbers.outcome is None:
        parts.append(f"about {span(numbers.eta)} of work until the pause")
    if step_seconds > LONG_STEP:
        parts.append(f"step {numbers.last + 1} has been running for {span(step_seconds)}")
    line = " · ".join(text(part) for part in parts)
    return f'<span class="cost" title="{text(tooltip)}">{line}</span>'
