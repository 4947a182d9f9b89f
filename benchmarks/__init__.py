"""Benchmarks: measured times and scores, printed beside what this machine can do at best. None of them is a test."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["environment"]


def environment() -> dict[str, str]:
    """The environment of a process that runs a module of this checkout from any directory."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
