"""Wrong arguments on the public shelf: a sentence that names the object, the number and the way out, and no work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array

import gpexplorer as gpx
from gpexplorer.errors import DataError, GPExplorerError, KernelError, RecordError, SettingError, StoreError
from gpexplorer.methods.base import registry
from gpexplorer.posteriors import AveragePosterior
from gpexplorer.posteriors.sample_paths import checked_size
from gpexplorer.runs import Run
from gpexplorer.runs.budget import Budget
from gpexplorer.runs.studies.race import Race
from gpexplorer.runs.studies.scaling_study import Scaling
from gpexplorer.runs.studies.sweep import around, grid, sweep
from toy_method import Toy

ROWS = {"name": "friedman1", "n": 40}
HUGE = 10**400
X_OF_FOUR = np.random.default_rng(1).uniform(size=(4, 10))
ROWS_OF_TWO = np.random.default_rng(0).normal(size=(12, 2))
LONGER = 10**5000  # more digits than Python writes


@pytest.fixture(scope="module", autouse=True)
def _toy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry, "toy", Toy)
        yield


def spec(**fields: Any) -> gpx.Spec:
    return gpx.Spec("toy", **{"data": ROWS, "kernel": "se", **fields})


@pytest.fixture(scope="module")
def run() -> Run:
    opened = spec().open()
    opened.finish(steps=2)
    return opened


CALLS: list[tuple[Callable[[], object], type[GPExplorerError], str]] = [
    (
        lambda: spec(seed=HUGE),
        SettingError,
        "seed is 1000.*give a whole number .* at most 9,007,199,254",
    ),
    (lambda: spec(seed=LONGER), SettingError, "seed is a int too long to write; give a whole number"),
    (lambda: spec(budget={"seconds": HUGE}), SettingError, "budget's seconds is 1000.*give a number above 0"),
    (lambda: spec(settings={"block": HUGE}), SettingError, "toy's block is 1000"),
    (lambda: spec(kernel=3), SettingError, 'kernel is 3; give a key, or {"name": key'),
    (lambda: spec(kernel=gpx.kernels.make("se", 2)), SettingError, "kernel is <kernel se, d=2.*give a key"),
    (lambda: gpx.Spec.from_json(None), SettingError, "The spec is None; give its JSON as text"),  # type: ignore[arg-type]
    (lambda: spec().open(store="here"), SettingError, r"give a Store, say gpexplorer.Store\('here'\)"),  # type: ignore[arg-type]
    (lambda: gpx.kernels.make("SE-ARD"), KernelError, "'SE-ARD' is not known; did you mean se-ard"),
    (lambda: gpx.kernels.make("nothing"), KernelError, "not known; choose one of anova, "),
    (lambda: gpx.load("friedman1", n=LONGER), DataError, 'n="a int too long to write" must be a whole number'),
    (lambda: spec().open().finish(steps=-1), SettingError, "budget's steps is -1; give a whole number of at least 0"),
    (lambda: spec().open().finish(seconds=float("nan")), SettingError, "budget's seconds is nan"),
    (lambda: grid(spec(), {"block": 3}), SettingError, "sweep over block is 3; give a list of values"),  # type: ignore[dict-item]
    (lambda: grid(spec(), {"kernel": "se"}), SettingError, "sweep over kernel is 'se'; give a list of values"),
    (lambda: grid(spec(), None), SettingError, "over is None; give names with lists"),  # type: ignore[arg-type]
    (lambda: around(spec(), "blok"), SettingError, "no setting 'blok'; did you mean 'block'"),
    (lambda: Race({"toy": spec()}, turn_seconds=0), SettingError, "turn_seconds is 0; give a number above 0"),
    (lambda: Race({"toy": spec()}).finish(float("nan")), SettingError, "seconds is nan; give a number of at least 0"),
    (lambda: Race({"toy": spec()}).scoreboard("smes"), SettingError, "keeps no 'smes'; did you mean 'smse'"),
    (lambda: Race({"toy": spec()}).stop("tot"), SettingError, "no lane 'tot'; did you mean 'toy'"),
    (lambda: Race([spec()]), SettingError, r'A race takes {"its name": Spec\(...\)}'),  # type: ignore[arg-type]
    (lambda: Race({"toy": "toy"}), SettingError, "A race: 'toy' is 'toy'; give a Spec, of a run its run.spec"),  # type: ignore[dict-item]
    (lambda: Race({"toy": spec()}).scoreboard(at=3), SettingError, "at is 3; give seconds in a list"),  # type: ignore[arg-type]
    (lambda: Race({"toy": spec()}).scoreboard(at=["x"]), SettingError, "moment of the scoreboard is 'x'"),  # type: ignore[list-item]
    (lambda: Race({"toy": spec()}).stop([]), SettingError, "has no lane"),  # type: ignore[arg-type]
    (lambda: sweep([spec()]), SettingError, r'A sweep takes {"its name": Spec\(...\)}, one at least'),  # type: ignore[arg-type]
    (lambda: sweep({}), SettingError, "A sweep takes .* and not {}"),
    (lambda: sweep({"a": "toy"}), SettingError, "A sweep: 'a' is 'toy'; give a Spec"),  # type: ignore[dict-item]
    (
        lambda: list(sweep({"a": spec(budget={"steps": 1})}, scheduler=3)),
        SettingError,
        "No Dask scheduler answers at 3",
    ),  # type: ignore[arg-type]
    (
        lambda: list(sweep({"a": spec(budget={"steps": 1})}, scheduler="localhost")),
        SettingError,
        "The scheduler is 'localhost'; give its port as well",
    ),
    (lambda: grid("toy", {"seed": [1]}), SettingError, "The spec of a sweep is 'toy'; give a Spec"),  # type: ignore[arg-type]
    (lambda: around("toy", "block"), SettingError, "The spec of a sweep is 'toy'; give a Spec"),  # type: ignore[arg-type]
    (lambda: Run("toy", None), SettingError, "this is 'toy'; give both, or open a Spec"),  # type: ignore[arg-type]
    (lambda: spec().open(store=gpx.Store), SettingError, "give a Store"),  # type: ignore[arg-type]
    (lambda: gpx.methods["cholqrr"], SettingError, "Method 'cholqrr' is not known; did you mean 'cholqr'"),
    (lambda: gpx.methods[["cholqr"]], SettingError, r"Method \['cholqr'\] is not known"),  # type: ignore[index]
    (lambda: gpx.data.fetch("kin40"), DataError, 'Did you mean "kin40k"'),
    (lambda: gpx.Spec.from_json('{"method": "toy", "method": "cg"}'), SettingError, "says 'method' twice; leave one"),
    (lambda: gpx.Spec.from_json('{"method": "toy", "settings": {"a": 1, "a": 1}}'), SettingError, "says 'a' twice"),
    (lambda: Scaling("toy", "n", [8]), SettingError, "What is to grow is 'toy'; give a Spec and the sizes"),  # type: ignore[arg-type]
    (lambda: Scaling(spec(), "n", []), SettingError, "The sizes are "),
    (lambda: Scaling(spec(), "n", iter(())), SettingError, "The sizes are "),  # type: ignore[arg-type]
    (lambda: Scaling(spec(), "n", 5), SettingError, "The sizes are 5; give whole numbers"),  # type: ignore[arg-type]
    (lambda: Scaling(spec(), "n", [8]).slope("time"), SettingError, "There is no slope of 'time'"),
    (lambda: gpx.Store(None), StoreError, "A store is a directory, not None"),  # type: ignore[arg-type]
    (lambda: gpx.Store("here\0there"), StoreError, "A store is a directory, not 'here"),
    (lambda: gpx.Store("nowhere").open("toy"), SettingError, "opens a Spec, not 'toy'"),  # type: ignore[arg-type]
    (lambda: gpx.Store("nowhere").annotate("toy", 3), StoreError, "note on run toy is 3; give text"),  # type: ignore[arg-type]
    (lambda: gpx.Store("nowhere").spec(None), StoreError, "has no run None; it has none"),  # type: ignore[arg-type]
    (lambda: spec().open().progress(3), SettingError, "budget is 3; give names with their values"),  # type: ignore[arg-type]
    (lambda: spec().open().progress({"step": 3}), SettingError, "budget has no 'step'; did you mean 'steps'"),
    (lambda: spec().open().progress({"steps": "x"}), SettingError, "budget's steps is 'x'"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("call", "kind", "says"), CALLS, ids=[says[:30] for _, _, says in CALLS])
def test_a_wrong_argument_is_answered_with_a_sentence(
    call: Callable[[], object], kind: type[GPExplorerError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        call()


INPUTS = {
    "missing or infinite values in 1 of 2 rows": np.ma.array(np.ones((2, 10)), mask=np.eye(2, 10, 9)),
    r"setting an array element .*toarray\(\)": csr_array(np.eye(10)),
    "are complex numbers": np.ones((2, 10)) + 1j,
    "not rows of numbers .*could not convert": [["a"] * 10],
    "not rows of numbers .*inhomogeneous": [[1.0], [2.0, 3.0]],
    "are complex numbers: give real and imaginary parts": torch.zeros(2, 10, dtype=torch.complex128),
    "missing or infinite values in 1 of 3 rows": np.vstack([np.zeros((2, 10)), np.full((1, 10), np.nan)]),
    r"shape \[10\]; the training data need \[rows, 10\]": np.zeros(10),
    "The table has no column 'x2' .*'x1'": pd.DataFrame(np.zeros((2, 10)), columns=["x1", *"bcdefghij"]),
}


@pytest.mark.parametrize("says", INPUTS)
def test_predictions_need_rows_of_numbers(run: Run, says: str) -> None:
    with pytest.raises(DataError, match=says):
        run.posterior()(INPUTS[says])


@pytest.mark.parametrize("at", ["x", 1.5, 99, float("nan")])
def test_a_record_that_is_not_there(run: Run, at: Any) -> None:
    with pytest.raises(RecordError, match=r"has no record .*; it has 3, from 0 to 2"):
        run.posterior(at=at)


@pytest.mark.parametrize(("name", "value"), [("num_inducing", "x"), ("nothing", 3)])
def test_what_is_put_into_the_settings_of_a_spec_is_checked_when_it_is_opened(name: str, value: Any) -> None:
    changed = gpx.Spec("cholqr", {"num_inducing": 3}, ROWS)
    changed.settings["num_inducing"] = 4
    opened = changed.open()
    changed.settings[name] = value
    with pytest.raises(SettingError, match=f"cholqr.* {name}|cholqr has no setting 'nothing'"):
        changed.open()
    assert opened.method.num_inducing == opened.spec.settings["num_inducing"] == 4  # type: ignore[union-attr,attr-defined]


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    theta = np.array([0.1, 0.2, -1.0])
    plain = spec(seed=3, settings={"block": 7}, data={"name": "friedman1", "n": 40}, split=1, budget={"steps": 2})
    of_numpy = spec(
        seed=np.int64(3), settings={"block": np.int32(7)}, data={"name": "friedman1", "n": np.int64(40)},
        split=np.int8(1), budget={"steps": np.uint8(2)},
    )  # fmt: skip
    assert plain.to_json() == of_numpy.to_json()
    for learned in (theta, torch.tensor(theta, requires_grad=True), theta.tolist()):
        assert spec(kernel={"name": "se", "theta": learned}).kernel == {"name": "se", "theta": theta.tolist()}
    for pair in (np.array([0.1, 2.0]), torch.tensor([0.1, 2.0], dtype=torch.float64)):
        assert spec(kernel={"name": "se", "bounds": {"noise": pair}}) == spec(
            kernel={"name": "se", "bounds": {"noise": [0.1, 2.0]}}
        )
    mine_rows, their_rows = (
        gpx.load("friedman1", n=40, split=1),
        gpx.load("friedman1", n=np.int64(40), split=np.int8(1)),
    )  # type: ignore[arg-type]
    assert mine_rows.key == their_rows.key


def test_a_kernel_takes_a_number_of_numpy() -> None:
    assert gpx.kernels.make("se-ard", np.int64(3)).names == gpx.kernels.make("se-ard", 3).names
    assert [1] not in gpx.methods


def test_sizes_from_a_generator_are_measured() -> None:
    assert Scaling(spec(), "n", (size for size in (16, 8, 16))).values == [8, 16]  # type: ignore[arg-type]


def test_a_sweep_over_methods_leaves_out_what_is_a_default_of_another_method() -> None:
    own = gpx.Spec("cholqr", {"num_inducing": 6, "learn": False}, ROWS)
    specs = grid(own, {"method": ["cholqr", "sgpr"], "tolerance": [0.5]})
    assert [each.method for each in specs.values()] == ["cholqr", "sgpr"]
    for each in specs.values():
        assert each == gpx.Spec(each.method, {"num_inducing": 6, "learn": False, "tolerance": 0.5}, ROWS)
    with pytest.raises(
        SettingError, match=r"grief has no setting .*; these are all settings of cholqr, so give settings"
    ):
        dataclasses.replace(gpx.Spec("cholqr"), method="grief")
    with pytest.raises(SettingError, match="gbcd has no setting 'num_inducing'"):
        grid(own, {"method": ["gbcd"]})


def test_a_sweep_over_an_array() -> None:
    assert list(grid(spec(), {"block": np.arange(3, 5)})) == ["block=3", "block=4"]  # type: ignore[dict-item]


OF_A_RUN: list[tuple[Callable[[Run], object], str]] = [
    (
        lambda run: run.posterior().log_density(run.split.test.X, [1.0, 2.0]),
        r"y has shape \[2\]; give one value for each",
    ),
    (lambda run: run.posterior().log_density(X_OF_FOUR, "abcd"), "y is 'abcd'; give numbers"),
    (lambda run: run.posterior().log_density(X_OF_FOUR, None), "y is None; give numbers"),
    (lambda run: run.posterior().quantile(X_OF_FOUR, "0.9%"), "q is '0.9%'; give numbers"),
    (lambda run: run.posterior().var(X_OF_FOUR, noise=0.1), "noise is 0.1; give True for an observation of f"),  # type: ignore[arg-type]
    (lambda run: run.posterior().quantile(X_OF_FOUR, 0.5, noise="f"), "noise is 'f'; give True"),  # type: ignore[arg-type]
    (lambda run: run.posterior().with_rows(X_OF_FOUR, range(4), [0.1]), r"noise has shape \[1\]; give one variance"),
    (lambda run: run.posterior().with_rows(X_OF_FOUR, list("abcd")), "y is .*; give numbers"),
    (
        lambda run: run.posterior().save("no folder/model"),
        "cannot be saved as 'no folder/model': give a file in a folder",
    ),
    (lambda run: run.posterior().save("."), "cannot be saved as '.': give a file"),
    (lambda run: run.posterior().save(None), "cannot be saved as None: give a file"),  # type: ignore[arg-type]
    (lambda run: gpx.load_posterior("nowhere"), "There is no file 'nowhere': give the path of a model that"),
    (lambda run: gpx.load_posterior("."), "'.' is a folder: give the path of a model in it that"),
    (lambda run: gpx.load_posterior(None), "There is no file None: give the path of a model"),  # type: ignore[arg-type]
    (lambda run: gpx.load_posterior(__file__), "cannot be read as a safetensors file .*: give the path of a model"),
    (lambda run: run.plot(None), "This run has no picture None. Choose one of"),
    (lambda run: run.plot(["fit"]), r"This run has no picture \['fit'\]; did you mean 'fit'"),
    (lambda run: run.save_page("run.pdf"), "A page cannot be saved as 'run.pdf': give an .html file"),
    (lambda run: run.save_page(None), "A page cannot be saved as None: give an .html file"),  # type: ignore[arg-type]
    (lambda run: run.spec.open(ROWS_OF_TWO), "Rows go to open.data="),  # type: ignore[union-attr,arg-type]
    (lambda run: run.plot("fit", at="last"), "A picture cannot have at='last'; give the index of a record"),  # type: ignore[arg-type]
    (lambda run: gpx.Picture(None), "A picture cannot have run=None; give what Spec.open returns"),
    (lambda run: gpx.Compare(5), "Compare takes runs.* and not 5"),  # type: ignore[arg-type]
    (lambda run: gpx.Compare([run]).curves("objektive"), "There is no 'objektive' to compare by; choose one of smse"),
    (lambda run: gpx.Compare([run]).table(top=2.5), "top is 2.5; give a whole number of at least 0"),  # type: ignore[arg-type]
    (lambda run: gpx.Compare([run]).table(top=-1), "top is -1; give a whole number of at least 0"),
    (lambda run: gpx.Compare([run, 5]), "Compare: '2 ' is 5; give a Run"),  # type: ignore[list-item]
    (lambda run: gpx.Compare({"a": "cholqr"}), "Compare: 'a' is 'cholqr'; give a Run"),  # type: ignore[dict-item]
    (lambda run: gpx.RunWidget(5), "plays a run, and not 5: give what Spec.open returns"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "says"), OF_A_RUN, ids=[says[:24] for _, says in OF_A_RUN])
def test_what_is_asked_of_a_run_says_what_is_wrong(
    call: Callable[[Run], object], says: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a file might appear
    with pytest.raises(GPExplorerError, match=says):
        call(run)


def test_what_is_looked_at_in_a_notebook_says_what_it_is(run: Run) -> None:
    assert repr(run) == "<Run of toy on 36 rows: 2 steps>"
    assert repr(gpx.load(ROWS).train) == "<Dataset of 36 rows: y from x1, x2, x3, x4, ...>"


ESTIMATORS: list[tuple[dict[str, Any], float, str]] = [
    ({"settings": 3}, 1.0, "settings is 3; give names with their values, or None"),
    ({"method": ["cholqr"]}, 1.0, r"Method \['cholqr'\] is not known"),
    ({"budget": 3}, 1.0, "budget is 3; give names with their values"),
    ({"random_state": "x"}, 1.0, "random_state is 'x'; give a whole number of at least 0"),
    ({"random_state": np.random.default_rng(0)}, 1.0, r"random_state is Generator\(PCG64\)"),
    ({"num_inducing": True}, 1.0, "num_inducing is True; give a whole number"),
    ({"budget": {"steps": 0}}, 1.0, "steps is 0; give 1 or more"),
    ({"verbose": "a"}, 1.0, "verbose is 'a'; give a whole number"),
    ({"warm_start": "a"}, 1.0, "warm_start is 'a'; give True or False"),
    ({"keep_run": 3}, 1.0, "keep_run is 3; give True or False"),
    ({"callbacks": 5}, 1.0, "callbacks is 5; give a list of functions"),
    ({}, 1e-300, r"y varies by .*e-300 in all, less than 1e-150.* multiplied by 1e200"),
    ({}, 1e200, "X or y holds numbers beyond 1e\\+150"),
]


@pytest.mark.parametrize(("settings", "times", "says"), ESTIMATORS, ids=[says[:20] for _, _, says in ESTIMATORS])
def test_an_estimator_says_what_is_wrong(settings: dict[str, Any], times: float, says: str) -> None:
    model = gpx.Estimator(**{"method": "random", **settings})
    with pytest.raises((SettingError, DataError), match=says):
        model.fit(ROWS_OF_TWO, times * ROWS_OF_TWO[:, 0])


@pytest.mark.parametrize("wrong", [{"spec": "cholqr"}, {"spec": ROWS_OF_TWO}, {"store": "a directory"}])
def test_an_explorer_takes_a_spec_and_a_store(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="takes a Spec and a Store"):
        gpx.Explorer(**wrong)


def test_a_run_says_when_its_last_step_went_far_beyond_the_seconds() -> None:
    budget = Budget(seconds=0.7)
    assert budget.overrun(0.9, before=0.0) == ""
    assert "It used 7.9 s, because its last step" in budget.overrun(7.9, before=0.69)
    assert Budget(steps=3).overrun(7.9, before=0.0) == ""


WRONG_KINDS: list[Any] = [
    slice(0, 2), True, 1.5, float("nan"), "1", None, [1], np.array([0, 1]), pd.Series([1.0]), pd.NA, object(), 1j,
]  # fmt: skip


@pytest.mark.parametrize("at", WRONG_KINDS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["posterior", "scores", "fork", "inducing_points", "hyperparameters_at"])
def test_a_record_is_named_by_its_index_alone(run: Run, name: str, at: Any) -> None:
    with pytest.raises(RecordError, match=r"has no record .*; it has 3, from 0 to 2"):
        getattr(run, name)(at)


META, SPARSE, NOTHING = torch.zeros(4, 10, device="meta"), torch.eye(4).to_sparse(), np.array(2)
AMBIGUOUS = [np.array(["a", "b"]), pd.Series(["a", "b"]), pd.NA, ["a"], slice(0, 2), {"a"}]
FEW = [0.0, 1.0, 2.0, 3.0]
KINDS: list[tuple[Callable[[Run, Any], object], list[Any], str]] = [
    (lambda run, v: run.posterior(of=v), AMBIGUOUS, 'of is .*; give "f" for the function'),
    (lambda run, v: spec(input_transform=v), AMBIGUOUS, "input_transform is"),
    (lambda run, v: spec(kernel={"name": "se", "start": v}), AMBIGUOUS, 'kernel is .*; give "start"'),
    (lambda run, v: gpx.load((X_OF_FOUR, FEW), missing=v), AMBIGUOUS, "missing=.* is not known"),
    (lambda run, v: gpx.data.fetch(v), AMBIGUOUS, "no data set"),
    (lambda run, v: around(spec(), v), AMBIGUOUS, "has no setting"),
    (lambda run, v: Scaling(spec(), v, [8]), AMBIGUOUS, "does not grow along"),
    (lambda run, v: gpx.Compare([run]).curves(v), AMBIGUOUS, "There is no .* to compare by"),
    (lambda run, v: gpx.recommend(X_OF_FOUR, FEW, prefer=v), AMBIGUOUS, "prefer is"),
    (lambda run, v: run.trace.series(v), [*AMBIGUOUS, 3, None], "A series is named by text.* and not by"),
    (lambda run, v: run.finish(seconds=v), [*AMBIGUOUS, META], "budget's seconds is"),
    (lambda run, v: run.hyperparameters_at(curvature=v), [*AMBIGUOUS, META, 1.5], "curvature is .*; give True or"),
    (lambda run, v: run.hyperparameters_at(gradient=v), [*AMBIGUOUS, META, 1.5], "gradient is .*; give True or"),
    (lambda run, v: run.fork(step=v), ["", 3, True, META], "The step of a fork is .*; give what a method yields"),
    (lambda run, v: run.fork(problem=v), ["", 3, META], "A run takes a Method and a Problem; this is"),
    (lambda run, v: run.using_mapper(v).__enter__(), [3, None], "The mapper is .*; give a function that"),
    (lambda run, v: run.posterior()(v), [META, [[HUGE] * 10]], 'device "meta" has no values|not rows of numbers'),
    (lambda run, v: run.posterior().log_density(X_OF_FOUR, v), [META, [HUGE] * 4], "no values: give one that|y is"),
    (lambda run, v: checked_size(v), [HUGE, 0], "size is .*; give the number of samples, "),
    (
        lambda run, v: run.posterior().asked_for("y", v),
        [*AMBIGUOUS, META, -1.0, float("nan"), float("inf"), HUGE, True],
        "noise_variance is .*; give a number of at least 0",
    ),
    (lambda run, v: AveragePosterior([run.posterior()], [1]).asked_for("y", v), [-1.0, "much"], "noise_variance is"),
    (lambda run, v: run.plot(at=v).layers, [1.5, float("nan"), True], "has no record"),
    (lambda run, v: spec(kernel={"name": "se", "theta": v}), [META, SPARSE], "kernel is .*; give text"),
    (lambda run, v: spec(kernel={"name": "se", "bounds": {"noise": v}}), [META, SPARSE], "two numbers"),
    (lambda run, v: gpx.load((v, FEW)), [META], 'shape .4, 10. on the device "meta" has no values'),
    (lambda run, v: gpx.load((X_OF_FOUR, FEW), inputs=v), [NOTHING], "2"),
    (lambda run, v: gpx.load("friedman1", noise=v), [HUGE, -1.0], "noise=.* is not a standard deviation"),
    (lambda run, v: gpx.kernels.make("se", v), [META, np.array(1.5), True], "d is .*; give the number of inputs"),
    (lambda run, v: Scaling(spec(), "n", v), [NOTHING], "The sizes are array.2.; give whole numbers"),
    (lambda run, v: grid(spec(), {"seed": v}), [NOTHING, META, [object()]], "give a (list of values|whole number)"),
    (lambda run, v: gpx.Compare(v), [NOTHING], "Compare takes runs"),
    (lambda run, v: gpx.recommend(ROWS_OF_TWO, ROWS_OF_TWO[:, 0], among=v), ["ab", [1]], "One of among is"),
    (lambda run, v: gpx.recommend(ROWS_OF_TWO, ROWS_OF_TWO[:, 0], on_progress=v), [3, "x"], "on_progress is"),
    (lambda run, v: gpx.recommend(ROWS_OF_TWO, ROWS_OF_TWO[:, 0], should_stop=v), [3, None], "should_stop is"),
    (lambda run, v: gpx.recommend(ROWS_OF_TWO, ROWS_OF_TWO[:, 0], groups=v), [META], "has no values"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "values", "says"), KINDS, ids=[says[:24] for *_, says in KINDS])
def test_a_value_of_another_kind_is_refused_without_asking_whether_it_is_true(
    call: Callable[[Run, Any], object], values: list[Any], says: str, run: Run
) -> None:
    for value in values:
        with pytest.raises(GPExplorerError, match=says):
            call(run, value)


@pytest.mark.parametrize("name", ["return_std", "return_cov"])
def test_flags_of_an_estimator_are_true_or_false(name: str) -> None:
    model = gpx.Estimator(method="random", budget={"steps": 1}).fit(ROWS_OF_TWO, ROWS_OF_TWO[:, 0])
    for value in (*AMBIGUOUS, META, "yes", None, 1.0):
        with pytest.raises(SettingError, match=f"{name} is .*; give True or False"):
            model.predict(ROWS_OF_TWO, **{name: value})
    for value in (True, np.True_, 1, np.array(True)):
        assert len(model.predict(ROWS_OF_TWO, **{name: value})) == 2
