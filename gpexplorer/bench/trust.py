"""Can the numbers be trusted? Every method at its defaults on public sets and on hard synthetic ones.

A cell is one method on one set, for one seed and precision, with at most `--seconds` of the method's own work. Its
SMSE, NLPD and coverage on test rows stand beside those of a constant, ridge regression, nearest neighbours and a dense
GP that is fitted to at most 500 of the rows. NLPD is that of targets scaled to unit variance, so that sets compare.

A result, over all seeds, is red for these reasons:

    coverage    the 95 % bands cover less than 90 % or more than 98 % of the test targets, on data from the model
    constant    NLPD is worse than the constant's, by more than two standard errors of the difference
    ridge       SMSE is worse than that of ridge regression, by more than two standard errors of the difference
    objective   the objective reported differs from the dense one by more than 1e-6 of it (1e-3 in float32)
    failed      the method failed, or its predictions are not finite

The coverage of a baseline is printed and not judged, except the dense GP's: a C becomes a c in the summary where the
dense GP covers too little or too much as well, because then the fault lies in maximum likelihood on these rows.

A method that refuses a set before it starts is not red, because a refusal with a reason is an honest answer. Cells are
kept in a file as they are computed, so that the same command continues where it was stopped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from torch import Tensor

from ..data import Split
from ..errors import GPExplorerError, SettingError, closest
from ..methods.base import registry
from ..runs import Run, Spec
from ..runs.scores import HALF_LOG_2PI, coverage
from .dense_objectives import dense_objective
from .trust_baselines import BASELINES
from .trust_problems import TrustProblem, problems

COVERAGE_RANGE = (0.90, 0.98)
TOLERANCE = {"float64": 1e-6, "float32": 1e-3}  # of an objective, relative to its size
JUDGED_BASELINE = "dense GP"
REASONS = {"coverage": "C", "constant": "N", "ridge": "R", "objective": "O", "failed": "F"}


class Pointwise(NamedTuple):
    """Scores of each test row, for targets scaled to unit variance."""

    squared_error: Tensor  # [t]
    log_loss: Tensor  # [t], minus the log predictive density


@dataclass(frozen=True)
class Cell:
    """One method on one set, for one seed and one precision.

    Attributes
    ----------
    method, set, seed, dtype
        What was run. A baseline stands in place of a method under its own name.
    budget, rows
        The budget, and the largest number of training rows.
    outcome, message
        Why the run ended; "refused" if it could not be opened.
    smse, nlpd, coverage68, coverage95
        Scores on the test rows.
    beyond_constant, beyond_ridge
        Mean difference to the constant's log loss and to ridge's squared error, with its standard error. Positive is
        worse.
    objective, dense
        The last objective reported, and the dense one at the same theta and points; nan if there is none.
    used
        Seconds of wall time.
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
        "seconds" of a method's own work, or "steps".
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
        begin = time.perf_counter()
        values = self._baseline(method) if method in BASELINES else self._run(method, dtype)
        values["used"] = time.perf_counter() - begin
        return Cell(method, self.problem.name, self.seed, dtype, self.plan.budget, self.plan.rows, **values)

    def _baseline(self, name: str) -> dict[str, Any]:
        return {"outcome": "baseline"} | self._scores(*BASELINES[name](self.split))

    def _run(self, method: str, dtype: str) -> dict[str, Any]:
        try:
            run = Spec(method, dtype=dtype, seed=self.seed, budget=self.plan.budget).open(data=self.split)
        except GPExplorerError as error:
            return {"outcome": "refused", "message": str(error)}
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
        sd = float(self.split.train.y.std(correction=0)) or 1.0
        error2, var = (self.split.test.y - mean).square() / sd**2, var / sd**2
        return Pointwise(error2, HALF_LOG_2PI + 0.5 * var.log() + 0.5 * error2 / var)

    def _scores(self, mean: Tensor, var: Tensor) -> dict[str, Any]:
        y, own = self.split.test.y, self.pointwise(mean, var)
        sd = float(self.split.train.y.std(correction=0)) or 1.0
        values: dict[str, Any] = {
            "smse": float(own.squared_error.mean()) * sd**2 / float(y.var(correction=0)),
            "nlpd": float(own.log_loss.mean()),
            "coverage68": coverage(y, mean, var, 0.68),
            "coverage95": coverage(y, mean, var, 0.95),
        }
        if hasattr(self, "baselines"):
            values["beyond_constant"] = _mean_and_error(own.log_loss - self.baselines["constant"].log_loss)
            values["beyond_ridge"] = _mean_and_error(own.squared_error - self.baselines["ridge"].squared_error)
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
    wanted = []
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
                wanted.append(cells[key])
    return wanted


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


def red_reasons(
    cells: Sequence[Cell], from_model: bool, coverage_range: tuple[float, float] = COVERAGE_RANGE
) -> list[str]:
    """Why the result of one method on one set in one precision is red.

    Parameters
    ----------
    cells : sequence of Cell
        One cell per seed.
    from_model : bool
        Whether the data are a draw from the model, so that coverage counts.
    coverage_range : tuple of float
        The lowest and the highest coverage of a 95 % band that is not red.

    Returns
    -------
    list of str
        Keys of `REASONS`; empty if the result is not red.
    """
    cells = [cell for cell in cells if cell.outcome != "refused"]
    if not cells or (cells[0].outcome == "baseline" and cells[0].method != JUDGED_BASELINE):
        return []
    finite = all(math.isfinite(cell.smse) and math.isfinite(cell.nlpd) for cell in cells)
    if not finite or any(cell.outcome in ("failed", "diverged") for cell in cells):
        return ["failed"]
    low, high = coverage_range
    reasons = {
        "coverage": from_model and not low <= _mean(cell.coverage95 for cell in cells) <= high,
        "constant": _worse([cell.beyond_constant for cell in cells]),
        "ridge": _worse([cell.beyond_ridge for cell in cells]),
        "objective": any(objective_error(cell) > TOLERANCE[cell.dtype] for cell in cells),
    }
    return [reason for reason, holds in reasons.items() if holds]


def objective_error(cell: Cell) -> float:
    """The relative difference between the objective reported and the dense one; nan if there is no dense one."""
    return abs(cell.objective - cell.dense) / max(abs(cell.dense), 1.0)


def _worse(differences: Sequence[Sequence[float]]) -> bool:
    """Whether the mean difference over seeds is positive by more than two standard errors."""
    mean = _mean(difference for difference, _ in differences)
    error = math.sqrt(sum(error**2 for _, error in differences)) / len(differences)
    return mean > 2.0 * error + 1e-9


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return sum(kept) / len(kept)


def by_result(cells: Iterable[Cell]) -> dict[tuple[str, str, str], list[Cell]]:
    """The cells of all seeds, by (set, method, dtype)."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.set, cell.method, cell.dtype), []).append(cell)
    return groups


def markdown(cells: Sequence[Cell], chosen: Sequence[TrustProblem]) -> str:
    """The report: a summary with one letter per red reason, and a table of numbers for every set."""
    groups, from_model = by_result(cells), {problem.name: problem.from_model for problem in chosen}
    red = {key: red_reasons(group, from_model[key[0]]) for key, group in groups.items()}
    lines = ["## Summary", "", *_summary(red, groups, chosen), ""]
    for problem in chosen:
        kind = "data from the model" if problem.from_model else "not from the model"
        lines += [f"## {problem.name}", "", f"{problem.about}; {kind}.", ""]
        lines += _table({key[1:]: group for key, group in groups.items() if key[0] == problem.name}, red, problem.name)
        lines.append("")
    return "\n".join(lines)


def _summary(
    red: Mapping[tuple[str, str, str], list[str]],
    groups: Mapping[tuple[str, str, str], list[Cell]],
    chosen: Sequence[TrustProblem],
) -> list[str]:
    legend = ", ".join(f"{letter} {reason}" for reason, letter in REASONS.items())
    lines = [f"Red results: {legend}; c coverage, and the dense GP's as well; · none; – refused.", ""]
    names = [problem.name for problem in chosen]
    lines += ["| method | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for method, dtype in dict.fromkeys((method, dtype) for _, method, dtype in groups):
        row = []
        for name in names:
            group = groups.get((name, method, dtype), [])
            letters = "".join(REASONS[reason] for reason in red.get((name, method, dtype), []))
            if "coverage" in red.get((name, JUDGED_BASELINE, "float64"), []):
                letters = letters.replace("C", "c")
            refused = bool(group) and all(cell.outcome == "refused" for cell in group)
            row.append(f"**{letters}**" if letters else "–" if refused else "·" if group else "")
        label = method if dtype == "float64" else f"{method}, {dtype}"
        lines.append(f"| {label} | " + " | ".join(row) + " |")
    return lines


def _table(
    groups: Mapping[tuple[str, str], list[Cell]], red: Mapping[tuple[str, str, str], list[str]], name: str
) -> list[str]:
    heads = ("method", "SMSE", "NLPD", "coverage 68", "coverage 95", "objective error", "seconds", "red")
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * 6 + " --- |"]
    for (method, dtype), group in groups.items():
        label = method if dtype == "float64" else f"{method}, {dtype}"
        kept = [cell for cell in group if cell.outcome != "refused"]
        if not kept:
            lines.append(f"| {label} | refused |  |  |  |  |  | |")
            continue
        errors = [error for cell in kept if not math.isnan(error := objective_error(cell))]
        values = [f"{_mean(getattr(cell, column) for cell in kept):.3f}" for column in ("smse", "nlpd")]
        values += [f"{_mean(getattr(cell, column) for cell in kept):.2f}" for column in ("coverage68", "coverage95")]
        values += [f"{max(errors):.0e}" if errors else "", f"{_mean(cell.used for cell in kept):.1f}"]
        reasons = ", ".join(red[(name, method, dtype)])
        lines.append(f"| {label} | " + " | ".join(values) + f" | {'**' + reasons + '**' if reasons else ''} |")
    return lines


def command(
    methods: Annotated[str, typer.Option(help="Keys of methods, joined by commas; all without it.")] = "",
    sets: Annotated[str, typer.Option(help="Names of sets, joined by commas; all on this machine without it.")] = "",
    seconds: Annotated[float, typer.Option(help="Seconds of work per method and set.", min=0.01)] = 10.0,
    seeds: Annotated[int, typer.Option(help="Splits and draws per set.", min=1)] = 3,
    rows: Annotated[int, typer.Option(help="Training rows, at most.", min=10)] = 1000,
    dtypes: Annotated[str, typer.Option(help="Precisions, joined by commas.")] = "float64,float32",
    out: Annotated[Path, typer.Option(help="The directory for the cells and for trust.md.")] = Path("trust"),
) -> None:
    """Every method at its defaults on public and hard synthetic sets: scores, coverage, objectives, and what is red."""
    keys, precisions = listed(methods) or sorted(registry), listed(dtypes)
    for key in keys:
        if key not in registry:
            raise SettingError(f"Method {key!r} is not known{closest(key, registry)}")
    if not set(precisions) <= set(TOLERANCE):
        raise SettingError(f"The precisions are {dtypes!r}; give some of {', '.join(TOLERANCE)}.")
    chosen = problems(listed(sets))
    cells = run_cells(
        chosen, keys, Plan({"seconds": seconds}, precisions, seeds, rows), out / "cells.jsonl",
        lambda line: typer.echo(line, err=True),
    )  # fmt: skip
    table = markdown(cells, chosen)
    (out / "trust.md").write_text(table, "utf-8")
    typer.echo(table)


def listed(text: str) -> list[str]:
    """The entries of a list that is joined by commas."""
    return [entry.strip() for entry in text.split(",") if entry.strip()]
