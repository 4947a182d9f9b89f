"""The map from free numbers to all entries: fixed, tied and bounded ones."""

import math

import torch

from gpexplorer.kernels.theta.free_parameters import FreeParameters


def example(offset=None):
    begin = torch.tensor([0.3, -1.0, 2.0, 0.7, 5.0], dtype=torch.float64)
    lower = torch.tensor([-math.inf, -2.0, -math.inf, -math.inf, -math.inf], dtype=torch.float64)
    upper = torch.tensor([1.0, math.inf, 1.5, math.inf, math.inf], dtype=torch.float64)
    return begin, FreeParameters.of(begin, [4], [[1, 2]], lower, upper, offset)


def test_the_gradient_in_the_free_numbers_is_that_of_finite_differences():
    begin, free = example(torch.tensor([0.0, 0.0, 0.5, 0.0, 0.0], dtype=torch.float64))
    f = free.free(begin)
    assert len(f) == 3

    def value(f):
        v = free.full(f)
        return (v.sin() * torch.arange(1.0, 6.0)).sum()

    gradient = free.sums(free.full(f).cos() * torch.arange(1.0, 6.0))
    for k in range(3):
        step = 1e-6 * torch.eye(3, dtype=torch.float64)[k]
        difference = (value(f + step) - value(f - step)) / 2e-6
        torch.testing.assert_close(gradient[k], difference, rtol=1e-7, atol=1e-8)


def test_projection_keeps_bounds_ties_and_fixed_entries_and_is_the_nearest_point():
    begin, free = example()
    v = free.project(torch.tensor([3.0, -7.0, 1.0, 0.123, 0.0], dtype=torch.float64))
    assert v.tolist() == [1.0, -2.0, -2.0, 0.123, begin[4].item()]
    torch.testing.assert_close(free.project(v), v, rtol=0, atol=0)


def test_equal_entries_keep_their_bits():
    begin = torch.tensor([0.1, 0.1, 0.1], dtype=torch.float64)
    none = torch.full((3,), math.inf, dtype=torch.float64)
    free = FreeParameters.of(begin, [], [[0, 1, 2]], -none, none)
    assert free.project(begin).tolist() == begin.tolist()


def test_a_tie_with_a_fixed_entry_is_fixed_at_its_value():
    begin, offset = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 0.5, 0.0])
    none = torch.full((3,), math.inf)
    free = FreeParameters.of(begin, [0], [[0, 1]], -none, none, offset)
    assert free.project(torch.zeros(3)).tolist() == [1.0, 1.5, 0.0]


def test_a_bound_stops_a_gradient_that_points_outwards_only():
    _, free = example()
    at = torch.tensor([1.0, -2.0, -2.0, 0.0, 5.0], dtype=torch.float64)
    ones = torch.ones(5, dtype=torch.float64)
    assert free.descending(at, ones).tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert free.descending(at, -ones).tolist() == [0.0, -1.0, -1.0, -1.0, 0.0]


def test_more_entries_are_free():
    begin, free = example()
    longer = free.with_others(2)
    v = torch.cat([begin, begin.new_tensor([8.0, 9.0])])
    assert longer.project(v)[-2:].tolist() == [8.0, 9.0]
    assert len(longer.free(v)) == 5
