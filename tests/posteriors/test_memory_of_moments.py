"""What predictions of many rows hold: counted, not timed; the values are those of single rows."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from gpexplorer.kernels import make
from gpexplorer.linalg.blocks import row_blocks
from gpexplorer.posteriors import MixtureMarginals, NormalMarginals, PriorPosterior, TransformedMarginals
from gpexplorer.problem import Scale
from gpexplorer.target_transforms import fitted_transform
from work_counter import Work

ROWS = 20_000  # the nodes of all take 5 MB at once
ONE = torch.ones(1, dtype=torch.float64)


def normal(seed: int) -> NormalMarginals:
    draw = torch.Generator().manual_seed(seed)
    return NormalMarginals(*torch.rand(2, ROWS, generator=draw, dtype=torch.float64))


def transformed(seed: int) -> TransformedMarginals:
    targets = torch.linspace(1.0, 3.0, 20, dtype=torch.float64)
    return TransformedMarginals(normal(seed), Scale(0 * ONE, ONE, 0.5, 0.3, fitted_transform("log", targets)))


@pytest.mark.parametrize("parts", [1, 6])
def test_moments_of_transformed_rows_do_not_hold_the_nodes_of_all(parts: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpexplorer.posteriors.marginals.row_blocks", partial(row_blocks, block_bytes=2**18))
    marginals = MixtureMarginals([transformed(seed) for seed in range(parts)], [1 / parts] * parts)

    with Work() as work:
        mean, var = marginals.moments

    assert work.memory < 8 * ROWS * (2 * parts + 20) + 2**19
    few = marginals.with_numbers(iter([number[7:9] for number in marginals.numbers]))
    for all_rows, own in zip((mean, var), few.moments, strict=True):
        torch.testing.assert_close(all_rows[7:9], own, rtol=1e-12, atol=0.0)


def test_quantiles_and_densities_of_a_mixture_hold_those_of_a_few_parts():
    marginals = MixtureMarginals([normal(seed) for seed in range(20)], [0.05] * 20)

    for answer in (lambda: marginals.quantile([0.1, 0.9]), lambda: marginals.log_density(marginals.parts[0].mean)):
        with Work() as work:
            answer()
        assert work.memory < 8 * ROWS * 2 * 18


def test_functions_of_the_prior_hold_the_features_of_a_block_of_rows():
    """The features of 6,000 rows take 200 MB; those of all rows of a prediction were held at once."""
    prior = PriorPosterior(make("se", 1), torch.zeros(3, dtype=torch.float64))
    paths, X = prior.paths(2), torch.linspace(0.0, 1.0, 6000, dtype=torch.float64)[:, None]

    with Work() as work:
        values = paths(X)

    assert work.memory < 100e6
    torch.testing.assert_close(values[:, 4321:4323], paths(X[4321:4323]), rtol=1e-9, atol=1e-9)
