"""The time of one step of every family on doubling numbers of rows, measured by the runs that the maps show.

It is apart from the frames because a measurement takes one run after the other while somebody watches.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from .family_frames import FAMILIES, spec_of

FIRST = 250  # rows of the smallest size
MEASURED = 4  # steps per run
LONGEST = 6.0  # seconds that a run may be expected to take; larger sizes of its family are left out


class StepTimes:
    """Measures family after family on one number of rows after the other.

    Parameters
    ----------
    largest : int
        The largest number of rows.

    Attributes
    ----------
    table : dict of str to list of list of float
        For each family the pairs of rows and seconds that have been measured.
    next : str
        What the next call of `advance` measures, in words; empty at the end.
    """

    def __init__(self, largest: int = 8000) -> None:
        self.table: dict[str, list[list[float]]] = {key: [] for key in FAMILIES}
        sizes = [FIRST * 2**k for k in range(20) if FIRST * 2**k <= largest]
        self._left = [(key, n) for n in sizes for key in FAMILIES]

    @property
    def next(self) -> str:
        """What is measured next."""
        return f"{FAMILIES[self._left[0][0]].title.lower()} on {self._left[0][1]:,} rows" if self._left else ""

    def advance(self) -> bool:
        """Measure one family on one number of rows.

        Returns
        -------
        bool
            Whether something is left to measure.

        Notes
        -----
        The time of a step is the median of up to four steps, without the work before the first step of a run that has
        several. A run of eigenfunctions and the exact model have one step, which is the whole run.
        """
        if not self._left:
            return False
        key, n = self._left.pop(0)
        run = spec_of(key, n).open()
        run.finish(steps=MEASURED)
        seconds = [record.seconds for record in run.trace]
        steps = [after - before for before, after in pairwise(seconds)]
        if steps:
            self.table[key].append([n, round(median(steps[1:] or steps), 6)])
        if not steps or 8 * seconds[-1] > LONGEST:  # a run that failed, or n^3
            self._left = [(name, size) for name, size in self._left if name != key]
        return bool(self._left)
