"""The pivots that each policy draws, and how well scores rank candidates."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.methods.inducing.swapping.policies import (
    FIRST,
    POLICIES,
    TRUSTED,
    Candidates,
    best_of_pool,
    by_variance,
    missed_reduction,
)
from gpexplorer.methods.inducing.swapping.swap import Swapper, window_correlation
from swap_problems import problem, swapper


def candidates(s: Swapper, z: int, pivots: bool = True) -> Candidates:
    rows = torch.arange(90)[~s.factor.is_inducing]
    shuffled = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(7))]
    return Candidates(s.factor, rows, shuffled, s.pivots if pivots else None, z, seed=0, step=5)


def test_random_and_adaptive_pivots_are_the_first_of_a_random_order():
    s = swapper(problem(), "vfe", z=20)
    given = candidates(s, 20)
    assert torch.equal(POLICIES["random"].draw(given).rows, given.shuffled[:20])
    assert torch.equal(POLICIES["adaptive"].draw(given).rows, given.shuffled[:FIRST])
    assert len(POLICIES["adaptive"].draw(candidates(s, 3)).rows) == 3
    assert POLICIES["random"].draw(given).ranked is None


def test_the_adaptive_policy_has_room_until_the_scores_can_be_trusted():
    adaptive, random = POLICIES["adaptive"], POLICIES["random"]
    assert adaptive.room(20, 8, TRUSTED - 1e-9) == 12
    assert adaptive.room(20, 8, TRUSTED) == 0
    assert adaptive.room(20, 8, math.nan) == 12
    assert random.room(20, 8, 0.0) == 0


def test_optimised_pivots_come_from_four_times_as_many_rows():
    s = swapper(problem(), "vfe", z=5)
    given = candidates(s, 5)
    drawn = POLICIES["optimised"].draw(given).rows
    pool = given.shuffled[:20]
    E, _ = s.factor.residual_columns(pool, [])
    assert torch.equal(drawn, best_of_pool(E, pool, 5))
    assert set(drawn.tolist()) <= set(pool.tolist())
    assert len(set(drawn.tolist())) == 5


@pytest.mark.parametrize("z", [4, 8, 9])
def test_scored_pivots_are_half_by_score_a_quarter_by_variance_and_the_rest_uniform(z: int):
    s = swapper(problem(), "vfe", z=12, policy="scored", proposals=0)
    given = candidates(s, z)
    drawn = POLICIES["scored"].draw(given)
    scores = s.pivots.without(s.factor.no_removal()).approximate()
    best = scores.topk(z // 2).indices.tolist()
    assert torch.equal(drawn.scores, scores)
    assert drawn.ranked.tolist() == best
    assert drawn.rows[: z // 2].tolist() == best
    assert len(drawn.rows) == len(set(drawn.rows.tolist())) == z
    rest = drawn.rows[z // 2 :].tolist()
    uniform = [row for row in rest if row in given.shuffled[:z].tolist()]
    assert len(uniform) >= z - z // 2 - z // 4
    assert not bool(s.factor.is_inducing[drawn.rows].any())


def test_without_pivots_scored_ones_are_drawn_by_variance_and_uniformly():
    s = swapper(problem(), "vfe", z=8, policy="scored", proposals=0)
    drawn = POLICIES["scored"].draw(candidates(s, 8, pivots=False))
    assert len(drawn.ranked) == 0
    assert len(drawn.rows) == 8
    assert bool((drawn.scores == -math.inf).all())


def test_rows_are_drawn_in_proportion_to_their_variance_without_repetition():
    D = torch.tensor([4.0, 2.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    first = torch.zeros(5)
    for _ in range(4000):
        drawn = by_variance(D, 2, rng)
        assert len(set(drawn.tolist())) == 2
        first[drawn[0]] += 1
    torch.testing.assert_close(first / 4000, torch.tensor([0.5, 0.25, 0.125, 0.125, 0.0]), atol=0.03, rtol=0.0)
    assert len(by_variance(D, 9, rng)) == 5


def test_a_pool_whose_rows_explain_each_other_gives_fewer_pivots():
    task = problem()
    K = task.kernel(task.theta, task.train.X, task.train.X)
    pool = torch.tensor([3, 3, 9, 3, 9])
    assert sorted(best_of_pool(K[pool], pool, 4).tolist()) == [3, 9]
    assert len(best_of_pool(K[pool], pool, 1)) == 1


def test_the_missed_reduction_is_that_of_the_best_score_beside_the_best_candidate():
    inf = math.inf
    exact = torch.tensor([[1.0, 5.0, 3.0], [1.0, 5.0, -inf], [1.0, 2.0, 3.0]], dtype=torch.float64)
    scores = torch.tensor([[0.5, 0.1, 0.9], [0.5, 0.1, 0.9], [-inf, -inf, -inf]], dtype=torch.float64)
    missed = missed_reduction(exact, scores).tolist()
    assert missed[:2] == [2.0, 4.0]  # an explained candidate has no score
    assert math.isnan(missed[2])


def test_a_correlation_needs_four_tests():
    tested = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 5.0], [4.0, 9.0]], dtype=torch.float64)
    assert math.isnan(window_correlation(tested[:3]))
    assert window_correlation(tested) == pytest.approx(1.0)
