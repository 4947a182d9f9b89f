"""The switch to one kernel per covariance on a GPU, its fallback, and blocks that are large enough for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from benchmarks.gpu.simulated_gpu import DeviceWork, SimulatedGPU
from gpexplorer import kernels
from gpexplorer.kernels import stationary
from gpexplorer.linalg import blocks
from gpexplorer.linalg.kernel_columns import kernel_rows

KEYS = ["matern12-ard", "matern52-ard"]


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stationary, "WORTH_ENTRIES", 40_000)
    stationary._compiled.clear()
    yield
    stationary._compiled.clear()


def filled(key: str, device: str, n: int = 400) -> tuple[torch.Tensor, DeviceWork]:
    X = torch.rand(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = kernels.make(key, 2)
    theta = torch.tensor([0.3, -0.5, 0.5, -1.0], dtype=torch.float64)
    if device == "cpu":
        return kernel_rows(kernel, theta, X[:200], X), DeviceWork()
    with SimulatedGPU() as gpu:
        X, theta = X.to(device), theta.to(device)
        gpu.work = DeviceWork()
        return kernel_rows(kernel, theta, X[:200], X).cpu(), gpu.work


@pytest.mark.parametrize("key", KEYS)
def test_a_large_covariance_is_one_compiled_kernel_on_a_gpu_only(key: str):
    expected, _ = filled(key, "cpu")
    assert not stationary._compiled
    filled(key, "cuda", n=199)
    assert not stationary._compiled
    on_gpu, work = filled(key, "cuda")

    assert len(stationary._compiled) == 1
    torch.testing.assert_close(on_gpu, expected, rtol=1e-12, atol=1e-12)
    stationary._compiled[type(kernels.make(key, 2)).covariances_] = type(kernels.make(key, 2)).covariances_
    assert work.launches < filled(key, "cuda")[1].launches


def test_where_compilation_fails_the_function_runs_as_it_is(monkeypatch: pytest.MonkeyPatch):
    attempts, warnings = [], []
    monkeypatch.setattr(stationary._log, "warning", lambda *arguments: warnings.append(arguments))

    def failing(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def call(*_: Any) -> None:
            attempts.append(function)
            raise RuntimeError("no compiler")

        return call

    monkeypatch.setattr(SimulatedGPU, "_compiled", lambda _, function, **options: failing(function, **options))
    expected, _ = filled(KEYS[0], "cpu")
    for _ in range(2):
        torch.testing.assert_close(filled(KEYS[0], "cuda")[0], expected, rtol=1e-12, atol=1e-12)

    assert len(attempts) == 1
    assert [arguments[1] for arguments in warnings] == ["Stationary.covariances_"]


def test_blocks_on_a_gpu_are_large(monkeypatch: pytest.MonkeyPatch):
    few = filled("se-ard", "cuda")[1].launches
    monkeypatch.setattr(blocks, "GPU_BYTES", 0)
    monkeypatch.setattr("gpexplorer.kernels.stationary.FILL_BYTES", 2**13)

    assert filled("se-ard", "cuda")[1].launches > 3 * few
