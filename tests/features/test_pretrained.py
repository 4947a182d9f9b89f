"""Feature maps trained before: a torch module is learned on as autograd would, and a file gives back its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from gpexplorer.errors import DataError, SettingError
from gpexplorer.features.deep import Network, views
from gpexplorer.features.pretrained import Module, load, save
from gpexplorer.methods.minibatches.exact_likelihood import exact_gradient, exact_likelihood
from gpexplorer.methods.minibatches.model import Model
from oracles_minibatches import dense, method, problem


def module(width: int = 5) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = torch.nn.Sequential(
            torch.nn.Linear(3, 6), torch.nn.BatchNorm1d(6), torch.nn.Tanh(), torch.nn.Linear(6, width)
        )
        network[1].running_mean.normal_()
    return network


def inputs() -> Tensor:
    return 1.5 + torch.randn(6, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def test_a_module_begins_at_its_own_answers_and_has_the_gradient_of_autograd():
    network, X = module(), inputs()
    map_ = Module(network, 3, X)
    alpha = map_.start(9).requires_grad_()

    H = map_.layers(views(alpha, map_.shapes), X)
    G = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    into = torch.full_like(alpha, torch.nan)
    with torch.no_grad():
        map_.pullback(views(alpha, map_.shapes), H, G, views(into, map_.shapes))

    torch.testing.assert_close(H[-1].detach(), module().double().eval()(X).detach())
    torch.testing.assert_close(into, torch.autograd.grad((H[-1] * G).sum(), alpha)[0])
    assert next(network.parameters()).dtype == torch.float32
    assert network.training


def test_fixed_parameters_are_no_part_of_theta():
    network = module()
    network[0].requires_grad_(False)
    map_ = Module(network, 3, inputs())

    assert map_.size == sum(part.numel() for part in network.parameters() if part.requires_grad)
    assert Module(network.requires_grad_(False), 3, inputs()).size == 0


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
@pytest.mark.parametrize("learned", [True, False])
def test_methods_learn_on_a_module(kernel: str, learned: bool):
    at = problem(shift=0.5)
    small = method("scgd", kernel=kernel, batch_size=40, averaging=1.0, minibatches=1)
    small.features = module().requires_grad_(learned)
    model, steps = Model(small, at), small.steps(at)
    theta = model.matched(next(steps).state.theta).requires_grad_()

    want = torch.autograd.grad(dense(model, theta), theta)[0]
    state = next(steps).state
    mean, var = small.posterior(at, state)(at.train.X)

    with torch.no_grad():
        got = exact_gradient(model, theta, exact_likelihood(model, theta))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    assert state.theta.shape == theta.shape
    assert mean.isfinite().all()
    assert (var >= 0.0).all()


class Deep(torch.nn.Module):
    def forward(self, X: Tensor) -> Tensor:
        return X[:, :, None]


WRONG: list[tuple[Any, str]] = [
    (torch.nn.Linear(4, 2), "does not take rows of 3 inputs"),
    (Deep(), r"shape \(2, 3, 1\) for 2 rows, not \[2, width\]"),
    ("net.pt", "features are a str; give a torch module, or the result of features.pretrained.load"),
]


@pytest.mark.parametrize(("given", "sentence"), WRONG)
def test_what_is_no_feature_map_is_refused_with_a_sentence(given: Any, sentence: str):
    small = method("scgd")
    small.features = given

    with pytest.raises(SettingError, match=sentence):
        next(small.steps(problem()))


def test_weights_come_back_from_a_file_and_begin_the_learning(tmp_path: Path):
    network, path = Network([3, 7, 4], "softplus"), tmp_path / "net.safetensors"
    alpha = network.start(5)
    save(path, network, alpha)

    loaded = load(path)

    assert (loaded.sizes, loaded.activation) == (network.sizes, network.activation)
    assert torch.equal(loaded.start(0), alpha)
    small = method("minimax")
    small.features = loaded
    assert torch.equal(next(small.steps(problem())).state.theta[: loaded.size], alpha)
    with pytest.raises(SettingError, match="with 3 inputs, but the data have 2"):
        next(small.steps(problem(d=2)))


def tensors() -> dict[str, Tensor]:
    return {"W1": torch.zeros(4, 3), "b1": torch.zeros(4)}


HEADER = {"sizes": "3, 4", "activation": "relu"}
FILES: list[tuple[dict[str, Tensor], dict[str, str], str]] = [
    (tensors(), {}, "has no valid sizes"),
    (tensors(), {**HEADER, "sizes": "3, -4"}, "has no valid sizes"),
    (tensors(), {**HEADER, "activation": "swish"}, "activation 'swish'; use one of relu, tanh, softplus"),
    (tensors(), {**HEADER, "sizes": "3, 5"}, r"W1 is \(4, 3\), but sizes \[3, 5\] require \(5, 3\)"),
    (tensors(), {**HEADER, "sizes": "3, 4, 4"}, r"W2 is missing, but sizes \[3, 4, 4\] require \(4, 4\)"),
    (tensors(), {**HEADER, "sizes": "99999, 99999"}, "has 9999900000 weights; at most"),
    ({**tensors(), "head": torch.zeros(1)}, HEADER, "contains 'head' besides the weights of its 1 layers"),
    ({**tensors(), "b1": torch.full((4,), torch.nan)}, HEADER, "weights that are not finite"),
]


@pytest.mark.parametrize(("held", "header", "sentence"), FILES)
def test_a_file_at_odds_with_itself_is_refused(
    held: dict[str, Tensor], header: dict[str, str], sentence: str, tmp_path: Path
):
    save_file(held, str(tmp_path / "net"), header)

    with pytest.raises(DataError, match=sentence):
        load(tmp_path / "net")


def test_a_file_that_could_run_code_is_never_opened_as_one(tmp_path: Path):
    torch.save(module(), tmp_path / "net.pt")

    with pytest.raises(DataError, match="cannot be read as a safetensors file"):
        load(tmp_path / "net.pt")
    with pytest.raises(DataError, match="cannot be read as a safetensors file"):
        load(tmp_path / "absent")
