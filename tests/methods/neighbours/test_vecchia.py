"""Vecchia's approximation: its likelihood, its gradient, what it learns, and when it is exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gpexplorer import Spec, kernels
from gpexplorer.errors import KernelError
from gpexplorer.kernels.correlation_features import CorrelationFeatures
from gpexplorer.kernels.row_scaled import with_row_noise
from gpexplorer.methods.base import registry
from gpexplorer.methods.neighbours.merged_conditionals import Batch
from gpexplorer.methods.neighbours.recorded_descent import no_answers
from gpexplorer.methods.neighbours.vecchia import Conditionals, VecchiaState
from gpexplorer.objectives import evidence
from gpexplorer.posteriors import exact_gp_posterior
from gpexplorer.problem import Dataset, Problem, RowNoise

KERNELS = ["matern12", "se-ard", "matern32+periodic", "matern52-ard*periodic", "rq"]


def problem(key: str = "matern32-ard", n: int = 60, d: int = 2, **changes: float) -> Problem:
    """Rows of a smooth function, away from the origin by `shift`, in other units by `scale`, with this noise sd."""
    draw, shift, scale = torch.Generator().manual_seed(n + d), changes.get("shift", 0.0), changes.get("scale", 1.0)
    X = torch.rand(n, d, generator=draw, dtype=torch.float64)
    y = torch.sin(5.0 * X.sum(1)) + 0.3 * torch.randn(n, generator=draw, dtype=torch.float64)
    train, kernel = Dataset(scale * X + shift, y), kernels.make(key, d)
    theta = kernel.start(train)
    theta[-1] = math.log(changes.get("noise", 0.3))
    return Problem(train, kernel, theta)


def conditionals(
    given: Problem, k: int, most: int = 10**6, seed: int = 0, lengths: Tensor | None = None
) -> Conditionals:
    return Conditionals(given, features(given, lengths), k, most, seed)


def merged(given: Problem, k: int, most: int = 10**6) -> Conditionals:
    return Conditionals(given, features(given), k, most, 0, merge=True)


def features(given: Problem, lengths: Tensor | None = None) -> CorrelationFeatures:
    """Distances in these lengths, by default in the units of the inputs."""
    d = given.kernel.d if not hasattr(given.kernel, "base") else given.kernel.base.d  # type: ignore[attr-defined]
    lengths = torch.ones(d, dtype=torch.float64) if lengths is None else lengths
    return CorrelationFeatures(given.kernel, given.theta, given.train.X, lengths)


def rows_of_each(found: Conditionals) -> dict[int, list[int]]:
    """By the place of each row in the order, the earlier rows that its merged conditional is given."""
    given: dict[int, list[int]] = {}
    for batch in found.batches:
        for rows, padding, places in zip(batch.rows.tolist(), padding_of(batch), batch.places.tolist(), strict=True):
            assert rows[padding:] == sorted(set(rows[padding:]))
            chosen = [place for place in places if place >= 0]
            assert len(chosen) == len({rows[place] for place in chosen} - given.keys())
            given |= {rows[place]: rows[padding:place] for place in chosen}
    return given


def padding_of(batch: Batch) -> list[int]:
    return [0] * len(batch.rows) if batch.padding is None else batch.padding.sum(1).tolist()


def dense(given: Problem, found: Conditionals, theta: Tensor) -> Tensor:
    """The same likelihood from the matrix of all rows: differences of the likelihoods of groups."""
    rows = found.rows
    K = given.kernel(theta, rows.X, rows.X) + torch.exp(2.0 * theta[-1]) * torch.eye(found.n, dtype=torch.float64)

    def nlml(group: list[int]) -> Tensor:
        S, y = K[group][:, group], rows.y[group]
        return 0.5 * (y @ torch.linalg.solve(S, y) + torch.logdet(S))

    total = nlml(list(range(found.head)))
    singles = zip(found.positions.tolist(), found.neighbours.tolist(), strict=True)
    for i, N in rows_of_each(found).items() if found.merge else singles:
        total = total + found.weight * (nlml([*N, i]) - nlml(N))
    return total


def assert_dense(given: Problem, found: Conditionals) -> None:
    """Likelihood and gradient are those of dense algebra."""
    value, gradient = found.likelihood(given.theta)

    theta = given.theta.clone().requires_grad_(True)
    expected = dense(given, found, theta)
    (slope,) = torch.autograd.grad(expected, theta)
    assert value == pytest.approx(float(expected.detach()), rel=1e-8)
    torch.testing.assert_close(gradient, slope, rtol=1e-6, atol=1e-6 * float(slope.abs().max()))


@pytest.mark.parametrize("key", KERNELS)
@pytest.mark.parametrize("changes", [{}, {"shift": 1e4}, {"scale": 1e4, "noise": 1e-2}], ids=str)
def test_likelihood_and_gradient_are_those_of_dense_algebra(key: str, changes: dict[str, float]):
    given = problem(key, **changes)
    found = conditionals(given, 6)

    assert_dense(given, found)


@pytest.mark.parametrize("most", [10**6, 40])
@pytest.mark.parametrize("key", KERNELS)
@pytest.mark.parametrize("changes", [{}, {"shift": 1e4}, {"scale": 1e4, "noise": 1e-2}], ids=str)
def test_merged_conditionals_have_the_likelihood_and_gradient_of_dense_algebra(
    key: str, changes: dict[str, float], most: int
):
    given = problem(key, n=80, **changes)
    found = merged(given, 6, most)

    assert_dense(given, found)
    assert len(found.batches) > 1
    assert any(batch.padding is not None for batch in found.batches)


@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize(
    ("n", "k", "most"), [(150, 5, 10**6), (150, 5, 60), (150, 1, 10**6), (20, 18, 10**6), (3, 2, 9)]
)
def test_every_row_is_in_one_block_with_its_neighbours(n: int, k: int, most: int, twins: bool):
    given = problem(n=n)
    if twins:
        given.train.X[1::2] = given.train.X[::2][: n // 2]

    found = merged(given, k, most)

    earlier = rows_of_each(found)
    assert sorted(earlier) == found.positions.tolist()
    for i, N in zip(found.positions.tolist(), found.neighbours.tolist(), strict=True):
        assert set(N) <= set(earlier[i])
    sizes = [batch.rows.shape[1] - padding for batch in found.batches for padding in padding_of(batch)]
    assert sum(size**2 for size in sizes) <= len(earlier) * (k + 1) ** 2


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_merged_conditionals_are_closer_to_the_exact_density(noise: float):
    given = problem("matern32", n=300, noise=noise)
    given = Problem(Dataset(given.train.X, torch.zeros_like(given.train.y)), given.kernel, given.theta)
    exact, _ = evidence(given.kernel, given.theta, given.train)  # with targets of 0, half of a log determinant

    divergences = [  # from the exact density, whose conditionals these are
        found.likelihood(given.theta)[0] - exact
        for k in (5, 10)
        for found in (merged(given, k), conditionals(given, k))
    ]

    assert 0.0 < divergences[0] < 0.85 * divergences[1]
    assert 0.0 < divergences[2] < 0.7 * divergences[3]


@pytest.mark.parametrize("noise", [0.3, 1e-5])
@pytest.mark.parametrize("shift", [0.0, -300.0])
def test_with_all_other_rows_as_neighbours_it_is_the_exact_gp(shift: float, noise: float):
    given = problem("matern52-ard", n=40, shift=shift, noise=noise)
    exact, slope = evidence(given.kernel, given.theta, given.train)

    for found in (conditionals(given, 39), merged(given, 39)):
        value, gradient = found.likelihood(given.theta)

        assert value == pytest.approx(exact, rel=1e-8)
        torch.testing.assert_close(gradient, slope, rtol=1e-6, atol=1e-6 * float(slope.abs().max()))


@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_with_hardly_any_noise_one_neighbour_of_a_markov_process_in_order_is_exact(spread: float):
    given = problem("matern12", d=1, scale=spread, noise=1e-5)  # Matern 1/2 has the Markov property
    exact, slope = evidence(given.kernel, given.theta, given.train)

    found = Conditionals(given, features(given), 1, 10**6, 0, ordering="sorted")
    value, gradient = found.likelihood(given.theta)

    assert value == pytest.approx(exact, rel=1e-5)
    torch.testing.assert_close(gradient[:2], slope[:2], rtol=1e-4, atol=1e-4 * float(slope.abs().max()))
    assert conditionals(given, 1).likelihood(given.theta)[0] != pytest.approx(exact, rel=0.01)  # maximin


def test_a_method_takes_the_rows_in_the_order_that_is_asked_for():
    run = run_of(ordering="sorted")
    near = run.method.near_rows(run.problem, run.trace[-1].step.state, 50)

    assert (run.problem.train.X[near.order, 0].diff() >= 0.0).all()


def test_more_neighbours_come_closer_to_the_exact_likelihood():
    given = problem("matern32", n=200, d=2)
    exact, _ = evidence(given.kernel, given.theta, given.train)

    gaps = [abs(conditionals(given, k).likelihood(given.theta)[0] - exact) for k in (1, 5, 20, 60)]

    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.05 * gaps[0]


def test_a_sample_of_the_conditionals_estimates_the_sum_without_bias():
    given = problem(n=120)
    whole = conditionals(given, 5)
    total, slope = whole.likelihood(given.theta)
    head, _ = evidence(given.kernel, given.theta, whole.rows.rows(range(6)))
    monte_carlo = []
    for seed in range(400):
        part = conditionals(given, 5, most=30, seed=seed)
        part.rows, kept = (
            whole.rows,
            whole.positions[torch.randperm(114, generator=torch.Generator().manual_seed(seed))[:30]],
        )
        part.positions, part.neighbours = kept, whole.neighbours[kept - 6]
        monte_carlo.append(part.likelihood(given.theta))

    values = np.array([value for value, _ in monte_carlo])
    gradients = torch.stack([gradient for _, gradient in monte_carlo])
    assert part.weight == pytest.approx(114 / 30)
    assert abs(values.mean() - total) < 4.0 * values.std() / 20.0
    assert ((gradients.mean(0) - slope).abs() < 4.0 * gradients.std(0) / 20.0).all()
    assert head != total


def test_known_noise_per_row_is_in_the_likelihood():
    given = problem("matern32", n=50, d=1)
    ratio = torch.linspace(0.2, 4.0, 50, dtype=torch.float64)
    train = Dataset(given.train.X, given.train.y, noise=RowNoise(ratio))
    scaled = with_row_noise(Problem(train, given.kernel, given.theta))

    value, gradient = conditionals(scaled, 49).likelihood(scaled.theta)

    exact, slope = evidence(scaled.kernel, scaled.theta, scaled.train)
    assert value == pytest.approx(exact, rel=1e-9)
    torch.testing.assert_close(gradient, slope, rtol=1e-7, atol=1e-7)
    for found in (conditionals(scaled, 6), Conditionals(scaled, features(scaled), 6, 10**6, 0, merge=True)):
        theta = scaled.theta.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(dense(scaled, found, theta), theta)
        torch.testing.assert_close(found.likelihood(scaled.theta)[1], slope, rtol=1e-7, atol=1e-7)


def test_single_precision_rows_are_computed_in_double_precision():
    given = problem("se-ard", noise=1e-3)
    narrow = Problem(given.train.to("cpu", torch.float32), given.kernel, given.theta.float())
    wide = Problem(narrow.train.to("cpu", torch.float64), given.kernel, narrow.theta.double())

    values = [conditionals(each, 10).likelihood(each.theta) for each in (narrow, wide)]

    assert values[0][0] == values[1][0]
    assert torch.equal(values[0][1], values[1][1])


@pytest.mark.parametrize(("key", "d"), [("linear", 2), ("se+linear", 2)])
def test_a_kernel_that_is_not_stationary_is_refused(key: str, d: int):
    given = problem(key, d=d)

    with pytest.raises(KernelError, match=f"needs a stationary kernel.*{key.replace('+', '.')}"):
        next(registry["vecchia"]().steps(given))


def run_of(kernel: str = "matern52-ard", **settings: Any) -> Any:
    data = {"name": "hypercube", "n": 400, "d": 2, "noise": 0.3, "seed": 1}
    run = Spec("vecchia", settings=settings, data=data, kernel=kernel).open()
    run.finish()
    return run


@pytest.mark.parametrize("merge", [False, True])
def test_it_learns_what_exact_maximum_likelihood_learns(merge: bool):
    run, data = run_of(merge=merge), {"name": "hypercube", "n": 400, "d": 2, "noise": 0.3, "seed": 1}
    exact = Spec("ml", data=data, kernel="matern52-ard").open()
    exact.finish()

    assert run.outcome.reason == "converged"
    nlml = evidence(run.problem.kernel, run.trace[-1].step.state.theta, run.problem.train)[0]
    assert nlml < exact.trace[-1].step.info.objective + 2.0  # of 360 rows
    assert run.scores()["nlpd"] == pytest.approx(exact.scores()["nlpd"], abs=0.02)


def test_neighbours_are_found_again_where_learning_has_changed_the_proportions_of_lengths():
    random = np.random.default_rng(0)
    X = random.random((300, 2))
    y = np.sin(40.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * random.normal(size=300)
    kernel = {"name": "matern52-ard", "theta": [0.0, 0.0, 0.0, -1.0]}

    run = Spec("vecchia", kernel=kernel).open(data=(X, y))
    run.finish()

    infos = [record.step.info for record in run.trace]
    begins = [i for i, info in enumerate(infos) if info.phase == "neighbours"]
    assert len(begins) >= 2
    assert infos[begins[1] - 1].stretch > 1.25
    assert infos[begins[1]].stretch == pytest.approx(1.0, abs=0.05)
    assert infos[-1].objective < infos[begins[1]].objective


def test_a_round_leaves_a_plateau_that_an_earlier_round_has_reached():
    X = torch.rand(120, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.sin(9.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * torch.randn(120, generator=torch.Generator().manual_seed(1))
    given = Problem(Dataset(X, y), kernels.make("se-ard", 3), torch.tensor([0.0, -1.0, 0.0, 0.0, -2.0]).double())
    method = registry["vecchia"](evaluations=100, rounds=2)
    far = given.theta + torch.tensor([0.0, 0.0, 7.0, 7.0, 0.0])  # as if only the first input mattered
    beginning = VecchiaState(1, far, math.inf, 1, far, no_answers(far))

    *_, last = method.steps(given, beginning)

    found = method._conditionals(given, CorrelationFeatures(given.kernel, far, given.train.X), 10**6)
    at, (_, slope) = last.state.theta, found.likelihood(far)
    assert float(slope[2].abs()) < 1e-4 * abs(last.state.objective)  # no derivative leads back
    for shift in (-1.0, 1.0):
        moved = at + torch.tensor([0.0, 0.0, shift, 0.0, 0.0])
        assert found.likelihood(moved)[0] > last.state.objective + 0.05


def test_a_plateau_from_which_no_descent_returns_is_not_converged():
    X = torch.randn(120, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.sin(3.0 * X[:, 0]) + 0.1 * torch.randn(120, generator=torch.Generator().manual_seed(1))
    given = Problem(Dataset(X, y), kernels.make("se-ard", 2), torch.tensor([0.0, -1.0, 0.0, -2.0]).double())
    method = registry["vecchia"]()
    theta = torch.tensor([-5.5, -1.0, 0.0, 0.0]).double()  # hardly any signal
    gradients = {"leads back": -1.1e-4, "leads on": 1.1e-4}
    ends = {}
    for name, derivative in gradients.items():
        answers = torch.tensor([[60.0, derivative, 0.0, 0.0, 0.0]]).double()
        state = VecchiaState(1, theta, 60.0, 0, theta, answers)
        ends[name] = method._outcome(given, state, 1.0)

    assert (ends["leads on"].reason, ends["leads back"].reason) == ("converged", "budget")  # 6e-3 is allowed
    assert "at most 0.00011 after 1 evaluations in 1 round" in ends["leads back"].message


def test_without_learning_theta_stays():
    run = run_of(learn=False)

    assert torch.equal(run.trace[-1].step.state.theta, run.problem.theta)
    assert run.done == 1


def test_more_nearest_rows_come_closer_to_the_predictions_of_the_exact_gp():
    run = run_of()
    state = run.trace[-1].step.state
    exact = exact_gp_posterior(run.problem.kernel, state.theta, run.problem.train)
    X = torch.rand(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    gaps = []
    for k in (10, 40, 160):
        ours = registry["vecchia"](num_nearest=k).posterior(run.problem, state)
        gaps.append(float(((ours.mean(X) - exact.mean(X)) / exact.sd(X)).abs().mean()))
        assert (ours.var(X) > exact.var(X) - 1e-9).all()  # fewer rows know less

    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.1


def test_neighbours_are_found_again_where_learning_has_changed_a_period():
    t = np.arange(400.0)[:, None]
    y = np.sin(2.0 * np.pi * t[:, 0] / 21.3) + 0.1 * np.random.default_rng(0).normal(size=400)
    values = {"lengthscale": 1.0, "period": 20.5}  # eight days out of phase after all rows
    kernel = {"name": "periodic", "values": values}
    run = Spec("vecchia", kernel=kernel, split="all").open(data=(t, y))

    run.finish()

    assert run.trace[-1].step.state.round > 0
    assert run.hyperparameters_at(-1)["period"].value == pytest.approx(21.3, rel=5e-3)
