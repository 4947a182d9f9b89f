"""Every method, posterior, picture, race and stored run on a simulated GPU, with the answers of the CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from a_gpu import a_gpu
from benchmarks.gpu.simulated_gpu import DeviceWork, SimulatedGPU
from gpexplorer import Spec, Store, methods, views
from gpexplorer.errors import OutOfMemory
from gpexplorer.linalg.deferred_reads import WARM_UP
from gpexplorer.methods.capabilities import HasMovablePoints, HasSwapLandscape
from gpexplorer.methods.cross_validation.solvers import FEWEST
from gpexplorer.posteriors import AveragePosterior, load_posterior
from gpexplorer.runs import Run, link
from gpexplorer.runs.studies.race import Race
from gpexplorer.ui.inputs.controls import _devices
from gpexplorer.ui.shared_limits import Limits, Shares
from gpexplorer.views.base import registry as all_views
from steps_of import small_spec, small_views, trail

STEPS = {"float64": 3, "float32": 1}
ROUNDING = 2e-5 if torch.cuda.is_available() else 1e-7  # a card rounds the float32 scores of swaps in its own way
CONSENSUS = {"cg_tolerance": 0.1, "cg_iterations": 3, "theta_steps": 1, "restarts": 0}  # its steps are long
PICTURED = (
    "cholqr",
    "gbcd",
    "gpcv-admm",
    "grief",
    "grief-mcmc",
    "minimax",
    "vecchia",
)  # they show all pictures but of molecules


def run_on(device: str, key: str, dtype: str) -> Run:
    """A run from the kernel's own start; others race for their start on the GPU, as that of `answers`."""
    spec = small_spec(key, d=2, device=device, dtype=dtype)
    settings = spec.settings | (CONSENSUS if "gpcv" in key else {})
    run = replace(spec, settings=settings, kernel={"name": spec.kernel, "start": "one"}).open()
    run.finish(steps=1 if "gpcv" in key else STEPS[dtype])
    if run.error:
        raise run.error
    return run


@cache
def on_cpu(key: str) -> Run:
    """The run in double precision with which others are compared, and that no test changes."""
    return run_on("cpu", key, "float64")


def same_states(run: Run, other: Run, tolerance: float) -> None:
    assert len(run.trace) == len(other.trace) > 1
    for on_cpu, on_gpu in zip(trail(run), trail(other), strict=True):
        for a, b in zip(on_cpu, on_gpu, strict=True):
            torch.testing.assert_close(b.cpu(), a, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("key", sorted(methods))
def test_a_run_on_a_gpu_has_the_states_and_predictions_of_the_cpu(key: str, dtype: str, tmp_path: Path):
    if (key, dtype) == ("csi", "float32") and torch.cuda.is_available():
        pytest.skip("rounding decides between rows of nearly equal gain")
    tolerance = {"float64": 1e-8, "float32": 1e-3}[dtype]
    run = on_cpu(key) if dtype == "float64" else run_on("cpu", key, dtype)
    X = run.split.test.X
    mean, var = run.posterior(of="y")(X)

    with a_gpu():
        other = run_on("cuda", key, dtype)
        assert other.problem.train.y.device.type == "cuda"
        same_states(run, other, tolerance)
        posterior = other.posterior(of="y")
        for part, expected in zip(posterior(X), (mean, var), strict=True):
            torch.testing.assert_close(part.cpu(), expected, rtol=tolerance, atol=tolerance)
        posterior.save(tmp_path / "posterior")
        assert other.scores() == pytest.approx(run.scores(), rel=1e3 * tolerance)

    loaded = load_posterior(tmp_path / "posterior")  # where there is no GPU
    torch.testing.assert_close(loaded.var(X), var, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("key", "settings", "kernel", "d"),
    [
        ("sgpr", {}, "se-ard", 2),
        ("sgpr", {"learn": False, "objective": "pp"}, "matern32-ard", 1),
        ("fitc", {}, "matern52-ard", 2),
        ("fitc", {"likelihood": "tight-vfe"}, "se-ard", 1),
        ("ml", {}, "se-ard", 2),
        ("loo", {}, "se-ard", 2),
        ("loo", {"criterion": "log probability"}, "matern32-ard", 1),
        ("gpcv-admm", {"rank": 300, "cg_tolerance": 3e-4}, "se-ard", 2),
        ("gpcv-admm", {"rank": 40, "cg_tolerance": 3e-4}, "se-ard", 2),  # a mask decides how many of the rows serve
        ("gpcv-admm-holdout", {"rank": 300, "cg_tolerance": 3e-4}, "matern52-ard", 2),
    ],
)
def test_evaluations_that_a_gpu_repeats_as_a_graph_are_those_of_the_cpu(
    key: str, settings: dict[str, object], kernel: str, d: int
):
    spec = small_spec(key, d=d, kernel=kernel)
    spec = replace(spec, settings=spec.settings | settings)
    run = spec.open()
    run.finish(steps=WARM_UP + 6)
    with SimulatedGPU() as gpu:
        other = replace(spec, device="cuda").open()
        other.finish(steps=WARM_UP + 2)
        gpu.work = DeviceWork()
        other.advance()
        assert gpu.work.launches <= 60
        other.finish(steps=WARM_UP + 6)
        same_states(run, other, 1e-8)
    assert [record.cost.entries for record in other.trace] == [record.cost.entries for record in run.trace]


def test_iterations_that_a_graph_does_not_have_are_taken_with_reads():
    spec = small_spec("gpcv-admm", d=2, kernel="se-ard")
    spec = replace(spec, settings=spec.settings | {"rank": 3})
    run = spec.open()
    run.finish(steps=8)
    assert min(record.step.info.iterations for record in run.trace[2:]) > FEWEST
    with SimulatedGPU() as gpu:
        other = replace(spec, device="cuda").open()
        reads = list[int]()
        for _ in range(len(run.trace)):
            gpu.work = DeviceWork()
            other.advance()
            reads.append(gpu.work.reads)
        assert min(reads[2:]) > 20
        same_states(run, other, 1e-8)


def answers(device: str) -> tuple[list[torch.Tensor], dict[str, float]]:
    """What posteriors of transformed targets and their average answer, and the scores of the run."""
    runs = [
        replace(small_spec("sgpr", d=2, device=device), target_transform=f"yeo-johnson {k}").open() for k in (0, 1.7)
    ]
    for run in runs:
        run.finish(steps=2)
    posteriors = [run.posterior(of="y") for run in runs]
    X = runs[0].split.test.X[:4].cpu()
    y = torch.linspace(-1.0, 1.0, 4, dtype=torch.float64)
    result = list[torch.Tensor]()
    for posterior in (posteriors[0], AveragePosterior(posteriors, [0.4, 0.6])):
        result += [*posterior(X), posterior.quantile(X, (0.1, 0.9)), posterior.cov(X), posterior.sample(X, 3, seed=1)]
        result += [posterior.log_density(X, y), posterior.marginals(X).cdf(y.to(posterior.like.device))]
    return [part.cpu() for part in result], runs[0].scores()


def test_distributions_that_are_not_normal_are_the_same_on_a_gpu():
    expected, scores = answers("cpu")
    with a_gpu():
        on_gpu, scores_on_gpu = answers("cuda")
    for part, own in zip(on_gpu, expected, strict=True):
        torch.testing.assert_close(part, own, rtol=1e-8, atol=1e-8)
    assert scores_on_gpu == pytest.approx(scores, rel=1e-8)


@pytest.fixture(scope="module")
def plotted() -> set[str]:
    """Pictures that were drawn of numbers from a GPU. Each is drawn once: the numbers of later runs are compared."""
    return set()


@pytest.mark.parametrize("key", PICTURED)
def test_the_pictures_of_a_run_on_a_gpu_have_the_numbers_of_the_cpu(key: str, plotted: set[str]):
    run = on_cpu(key)
    frames = {view.key: view.data(run, run.done) for view in small_views(run)}
    with a_gpu():
        other = run_on("cuda", key, "float64")
        shown = small_views(other)
        drawn = {view.key: view.data(other, other.done) for view in shown}
        assert all(view.plot(drawn[view.key]) is not None for view in shown if view.key not in plotted)
    plotted |= {*drawn}

    assert list(drawn) == list(frames)
    for name, layers in frames.items():
        for layer, frame in layers.items():
            on_gpu = drawn[name][layer]
            numbers = [part.select_dtypes("number") for part in (frame, on_gpu)]
            if name not in ("convergence", "grief-growth"):  # which show seconds
                np.testing.assert_allclose(*(part.to_numpy() for part in numbers), rtol=ROUNDING, atol=1e-8)
            assert frame.shape == on_gpu.shape


def test_these_runs_show_every_picture():
    shown = {view.key for key in PICTURED for view in views.for_run(on_cpu(key))}

    assert set(all_views) - shown == {"structures", "filter"}  # of molecules, and of a series


def test_a_landscape_and_a_dragged_point_are_the_same_on_a_gpu():
    run = on_cpu("cholqr")
    state = run.trace[-1].step.state
    row = next(row for row in range(9) if row not in state.inducing.tolist())
    assert isinstance(run.method, HasSwapLandscape)
    assert isinstance(run.method, HasMovablePoints)
    landscape = run.method.swap_landscape(run.problem, state)
    moved = run.method.move_point(run.problem, state, 2, run.problem.train.X[row])
    with a_gpu():
        other = run_on("cuda", "cholqr", "float64")
        state, X = other.trace[-1].step.state, other.problem.train.X
        on_gpu = other.method.swap_landscape(other.problem, state)
        torch.testing.assert_close(on_gpu.exact.cpu(), landscape.exact, equal_nan=True)
        torch.testing.assert_close(on_gpu.approx.cpu(), landscape.approx, rtol=ROUNDING, atol=1e-8, equal_nan=True)
        for position in (X[row], X[row].cpu()):  # a hand on the page gives a place on the CPU
            step = other.method.move_point(other.problem, state, 2, position)
            assert int(step.state.inducing[2]) == row == int(moved.state.inducing[2])
            assert step.info.objective == pytest.approx(moved.info.objective, rel=1e-9)
        forced = other.fork(other.done, other.method.force_swap(other.problem, state, row, 2))
        assert forced.advance() is not None


def test_a_race_on_a_gpu_ends_as_on_the_cpu():
    lanes = {"swaps": small_spec("cholqr"), "blocks": small_spec("gbcd")}
    with a_gpu():
        race = Race({name: Spec(spec.method, spec.settings, spec.data, device="cuda") for name, spec in lanes.items()})
        for _ in lanes:
            race.advance()
        board = race.board()

    assert set(board["lane"]) == set(lanes)
    assert isinstance(board, pd.DataFrame)
    assert board["smse"].notna().any()
    assert all(lane.run.error is None for lane in race.lanes.values())


def test_a_run_stored_on_a_gpu_continues_there_and_is_read_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    spec = small_spec("cholqr", device="cuda")
    with a_gpu():
        Store(tmp_path).open(spec).finish(steps=3)
        reopened = Store(tmp_path).open(spec)
        assert reopened.trace[-1].step.state.theta.device.type == "cuda"
        reopened.finish(steps=5)
        whole = small_spec("cholqr", device="cuda").open()
        whole.finish(steps=5)
        assert torch.equal(reopened.trace[-1].step.state.inducing.cpu(), whole.trace[-1].step.state.inducing.cpu())

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    [name] = Store(tmp_path).names()
    assert Store(tmp_path).table().loc[name, "steps"] == 5
    assert Store(tmp_path).kept(name).records[-1].step.state.theta.device.type == "cpu"


def test_the_page_shows_the_gpu_with_its_memory_and_a_spec_from_one_opens_without_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with SimulatedGPU(memory=80e9):
        assert _devices("cpu") == {"processor": "cpu", "cuda: Simulated GPU, 80 GB": "cuda"}
    assert _devices("cuda:1") == {"processor": "cpu", "cuda:1 (not here)": "cuda:1"}

    opened = link.read(link.write(small_spec("cholqr", device="cuda")), small_spec("random"))
    assert (opened.spec.method, opened.spec.device) == ("cholqr", "cpu")
    assert opened.corrected == ("There is no GPU here; the link's device 'cuda' became 'cpu'.",)


def test_a_run_that_is_too_large_for_the_card_says_which_setting_fits():
    def run(num_inducing: int) -> Run:
        rows = {"name": "hypercube", "n": 500, "d": 2, "noise": 0.2, "seed": 2}
        settings = {"num_inducing": num_inducing, "num_pivots": 8, "learn": False}
        opened = Spec("cholqr", settings, data=rows, device="cuda").open()
        opened.advance(), opened.advance()
        return opened

    with SimulatedGPU(memory=1.2e6):
        outcome = run(400).outcome
        assert outcome is not None
        assert outcome.reason == "failed"
        assert "GB can be used on the GPU. With num_inducing = " in outcome.message
        fits = int(outcome.message.split("num_inducing = ")[1].split()[0])
        assert 1 < fits < 400
        assert run(fits).error is None


def test_a_run_is_refused_in_advance_by_the_free_memory_of_the_gpu_alone():
    data = {"name": "hypercube", "n": 300_000, "d": 1}
    spec = Spec("cholqr", {"num_inducing": 200}, data, kernel="se", device="cuda")
    host = Shares(Limits(max_memory=0.5e9))
    with SimulatedGPU(memory=80e9):
        host.reservation().take(spec)  # 1.4 GB on the GPU, of which little is needed here
        with pytest.raises(OutOfMemory, match="free for it"):
            host.reservation().take(replace(spec, device="cpu"))
    with SimulatedGPU(memory=1e9):
        with pytest.raises(OutOfMemory, match="900 MB are free for it on the GPU") as refused:
            host.reservation().take(spec)
        fits = int(str(refused.value).split("num_inducing = ")[1].split()[0])
        host.reservation().take(replace(spec, settings=spec.settings | {"num_inducing": fits}))
    assert 20 < fits < 200
