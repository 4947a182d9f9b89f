"""Sums over rows: the same whatever the strips and whoever adds them, and no larger than a strip in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.simulated_gpu import DeviceWork, SimulatedGPU
from gpexplorer import kernels
from gpexplorer.features.basis_choices import Leading
from gpexplorer.features.grid_eigenfunctions import Grid
from gpexplorer.linalg.blocks import (
    PANELS,
    TILE,
    add_gram_,
    row_blocks,
    sum_of_squares,
    sum_over_rows,
    symmetric_from_lower,
)
from gpexplorer.linalg.randomness import generator, random_rows
from gpexplorer.methods.eigenfunctions.evidence import gram_products, strip_products
from gpexplorer.objectives import nystrom_gradient
from gpexplorer.problem import Dataset
from gpexplorer.runs.counting import Counted, Counter

Strip = tuple[torch.Tensor, ...]


def moments_of(strip: Strip) -> Strip:
    X, y = strip
    return X.T @ X, X.T @ y


@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_strips_add_up_to_the_whole(rows: int, shift: float):
    X = shift + torch.rand(100, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = X[:, 0] - X[:, 1]

    A, c = sum_over_rows(moments_of, (X, y), rows=rows)

    torch.testing.assert_close(A, X.T @ X)
    torch.testing.assert_close(c, X.T @ y)
    assert sum_of_squares(y.float()) == pytest.approx(float(y @ y), rel=1e-4)


@pytest.mark.parametrize(
    ("n", "row_bytes", "block_bytes", "sizes"),
    [(10, 8, 32, [4, 4, 2]), (10, 8, 31, [3, 3, 3, 1]), (3, 8, 1, [1, 1, 1]), (0, 8, 32, []), (5, 0, 3, [3, 2])],
)
def test_blocks_of_rows_cover_all_rows_within_their_bytes(n: int, row_bytes: int, block_bytes: int, sizes: list[int]):
    blocks = list(row_blocks(n, row_bytes, torch.zeros(1), block_bytes))

    assert [block.stop - block.start for block in blocks] == sizes
    assert [row for block in blocks for row in range(n)[block]] == list(range(n))


@pytest.mark.parametrize(("memory", "largest"), [(80e9, 2**18), (8e9, 62500), (1e8, 24 * 2**10)])
def test_blocks_on_a_gpu_are_large_but_small_beside_its_memory(memory: float, largest: int):
    with SimulatedGPU(memory):
        blocks = list(row_blocks(2**18, 1000, torch.zeros(1, device="cuda")))

    assert blocks[0].stop == pytest.approx(largest, rel=0.05)


def test_a_device_of_another_kind_has_blocks_of_a_gpu():
    blocks = list(row_blocks(2**18, 2**14, torch.zeros(1, device="meta")))  # 4 GiB in all
    assert 1 < len(blocks) < 2**18 / 2**8
    assert (blocks[0].start, blocks[-1].stop) == (0, 2**18)


def test_a_gpu_is_not_asked_for_more_launches_where_rows_are_more():
    """The objective and its gradient took a block of 4 MB at a time, which leaves a GPU waiting for the host."""
    kernel, theta = kernels.make("se-ard", 2), torch.tensor([0.0, 0.5, 0.5, -1.0], dtype=torch.float64)
    launches = list[int]()
    with SimulatedGPU() as gpu:
        for n in (500, 20_000):
            X = torch.rand(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to("cuda")
            gpu.work = DeviceWork()
            nystrom_gradient(kernel, theta.to("cuda"), Dataset(X, X.sum(1)), X[:100], "vfe")
            launches.append(gpu.work.launches)

    assert launches[1] == launches[0]


@pytest.mark.parametrize("p", [1, 3, TILE, TILE + 1, PANELS * TILE, PANELS * TILE + 1, 517])
def test_a_gram_matrix_is_completed_from_its_lower_half(p: int):
    F = torch.randn(p, 40, generator=torch.Generator().manual_seed(p), dtype=torch.float64)
    A = torch.zeros(p, p, dtype=torch.float64)

    add_gram_(A, F)
    add_gram_(A, F)

    torch.testing.assert_close(symmetric_from_lower(A), 2 * F @ F.T)

    weights = torch.rand(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    add_gram_(A, F * weights, F)
    torch.testing.assert_close(symmetric_from_lower(A), F @ (2 + weights).diag() @ F.T)


def test_strips_are_made_one_at_a_time():
    live: list[int] = []

    def watched(function: Callable[..., Any], pieces: Iterable[Any]) -> Iterator[Any]:
        for k, piece in enumerate(pieces):
            live.append(k)
            yield function(piece)

    X = torch.ones(50, 2, dtype=torch.float64)
    A, _ = sum_over_rows(moments_of, (X, X[:, 0]), watched, rows=20)

    assert live == [0, 1, 2]
    assert A.tolist() == [[50.0, 50.0], [50.0, 50.0]]


def task(X: torch.Tensor, y: torch.Tensor) -> tuple[Grid, torch.Tensor, Dataset, torch.Tensor]:
    kernel, theta = kernels.make("se-ard", 3), torch.tensor([0.1, 0.0, 0.2, -0.3, -1.0], dtype=torch.float64)
    grid = Grid(kernel, X, 6)
    return grid, theta, Dataset(X, y), grid.spectrum(theta, 40).axis_indices


def test_workers_give_the_same_sums_as_this_process():
    rng = torch.Generator().manual_seed(3)
    X = torch.rand(40_000, 3, generator=rng, dtype=torch.float64)
    grid, theta, train, index = task(X, X.sum(1).sin())

    local = gram_products(Leading(grid, index), theta, train)
    with ThreadPoolExecutor(2) as pool:
        distributed = gram_products(Leading(grid, index), theta, train, pool.map)

    for first, second in zip(local, distributed, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_a_pickled_part_of_a_sum_gives_the_same_result():
    X = torch.rand(30, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    grid, theta, _, index = task(X, X[:, 0])
    grid.kernel = Counted(grid.kernel, Counter())
    part = partial(strip_products, Leading(grid, index), theta)

    unpickled = pickle.loads(pickle.dumps(part))

    for first, second in zip(part((X, X[:, 0])), unpickled((X, X[:, 0])), strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that any operation made; views of what was there before are not made."""

    def __init__(self, *ignored: torch.Tensor) -> None:
        super().__init__()
        self.held, self.bytes = {tensor.untyped_storage().data_ptr() for tensor in ignored}, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.held:
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return out


def test_a_mapped_file_streams_through_tensors_that_do_not_grow_with_it(tmp_path: Path):
    largest, result = [], []
    for n in (20_000, 60_000):
        on_disk = np.lib.format.open_memmap(tmp_path / f"{n}.npy", mode="w+", dtype=np.float64, shape=(n, 4))
        on_disk[:] = np.random.default_rng(0).random((n, 4))
        on_disk.flush()
        mapped = torch.from_numpy(np.load(tmp_path / f"{n}.npy", mmap_mode="r+"))
        grid, theta, train, index = task(mapped[:, :3], mapped[:, 3])
        with Largest(mapped) as counter:
            A, _ = gram_products(Leading(grid, index), theta, train)
        largest.append(counter.bytes)
        result.append(A / n)

    assert largest[0] == largest[1] < 0.5 * 60_000 * 40 * 8  # Phi, which is never whole
    torch.testing.assert_close(result[0], result[1], rtol=0.2, atol=0.02)


@pytest.mark.parametrize(("n", "size"), [(1000, 10), (100, 24), (10, 20), (10, 3)])
def test_random_rows_are_distinct_and_reproducible(n: int, size: int):
    rows = random_rows(n, size, generator(3, "some"))

    assert rows.tolist() == random_rows(n, size, generator(3, "some")).tolist()
    assert len(set(rows.tolist())) == len(rows) == min(n, size)
    assert 0 <= int(rows.min()) <= int(rows.max()) < n


def test_every_row_and_every_position_is_equally_likely():
    drawn = torch.stack([random_rows(20, 4, generator(k, "some")) for k in range(2000)])

    for counts in (torch.bincount(drawn.flatten(), minlength=20) / 8000, torch.bincount(drawn[:, 0]) / 2000):
        assert float((counts - 0.05).abs().max()) < 0.025


def test_drawing_few_of_many_rows_needs_little_memory():
    with Largest() as seen:
        random_rows(10**6, 100, generator(0, "some"))

    assert seen.bytes < 8000
