"""What an address asks for: questions that open and run, parts left out, and sentences for what cannot be."""

from __future__ import annotations

import pytest

from gpexplorer import Spec
from gpexplorer.runs import link as links
from gpexplorer.ui.address import read_query
from gpexplorer.ui.inputs.controls import by_family
from gpexplorer.ui.inputs.presets import PRESETS
from gpexplorer.ui.inputs.question import question
from gpexplorer.ui.panels.race_panel import _lane, entrants
from gpexplorer.views import for_run

START = Spec("cholqr", {"num_inducing": 10})


@pytest.mark.parametrize("key", PRESETS)
def test_a_question_opens_a_run_that_steps_and_shows_its_picture(key: str):
    asking = read_query(f"v=1&ask={key}", START)

    assert asking.link.corrected == ()
    run = asking.link.spec.open()
    run.finish(steps=3)
    assert run.outcome.reason == "budget"
    assert asking.link.view in {view.key for view in for_run(run)}
    assert PRESETS[key].question in question(asking.link.spec, 10, asking.question)


def test_what_an_address_says_beside_its_question_wins():
    asking = read_query("v=1&ask=rough&seed=7&set.num_pivots=64&at=3", START)

    assert asking.link.spec.seed == 7
    assert asking.link.spec.settings["num_pivots"] == 64
    assert asking.link.spec.kernel == "matern12-ard"
    assert (asking.link.view, asking.link.at, asking.link.corrected) == ("landscape", 3, ())


def test_a_lecture_leaves_parts_out_and_strangers_get_sentences():
    asking = read_query("v=1&hide=controls,panels", START)
    assert asking.hide == {"controls", "panels"}
    assert asking.link == links.Link(START)

    odd = read_query("v=1&ask=ruogh&hide=all&seed=-1", START)
    assert odd.question == ""
    assert odd.hide == set()
    said = " ".join(odd.link.corrected)
    assert "no question 'ruogh'" in said
    assert "rough" in said
    assert "'all' cannot be left out; controls and panels can." in said
    assert "seed" in said
    assert read_query("", START) == (links.Link(START), "", frozenset())
    assert "<script>" not in question(START, 3, "<script>")


def test_gpytorch_enters_the_race_by_its_own_engine():
    found = entrants()

    assert found["SGPR, moving inputs, by GPyTorch"] == "sgpr@gpytorch"
    assert found["Maximum likelihood, by GPyTorch"] == "ml@gpytorch"
    lane = _lane(START, "ml@gpytorch")
    assert (lane.method, lane.settings["engine"]) == ("ml", "gpytorch")
    assert _lane(START, "random").method == "random"


def test_every_method_stands_under_its_family():
    groups = by_family()

    assert sum(len(methods) for methods in groups.values()) == len({k for m in groups.values() for k in m.values()})
    assert groups["Inducing points"]["CholQR swaps"] == "cholqr"
