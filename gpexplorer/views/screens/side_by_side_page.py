"""What five families of methods do to one surface, step by step, as plain numbers and as one HTML file that plays them.

All families get the same rows. A frame belongs to a step of a run: the mean of its prediction as a map, its error on
the test rows, the seconds of work up to it, and what the family moves: points, a block of rows, the weight of another
eigenfunction, the lengthscales of the folds, a minibatch.

The same runs on doubling numbers of rows give the time of one step of every family (`StepTimes`).
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from ...data.standardising import scaled_inputs
from ...errors import SettingError
from ...methods.minibatches.loop import Minibatches
from ...methods.minibatches.model import Model
from ...posteriors import in_units
from ...runs import Spec
from ...runs import link as links
from ...runs.run import Run
from ...runs.scores import smse
from ..drawing import run_rows
from ..families.eigenfunction_curves import basis_at, posterior_weights
from ..saved_page.page_file import written
from .lesson_page import SHELL, rounded, screen_page, swap_states
from .lesson_page import STYLE as SCREEN_STYLE

STEPS = 30
SIDE, SMALL_SIDE = 40, 12  # pixels along a side of a map, and of the map of one eigenfunction
ENDS = (-1.2, 1.2)  # of the colour scale, in units of the target
SIZES = (250, 500, 1000)  # training rows that can be chosen
SIZE = 500
# Fixed for all families that do not learn: the maximum likelihood of the exact model on 1,000 such rows.
THETA = (0.526, -0.032, -1.588)
FAR_THETA = (THETA[0] - 3.0, THETA[1] - 1.0, THETA[2] + 1.0)  # where the folds begin to learn
BATCHES = 3  # minibatches per step
FIRST = 250  # rows of the smallest size that is timed
MEASURED = 4  # steps per run that is timed
REPEATS, REPEATED = 3, 2.5  # further runs of one step, as long as all take less than these seconds
LONGEST = 6.0  # seconds that such a run may be expected to take; larger sizes of its family are left out


class Family(TypedDict):
    """One family for the browser."""

    title: str
    note: str  # what a step is
    link: str  # the query that opens the run in the laboratory
    frames: list[dict[str, Any]]


class Recipe(NamedTuple):
    """How the run of a family is opened, and what its frames show beside map, error and seconds."""

    title: str
    note: str
    method: str
    settings: dict[str, Any]
    frames: Callable[[Run, Plane], list[dict[str, Any]]]
    theta: tuple[float, ...] = THETA


class Plane:
    """The surface on which all families are drawn: the grid of the maps, the training rows, and the test rows."""

    def __init__(self, run: Run) -> None:
        assert run.split is not None
        train = run.problem.train
        self.rows = run_rows.inputs_of(train)
        self.low, self.high = self.rows.min(0), self.rows.max(0)
        self.grid = self.square(SIDE)
        test = run.split.test
        self.X, self.y = torch.from_numpy(run_rows.inputs_of(test)), torch.from_numpy(run_rows.targets_of(test))

    def square(self, side: int) -> Tensor:
        """Return the places [side^2, 2] of the pixels of a map; the second input runs fastest."""
        ends = zip(self.low.tolist(), self.high.tolist(), strict=True)
        return torch.cartesian_prod(*(torch.linspace(a, b, side, dtype=torch.float64) for a, b in ends))

    def frame(self, mean: Callable[[Tensor], Tensor], seconds: float, **marks: Any) -> dict[str, Any]:
        """Return a frame for a predictive mean in the units of the file."""
        error = smse(self.y, mean(self.X).cpu().double())
        return {"map": packed(mean(self.grid)), "smse": rounded(error), "seconds": round(seconds, 5), **marks}

    def frame_of(self, run: Run, state: Any, seconds: float, **marks: Any) -> dict[str, Any]:
        """Return a frame for a state of a run."""
        posterior = in_units(run.method.posterior(run.problem, state), run.problem)
        return self.frame(lambda X: posterior(X).mean, seconds, **marks)

    def constant(self, run: Run) -> Callable[[Tensor], Tensor]:
        """Return the prediction of a model that has learned nothing: the mean of the training targets."""
        mean = float(run_rows.targets_of(run.problem.train).mean())
        return lambda X: X.new_full((len(X),), mean)


def spec_of(family: str, n: int, **settings: Any) -> Spec:
    """Return the spec of a family's run on n training rows."""
    recipe = FAMILIES[family]
    return Spec(
        recipe.method,
        recipe.settings | settings,
        data={"name": "sin-product", "n": 2 * n, "noise": 0.1},
        split={"test": 0.5, "seed": 0},
        kernel={"name": "se", "theta": list(recipe.theta)},
        seed=1,
        budget={"steps": STEPS},
    )


def family_of(family: str, n: int) -> Family:
    """Run a family and compute its frames.

    Parameters
    ----------
    family : str
        A key of `FAMILIES`.
    n : int
        Training rows.

    Returns
    -------
    Family
        One frame per step, the first one before all work.

    Raises
    ------
    SettingError
        If there is no such family.
    """
    if family not in FAMILIES:
        raise SettingError(f"There is no family {family!r}; there are {', '.join(FAMILIES)}.")
    recipe, run = FAMILIES[family], spec_of(family, n).open()
    run.finish()
    frames = recipe.frames(run, Plane(run))
    return {"title": recipe.title, "note": recipe.note, "link": links.write(run.spec, at=run.done), "frames": frames}


def surface_of(n: int) -> dict[str, Any]:
    """Return where the training rows lie, as shares of the sides of the maps, and the scale of the colours."""
    plane = Plane(spec_of("exact", n).open())
    places = (plane.rows - plane.low) / (plane.high - plane.low)
    sizes = {"n": n, "side": SIDE, "small": SMALL_SIDE, "steps": STEPS, "sizes": list(SIZES)}
    return {**sizes, "rows": [rounded(places[:, 0]), rounded(1 - places[:, 1])], "ends": list(ENDS)}


def packed(values: Tensor, ends: tuple[float, float] = ENDS) -> str:
    """Return a map as one byte per pixel, in the order of the rows of an image, as base64."""
    side = round(len(values) ** 0.5)
    shares = (values.cpu().double().reshape(side, side).T.flip(0) - ends[0]) / (ends[1] - ends[0])
    return base64.b64encode((255 * shares.clamp(0, 1)).round().to(torch.uint8).numpy().tobytes()).decode()


def _swaps(run: Run, plane: Plane) -> list[dict[str, Any]]:
    """The points, what the swap took out and put in, and the decrease that it brought, in nat."""
    frames, states = [], swap_states(run)
    objectives = [float(run.method.bound_terms(run.problem, state).total("vfe")) for state in states]  # type: ignore[attr-defined]
    for at, (record, state) in enumerate(zip(run.trace, states, strict=True)):
        info = record.step.info
        moved = [int(info.removed), int(info.proposed)] if at and info.accepted else None
        gain = rounded(objectives[at - 1] - objectives[at]) if at else 0.0
        points = state.inducing.tolist()
        frames.append(plane.frame_of(run, state, record.seconds, points=points, moved=moved, gain=gain))
    return frames


def _blocks(run: Run, plane: Plane) -> list[dict[str, Any]]:
    """The rows of the block, and how far it lowered the quadratic f(alpha)."""
    frames, before = [], 0.0
    for record in run.trace:
        info = record.step.info
        after = info.objective if np.isfinite(info.objective) else before
        marks = {"block": info.active.tolist(), "gain": rounded(before - after)}
        frames.append(plane.frame_of(run, record.step.state, record.seconds, **marks))
        before = after
    return frames


def _eigenfunctions(run: Run, plane: Plane) -> list[dict[str, Any]]:
    """The weights of the first p functions in frame p, each p a run of its own, whose seconds are added.

    The mean is the sum of the functions with these weights; function p is drawn on a scale of its own.
    """
    frames = [plane.frame(plane.constant(run), 0.0, weights=[], function="")]
    seconds, train = 0.0, run.problem.train
    X = scaled_inputs(plane.square(SMALL_SIDE), train)
    for p in range(1, STEPS + 1):
        part = spec_of("eigenfunctions", len(train), num_eigenfunctions=p).open()
        part.finish()
        last = part.trace[-1]
        seconds += last.seconds
        _, basis, _ = basis_at(part, part.done)
        weights = posterior_weights(part, part.done, basis)
        with torch.no_grad():
            function = basis(X.to(train.X))[-1]
        largest = float(function.abs().max())
        marks = {"weights": rounded(weights), "function": packed(function, (-largest, largest))}
        frames.append(plane.frame_of(part, last.step.state, seconds, **marks))
    return frames


def _folds(run: Run, plane: Plane) -> list[dict[str, Any]]:
    """The lengthscale of every fold, as a share of the side of the map."""
    frames, side = [], float(np.ptp(run.problem.train.X[:, 0].cpu().numpy()))
    start = torch.tensor(FAR_THETA).expand(run.method.folds, -1)  # type: ignore[attr-defined]
    for record in run.trace:
        thetas = record.step.info.thetas if len(record.step.info.thetas) else start
        lengths = thetas[:, 0].exp() / side
        frames.append(plane.frame_of(run, record.step.state, record.seconds, lengths=rounded(lengths)))
    return frames


def _minibatches(run: Run, plane: Plane) -> list[dict[str, Any]]:
    """The rows of the newest minibatch, and the likelihood that the minibatches of the step estimate."""
    method = run.method
    assert isinstance(method, Minibatches)
    model = Model(method, run.problem, method.validation)
    rows = method.learner(model, run.trace[-1].step.state).rows
    frames = [plane.frame(plane.constant(run), 0.0, batch=[], estimate=None)]
    for record in list(run.trace)[1:]:
        batch = rows(record.step.state.batches - 1)
        batch = batch if model.learning_rows is None else model.learning_rows[batch]
        marks = {"batch": batch.tolist(), "estimate": rounded(record.step.info.estimate)}
        frames.append(plane.frame_of(run, record.step.state, record.seconds, **marks))
    return frames


def _exact(run: Run, plane: Plane) -> list[dict[str, Any]]:
    return [plane.frame_of(run, run.trace[-1].step.state, _median_seconds(run))]


def _median_seconds(run: Run) -> float:
    """The seconds of a run of one step: the median of three more, as the first one of a process also starts libraries.

    Of one run only where it takes long.
    """
    first, *more = [run.trace[-1].seconds]
    while len(more) < REPEATS and first + sum(more) < REPEATED:
        again = run.spec.open() if run.spec is not None else run
        again.finish()
        more.append(again.trace[-1].seconds)
    return median(more or [first])


FAMILIES = {
    "exact": Recipe("Exact", "all rows at once", "cholesky", {"learn": False}, _exact),
    "swaps": Recipe(
        "Swaps", "16 of the rows", "cholqr",
        {"num_inducing": 16, "num_pivots": 16, "num_proposals": 1, "compete": False, "start": "left",
                   "learn": False, "swaps_per_epoch": 2 * STEPS},
        _swaps,
    ),
    "blocks": Recipe(
        "Blocks", "100 rows each", "gbcd", {"block": 100, "coarse": 0, "learn": False}, _blocks
    ),
    "eigenfunctions": Recipe(
        "Eigenfunctions", "one per step", "grief", {"num_eigenfunctions": STEPS, "learn": False},
        _eigenfunctions,
    ),
    "minibatches": Recipe(
        "Minibatches", "64 rows each", "scgd",
        {"kernel": "gaussian", "num_features": 200, "width": 64, "minibatches": BATCHES, "refit": "none"},
        _minibatches,
    ),
    "folds": Recipe(
        "Folds", "four agree on \u03b8", "gpcv-admm", {"copies": True, "calibrate": False}, _folds, FAR_THETA
    ),
}  # fmt: skip


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
        sizes = [n for k in range(20) if (n := FIRST * 2**k) <= largest]
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
        several. A run of eigenfunctions and the exact model have one step, which is the whole run: the median of three.
        """
        if not self._left:
            return False
        key, n = self._left.pop(0)
        run = spec_of(key, n).open()
        run.finish(steps=MEASURED)
        seconds = [record.seconds for record in run.trace]
        if len(seconds) == 2:  # not less the time before the first record, in which this process may start libraries
            seconds = [0.0, _median_seconds(run)]
        steps = [after - before for before, after in pairwise(seconds)]
        if steps:
            self.table[key].append([n, round(median(steps[1:] or steps), 6)])
        if not steps or 8 * seconds[-1] > LONGEST:  # a run that failed, or n^3
            self._left = [(name, size) for name, size in self._left if name != key]
        return bool(self._left)


HERE = Path(__file__).parent
PLAYER = SHELL + (HERE / "side_by_side_player.js").read_text("utf-8")
STYLE = SCREEN_STYLE + (HERE / "side_by_side_style.css").read_text("utf-8")
BEGIN = """
const player = gpexplorerSideBySide(document.getElementById("screen"), {surface: content.surface})
for (const [key, family] of Object.entries(content.families)) player.add(key, family)
player.time(content.times, "")"""


def save_side_by_side(path: str | os.PathLike[str], n: int = SIZE, largest: int = 2000) -> Path:
    """Run all families and write them as an HTML file of about half a megabyte.

    Parameters
    ----------
    path : str or PathLike
        The file.
    n : int, default 500
        Training rows.
    largest : int, default 2000
        The largest number of rows on which the time of a step is measured.

    Raises
    ------
    SettingError
        If the file cannot be written.

    Notes
    -----
    It takes about half a minute: the seconds in the file are those of this machine.
    """

    def page() -> str:
        families = {key: family_of(key, n) for key in FAMILIES}
        times = StepTimes(largest)
        while times.advance():
            pass
        content = {"surface": surface_of(n), "families": families, "times": times.table}
        return screen_page(content, [PLAYER], BEGIN, STYLE)

    return written(path, page)
