"""Steps of every family over the machine's floor, in rounds that alternate: one table to lay beside another day's.

The floor is the time that this machine needs at least for the flops or the bytes which a method's formula counts, at
rates measured in the same round. A step of many small operations cannot come near it from Python: `and calls` is the
ratio to the floor plus the time of starting as many operations as the formula counts, each as long as the addition of
two numbers. In `grief-mcmc`, whose step is 100 iterations on 4 chains of 100 numbers, they take nearly all the time.

A shared machine changes its pace within minutes, so two days are compared by the ratio to the floor; milliseconds are
printed beside it. A line has moved if its ratio differs from that of the former table by more than the quartiles of
both and by more than a twentieth.
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
from .timing.limits import measure, seconds_per_call

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
Series = dict[str, list[float]]  # method -> one number per round


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
    ratios, with_calls, times = timed(keys, QUICK if quick else THOROUGH)
    for line in table(ratios, with_calls, times, former):
        print(line, flush=True)
    if out:
        out.write_text(json.dumps(ratios))


def timed(keys: Sequence[str], rounds: int) -> tuple[Series, Series, Series]:
    """Time the steps of each method in turns.

    Parameters
    ----------
    keys : sequence of str
        Methods.
    rounds : int
        In each round the machine's rates are measured once, and every method takes some steps.

    Returns
    -------
    ratios, with_calls, times : dict
        Method -> seconds of a step over its floor, over the floor with its calls, and seconds of a step, one entry per
        round.
    """
    ratios, with_calls, times = ({key: list[float]() for key in keys} for _ in range(3))
    runs = {key: _begun(key) for key in keys}
    for _ in range(rounds):
        like = torch.zeros(1, dtype=torch.float64)
        machine, per_call = measure(like, ROWS, 128), seconds_per_call(like)
        for key in keys:
            taken, cost = _seconds_per_step(runs[key]), runs[key].method.cost(runs[key].problem)
            floor = floor_seconds(cost, machine)
            times[key].append(taken)
            ratios[key].append(taken / floor)
            with_calls[key].append(taken / (floor + cost.calls * per_call))
            if runs[key].outcome:
                runs[key] = _begun(key)
    return ratios, with_calls, times


def table(ratios: Series, with_calls: Series, times: Series, former: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield the lines of the table: median and quartiles of the ratio, milliseconds, and whether the line has moved.

    Parameters
    ----------
    ratios, with_calls, times : dict
        As from `timed`.
    former : mapping
        The ratios of a former day; empty if there are none.
    """
    yield f"{'method':<14}{'ms per step':>14}{'over floor':>12}{'quartiles':>18}{'and calls':>11}  since"
    for key, values in ratios.items():
        low, middle, high = quartiles(values)
        since = moved(values, former[key]) if key in former else "new" if former else ""
        spread = f"{middle:>12.1f}{low:>10.1f} to {high:>4.1f}{median(with_calls[key]):>11.1f}"
        yield f"{key:<14}{1e3 * median(times[key]):>14.3f}{spread}  {since}".rstrip()


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
