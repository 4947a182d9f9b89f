"""What `recommend` is given: an amount of memory in words, and rows of which some are copies."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpexplorer.errors import KernelError, SettingError
from gpexplorer.problem import Dataset, RowGroups
from gpexplorer.recommendation import arguments, halving
from gpexplorer.recommendation.arguments import bytes_of, repeated_rows
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.halving import recommend


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("2 GB", 2e9),
        ("1.5kb", 1500.0),
        (" 7 MB ", 7e6),
        ("0.5 TB", 5e11),
        ("9", 9.0),
        ("9 B", 9.0),
        (0.5, 0.5),
        (3, 3.0),
    ],
)
def test_memory_is_a_number_of_bytes_or_a_number_with_a_unit(memory: str | float, expected: float):
    assert bytes_of(memory) == expected


@pytest.mark.parametrize("memory", [0, -1.0, "0 GB", "2 PB", "much", "1.2.3 GB", ""])
def test_memory_that_is_no_amount_is_refused(memory: str | float):
    with pytest.raises(SettingError, match="memory"):
        bytes_of(memory)


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 1.5), ("seed", -1), ("seconds", 0.0), ("prefer", "r2"), ("among", [])]
)
def test_arguments_that_cannot_be_used_are_named(name: str, value: object):
    X = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(SettingError, match=name):
        recommend(X, X.sum(1), **{"seconds": 0.5, name: value})  # type: ignore[arg-type]


POINTS = Candidate("points", "inducing points", "cholqr", "se-ard", {"num_inducing": 12})


@pytest.mark.parametrize(
    ("among", "error", "words"),
    [
        ([], SettingError, "among is empty"),
        ([POINTS, replace(POINTS, method="cholrq")], SettingError, "did you mean 'cholqr'"),
        ([replace(POINTS, kernel="mattern52")], KernelError, "did you mean matern52"),
        ([replace(POINTS, settings={"num_inducing": "few"})], SettingError, "num_inducing is 'few'"),
        ([replace(POINTS, target_transform="sqrt")], SettingError, "target_transform is 'sqrt'"),
    ],
)
def test_candidates_that_make_no_spec_are_refused_before_any_work(among, error, words, monkeypatch):
    monkeypatch.setattr(halving, "fitted_members", lambda *_: pytest.fail("models were fitted first"))
    X = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(error, match=words):
        recommend(X, X.sum(1), seconds=0.5, among=among)


def test_half_of_the_free_memory_may_be_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arguments, "free_memory", lambda: 8e9)
    assert bytes_of(None) == 4e9


def test_rows_repeat_an_earlier_one_if_their_target_does_and_no_groups_keep_them_together(
    monkeypatch: pytest.MonkeyPatch,
):
    X, y = torch.tensor([[1.0], [1.0], [1.0], [2.0], [2.0]]), torch.tensor([3.0, 3.0, 3.0, 4.0, 5.0])
    assert repeated_rows(Dataset(X, y)) == 2
    assert repeated_rows(Dataset(X, y, groups=RowGroups(torch.arange(5), are_folds=False))) == 0
    assert repeated_rows(Dataset(["a"] * 5, y)) == 0
    monkeypatch.setattr(arguments, "MOST_COMPARED", 5)
    assert repeated_rows(Dataset(X, y)) == 2
    monkeypatch.setattr(arguments, "MOST_COMPARED", 4)
    assert repeated_rows(Dataset(X, y)) == 0
