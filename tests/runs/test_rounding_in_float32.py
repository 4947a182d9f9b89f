"""Where float32 cannot hold a problem, every run ends with a sentence; where it can, and in float64, none does.

On a GPU that is slow in float64, a run that float32 could hold ends with a sentence as well.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.gpu.simulated_gpu import SimulatedGPU
from gpexplorer import kernels, methods
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs import Run, Spec
from gpexplorer.runs.rounding import covariance_rounding


def problem(dtype: torch.dtype, lengthscale: float, s2: float, shift: float = 0.0) -> Problem:
    """150 rows in clusters that are one lengthscale wide and lie over a range of 4; sf2 = 1."""
    rng = torch.Generator().manual_seed(1)
    centres = 4.0 * torch.rand(30, 2, generator=rng, dtype=torch.float64)
    X = centres.repeat(5, 1) + lengthscale * torch.rand(150, 2, generator=rng, dtype=torch.float64) + shift
    y = torch.sin(X.sum(1)) + s2**0.5 * torch.randn(150, generator=rng, dtype=torch.float64)
    theta = torch.tensor([1.0, lengthscale, lengthscale, s2**0.5]).double().log()
    return Problem(Dataset(X.to(dtype), y.to(dtype)), kernels.make("se-ard", 2), theta.to(dtype))


def message(key: str, task: Problem) -> str:
    run = Run(methods[key](), task)
    return run.finish(steps=1).message


@pytest.mark.parametrize("key", ["cg", "sgpr", "random", "grief", "ml", "loo", "rff"])
def test_a_run_says_where_float32_cannot_hold_the_problem(key: str) -> None:
    assert "float32 cannot hold this problem" in message(key, problem(torch.float32, 2e-4, 1e-2))
    assert "float32 cannot hold" not in message(key, problem(torch.float64, 2e-4, 1e-2))


@pytest.mark.parametrize(
    ("lengthscale", "s2", "shift", "holds"),
    [(0.5, 1e-2, 0.0, True), (0.5, 1e-2, 4.0, True), (0.5, 1e-6, 0.0, False), (2e-4, 1e-2, 0.0, False)],
)
def test_the_sentence_gives_the_error_of_covariances(lengthscale: float, s2: float, shift: float, holds: bool) -> None:
    single, double = (problem(dtype, lengthscale, s2, shift) for dtype in (torch.float32, torch.float64))
    K = double.kernel(double.theta, double.train.X, double.train.X)
    stored = single.kernel(double.theta, single.train.X.double(), single.train.X.double())
    sentence = covariance_rounding(single.kernel, single.theta, single.train.X)

    assert (sentence < 1e-2 * s2) == holds
    assert 0.2 * float((K - stored).abs().max()) < sentence < 1e-5 + 20.0 * float((K - stored).abs().max())
    assert (message("cg", single).find("float32 cannot hold") < 0) == holds
    if not holds:
        assert f"covariances by up to {sentence:.1e}, beside a noise variance of {s2:.1e}" in message("cg", single)


@pytest.mark.parametrize(
    ("capability", "lengthscale", "offered"),
    [((8, 9), 0.5, True), ((7, 5), 0.5, True), ((9, 0), 0.5, False), ((8, 9), 2e-4, False)],
)
def test_a_gpu_that_is_slow_in_float64_is_offered_float32_where_it_holds_the_problem(
    capability: tuple[int, int], lengthscale: float, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    task = problem(torch.float64, lengthscale, 1e-2)
    with SimulatedGPU():
        on_gpu = Problem(task.train.to("cuda", torch.float64), task.kernel, task.theta.to("cuda"))
        assert ("Use dtype float32." in message("cg", on_gpu)) == offered
    assert "Use dtype" not in message("cg", task)


@pytest.mark.parametrize("key", ["ml", "sgpr", "grief", "svgp", "vecchia"])
def test_an_offset_of_the_file_that_float32_cannot_hold_costs_no_digits(key: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.05 * rng.normal(size=60)
    kernel = "matern32-ard" if key == "vecchia" else "se-ard"
    spec = Spec(key, kernel=kernel, dtype="float32", budget={"steps": 3}, split={"test": 0.2, "seed": 0})
    runs = [spec.open(data=(X + shift, y + shift)) for shift in (0.0, 2.0**30)]
    for run in runs:
        run.finish()
    near, far = (run.posterior(of="y") for run in runs)
    new = X[:8] + 0.03
    assert (far.mean(new + 2.0**30) - 2.0**30).numpy() == pytest.approx(near.mean(new).numpy(), abs=2e-2)
    assert far.sd(new + 2.0**30).numpy() == pytest.approx(near.sd(new).numpy(), rel=5e-2)
    assert far.sample(new + 2.0**30, 400).std(0).numpy() == pytest.approx(far.sd(new + 2.0**30).numpy(), rel=0.2)
    assert runs[1].scores()["smse"] == pytest.approx(runs[0].scores()["smse"], rel=0.05)
