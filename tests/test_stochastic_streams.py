"""Rows that memory need not hold: minibatches and passes read a file in blocks, and nothing of its size is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gpexplorer.methods.stochastic.exact import exact
from gpexplorer.problem import Dataset, Problem
from oracles_stochastic import begun, method, problem

LARGE = """
import resource, sys
import numpy as np, torch
from gpexplorer import kernels
from gpexplorer.methods.base import registry
from gpexplorer.problem import Dataset, Problem

torch.set_num_threads(1)
n, d = 1_000_000, 20
X = torch.from_numpy(np.memmap(sys.argv[1], np.float32, "r+", shape=(n, d)))
kernel = kernels.make("se-ard", d)
theta = torch.tensor([0.0] * (d + 1) + [-1.0])
y = torch.sin(torch.arange(n, dtype=torch.float32))
method = registry["scgd"](width=16, batch_size=64, minibatches=20, epochs=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
steps = method.steps(Problem(Dataset(X, y), kernel, theta))
next(steps), next(steps), next(steps)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, before / 1024)
"""


def mapped(path: Path, at: Problem) -> Problem:
    """The same problem with its inputs in a file."""
    X = at.train.X.numpy()
    held = np.memmap(path, X.dtype, "w+", shape=X.shape)
    held[:] = X
    held.flush()
    return Problem(Dataset(torch.from_numpy(held), at.train.y), at.kernel, at.theta)


@pytest.mark.parametrize("key", ["scgd", "minimax", "bsgd"])
def test_a_mapped_file_gives_the_same_steps(key: str, tmp_path: Path):
    at, small = problem(n=60), method(key, batch_size=8)
    here, there = begun(small, at)[1], begun(small, mapped(tmp_path / "X", at))[1]

    for t in range(10):
        here.move(t)
        there.move(t)

    torch.testing.assert_close(here.point.x, there.point.x, rtol=0, atol=0)
    values = [exact(one.model, one.point.theta).value for one in (here, there)]
    assert values[0] == values[1]


def test_a_million_rows_of_twenty_numbers_stay_within_a_gigabyte(tmp_path: Path):
    path = tmp_path / "X"
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(10):
            file.write(rng.standard_normal((100_000, 20), dtype=np.float32).tobytes())

    done = subprocess.run([sys.executable, "-c", LARGE, str(path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    peak = float(done.stdout.split()[0])  # with torch, and the pages of the file that are mapped
    assert peak < 1024.0
