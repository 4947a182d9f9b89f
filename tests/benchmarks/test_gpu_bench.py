"""`benchmarks gpu` says so where there is no GPU, and prints its table on the simulated one."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import gpu as gpu_bench
from benchmarks.__main__ import app
from benchmarks.gpu import NO_GPU, floor_seconds, report
from benchmarks.gpu.simulated_gpu import SimulatedGPU
from benchmarks.timing.limits import Limits
from gpexplorer.problem import Cost


def test_without_a_gpu_it_ends_with_a_sentence_and_a_code(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    result = CliRunner().invoke(app, ["gpu"])

    assert result.exit_code == NO_GPU
    assert result.output.startswith("Torch sees no GPU here")


def test_the_table_has_times_ratio_and_floor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_bench, "measure", lambda *_: Limits(product=1e-5, bandwidth=3e12, gemm=5e13, load=0.0))
    with SimulatedGPU():
        title, _, scgd = report(["scgd"], 200, 2, 2, "float32")

    assert title.startswith("Simulated GPU, 80 GB, float32")
    key, rows, cpu, gpu, ratio, floor, excess = scgd.split()
    assert (key, rows) == ("scgd", "200")
    assert float(ratio) == pytest.approx(float(cpu) / float(gpu), abs=0.06)
    assert float(excess) == pytest.approx(float(gpu) / float(floor), rel=0.3)


def test_the_floor_is_the_longer_of_arithmetic_and_traffic():
    card = Limits(product=0.0, bandwidth=1e12, gemm=1e13, load=0.0)

    assert floor_seconds(Cost(1e13, 1e11), card) == 1.0
    assert floor_seconds(Cost(1e12, 2e12), card) == 2.0
