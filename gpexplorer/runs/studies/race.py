"""Several methods on the same rows, in turns of equal wall-clock time.

In turns rather than at once, so that no lane takes another's cores, caches or memory bandwidth. A step cannot be cut,
so a lane that overran its turn waits until the others have caught up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pandas as pd

from ...errors import GPExplorerError, SettingError, closest
from ..run import Run
from ..setting_checks import number, of_kind, quoted
from ..spec import Spec, named_specs

SCORED = ("smse", "snlp", "rmse")
METRICS = {"smse": "SMSE", "snlp": "SNLP"}


@dataclass
class Lane:
    """One method in the race; `sentence` says why it no longer runs."""

    name: str
    spec: Spec
    run: Run | None = None
    sentence: str = ""
    granted: float = 0.0  # seconds of work it may have used by now
    scored: list[dict[str, float]] = field(default_factory=list)  # a row after each turn

    @property
    def over(self) -> bool:
        """Whether it takes no further turn."""
        return bool(self.sentence)

    @property
    def seconds(self) -> float:
        """Seconds of work used."""
        return self.run.trace[-1].seconds if self.run is not None and len(self.run.trace) else 0.0


class Race:
    """Lanes that differ in their method and settings alone. `advance` gives the next lane its turn."""

    def __init__(self, specs: Mapping[str, Spec], a_turn: float = 0.25, data: Any = None) -> None:
        """`a_turn` is in seconds; `data` are rows in memory where no name in the specs brings them, or what reads them.

        Raises SettingError where the specs do not share data, split, seed, kernel, device and precision.
        """
        specs = named_specs("A race", specs)
        a_turn = number("a_turn", a_turn, whole=False, low=0, above=True)
        shared = {(repr(s.data), repr(s.split), s.seed, repr(s.kernel), s.device, s.dtype) for s in specs.values()}
        if len(shared) > 1:
            raise SettingError("The lanes of a race must share data, split, seed, kernel, device and dtype.")
        self.a_turn, self._data = a_turn, cache(data) if callable(data) else lambda: data
        self.lanes = {name: Lane(name, spec) for name, spec in specs.items()}

    @property
    def policy(self) -> str:
        """How time is dealt out, as a sentence."""
        return (
            f"Turns of {self.a_turn:g} s, one lane at a time; a lane whose step overran its turn waits for the others. "
            "Opening the data and scoring are off the clock."
        )

    @property
    def over(self) -> bool:
        """Whether no lane runs any more."""
        return all(lane.over for lane in self.lanes.values())

    def advance(self) -> Lane | None:
        """Let the lane that is furthest behind work for one turn; None when all are over. An error ends its lane."""
        running = [lane for lane in self.lanes.values() if not lane.over]
        if not running:
            return None
        lane = min(running, key=lambda lane: lane.granted)
        lane.granted = max(lane.granted, lane.seconds) + self.a_turn
        try:
            self._turn(lane)
        except GPExplorerError as error:
            lane.sentence = str(error)
        return lane

    def finish(self, seconds: float) -> None:
        """Turns until every lane has worked this long, or is over."""
        seconds = math.inf if seconds == math.inf else number("seconds", seconds, whole=False, low=0)
        while (lane := self.advance()) is not None:
            if lane.seconds >= seconds:
                self.stop(lane.name, f"Its {seconds:g} seconds are used.")

    def stop(self, name: str, why: str = "Stopped.") -> None:
        """Take one lane out; what it has reached stays on the board."""
        if not isinstance(name, str) or name not in self.lanes:
            raise SettingError(f"The race has no lane {quoted(name)}{closest(name, self.lanes)}")
        self.lanes[name].sentence = self.lanes[name].sentence or why

    def close(self) -> None:
        """Free the memory of every lane; the board stays."""
        for lane in self.lanes.values():
            if lane.run is not None:
                lane.run.close()

    def board(self) -> pd.DataFrame:
        """A row a turn: lane, seconds, step, smse, snlp, rmse, memory in bytes of its arrays by formula."""
        rows = [{"lane": lane.name, **row} for lane in self.lanes.values() for row in lane.scored]
        return pd.DataFrame(rows, columns=["lane", "seconds", "step", "smse", "snlp", "rmse", "memory"])

    def scoreboard(self, metric: str = "smse", at: Iterable[float] = (1, 3, 10, 30)) -> pd.DataFrame:
        """The metric each lane had after so many seconds of its own work; nan where it has not worked that long."""
        board, metric, moments = self.board(), _known(metric), _moments(at)
        cells = {
            name: [_by(board[board["lane"] == name], metric, moment, lane) for moment in moments]
            for name, lane in self.lanes.items()
        }
        return pd.DataFrame.from_dict(cells, orient="index", columns=[f"{moment:g} s" for moment in moments])

    def time_to_reach(self, metric: str = "smse") -> pd.DataFrame:
        """Seconds until the lane of the row was as good as the best of the column's lane; nan where it never was."""
        board, metric = self.board(), _known(metric)
        best = board.groupby("lane")[metric].min()
        found = {}
        for name in self.lanes:
            own = board[board["lane"] == name]
            found[name] = [own.loc[own[metric] <= best.get(other, math.nan), "seconds"].min() for other in self.lanes]
        return pd.DataFrame.from_dict(found, orient="index", columns=list(self.lanes))

    def winners(self) -> dict[str, str]:
        """The lane whose SMSE is the lowest now, and the one whose SNLP is: often two.

        By what each would answer now: the best on the way is known from held-out rows alone.
        """
        now = self.board().groupby("lane").tail(1).set_index("lane")
        return {metric: str(now[metric].idxmin()) for metric in METRICS if now[metric].notna().any()}

    def _turn(self, lane: Lane) -> None:
        if lane.run is None:
            lane.run = lane.spec.open(data=self._data())
        run = lane.run
        while lane.seconds < lane.granted:
            if run.advance() is None:
                break
        if run.outcome is not None and run.outcome.reason != "budget":
            lane.sentence = run.outcome.message
        if len(run.trace) and not (run.outcome and run.outcome.reason == "failed"):
            scores = {name: run.scores()[name] for name in SCORED}
            memory = run.method.cost(run.problem).memory
            lane.scored.append({"seconds": lane.seconds, "step": run.done, **scores, "memory": memory})


def _known(metric: str) -> str:
    if metric not in SCORED:
        raise SettingError(f"A race keeps no {quoted(metric)}{closest(metric, SCORED)}")
    return metric


def _moments(at: Any) -> list[float]:
    held = of_kind("at", at, Iterable, "seconds in a list, such as [1, 3, 10]")
    return [number("A moment of the scoreboard", moment, whole=False, low=0) for moment in held]


def _by(rows: pd.DataFrame, metric: str, moment: float, lane: Lane) -> float:
    """The last value at or before `moment`; nan where the lane has not worked that long and is not over."""
    before = rows[rows["seconds"] <= moment]
    there = len(before) and (lane.over or float(rows["seconds"].max()) >= moment)
    return float(before[metric].iloc[-1]) if there else math.nan
