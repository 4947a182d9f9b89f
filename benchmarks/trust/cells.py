"""The cells of `benchmarks trust`: one method on one set, for one seed and precision, computed once and kept."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from gpexplorer.data import Split
from gpexplorer.errors import GPExplorerError
from gpexplorer.methods.base import registry
from gpexplorer.posteriors import NormalMarginals
from gpexplorer.runs import Run, Spec
from gpexplorer.runs.scores import coverage

from .dense_objectives import dense_objective
from .problems import TrustProblem
from .simple_baselines import BASELINES

CLOCK = time.process_time  # other programs on the machine do not shorten a budget that counts processor time


class Pointwise(NamedTuple):
    """Scores of each test row, for targets scaled to unit variance."""

    squared_error: Tensor  # [t]
    log_loss: Tensor  # [t], minus the log predictive density


@dataclass(frozen=True)
class Cell:
    """One method on one set, for one seed and one precision.

    Attributes
    ----------
    method, set, seed, dtype : str or int
        What was run. A baseline stands in place of a method under its own name.
    budget, rows : dict of str to float, int
        The budget, and the largest number of training rows.
    outcome, message : str
        Why the run ended; "refused" if it could not be opened.
    smse, nlpd, coverage68, coverage95 : float
        Scores on the test rows.
    beyond_constant, beyond_ridge : sequence of float
        Mean difference to the constant's log loss and to ridge's squared error, with its standard error. Positive is
        worse.
    objective, dense : float
        The last objective reported, and the dense one at the same theta and points; nan if there is none.
    used : float
        Seconds of processor time, over all threads, with the scores.
    """

    method: str
    set: str
    seed: int
    dtype: str
    budget: dict[str, float]
    rows: int
    outcome: str = ""
    message: str = ""
    smse: float = math.nan
    nlpd: float = math.nan
    coverage68: float = math.nan
    coverage95: float = math.nan
    beyond_constant: Sequence[float] = (math.nan, math.nan)
    beyond_ridge: Sequence[float] = (math.nan, math.nan)
    objective: float = math.nan
    dense: float = math.nan
    used: float = 0.0


@dataclass(frozen=True)
class Plan:
    """How much is computed.

    Attributes
    ----------
    budget : dict
        "seconds" of processor time of a method's own work, over all threads, or "steps".
    dtypes : sequence of str
        Precisions of the methods. Baselines are computed in float64 only.
    seeds : int
        Splits and draws 0, 1, ..., each of which is also the seed of the method.
    rows : int
        The largest number of training rows.
    """

    budget: dict[str, float]
    dtypes: Sequence[str] = ("float64", "float32")
    seeds: int = 3
    rows: int = 1000


@dataclass
class Trial:
    """Rows of one set and seed, with the baselines' scores of each test row."""

    problem: TrustProblem
    seed: int
    plan: Plan
    split: Split = field(init=False)
    baselines: dict[str, Pointwise] = field(init=False)

    def __post_init__(self) -> None:
        self.split = self.problem.split(self.seed, self.plan.rows)
        self.baselines = {name: self.pointwise(*BASELINES[name](self.split)) for name in ("constant", "ridge")}

    def cell(self, method: str, dtype: str) -> Cell:
        """Run one method, or compute one baseline."""
        begin = CLOCK()
        values = self._baseline(method) if method in BASELINES else self._run(method, dtype)
        values["used"] = CLOCK() - begin
        return Cell(method, self.problem.name, self.seed, dtype, self.plan.budget, self.plan.rows, **values)

    def _baseline(self, name: str) -> dict[str, Any]:
        return {"outcome": "baseline"} | self._scores(*BASELINES[name](self.split))

    def _run(self, method: str, dtype: str) -> dict[str, Any]:
        kind = registry[method]
        if 0 < kind.most_inputs < self.split.train.d:
            return {"outcome": "refused", "message": f"{kind.title} takes no more than {kind.most_inputs} input."}
        try:
            spec = Spec(method, dtype=dtype, seed=self.seed, kernel=kind.example_kernel, budget=self.plan.budget)
            opened = spec.open(data=self.split)
        except GPExplorerError as error:
            return {"outcome": "refused", "message": str(error)}
        run = Run(opened.method, opened.problem, opened.split, spec=opened.spec, clock=CLOCK)
        outcome = run.finish()
        values: dict[str, Any] = {"outcome": outcome.reason, "message": outcome.message}
        try:
            prediction = run.posterior(of="y")(self.split.test.X)
            values |= self._scores(prediction.mean.double(), prediction.var.double())
            values |= reported_and_dense(run)
        except (GPExplorerError, ArithmeticError, RuntimeError) as error:
            values |= {"outcome": "failed", "message": f"{outcome.message} The answers failed: {error}"}
        run.close()
        return values

    def pointwise(self, mean: Tensor, var: Tensor) -> Pointwise:
        """Scores of each test row from predictions in the units of the file."""
        y, sd = self.split.test.y, float(self.split.train.y.std(correction=0)) or 1.0
        density = -NormalMarginals(mean, var).log_density(y) - math.log(sd)  # of y / sd
        return Pointwise((y - mean).square() / sd**2, density)

    def _scores(self, mean: Tensor, var: Tensor) -> dict[str, Any]:
        y, pointwise = self.split.test.y, self.pointwise(mean, var)
        sd = float(self.split.train.y.std(correction=0)) or 1.0
        values: dict[str, Any] = {
            "smse": float(pointwise.squared_error.mean()) * sd**2 / float(y.var(correction=0)),
            "nlpd": float(pointwise.log_loss.mean()),
            "coverage68": coverage(y, mean, var, 0.68),
            "coverage95": coverage(y, mean, var, 0.95),
        }
        if hasattr(self, "baselines"):
            values["beyond_constant"] = _mean_and_error(pointwise.log_loss - self.baselines["constant"].log_loss)
            values["beyond_ridge"] = _mean_and_error(pointwise.squared_error - self.baselines["ridge"].squared_error)
        return values


def _mean_and_error(differences: Tensor) -> tuple[float, float]:
    return float(differences.mean()), float(differences.std(correction=0)) / math.sqrt(len(differences))


def reported_and_dense(run: Run) -> dict[str, Any]:
    """The last objective that a run reported, and the dense one for the same state."""
    for record in reversed(run.trace[:]):
        reported = float(getattr(record.step.info, "objective", math.nan))
        if not math.isnan(reported):
            return {"objective": reported, "dense": dense_objective(run, record)}
    return {}


def run_cells(
    chosen: Sequence[TrustProblem],
    methods: Sequence[str],
    plan: Plan,
    path: Path,
    report: Callable[[str], object] = lambda _: None,
) -> list[Cell]:
    """Compute the cells that the file does not hold yet, and return all that were asked for.

    Parameters
    ----------
    chosen : sequence of TrustProblem
        The sets.
    methods : sequence of str
        Keys of methods. The baselines are always there.
    plan : Plan
        Budget, precisions, seeds and rows.
    path : Path
        The file of cells, one JSON object per line.
    report : callable
        Receives one line of text per cell computed.
    """
    cells = {_key(cell): cell for cell in read_cells(path)}
    requested = []
    for problem in chosen:
        for seed in range(plan.seeds):
            pairs = [(name, "float64") for name in BASELINES]
            pairs += [(method, dtype) for dtype in plan.dtypes for method in methods]
            keys = {pair: _key(Cell(pair[0], problem.name, seed, pair[1], plan.budget, plan.rows)) for pair in pairs}
            trial = Trial(problem, seed, plan) if any(key not in cells for key in keys.values()) else None
            for pair, key in keys.items():
                if key not in cells and trial is not None:
                    cells[key] = trial.cell(*pair)
                    _append(path, cells[key])
                    report(_line(cells[key]))
                requested.append(cells[key])
    return requested


def read_cells(path: Path) -> list[Cell]:
    """The cells of a file. An incomplete last line, left by a kill, is ignored."""
    cells = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            cells.append(Cell(**json.loads(line)))
        except ValueError:
            continue
    return cells


def _append(path: Path, cell: Cell) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    incomplete = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * incomplete + json.dumps(asdict(cell)) + "\n")


def _key(cell: Cell) -> str:
    """What was computed, as text."""
    return json.dumps([cell.method, cell.set, cell.seed, cell.dtype, cell.budget, cell.rows])


def _line(cell: Cell) -> str:
    scores = f"SMSE {cell.smse:.3f}, NLPD {cell.nlpd:.2f}, coverage {cell.coverage68:.2f} / {cell.coverage95:.2f}"
    return f"{cell.set}, seed {cell.seed}, {cell.dtype}, {cell.method}: {scores}; {cell.outcome}, {cell.used:.1f} s"
