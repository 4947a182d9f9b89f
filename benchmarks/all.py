"""Steps of every family over the machine's floor, in rounds that alternate: one table to lay beside another day's.

The floor is the time that this machine needs at least for the flops or the bytes which a method's formula counts, at
rates measured in the same round. A shared machine changes its pace within minutes, so two days are compared by the
ratio to the floor; milliseconds are printed beside it. A line has moved if its ratio differs from that of the former
table by more than the quartiles of both and by more than a twentieth.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer

from gpexplorer.methods.base import registry
from gpexplorer.runs import Run, Spec

from .gpu import floor_seconds
from .timing.limits import measure

SETTINGS: dict[str, dict[str, Any]] = {  # methods that are timed, each with a size at which arithmetic counts
    "cholqr": {"num_inducing": 128, "learn": False},
    "sgpr": {"num_inducing": 128},
    "titsias": {"num_inducing": 128, "learn": False},
    "gbcd": {"block": 200, "learn": False},
    "pcg": {"learn": False},
    "ml": {},
    "gpcv-admm": {},
    "grief-mcmc": {"num_eigenfunctions": 100},
    "minimax": {},
    "scgd": {},
    "bsgd": {},
    "svgp": {"num_inducing": 128},
    "vecchia": {},
}
ROWS, DENSE_ROWS = 10_000, 1_000
DENSE = ("ml", "gpcv-admm")  # they factor matrices of all rows
QUICK, THOROUGH = 7, 31  # rounds
STEPS_OF_A_ROUND = 5
APART = 0.05


def command(
    quick: Annotated[bool, typer.Option("--quick", help=f"{QUICK} rounds instead of {THOROUGH}.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write the table to, as JSON.")] = None,
    before: Annotated[Path | None, typer.Option(help="Such a file of a former day, to be compared with.")] = None,
    only: Annotated[str, typer.Option(help="Methods, separated by commas; empty for all.")] = "",
) -> None:
    """Print each family's steps over the machine's floor, and which lines moved since a former table."""
    keys = only.split(",") if only else list(SETTINGS)
    if unknown := set(keys) - set(SETTINGS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))} is not timed; there are {', '.join(SETTINGS)}")
    former = json.loads(before.read_text()) if before else {}
    ratios, times = timed(keys, QUICK if quick else THOROUGH)
    for line in table(ratios, times, former):
        print(line, flush=True)
    if out:
        out.write_text(json.dumps(ratios))


def timed(keys: Sequence[str], rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Time the steps of each method in turns.

    Parameters
    ----------
    keys : sequence of str
        Methods.
    rounds : int
        In each round the machine's rates are measured once, and every method takes some steps.

    Returns
    -------
    ratios, times : dict
        Method -> seconds of a step over its floor, and seconds of a step, one entry per round.
    """
    ratios: dict[str, list[float]] = {key: [] for key in keys}
    times: dict[str, list[float]] = {key: [] for key in keys}
    runs = {key: _begun(key) for key in keys}
    for _ in range(rounds):
        machine = measure(torch.zeros(1, dtype=torch.float64), ROWS, 128)
        for key in keys:
            taken = _seconds_per_step(runs[key])
            times[key].append(taken)
            ratios[key].append(taken / floor_seconds(runs[key].method.cost(runs[key].problem), machine))
            if runs[key].outcome:
                runs[key] = _begun(key)
    return ratios, times


def table(
    ratios: Mapping[str, Sequence[float]], times: Mapping[str, Sequence[float]], former: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """Yield the lines of the table: median and quartiles of the ratio, milliseconds, and whether the line has moved.

    Parameters
    ----------
    ratios, times : mapping
        As from `timed`.
    former : mapping
        The ratios of a former day; empty if there are none.
    """
    yield f"{'method':<14}{'ms per step':>14}{'over floor':>12}{'quartiles':>18}  since"
    for key, values in ratios.items():
        low, middle, high = quartiles(values)
        since = moved(values, former[key]) if key in former else "new" if former else ""
        yield f"{key:<14}{1e3 * median(times[key]):>14.3f}{middle:>12.1f}{low:>10.1f} to {high:>4.1f}  {since}".rstrip()


def moved(values: Sequence[float], former: Sequence[float]) -> str:
    """The change of a median, if it is beyond the quartiles of both and a twentieth; else that it is within noise."""
    (low, middle, high), (old_low, old, old_high) = quartiles(values), quartiles(former)
    apart = low > old_high or high < old_low
    change = middle / old - 1.0
    return f"{change:+.0%}" if apart and abs(change) > APART else "within noise"


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[quarter], median(ordered), ordered[-1 - quarter]


def _begun(key: str) -> Run:
    """A run of this method after its start."""
    rows = DENSE_ROWS if key in DENSE else ROWS
    data = {
        "name": "hypercube",
        "n": rows * 10 // 9,
        "d": min(4, registry[key].most_inputs or 4),
        "noise": 0.1,
        "seed": 0,
    }
    run = Spec(key, SETTINGS[key], data=data, kernel=registry[key].example_kernel).open()
    run.advance(), run.advance()
    return run


def _seconds_per_step(run: Run) -> float:
    """Wall seconds of a step, over those of a round; a run may end before."""
    done, begin = run.done, time.perf_counter()
    while run.done < done + STEPS_OF_A_ROUND and run.advance() is not None:
        pass
    return (time.perf_counter() - begin) / max(run.done - done, 1)
