"""A spec is checked where it is made, reads the same however it was written, and names what it computes."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpexplorer import Spec, data, methods
from gpexplorer.errors import DataError, GPExplorerError, KernelError, SettingError
from gpexplorer.methods.base import registry
from toy_method import ROWS, Toy


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry, "toy", Toy)


def toy(**fields: Any) -> Spec:
    return Spec("toy", **{"data": ROWS, **fields})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"settings": {"blok": 4}}, r"toy has no setting 'blok'; did you mean 'block'\? Choose one of block, fault,"),
    ({"settings": {"block": 0}}, "toy's block is 0; give a whole number of at least 1."),
    ({"settings": {"block": -5}}, "toy's block is -5"),
    ({"settings": {"block": 1e9}}, "toy's block is 1000000000.0; give a whole number"),
    ({"settings": {"block": math.nan}}, "toy's block is nan"),
    ({"settings": {"block": True}}, "toy's block is True; give a whole number"),
    ({"settings": {"block": "4"}}, "toy's block is '4'"),
    ({"settings": {"block": None}}, "toy's block is None"),
    ({"settings": {"shrink": math.nan}}, "toy's shrink is nan; give a number"),
    ({"settings": {"shrink": math.inf}}, "toy's shrink is inf"),
    ({"settings": {"shrink": 2.0}}, "toy's shrink is 2.0"),
    ({"settings": {"fault": "loud"}}, "toy's fault is 'loud'; give one of '', 'known'"),
    ({"settings": {"greedy": 1}}, "toy's greedy is 1; give true or false."),
    ({"settings": {"window": [0.0, 1.5]}}, r"toy's window is \[0.0, 1.5\]; give a pair of numbers"),
    ({"settings": {"window": [0.0, math.nan]}}, "toy's window is"),
    ({"settings": {"seed": 3}}, "The seed is a field of the spec"),
    ({"settings": {"block": torch.tensor(4)}}, "toy's block is tensor"),
    ({"settings": [1]}, r"settings is \[1\]; give names"),
    ({"seed": -1}, "seed is -1; give a whole number of at least 0"),
    ({"seed": 1.5}, "seed is 1.5"),
    ({"seed": 2**60}, "seed is 1152921504606846976"),
    ({"split": -1}, "split is -1"),
    ({"split": "first"}, "split is 'first'"),
    ({"split": {"test": math.inf}}, "split is .*give text, finite numbers"),
    ({"data": ""}, "data is ''"),
    ({"data": np.ones(3)}, r"arrays go to open\(data=...\)"),
    ({"data": {"name": {1, 2}}}, "data is .*give text, finite numbers"),
    ({"kernel": {"key": "se"}}, "kernel is .*give a key, or"),
    ({"kernel": {"name": "se", "theta": [0.0, math.inf]}}, "kernel is .*finite"),
    ({"kernel": {"name": "se", "theta": [0.0, 1e4]}}, "An entry of theta is 10000.0; give a number .* at most 100"),
    ({"dtype": "float16"}, "dtype is 'float16'; give one of float64, float32."),
    ({"device": "gpu"}, "device is 'gpu'; give"),
    ({"device": "cuda:0; import os"}, "device is 'cuda:0; import os'"),
    ({"input_transform": "sqrt"}, 'input_transform is "sqrt"; give "log"'),
    ({"target_transform": "log 3"}, 'target_transform is \'log 3\'; give "log", "yeo-johnson", or'),
    ({"target_transform": "yeo-johnson 5"}, "is 'yeo-johnson 5', and its number is not between 0 and 2; give"),
    ({"target_transform": "yeo-johnson nan"}, "is 'yeo-johnson nan', and its number is not between 0 and 2"),
    ({"target_transform": "yeo-johnson half"}, "is 'yeo-johnson half', and its number is not between 0 and 2"),
    ({"target_transform": "box-cox"}, "target_transform is 'box-cox'; give"),
    ({"target_transform": 7}, "target_transform is 7; give"),
    ({"target_transform": None}, "target_transform is None; give"),
    ({"target_transform": "y" * 10_000}, "target_transform is 'yyyyy"),
    ({"budget": {"minutes": 1}}, "A budget has no 'minutes'"),
    ({"budget": {"steps": -1}}, "The budget's steps is -1"),
    ({"budget": {"seconds": 0}}, "The budget's seconds is 0; give a number above 0."),
    ({"budget": {"seconds": math.inf}}, "The budget's seconds is inf"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_what_cannot_be_run_is_refused_with_a_sentence(fields: dict[str, Any], message: str):
    with pytest.raises(SettingError, match=message):
        toy(**fields)


@pytest.mark.parametrize(
    ("method", "setting", "span"),
    [("gpcv-admm-holdout", "fraction", "above 0 and below 1"), ("grief", "tolerance", "of at least 0 and at most 1")],
)
def test_a_refusal_says_whether_a_bound_is_allowed_itself(method: str, setting: str, span: str):
    with pytest.raises(SettingError, match=f"{setting} is 1.5; give a number {span}."):
        Spec(method, settings={setting: 1.5})


def test_unknown_methods_and_kernels_are_answered_with_what_was_meant():
    with pytest.raises(SettingError, match=r"Method 'tyo' is not known; did you mean 'toy'\? Choose one of altern"):
        Spec("tyo")
    with pytest.raises(KernelError, match="se-ard"):
        Spec("toy", kernel="se-adr")


def test_a_refused_value_cannot_fill_the_screen():
    with pytest.raises(SettingError) as refused:
        toy(settings={"fault": "x" * 10_000})

    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("key", sorted(methods))
def test_every_methods_defaults_make_a_spec_that_survives_json(key: str):
    spec = Spec(key, data="friedman1")

    reread = Spec.from_json(spec.to_json())

    assert reread == spec
    assert hash(reread) == hash(spec)
    assert reread.key() == spec.key()
    assert set(spec.settings) == set(registry[key].param) - {"name", "seed"}


def test_the_same_meaning_reads_the_same_however_it_was_written():
    first = toy(settings={"shrink": 1, "window": (0, 1)}, kernel="se * linear", budget={"seconds": 5})
    other = toy(settings={"window": [0.0, 1.0], "shrink": 1.0}, kernel={"name": "se*linear"}, budget={"seconds": 5.0})

    assert first.to_json() == other.to_json()
    assert json.loads(first.to_json())["settings"]["shrink"] == 1.0
    assert first.kernel == "se*linear"


def test_the_same_transform_of_the_target_is_the_same_text():
    written = {
        "": ["", " "],
        "log": ["log", " log "],
        "yeo-johnson": ["yeo-johnson", "yeo-johnson\n"],
        "yeo-johnson 0.5": ["yeo-johnson 0.5", "yeo-johnson  0.50", "yeo-johnson 5e-1"],
        "yeo-johnson 2": ["yeo-johnson 2", "yeo-johnson 2.0"],
    }

    for text, forms in written.items():
        specs = [toy(target_transform=form) for form in forms]
        assert {spec.target_transform for spec in specs} == {text}
        assert len({spec.to_json() for spec in specs}) == len({spec.key() for spec in specs}) == 1
        assert Spec.from_json(specs[0].to_json()) == specs[0]


def test_a_spec_without_a_transform_has_the_name_that_it_had_before_there_were_any():
    rows = {"name": "friedman1", "n": 200}
    spec = Spec("cholqr", {"num_inducing": 16}, rows, kernel="se", seed=5, budget={"steps": 9})

    assert "target_transform" not in spec.to_json()
    assert spec.key() == "cce8788da9dcd210"  # computed by commit 7e24046, which knows no transform
    assert Spec("ml", data="kin40k").key() == "99ee11bbf753a991"
    assert Spec.from_json(spec.to_json()).target_transform == ""
    assert json.loads(replace(spec, target_transform="log").to_json())["target_transform"] == "log"


def test_a_default_changed_later_does_not_change_an_old_spec(monkeypatch: pytest.MonkeyPatch):
    old = toy()
    monkeypatch.setattr(Toy.param["block"], "default", 9)

    assert Spec.from_json(old.to_json()).settings["block"] == 4
    assert toy().settings["block"] == 9
    assert toy().key() != old.key()


def test_the_key_names_what_is_computed_and_not_for_how_long():
    spec = toy()

    assert replace(spec, budget={"seconds": 9}).key() == spec.key()
    changes = [
        {"settings": {"block": 5}},
        {"seed": 1},
        {"split": 1},
        {"data": "hypercube"},
        {"kernel": "se"},
        {"dtype": "float32"},
        {"target_transform": "log"},
        {"target_transform": "yeo-johnson"},
        {"target_transform": "yeo-johnson 0.5"},
    ]
    keys = {toy(**change).key() for change in changes}
    assert len(keys | {spec.key()}) == len(changes) + 1
    assert len(spec.key()) == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "The spec is not JSON"),
        ("[" * 50_000, "The spec is not JSON"),
        ("[1]", r"The spec is \[1\]; it must be one object"),
        ("{}", "names no method. Choose one of alternating-projections"),
        ('{"method": "toy", "gpexplorer": 2}', "of version 2; this gpexplorer reads version 1: install the one"),
        ('{"method": "toy", "exec": "import os"}', "A spec has no field 'exec'"),
        ('{"method": "toy", "seed": NaN}', "seed is nan"),
        ('{"method": ["toy"]}', r"Method \['toy'\] is not known"),
        ('{"method": "toy", "sed": 1}', "did you mean 'seed'"),
        (" " * 200_000, "longer than 100000 characters"),
        (b"\xff\xfe{", "The spec is not JSON"),
    ],
)
def test_json_that_is_no_spec_is_refused(text: str, message: str):
    with pytest.raises(GPExplorerError, match=message):
        Spec.from_json(text)


def test_what_was_passed_in_can_change_without_changing_the_spec():
    settings, rows = {"block": 5}, dict(ROWS)
    spec = Spec("toy", settings, rows)
    settings["block"], rows["n"] = 6, 7

    assert spec.settings["block"] == 5
    assert spec.data == ROWS


def test_open_makes_the_run_it_describes():
    kernel = {"name": "se", "theta": [0.5, 1, -2]}
    spec = toy(settings={"block": 7, "window": [0.25, 0.5]}, seed=5, dtype="float32", kernel=kernel)

    run = spec.open()

    assert (run.method.block, run.method.window, run.method.seed) == (7, (0.25, 0.5), 5)
    assert run.problem.train.y.dtype == run.problem.theta.dtype == torch.float32
    assert run.problem.theta.tolist() == [0.5, 1.0, -2.0]
    assert float(run.problem.train.X.mean()) == pytest.approx(0.0, abs=1e-6)
    assert run.spec == spec
    assert run.spec is not spec  # what is put into its dicts later is not of this run
    assert run.finish(steps=2).reason == "budget"


def test_a_theta_of_the_wrong_length_is_refused_with_the_names():
    with pytest.raises(SettingError, match=r"theta has 2 entries; se on these data takes 3 \(.*noise\)"):
        toy(kernel={"name": "se", "theta": [0.0, 0.0]}).open()


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(SettingError, match="device is 'cuda', but torch sees no GPU here"):
        toy(device="cuda").open()


def test_data_in_memory_are_named_by_their_content():
    rows = np.random.default_rng(0).normal(size=(40, 3))
    spec = Spec("toy")
    run, other = spec.open(data=(rows, rows[:, 0])), spec.open(data=(rows, rows[:, 1]))

    kept = run.spec
    assert kept is not None
    assert other.spec is not None
    assert kept.key() != other.spec.key()
    assert spec.open(data=(rows.copy(), rows[:, 0].copy())).spec == kept
    assert Spec.from_json(kept.to_json()).open(data=(rows, rows[:, 0])).spec == kept
    with pytest.raises(DataError, match="were in memory: pass them again"):
        kept.open()
    with pytest.raises(DataError, match="the spec was made for"):
        kept.open(data=(rows, rows[:, 1]))


def test_a_split_already_scaled_is_the_same_data():
    split = data.load(ROWS)

    raw, scaled = toy().open(data=split), toy().open(data=split.scaled())

    assert raw.spec == scaled.spec
    assert torch.equal(raw.problem.train.y, scaled.problem.train.y)


def test_a_path_is_kept_as_text(tmp_path: Path):
    assert Spec("toy", data=tmp_path / "rows.csv").data == str(tmp_path / "rows.csv")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [key for key in methods if methods[key].added_settings])
def test_a_spec_from_before_settings_were_added_keeps_its_meaning_and_its_name(key: str):
    added, today = methods[key].added_settings, Spec(key)
    settings = {name: value for name, value in today.settings.items() if name not in added}

    earlier = Spec.from_json(json.dumps({"gpexplorer": 1, "method": key, "settings": settings}))

    fields = json.loads(earlier.to_json())
    del fields["budget"]
    fields["settings"] = settings
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert earlier.key() == hashlib.sha256(text.encode()).hexdigest()[:16]  # its name when it was written
    assert (earlier.settings != today.settings) == any(earlier.settings[name] != today.settings[name] for name in added)
    assert (earlier.key() != today.key()) == (earlier.settings != today.settings)
    assert Spec.from_json(earlier.to_json()) == earlier
    for name, value in added.items():
        assert earlier.settings[name] == (value(earlier.settings) if callable(value) else value)


@pytest.mark.parametrize(
    ("fields", "whole"),
    [
        ({"data": {"name": "friedman1", "n": 40.0, "seed": 3.0}}, {"data": {"name": "friedman1", "n": 40, "seed": 3}}),
        ({"split": {"folds": 4.0, "fold": 1.0}}, {"split": {"folds": 4, "fold": 1}}),
        ({"split": {"test": 0.5, "seed": 2.0}}, {"split": {"test": 0.5, "seed": 2}}),
    ],
)
def test_a_whole_float_is_the_integer_that_is_meant(fields: dict[str, Any], whole: dict[str, Any]):
    given, meant = Spec("random", **fields), Spec("random", **whole)

    assert given.to_json() == meant.to_json()
    assert given.key() == meant.key()
    assert given.open().split.key == meant.open().split.key


def test_equal_specs_have_one_hash_also_where_a_number_may_be_written_in_two_ways():
    one, other = (Spec("random", data={"name": "friedman1", "noise": noise}) for noise in (2, 2.0))

    assert one == other
    assert len({one, other, Spec("random", data={"name": "friedman1", "noise": 2.5})}) == 2
    with pytest.raises(DataError, match="must be a whole number"):
        Spec("random", data={"name": "friedman1", "n": 40.5}).open()
