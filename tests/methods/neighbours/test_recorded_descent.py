"""A descent whose evaluations are kept: where it ends, and that a resumed one ends there too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer.linalg.replayed_descent import Recorded
from gpexplorer.methods.neighbours.recorded_descent import no_answers, recorded_descent
from oracles_admm import problem


def test_a_flat_point_that_the_line_search_tries_ends_neither_a_descent_nor_its_resumption():
    task, visited = problem(n=30), list[float]()
    begin = task.theta.double()

    def hollow(theta: Tensor) -> tuple[float, Tensor]:
        """1 - exp(-50 t^2), flat but for a narrow hollow that a first step leaves on the other side."""
        t = theta[0] - begin[0] - 0.2
        visited.append(float(t))
        depth = torch.exp(-50.0 * t**2)
        return 1.0 - float(depth), torch.cat([(100.0 * t * depth)[None], torch.zeros_like(theta[1:])])

    def followed(state: Any) -> Any:
        recorded = Recorded(hollow, state.answers)
        for best in recorded_descent(task, recorded, state, 60, 1e-3):
            fields = {"theta": best.theta, "objective": best.of_the_data, "answers": torch.stack(recorded.rows)}
            yield SimpleNamespace(begin=begin, **fields)

    states = list(
        followed(SimpleNamespace(theta=begin, objective=float("inf"), begin=begin, answers=no_answers(begin)))
    )

    assert 100.0 * abs(visited[1]) * torch.exp(torch.tensor(-50.0 * visited[1] ** 2)) < 1e-3  # flat
    assert states[-1].objective < 1e-4
    resumed = list(followed(states[1]))  # whose last evaluation is the flat one
    assert resumed[-1].objective == pytest.approx(states[-1].objective, abs=1e-12)
    assert list(followed(states[-1])) == []
