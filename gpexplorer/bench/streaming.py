"""Peak memory of a minibatch method whose rows lie in a file, measured in a separate process.

The file is memory-mapped. The system may drop its pages; pages that it has not dropped count as resident here.
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
    """Measure the memory of every method on a temporary file of float32 rows.

    Parameters
    ----------
    rows : int
        Rows of the file.
    settings : dict
        Settings of every method.
    methods : tuple of str
        Keys of the methods. Each runs in a process of its own.

    Yields
    ------
    str
        A title, then one line per method.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X"
        _write(path, rows)
        size = path.stat().st_size / 2**20
        yield f"{rows} rows of {INPUTS} inputs in a file of {size:.0f} MB, load {os.getloadavg()[0]:.2f}"
        for key in methods:
            arguments = json.dumps({"path": str(path), "rows": rows, "key": key, "settings": settings})
            command = [sys.executable, "-m", __name__, arguments]
            process = subprocess.run(command, capture_output=True, text=True, check=True)
            measured = json.loads(process.stdout)
            yield (
                f"{key:<10}at most {measured['peak']:5.0f} MB resident, {measured['more']:4.0f} MB more than before"
                f" any row was read; {measured['seconds']:.1f} s for {measured['minibatches']} minibatches"
                " and passes over all rows"
            )


def peak(path: str, rows: int, key: str, settings: dict[str, Any]) -> dict[str, float]:
    """Take a few steps of one method on a file, and measure memory and time. Runs in the child process.

    Returns
    -------
    dict
        `peak`: resident MB in total; `more`: MB more than before any row was read; `seconds`; `minibatches`.
    """
    X = torch.from_numpy(np.memmap(path, np.float32, "c", shape=(rows, INPUTS)))
    y = torch.sin(torch.arange(rows, dtype=torch.float32))
    kernel = kernels.make("se-ard", INPUTS)
    problem = Problem(Dataset(X, y), kernel, torch.tensor([0.0] * (INPUTS + 1) + [-1.0]))
    resident_before, growth, begin = resident(), high_water(), time.perf_counter()
    *_, last = islice(registry[key](**settings).steps(problem), STEPS)
    grown_bytes = growth()
    return {
        "more": grown_bytes / 2**20,
        "peak": (resident_before + grown_bytes) / 2**20,
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
