"""The families side by side: their frames against the runs that they show, and the file that plays."""

from __future__ import annotations

import base64
import json
import re
from html import unescape
from itertools import pairwise

import numpy as np
import pytest
import torch

from computed_families import family
from gpexplorer.errors import SettingError
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.posteriors import exact_gp_posterior, in_units
from gpexplorer.views.screens import side_by_side_page
from gpexplorer.views.screens.side_by_side_page import (
    ENDS,
    FAMILIES,
    SIDE,
    STEPS,
    StepTimes,
    family_of,
    save_side_by_side,
    spec_of,
    surface_of,
)

N = 250


@pytest.fixture(scope="module")
def families():
    return {key: family(key, N) for key in FAMILIES}


def values(frame) -> np.ndarray:
    """The map of a frame [SIDE, SIDE] in units of the target, its first row at the top."""
    shares = np.frombuffer(base64.b64decode(frame["map"]), np.uint8).reshape(SIDE, SIDE) / 255
    return ENDS[0] + shares * (ENDS[1] - ENDS[0])


def errors(family) -> list[float]:
    return [frame["smse"] for frame in family["frames"]]


def test_the_map_of_the_exact_model_is_its_mean_with_the_second_input_upwards(families):
    run = spec_of("exact", N).open()
    posterior = in_units(exact_gp_posterior(run.problem.kernel, run.problem.theta, run.problem.train), run.problem)
    X = run.split.train.X * run.split.train.scale.x_sd + run.split.train.scale.x_mean
    low, high = X.min(0).values, X.max(0).values
    corners = torch.stack([low, torch.stack([high[0], low[1]]), torch.stack([low[0], high[1]]), high])

    drawn = values(families["exact"]["frames"][0])

    means = posterior(corners).mean.tolist()
    assert [drawn[-1, 0], drawn[-1, -1], drawn[0, 0], drawn[0, -1]] == pytest.approx(means, abs=0.01)


@pytest.mark.parametrize("key", ["swaps", "blocks", "folds", "minibatches", "exact"])
def test_the_last_error_and_the_seconds_are_those_of_the_run(families, key):
    run = spec_of(key, N).open()
    run.finish()

    last = families[key]["frames"][-1]

    assert last["smse"] == pytest.approx(run.scores()["smse"], abs=2e-4)
    assert [f["seconds"] for f in families[key]["frames"]] == sorted(f["seconds"] for f in families[key]["frames"])


def test_the_families_come_close_to_the_exact_model_and_the_swaps_begin_at_the_left(families):
    exact = errors(families["exact"])[0]
    for key in ("blocks", "eigenfunctions", "folds"):
        assert errors(families[key])[-1] < 1.3 * exact
    assert errors(families["swaps"])[-1] < 0.5 * errors(families["swaps"])[0]
    x = np.array(surface_of(N)["rows"][0])
    assert np.median(x[families["swaps"]["frames"][0]["points"]]) < 0.2


def test_every_swap_lowers_the_objective_and_moves_what_it_names(families):
    frames = families["swaps"]["frames"]
    for before, after in pairwise(frames):
        assert after["gain"] >= -1e-6
        if after["moved"]:
            out, into = after["moved"]
            assert set(after["points"]) == set(before["points"]) - {out} | {into}
        else:
            assert after["points"] == before["points"]


def test_blocks_are_those_of_the_run_and_their_decreases_add_up(families):
    run = spec_of("blocks", N).open()
    run.finish()

    frames = families["blocks"]["frames"]

    assert all(len(set(frame["block"])) == 100 for frame in frames[1:])
    assert sum(frame["gain"] for frame in frames) == pytest.approx(-run.trace[-1].step.info.objective, rel=1e-4)


def test_eigenfunctions_appear_one_after_the_other_and_few_carry_the_weight(families):
    frames = families["eigenfunctions"]["frames"]
    weights = np.abs(frames[-1]["weights"])

    assert [len(frame["weights"]) for frame in frames] == list(range(STEPS + 1))
    assert errors(families["eigenfunctions"])[0] == pytest.approx(1.0, abs=0.02)
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
    monkeypatch.setattr(side_by_side_page, "family_of", lambda *_: {})
    with pytest.raises(SettingError, match=r"Cannot write .*nowhere"):
        save_side_by_side(tmp_path / "nowhere" / "page.html", N, largest=0)
