"""Shapes written in signatures hold at every call, in a process where each call is checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = (
    "kernels/test_kernels",
    "test_objectives",
    "linalg/test_tall_products",
    "linalg/test_reduction",
    "methods/eigenfunctions/test_grief",
    "methods/inducing/test_baseline_inputs",
)
# A descent repeats its first call, which is half of the time, and inputs far from the origin have the same shapes.
FEW_CALLS = "not and_learns and not learning_lowers and not 1000.0"
PROGRAM = """
import sys, pytest
code = pytest.main(sys.argv[1:])  # conftest.py has calls checked from here on
import torch
from jaxtyping import TypeCheckError
from gpexplorer.linalg.matrix_products import times_rows
with pytest.raises(TypeCheckError):
    times_rows(torch.ones(3, 2), torch.ones(4, 5))
sys.exit(code)
"""


@pytest.mark.long
def test_shapes_are_correct_at_every_call_and_a_wrong_one_is_found(root: Path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    files = [f"tests/{name}.py" for name in FILES]

    program = [sys.executable, "-c", PROGRAM, "-q", "-x", "-k", FEW_CALLS, *files]
    done = subprocess.run(program, cwd=root, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
