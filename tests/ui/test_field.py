"""Controls of the sidebar: what a browser may send, and what it may not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from bokeh.document import Document

import gpexplorer as gpx
from gpexplorer.ui.inputs.controls import Controls
from gpexplorer.ui.inputs.field import Field
from gpexplorer.ui.inputs.method_settings import Settings
from gpexplorer.ui.text import with_minus_signs

CHOICES = {"first": {"a": 1, "b": None}, "second": {"c": "three"}}


def field(value: Any, choices: Any = None, **params: Any) -> tuple[Field, list[Any]]:
    seen: list[Any] = []
    control = Field("label", value, lambda: seen.append(control.value), choices, **params)
    return control, seen


@pytest.mark.parametrize(
    ("value", "choices", "accepted", "refused"),
    [
        (3, None, [4, 5.0, -1], [True, 4.5, math.nan, math.inf, "4", None, [1], {}]),
        (3.0, None, [4, 0.5], [False, math.nan, math.inf, 1e301, "4", None]),
        (True, None, [False], [0, 1, "yes", None]),
        (1, CHOICES, [0, 2, 1.0], [-1, 3, 0.5, True, "c", None]),
    ],
)
def test_only_values_that_the_control_can_have_are_taken(value: Any, choices: Any, accepted: list, refused: list):
    control, seen = field(value, choices)

    for message in refused:
        control._handle_msg(message)
    assert (control.value, seen) == (value, [])
    for message in accepted:
        control._handle_msg(message)
    offered = [1, None, "three"]
    assert seen == [offered[int(message)] if choices else message for message in accepted]
    assert all(type(entry) is not float or type(value) is float for entry in seen)


def test_the_browser_cannot_set_the_value_past_the_check_and_a_disabled_control_not_at_all():
    control, seen = field(3, default=5)
    control.shown = "<b>"
    assert (control.value, control.default) == (3, 5)
    control.disabled = True
    control.enter(4)
    assert (control.value, seen) == (3, [])

    chosen, seen = field("three", CHOICES, default=None)
    chosen.choose_from({"a": 1}, 7)
    assert chosen.value is None
    assert seen == []


def test_every_setting_of_every_method_has_a_control_that_shows_its_default():
    own = {key: method for key, method in gpx.methods.items() if method.__module__.startswith("gpexplorer.")}
    assert len(own) > 30
    for key, method in own.items():
        shown = Settings(method, {}, lambda: None)
        for name, control in shown.widgets.items():
            default = method.param[name].default
            assert control.value == default, (key, name)
            assert type(control.value) is type(default) or isinstance(default, int | float), (key, name)
            assert control.shown == control.default, (key, name)
            assert control.hint == with_minus_signs(f"{method.param[name].doc} In Python: {name}.")
        gpx.Spec(key, shown.values)


@pytest.mark.parametrize(("method", "rows", "m"), [
    ("cholqr", 1000, "64"), ("sgpr", 50, "50"), ("kmeans", 2_000_000, "64"), ("titsias", 36_000, "189"),
])  # fmt: skip
def test_the_number_of_inducing_points_that_0_stands_for_is_beside_the_control(method: str, rows: int, m: str):
    spec = gpx.Spec(method, {"num_inducing": 0})
    controls = Controls(spec, lambda: None)
    points = controls.settings.widgets["num_inducing"]
    assert points.zero == "0 is automatic"

    controls.describe(rows)
    assert (points.value, points.zero) == (0, f"0 is automatic: {m}")
    controls.adopt(spec)  # as "Use it" does: the fields are new
    assert controls.settings.widgets["num_inducing"].zero == f"0 is automatic: {m}"
    controls.describe(7)
    assert controls.settings.widgets["num_inducing"].zero == "0 is automatic: 7"


def test_a_heading_says_what_is_chosen_under_it_after_a_person_and_after_a_spec():
    controls = Controls(gpx.Spec("cholqr", kernel="se"), lambda: None)

    def said(title: str) -> str:
        return str(controls.sections._headings[title].object).partition("</b>")[2]

    assert said("Kernel") == "<span>squared exponential</span>"
    controls.seed.enter(3)
    controls.method.enter("scgd")
    assert said("Run") == "<span>seed 3, split 0</span>"
    assert said("Kernel") == "<span>features of the method</span>"
    controls.adopt(gpx.Spec("cholesky", kernel="matern32*periodic", split=2, dtype="float32"))
    assert [said(title) for title in ("Kernel", "Run", "Machine")] == [
        "<span>matern32 × periodic</span>", "<span>seed 0, split 2</span>", "<span>32 bit, processor</span>",
    ]  # fmt: skip
    controls.sections.unfold("Run")
    assert controls.sections._layout.active == [3]


@pytest.mark.parametrize(("split", "words"), [
    ({"test": 0.25, "seed": 7}, "(seed 7, test 0.25)"),
    ({"folds": 4, "fold": 3}, "(fold 3, folds 4)"),
    ("all", "all"),
])  # fmt: skip
def test_a_split_that_is_no_number_stays_until_a_person_chooses_one_and_the_heading_names_it(split: object, words: str):
    spec = gpx.Spec("cholesky", split=split)
    controls = Controls(spec, lambda: None)
    controls.seed.enter(3)
    assert controls.split.shown is None
    assert f"seed 3, split {words}" in controls.sections._headings["Run"].object
    assert controls.apply_to(spec) == replace(spec, seed=3)

    controls.split.enter(0)
    assert "seed 3, split 0" in controls.sections._headings["Run"].object
    assert controls.apply_to(spec).split == 0


@pytest.mark.parametrize("budget", [{}, {"seconds": 7.5}, {"steps": 40}, {"steps": 40, "seconds": 7.5}])
def test_the_budget_of_a_spec_is_shown_and_stays_until_a_person_changes_it(budget: dict[str, float]):
    spec = gpx.Spec("cholesky", budget=budget)
    controls = Controls(spec, lambda: None)
    assert (controls.budget.value, controls.seconds.value) == (budget.get("steps", 0), budget.get("seconds", 0))
    assert (controls.budget.zero, controls.budget.default) == ("no limit", 300)
    assert controls.apply_to(spec).budget == budget

    controls.budget.enter(20)
    assert controls.apply_to(spec).budget == {**budget, "steps": 20}
    controls.budget.enter(0)
    assert controls.apply_to(spec).budget == {name: limit for name, limit in budget.items() if name == "seconds"}


@pytest.mark.parametrize(("method", "setting", "words"), [
    ("gbcd", "chunk", "0 is automatic"),
    ("grief", "grid_points", "0 is automatic"),
    ("gbcd", "shortlist", ""),  # longer than the line
    ("sgpr", "evaluations", "0 means 40"),
    ("grief-mcmc", "acceptance", ""),
    ("scgd", "averaging", ""),
])  # fmt: skip
def test_the_words_of_a_doc_that_say_what_0_stands_for_are_beside_the_control(method: str, setting: str, words: str):
    assert Settings(gpx.methods[method], {}, lambda: None).widgets[setting].zero == words


def test_the_transform_of_the_target_is_chosen_and_one_with_a_power_is_shown_and_kept():
    reported: list[str] = []
    controls = Controls(gpx.Spec("cholesky"), lambda: reported.append(controls.target.value))
    assert controls.target.groups == [["", ["as it is", "logarithm", "Yeo-Johnson"]]]
    assert controls.apply_to(gpx.Spec("cholesky")).target_transform == ""

    controls.target.enter("log")
    assert reported == ["log"]
    assert controls.apply_to(gpx.Spec("cholesky")).target_transform == "log"
    controls.adopt(gpx.Spec("cholesky", target_transform="yeo-johnson 0.5"))
    assert controls.target.groups[0][1][-1] == "Yeo-Johnson 0.5"
    assert controls.target.default == 0 != controls.target.shown  # marked as changed
    assert controls.apply_to(gpx.Spec("cholesky")).target_transform == "yeo-johnson 0.5"
    controls.adopt(gpx.Spec("cholesky"))  # as a preset does
    assert (controls.target.value, len(controls.target.groups[0][1])) == ("", 3)
    assert reported == ["log"]
    begun = Controls(gpx.Spec("cholesky", target_transform="yeo-johnson 1.25"), lambda: None)
    assert begun.apply_to(gpx.Spec("cholesky")).target_transform == "yeo-johnson 1.25"


def test_a_field_is_sent_without_copies_of_its_parameters():
    field = Field("a number", 1)
    field.get_root(Document())
    assert not field._param__private.params
