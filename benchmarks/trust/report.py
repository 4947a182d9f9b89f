"""The report of `benchmarks trust`: which results are red and why, and the Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from .cells import Cell
from .problems import TrustProblem

COVERAGE_RANGE = (0.90, 0.98)
TOLERANCE = {"float64": 1e-6, "float32": 1e-3}  # of an objective, relative to its size
JUDGED_BASELINE = "dense GP"
REASONS = {"coverage": "C", "constant": "N", "ridge": "R", "objective": "O", "failed": "F"}


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
    listed = list(values)
    return sum(listed) / len(listed)


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
        answered = [cell for cell in group if cell.outcome != "refused"]
        if not answered:
            lines.append(f"| {label} | refused |  |  |  |  |  | |")
            continue
        errors = [error for cell in answered if not math.isnan(error := objective_error(cell))]
        values = [f"{_mean(getattr(cell, column) for cell in answered):.3f}" for column in ("smse", "nlpd")]
        values += [
            f"{_mean(getattr(cell, column) for cell in answered):.2f}" for column in ("coverage68", "coverage95")
        ]
        values += [f"{max(errors):.0e}" if errors else "", f"{_mean(cell.used for cell in answered):.1f}"]
        reasons = ", ".join(red[(name, method, dtype)])
        lines.append(f"| {label} | " + " | ".join(values) + f" | {'**' + reasons + '**' if reasons else ''} |")
    return lines
