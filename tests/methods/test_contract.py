"""What every registered method promises, whatever it computes: a new method is held to it by being there."""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import steps_of
from gpexplorer import Spec, data, methods
from gpexplorer.methods.base import registry
from gpexplorer.problem import OUTCOMES
from gpexplorer.runs import Run
from gpexplorer.runs.storage import codec
from steps_of import STEPS, alike, moved, small_run, small_spec, trail
from toy_method import Toy, same

pytestmark = pytest.mark.long
METHODS = sorted({*methods, "toy"})


@pytest.fixture(autouse=True, scope="module")
def _toy() -> Iterator[None]:
    """The toy is held to the contract too: if it passes where it should not, the tests are wrong."""
    registry["toy"] = Toy
    yield
    del registry["toy"]


@pytest.fixture(scope="module", params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(method: str) -> Run:
    """The run that others are compared with."""
    return small_run(method)


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, Any]:
    """First steps of every method, taken in another process (beartype, here, draws random numbers of its own)."""
    command = [sys.executable, steps_of.__file__, str(torch.get_num_threads()), *METHODS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return dict(zip(METHODS, map(json.loads, done.stdout.splitlines()), strict=True))


def test_its_title_family_channels_and_settings_are_documented(method: str):
    kind = registry[method]
    settings = [setting for name, setting in kind.param.objects().items() if name != "name"]

    assert kind.title
    assert kind.family
    assert kind.channels
    assert all(setting.doc for setting in settings)
    assert {channel.name for channel in kind.channels} <= set(kind.Info._fields)  # type: ignore[attr-defined]
    assert set(kind.equations) <= set(kind.param)


def test_the_first_step_comes_before_any_work(method: str):
    run = small_spec(method).open()

    first = run.advance()

    assert first is not None
    assert first.index == 0
    assert first.cost.entries == 0
    run.advance()
    assert run.trace[1].cost.entries > 0 or method == "states"  # which computes transitions, and no covariances
    run.close()


@pytest.fixture(scope="module")
def repeated(method: str) -> tuple[Run, list[Any]]:
    """The run again, with a prediction after each step, and a copy of each step made when it was yielded."""
    run, copies = small_spec(method).open(), []
    while run.done < STEPS and run.advance():
        copies.append(copy.deepcopy(run.trace[-1].step))
        run.posterior()(torch.zeros(1, run.problem.train.d))
    run.close()
    return run, copies


def test_states_never_change_after_they_were_yielded(repeated: tuple[Run, list[Any]]):
    run, copies = repeated

    assert len(copies) > 2
    assert all(same(record.step, before) for record, before in zip(run.trace, copies, strict=True))


def test_the_tensors_of_a_state_can_be_used_with_autograd(run: Run):
    state: Any = run.trace[len(run.trace) // 2].step.state
    tensors_of_state = [part for part in state if isinstance(part, torch.Tensor)]
    tensors_of_state += [
        part for parts in state if isinstance(parts, tuple) for part in parts if isinstance(part, torch.Tensor)
    ]

    assert tensors_of_state
    assert not any(part.is_inference() or part.requires_grad for part in tensors_of_state)


def test_the_same_seed_gives_the_same_steps_and_another_seed_others(
    method: str, run: Run, repeated: tuple[Run, list[Any]]
):
    alike(repeated[0], run, rtol=0, atol=0)

    assert any(differs(small_spec(method, seed=seed).open(), run) for seed in (1, 2)) == run.method.draws


def differs(other: Run, run: Run) -> bool:
    """Whether the other run, which has not begun, takes another of the steps than this one."""
    return any(other.advance() is not None and not same(other.trace[-1].step, record.step) for record in run.trace)


def test_another_process_takes_the_same_steps(method: str, run: Run, elsewhere: dict[str, Any]):
    local, other_process = trail(run)[: steps_of.ELSEWHERE + 1], elsewhere[method]["states"]

    assert len(other_process) == len(local)
    for state, its in zip(local, other_process, strict=True):
        for first, second in zip(state, its, strict=True):
            theirs = torch.tensor(second, dtype=first.dtype).reshape(first.shape)  # a list forgets [0, 2]
            torch.testing.assert_close(first, theirs, rtol=1e-8, atol=1e-10)


def test_the_global_random_state_does_not_change(method: str, elsewhere: dict[str, Any]):
    assert not elsewhere[method]["randomness moved"]


@pytest.mark.parametrize("at", [0, 1, 3, 5, 6, 8, 13, STEPS - 1])
def test_it_continues_from_any_state_as_if_it_had_not_stopped(run: Run, at: int):
    """From late states to the end, else for five steps: all that recurs has come once by then.

    What follows is continued from the state reached, which is compared here, and from that state in another case.
    """
    at = min(at, len(run.trace) - 1)
    steps = STEPS if at >= 13 or at + 5 > len(run.trace) - 1 else at + 5

    resumed = run.fork(at)
    while steps < STEPS and resumed.done < steps and resumed.advance():
        pass  # without scores
    if steps == STEPS:
        resumed.finish(steps=STEPS)
        assert resumed.outcome == run.outcome

    alike(resumed, run, steps=steps)


@pytest.mark.parametrize("steps", [1, 8])  # before any work, and among the swaps, blocks and draws after learning
def test_an_abandoned_generator_leaves_no_thread_and_no_reference(run: Run, steps: int):
    before = set(threading.enumerate())
    generator = run.method.steps(run.problem)
    for _ in islice(generator, steps):
        pass
    left = weakref.ref(generator)

    generator.close()
    del generator
    if left() is not None:  # a collection takes a second where much is loaded
        gc.collect()

    assert left() is None
    assert not [thread for thread in threading.enumerate() if thread not in before and thread.is_alive()]


def test_its_steps_and_settings_survive_json(method: str, run: Run):
    assert run.spec is not None
    reread = Spec.from_json(run.spec.to_json()).open()

    assert reread.method.param.values() == {**run.method.param.values(), "name": reread.method.name}
    for record in run.trace:
        text = json.dumps(codec.encode(record.step), allow_nan=False)
        assert same(codec.decode(json.loads(text), codec.classes_of(type(run.method))), record.step)


def test_no_variance_is_negative(run: Run):
    X = run.problem.train.X
    scale = run.problem.train.scale
    assert scale is not None
    near = X * scale.x_sd + scale.x_mean

    for at in (0, 1, len(run.trace) - 1):
        for place in (near, near + 1e-7, 50 * near):
            mean, var = run.posterior(at)(place)
            assert (var >= 0).all()
            assert mean.isfinite().all()
            assert var.isfinite().all()


def test_monotone_channels_never_rise(run: Run):
    table = run.table()

    for channel in run.method.channels:
        values = table[channel.name].dropna().to_numpy()
        if channel.monotone:
            assert len(values) > 2
            assert (np.diff(values) <= 1e-9 * np.abs(values[1:]) + 1e-9).all(), channel.name


def test_it_ends_with_a_reason_and_learns_something(run: Run):
    assert run.outcome is not None
    assert run.outcome.reason in OUTCOMES
    assert run.outcome.message.endswith(".")
    if run.method.key == "states":  # whose start, with all rows in one input, is near the optimum
        objectives = [record.step.info.objective for record in run.trace if record.step.info.phase == "learn"]
        assert objectives[-1] < objectives[0]
        return
    assert run.scores(-1)["smse"] < run.scores(0)["smse"] + 1e-9 or run.scores(-1)["snlp"] < run.scores(0)["snlp"]


@pytest.mark.parametrize(("d", "dtype"), [(1, "float32"), (5, "float64")])
def test_either_precision_and_any_number_of_inputs_work(method: str, run: Run, d: int, dtype: str):
    """Also in two dimensions, in either precision, in `test_on_a_gpu.py`."""
    if (d, dtype) != (5, run.spec.dtype):
        run = small_run(method, d=d, dtype=dtype, steps=12)

    mean, var = run.posterior()(torch.rand(4, run.problem.train.d, generator=torch.Generator().manual_seed(0)))

    assert run.outcome is not None
    assert run.outcome.reason in ("budget", "converged"), run.outcome.message
    assert str(run.problem.train.X.dtype) == f"torch.{dtype}"
    assert mean.dtype == var.dtype == torch.float64  # in the units of the file, whose offset may need the digits
    kinds = {str(part.dtype) for state in trail(run) for part in state if part.is_floating_point()}
    assert {f"torch.{dtype}"} <= kinds <= {f"torch.{dtype}", "torch.float64"}  # wider where single precision does harm
    assert all(str(getattr(record.step.state, "theta", mean).dtype) == f"torch.{dtype}" for record in run.trace)
    assert np.isfinite(run.scores()["nlpd"])


def test_it_works_with_duplicate_rows(method: str):
    split = data.load({"name": "hypercube", "n": 30, "d": 2, "noise": 0.3})
    X, y = (
        torch.cat([split.train.X[:, : small_spec(method).data["d"]]] * 3),
        torch.cat([split.train.y + shift for shift in (0.0, 0.1, 0.0)]),
    )

    run = small_spec(method).open(data=(X, y))

    assert run.finish(steps=12).reason in ("budget", "converged"), run.outcome
    assert all(part.isfinite().all() for state in trail(run) for part in state if part.is_floating_point())


@pytest.mark.parametrize(("shift", "scale"), [(1e3, 40.0), (-7.0, 1e-3)])
def test_units_do_not_matter(method: str, run: Run, shift: float, scale: float):
    spec = small_spec(method)
    twin = spec.open(data=moved(data.load(spec.data), shift, scale))

    twin.finish(steps=9)

    alike(twin, run, rtol=1e-5, atol=1e-6, steps=9)
    own, other = run.scores(twin.done), twin.scores()
    assert other["smse"] == pytest.approx(own["smse"], rel=1e-5)
    assert other["rmse"] == pytest.approx(scale * own["rmse"], rel=1e-5)


def test_its_defaults_run(method: str):
    run = small_spec(method, settings={}).open()

    assert run.finish(steps=3).reason in ("budget", "converged"), run.outcome


def test_the_cost_of_a_step_is_known_before_the_step(method: str, run: Run):
    cost = run.method.cost(run.problem)

    assert 0 < cost.flops < 1e12
    assert 0 < cost.bytes < 1e12
    assert cost.memory == sum(cost.arrays.values()) > 0
