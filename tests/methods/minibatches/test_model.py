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
    algorithm = small(folds=1)
    for fraction, num_validation in ((0.3, 15), (0.31, 16), (0.01, 1), (0.0, 0)):
        feature_map = Model(algorithm, at, fraction)
        assert len(feature_map.validation_rows) == num_validation
        assert feature_map.n == 50 - num_validation
        if num_validation:
            assert sorted([*feature_map.validation_rows.tolist(), *feature_map.learning_rows.tolist()]) == list(
                range(50)
            )
            X, y = feature_map.validation()
            assert torch.equal(X, at.train.X[feature_map.validation_rows])
            assert torch.equal(y, at.train.y[feature_map.validation_rows])
            X, y = feature_map.rows(torch.tensor([0, 3]))
            assert torch.equal(X, at.train.X[feature_map.learning_rows[[0, 3]]])
            assert torch.equal(y, at.train.y[feature_map.learning_rows[[0, 3]]])
            assert feature_map.num_parts == 50 // num_validation


def test_at_least_twenty_rows_are_set_aside_where_parts_follow_in_turn_but_at_most_one_part():
    assert len(Model(small(folds=5), problem(n=300), 0.01).validation_rows) == 20
    assert len(Model(small(folds=5), problem(n=50), 0.01).validation_rows) == 10
    assert len(Model(small(folds=2), problem(n=50), 0.01).validation_rows) == 20
    assert len(Model(small(folds=1), problem(n=300), 0.01).validation_rows) == 3
    assert len(Model(small(folds=5), problem(n=300), 0.2).validation_rows) == 60
    assert len(Model(small(folds=1), problem(n=2), 0.9).validation_rows) == 1


def test_the_parts_follow_each_other_and_share_no_row():
    at, algorithm = problem(n=50), small(folds=3)
    parts = [Model(algorithm, at, 0.3, fold).validation_rows.tolist() for fold in range(3)]
    assert len({row for part in parts for row in part}) == 45 + 3 * (len(parts[0]) - 15)
    for fold in range(3):
        feature_map = Model(algorithm, at, 0.3, fold)
        assert sorted([*feature_map.validation_rows.tolist(), *feature_map.learning_rows.tolist()]) == list(range(50))
        assert feature_map.n == len(feature_map.learning_rows)


def test_groups_are_set_aside_whole():
    at = problem(n=60)
    number = torch.arange(60) // 6
    grouped = replace(at, train=replace(at.train, groups=RowGroups(number, are_folds=False)))
    algorithm, seen = small(folds=4), []
    parts = Model(algorithm, grouped, 0.2).num_parts
    assert parts > 1
    for fold in range(parts):
        feature_map = Model(algorithm, grouped, 0.2, fold)
        assert len(feature_map.validation_rows)
        assert not set(number[feature_map.validation_rows].tolist()) & set(number[feature_map.learning_rows].tolist())
        assert len(feature_map.validation_rows) + feature_map.n == 60
        seen += feature_map.validation_rows.tolist()
    assert sorted(seen) == list(range(60))


def test_features_of_the_linear_kernel_are_the_outputs_times_the_magnitude():
    at = problem()
    feature_map = model(at=at, layers=0)
    theta = feature_map.start()
    theta[-2] = 0.7
    assert isinstance(feature_map.map, Scaled)
    tape = feature_map.features(feature_map.parts(theta), at.train.X)
    torch.testing.assert_close(tape.Phi, math.exp(0.7) * tape.H[-1])
    assert float(tape.scale) == pytest.approx(math.exp(0.7))
    assert tape.waves is None
    assert feature_map.size == len(theta) == sum(math.prod(shape) for shape in feature_map.shapes)
    assert feature_map.D == tape.Phi.shape[1]


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
@pytest.mark.parametrize("layers", [0, 2])
def test_the_gradient_through_the_features_is_that_of_autograd(kernel: str, layers: int):
    at = problem(shift=0.5)
    feature_map = model(at=at, kernel=kernel, layers=layers)
    theta = (
        feature_map.start() + 0.1 * torch.randn(feature_map.size, generator=torch.Generator().manual_seed(1)).double()
    )
    X = at.train.X[:7]
    G = torch.randn(7, feature_map.D, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    (feature_map.features(feature_map.parts(leaf), X).Phi * G).sum().backward()
    into = torch.full_like(theta, 5.0)
    feature_map.pullback(
        feature_map.parts(theta), feature_map.features(feature_map.parts(theta), X), G.clone(), feature_map.parts(into)
    )
    torch.testing.assert_close(into[:-1], leaf.grad[:-1])
    assert float(into[-1]) == 5.0  # the noise is not touched


def test_the_linear_kernel_on_inputs_has_a_constant_feature_and_the_gaussian_one_does_not():
    assert model(layers=0).map.width == 4
    assert model(layers=0, kernel="gaussian").map.width == 3


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_the_prior_variance_is_matched_at_any_size_of_the_features(size: float):
    at = problem()
    feature_map = model(at=at, layers=0)
    theta = feature_map.start()
    theta[-2] = math.log(size)
    matched = feature_map.matched(theta)
    Phi = feature_map.features(feature_map.parts(matched), at.train.X).Phi
    wanted = float(at.kernel.diag(at.theta, at.train.X).mean())
    assert float(Phi.square().sum(1).mean()) == pytest.approx(wanted)


def test_features_that_are_all_zero_keep_their_magnitude():
    at = problem()
    feature_map = model(at=at, layers=1, activation="relu")
    theta = feature_map.start()
    theta[: feature_map.map.size] = 0.0
    assert torch.equal(feature_map.matched(theta), theta)


def test_weights_of_another_number_of_inputs_are_refused():
    network = Network([4, 5], "relu")
    algorithm = small()
    algorithm.features = Pretrained([4, 5], "relu", network.start(0))
    with pytest.raises(SettingError, match="network with 4 inputs, but the data have 3"):
        Model(algorithm, problem())
    algorithm.features = Pretrained([3, 5], "relu", Network([3, 5], "relu").start(0))
    assert Model(algorithm, problem()).map is algorithm.features


def test_texts_and_foreign_features_are_refused_by_name():
    at = problem()
    algorithm = small()
    algorithm.features = "a network"
    with pytest.raises(SettingError, match=r"features are a str; give a torch module"):
        Model(algorithm, at)
    with pytest.raises(SettingError, match="needs columns of numbers"):
        Model(small(), replace(at, train=replace(at.train, X=["a"] * 40)))


def test_rows_are_selected_by_a_slice_or_by_numbers_and_converted():
    X = torch.arange(12.0).view(6, 2)
    assert torch.equal(select_rows(X, slice(1, 3)), X[1:3])
    assert torch.equal(select_rows(X, torch.tensor([4, 0])), X[[4, 0]])
    sent = send_rows(X, torch.tensor([4, 0]), torch.device("cpu"), torch.float64)
    assert sent.dtype == torch.float64
    assert torch.equal(sent, X[[4, 0]].double())
