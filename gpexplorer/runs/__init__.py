"""From a spec to a finished run: what is stepped, stamped, scored and stored."""

from __future__ import annotations

from .budget import Progress
from .run import Run
from .spec import Spec
from .store import Store
from .studies.remote import working
from .trace import Record, Spent, Trace

__all__ = ["Progress", "Record", "Run", "Spec", "Spent", "Store", "Trace", "working"]
