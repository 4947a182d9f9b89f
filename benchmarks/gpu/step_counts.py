"""What a step of a method asks of a GPU, counted on a simulated one: launches, reads by the host, and uploads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpexplorer.linalg.deferred_reads import WARM_UP
from gpexplorer.methods.base import registry
from gpexplorer.runs import Spec

from .simulated_gpu import DeviceWork, SimulatedGPU

STEPS = 3


def counts_per_step(
    key: str,
    rows: int,
    inputs: int,
    settings: Mapping[str, Any] | None = None,
    steps: int = STEPS,
    recorded: bool = True,
) -> DeviceWork:
    """Count what the mean step of a method asks of a GPU; the first steps, which set up, count only if they are alone.

    Parameters
    ----------
    key : str
        Key of the method. It keeps the hyperparameters fixed if it has the setting `learn`.
    rows, inputs : int
        Training rows n and inputs d of generated data.
    settings : mapping, optional
        Further settings of the method.
    steps : int, default 3
        Number of steps over which the mean is taken.
    recorded : bool, default True
        Whether to leave out the steps before an evaluation may be recorded as a CUDA graph, not the first one alone.

    Returns
    -------
    DeviceWork
        Rounded means.

    Raises
    ------
    GPExplorerError
        If the method cannot be run on these rows, or raises an error of its own.
    """
    all_settings = ({"learn": False} if "learn" in registry[key].param else {}) | dict(settings or {})
    kind = registry[key]
    inputs = min(inputs, kind.most_inputs or inputs)
    data = {"name": "hypercube", "n": rows * 10 // 9, "d": inputs, "noise": 0.1, "seed": 0}
    with SimulatedGPU() as gpu:
        run = Spec(key, all_settings, data=data, kernel=kind.example_kernel, device="cuda").open()
        run.advance()
        works = []
        first = 2 + WARM_UP if recorded else 1  # steps that set up, of which some begin with one that evaluates nothing
        for _ in range(first + steps):
            gpu.work = DeviceWork()
            if run.advance() is None:
                break
            works.append(gpu.work)
        if run.error:
            raise run.error
    counted = works[first:] or works[1:] or works
    sums = [sum(getattr(work, name) for work in counted) for name in ("launches", "reads", "uploads")]
    return DeviceWork(*(round(total / max(len(counted), 1)) for total in sums))
