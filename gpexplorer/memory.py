"""How much memory this machine has, or the container in which it runs: the system ends a process that takes more."""

from __future__ import annotations

import math
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")


def machine_memory() -> float:
    """Bytes of this machine, or of its container."""
    return min(float(psutil.virtual_memory().total), _container_limit("memory.max"))


def free_memory() -> float:
    """Bytes that can still be allocated in this machine, or in its container."""
    in_container = _container_limit("memory.max") - _container_limit("memory.current", 0.0)
    return max(min(float(psutil.virtual_memory().available), in_container), 0.0)


def _container_limit(name: str, otherwise: float = math.inf) -> float:
    try:
        return float((CGROUP / name).read_text())
    except (OSError, ValueError):  # no container, or its limit is "max"
        return otherwise
