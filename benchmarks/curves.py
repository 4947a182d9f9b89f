"""Growth of each family's main method with n, m, p, b and k: fitted powers of time and memory beside the formulas'.

Each size runs in a process of its own (`runs.studies.measured_run`). A power is that of a line in logarithmic axes,
with its 95 % interval. Where the steps of the smallest sizes are shorter than the calls of Python they consist of, the
measured power is below that of the arithmetic, and the formula, which counts calls too, says so. Where the sizes lie on
no power law for that reason, the power between the two largest is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

import typer

from gpexplorer.runs import Spec
from gpexplorer.runs.studies.scaling_study import Scaling

ROWS = 20_000  # where something else than n grows
INPUTS = 4


class Case(NamedTuple):
    """What grows, in which method, and what theory says of a step."""

    method: str
    axis: str
    sizes: tuple[int, ...]
    theory: str
    settings: dict[str, Any]
    inputs: int = INPUTS
    kernel: str = "se-ard"


N = (1_000, 4_000, 16_000, 64_000, 256_000)
UP_TO_A_MILLION = (*N, 1_000_000)  # the last size takes minutes
CASES = (
    Case("cholqr", "n", N, "n (m + z)", {"num_inducing": 128, "learn": False}),
    Case("cholqr", "m", (32, 64, 128, 256, 512), "n m", {"learn": False}),
    Case("sgpr", "n", N, "n m²", {"num_inducing": 128}),
    Case("sgpr", "m", (32, 64, 128, 256, 512), "n m²", {}),
    Case("ml", "n", (250, 500, 1_000, 2_000, 4_000), "n³", {}),
    Case("gbcd", "n", N[:4], "n b", {"block": 200, "learn": False}),
    Case("gbcd", "b", (50, 100, 200, 400, 800), "n b + b³", {"learn": False}),
    Case("grief", "n", N, "n p²", {"num_eigenfunctions": 200, "learn": False}),
    Case("grief", "p", (50, 100, 200, 400, 800), "n p²", {"learn": False}),
    Case("gpcv-admm", "n", (250, 500, 1_000, 2_000), "n³ at most", {}),
    Case("minimax", "n", N, "1 per minibatch, n per evaluation", {"width": 64}),
    Case("scgd", "n", N, "1 per minibatch, n per evaluation", {"width": 64}),
    Case("vecchia", "n", N, "n k³", {"learn": False}, inputs=2, kernel="matern32-ard"),
    Case("vecchia", "k", (5, 10, 20, 40, 80), "n k³", {"learn": False}, inputs=2, kernel="matern32-ard"),
    Case("states", "n", N, "n", {}, inputs=1, kernel="matern32"),
)


def command(
    only: Annotated[str, typer.Option(help="Methods, separated by commas; empty for all.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Up to a million rows.")] = False,
) -> None:
    """Print the powers with which time and memory of a step grow, measured and by the formulas."""
    chosen = set(only.split(",")) if only else {case.method for case in CASES}
    if unknown := chosen - {case.method for case in CASES}:
        known = ", ".join(dict.fromkeys(case.method for case in CASES))
        raise typer.BadParameter(f"there is no curve of {', '.join(sorted(unknown))}; there are those of {known}")
    for line in report((case for case in CASES if case.method in chosen), full):
        print(line, flush=True)


def report(cases: Iterable[Case], full: bool = False) -> Iterator[str]:
    """Yield the lines of the table, one per case, in Markdown.

    Parameters
    ----------
    cases : iterable of Case
    full : bool
        Whether the number of rows grows up to a million where it grows to a quarter of that.
    """
    yield "| method | grows | sizes | a step at the largest | time | by formula | memory | by formula | theory |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for case in cases:
        sizes = UP_TO_A_MILLION if full and case.sizes == N else case.sizes
        study = Scaling(spec_of(case), case.axis, sizes)
        for _ in study:
            pass
        done = [point for point in study.points if not point["sentence"]]
        failures = "; ".join(f"{point['value']:,}: {point['sentence']}" for point in study.points if point["sentence"])
        last = f"{1e3 * done[-1]['seconds']:.3g} ms, {done[-1]['memory'] / 1e6:,.0f} MB" if done else failures
        powers = (_power(study, of) for of in ("seconds", "seconds predicted", "memory", "memory predicted"))
        cells = (case.method, case.axis, f"{sizes[0]:,} to {sizes[-1]:,}", last, *powers, case.theory)
        yield f"| {' | '.join(cells)} |"


def spec_of(case: Case) -> Spec:
    """The Spec that grows."""
    rows = {"name": "hypercube", "n": ROWS, "d": case.inputs, "noise": 0.1, "seed": 0}
    return Spec(case.method, case.settings, data=rows, kernel=case.kernel)


def _power(study: Scaling, column: str) -> str:
    """A fitted power with half the width of its interval; if there is none, that between the two largest sizes."""
    slope = study.slope(column)
    if not slope.refused:
        return f"{slope.power:.2f} ± {0.5 * (slope.high - slope.low):.2f}"
    ends = [(point["value"], point[column]) for point in study.points if point.get(column, 0.0) > 0.0][-2:]
    if len(ends) < 2:
        return "not measured"
    (small, before), (large, after) = ends
    return f"{math.log(after / before) / math.log(large / small):.2f}, two largest"
