"""Every setting has a label in plain words that fits, and no two settings of a method have the same."""

from __future__ import annotations

import pytest

from gpexplorer.methods.base import Method, registry
from gpexplorer.runs.studies.setting_labels import LABELS, MAX_LABEL, label_of
from gpexplorer.ui.inputs.controls import FAMILIES, by_family

PLAIN = {"activation", "chains", "epochs", "folds", "frequencies", "grid_points", "iterations", "momentum", "objective",
         "points_per_input", "swaps_per_epoch", "damping", "num_inducing"}  # fmt: skip  # names that are plain words


def shown(method: type[Method]) -> dict[str, str]:
    """The settings of a method that have a control, with their docs."""
    used = set(method.used_settings()) - {"name", "seed"}
    return {name: setting.doc or "" for name, setting in method.param.objects().items() if name in used}


@pytest.mark.parametrize("key", sorted(registry))
def test_the_labels_of_a_method_are_words_that_fit_and_differ(key: str):
    docs = shown(registry[key])
    labels = {name: label_of(name, doc) for name, doc in docs.items()}

    assert len(set(labels.values())) == len(labels)
    assert max(map(len, labels.values()), default=0) <= MAX_LABEL
    said_itself = {name for name, doc in docs.items() if ":" in doc and labels[name] == doc.partition(":")[0]}
    assert set(labels) - said_itself <= set(LABELS) | PLAIN  # a new setting has to be given a label


def test_the_table_has_no_label_for_a_setting_that_does_not_exist():
    names = {name for method in registry.values() for name in method.param}

    assert set(LABELS) <= names
    assert max(map(len, LABELS.values())) <= MAX_LABEL


def test_every_family_of_the_method_selector_has_a_title():
    assert {method.family for method in registry.values()} <= set(FAMILIES)
    assert list(by_family())[-1] == "Nearest rows and series"
