"""What every row would bring in the place of one point, and a swap chosen by a person, against dense algebra."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.errors import SettingError
from gpexplorer.methods.inducing.swapping import swap
from swap_problems import SHIFTS, decreases, dense, problem, swapper


@pytest.mark.parametrize("objective", ["vfe", "pp"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_landscape_of_many_rows_is_exact_on_a_sample_with_all_pivots(
    objective: str, shift: float, monkeypatch: pytest.MonkeyPatch
):
    task = problem(shift)
    s = swapper(task, objective, proposals=0, z=10)
    monkeypatch.setattr(swap, "ALL_ROWS", 60)
    monkeypatch.setattr(swap, "SAMPLE", 20)
    found = s.landscape(3, step=2)
    known = torch.isfinite(found.exact).nonzero()[:, 0].tolist()
    assert set(s.pivots.rows.tolist()) <= set(known)
    assert 20 <= len(known) <= 30
    gains = decreases(task, s, 3, known)
    assert found.exact[known].tolist() == pytest.approx(gains, rel=1e-6, abs=1e-7)
    assert (found.removed, found.rows.tolist()) == (int(s.factor.inducing[3]), list(range(90)))
    assert torch.equal(found.pivots, s.pivots.rows)
    again = s.landscape(3, step=2)
    other = s.landscape(3, step=3)
    assert torch.equal(torch.isfinite(again.exact), torch.isfinite(found.exact))
    assert not torch.equal(torch.isfinite(other.exact), torch.isfinite(found.exact))
    monkeypatch.setattr(swap, "ALL_ROWS", 90)
    everything = s.landscape(3, step=2)
    assert int(torch.isfinite(everything.exact).sum()) == 90 - 8  # points have no value


def test_a_landscape_without_pivots_has_no_scores():
    s = swapper(problem(), "vfe", z=6)
    s.pivots = None
    found = s.landscape(2, step=0)
    assert bool((found.approx == -math.inf).all())
    assert bool(found.exact.isnan().all())
    assert math.isnan(found.correlation)
    assert len(found.pivots) == 0
    assert found.removed == int(s.factor.inducing[2])


def test_a_row_that_the_points_that_stay_explain_cannot_be_put_in_place():
    task = problem(repeats=10)
    s = swapper(task, "vfe", m=4)
    s.factor.build(torch.tensor([1, 40, 50, 60]))
    with pytest.raises(SettingError, match="Row 40 is an inducing point already"):
        s.force(0, 40)
    with pytest.raises(SettingError, match="Row 0 is explained by the inducing points to rounding"):
        s.force(2, 0)  # row 0 equals row 1, which stays
    s.force(0, 0)
    assert s.factor.inducing.tolist() == [0, 40, 50, 60]
    assert s.factor.total == pytest.approx(dense(task, s.factor.inducing, "vfe"), rel=1e-9)
