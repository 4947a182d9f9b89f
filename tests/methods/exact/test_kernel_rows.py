"""Kernel rows: computed by the workers of a cluster, used twice in a product, and kept within a budget."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch

from gpexplorer import Spec, kernels
from gpexplorer.linalg.kernel_columns import STRIP, KernelColumns, fill_rows
from gpexplorer.problem import Problem
from gpexplorer.runs.counting import Counted, Counter
from gpexplorer.runs.studies.cluster import mapped
from gpexplorer.runs.studies.measured_run import in_child
from oracles_gbcd import SHIFTS, gram, quick, wavy


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A scheduler and two workers in this process."""
    from distributed import Client, LocalCluster  # takes half a second, which each process that only looks would pay

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("key", ["gbcd", "cg", "pcg", "alternating-projections"])
def test_steps_on_a_cluster_equal_those_of_this_process(key: str, client: Any):
    task = wavy(n=300)
    local = quick(key, cache=0.0, refresh=3, coarse=10, tolerance=0.0)
    distributed = local.with_mapper(mapped(client))

    for local_step, distributed_step in zip(
        islice(local.steps(task), 7), islice(distributed.steps(task), 7), strict=True
    ):
        torch.testing.assert_close(distributed_step.state.alpha, local_step.state.alpha, rtol=1e-12, atol=1e-12)
        assert distributed_step.info.drift == pytest.approx(local_step.info.drift, nan_ok=True, abs=1e-12)


@pytest.mark.parametrize("kept", [0, 70, 600])
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_product_computes_half_of_the_entries_that_are_not_kept(kept: int, shift: float):
    task, counter, n = wavy(shift, n=600), Counter(), 600
    columns = KernelColumns(Counted(task.kernel, counter), task.theta, task.train.X, 8.0 * n * kept)
    columns(torch.arange(3, n, 11)[: kept // 2])
    V = torch.randn(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    for v in (V, V[:, 0]):
        torch.testing.assert_close(columns.product(v), gram(task) @ v, rtol=1e-9, atol=1e-9)
        left, first = n - kept, counter.entries
        columns.product(v)
        strips = sum(min(STRIP, left - begin) * (left - begin) for begin in range(0, left, STRIP))
        assert counter.entries - first == strips <= left * (left + STRIP) / 2


@pytest.mark.parametrize("key", ["gbcd", "pcg"])
def test_peak_memory_is_a_block_and_the_budget(key: str):
    n, b, budget = 6_000, 50, 0.02
    small = {"gbcd": {"coarse": b, "block": b, "chunk": b}, "pcg": {"rank": b}}[key]
    rows = {"name": "hypercube", "n": n, "d": 4, "noise": 0.1, "seed": 0}
    spec = Spec(key, {"learn": False, "cache": budget, **small}, data=rows, kernel="se-ard")

    measured = in_child(spec)

    allowed = 3 * (8 * n * 2 * b + 1e9 * budget) + 64 * 2**20  # besides the buffers of a product
    assert measured.steps > 0, measured.sentence
    assert 1e9 * budget / 2 < measured.memory < allowed < 8 * measured.n**2


def test_the_kernel_entries_of_a_solver_are_counted():
    task, counter = wavy(n=200), Counter()
    counted = Problem(task.train, Counted(task.kernel, counter), task.theta)
    list(islice(quick("cg", cache=0.0, tolerance=0.0).steps(counted), 4))

    assert counter.entries == 200 + 3 * 200 * 200  # the diagonal; all rows fit into one strip


def test_few_pieces_are_submitted_at_a_time_and_shared_arguments_are_sent_once(client: Any, monkeypatch: Any):
    drawn, scattered, many, shared = [], [], 40, torch.ones(3)
    monkeypatch.setattr(client, "scatter", partial(_noting, scattered, client.scatter))

    def pieces() -> Iterator[int]:
        for k in range(many):
            drawn.append(k)
            yield k

    results = mapped(client, ahead=2)(torch.add, [shared] * many, pieces())
    for k, value in enumerate(results):
        assert value.tolist() == [1.0 + k] * 3
        assert len(drawn) - k <= 2 * 2 + 1  # two workers of one thread
    assert len(drawn) == many
    assert len(scattered) == 1


def test_closing_the_iterator_releases_the_pieces_that_were_not_used(client: Any):
    results = mapped(client)(torch.neg, [torch.tensor(k) for k in range(30)])
    assert int(next(iter(results))) == 0
    results.close()

    assert client.futures == {}


def _noting(seen: list[Any], function: Any, *args: Any, **settings: Any) -> Any:
    seen.append(args)
    return function(*args, **settings)


@pytest.mark.parametrize("key", ["se-ard", "matern12", "matern32-ard", "rq"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_part_of_a_larger_matrix_is_filled_with_kernel_values_and_counted(key: str, shift: float):
    task, counter = wavy(shift), Counter()
    kernel = kernels.make(key, 2)
    theta, X = kernel.start(task.train), task.train.X
    out = torch.full((9, 100), -1.0, dtype=torch.float64)

    fill_rows(Counted(kernel, counter), theta, X[:9], X[:], out[:, 10:90])

    torch.testing.assert_close(out[:, 10:90], kernel(theta, X[:9], X), rtol=1e-9, atol=1e-12)
    assert bool((torch.cat([out[:, :10], out[:, 90:]], 1) == -1.0).all())
    assert counter.entries == 9 * 80
