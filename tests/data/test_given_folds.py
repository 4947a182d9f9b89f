"""Folds and groups given in place of a random draw: in cross-validation by ADMM, in `recommend`, and as a column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    RepeatedKFold,
    StratifiedKFold,
    TimeSeriesSplit,
)

import gpexplorer as gpx
from gpexplorer.data.given_folds import (
    drawn_folds,
    drawn_parts,
    drawn_share,
    fold_pairs,
    folds_of_rows,
    groups_of_rows,
)
from gpexplorer.errors import DataError, SettingError
from gpexplorer.methods.cross_validation.folds import split
from gpexplorer.methods.eigenfunctions import evidence
from gpexplorer.methods.inducing.selection.csi import CSI
from gpexplorer.methods.minibatches.model import Model
from gpexplorer.recommendation.arguments import rows_of
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.held_out import first_rows, parts

QUICK = {"max_iterations": 3, "rank": 60}


def measurements(shift=0.0):
    """Twelve patients of unequal size; each has an offset of its own."""
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(12), [1, 9, 2, 8, 3, 7, 4, 6, 5, 5, 1, 9])
    X = rng.uniform(-2, 2, (60, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60) + 0.3 * rng.normal(size=12)[patient]
    return X + shift, y + shift, patient


def cross_validated_error(run, theta, held_out):
    """The mean squared error of dense algebra on the rows that each fold holds out, in scaled units."""
    train, kernel, errors = run.problem.train, run.problem.kernel, []
    for rows in held_out:
        rest = np.setdiff1d(np.arange(len(train)), rows)
        K = kernel(theta, train.X[rest], train.X[rest]) + (2 * theta[-1]).exp() * torch.eye(len(rest))
        z = torch.linalg.solve(K, train.y[rest])
        errors.append((train.y[rows] - kernel(theta, train.X[rows], train.X[rest]) @ z).square())
    return float(torch.cat(errors).mean())


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("method", ["gpcv-admm", "gpcv-admm-holdout"])
def test_the_error_of_the_given_folds_is_minimised(method, shift):
    X, y, patient = measurements(shift)
    folds = GroupKFold(3) if method == "gpcv-admm" else GroupShuffleSplit(1, test_size=0.3, random_state=0)
    model = clone(gpx.Estimator(method=method, num_inducing=None, settings=QUICK, folds=folds))
    run = model.fit(X, y, groups=patient).run_
    held_out = [test for _, test in folds.split(X, y, patient)]
    info = run.trace[-1].step.info
    assert info.objective == pytest.approx(cross_validated_error(run, info.consensus, held_out), rel=1e-2)
    assert info.objective <= run.trace[1].step.info.objective


def test_rows_that_no_fold_holds_out_are_always_trained_on():
    X, y, _ = measurements()
    rows = np.arange(60)
    held_out = [rows[:7], rows[20:40]]
    folds = [(np.setdiff1d(rows, test), test) for test in held_out]
    run = gpx.Estimator("gpcv-admm", num_inducing=None, settings={**QUICK, "copies": True}, folds=folds).fit(X, y).run_
    state = run.trace[1].step.state
    assert len(state.folds) == 2
    assert state.best == pytest.approx(cross_validated_error(run, state.mean, held_out), rel=1e-2)


def test_groups_alone_stay_whole_in_every_fold_and_folds_are_balanced():
    _, _, patient = measurements()
    folds = drawn_folds(torch.from_numpy(patient), 4, seed=0).numpy()
    assert all(len(set(folds[patient == each])) == 1 for each in range(12))
    assert np.ptp(np.bincount(folds)) <= 2
    mask = drawn_share(torch.from_numpy(patient), 0.3, seed=1).numpy()
    assert all(len(set(mask[patient == each])) == 1 for each in range(12))
    assert 18 <= mask.sum() < 27


def test_parts_of_whole_groups_have_about_the_wanted_size_and_leave_out_what_is_never_held_out():
    _, _, patient = measurements()
    part = drawn_parts(torch.from_numpy(patient), 10, seed=0).numpy()
    assert all(len(set(part[patient == each])) == 1 for each in range(12))
    sizes = np.bincount(part)
    assert sizes.sum() == 60
    assert (sizes > 0).all()
    assert abs(sizes[0] - 10) == abs(sizes - 10).min()
    assert len(sizes) >= 4
    large = torch.tensor([0] * 40 + [1, 1, 2, -1, 3, 3])  # most rows are in one group, and a row is in none
    assert (drawn_parts(large, 5, seed=0) >= 0).tolist() == [False] * 40 + [True] * 3 + [False] + [True] * 2
    assert drawn_parts(torch.zeros(9, dtype=torch.int64), 3, seed=0).tolist() == [-1] * 9


def whole(table, rows):
    """Whether each group that has one of these rows has no row elsewhere."""
    every, part = table.groups.number, rows.groups.number
    return sum(int((every == each).sum()) for each in part.unique()) == len(part)


def test_minibatch_methods_set_whole_groups_aside_in_every_part():
    X, y, patient = measurements()
    model = gpx.Estimator("scgd", num_inducing=None, settings={"epochs": 2, "width": 8, "validation": 0.2})
    run = model.fit(X, y, groups=patient).run_
    train, method = run.problem.train, run.method
    folds = [Model(method, run.problem, method.validation, fold) for fold in range(method.num_folds(model_of(run)))]
    assert len(folds) > 1
    for fold in folds:
        assert whole(train, train.rows(fold.validation_rows))
        assert whole(train, train.rows(fold.learning_rows))
        assert sorted([*fold.validation_rows.tolist(), *fold.learning_rows.tolist()]) == list(range(60))
    assert len(torch.cat([fold.validation_rows for fold in folds]).unique()) == sum(
        len(fold.validation_rows) for fold in folds
    )
    one_group = replace(run.problem, train=replace(train, groups=train.groups._replace(number=torch.zeros(60).long())))
    assert len(Model(method, one_group, 0.2).validation_rows) == 0  # all rows are for learning
    assert gpx.Run(method, one_group).finish().reason == "budget"


def model_of(run):
    return Model(run.method, run.problem, run.method.validation)


def test_other_methods_that_hold_rows_out_hold_out_whole_groups(monkeypatch):
    X, y, patient = measurements()
    fitted, choose, validate = [], evidence.choose_by_evidence, CSI._choose

    def choose_by_evidence(functions, grid, theta, rows, *rest):
        fitted.append(rows)
        return choose(functions, grid, theta, rows, *rest)

    def chosen(self, problem, theta, among):
        fitted.append(problem.train.rows(among))
        return validate(self, problem, theta, among)

    monkeypatch.setattr(evidence, "choose_by_evidence", choose_by_evidence)
    monkeypatch.setattr(CSI, "_choose", chosen)
    grief = {"basis": "evidence", "num_eigenfunctions": 10, "max_rounds": 1, "evaluations": 5, "starts": 1}
    for key, settings in (("grief", grief), ("csi", {"num_inducing": 6, "grid_size": 1})):
        fitted.clear()
        run = gpx.Estimator(key, num_inducing=None, settings=settings).fit(X, y, groups=patient).run_
        part = [rows for rows in fitted if len(rows) < 60]
        assert len(part) >= (5 if key == "grief" else 1)
        assert all(whole(run.problem.train, rows) for rows in part)


def test_weights_of_zero_take_their_row_out_of_its_fold():
    X, y, patient = measurements()
    weights = np.ones(60)
    weights[patient == 1] = 0.0
    estimator = gpx.Estimator("gpcv-admm", num_inducing=None, settings={**QUICK, "max_iterations": 1})
    run = estimator.fit(X, y, sample_weight=weights, groups=patient).run_
    assert run.problem.train.groups.number.tolist() == patient[patient != 1].tolist()


def test_a_run_is_named_by_its_folds():
    X, y, _patient = measurements()
    settings = {**QUICK, "max_iterations": 1}
    first, second = (
        gpx.Estimator(
            "gpcv-admm", num_inducing=None, settings=settings, folds=KFold(3, shuffle=True, random_state=seed)
        )
        for seed in (0, 1)
    )
    assert first.fit(X, y).run_.spec.key() != second.fit(X, y).run_.spec.key()


@pytest.mark.parametrize(
    ("folds", "groups", "sentence"),
    [
        (RepeatedKFold(n_splits=3, n_repeats=2), False, "hold out each row once"),
        (TimeSeriesSplit(3), False, "leaves 30 of 60 rows out of both its halves"),
        (StratifiedKFold(3), False, "gives no folds of these 60 rows"),
        (GroupKFold(3), False, "gives no folds of these 60 rows"),
        ([], False, "folds is empty"),
        ([(range(60), [3])], False, "row 3 of fold 0 is a training row and held out"),
        ([(range(59), [60])], False, "names row 60"),
        ([(range(59), [])], False, "one at least"),
        ([1, 2], False, "fold 0 is 1"),
        (5, False, "folds is 5; give a splitter such as GroupKFold"),
        ("kfold", False, "folds is 'kfold'; give a splitter such as GroupKFold"),
        ([(range(30), range(30, 60))], False, "gpcv-admm-holdout for one fold"),
        (None, "short", "groups has shape"),
        (None, "same", "one value for all rows"),
    ],
)
def test_folds_that_cannot_be_used_are_refused_in_a_sentence(folds, groups, sentence):
    X, y, patient = measurements()
    group_column = {"short": patient[:10], "same": 0 * patient}.get(groups) if groups else None
    model = gpx.Estimator("gpcv-admm", num_inducing=None, settings=QUICK, folds=folds)
    with pytest.raises(SettingError, match=sentence):
        model.fit(X, y, groups=group_column)


def test_a_method_without_folds_refuses_them():
    X, y, patient = measurements()
    with pytest.raises(SettingError, match="'random' holds out no rows: leave groups out, or choose one of bsgd, csi"):
        gpx.Estimator("random", num_inducing=8).fit(X, y, groups=patient)
    with pytest.raises(SettingError, match="'scgd' takes no folds: leave folds out, or choose one of gpcv-admm"):
        gpx.Estimator("scgd", num_inducing=None, folds=KFold(3)).fit(X, y)


def test_the_held_out_rows_of_recommend_are_the_given_ones():
    X, y, patient = measurements()
    rows = rows_of(X, y)
    assert torch.equal(rows.train.X, torch.from_numpy(X))  # row numbers are those of the caller
    pairs = fold_pairs(TimeSeriesSplit(3), X, y)
    for part, (train, test) in zip(parts(rows, 0, pairs), pairs, strict=True):
        assert sorted(part.train.y.tolist()) == sorted(y[train])
        assert sorted(part.test.y.tolist()) == sorted(y[test])
    among = [Candidate("subset", "exact", "subset-of-data", "se-ard", {"num_rows": 20, "learn": False})]
    by_folds = gpx.recommend(X, y, seconds=0.5, among=among, folds=GroupKFold(5), groups=patient)
    assert by_folds.method == "subset-of-data"
    assert by_folds.expected["smse"].value > 0
    with_groups = gpx.recommend(X, y, seconds=0.5, among=among, groups=patient)
    groups = with_groups.run.problem.train.groups
    assert groups is not None
    assert groups.number.tolist() == groups_of_rows(patient, 60).number.tolist()


def test_with_groups_recommend_holds_out_whole_ones():
    X, y, patient = measurements()
    split = rows_of(X, y)
    rows = groups_of_rows(np.array([f"patient {k}" for k in patient]), 60)
    train = replace(split.train, groups=rows)
    divided = parts(replace(split, train=train), 0)
    few = first_rows(divided[0], 7).train  # a method that sets rows aside from these needs their groups, too
    assert few.groups.number.tolist() == divided[0].train.groups.number[:7].tolist()
    held_out = [set(part.test.groups.number.tolist()) for part in divided]
    assert len(held_out) == 3
    assert sorted(each for part in held_out for each in part) == list(range(12))
    assert folds_of_rows(fold_pairs(KFold(3), X, y), 60).number.tolist() == np.repeat([0, 1, 2], 20).tolist()


@pytest.fixture
def table(tmp_path):
    X, y, patient = measurements()
    path = tmp_path / "mine.csv"
    pd.DataFrame({"a": X[:, 0], "patient": [f"p{k}" for k in patient], "b": X[:, 1], "y": y}).to_csv(path, index=False)
    return path


def test_a_spec_names_the_column_of_groups(table):
    data = {"name": str(table), "groups": "patient"}
    spec = gpx.Spec("gpcv-admm", {**QUICK, "max_iterations": 1, "folds": 3}, data, split={"test": 0.25, "seed": 1})
    reread = gpx.Spec.from_json(spec.to_json())
    run = reread.open()
    run.finish()
    train, test = (set(part.groups.number.tolist()) for part in (run.split.train, run.split.test))
    assert run.problem.train.names == ("a", "b")
    assert train | test == set(range(12))
    assert not train & test
    [group] = split(run.problem, run.method.validation(len(run.problem.train)), 0, 1.0, shared=True)
    number = run.problem.train.groups.number
    row_of = {float(value): int(each) for value, each in zip(run.problem.train.y, number, strict=True)}
    held_out = [{row_of[float(value)] for value in group.y[part]} for part in group.validation]
    assert len(held_out) == 3
    assert sum(map(len, held_out)) == len(train)


def test_the_folds_of_a_file_have_whole_groups_and_cover_all_rows(table):
    held_out = [gpx.load(table, groups="patient", split=k).test for k in range(10)]
    assert sum(map(len, held_out)) == 60
    assert sum(len(part.groups.number.unique()) for part in held_out) == 12
    assert gpx.load(table, groups="patient").key != gpx.load(table, drop="patient").key


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"groups": "pateint"}, "has no column 'pateint'|has no column \"pateint\""),
        ({"groups": "y", "target": "y"}, "the group of each row, so it has no other use"),
        ({"groups": "a", "inputs": ["a"]}, "the group of each row, so it has no other use"),
    ],
)
def test_a_column_that_cannot_be_the_group_is_refused(table, options, sentence):
    with pytest.raises(DataError, match=sentence):
        gpx.load(table, **options)


def test_a_row_without_a_group_is_refused_or_left_out(table):
    frame = pd.read_csv(table)
    frame.loc[4, "patient"] = None
    with pytest.raises(DataError, match="patient"):
        gpx.load(frame, groups="patient")
    assert len(gpx.load(frame, groups="patient", missing="drop", split={"test": 0.5}).train) < 59
