"""The families side by side: their frames against the runs that they show, and the file that plays."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from html import unescape
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from computed_families import family
from gpexplorer.errors import SettingError
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.posteriors import exact_gp_posterior, in_units
from gpexplorer.views.drawing import run_rows
from gpexplorer.views.families.eigenfunction_curves import basis_at, posterior_weights
from gpexplorer.views.screens import side_by_side_page
from gpexplorer.views.screens.side_by_side_page import (
    ENDS,
    FAMILIES,
    SIDE,
    STEPS,
    StepTimes,
    family_of,
    packed,
    save_side_by_side,
    spec_of,
    surface_of,
)

N = 250


def fixture_of(key: str) -> Any:
    @pytest.fixture(scope="module", name=key)
    def frames():
        return family(key, N)

    return frames


exact, swaps, blocks, eigenfunctions, minibatches, folds = map(fixture_of, FAMILIES)


@pytest.fixture(scope="module")
def families(request):
    return {key: request.getfixturevalue(key) for key in FAMILIES}


@cache
def finished(key: str):
    """The run that a family shows."""
    run = spec_of(key, N).open()
    run.finish()
    return run


def values(frame) -> np.ndarray:
    """The map of a frame [SIDE, SIDE] in units of the target, its first row at the top."""
    shares = np.frombuffer(base64.b64decode(frame["map"]), np.uint8).reshape(SIDE, SIDE) / 255
    return ENDS[0] + shares * (ENDS[1] - ENDS[0])


def errors(family) -> list[float]:
    return [frame["smse"] for frame in family["frames"]]


def test_the_map_of_the_exact_model_is_its_mean_with_the_second_input_upwards(exact):
    run = finished("exact")
    posterior = in_units(exact_gp_posterior(run.problem.kernel, run.problem.theta, run.problem.train), run.problem)
    X = run.split.train.X * run.split.train.scale.x_sd + run.split.train.scale.x_mean
    low, high = X.min(0).values, X.max(0).values
    corners = torch.stack([low, torch.stack([high[0], low[1]]), torch.stack([low[0], high[1]]), high])

    drawn = values(exact["frames"][0])

    means = posterior(corners).mean.tolist()
    assert [drawn[-1, 0], drawn[-1, -1], drawn[0, 0], drawn[0, -1]] == pytest.approx(means, abs=0.01)


@pytest.mark.parametrize("key", ["swaps", "blocks", "folds", "minibatches", "exact"])
def test_the_last_error_and_the_seconds_are_those_of_the_run(request, key):
    run, frames = finished(key), request.getfixturevalue(key)["frames"]

    assert frames[-1]["smse"] == pytest.approx(run.scores()["smse"], abs=2e-4)
    assert [frame["seconds"] for frame in frames] == sorted(frame["seconds"] for frame in frames)


def test_the_families_come_close_to_the_exact_model_and_the_swaps_begin_at_the_left(families):
    exact = errors(families["exact"])[0]
    for key in ("blocks", "eigenfunctions", "folds"):
        assert errors(families[key])[-1] < 1.3 * exact
    assert errors(families["swaps"])[-1] < 0.5 * errors(families["swaps"])[0]
    x = np.array(surface_of(N)["rows"][0])
    assert np.median(x[families["swaps"]["frames"][0]["points"]]) < 0.2


def test_every_swap_lowers_the_objective_and_moves_what_it_names(swaps):
    frames = swaps["frames"]
    assert (frames[0]["gain"], frames[0]["moved"]) == (0.0, None)
    for before, after in pairwise(frames):
        assert after["gain"] >= -1e-6
        if after["moved"]:
            out, into = after["moved"]
            assert set(after["points"]) == set(before["points"]) - {out} | {into}
        else:
            assert after["points"] == before["points"]


def test_blocks_are_those_of_the_run_and_their_decreases_add_up(blocks):
    run = finished("blocks")

    frames = blocks["frames"]

    assert all(len(set(frame["block"])) == 100 for frame in frames[1:])
    assert sum(frame["gain"] for frame in frames) == pytest.approx(-run.trace[-1].step.info.objective, rel=1e-4)


def test_eigenfunctions_appear_one_after_the_other_and_few_carry_the_weight(eigenfunctions):
    frames = eigenfunctions["frames"]
    weights = np.abs(frames[-1]["weights"])

    assert [len(frame["weights"]) for frame in frames] == list(range(STEPS + 1))
    assert errors(eigenfunctions)[0] == pytest.approx(1.0, abs=0.02)
    assert np.sort(weights)[-5:].sum() > 0.5 * weights.sum()


def test_the_folds_begin_alike_disagree_and_come_together(families):
    spreads = [max(f["lengths"]) / min(f["lengths"]) for f in families["folds"]["frames"]]

    assert spreads[0] == 1.0
    assert max(spreads) > 1.05
    assert spreads[-1] < 1.02


def test_no_minibatch_holds_a_row_that_is_set_aside(families):
    run = spec_of("minibatches", N).open()
    aside = set(Model(run.method, run.problem, run.method.validation).validation_rows.tolist())

    batches = [set(frame["batch"]) for frame in families["minibatches"]["frames"][1:]]

    assert aside
    assert all(len(batch) == 64 and max(batch) < N and not batch & aside for batch in batches)
    assert len(set.union(*batches)) == N - len(aside)


def test_a_map_is_one_byte_per_pixel_with_the_second_input_upwards():
    square = torch.tensor([0.0, 1.0, 2.0, 3.0])  # at (0, 0), (0, 1), (1, 0) and (1, 1)

    pixels = np.frombuffer(base64.b64decode(packed(square, (-1.0, 4.0))), np.uint8)

    assert pixels.tolist() == [102, 204, 51, 153]  # the row of the larger second input first
    far = np.frombuffer(base64.b64decode(packed(torch.tensor([-9.0, 9.0, -1.2, 1.2]))), np.uint8)
    assert far.tolist() == [255, 255, 0, 0]


def test_the_rows_lie_on_the_map_at_their_shares_of_its_sides():
    surface, run = surface_of(N), spec_of("exact", N).open()
    X = run_rows.inputs_of(run.problem.train)
    shares = (X - X.min(0)) / np.ptp(X, axis=0)

    np.testing.assert_allclose(surface["rows"], [shares[:, 0], 1 - shares[:, 1]], atol=1e-4)
    assert [surface[name] for name in ("n", "side", "small", "steps", "ends")] == [N, 40, 12, 30, [-1.2, 1.2]]
    assert run.split.name.startswith("sin-product")
    assert len(run.problem.train) == len(run.split.test) == N


def test_a_frame_of_the_eigenfunctions_has_their_weights_and_the_newest_one_on_a_scale_of_its_own(eigenfunctions):
    frames = eigenfunctions["frames"]
    run = spec_of("eigenfunctions", N, num_eigenfunctions=3).open()
    run.finish()
    _, basis, _ = basis_at(run, run.done)

    np.testing.assert_allclose(frames[3]["weights"], posterior_weights(run, run.done, basis), atol=1e-4)
    scale, X = run.problem.train.scale, run_rows.inputs_of(run.problem.train)
    corners = torch.tensor(
        np.array([[x, y] for y in (X[:, 1].max(), X[:, 1].min()) for x in (X[:, 0].min(), X[:, 0].max())])
    )
    drawn = np.frombuffer(base64.b64decode(frames[3]["function"]), np.uint8).reshape(12, 12) / 127.5 - 1.0
    with torch.no_grad():
        own = basis(scale.scaled_inputs(corners).to(run.problem.train.X))[-1].numpy()
    assert np.abs(drawn).max() == 1.0
    shown = np.array([drawn[0, 0], drawn[0, -1], drawn[-1, 0], drawn[-1, -1]])
    np.testing.assert_allclose(shown / np.abs(shown).max(), own / np.abs(own).max(), atol=0.03)
    seconds = [frame["seconds"] for frame in frames]
    assert seconds[0] == 0.0 < seconds[1]
    assert seconds == sorted(seconds)
    targets = run_rows.targets_of(run.problem.train)
    np.testing.assert_allclose(values(frames[0]), targets.mean(), atol=0.01)


def test_the_seconds_of_the_eigenfunctions_are_those_of_all_runs_up_to_their_frame(monkeypatch: pytest.MonkeyPatch):
    runs: list[Any] = []

    def noted(key: str, n: int, **settings: Any) -> SimpleNamespace:
        return SimpleNamespace(open=lambda: runs.append(spec_of(key, n, **settings).open()) or runs[-1])

    monkeypatch.setattr(side_by_side_page, "STEPS", 3)
    monkeypatch.setattr(side_by_side_page, "spec_of", noted)
    frames = family_of("eigenfunctions", N)["frames"]

    own = [run.trace[-1].seconds for run in runs[1:]]  # the first run has all functions, and is opened on the page
    assert [frame["seconds"] for frame in frames] == pytest.approx([0.0, *accumulate(own)], abs=1e-5)
    assert min(own) > 1e-4


def test_the_lengthscales_of_the_folds_are_shares_of_the_side_of_the_map(folds):
    run = finished("folds")
    X, scale = run_rows.inputs_of(run.problem.train), run.problem.train.scale
    frames = folds["frames"]

    for at in (1, 5):
        lengths = run.trace[at].step.info.thetas[:, 0].exp() * float(scale.x_sd[0]) / np.ptp(X[:, 0])
        np.testing.assert_allclose(frames[at]["lengths"], lengths, atol=1e-4)
    first = np.exp(0.526 - 3.0) * float(scale.x_sd[0]) / np.ptp(X[:, 0])
    assert len(frames[0]["lengths"]) == len(frames[1]["lengths"]) == 4
    np.testing.assert_allclose(frames[0]["lengths"], [first] * 4, atol=1e-4)


def test_a_frame_of_the_minibatches_has_the_rows_of_the_newest_one_and_the_estimate_of_its_step(minibatches):
    run = finished("minibatches")
    frames = minibatches["frames"]

    for at in (1, 7):
        info = run.trace[at].step.info
        assert frames[at]["estimate"] == pytest.approx(info.estimate, abs=1e-3)
    assert (frames[0]["batch"], frames[0]["estimate"]) == ([], None)
    assert len(frames) == len(run.trace)
    method = run.method
    model = Model(method, run.problem, method.validation)
    rows = method.learner(model, run.trace[-1].step.state).rows
    newest = rows(run.trace[7].step.state.batches - 1)
    newest = newest if model.learning_rows is None else model.learning_rows[newest]
    assert frames[7]["batch"] == newest.tolist()


@pytest.mark.parametrize(
    ("seconds", "written", "is_left"),
    [
        ([1.0, 1.5, 1.6, 1.8], [0.15], False),  # the first step has work before it, and 8 times 1.8 s are too long
        ([0.0, 0.5, 0.6, 0.74], [0.12], True),
        ([0.0, 0.5, 0.6, 0.76], [0.13], False),
        ([0.0, 0.75], [0.75], True),
        ([0.0, 0.76], [0.76], False),
        ([0.3], [], False),
    ],
)
def test_the_time_of_a_step_is_the_median_without_the_first_one_and_long_runs_have_no_larger_size(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float], written: list[float], is_left: bool
):
    def fake(key: str, n: int) -> SimpleNamespace:
        own = seconds if key == "swaps" else [0.9, 0.001]  # the first record is late where libraries start
        run = SimpleNamespace(trace=[SimpleNamespace(seconds=each) for each in own], finish=lambda steps=None: None)
        run.spec = SimpleNamespace(open=lambda: run)
        return run.spec

    monkeypatch.setattr(side_by_side_page, "spec_of", fake)
    times = StepTimes(1000)
    for k in range(len(FAMILIES)):
        assert times.next == f"{FAMILIES[list(FAMILIES)[k]].title.lower()} on 250 rows"
        assert times.advance()
    assert times.table["swaps"] == [[250, pytest.approx(each)] for each in written]
    while times.advance():
        last = times.next
    assert last == "folds on 1,000 rows"
    assert times.table["exact"] == [[n, 0.001] for n in (250, 500, 1000)]
    assert len(times.table["swaps"]) == (3 if is_left else len(written))


@pytest.mark.parametrize(
    ("first", "others", "seconds"),
    [(0.9, [0.03, 0.5, 0.01], 0.03), (2.4, [0.2, 0.3, 0.1], 0.2), (3.0, [1.0], 3.0), (0.1, [0.2, 0.4, 0.3], 0.3)],
)
def test_the_time_of_a_run_of_one_step_is_the_median_of_further_runs(first: float, others: list[float], seconds: float):
    left = [SimpleNamespace(trace=[SimpleNamespace(seconds=each)], finish=lambda: None) for each in others]
    run = SimpleNamespace(trace=[SimpleNamespace(seconds=first)], spec=SimpleNamespace(open=lambda: left.pop(0)))
    assert side_by_side_page._median_seconds(run) == seconds


def test_the_time_of_a_step_is_measured_on_doubling_rows(monkeypatch):
    monkeypatch.setattr(side_by_side_page, "LONGEST", float("inf"))  # on a busy machine too
    times = StepTimes(500)
    named = times.next
    while times.advance():
        pass

    assert named == "exact on 250 rows"
    assert times.next == ""
    assert set(times.table) == set(FAMILIES)
    assert all([n for n, _ in pairs] == [250, 500] for pairs in times.table.values())
    assert all(seconds > 0 for pairs in times.table.values() for _, seconds in pairs)
    assert not times.advance()


def test_the_file_is_small_alone_and_strict(families, tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side_page, "family_of", lambda key, _: families[key])

    content = save_side_by_side(tmp_path / "page.html", N, largest=0).read_text("utf-8")

    assert len(content.encode()) < 1_500_000
    assert "default-src 'none'" in unescape(content)
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", content) == []
    assert len(json.dumps(families, allow_nan=False)) < 600_000


def test_what_cannot_be_made_is_named(tmp_path, monkeypatch):
    with pytest.raises(SettingError, match="no family 'trees'"):
        family_of("trees", N)
    monkeypatch.setattr(side_by_side_page, "family_of", lambda *_: pytest.fail("families were fitted first"))
    with pytest.raises(SettingError, match=r"Cannot write .*nowhere"):
        save_side_by_side(tmp_path / "nowhere" / "page.html", N, largest=0)
