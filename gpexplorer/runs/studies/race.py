"""A race: several methods on the same rows, in turns of equal wall-clock time.

The methods take turns and do not run at the same time, so that no lane uses another's cores, caches or memory
bandwidth. A turn interrupts no step, so a lane whose step exceeded its turn waits until the others have caught up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pandas as pd
import param

from ...display import RaceDisplay
from ...errors import GPExplorerError, SettingError, closest, number, quoted
from ..run import Run
from ..setting_checks import of_kind
from ..spec import Spec, named_specs
from .comparison import alike_by_rows, doubt_in_words

SCORED = ("smse", "snlp", "rmse")
BUDGETS = " Budgets of the specs do not count: the seconds of the race take their place."
METRICS = {"smse": "SMSE", "snlp": "SNLP"}


@dataclass
class Lane:
    """One method in the race.

    Attributes
    ----------
    name : str
        The name of the lane.
    spec : Spec
        What it runs.
    run : Run or None
        The run, from its first turn on.
    sentence : str
        Why the lane has ended; empty while it runs.
    granted : float
        Seconds of work that it may have used so far.
    set_up : float
        Seconds that opening the run took, without reading the data.
    scored : list of dict
        One row after each turn.
    can_go_on : bool
        Whether only the seconds of `Race.finish` have ended the lane, so that more of them let it go on.
    """

    name: str
    spec: Spec
    run: Run | None = None
    sentence: str = ""
    granted: float = 0.0
    set_up: float = 0.0
    scored: list[dict[str, float]] = field(default_factory=list)
    can_go_on: bool = False

    @property
    def over(self) -> bool:
        """Whether the lane takes no further turn."""
        return bool(self.sentence)

    @property
    def seconds(self) -> float:
        """Seconds of work used, set-up included."""
        steps = self.run.trace[-1].seconds if self.run is not None and len(self.run.trace) else 0.0
        return self.set_up + steps


class Race(RaceDisplay, param.Parameterized):
    """Lanes that differ only in their method and its settings. `advance` gives the next lane its turn.

    Parameters
    ----------
    specs : mapping of str to Spec
        The lanes by name.
    turn_seconds : float, default 0.25
        The length of a turn.
    data : Split, arrays or callable, optional
        Rows in memory, if the specs do not name any, or a function that reads them.
    admit : callable, optional
        admit(lane) is called before a lane is opened. A GPExplorerError that it raises ends the lane.

    Raises
    ------
    SettingError
        If the specs do not share data, split, seed, kernel, device and precision.

    Examples
    --------
    >>> race = Race({"swaps": Spec("cholqr"), "gradient": Spec("sgpr")})
    >>> race.finish(seconds=10)
    >>> race.scoreboard("smse", [1, 3, 10])
    """

    turns = param.Integer(0, constant=True, doc="Turns taken so far, of all lanes together: watch it to follow a race.")

    def __init__(
        self,
        specs: Mapping[str, Spec],
        turn_seconds: float = 0.25,
        data: Any = None,
        admit: Callable[[Lane], None] = lambda _: None,
    ) -> None:
        super().__init__()
        specs = named_specs("A race", specs)
        turn_seconds = number("turn_seconds", turn_seconds, whole=False, low=0, above=True)
        shared = {(repr(s.data), repr(s.split), s.seed, repr(s.kernel), s.device, s.dtype) for s in specs.values()}
        if len(shared) > 1:
            raise SettingError("The lanes of a race must share data, split, seed, kernel, device and dtype.")
        self.turn_seconds, self._read_data = turn_seconds, cache(data) if callable(data) else lambda: data
        self._admit = admit
        self.lanes = {name: Lane(name, spec) for name, spec in specs.items()}

    @property
    def policy(self) -> str:
        """How time is divided among the lanes, as a sentence."""
        budgets = BUDGETS if any(lane.spec.budget for lane in self.lanes.values()) else ""
        return (
            f"Turns of {self.turn_seconds:g} s, one lane at a time. A lane whose step takes longer than its turn waits "
            "for the others. Setting up a method is counted; reading the data and scoring are not."
            f"{budgets}"
        )

    @property
    def over(self) -> bool:
        """Whether no lane runs any more."""
        return all(lane.over for lane in self.lanes.values())

    def advance(self) -> Lane | None:
        """Let the lane that is furthest behind work for one turn.

        Returns
        -------
        Lane or None
            The lane, or None if all have ended. An error ends its own lane only.
        """
        running = [lane for lane in self.lanes.values() if not lane.over]
        if not running:
            return None
        lane = min(running, key=lambda lane: lane.granted)
        lane.granted = max(lane.granted, lane.seconds) + self.turn_seconds
        try:
            if lane.run is None:
                self._admit(lane)
                rows = self._read_data()
                begin = time.perf_counter()
                lane.run = lane.spec.open(data=rows)
                lane.set_up = time.perf_counter() - begin if rows is not None else 0.0  # otherwise it has read the data
            run = lane.run
            while lane.seconds < lane.granted:
                if run.advance() is None:  # also where the method has used up a limit of its own, such as its epochs
                    lane.sentence = run.outcome.message if run.outcome is not None else "Ended."
                    break
            if len(run.trace) and not (run.outcome and run.outcome.reason == "failed"):
                scores = {name: run.scores()[name] for name in SCORED}
                memory = run.method.cost(run.problem).memory
                lane.scored.append({"seconds": lane.seconds, "step": run.done, **scores, "memory": memory})
        except GPExplorerError as error:
            lane.sentence = str(error)
        with param.edit_constant(self):
            self.turns += 1
        return lane

    def finish(self, seconds: float) -> None:
        """Give turns until every lane has worked for this many seconds, or has ended.

        Parameters
        ----------
        seconds : float
            Counted from the start of the race, in place of the budgets of the specs, as those of `Run.finish`. Lanes
            that an earlier call has ended at fewer seconds go on.
        """
        seconds = math.inf if seconds == math.inf else number("seconds", seconds, whole=False, low=0)
        for ended in self.lanes.values():
            if ended.can_go_on and ended.seconds < seconds:
                ended.sentence, ended.can_go_on = "", False
        while (lane := self.advance()) is not None:
            if lane.seconds >= seconds:
                lane.can_go_on = not lane.over
                lane.sentence = lane.sentence or f"Its {seconds:g} seconds are used."

    def stop(self, name: str, why: str = "Stopped.") -> None:
        """End one lane. What it has reached stays on the board."""
        if not isinstance(name, str) or name not in self.lanes:
            raise SettingError(f"The race has no lane {quoted(name)}{closest(name, self.lanes)}")
        self.lanes[name].can_go_on = False
        self.lanes[name].sentence = self.lanes[name].sentence or why

    def close(self) -> None:
        """Free the memory of every lane. The board stays."""
        for lane in self.lanes.values():
            if lane.run is not None:
                lane.run.close()

    def board(self) -> pd.DataFrame:
        """One row per turn: lane, seconds, step, smse, snlp, rmse, and the bytes of the arrays by formula."""
        rows = [{"lane": lane.name, **row} for lane in self.lanes.values() for row in lane.scored]
        return pd.DataFrame(rows, columns=["lane", "seconds", "step", "smse", "snlp", "rmse", "memory"])

    def scoreboard(self, metric: str = "smse", at: Iterable[float] = (1, 3, 10, 30)) -> pd.DataFrame:
        """The metric of each lane at some moments of its own work.

        Parameters
        ----------
        metric : {"smse", "snlp", "rmse"}
            The score.
        at : iterable of float
            Seconds, one column each.

        Returns
        -------
        DataFrame
            One row per lane. A cell is nan if the lane has not worked that long and its method has not ended before.
        """
        board, metric = self.board(), _checked_metric(metric)
        listed = of_kind("at", at, Iterable, "seconds in a list, such as [1, 3, 10]")
        moments = [number("A moment of the scoreboard", moment, whole=False, low=0) for moment in listed]
        cells = dict[str, list[float]]()
        for name, lane in self.lanes.items():
            rows, outcome = board[board["lane"] == name], lane.run.outcome if lane.run is not None else None
            # Further time would change nothing, also where all evaluations of a method are used
            has_ended = outcome is not None and outcome.reason in ("converged", "budget")
            longest = math.inf if has_ended else rows["seconds"].max()
            until = [rows.loc[rows["seconds"] <= moment, metric] for moment in moments]
            reached = [len(values) > 0 and moment <= longest for moment, values in zip(moments, until, strict=True)]
            cells[name] = [float(v.iloc[-1]) if ok else math.nan for v, ok in zip(until, reached, strict=True)]
        return pd.DataFrame.from_dict(cells, orient="index", columns=[f"{moment:g} s" for moment in moments])

    def time_to_reach(self, metric: str = "smse") -> pd.DataFrame:
        """Seconds until the lane of the row reached the best value of the lane of the column; nan if it never did."""
        board, metric = self.board(), _checked_metric(metric)
        best = board.groupby("lane")[metric].min()
        seconds = {
            other: board[board[metric] <= best.get(other, math.nan)].groupby("lane")["seconds"].min()
            for other in self.lanes
        }
        return pd.DataFrame(seconds, index=list(self.lanes), dtype=float)

    def variance_notes(self) -> dict[str, str]:
        """What the predictive variances behind each lane's SNLP are if they are not exact; empty texts otherwise."""
        return {name: lane.run.variance_note if lane.run is not None else "" for name, lane in self.lanes.items()}

    def winners(self) -> dict[str, str]:
        """The lane with the lowest SMSE, and the lane with the lowest SNLP, which often differ.

        The newest scores count. No lane could stop at its best earlier score, which only held-out rows reveal. Few test
        rows cannot tell some lanes apart; see `not_told_apart` and `verdict`.
        """
        newest = self.board().groupby("lane").tail(1).set_index("lane")
        return {metric: str(newest[metric].idxmin()) for metric in METRICS if newest[metric].notna().any()}

    def not_told_apart(self, metric: str = "smse") -> list[str]:
        """The other lanes whose score on the test rows differs from the lowest one by no more than by chance.

        Parameters
        ----------
        metric : {"smse", "snlp"}
            The score.

        Notes
        -----
        All lanes predict the same test rows: the mean of the differences row by row is compared with twice its standard
        error.
        """
        lowest = self.winners().get(metric)
        return [] if lowest is None else alike_by_rows(self._terms(metric), lowest)

    def verdict(self) -> list[str]:
        """Say which lane has the lowest SMSE and which the lowest SNLP, and whether the test rows can tell.

        Returns
        -------
        list of str
            Such as "Winner by SMSE: cholqr.", or "Lowest SNLP: cholqr. 20 test rows cannot tell its SNLP from that of
            grief: compare on more rows or splits." While lanes run, there is a leader in place of a winner.
        """
        said, first = [], "Winner" if self.over else "Leader"
        scored = [name for name, lane in self.lanes.items() if lane.scored]
        if len(scored) == 1 < len(self.lanes):
            return [f"Only {scored[0]} has a score."]
        for metric, name in self.winners().items():
            score, rows = METRICS[metric], len(self._terms(metric).get(name, ()))
            doubt = doubt_in_words(rows, score, self.not_told_apart(metric))
            said.append(f"Lowest {score}: {name}. {doubt}" if doubt else f"{first} by {score}: {name}.")
        return said

    def _terms(self, metric: str) -> dict[str, Any]:
        """For each lane the terms [t] of its newest score, one per test row."""
        runs = {name: lane.run for name, lane in self.lanes.items() if lane.scored and lane.run is not None}
        newest = {name: run.test_errors for name, run in runs.items() if run.test_errors is not None}
        terms = {name: densities if metric == "snlp" else errors for name, (_, errors, densities) in newest.items()}
        return {name: own.double().cpu().numpy() for name, own in terms.items()}


def _checked_metric(metric: str) -> str:
    if metric not in SCORED:
        raise SettingError(f"A race keeps no {quoted(metric)}{closest(metric, SCORED)}")
    return metric
