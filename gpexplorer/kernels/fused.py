"""Functions of single entries that a GPU computes in one pass over memory, and a CPU as they are written.

A covariance is 3 to 8 operations on every squared distance. Each is a pass over memory of its own, which is what it
costs on a GPU; torch.compile makes one kernel of them. Compilation takes seconds, once per function and process, so
that small matrices are computed without it. Where it fails, for example because there is no compiler, the function is
called as it is from then on. It stands apart because it knows nothing of covariances.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WORTH_ENTRIES = 2**22  # compilation pays for matrices with at least this many entries
_compiled: dict[Callable[..., Any], Callable[..., Any]] = {}  # by function; the function itself if compilation failed
_log = logging.getLogger(__name__)


def fused(function: Callable[..., None], entries: Tensor, *arguments: Any) -> None:
    """Call a function that overwrites entries, on a GPU as one kernel if there are many.

    Parameters
    ----------
    function : callable
        A function of a module or a class, not of an instance: it is compiled once.
    entries : Tensor
        What it overwrites, one of its arguments.
    *arguments : object
        All arguments of the function, in their order.
    """
    if entries.is_cpu or entries.numel() < WORTH_ENTRIES:
        function(*arguments)
        return
    compiled = _compiled.get(function) or torch.compile(function, dynamic=True)
    try:
        compiled(*arguments)
    except Exception as error:  # of many kinds, raised before anything is computed
        if compiled is function:
            raise
        _log.warning("torch.compile failed for %s (%s): it runs without.", function.__qualname__, type(error).__name__)
        compiled = function
        function(*arguments)
    _compiled[function] = compiled
