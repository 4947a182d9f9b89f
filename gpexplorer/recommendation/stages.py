"""The plan of a recommendation: how many candidates are tried, in how many stages, on which rows, and for how long.

A lane needs some time before its answer says anything, and more of it with more rows. So a short time has two lanes and
one stage, and a long one has four stages, each of which gives up about half of its lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ..data import Split
from ..errors import SettingError
from ..runs.setting_checks import of_kind
from .candidates import Candidate
from .held_out import first_rows

SHARES = {1: (0.5,), 2: (0.25, 0.3), 3: (0.16, 0.2, 0.25), 4: (0.12, 0.16, 0.2, 0.2)}
# shares of the time of each stage, by the number of stages; the chosen candidate has the rest
MOST_STAGES = max(SHARES)
ROWS = (1000, 5000)  # of the first two stages of four; the last two use all
SECONDS_PER_LANE = 0.03, 0.2  # in the first stage of four: a constant, and a factor of sqrt(n / 1000)
FEWEST_LANES = 2
LATE, LONGEST = 1.25, 3  # times the seconds allowed, from which so many pieces of work are named
READING = "Reading the rows"
USUAL_PARTS = 3  # held-out parts of few rows; with more of them a lane needs more time


class Progress(NamedTuple):
    """How far a recommendation is.

    Attributes
    ----------
    fraction : float
        From 0 to 1, of the time.
    seconds_left : float
        Seconds to go.
    sentence : str
        What happens now.
    """

    fraction: float
    seconds_left: float
    sentence: str


@dataclass
class TimedSearch:
    """What a recommendation works on, and how much time it has.

    Parameters
    ----------
    split : Split
        The training rows; test rows are not used.
    begin, seconds : float
        When it began by the clock, and how long it may take.
    parts : list of Split
        Rows to fit and rows that are held out of them.
    on_progress : callable or None
        Called with a `Progress` before each piece of work.
    should_stop : callable
        Whether the best answer so far is wanted.
    clock : callable
        Gives seconds.
    reserved : float
        Seconds that are kept for what follows the search.
    most_models : int or None
        Models of a lane that predict where it is not fitted to all rows: of the first parts, or of all of them.
    began : list of (float, str)
        The pieces of work, with the seconds after which each of them began.
    """

    split: Split
    begin: float
    seconds: float
    parts: list[Split]
    on_progress: Callable[[Progress], object] | None
    should_stop: Callable[[], bool]
    clock: Callable[[], float]
    reserved: float = field(default=0.0, kw_only=True)
    most_models: int | None = field(default=None, kw_only=True)
    began: list[tuple[float, str]] = field(default_factory=list, init=False)

    @property
    def end(self) -> float:
        """When the time is used, by the clock, except for what is reserved."""
        return self.begin + self.seconds - self.reserved

    def report(self, sentence: str) -> None:
        """Report how much of the time is used, with a sentence about the work that begins."""
        elapsed = self.clock() - self.begin
        self.began.append((elapsed, sentence.rstrip(".")))
        if self.on_progress is not None:
            self.on_progress(Progress(min(elapsed / self.seconds, 1.0), max(self.seconds - elapsed, 0.0), sentence))

    def time_in_words(self) -> str:
        """How long it took and, where that is much longer than allowed, which pieces of work took the most."""
        elapsed = self.clock() - self.begin
        sentence = f"The recommendation took {elapsed:.1f} s of {self.seconds:g} s."
        if elapsed < LATE * self.seconds:
            return sentence
        used = dict[str, float]()
        for (start, work), (end, _) in pairwise([(0.0, READING), *self.began, (elapsed, "")]):
            used[work] = used.get(work, 0.0) + end - start
        longest = sorted(used, key=lambda work: -used[work])[:LONGEST]
        parts = "; ".join(f"{work[0].lower()}{work[1:]}, {used[work]:.1f} s" for work in longest)
        return f"{sentence} A step that has begun is not interrupted. The longest pieces of work were: {parts}."


def lanes_for(n: int, seconds: float, parts: int = 1) -> int:
    """The number of candidates that are tried on n training rows in this time; fewer with more than three parts."""
    constant, factor = SECONDS_PER_LANE
    lanes = int(seconds * SHARES[MOST_STAGES][0] / (constant + factor * math.sqrt(n / 1000)))
    return max(FEWEST_LANES, lanes if parts <= USUAL_PARTS else lanes // 3)


def shares_for(lanes: int) -> tuple[float, ...]:
    """The share of the time of each stage for this number of lanes."""
    return SHARES[min(max(math.ceil(math.log2(lanes)), 1), MOST_STAGES)]


def parts_of_stages(parts: Sequence[Split], stages: int) -> list[list[Split]]:
    """The parts of each stage: more rows from stage to stage, or more held-out parts. Fewer stages are the last ones.

    Parameters
    ----------
    parts : sequence of Split
        Rows to fit and rows that are held out; one part, or several that hold out each row once.
    stages : int
        From 1 to 4.
    """
    if (count := len(parts)) > 1:
        counts = [max(stage + 1, math.ceil(count * (stage + 1) / MOST_STAGES)) for stage in range(MOST_STAGES)]
        return [list(parts[:parts_used]) for parts_used in counts][-stages:]
    (part,) = parts
    sizes = [*ROWS, *[len(part.train)] * (MOST_STAGES - len(ROWS))]
    return [[first_rows(part, size)] for size in sizes[-stages:]]


def given_candidates(among: Sequence[Candidate], n: int, seed: int) -> list[Candidate]:
    """Return the candidates of a caller; SettingError or KernelError where one of them makes no spec for n rows."""
    candidates = [
        of_kind("One of among", candidate, Candidate, "a Candidate")
        for candidate in of_kind("among", among, Sequence, "candidates")
    ]
    refuse_none(candidates)
    for candidate in candidates:
        candidate.spec(n, seed)
    return candidates


def refuse_none(candidates: Sequence[Candidate]) -> None:
    """Raise SettingError if there are no candidates."""
    if not candidates:
        raise SettingError("among is empty: give at least one Candidate, or leave it out.")
