"""What a person's hand asks of the run: a click forces a step, a drag moves a point, a tap adds or takes out a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...data.edits import MOST
from ..playback.player import Player

AGAIN = 200  # steps taken anew after rows were edited: further ones wait for Play


class Changing:
    """Orders of one page. `at` is the record shown, `data` what the spec names, `choose` opens other data."""

    def __init__(
        self, player: Player, at: Callable[[], int], data: Callable[[], Any], choose: Callable[[Any], None]
    ) -> None:
        self._player, self._at, self._data, self._choose = player, at, data, choose
        self._from = 0

    def click(self, key: str, x: float, y: float) -> None:
        """The step that a click on this view asks for."""
        at = self._at()
        self._player.change(lambda stage: stage.click(key, at, x, y))

    def drag(self, first: bool, slot: int, to: tuple[float, ...]) -> None:
        """Inducing point `slot` at `to`, seen from the record at which this drag began; the newest place wins."""
        if first:
            self._from = self._at()
        at = self._from
        self._player.change(lambda stage: stage.drag(at, slot, to))

    def edit(self, edit: Sequence[float] | None) -> str:
        """Add this row or take out that one (None takes back the last edit), and come back to the step shown.

        Returns a sentence where it may not be done.
        """
        held = self._data()
        named = dict(held) if isinstance(held, dict) else {"name": held}
        edits = list(named.pop("edits", []))
        if edit is not None and len(edits) >= MOST:
            return f"{MOST} rows are edited, the most a link can carry: take some back first."
        edits = edits[:-1] if edit is None else [*edits, list(edit)]
        at = min(self._at(), AGAIN)
        self._choose({**named, "edits": edits} if edits else held_alone(named))
        if at:
            self._player.run_to(at)
        return ""


def held_alone(named: dict[str, Any]) -> Any:
    """The name by itself, where nothing else is said."""
    return named["name"] if set(named) == {"name"} else named
