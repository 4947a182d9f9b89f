"""What lies under the pictures of an explorer, and what those panels may ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from ...runs import Spec
from ...runs.studies.comparison import Finished
from ..pictures.html_export import sheet, written
from .accordion import Below
from .compare_panel import Asks, ComparePanel
from .race_panel import RacePanel
from .scaling_panel import ScalingPanel
from .share_panel import Share

if TYPE_CHECKING:
    from ..explorer import Explorer


def folded(explorer: Explorer) -> Below:
    """The panels of this explorer, by title; none is built yet."""
    seat, pause = Seat(explorer), explorer.player.pause
    return Below({
        "Compare: runs you keep, sweeps, the front of time and error": lambda: ComparePanel(
            Asks(seat.finished, seat.stored, seat.opened, pause, seat.again), explorer.notes
        ),
        "Race: several methods on these rows, in turns": lambda: RacePanel(seat.opened, pause),
        "Scaling: what would more rows cost?": lambda: ScalingPanel(lambda: explorer.spec, pause),
        "Link, code and files": lambda: Share(
            lambda: explorer.shown, seat.table, explorer.choose, seat.sheet, explorer.notes
        ),
    })  # fmt: skip


class Seat:
    """What a panel sees of the explorer it lies under."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer

    def opened(self) -> tuple[Spec, Any]:
        """The spec, and how its rows are read where no name brings them."""
        return self._explorer.spec, self._explorer.read

    def finished(self) -> Finished | None:
        """The open run, as far as it has come."""
        run = self._explorer.player.run
        return Finished.of(run) if run is not None else None

    def table(self) -> pd.DataFrame:
        """Its steps."""
        run = self._explorer.player.run
        return run.table() if run is not None else pd.DataFrame()

    def stored(self) -> str:
        """Put the open run into the store, where there is one; returns a sentence on it."""
        run, notes = self._explorer.player.run, self._explorer.notes
        if notes.store is None or run is None:
            return ""
        if self._explorer.shown.by_hand:
            return "It is not in the store: a click led to this step, which no spec repeats."
        return notes.store_run(run)

    def again(self, spec: Spec, at: int) -> None:
        """Open a spec, and take steps up to `at`."""
        self._explorer.choose(spec)
        self._explorer.player.run_to(at)

    def sheet(self, note: str) -> str:
        """The pictures on the screen as HTML, with what is said of them."""
        held = self._explorer
        said = [str(held.title.object), str(held.status.line.object), written(note)]
        return sheet(held.shown.spec, said, held.pictures.drawn(), held.pictures.theme)
