"""The panel of a story: the part that is open, its question and answer, and buttons to the parts around it.

Apart because the explorer knows no story, and this panel nothing but its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..session import Session
from ..stories import STORIES, Part
from ..styles import TEXT, TOOLTIP_BELOW
from ..text import escaped, text
from ..widgets import WithLayout, button, column, hidden_column, line_of_text, row
from .scaling_panel import GrowthPanel

STYLE = """
.head { display: flex; flex-wrap: wrap; align-items: baseline; justify-content: space-between; gap: 0 24px; }
.dots { letter-spacing: 3px; opacity: .75; } a { color: inherit; }
.answer { border-left: 3px solid #0072b2; padding-left: 10px; }
"""


class StoryPanel(WithLayout):
    """A story, one part at a time; it takes no place while no story is open.

    Parameters
    ----------
    session : Session
        The session, in which a part may measure the time of several methods.
    move : callable
        Called with the link of a part after a person went to it, or with that of its answer; opens its run.
    on_leave : callable
        Called after the story was closed.
    """

    def __init__(self, session: Session, move: Callable[[str], None], on_leave: Callable[[], None]) -> None:
        self._session, self._move, self._on_leave = session, move, on_leave
        self.story, self.number = "", 0
        self.study: GrowthPanel | None = None
        self._studies: dict[int, GrowthPanel] = {}  # number of a part of this story -> what was measured there
        self._place = column()
        self.said = line_of_text("", (4, 12, 0, 12), [TEXT, STYLE])
        look: dict[str, Any] = {"size": "small", "margin": (4, 4), "stylesheets": [TOOLTIP_BELOW]}  # the bar is above
        self.back = button("Back", "", lambda: self.go(-1), "the part before.", **look)
        self.next = button("Next", "", lambda: self.go(1), "the next part.", variant="contained", **look)
        self.show_answer = button("Show the answer", "", self.answer, **look)
        self.end = button("Leave the story", "", self.leave, variant="text", **look)
        beside = {"flex": "0 1 440px"}
        buttons = row(self.back, self.next, self.show_answer, self.end, margin=(0, 8), styles=beside)
        self.said.styles = {"flex": "1 1 620px"}
        self._layout = hidden_column(row(self.said, buttons, align_items="flex-end"), self._place)

    @property
    def part(self) -> Part | None:
        """The part that is open; None outside a story."""
        return STORIES[self.story].parts[self.number] if self.story else None

    @property
    def axes(self) -> Mapping[str, tuple[float, float]]:
        """What the vertical axes of pictures contain in every part of the story; nothing outside a story."""
        return STORIES[self.story].axes if self.story else {}

    def open(self, story: str, number: int = 0) -> None:
        """Show a part of a story, counted from 0, without moving the page.

        A measurement that goes on in another part is stopped, and what it has measured stays with its part.
        """
        if story != self.story:
            self._end_studies()
        self.story, self.number = story, min(max(number, 0), len(STORIES[story].parts) - 1)
        self._show(answered=False)
        before, self.study = self.study, self._study_of_part()
        if before is not self.study:
            if before is not None:
                before.pause()
            self._place[:] = [] if self.study is None else [self.study]

    def go(self, by: int) -> None:
        """Go forward by this number of parts, or backward where it is negative, and move the page there."""
        if not self.story:
            return
        previous = self.number
        self.open(self.story, self.number + by)
        if self.number != previous and self.part is not None:
            self._move(self.part.link)

    def answer(self) -> None:
        """Show the answer to the part's question, and move the page to what it speaks of."""
        self._show(answered=True)
        if self.part is not None and self.part.shown:
            self._move(self.part.shown)

    def leave(self) -> None:
        """Close the story; the page stays where it is."""
        self.story, self._layout.visible = "", False
        self._end_studies()
        self._on_leave()

    def _study_of_part(self) -> GrowthPanel | None:
        """The measurement of the part that is open; None where it has none."""
        part = self.part
        if part is None or not part.beside:
            return None
        if self.number not in self._studies:
            study = GrowthPanel(self._session, (part.link, *part.beside), part.sizes)
            self._session.panels.append(study)
            self._studies[self.number] = study
        return self._studies[self.number]

    def _end_studies(self) -> None:
        """Measure nothing more, and forget what was measured, because another story is open, or none."""
        for study in self._studies.values():
            study.close()
            self._session.panels.remove(study)
        self._studies, self.study = {}, None
        self._place[:] = []

    def _show(self, answered: bool) -> None:
        part = self.part
        if part is None:
            return
        count = len(STORIES[self.story].parts)
        dots = "●" * (self.number + 1) + "○" * (count - self.number - 1)
        place = (
            f"<p>{text(STORIES[self.story].title)}, {self.number + 1} of {count} "
            f"<span class='dots' aria-hidden='true'>{dots}</span> "
            f"<a href='?story={self.story}&amp;part={self.number + 1}'>Link to this part</a></p>"
        )
        page = STORIES[self.story].page
        if page:
            place += f"<p><a href='{escaped(page[1])}'>{text(page[0])}</a></p>"
        lines = [f"<div class='head'><h1>{text(part.title)}</h1>{place}</div>", f"<p>{text(part.text)}</p>"]
        if part.predict:
            lines.append(f"<p><b>Predict first:</b> {text(part.predict)}</p>")
        if part.answer and answered:
            lines.append(f"<p class='answer'>{text(part.answer)}</p>")
        self.said.object = "".join(lines)
        self.back.disabled, self.next.disabled = self.number == 0, self.number == count - 1
        self.show_answer.visible = bool(part.answer) and not answered
        self._layout.visible = True
