"""What passes between the page and the player's thread: orders one way, frames the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from .open_run import Job, Layers, Opened, Stage
from .readings import Facts


class Frame(NamedTuple):
    """All the page needs to show one moment; later frames replace earlier ones whole."""

    opening: int  # which run this is of
    opened: Opened | None
    playing: bool
    busy: str  # what is being waited for; empty when nothing is
    notice: tuple[int, str]  # number and text of the newest sentence for the user
    facts: Facts | None = None
    layers: Mapping[str, Layers] = {}
    table: pd.DataFrame | None = None


@dataclass
class Orders:
    """What the page has asked for and the thread has not yet done."""

    job: Job | None = None
    playing: bool = False
    steps: int = 0
    at: int | None = None  # record to show; None follows the newest
    visible: frozenset[str] = field(default_factory=frozenset)
    redraw: bool = False
    every: float = 0.0  # seconds between steps
    change: Callable[[Stage], None] | None = None  # what to do to the run itself
    closed: bool = False
