"""A search whose clock is moved by hand: lanes with scores and runs that cost no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from gpexplorer.data import Split
from gpexplorer.problem import Dataset
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.halving import Halving
from gpexplorer.recommendation.held_out import RowScores
from gpexplorer.recommendation.lanes import Lane
from gpexplorer.recommendation.simple_members import Member
from gpexplorer.recommendation.stages import TimedSearch

Y = np.random.default_rng(0).standard_normal(60)


def scores(error: float, rows: int = 60, sd: float = 1.0) -> RowScores:
    """Scores of a model that is too high by this much in each row."""
    return RowScores.of(Y[:rows], Y[:rows] + error, np.full(rows, sd**2))


@dataclass(eq=False)
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class FakeRun:
    """A run that takes as many seconds per step as it is told."""

    clock: Clock = field(default_factory=Clock)
    step_seconds: list[float] = field(default_factory=list)
    done: int = 0
    error: Any = None
    outcome: Any = None
    trace: list[Any] = field(default_factory=list)
    closed: bool = False
    forked: int | None = None

    def advance(self) -> Any:
        if self.done == len(self.step_seconds):
            return None
        self.clock.now += self.step_seconds[self.done]
        self.done += 1
        self.trace.append(SimpleNamespace(seconds=self.clock.now))
        return self.done

    def close(self) -> None:
        self.closed = True

    def fork(self, at: int) -> FakeRun:
        return FakeRun(done=at, forked=at)

    def posterior(self, of: str) -> Any:
        return SimpleNamespace(run=self, of=of, widened=lambda: None)


def split_of(n: int) -> Split:
    rows = Dataset(torch.arange(float(n))[:, None], torch.zeros(n))
    return Split(rows, rows.rows(torch.arange(0)), "rows", key="rows")


def lane(name: str = "a", group: str = "inducing points", own: RowScores | None = None, **fields: Any) -> Lane:
    """A lane with a run that has taken ten steps in ten seconds."""
    run = fields.pop("run", None) or FakeRun(done=10, trace=[SimpleNamespace(seconds=10.0)])
    candidate = Candidate(name, group, fields.pop("method", "cholqr"), "se", **fields.pop("candidate", {}))
    return Lane(candidate, 3, 1e9, runs={0: run}, rows=40, scores=own or scores(0.1), **fields)


def search_of(n: int = 50, parts: int = 1, seconds: float = 100.0, **fields: Any) -> TimedSearch:
    said = fields.pop("said", [])
    options = {"should_stop": lambda: False, "clock": Clock()} | fields
    return TimedSearch(split_of(n), 0.0, seconds, [split_of(n)] * parts, said.append, **options)


def member(name: str, own: RowScores, models: int = 3) -> Member:
    return Member(name, [SimpleNamespace(name=f"{name} {k}") for k in range(models)], own)  # type: ignore[misc]


def halving_of(n: int = 50, parts: int = 1, **fields: Any) -> Halving:
    options = {"should_stop": lambda: False, "clock": Clock()} | fields
    return Halving(split_of(n), 0.0, 100.0, [split_of(n)] * parts, None, **options)
