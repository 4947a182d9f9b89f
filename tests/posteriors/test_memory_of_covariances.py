"""What covariances of many rows hold and compute: counted, not timed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.linalg.blocks import row_blocks
from gpexplorer.objectives import nystrom
from gpexplorer.posteriors import (
    AveragePosterior,
    NearestRowsPosterior,
    PriorPosterior,
    StatesPosterior,
    WidenedPosterior,
    exact_gp_posterior,
    nystrom_posterior,
)
from gpexplorer.posteriors.base import COPIES
from gpexplorer.posteriors.in_units import in_units_of
from gpexplorer.problem import Dataset, Scale
from gpexplorer.target_transforms import fitted_transform
from work_counter import Work

THETA = torch.tensor([0.1, -1.2, -2.0], dtype=torch.float64)
KERNEL = kernels.make("matern32", 1)
KINDS = ("exact", "inducing", "nearest", "states", "prior", "widened", "units", "transformed", "average")


def rows(n: int, seed: int = 0) -> Dataset:
    draw = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=draw, dtype=torch.float64)
    return Dataset(X, torch.sin(6.0 * X[:, 0]) + 2.0)


def posterior(kind: str, train: Dataset) -> Any:
    if kind == "nearest":
        lengths = torch.ones(1, dtype=torch.float64)
        return NearestRowsPosterior(KERNEL, THETA, train.X, train.y, lengths=lengths, neighbours=2)
    if kind == "states":
        return StatesPosterior(KERNEL, THETA, train.X, train.y)
    if kind == "prior":
        return PriorPosterior(KERNEL, THETA)
    if kind == "inducing":
        return nystrom_posterior(KERNEL, THETA, train.X[:5], nystrom(KERNEL, THETA, train, train.X[:5]))
    if kind == "widened":
        knots, factors = torch.tensor([[0.5, 0.8], [1.0, 2.0]], dtype=torch.float64)
        return WidenedPosterior(posterior("states", train), 0, knots, factors)
    if kind == "average":
        return AveragePosterior(
            [posterior("units", train), posterior("transformed", train), posterior("units", train)], [0.2, 0.3, 0.5]
        )
    if kind in ("units", "transformed"):
        own = fitted_transform("log", train.y) if kind == "transformed" else None
        one = torch.ones(1, dtype=torch.float64)
        return in_units_of(
            posterior("inducing", train), Dataset(train.X, train.y, scale=Scale(0 * one, one, 0.5, 0.3, own))
        )
    return exact_gp_posterior(KERNEL, THETA, train)


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_copies_of_a_covariance_exist_as_its_refusal_counts(kind: str, monkeypatch: pytest.MonkeyPatch):
    small_blocks(monkeypatch, 2**13)
    ours, X = posterior(kind, rows(20)), rows(100, 1).X
    ours.cov(X[:3])

    for noise, Z in ((True, None), (False, X[20:] + 0.01)):
        with Work() as work:
            ours.cov(X, Z, noise=noise)
        assert work.memory < COPIES * 8 * len(X) * len(X if Z is None else Z) + 2**16


def small_blocks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let blocks of rows have this many bytes, as if there were many rows."""

    def blocks(n: int, row_bytes: int, like: Tensor) -> Any:
        return row_blocks(n, row_bytes, like, size)

    for module in ("linalg.blocks", *(f"posteriors.{name}" for name in ("base", "exact", "in_units", "nearest_rows"))):
        monkeypatch.setattr(import_module(f"gpexplorer.{module}"), "row_blocks", blocks)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_rows_have_the_covariances_of_all_at_once(kind: str, monkeypatch: pytest.MonkeyPatch):
    ours, X = posterior(kind, rows(20)), rows(14, 1).X
    X = torch.cat([X, X[:2], rows(20).X[:2]])  # also the same twice, and training rows
    wanted, between = ours.cov(X, noise=True), ours.cov(X[:7], X[5:])

    small_blocks(monkeypatch, 900)
    C = ours.cov(X, noise=True)

    torch.testing.assert_close(C, wanted, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ours.cov(X[:7], X[5:]), between, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(between, ours.cov(X)[:7, 5:], rtol=1e-7, atol=1e-9)
    assert torch.equal(C, C.T)
    torch.testing.assert_close(C.diagonal(), ours.var(X, noise=True))
    assert ours.cov(X[:0]).shape == (0, 0)
    assert ours.cov(X[:3], X[:0]).shape == (3, 0)


@pytest.mark.parametrize("kind", ["exact", "nearest", "prior", "inducing"])
def test_of_a_symmetric_covariance_one_half_is_computed(kind: str, monkeypatch: pytest.MonkeyPatch):
    """And no more columns of all training rows are held at once than fit into a block."""
    ours, X, entries = posterior(kind, rows(40)), rows(100, 1).X, []

    class Counted(type(KERNEL)):  # type: ignore[misc]
        def __call__(self, theta: Tensor, X: Tensor, Z: Tensor) -> Tensor:
            entries.append(len(X) * len(Z))
            return super().__call__(theta, X, Z)

    small_blocks(monkeypatch, 2**15)
    ours.kernel = Counted(1)
    ours.cov(X)
    half = sum(entries)
    ours.cov(X, X.clone())

    assert half < 0.7 * (sum(entries) - half)
    assert max(entries) <= 2**15 / 8


def test_states_need_no_square_of_all_times_for_a_few_rows_beside_many():
    ours, X = posterior("states", rows(20)), rows(200, 1).X
    ours.cov(X[:3])

    with Work() as work:
        C = ours.cov(X[:2], X)

    assert work.memory < 8 * 200 * 150
    torch.testing.assert_close(C, posterior("exact", rows(20)).cov(X[:2], X), rtol=1e-7, atol=1e-9)
