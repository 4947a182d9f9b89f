"""What a step of a method asks of a GPU, counted on a simulated one: launches, reads by the host, and uploads."""

from __future__ import annotations

from ...methods.base import registry
from ...runs import Spec
from .simulated_gpu import DeviceWork, SimulatedGPU

STEPS = 3  # over which the mean is taken, after one step that sets up
KERNEL = "se-ard"


def counts_per_step(key: str, rows: int, inputs: int) -> DeviceWork:
    """Count what the mean step of a method asks of a GPU; the first step, which sets up, is left out.

    Parameters
    ----------
    key : str
        Key of the method. It keeps the hyperparameters fixed if it has the setting `learn`.
    rows, inputs : int
        Training rows n and inputs d of generated data.

    Returns
    -------
    DeviceWork
        Rounded means over at most 3 steps.

    Raises
    ------
    GPExplorerError
        If the method cannot be run on these rows, or raises an error of its own.
    """
    settings = {"learn": False} if "learn" in registry[key].param else {}
    data = {"name": "hypercube", "n": rows * 10 // 9, "d": inputs, "noise": 0.1, "seed": 0}
    with SimulatedGPU() as gpu:
        run = Spec(key, settings, data=data, kernel=KERNEL, device="cuda").open()
        run.advance(), run.advance()
        before, gpu.work = run.done, DeviceWork()
        for _ in range(STEPS):
            if run.advance() is None:
                break
        if run.error:
            raise run.error
    steps = max(run.done - before, 1)
    return DeviceWork(*(round(count / steps) for count in (gpu.work.launches, gpu.work.reads, gpu.work.uploads)))
