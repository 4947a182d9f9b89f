"""Why a run ended, in sentences that say what a person can do about it."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from ..errors import GPExplorerError, OutOfMemory
from ..linalg.denormals import flushed_to_zero
from ..memory import free_memory, machine_memory
from ..methods.base import Method
from ..methods.capabilities import NotesAnswer
from ..problem import Outcome, Problem
from .budget import long_step_note
from .rounding import Rise, digits_sentence, least_noise_sentence, precision_sentence, rise_sentence
from .trace import Record

FINAL = ("converged", "diverged", "failed")  # after these no further step can follow
FASTEST = 1e12  # flops per second that no processor of today exceeds
WAY_OUT = "use fewer points, rows or features, or float32"
SIZES = (
    "num_inducing",
    "num_eigenfunctions",
    "num_regressors",
    "num_features",
    "width",
    "block",
    "batch_size",
    "subset",
)


def stopped(steps: int) -> Outcome:
    """The outcome of a run that was asked to stop after this number of steps."""
    return Outcome("stopped", f"Stopped on request after {steps:,} steps; it can go on from there.")


def given_up(steps: int, spent: str = "") -> Outcome:
    """The outcome of a run whose step in progress was given up: on request, or as the budget was spent, by its message.

    The step is lost: it begins again from the last record if the run goes on.
    """
    lost = f"Step {steps + 1} was given up before its end, and begins again if the run goes on."
    if steps == 0:
        lost += " Nothing is learned before the end of this step."
    if spent:
        return Outcome("budget", f"{spent} {lost}")
    return Outcome("stopped", f"{stopped(steps).message} {lost}")


def closed(steps: int) -> Outcome:
    """The outcome of a run that was closed after this number of steps, before its method ended."""
    return Outcome(
        "stopped", f"The run is closed after {steps:,} steps, which are kept: fork() goes on from any of them."
    )


def callback_failed(error: Exception, steps: int) -> Outcome:
    """The outcome of a run after whose last step a callback raised an error."""
    return Outcome(
        "stopped",
        f"The callback raised {type(error).__name__} after {steps:,} steps, which are kept. Correct it, and the run "
        "can go on from there.",
    )


def failed(error: Exception, steps: int, method: Method | None = None, problem: Problem | None = None) -> Outcome:
    """The outcome of a run whose method raised an error; for an error of memory, with a setting that would fit.

    An error of this package brings its own sentence. The text of any other error is not shown, because it may contain
    anything: the message then names only the error's type.
    """
    kept = f"The {steps:,} steps before it are kept."
    if isinstance(error, GPExplorerError):
        return Outcome("failed", str(error))
    if is_memory(error):
        way_out = fitting_setting(method, problem) if method and problem else ""
        return Outcome("failed", f"Memory ran out at step {steps + 1}: {way_out or WAY_OUT}. {kept}")
    name = type(error).__name__
    return Outcome("failed", f"An unexpected {name} ended the method at step {steps + 1}; the log has it. {kept}")


def with_notes(
    outcome: Outcome, method: Method, problem: Problem, last: Sequence[Record], start_note: str, rises: Sequence[Rise]
) -> Outcome:
    """The outcome with sentences on the last record, if there is one, on the starts, and on rounding."""
    notes = [outcome.message]
    if isinstance(method, NotesAnswer) and last:
        notes.append(method.answer_note(problem, last[0].step.state))
    notes += [start_note if last else "", rise_sentence(rises)]
    notes += [precision_sentence(problem, last), digits_sentence(method, problem, last)]
    notes.append(least_noise_sentence(problem, last))
    return Outcome(outcome.reason, " ".join(filter(None, notes)))


@contextmanager
def answering(step: int) -> Iterator[None]:
    """Compute answers in this context: without denormal numbers, which are slow.

    An error of memory allocation becomes an OutOfMemory, which names the step and the way out.
    """
    try:
        with flushed_to_zero():
            yield
    except Exception as error:
        if isinstance(error, GPExplorerError) or not is_memory(error):
            raise
        raise OutOfMemory(f"Memory ran out for the answers of step {step}: {WAY_OUT}.") from error


def is_memory(error: BaseException) -> bool:
    """Whether this error says that no memory is left. On the CPU, torch raises a RuntimeError for it."""
    allocation = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return allocation or isinstance(error, (MemoryError, torch.OutOfMemoryError))


def usable_memory(like: Tensor) -> float:
    """Bytes that a run may use where this tensor is: those that are free on its device, or in this machine.

    What torch itself holds on a GPU counts as free, because it belongs to the run that has ended.
    """
    if like.device.type != "cuda":
        return free_memory()
    return float(torch.cuda.mem_get_info(like.device)[0] + torch.cuda.memory_reserved(like.device))


def check_cost(method: Method, problem: Problem) -> None:
    """Raise an OutOfMemory if the arrays of a step cannot fit into the memory of this machine; warn of long steps.

    The system would end the process without a word, with all that it holds. A GPU raises an error by itself, and the
    workers of another mapper than `map` have memory of their own. A step is long if it takes longer than `LONG_STEP`
    by its formula, however fast the CPU.
    """
    if problem.train.y.device.type != "cpu" or method.map is not map:
        return
    cost, most, rows = method.cost(problem), machine_memory(), f"{len(problem.train):,} rows"
    if cost.memory > most:
        name, size = max(cost.arrays.items(), key=lambda item: item[1])
        way_out = fitting_setting(method, problem) or "use fewer rows, or a method for many, such as svgp or vecchia"
        raise OutOfMemory(
            f"{method.key} needs {cost.memory / 1e9:.3g} GB on {rows} by formula, {size / 1e9:.3g} GB of them for "
            f"{name}, and this machine has {most / 1e9:.3g} GB: {way_out}."
        )
    if note := long_step_note(cost.flops / FASTEST, None):
        warnings.warn(f"{method.key} on {rows} takes {cost.flops:.2g} flops per step. {note}", stacklevel=2)


def fitting_setting(method: Method, problem: Problem) -> str:
    """The largest value of one of the method's sizes whose memory by formula can be used, as the end of a sentence.

    Parameters
    ----------
    method : Method
        The method that ran out of memory; the first of `SIZES` that suffices is decreased.
    problem : Problem
        Its rows, which say which device is asked.

    Returns
    -------
    str
        Empty if the formula already fits, or if no value of a size does.
    """
    free, values = usable_memory(problem.train.y), method.param.values()
    settings = {name: value for name, value in values.items() if name != "name"}

    def need(name: str, value: int) -> float:
        return type(method)(**(settings | {name: value})).cost(problem).memory

    rows = len(problem.train)
    for name in SIZES:
        if not isinstance(settings.get(name), int):
            continue
        least, given = max(1, method.param[name].bounds[0]), settings[name]
        most = given if given > 0 else rows  # 0 and -1 follow the rows
        total = need(name, given)
        if total <= free:
            return ""
        if most <= least or need(name, least) > free:
            continue
        largest = least - 1 + bisect_right(range(least, most), free, key=partial(need, name))
        place = "on the GPU" if problem.train.y.device.type == "cuda" else "here"
        return (
            f"{method.key} needs {total / 1e9:.2g} GB by formula, and {free / 1e9:.2g} GB can be used {place}. With "
            f"{name} = {largest} it would fit"
        )
    return ""
