"""A run that a person has changed is not the run of its spec: it says so, and is kept nowhere under the spec's name."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

import gpexplorer as gpx
from gpexplorer.errors import StoreError
from gpexplorer.problem import Step
from gpexplorer.runs import Run, Spec, Store
from gpexplorer.runs.studies import comparison, split_comparison
from gpexplorer.runs.studies.comparison import Finished
from gpexplorer.views.saved_page.page_file import page_of

SPEC = Spec("cholqr", {"num_inducing": 5}, data={"name": "snelson-like", "n": 70}, budget={"steps": 5})


@pytest.fixture(scope="module")
def run() -> Run:
    run = SPEC.open()
    run.finish()
    return run


def forced(run: Run, at: int) -> Step:
    state = run.trace[at].step.state
    row = next(row for row in range(len(run.problem.train)) if row not in state.inducing.tolist())
    return run.method.force_swap(run.problem, state, row, 1)


def test_a_run_says_what_was_changed_and_after_which_step(run: Run):
    assert not run.changes
    noise = run.with_hyperparameters(at=2, values={"noise": 0.61})
    assert str(noise.changes) == "noise = 0.61 after step 2"
    both = noise.with_hyperparameters(fixed=["noise"])
    assert str(both.changes) == "noise = 0.61 after step 2, noise fixed after step 3"
    assert str(both.fork(3).changes) == "noise = 0.61 after step 2, noise fixed after step 3"  # which still holds
    assert str(run.fork(1, forced(run, 1)).changes) == "a step by hand after step 1"
    problem = replace(run.problem, theta=run.problem.theta + 0.3)
    assert str(run.fork(4, problem=problem).changes) == "other hyperparameters after step 4"
    assert str(pickle.loads(pickle.dumps(both)).changes) == str(both.changes)


def test_a_fork_without_a_change_is_the_run_of_its_spec_also_after_changes_are_undone(run: Run):
    assert not run.fork(2).changes
    assert not pickle.loads(pickle.dumps(run)).fork().changes
    swapped = run.fork(3, forced(run, 3))
    assert not swapped.fork(3).changes
    noise = run.with_hyperparameters(at=2, values={"noise": 0.61})
    assert not noise.fork(2, problem=run.problem).changes
    assert str(noise.fork(1).changes) == "noise = 0.61 after step 1"  # its restrictions are those of the change
    assert str(noise.fork(3, forced(run, 3)).changes) == "noise = 0.61 after step 2, a step by hand after step 3"


def test_a_changed_run_is_not_kept_under_the_name_of_its_spec(run: Run, tmp_path: Path):
    store = Store(tmp_path)
    name, objectives = store.put(run), [record.step.info.objective for record in run.trace]
    changed = run.with_hyperparameters(at=2, values={"noise": 0.61})
    changed.finish(steps=8)
    with pytest.raises(StoreError, match=r"noise = 0.61 after step 2.*save_page.*kernel=run.hyperparameters.kernel"):
        store.put(changed)
    with pytest.raises(StoreError, match="a step by hand after step 3") as refused:
        Store(tmp_path / "empty").put(run.fork(3, forced(run, 3)))
    assert "kernel=" not in str(refused.value)
    assert not (tmp_path / "empty").exists()
    assert [record.step.info.objective for record in store.kept(name).records] == pytest.approx(objectives, nan_ok=True)

    unchanged = run.fork()
    unchanged.finish(steps=7)
    assert store.put(unchanged) == name
    assert len(store.kept(name).records) == 8
    begun = replace(SPEC, kernel=changed.hyperparameters.kernel()).open()  # the way out that the sentence names
    begun.finish(steps=2)
    assert store.put(begun) != name


def test_the_page_of_a_changed_run_has_no_program_and_says_why(run: Run):
    changed = run.with_hyperparameters(at=4, values={"lengthscale": 0.7})
    page = page_of(changed, ["convergence"])
    assert "How to repeat" not in page
    assert "changed by hand (lengthscale = 0.7 after step 4). No program repeats it." in page
    two = page_of({"as it was": run, "changed": changed}, ["convergence"])
    assert two.count("How to repeat") == 1
    assert re.search(r"<h2>changed</h2><p[^>]*>lengthscale = 0.7 after step 4</p>", two)


def test_changed_runs_are_told_from_the_run_of_their_spec_and_are_no_family(run: Run):
    changed = [run.with_hyperparameters(at=1, values={"noise": noise}) for noise in (0.3, 0.8)]
    for each in changed:
        each.finish()
    compared = gpx.Compare({"run": run, "low": changed[0], "high": changed[1]})
    assert compared.table()["differs"].to_dict() == {
        "run": "",
        "low": "noise = 0.3 after step 1",
        "high": "noise = 0.8 after step 1",
    }
    assert not len(compared.over_splits())
    repeated = split_comparison.repeated({"low": Finished.of(changed[0]), "run": Finished.of(run)}, splits=2)
    assert next(iter(repeated)) == "run"
    assert not split_comparison.repeated({"low": Finished.of(changed[0])}, splits=2)


def test_runs_with_the_same_split_and_seed_count_once_in_a_family(run: Run):
    seeds = {f"seed {seed}": replace(SPEC, seed=seed).open() for seed in (1, 2)}
    for each in seeds.values():
        each.finish()
    runs = {name: Finished.of(each) for name, each in {"run": run, "again": run.fork(), **seeds}.items()}
    (family,) = split_comparison.families(runs).values()
    assert list(family) == ["run", "seed 1", "seed 2"]
    table = split_comparison.table({"all": family})
    scores = [runs[name].last["smse"] for name in family]
    assert (table.loc["all", "number"], table.loc["all", "mean"]) == (3, pytest.approx(sum(scores) / 3))
    assert not split_comparison.families({name: runs[name] for name in ("run", "again", "seed 1")})
    assert comparison.table(runs)["differs"]["seed 2"] == "seed=2"
