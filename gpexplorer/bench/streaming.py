"""How much memory a minibatch method takes on rows that lie in a file: the peak of a process of its own.

A memory-mapped file is a tensor whose pages the system may drop; those it has not dropped count as resident here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import kernels
from ..methods.base import registry
from ..problem import Dataset, Problem
from ..runs.studies.measured_run import high_water, resident

INPUTS, BLOCK, STEPS = 20, 100_000, 3


def report(rows: int, settings: dict[str, Any], methods: tuple[str, ...]) -> Iterator[str]:
    """Write a file of so many rows of float32, then take steps of every method on it; a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X"
        _write(path, rows)
        size = path.stat().st_size / 2**20
        yield f"{rows} rows of {INPUTS} inputs in a file of {size:.0f} MB, load {os.getloadavg()[0]:.2f}"
        for key in methods:
            asked = json.dumps({"path": str(path), "rows": rows, "key": key, "settings": settings})
            done = subprocess.run([sys.executable, "-m", __name__, asked], capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            yield (
                f"{key:<10}at most {found['peak']:5.0f} MB resident, {found['more']:4.0f} MB more than before any row"
                f" was read; {found['seconds']:.1f} s for {found['minibatches']} minibatches and passes over all rows"
            )


def peak(path: str, rows: int, key: str, settings: dict[str, Any]) -> dict[str, float]:
    """Megabytes resident in all, and more than at first, after a few steps on this file; meant for a child."""
    X = torch.from_numpy(np.memmap(path, np.float32, "c", shape=(rows, INPUTS)))
    y = torch.sin(torch.arange(rows, dtype=torch.float32))
    kernel = kernels.make("se-ard", INPUTS)
    problem = Problem(Dataset(X, y), kernel, torch.tensor([0.0] * (INPUTS + 1) + [-1.0]))
    before, more, begin = resident(), high_water(), time.perf_counter()
    *_, last = islice(registry[key](**settings).steps(problem), STEPS)
    grown = more()
    return {
        "more": grown / 2**20,
        "peak": (before + grown) / 2**20,
        "seconds": time.perf_counter() - begin,
        "minibatches": last.state.batches,
    }


def _write(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for begin in range(0, rows, BLOCK):
            file.write(rng.standard_normal((min(BLOCK, rows - begin), INPUTS), dtype=np.float32).tobytes())


if __name__ == "__main__":
    print(json.dumps(peak(**json.loads(sys.argv[1]))))
