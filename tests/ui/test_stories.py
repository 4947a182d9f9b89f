"""Stories: every number in their texts is computed again, and the panel moves the page from part to part."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.runs import Spec
from gpexplorer.runs import link as links
from gpexplorer.ui.address import read_query
from gpexplorer.ui.explorer import START, Explorer
from gpexplorer.ui.shared_limits import long_replay
from gpexplorer.ui.stories import STORIES
from gpexplorer.ui.text import MAX_LENGTH
from gpexplorer.views import for_run
from gpexplorer.views.base import registry as views
from split_scores import scores_of_ten_splits

pytestmark = pytest.mark.long
FITC = (STORIES["swaps"].parts[5].link, STORIES["swaps"].parts[5].shown)


@cache
def at_part(story: str, number: int, answered: bool = False) -> tuple[gpx.Run, int]:
    """The run of a part, counted from 1, or of its answer, and its last step."""
    part = STORIES[story].parts[number - 1]
    link = links.read(part.shown if answered else part.link, Spec(**START), views)
    assert link.corrected == ()
    run = link.spec.open()
    while not (len(run.trace) and run.done >= link.at) and run.advance() is not None:
        pass
    assert run.done == link.at, f"{story} {number}: the run ends at step {run.done}, the part is at {link.at}"
    return run, link.at


def smse(story: str, number: int, answered: bool = False) -> float:
    run, at = at_part(story, number, answered)
    return run.scores(at)["smse"]


def objective(story: str, number: int, answered: bool = False) -> float:
    run, at = at_part(story, number, answered)
    return float(run.trace[at].step.info.objective)


def ended(story: str, number: int, seed: int = 0) -> gpx.Run:
    """The run of a part with this seed, taken to its end."""
    run = replace(links.read(STORIES[story].parts[number - 1].link, Spec(**START), views).spec, seed=seed).open()
    run.finish(steps=300)
    return run


def within(value: float, stated: float, relative: float = 0.03) -> bool:
    return abs(value - stated) <= relative * abs(stated)


def test_parts_are_short_and_have_a_question_with_an_answer_and_each_story_a_trap():
    first = [read_query(story.parts[0].link, Spec(**START)).link.spec.method for story in STORIES.values()]
    families = {"inducing", "exact", "eigenfunctions", "cross_validation", "minibatches", "neighbours"}
    assert {gpx.methods[method].family for method in first} == families
    for story in STORIES.values():
        assert 5 <= len(story.parts) <= 8
        assert sum(bool(part.predict) for part in story.parts) >= 3
        assert sum("trap" in part.title for part in story.parts) == 1
        for part in story.parts:
            assert bool(part.predict) == bool(part.answer)
            assert max(map(len, (part.text, part.predict, part.answer))) <= MAX_LENGTH  # the page would cut it
            assert len(re.findall(r"[.?!](?: |$)", part.text)) <= 4
            assert not links.read(part.link, Spec(**START), views).corrected
            assert part.shown != part.link
            assert not part.shown or part.answer
            assert not links.read(part.shown, Spec(**START), views).corrected
            for link in (links.read(query, Spec(**START), views) for query in (part.link, part.shown) if query):
                assert long_replay(link.spec, link.at) == ""  # a part opens at its step, not with a warning
        assert sum(bool(part.shown) for part in story.parts) >= 3


class TestSwaps:
    def test_the_error_falls_by_swaps_and_learning(self):
        assert within(smse("swaps", 1), 0.85)
        assert within(smse("swaps", 1, answered=True), 0.21)

    def test_the_objective_never_rises(self):
        run, _ = at_part("swaps", 4)
        values = np.array([float(record.step.info.objective) for record in run.trace][1:])
        assert (np.diff(values) <= 1e-9 * np.abs(values[1:])).all()

    def test_no_point_stands_in_the_gap_and_the_band_is_wide_there(self):
        run, at = at_part("swaps", 3)
        train = run.problem.train
        x = (train.X[run.trace[at].step.state.inducing, 0] * train.scale.x_sd[0] + train.scale.x_mean[0]).numpy()
        assert not ((x > 2.65) & (x < 3.45)).any()
        sd = run.posterior(of="f")(np.array([[2.4], [3.0], [3.7]])).var.sqrt()
        assert sd[1] > 1.5 * max(sd[0], sd[2])

    def test_ten_and_twenty_points_end_as_stated(self):
        for part, nats, error in ((4, -43, 0.21), (5, -72, 0.14)):
            assert (within(objective("swaps", part), nats), within(smse("swaps", part), error)) == (True, True)
        run, before = at_part("swaps", 4)[0], objective("swaps", 4)
        assert run.finish(steps=400).reason == "converged"  # at once, or after evaluations in which rounding decides
        assert run.trace[-1].step.info.objective == pytest.approx(before, rel=1e-9)

    @pytest.mark.timeout(600)
    def test_fitc_has_the_lower_objective_on_every_split_and_no_better_test_error(self):
        assert within(objective("swaps", 6), -54)
        fitc, swaps = (scores_of_ten_splits(links.read(part, Spec(**START), views).spec.to_json()) for part in FITC)
        difference = fitc["smse"] - swaps["smse"]
        assert (fitc["objective"] < swaps["objective"] - 5).all()
        assert 0 < (difference < 0).sum() < 10
        assert abs(difference.mean()) < 2 * difference.std() / 10**0.5


class TestBlocks:
    def test_objectives_are_as_stated(self):
        stated = {2: -360, 3: -866, 4: -975.6}
        for number, value in stated.items():
            assert within(objective("blocks", number, answered=number != 3), value, 0.005), number

    def test_entries_of_the_trap(self):
        blocks = read_query(STORIES["blocks"].parts[3].link, Spec(**START)).link.spec.open()
        while blocks.advance() is not None:
            pass
        cg, at = at_part("blocks", 5)
        n2 = len(cg.problem.train) ** 2
        assert blocks.done == 11
        assert blocks.trace[-1].cost.entries / n2 == pytest.approx(1.75, abs=0.01)
        assert cg.trace[at].cost.entries / n2 == pytest.approx(1.0, abs=0.01)


class TestEigenfunctions:
    def test_errors_are_as_stated(self):
        for number, stated in {2: 0.47, 3: 0.22, 4: 0.43}.items():
            assert within(smse("eigenfunctions", number), stated), number
        assert within(smse("eigenfunctions", 1, answered=True), 1.0)
        assert within(smse("eigenfunctions", 2, answered=True), 0.22)
        assert within(smse("eigenfunctions", 4, answered=True), 0.24)

    def test_the_function_of_rank_four_carries_the_surface(self):
        run, at = at_part("eigenfunctions", 2)
        [picture] = [picture for picture in for_run(run) if picture.key == "grief-eigenfunctions"]
        words = picture.data(run, at)["words"]["text"]
        weights = [abs(float(word.partition(":")[2].replace("−", "-"))) for word in words[:-1]]
        assert weights.pop(3) > 5 * max(weights)

    def test_random_functions_are_moved_by_learning(self):
        kept, random = ended("eigenfunctions", 3), ended("eigenfunctions", 4)
        before = [at_part("eigenfunctions", number)[0].trace[-1].step.state.theta for number in (3, 4)]
        assert torch.allclose(*before, atol=1e-3)  # the same hyperparameters at the step that is shown
        assert within(random.scores()["smse"], 0.24)
        assert within(kept.scores()["smse"], 0.22)

    def test_the_objective_rises_when_the_model_changes(self):
        run, at = at_part("eigenfunctions", 5, answered=True)
        assert float(run.trace[at].step.info.objective) - float(run.trace[20].step.info.objective) > 200
        assert run.spec.settings["subset"] >= len(run.problem.train) == 360
        assert float(run.trace[20].step.info.objective) < 0 < 100 < float(run.trace[at].step.info.objective)


class TestFolds:
    def test_errors_are_as_stated(self):
        for number, stated in {1: 0.48, 3: 0.48, 5: 0.35}.items():
            assert within(smse("folds", number), stated), number
        for number, stated in {1: 0.10, 2: 0.10, 3: 0.47, 4: 0.10, 5: 0.10, 6: 0.10}.items():
            assert within(smse("folds", number, answered=True), stated), number

    def test_four_folds_depend_on_the_draw(self):
        run, other = ended("folds", 2), ended("folds", 2, seed=1)
        assert len(run.trace[-1].step.state.folds) == 4
        assert run.trace[-1].step.state.shared  # one vector of hyperparameters
        assert within(run.scores()["smse"], 0.23)
        assert within(other.scores()["smse"], 0.10)

    def test_the_mean_of_four_answers_depends_on_the_draw(self):
        assert len(at_part("folds", 5)[0].trace[-1].step.info.thetas) == 4
        for number in (2, 5):
            assert within(ended("folds", number, seed=2).scores()["smse"], 0.10)


class TestMinibatches:
    def test_likelihoods_are_as_stated(self):
        stated = {1: -949, 2: -1036, 3: -737, 4: -996, 5: -1396}
        for number, value in stated.items():
            assert within(objective("minibatches", number, answered=number > 1), value, 0.01), number


class TestGrowth:
    def test_errors_are_as_stated(self):
        assert within(smse("growth", 1), 0.48)
        for number in (1, 2, 5):
            assert within(smse("growth", number, answered=True), 0.10), number
        assert [len(at_part("growth", number)[0].problem.train) for number in (1, 5)] == [90, 540]


class TestSixWays:
    def test_errors_are_as_stated(self):
        assert within(smse("six-ways", 2), 0.548, 0.002)
        stated = {1: 0.373, 3: 0.361, 4: 0.373, 5: 0.380, 6: 0.362}
        for number, value in stated.items():
            assert within(smse("six-ways", number, answered=number in (3, 4, 5)), value, 0.005), number
        assert smse("six-ways", 2, answered=True) == pytest.approx(smse("six-ways", 1), abs=5e-4)
        thetas = [at_part("six-ways", number)[0].trace[-1].step.state.theta for number in (1, 2)]
        assert torch.allclose(*thetas, atol=1e-4)  # "the same hyperparameters"

    def test_every_block_of_the_solver_lowers_the_objective(self):
        run, _ = at_part("six-ways", 2, answered=True)
        values = np.array([record.step.info.objective for record in run.trace])
        decrease = -np.diff(values) / (values[0] - values[-1])
        assert (decrease > 0).all()
        assert decrease.max() < 0.5  # not one cliff
        assert decrease[:10].sum() > 0.98

    def test_the_differences_are_within_their_standard_errors(self):
        exact, *others = (at_part("six-ways", number, number == 3)[0] for number in (1, 3, 6))
        test = exact.split.test
        first = (exact.posterior(of="f")(test.X).mean - test.y).square()
        for other in others:
            difference = (other.posterior(of="f")(test.X).mean - test.y).square() - first
            assert abs(float(difference.mean())) < float(difference.std()) / len(difference) ** 0.5
        assert len(test) == 30


class TestNeighbours:
    def test_errors_are_as_stated(self):
        for number, stated in {4: 0.273, 5: 0.267, 6: 0.43}.items():
            assert within(smse("neighbours", number, answered=True), stated, 0.01), number
        for number, stated in {4: -0.651, 5: -0.663}.items():
            run, at = at_part("neighbours", number, answered=True)
            assert run.scores(at)["snlp"] == pytest.approx(stated, abs=0.002)
        assert at_part("neighbours", 6, answered=True)[0].advance() is None  # converged

    def test_the_map_from_one_row_is_a_patchwork(self):
        X = torch.cartesian_prod(torch.linspace(0.2, 0.8, 200), torch.linspace(0.2, 0.8, 5)).double()
        low, high = (
            at_part("neighbours", 6)[0].problem.train.X.amin(0),
            at_part("neighbours", 6)[0].problem.train.X.amax(0),
        )
        jumps = []
        for number in (6, 4):
            run, at = at_part("neighbours", number, answered=True)
            mean = run.posterior(at).inner.mean(low + (high - low) * X).reshape(200, 5)
            jumps.append(float(mean.diff(dim=0).abs().amax()))
        assert jumps[0] > 4.0 * jumps[1]

    def test_late_rows_are_known_from_their_neighbours(self):
        run, at = at_part("neighbours", 3)
        near = run.method.near_rows(run.problem, run.trace[at].step.state, 400)
        noise = float(run.trace[at].step.state.theta[-1].exp())
        assert float(near.sd[-100:].median()) < 1.5 * noise < float(near.sd[:5].median())


class TestSeries:
    def test_objectives_are_as_stated(self):
        assert objective("series", 2) == pytest.approx(45.8, abs=0.05)
        assert objective("series", 2, answered=True) == pytest.approx(-10.5, abs=0.05)
        assert objective("series", 3, answered=True) == pytest.approx(objective("series", 3), abs=1e-6)
        assert objective("series", 4, answered=True) == pytest.approx(-6.4, abs=0.05)

    def test_the_band_of_the_filter_is_wider_in_the_gap_than_that_of_all_rows(self):
        run, at = at_part("series", 5)
        X = run.problem.train.X.sort(0).values
        widest = int(X[:, 0].diff().argmax())
        t = X[widest] + 0.7 * (X[widest + 1] - X[widest])
        _, var = run.method.filtered(run.problem, run.trace[at].step.state, t, float(t))
        assert float(var) > 1.5 * float(run.posterior(at).inner.var(t[None]))


def test_an_address_opens_a_part_and_leaves_out_the_rest():
    request = read_query("story=swaps&part=3", Spec(**START))
    assert (request.story, request.part, request.link.at) == ("swaps", 2, 60)
    assert request.hide == {"controls", "panels"}
    assert read_query("story=swaps&part=99", Spec(**START)).part == 5
    assert read_query("story=swaps&part=<b>", Spec(**START)).part == 0
    wrong = read_query("story=swap", Spec(**START))
    assert wrong.story == ""
    assert "did you mean 'swaps'?" in wrong.link.corrected[0]


def test_the_panel_goes_from_part_to_part_and_shows_an_answer_on_request(monkeypatch: pytest.MonkeyPatch):
    explorer = Explorer()
    try:
        explorer.adopt(read_query("story=blocks", Spec(**START)))
        story, opened = explorer.story, []
        monkeypatch.setattr(explorer.session.player, "run_to", lambda step: opened.append((story.number, step)))
        assert not explorer.title.visible
        assert not explorer.below.visible
        assert (story.back.disabled, story.next.disabled, story.show_answer.visible) == (True, False, False)
        story.go(1)
        assert explorer.session.spec.method == "bcd-gradient"
        assert "Only at −360" not in story.said.object
        assert "href='?story=blocks&amp;part=2'" in story.said.object
        assert opened == [(1, 3)]
        story.answer()
        assert "Only at −360" in story.said.object
        assert opened == [(1, 3), (1, 40)]
        story.go(-5)
        assert story.number == 0
        story.leave()
        assert explorer.title.visible
        assert explorer.below.visible
    finally:
        explorer.close()


def test_a_story_is_chosen_among_the_questions():
    explorer = Explorer()
    try:
        explorer.presets.value = "story:six-ways"
        explorer._choose_preset()
        assert explorer.session.spec.method == "ml"
        assert "One surface, six ways, 1 of 6" in explorer.story.said.object
        assert explorer.below.visible
    finally:
        explorer.close()
