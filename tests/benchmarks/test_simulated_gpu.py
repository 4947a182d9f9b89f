"""The simulated GPU refuses what CUDA refuses, counts what a GPU is asked for, and computes what the CPU computes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from benchmarks.gpu.simulated_gpu import SimulatedGPU, SimulatedTensor
from gpexplorer.runs.outcomes import is_memory


def test_it_counts_launches_reads_and_uploads():
    with SimulatedGPU() as gpu:
        x = torch.arange(6.0, device="cuda")  # one launch
        y = x.view(2, 3).T[0]  # views: none
        y.mul_(2.0).add_(1.0)  # two launches
        float(y[0]), y.tolist(), torch.nonzero(x), x[x > 1.0], y.cpu()  # five reads, one launch for the comparison
        torch.tensor([1.0, 2.0]).to(x), x[torch.tensor([0, 1])]  # two uploads, one launch

    assert (gpu.work.launches, gpu.work.reads, gpu.work.uploads) == (6, 5, 2)
    assert x.cpu().tolist() == [1.0, 1.0, 2.0, 7.0, 4.0, 5.0]


def test_it_refuses_what_cuda_refuses():
    with SimulatedGPU():
        x, host, index = torch.ones(3, device="cuda"), torch.ones(3), torch.tensor([0])
        for refused in (
            lambda: x + host,
            lambda: torch.stack([x, host]),
            lambda: host[torch.tensor([0], device="cuda")],
        ):
            with pytest.raises(RuntimeError, match="device"):
                refused()
        with pytest.raises(RuntimeError, match="generator"):
            torch.randn(3, device="cuda", generator=torch.Generator())
        with pytest.raises(TypeError, match="numpy"):
            np.asarray(x)
        assert (x + torch.tensor(2.0))[index].tolist() == [3.0]  # a number and an index of the CPU are allowed


def test_gradients_modules_and_inference_mode_work():
    there_is_a_card = torch.cuda.is_available()
    with SimulatedGPU():
        w = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
        (w.square().sum() * 3.0).backward()
        assert w.grad is not None
        assert w.grad.cpu().tolist() == [6.0, 12.0]
        module = torch.nn.Linear(2, 1).to(w.detach())
        assert isinstance(module.weight, SimulatedTensor)
        with torch.inference_mode():
            v = w[:1].exp().mul_(2.0)
            assert (w.detach() @ torch.ones(2, 3, device="cuda")).shape == (3,)
        assert v.is_cuda
        assert copy.deepcopy(v).cpu().equal(v.cpu())
    assert torch.cuda.is_available() == there_is_a_card


def test_a_result_larger_than_the_card_is_an_error_of_memory():
    with SimulatedGPU(memory=1e4):
        x = torch.ones(100, device="cuda", dtype=torch.float64)
        with pytest.raises(torch.OutOfMemoryError) as error:
            torch.outer(x, x)
    assert is_memory(error.value)
