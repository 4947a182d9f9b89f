"""A link brings back the same spec to the last bit, and a bad one opens something sensible and says what it changed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from gpexplorer import Spec, methods
from gpexplorer.errors import SettingError
from gpexplorer.runs import link

START = Spec("cholqr", {"num_inducing": 10}, kernel="se", budget={"steps": 300})
ROWS = {"name": "friedman1", "n": 200, "noise": 0.1 + 0.2, "seed": 7}


@pytest.mark.parametrize("method", sorted(methods))
def test_every_method_comes_back_with_every_setting(method: str):
    spec = Spec(method, data=ROWS, split={"test": 0.25, "seed": 3}, seed=2**53, budget={"steps": 12, "seconds": 1.5})

    result = link.read(link.write(spec, view="terms", at=4), START)

    assert result == link.Link(spec, "terms", 4, ())
    assert result.spec.to_json() == spec.to_json()


def test_numbers_keep_every_digit_and_kernels_their_theta():
    theta = [math.pi, -1 / 3, 1e-17]
    spec = Spec(
        "cholqr", {"tolerance": 1 / 3}, "kin40k", kernel={"name": "se * linear", "theta": theta}, dtype="float32"
    )

    result = link.read("?" + link.write(spec), START)

    assert result.corrected == ()
    assert result.spec == spec


@pytest.mark.parametrize(
    "fields",
    [
        {"data": {"name": "poses"}},
        {"data": {"name": "friedman1"}, "split": {"folds": 5, "fold": 2}},
        {"split": {}},
        {"split": {"name": "x"}},
        {"split": {"test": [1, {"a": "1"}], "a.b": "null", "": ""}},
    ],
)
def test_a_field_given_as_a_mapping_comes_back_as_one(fields: dict[str, object]):
    spec = Spec("cholqr", {"num_inducing": 16}, **fields)

    result = link.read(link.write(spec), Spec("cholqr", {}, split={"folds": 9}))

    assert result == link.Link(spec)
    assert result.spec.key() == spec.key()


def test_a_data_set_given_as_a_mapping_is_still_no_path():
    result = link.read('v=1&data={"name":"/etc/passwd"}&data.n=5', START)

    assert result.spec.data == START.data
    assert "a link can only name a public set or a generator" in result.corrected[0]


def test_a_link_reads_like_a_sentence_and_stays_short():
    text = link.write(Spec("random", {"num_inducing": 12}, "kin40k", seed=3), view="fit")

    assert text.startswith("v=1&method=random&data=kin40k&split=0&kernel=se-ard&seed=3&set.")
    assert "set.num_inducing=12" in text
    assert text.endswith("view=fit")
    assert len(text) < 400


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("v=1&method=cholrq", "did you mean 'cholqr'"),
        ("v=1&set.num_inducing=-4", "num_inducing is -4; give a whole number of at least"),
        ("v=1&set.num_inducing=NaN", "num_inducing is nan"),
        ("v=1&set.num_induced=4", "no setting 'num_induced'; did you mean 'num_inducing'"),
        ("v=1&data=/etc/passwd", "There is no data set '/etc/passwd'"),
        ("v=1&data=friedman1&data.n=1e9", "must be a whole number"),
        ("v=1&data=friedman1&data.n=99999999999", "must be a whole number"),
        ("v=1&split=-1", "split is -1"),
        ("v=1&data.n=5", "names no data set for n"),
        ("v=1&seed=true", "seed is True"),
        ("v=1&seed=1&seed=2", "'seed' twice"),
        ('v=1&split={"test":0.5,"test":0.2}', "'split' was left out. The JSON says 'test' twice"),
        ("v=1&device=cuda:99;rm", "device is 'cuda:99;rm'"),
        ("v=1&dtype=float16", "dtype is 'float16'"),
        ("v=1&kernel=__import__('os')", "Kernel '__import__'"),
        ("v=1&kernel=se&kernel.theta=[1,1e999]", "theta"),
        ("v=1&budget.steps=-1", "budget's steps"),
        ("v=1&budget.hours=1", "A budget has no 'hours'"),
        ("v=1&view=<script>", "There is no picture '<script>'"),
        ("v=1&at=-2", "at=-2 is no step"),
        ("v=1&colour=red", "'colour' is not known"),
        ("seed=3", "names no version"),
        ("v=0&seed=3", "is of version 0"),
        ("v=1&seed=" + "[" * 3000, "seed is"),
        ("v=1&x=" + "a" * 5000, "was not read"),
    ],
)
def test_what_is_wrong_is_left_out_with_a_sentence(query: str, message: str):
    result = link.read(query, START)

    assert message in " ".join(result.corrected)
    assert all(len(sentence) < 700 for sentence in result.corrected)
    assert (result.spec.method, result.spec.settings) == (START.method, START.settings)


def test_one_bad_value_does_not_affect_the_others():
    result = link.read("v=1&seed=5&set.num_inducing=-1&set.num_pivots=9&kernel=matern32-ard&dtype=int", START)

    assert result.spec.seed == 5
    assert result.spec.settings == {**START.settings, "num_pivots": 9}
    assert result.spec.kernel == "matern32-ard"
    assert len(result.corrected) == 2


def test_settings_of_a_method_that_is_not_there_are_not_given_to_another():
    result = link.read("v=1&method=gone&set.num_inducing=3", START)

    assert result.spec == START
    assert len(result.corrected) == 1


def test_an_empty_query_is_the_start_and_nothing_to_say():
    assert link.read("", START) == link.Link(START)
    assert link.read("v=1&view=nope", START, views=["fit", "terms"]).view == ""
    assert link.read("v=1&view=fit", START, views=["fit", "terms"]).view == "fit"


def test_many_corrections_are_counted():
    result = link.read("v=1&" + "&".join(f"x{k}=1" for k in range(40)), START)

    assert len(result.corrected) == link.MOST_CORRECTIONS + 1
    assert result.corrected[-1] == "32 more parts of the link were corrected."


@pytest.mark.parametrize("data", ["/home/me/rows.csv", {"content": "abc"}])
def test_a_link_cannot_name_rows_of_this_machine(data: object):
    with pytest.raises(SettingError, match="a link cannot bring them along"):
        link.write(Spec("cholqr", data=data))  # type: ignore[arg-type]


def test_a_link_too_long_is_refused():
    rows = {"name": "gp-draw", "theta": [0.1234567890123] * 400}

    with pytest.raises(SettingError, match="4000 at most"):
        link.write(Spec("cholqr", data=rows))


def test_text_that_looks_like_a_number_stays_text():
    assert [json.loads(link._text(value)) for value in ("12", "true", "null")] == ["12", "true", "null"]
    assert link._text("se-ard") == "se-ard"


@pytest.mark.parametrize(
    "spec",
    [
        START,
        Spec("cholqr", {"num_inducing": 12, "num_pivots": 8}, budget={"steps": 7}, seed=3),
        Spec("grief", data={"name": "hypercube", "n": 90, "d": 2}, kernel={"name": "se-ard", "theta": [0.1] * 4}),
        Spec("scgd", {"width": 8}, "sin-product", split={"folds": 5, "fold": 2}, dtype="float32"),
    ],
)
def test_a_short_link_leaves_out_what_its_reader_fills_in(spec: Spec):
    text = link.write_short(spec, START, view="fit", at=4)

    assert link.read(text, START) == link.Link(spec, "fit", 4)
    assert len(text) < 0.6 * len(link.write(spec, view="fit", at=4))
    assert link.write_short(START, START) == ""


def test_a_short_link_says_that_a_default_has_changed_since_it_was_made():
    text = link.write_short(replace(START, seed=5), START)
    later = replace(START, kernel="matern32-ard")

    result = link.read(text, later)

    assert result.spec.seed == 5
    assert len(result.corrected) == 1
    assert "A default has changed since this link was made" in result.corrected[0]


@pytest.mark.parametrize("query", ['v=1&split={"%5Cud800":1}', 'v=1&data={"name":"hypercube","%5Cudfff":2}'])
def test_half_a_character_in_a_link_gets_a_sentence(query: str):
    result = link.read(query, START)

    assert result.spec == START
    assert len(result.corrected) == 1
    assert link.read(link.write(result.spec), START).spec == START


TRANSFORMS = ["", "log", "yeo-johnson", "yeo-johnson 0.5", "yeo-johnson 0"]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("of_the_start", ["", "log", "yeo-johnson 1.25"])
def test_a_transform_of_the_target_comes_back_whatever_the_reader_has(transform: str, of_the_start: str):
    start = replace(START, target_transform=of_the_start)
    for spec in (replace(START, target_transform=transform), Spec("sgpr", seed=4, target_transform=transform)):
        for text in (link.write(spec, "fit", 4), link.write_short(spec, start, "fit", 4)):
            assert link.read(text, start) == link.Link(spec, "fit", 4)
            assert ("target_transform" in text) == bool(transform)
        assert link.read(link.write_short(spec, start), start) == link.Link(spec)


@pytest.mark.parametrize(
    "start", [START, replace(START, target_transform="log"), replace(START, kernel={"name": "se", "theta": [0.1] * 3})]
)
def test_a_short_link_is_empty_for_its_start_and_for_nothing_that_has_less(start: Spec):
    less = replace(start, kernel="se", target_transform="")

    assert link.write_short(start, start) == ""
    assert link.read(link.write_short(less, start), start) == link.Link(less)


def test_an_old_link_has_no_transform_of_the_target():
    old = "v=1&method=random&data=kin40k&split=0&kernel=se-ard&seed=3&set.num_inducing=12&budget=none&device=cpu"
    start = replace(START, target_transform="log")

    assert link.read(old, START).spec.target_transform == ""
    assert link.read(old, start).spec == link.read(old, START).spec
    assert link.read("", start).spec == start


@pytest.mark.parametrize("value", ["box-cox", "log 3", "yeo-johnson 5", "7", "%5B%22log%22%5D", "null", "nan"])
@pytest.mark.parametrize("of_the_start", ["", "log"])
def test_a_transform_that_there_is_not_is_left_out_with_a_sentence(value: str, of_the_start: str):
    result = link.read(f"v=1&seed=5&target_transform={value}", replace(START, target_transform=of_the_start))

    assert result.spec == replace(START, seed=5)
    [sentence] = result.corrected
    assert sentence.startswith("target_transform is ")
    assert 'give "log", "yeo-johnson", or "yeo-johnson 0.5"' in sentence
    assert sentence.endswith("The link's value was left out.")


def test_a_link_carries_what_is_said_about_hyperparameters_and_own_points():
    kernel = {"name": "se-ard", "values": {"noise": 0.3}, "fixed": ["noise"], "bounds": {"*.sd": [0.1, None]}}
    kernel |= {"tied": [["*[x1]", "*[x2]"]], "priors": {"*.lengthscale": "lognormal(0, 1)"}}
    spec, plain = Spec("sgpr", {"start": [[1.0], [2.5]]}, kernel=kernel), Spec("sgpr")
    assert link.read(link.write(spec), plain).spec == spec
    assert link.read(link.write_short(spec, plain), plain).spec == spec
    assert link.read(link.write_short(plain, spec), spec).spec == plain
