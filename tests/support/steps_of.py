"""The first steps of every registered method on a small problem; as a script, it prints them for another process."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpexplorer import Spec, data
from gpexplorer.methods.base import registry
from gpexplorer.runs import Run
from gpexplorer.runs.trace import tensors
from toy_method import Toy

# Small enough that a few steps see every phase; given to the methods that have such a setting.
SMALL = {"num_inducing": 6, "num_pivots": 5, "swaps_per_epoch": 5, "evaluations": 4, "rebuild": 4, "pivot_refresh": 3}
SMALL |= {"num_rows": 30, "grid_size": 4, "num_ahead": 5}
SMALL |= {"block": 6, "chunk": 2, "subset": 20, "rank": 4, "pairs": 3, "max_iterations": 9}  # CG magnifies rounding
SMALL |= {"num_regressors": 12, "growth": 2, "coarse": 4}
SMALL |= {"num_eigenfunctions": 20, "grid_points": 4, "chains": 2, "per_step": 4, "warm_up": 3, "thin": 2}
SMALL |= {"restarts": 1, "folds": 2, "cg_tolerance": 1e-12}  # solved to the end: where CG stops is rounding too
SMALL |= {"width": 8, "num_features": 8, "batch_size": 16, "minibatches": 2, "evaluate_every": 2, "epochs": 10}
SMALL |= {"search": 2, "trial": 3, "stretch": 12}
STEPS = 22
ELSEWHERE = 12  # steps that the script takes: by then, every phase has come


def inputs_of(method: str, d: int) -> int:
    """This number of inputs, or the largest that the method takes."""
    return min(d, registry[method].most_inputs or d)


def small_spec(method: str, d: int = 5, **fields: Any) -> Spec:
    """A spec of this method on 54 rows in d dimensions, in one if it takes no more."""
    settings = {name: value for name, value in SMALL.items() if name in registry[method].param}
    rows = {"name": "hypercube", "n": 60, "d": inputs_of(method, d), "noise": 0.3, "seed": 4}
    return Spec(method, **{"settings": settings, "data": rows, "kernel": registry[method].example_kernel, **fields})


def small_run(method: str, steps: int = STEPS, **fields: Any) -> Run:
    """The run of this spec after this number of steps."""
    run = small_spec(method, **fields).open()
    run.finish(steps=steps)
    return run


def moved(split: data.Split, shift: float, scale: float) -> data.Split:
    """The same rows in other units, far from the origin."""
    parts = [replace(part, X=scale * part.X + shift, y=scale * part.y - shift) for part in (split.train, split.test)]
    return replace(split, train=parts[0], test=parts[1], key=f"{split.key}/moved")


def small_views(run: Run) -> list[Any]:
    """The pictures of a run; those of a surface have few points, each of which costs a kernel matrix or several."""
    from gpexplorer.views import for_run  # which takes longer to import than the script to run

    shown = for_run(run)
    for view in shown:
        if "side" in view.param:
            view.side = 3
    return shown


def kind_of_drawing(view: Any, layers: dict[str, Any]) -> tuple[Any, ...]:
    """What a plot is made of besides numbers: methods share pictures, and each kind of them need be drawn once."""
    return (view.key, *((name, *frame.columns, *frame.attrs, len(frame) > 0) for name, frame in layers.items()))


def trail(run: Run) -> list[list[Tensor]]:
    """Every tensor of every state, in order."""
    return [list(tensors(record.step.state)) for record in run.trace]


def alike(run: Run, other: Run, rtol: float = 1e-8, atol: float = 1e-10, steps: int = STEPS) -> None:
    """Check that both runs went through the same states: whole numbers are equal, others to rounding.

    The first run may have stopped after this number of steps.
    """
    assert len(run.trace) == min(len(other.trace), steps + 1 if steps < STEPS else len(other.trace))
    for states, other_states in zip(trail(run), trail(other), strict=len(run.trace) == len(other.trace)):
        for a, b in zip(states, other_states, strict=True):
            exact = not a.is_floating_point()
            torch.testing.assert_close(a, b, rtol=0 if exact else rtol, atol=0 if exact else atol)


def global_states() -> list[str]:
    """Every global random state, as text."""
    return [repr(random.getstate()), repr(np.random.get_state()), repr(torch.get_rng_state().tolist())]  # noqa: NPY002


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    registry["toy"] = Toy
    for key in sys.argv[2:]:
        before = global_states()
        states = [[part.tolist() for part in state] for state in trail(small_run(key, ELSEWHERE))]
        print(json.dumps({"states": states, "randomness moved": before != global_states()}))
