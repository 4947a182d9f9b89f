"""Each schedule does what its setting says: rates, averages, penalties, validation, and rows send_rows to a GPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.base import registry
from gpexplorer.methods.minibatches.model import send_rows
from oracles_minibatches import begun, method, problem

KEYS = [key for key, kind in registry.items() if kind.family == "minibatches"]
ASKED = ("rate_decay", "schedule", "validation", "patience", "search", "frequencies")
OWN = {"scgd": ("averaging", "averaging_decay", "refresh"), "minimax": ("mu", "mu_growth", "refresh", "metric")}


@pytest.mark.parametrize("key", KEYS)
def test_every_schedule_is_a_setting_that_says_what_it_does(key: str):
    for name in (*ASKED, *OWN.get(key, ())):
        doc = registry[key].param[name].doc
        assert len(doc) > 20
        assert doc.endswith(".")


def rates(**settings: Any) -> list[float]:
    """What the optimiser is given at each of twelve minibatches, three epochs."""
    seen = list[float]()
    _, learner = begun(method("scgd", batch_size=10, epochs=3, rate=0.1, **settings), problem())
    learner.optimiser = learner.optimiser._replace(move=lambda x, g, held, t, rate: seen.append(rate))
    for t in range(12):
        learner.move(t)
    return seen


def test_the_rate_follows_its_schedule():
    assert rates() == pytest.approx([0.1] * 12)
    assert rates(rate_decay=0.75) == pytest.approx([0.1 * (1 + t / 4) ** -0.75 for t in range(12)])
    falling = rates(schedule="cosine")
    assert falling == pytest.approx([0.05 * (1 + math.cos(math.pi * t / 12)) for t in range(12)])
    assert falling[0] == pytest.approx(0.1)
    assert falling[-1] < 0.002


@pytest.mark.parametrize("power", [0.0, 0.5])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_the_running_gram_matrix_is_the_weighted_mean_its_schedule_asks_for(power: float, shift: float):
    at = problem(shift=shift)
    model, learner = begun(method("scgd", batch_size=10, averaging=0.3, averaging_decay=power, rate=1e-12), at)
    S = learner.S.clone()

    for t in range(9):
        Phi = model.features(learner.parameters.parts, model.rows(learner.rows(t))[0]).Phi
        b_t = 0.3 * (1 + t / 4) ** -power
        S = (1 - b_t) * S + b_t * Phi.T @ Phi / 10
        learner.move(t)

    torch.testing.assert_close(learner.S, S, rtol=1e-7, atol=1e-9)


def test_the_penalty_is_fixed_or_grows_with_every_epoch():
    values = {}
    for growth in (1.0, 2.0):
        _, learner = begun(method("minimax", batch_size=10, metric="flat", mu=3.0, mu_growth=growth), problem())
        learner.A *= 1.2
        learner._project_and_invert(learner.parameters)
        values[growth] = [learner.gradient(torch.arange(40), t) for t in (0, 3, 4, 8)]
        assert [learner._mu(t) for t in (0, 3, 4, 8)] == [3.0, 3.0, 3.0 * growth, 3.0 * growth**2]

    assert values[1.0] == pytest.approx([values[1.0][0]] * 4)
    first, second, third = (values[2.0][k] for k in (0, 2, 3))
    assert third - second == pytest.approx(2.0 * (second - first))  # the penalty is linear in mu
    assert abs(second - first) > 1e-6


def test_validation_judges_theta_by_rows_that_were_not_learned_from():
    plain, careful = (
        next(step.info for step in small.steps(problem(n=60)) if step.info.phase == "best")
        for small in (method("scgd", batch_size=8, epochs=3, minibatches=7, validation=share) for share in (0.0, 0.3))
    )

    assert plain.objective != careful.objective
    assert math.isnan(plain.error)
    assert 0.0 < careful.error < 2.0  # in standard deviations of the targets


def test_rows_go_to_a_gpu_by_page_locked_memory_without_waiting(monkeypatch: pytest.MonkeyPatch):
    X, index, calls = torch.randn(9, 2, dtype=torch.float32), torch.tensor([7, 1]), list[Any]()

    def pinned(rows: Tensor) -> Tensor:
        calls.append(("pin", tuple(rows.shape)))
        return rows

    def moved(rows: Tensor, *where: Any, **how: Any) -> Tensor:
        calls.append((*where, how))
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "pin_memory", pinned)
        patch.setattr(torch.Tensor, "to", moved)
        send_rows(X, slice(0, 3), torch.device("cuda"), torch.float64)

    assert calls == [("pin", (3, 2)), (torch.device("cuda"), {"non_blocking": True}), (torch.float64, {})]
    torch.testing.assert_close(send_rows(X, index, torch.device("cpu"), torch.float64), X[index].double())


def test_a_setting_without_effect_is_not_shown_and_still_read():
    """SVGP has no refit: theta and noise are those of the best bound."""
    svgp = registry["svgp"]
    assert not {"refit", "folds"} & svgp.used_settings().keys()
    assert {"refit", "folds", "seed"} <= registry["scgd"].used_settings().keys()

    plain, other = (
        [
            step.state.theta
            for step in svgp(batch_size=8, epochs=2, num_inducing=4, minibatches=3, validation=0.2, **unused).steps(
                problem(n=60)
            )
        ][-1]
        for unused in ({}, {"refit": "none", "folds": 1})
    )
    assert torch.equal(plain, other)
