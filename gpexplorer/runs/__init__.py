"""From a `Spec` to a finished run: specs are checked and opened here, runs are stepped, timed, scored and stored."""

from __future__ import annotations

from .budget import Progress
from .run import Run
from .spec import Spec
from .store import Store
from .studies.cluster import working
from .trace import Record, Spent, Trace

__all__ = ["Progress", "Record", "Run", "Spec", "Spent", "Store", "Trace", "working"]
