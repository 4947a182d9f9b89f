"""What a run of CholQR reports and carries from step to step: epochs, positions, counts, and what resuming needs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import SettingError
from gpexplorer.methods.inducing.settings import SETTLED
from gpexplorer.methods.inducing.swapping.cholqr import CholQR
from gpexplorer.methods.inducing.swapping.factor import Factor
from gpexplorer.methods.inducing.swapping.policies import ORDERS, Turn, removal_permutation
from gpexplorer.objectives import nystrom
from gpexplorer.problem import Dataset, Problem, Step
from swap_problems import least_loss, problem
from whole_run import finished

EVALUATIONS = 4
SWAPS = 6
SMALL = {"num_inducing": 9, "num_pivots": 10, "swaps_per_epoch": SWAPS, "evaluations": EVALUATIONS, "pivot_refresh": 4}


def waves(n: int = 120, shift: float = 3.0) -> Problem:
    draw = torch.Generator().manual_seed(2)
    X = shift + 2.0 * torch.rand(n, 2, generator=draw, dtype=torch.float64)
    y = torch.sin(4.0 * X[:, 0]) + X[:, 1] + 0.1 * torch.randn(n, generator=draw, dtype=torch.float64)
    kernel, train = kernels.make("se-ard", 2), Dataset(X, y - y.mean())
    return Problem(train, kernel, kernel.start(train))


@pytest.fixture(scope="module")
def task() -> Problem:
    return waves()


@pytest.fixture(scope="module")
def method() -> CholQR:
    return CholQR(**SMALL, max_epochs=3, tolerance=0.0)


@pytest.fixture(scope="module")
def steps(task: Problem, method: CholQR) -> list[Step]:
    return finished(method, task)[0]


def test_epochs_are_so_many_swaps_and_then_so_many_evaluations(steps: list[Step]) -> None:
    phases = [step.info.phase for step in steps]
    assert phases == ["start", *(["swap"] * SWAPS + ["learn"] * EVALUATIONS) * 3]
    assert [step.state.step for step in steps] == list(range(len(steps)))
    assert [step.state.epoch for step in steps] == [0] + [
        epoch for epoch in range(3) for _ in range(SWAPS + EVALUATIONS)
    ]
    assert [step.state.position for step in steps[1:]] == [*range(1, SWAPS + 1), *range(1, EVALUATIONS + 1)] * 3


def test_each_epoch_counts_its_accepted_swaps_anew_and_knows_the_objective_at_its_beginning(steps: list[Step]) -> None:
    swaps = [step for step in steps if step.info.phase == "swap"]
    for epoch in range(3):
        accepted = 0
        for k, step in enumerate(swaps[epoch * SWAPS : (epoch + 1) * SWAPS], 1):
            accepted += step.info.accepted
            assert step.state.accepted == accepted
            assert step.info.acceptance == accepted / k
    assert sum(step.info.accepted for step in swaps) > 3
    learned = [step for step in steps if step.info.phase == "learn"]
    for epoch in (1, 2):
        end_of_the_last = learned[epoch * EVALUATIONS - 1].state.objective
        assert swaps[epoch * SWAPS].state.epoch_begin == end_of_the_last
        assert learned[epoch * EVALUATIONS].state.epoch_begin == end_of_the_last


def test_the_first_epoch_begins_with_the_objective_of_the_initial_points(task: Problem, steps: list[Step]) -> None:
    rows = steps[0].state.inducing
    begin = nystrom(task.kernel, task.theta, task.train, task.train.X[rows]).terms.total("vfe")
    assert all(step.state.epoch_begin == pytest.approx(begin, rel=1e-10) for step in steps[1 : 1 + SWAPS])


def test_a_swap_reports_terms_that_add_up_to_the_objective_and_decreases_it_by_its_exact_reduction(
    task: Problem, steps: list[Step]
) -> None:
    for before, after in itertools.pairwise(steps[1 : SWAPS + 1]):
        info = after.info
        assert info.objective == pytest.approx(info.fit + info.logdet + info.trace)
        terms = nystrom(task.kernel, task.theta, task.train, task.train.X[after.state.inducing]).terms
        assert info.fit == pytest.approx(0.5 * terms.fit)
        if info.accepted:
            assert before.info.objective - info.objective == pytest.approx(info.exact, abs=1e-8)
            assert info.removed in before.state.inducing
            assert info.proposed in after.state.inducing
            assert info.removed not in after.state.inducing
        else:
            assert torch.equal(before.state.inducing, after.state.inducing)


def test_the_points_offered_are_those_of_least_loss_until_the_pivots_are_drawn_again(
    task: Problem, steps: list[Step]
) -> None:
    for k, count in ((0, 4), (4, 4)):  # with pivot_refresh 4, the slots of four tries are chosen together
        rows = steps[k].state.inducing
        factor = Factor(task.kernel, task.theta, task.train, rows, "vfe")
        wanted = least_loss(factor, count)
        offered = steps[k + 1 : k + 1 + min(count, SWAPS - k)]
        assert [step.info.removed for step in offered] == [int(rows[slot]) for slot in wanted[: len(offered)]]
        assert offered[0].state.slots.tolist() == wanted[1:]
        assert offered[0].state.slots.dtype == torch.int64


def test_pivots_are_drawn_again_after_as_many_swaps_as_the_setting_says(steps: list[Step]) -> None:
    swaps = [step.state for step in steps if step.info.phase == "swap"]
    drawn_again = [
        k
        for k in range(1, SWAPS)
        if sum(row not in swaps[k - 1].pivots.tolist() for row in swaps[k].pivots.tolist()) > 1
    ]
    assert drawn_again == [4]  # an accepted swap alone replaces one pivot at most
    assert all(len(state.pivots) == 10 for state in swaps)


def test_limits_of_the_exact_model_are_reported_once_per_epoch(task: Problem, steps: list[Step]) -> None:
    swaps = [step for step in steps if step.info.phase == "swap"]
    reported = [k for k, step in enumerate(swaps) if not math.isnan(step.info.exact_least)]
    assert reported == [0, SWAPS, 2 * SWAPS]
    assert [k for k, step in enumerate(swaps) if not math.isnan(step.info.gap)] == reported
    first = swaps[0].info  # at the initial points
    Z = task.train.X[steps[0].state.inducing]
    tight = nystrom(task.kernel, task.theta, task.train, Z, "tight-vfe").terms.total("tight-vfe")
    assert first.exact_least + first.gap == pytest.approx(tight, rel=1e-9)
    K = task.kernel(task.theta, task.train.X, task.train.X)
    A = K + torch.exp(2.0 * task.theta[-1]) * torch.eye(len(K), dtype=K.dtype)
    exact = 0.5 * float(task.train.y @ torch.linalg.solve(A, task.train.y) + torch.logdet(A))
    assert first.exact_least <= exact <= tight


def test_learning_starts_where_the_last_epoch_ended_and_keeps_the_best(task: Problem, steps: list[Step]) -> None:
    learned = [step for step in steps if step.info.phase == "learn"]
    assert torch.equal(learned[0].state.theta_begin, task.theta)
    assert torch.equal(learned[EVALUATIONS].state.theta_begin, learned[EVALUATIONS - 1].state.theta)
    for step in learned:
        Z = task.train.X[step.state.inducing]
        terms = nystrom(task.kernel, step.state.theta, task.train, Z).terms
        assert step.state.objective == pytest.approx(terms.total("vfe"), rel=1e-9)
        assert len(step.state.slots) == 0


def test_a_run_that_does_not_learn_keeps_theta_and_goes_on_with_swaps(task: Problem) -> None:
    steps, _ = finished(CholQR(**SMALL, max_epochs=2, tolerance=0.0, learn=False), task)
    assert [step.info.phase for step in steps] == ["start", *["swap"] * 2 * SWAPS]
    assert all(torch.equal(step.state.theta, task.theta) for step in steps)
    assert [step.state.epoch for step in steps[1:]] == [0] * SWAPS + [1] * SWAPS


def test_all_epochs_are_done_or_the_decrease_is_below_the_tolerance(task: Problem) -> None:
    _, outcome = finished(CholQR(**SMALL, max_epochs=2, tolerance=0.0), task)
    assert (outcome.reason, outcome.message) == ("budget", "All 2 epochs are done; raise max_epochs to continue.")


def test_a_run_ends_after_the_first_epoch_whose_decrease_is_within_the_tolerance(task: Problem) -> None:
    long, _ = finished(CholQR(**SMALL, max_epochs=6, tolerance=0.0, learn=False), task)
    ends = [long[k * SWAPS].state for k in range(1, len(long) // SWAPS + 1)]
    decreases = [(state.epoch_begin - state.objective) / max(abs(state.objective), 1.0) for state in ends]
    assert abs(ends[0].objective) > 2.0
    for k in range(len(decreases)):
        for tolerance in (min(1.001 * decreases[k], 1.0), min(0.999 * decreases[k], 1.0)):
            steps, outcome = finished(CholQR(**SMALL, max_epochs=6, tolerance=tolerance, learn=False), task)
            last = next((j for j, decrease in enumerate(decreases) if decrease <= tolerance), len(ends) - 1)
            assert len(steps) == 1 + (last + 1) * SWAPS
            assert (outcome.reason == "converged") == (
                decreases[last] <= min(tolerance, SETTLED / abs(ends[last].objective))
            )
            assert ("set polish to move them" in outcome.message) == (decreases[last] <= tolerance)


def test_the_number_of_swaps_in_an_epoch_is_that_of_the_points_unless_it_is_set(task: Problem) -> None:
    few = {name: value for name, value in SMALL.items() if name != "swaps_per_epoch"}
    steps, _ = finished(CholQR(**few, max_epochs=1, learn=False), task)
    assert len(steps) == 1 + 9
    assert CholQR()._limit(100) == 60


def test_points_in_random_order_are_offered_once_per_permutation_and_the_order_goes_on_between_epochs(
    task: Problem,
) -> None:
    method = CholQR(**SMALL, removal="random", max_epochs=3, learn=False, tolerance=0.0, seed=5)
    steps, _ = finished(method, task)
    offered, points = [], steps[0].state.inducing.tolist()
    for step in steps[1:]:
        slot = points.index(step.info.removed)
        offered.append(slot)
        points = step.state.inducing.tolist()
        assert not len(step.state.slots)
    assert sorted(offered[:9]) == list(range(9))
    assert sorted(offered[9:18]) == list(range(9))
    assert offered[:9] != offered[9:18]


@pytest.mark.parametrize(("m", "per_epoch"), [(9, 6), (5, 12), (4, 4)])
def test_permutations_of_all_slots_are_joined_over_epochs(m: int, per_epoch: int) -> None:
    joined = [slot for epoch in range(8) for slot in removal_permutation(m, epoch, per_epoch, 3)[:per_epoch]]
    for k in range(len(joined) // m):
        assert sorted(joined[k * m : (k + 1) * m]) == list(range(m))
    for epoch in range(7):  # the first slot of the next epoch is known ahead
        ahead = removal_permutation(m, epoch, per_epoch, 3)
        assert len(ahead) == per_epoch + 1
        assert ahead[-1] == removal_permutation(m, epoch + 1, per_epoch, 3)[0]


def test_an_order_returns_as_many_slots_as_are_tried_until_the_pivots_are_drawn_again(task: Problem) -> None:
    factor = Factor(task.kernel, task.theta, task.train, torch.arange(9), "vfe")
    turn = Turn(epoch=1, position=2, per_epoch=6, swaps=3, seed=0)
    permutation = removal_permutation(9, 1, 6, 0)
    assert ORDERS["random"].slots(factor, turn, []) == permutation[2:6]
    assert ORDERS["random"].to_carry([3, 4]) == []
    losses = factor.losses()
    assert ORDERS["least loss"].slots(factor, turn, []) == losses.argsort()[:3].tolist()
    assert ORDERS["least loss"].slots(factor, turn, [7, 1]) == [7, 1]
    assert ORDERS["least loss"].to_carry([7, 1]) == [1]
    assert len(ORDERS["least loss"].slots(factor, turn._replace(swaps=100), [])) == 9


@pytest.mark.parametrize("begin", [0, 1, 3, SWAPS, SWAPS + 2, SWAPS + EVALUATIONS, 2 * SWAPS + EVALUATIONS - 1])
def test_a_resumed_run_repeats_every_report(task: Problem, method: CholQR, steps: list[Step], begin: int) -> None:
    rest, _ = finished(method, task, steps[begin].state)
    assert len(rest) == len(steps) - begin - 1
    for ours, theirs in zip(rest, steps[begin + 1 :], strict=True):
        assert torch.equal(ours.state.inducing, theirs.state.inducing)
        assert torch.equal(ours.state.pivots, theirs.state.pivots)
        assert torch.equal(ours.state.slots, theirs.state.slots)
        assert (ours.state.accepted, ours.state.position) == (theirs.state.accepted, theirs.state.position)
        assert ours.info.objective == pytest.approx(theirs.info.objective, rel=1e-8)


def test_with_every_row_a_point_there_is_one_step_with_the_objective_and_a_sentence() -> None:
    few = waves(12)
    steps, outcome = finished(CholQR(num_inducing=12, learn=False), few)
    assert [step.info.phase for step in steps] == ["start", "swap"]
    assert steps[-1].state.step == 1
    K = few.kernel(few.theta, few.train.X, few.train.X)
    A = K + torch.exp(2.0 * few.theta[-1]) * torch.eye(12, dtype=K.dtype)
    exact = 0.5 * float(few.train.y @ torch.linalg.solve(A, few.train.y) + torch.logdet(A))
    assert steps[-1].info.objective == pytest.approx(exact, rel=1e-9)
    assert "No row is left to swap in" in outcome.message
    assert "float64" in outcome.message


def test_a_rebuild_is_due_after_as_many_swaps_as_the_setting_says(task: Problem) -> None:
    steps, _ = finished(CholQR(**SMALL, max_epochs=1, learn=False, rebuild=3), task)
    drifts = [step.info.drift for step in steps if step.info.phase == "swap"]
    assert [k for k, drift in enumerate(drifts, 1) if not math.isnan(drift)] == [3, 6]
    assert all(drift < 1e-10 for drift in drifts if not math.isnan(drift))


def test_a_swap_by_a_person_counts_as_one_of_the_epoch(task: Problem, method: CholQR, steps: list[Step]) -> None:
    swapped, learned = steps[2].state, steps[SWAPS + 2].state
    row = next(row for row in range(120) if row not in swapped.inducing.tolist())
    forced = method.force_swap(task, swapped, row, slot=4)
    assert (forced.state.step, forced.state.position, forced.state.epoch) == (3, 3, 0)
    assert forced.state.accepted == swapped.accepted + 1
    assert torch.equal(forced.state.slots, swapped.slots[1:])
    assert forced.info.removed == int(swapped.inducing[4])
    assert (forced.info.proposed, int(forced.state.inducing[4])) == (row, row)
    assert forced.info.accepted
    points = task.train.X[forced.state.inducing]
    after = nystrom(task.kernel, task.theta, task.train, points).terms.total("vfe")
    assert forced.info.objective == pytest.approx(after)
    assert forced.info.exact == pytest.approx(swapped.objective - after, abs=1e-7)
    assert forced.state.epoch_begin == pytest.approx(max(swapped.objective, after))

    row = next(row for row in range(120) if row not in learned.inducing.tolist())
    forced = method.force_swap(task, learned, row, slot=0)  # after learning, it is the first of the next epoch
    assert (forced.state.phase, forced.state.position, forced.state.epoch, forced.state.accepted) == ("swap", 1, 1, 1)
    assert forced.state.step == learned.step + 1


def test_the_slot_offered_next_is_the_one_that_the_run_offers(task: Problem, method: CholQR, steps: list[Step]) -> None:
    for k in (0, 2, 4, SWAPS + EVALUATIONS):
        swapper, slot = method.prepare(task, steps[k].state)
        assert int(swapper.factor.inducing[slot]) == steps[k + 1].info.removed
        assert swapper.pivots is not None
        following = steps[k + 1].state.pivots.tolist()
        assert sum(row in following for row in swapper.pivots.rows.tolist()) >= 9


def test_the_slot_offered_next_is_known_also_where_the_order_is_random(task: Problem) -> None:
    ours = CholQR(**SMALL, removal="random", max_epochs=4, tolerance=0.0, seed=3)
    steps, _ = finished(ours, task)
    for k in (0, 3, SWAPS - 1, SWAPS + EVALUATIONS, 2 * SWAPS + EVALUATIONS - 1, 2 * (SWAPS + EVALUATIONS)):
        swapper, slot = ours.prepare(task, steps[k].state)
        assert int(swapper.factor.inducing[slot]) == steps[k + 1].info.removed


def test_passes_over_the_factor_are_those_of_each_swap_alone(steps: list[Step]) -> None:
    swaps = [step for step in steps if step.info.phase == "swap"]
    between = [step.info.reads for k, step in enumerate(swaps) if k % SWAPS not in (0, 4)]
    assert min(between) == 0
    assert max(between) <= 2  # one read and one write, where waiting changes are applied
    assert steps[0].state.tested.shape == (0, 2)


def test_a_landscape_takes_as_many_entries_as_the_factor(task: Problem, method: CholQR) -> None:
    assert method.landscape_entries(task) == 120 * 9


def test_a_point_is_dragged_to_the_nearest_row_that_is_free(task: Problem, method: CholQR, steps: list[Step]) -> None:
    state = steps[2].state
    taken = int(state.inducing[3])
    moved = method.move_point(task, state, 1, task.train.X[taken])
    distance = (task.train.X - task.train.X[taken]).norm(dim=1)
    distance[state.inducing] = math.inf
    assert int(moved.state.inducing[1]) == int(distance.argmin())


def test_terms_and_predictions_are_those_of_the_points_of_the_state(
    task: Problem, method: CholQR, steps: list[Step]
) -> None:
    state = steps[SWAPS + 3].state
    Z = task.train.X[state.inducing]
    model = nystrom(task.kernel, state.theta, task.train, Z)
    assert method.bound_terms(task, state).total("vfe") == pytest.approx(model.terms.total("vfe"))
    Kss, Ksz = (task.kernel(state.theta, task.train.X[:5], other) for other in (task.train.X[:5], Z))
    Kzz, Kzn = task.kernel(state.theta, Z, Z), task.kernel(state.theta, Z, task.train.X)
    s2 = torch.exp(2.0 * state.theta[-1])
    A = Kzz + Kzn @ Kzn.T / s2
    mean = Ksz @ torch.linalg.solve(A, Kzn @ task.train.y) / s2
    variance = (Kss - Ksz @ torch.linalg.solve(Kzz, Ksz.T) + Ksz @ torch.linalg.solve(A, Ksz.T)).diagonal()
    answer = method.posterior(task, state)(task.train.X[:5])
    torch.testing.assert_close(answer.mean, mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(answer.var, variance, rtol=1e-5, atol=1e-8)


def test_more_points_join_where_rows_become_distinct_while_the_kernel_is_learned() -> None:
    long = torch.tensor([0.1, 2.5, 2.5, -1.5], dtype=torch.float64)  # at such lengthscales few points explain all rows
    method = CholQR(num_inducing=40, max_epochs=8)
    steps, _ = finished(method, replace(problem(n=40), theta=long))
    sizes = [len(step.state.inducing) for step in steps[1:]]
    assert sizes[0] < 40
    assert sizes[-1] == 40
    assert all(len(set(step.state.inducing.tolist())) == len(step.state.inducing) for step in steps)


def test_a_noise_that_the_precision_does_not_resolve_is_refused_at_the_beginning_only() -> None:
    far = waves(40)
    theta = far.theta.clone()
    theta[-1] = -12.0
    single = replace(far, train=replace(far.train, X=far.train.X.float(), y=far.train.y.float()), theta=theta.float())
    steps = CholQR(**SMALL).steps(single)
    next(steps)
    with pytest.raises(SettingError):
        next(steps)


def test_points_that_cannot_leave_their_rows_are_not_advised_to() -> None:
    draw = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 9, (40, 3), generator=draw).double()
    kernel, train = kernels.make("minmax", 3), Dataset(counts, torch.sin(counts.sum(1)))
    _, outcome = finished(CholQR(**SMALL, max_epochs=30, tolerance=0.05), Problem(train, kernel, kernel.start(train)))
    assert "less than the tolerance" in outcome.message
    assert "polish" not in outcome.message
