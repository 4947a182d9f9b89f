"""Rows that memory need not hold: minibatches and passes read a file in blocks, and nothing of its size is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood
from gpexplorer.problem import Dataset, Problem
from oracles_minibatches import begun, method, problem


def mapped(path: Path, at: Problem) -> Problem:
    """The same problem with its inputs in a file."""
    X = at.train.X.numpy()
    file = np.memmap(path, X.dtype, "w+", shape=X.shape)
    file[:] = X
    file.flush()
    return Problem(Dataset(torch.from_numpy(file), at.train.y), at.kernel, at.theta)


@pytest.mark.parametrize("key", ["scgd", "minimax", "bsgd"])
def test_a_mapped_file_gives_the_same_steps(key: str, tmp_path: Path):
    at, small = problem(n=60), method(key, batch_size=8)
    in_memory, mapped_learner = begun(small, at)[1], begun(small, mapped(tmp_path / "X", at))[1]

    for t in range(10):
        in_memory.move(t)
        mapped_learner.move(t)

    torch.testing.assert_close(in_memory.parameters.x, mapped_learner.parameters.x, rtol=0, atol=0)
    values = [
        exact_likelihood(learner.model, learner.parameters.theta).value for learner in (in_memory, mapped_learner)
    ]
    assert values[0] == values[1]
