"""The rows that a minibatch method learns from and sets aside, and its features with their gradient."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpexplorer.errors import SettingError
from gpexplorer.features.deep import Network, Scaled
from gpexplorer.features.pretrained import Pretrained
from gpexplorer.methods.minibatches.model import Model, select_rows, send_rows
from gpexplorer.problem import RowGroups
from oracles_minibatches import method, model, problem


def small(**settings: Any) -> Any:
    return method("scgd", **{"batch_size": 8, "rate": 0.03, "minibatches": 2, "epochs": 4, "refit": "none", **settings})


def test_rows_set_aside_and_learned_from_are_all_rows_once():
    at = problem(n=50)
    ours = small(folds=1)
    for fraction, held in ((0.3, 15), (0.31, 16), (0.01, 1), (0.0, 0)):
        here = Model(ours, at, fraction)
        assert len(here.validation_rows) == held
        assert here.n == 50 - held
        if held:
            assert sorted([*here.validation_rows.tolist(), *here.learning_rows.tolist()]) == list(range(50))
            X, y = here.validation()
            assert torch.equal(X, at.train.X[here.validation_rows])
            assert torch.equal(y, at.train.y[here.validation_rows])
            X, y = here.rows(torch.tensor([0, 3]))
            assert torch.equal(X, at.train.X[here.learning_rows[[0, 3]]])
            assert torch.equal(y, at.train.y[here.learning_rows[[0, 3]]])
            assert here.num_parts == 50 // held


def test_at_least_twenty_rows_are_set_aside_where_parts_follow_in_turn_but_at_most_one_part():
    assert len(Model(small(folds=5), problem(n=300), 0.01).validation_rows) == 20
    assert len(Model(small(folds=5), problem(n=50), 0.01).validation_rows) == 10
    assert len(Model(small(folds=2), problem(n=50), 0.01).validation_rows) == 20
    assert len(Model(small(folds=1), problem(n=300), 0.01).validation_rows) == 3
    assert len(Model(small(folds=5), problem(n=300), 0.2).validation_rows) == 60
    assert len(Model(small(folds=1), problem(n=2), 0.9).validation_rows) == 1


def test_the_parts_follow_each_other_and_share_no_row():
    at, ours = problem(n=50), small(folds=3)
    parts = [Model(ours, at, 0.3, fold).validation_rows.tolist() for fold in range(3)]
    assert len({row for part in parts for row in part}) == 45 + 3 * (len(parts[0]) - 15)
    for fold in range(3):
        here = Model(ours, at, 0.3, fold)
        assert sorted([*here.validation_rows.tolist(), *here.learning_rows.tolist()]) == list(range(50))
        assert here.n == len(here.learning_rows)


def test_groups_are_set_aside_whole():
    at = problem(n=60)
    number = torch.arange(60) // 6
    grouped = replace(at, train=replace(at.train, groups=RowGroups(number, are_folds=False)))
    ours, seen = small(folds=4), []
    parts = Model(ours, grouped, 0.2).num_parts
    assert parts > 1
    for fold in range(parts):
        here = Model(ours, grouped, 0.2, fold)
        assert len(here.validation_rows)
        assert not set(number[here.validation_rows].tolist()) & set(number[here.learning_rows].tolist())
        assert len(here.validation_rows) + here.n == 60
        seen += here.validation_rows.tolist()
    assert sorted(seen) == list(range(60))


def test_features_of_the_linear_kernel_are_the_outputs_times_the_magnitude():
    at = problem()
    here = model(at=at, layers=0)
    theta = here.start()
    theta[-2] = 0.7
    assert isinstance(here.map, Scaled)
    tape = here.features(here.parts(theta), at.train.X)
    torch.testing.assert_close(tape.Phi, math.exp(0.7) * tape.H[-1])
    assert float(tape.scale) == pytest.approx(math.exp(0.7))
    assert tape.waves is None
    assert here.size == len(theta) == sum(math.prod(shape) for shape in here.shapes)
    assert here.D == tape.Phi.shape[1]


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
@pytest.mark.parametrize("layers", [0, 2])
def test_the_gradient_through_the_features_is_that_of_autograd(kernel: str, layers: int):
    at = problem(shift=0.5)
    here = model(at=at, kernel=kernel, layers=layers)
    theta = here.start() + 0.1 * torch.randn(here.size, generator=torch.Generator().manual_seed(1)).double()
    X = at.train.X[:7]
    G = torch.randn(7, here.D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    (here.features(here.parts(leaf), X).Phi * G).sum().backward()
    into = torch.full_like(theta, 5.0)
    here.pullback(here.parts(theta), here.features(here.parts(theta), X), G.clone(), here.parts(into))
    torch.testing.assert_close(into[:-1], leaf.grad[:-1])
    assert float(into[-1]) == 5.0  # the noise is not touched


def test_the_linear_kernel_on_inputs_has_a_constant_feature_and_the_gaussian_one_does_not():
    assert model(layers=0).map.width == 4
    assert model(layers=0, kernel="gaussian").map.width == 3


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_the_prior_variance_is_matched_at_any_size_of_the_features(size: float):
    at = problem()
    here = model(at=at, layers=0)
    theta = here.start()
    theta[-2] = math.log(size)
    matched = here.matched(theta)
    Phi = here.features(here.parts(matched), at.train.X).Phi
    wanted = float(at.kernel.diag(at.theta, at.train.X).mean())
    assert float(Phi.square().sum(1).mean()) == pytest.approx(wanted)


def test_features_that_are_all_zero_keep_their_magnitude():
    at = problem()
    here = model(at=at, layers=1, activation="relu")
    theta = here.start()
    theta[: here.map.size] = 0.0
    assert torch.equal(here.matched(theta), theta)


def test_weights_of_another_number_of_inputs_are_refused():
    network = Network([4, 5], "relu")
    ours = small()
    ours.features = Pretrained([4, 5], "relu", network.start(0))
    with pytest.raises(SettingError, match="network with 4 inputs, but the data have 3"):
        Model(ours, problem())
    ours.features = Pretrained([3, 5], "relu", Network([3, 5], "relu").start(0))
    assert Model(ours, problem()).map is ours.features


def test_texts_and_foreign_features_are_refused_by_name():
    at = problem()
    ours = small()
    ours.features = "a network"
    with pytest.raises(SettingError, match=r"features are a str; give a torch module"):
        Model(ours, at)
    with pytest.raises(SettingError, match="needs columns of numbers"):
        Model(small(), replace(at, train=replace(at.train, X=["a"] * 40)))


def test_rows_are_selected_by_a_slice_or_by_numbers_and_converted():
    X = torch.arange(12.0).view(6, 2)
    assert torch.equal(select_rows(X, slice(1, 3)), X[1:3])
    assert torch.equal(select_rows(X, torch.tensor([4, 0])), X[[4, 0]])
    sent = send_rows(X, torch.tensor([4, 0]), torch.device("cpu"), torch.float64)
    assert sent.dtype == torch.float64
    assert torch.equal(sent, X[[4, 0]].double())
