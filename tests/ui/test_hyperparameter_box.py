"""The hyperparameters in the sidebar and in a cell: sliders in units, locks, and what a browser sends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import panel as pn
import pytest

import gpexplorer as gpx
from gpexplorer.ui.inputs.sliders import Sliders

SPEC = gpx.Spec(
    "cholqr", {"num_inducing": 5}, {"name": "hypercube", "n": 40, "d": 1, "seed": 3},
    kernel={"name": "se", "priors": {"noise": "lognormal(0, 2)"}},
)  # fmt: skip


@pytest.fixture
def explorer() -> Iterator[gpx.Explorer]:
    explorer = gpx.Explorer(SPEC)
    explorer.hyperparameters.fold.active = [0]
    yield explorer
    explorer.close()


def follow(explorer: gpx.Explorer, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        explorer.update(wait=0.2)


def shown(explorer: gpx.Explorer) -> dict[str, dict]:
    return {row["name"]: row for row in explorer.hyperparameters.sliders.rows}


def test_the_sliders_are_on_the_page_before_the_fold_is_opened(explorer: gpx.Explorer):
    box = explorer.hyperparameters
    box.fold.active = []
    root = box.fold.get_root()
    closed = root.references()

    box.fold.active = [0]

    [(model, _)] = box.sliders._models.values()
    assert model in closed
    assert root.references() == closed


def test_a_value_set_by_hand_is_shown_learned_from_and_taken_back(explorer: gpx.Explorer):
    explorer.session.player.run_to(4)
    follow(explorer, lambda: explorer.at == 4 and any(row["gradient"] for row in shown(explorer).values()))
    before = shown(explorer)["se.lengthscale"]
    assert before["low"] < before["value"] < before["high"]
    [derivative] = (row.gradient for row in explorer.run.hyperparameters_at(4) if row.name == "se.lengthscale")
    assert float(before["gradient"]) == pytest.approx(derivative, rel=5e-3)
    send = explorer.hyperparameters.sliders._handle_msg

    for value in (2.0, 3.0, 4.0):  # a slider that moves makes one step
        send({"name": "se.lengthscale", "value": value})
        near = pytest.approx(value)
        follow(explorer, lambda near=near: explorer.run.hyperparameters["se.lengthscale"].value == near)
        follow(explorer, lambda: explorer.at == 5)
    assert shown(explorer)["se.lengthscale"]["value"] == pytest.approx(4.0)
    assert explorer.session.screen.by_hand
    send({"name": "noise", "fixed": True})
    follow(explorer, lambda: shown(explorer)["noise"]["fixed"])
    noise = shown(explorer)["noise"]["value"]
    assert shown(explorer)["se.lengthscale"]["value"] == pytest.approx(4.0)

    explorer.session.player.run_to(25)
    follow(explorer, lambda: explorer.at >= 20)
    assert shown(explorer)["noise"]["value"] == pytest.approx(noise)
    assert shown(explorer)["se.lengthscale"]["value"] != pytest.approx(4.0)

    explorer.transport.key("u")
    follow(explorer, lambda: explorer.at == 4 and any(row["gradient"] for row in shown(explorer).values()))
    assert shown(explorer)["se.lengthscale"] == before
    assert not explorer.run.hyperparameters["noise"].fixed


def test_a_lock_holds_for_the_next_run_and_other_settings_keep_it(explorer: gpx.Explorer):
    follow(explorer, lambda: len(shown(explorer)) == 3)
    value = shown(explorer)["noise"]["value"]
    explorer.hyperparameters.sliders._handle_msg({"name": "noise", "fixed": True})
    kernel = explorer.session.spec.kernel
    assert kernel == {**SPEC.kernel, "values": {"noise": value}, "fixed": ["noise"]}

    explorer.choices.seed.enter(3)
    follow(explorer, lambda: explorer.run is not None and explorer.run.spec.seed == 3)
    assert explorer.run.spec.kernel == kernel  # with its prior
    explorer.session.fix_hyperparameters({})
    assert explorer.session.spec.kernel == SPEC.kernel
    explorer.choices.kernel._fields[0].enter("matern32")  # another kernel has other hyperparameters
    follow(explorer, lambda: explorer.run.spec.kernel == "matern32")


def test_what_is_set_before_the_screen_shows_the_last_value_or_lock_adds_to_it(explorer: gpx.Explorer):
    explorer.session.player.run_to(3)
    follow(explorer, lambda: explorer.at == 3 and len(shown(explorer)) == 3)
    before = shown(explorer)
    send = explorer.hyperparameters.sliders._handle_msg

    for wait in (0.0, 0.6):  # seconds: the thread has not begun the request before, or has carried it out
        for message in (
            {"name": "se.sd", "value": 2.5}, {"name": "se.sd", "value": 2.25}, {"name": "noise", "value": 0.375},
            {"name": "se.lengthscale", "fixed": True}, {"name": "noise", "fixed": True},
        ):  # fmt: skip
            send(message)
            time.sleep(wait)
        follow(explorer, lambda: explorer.at == 4 and explorer.session.screen.by_hand)
        follow(
            explorer, lambda: sum(row.fixed for row in explorer.run.hyperparameters) == 2
        )  # the last of the messages
        rows = explorer.run.hyperparameters
        assert [rows[name].value for name in ("se.sd", "noise")] == pytest.approx([2.25, 0.375])
        assert [row.name for row in rows if row.fixed] == ["se.lengthscale", "noise"]
        kernel = explorer.session.spec.kernel
        assert kernel["values"] == {
            "se.lengthscale": pytest.approx(before["se.lengthscale"]["value"]), "noise": pytest.approx(0.375)
        }  # fmt: skip

        explorer.transport.key("u")  # takes back all of it
        follow(explorer, lambda: explorer.at == 3 and not explorer.session.screen.by_hand)
        assert shown(explorer)["se.sd"] == before["se.sd"]
        assert explorer.session.spec == SPEC


def test_undo_that_waits_for_the_thread_takes_back_what_was_set_before_it_and_not_what_is_set_after_it(
    explorer: gpx.Explorer,
):
    follow(explorer, lambda: len(shown(explorer)) == 3)
    send = explorer.hyperparameters.sliders._handle_msg
    sd = shown(explorer)["se.sd"]["value"]

    send({"name": "se.sd", "value": 4.0})
    explorer.transport.key("u")
    send({"name": "noise", "value": 0.7})
    follow(explorer, lambda: explorer.session.screen.by_hand and shown(explorer)["noise"]["value"] == 0.7)

    assert explorer.at == 1
    assert explorer.run.hyperparameters["se.sd"].value == pytest.approx(sd)
    assert explorer.run.hyperparameters["noise"].value == pytest.approx(0.7)


@pytest.mark.parametrize("value", [1e-300, 0.0, -1.0])
def test_a_value_that_is_refused_is_not_shown_any_more_and_leaves_the_others(explorer: gpx.Explorer, value: float):
    follow(explorer, lambda: len(shown(explorer)) == 3)
    before = shown(explorer)["noise"]["value"]
    explorer.hyperparameters.sliders._handle_msg({"name": "noise", "value": value})
    follow(explorer, lambda: "The value of noise is" in str(explorer.status.sentence.object))
    follow(explorer, lambda: shown(explorer)["noise"]["value"] == before)


def test_undo_takes_a_lock_back_from_the_next_run_and_leaves_an_earlier_one(explorer: gpx.Explorer):
    explorer.session.player.run_to(2)
    follow(explorer, lambda: explorer.at == 2 and len(shown(explorer)) == 3)
    send = explorer.hyperparameters.sliders._handle_msg
    send({"name": "noise", "fixed": True})
    follow(explorer, lambda: explorer.at == 3)
    with_noise = explorer.session.spec.kernel
    explorer.session.player.run_to(2)
    follow(explorer, lambda: explorer.at == 5)
    send({"name": "se.sd", "fixed": True})
    follow(explorer, lambda: explorer.at == 6)
    assert explorer.session.spec.kernel["fixed"] == ["se.sd", "noise"]

    explorer.transport.key("u")
    follow(explorer, lambda: explorer.at == 5)
    assert explorer.session.spec.kernel == with_noise
    explorer.transport.key("u")
    follow(explorer, lambda: explorer.at == 2)
    explorer.choices.seed.enter(6)
    follow(explorer, lambda: explorer.run is not None and explorer.run.spec.seed == 6)
    assert explorer.run.spec == replace(SPEC, seed=6)
    assert not explorer.run.hyperparameters["noise"].fixed


@pytest.mark.parametrize(("kernel", "lock", "values"), [
    ({"name": "se", "values": {"sd": 1.5, "*": 0.5}}, "se.lengthscale", {"se.sd": 1.5, "noise": 0.5}),
    (
        {"name": "lp", "tied": [["width", "lengthscale"]], "values": {"lp.width": 0.9, "lp.sd": 1.0}},
        "lp.lengthscale", {"lp.sd": 1.0},
    ),
    ({"name": "se", "values": {"*": 0.5}, "fixed": ["*"]}, "", {"se.sd": 0.5, "se.lengthscale": 0.5}),
])  # fmt: skip
def test_a_lock_follows_what_the_kernel_says_by_other_names(kernel: dict, lock: str, values: dict[str, float]):
    spec = replace(SPEC, kernel=kernel)
    explorer = gpx.Explorer(spec)
    try:
        explorer.hyperparameters.fold.active = [0]
        explorer.session.player.run_to(2)
        follow(explorer, lambda: explorer.at == 2 and bool(shown(explorer)))
        value = {lock: shown(explorer)[lock]["value"]} if lock else {}
        explorer.hyperparameters.sliders._handle_msg({"name": lock or "noise", "fixed": bool(lock)})
        fixed = [lock] if lock else ["se.sd", "se.lengthscale"]
        follow(explorer, lambda: explorer.session.screen.by_hand)
        chosen = explorer.session.spec.kernel
        assert chosen == {**kernel, "values": pytest.approx(values | value), "fixed": fixed}

        explorer.choices.seed.enter(4)
        follow(explorer, lambda: explorer.run is not None and explorer.run.spec.seed == 4)
        assert all(explorer.run.hyperparameters[name].fixed for name in fixed)
        assert explorer.run.hyperparameters[fixed[0]].value == pytest.approx((values | value)[fixed[0]])
    finally:
        explorer.close()


def test_pictures_offer_the_hyperparameters_and_numbers_of_the_run_that_is_shown():
    explorer = gpx.Explorer(replace(SPEC, method="ml", settings={}))
    try:
        explorer.session.player.run_to(2)
        follow(explorer, lambda: explorer.at == 2)
        likelihood, convergence = (explorer.pictures.pictures[key] for key in ("likelihood", "convergence"))
        for picture in (likelihood, convergence):
            picture.build()
        across, show = likelihood._selectors["first"], convergence._selectors["channel"]
        assert list(across.options) == ["se.sd", "se.lengthscale", "noise"]
        across.value, show.value = "se.sd", "map_objective"
        assert (likelihood.view.first, convergence.view.channel) == ("se.sd", "map_objective")

        explorer.choices.kernel._fields[0].enter("matern32")  # without a prior
        follow(explorer, lambda: explorer.run.spec.kernel == "matern32" and "matern32.sd" in across.options)
        assert (likelihood.view.first, across.value) == ("matern32.lengthscale", "matern32.lengthscale")
        assert (convergence.view.channel, show.value) == ("objective", "objective")
    finally:
        explorer.close()


def test_nothing_is_computed_while_the_fold_is_closed_and_own_features_have_no_sliders():
    explorer = gpx.Explorer(gpx.Spec("svgp", {"num_inducing": 4}, SPEC.data))
    try:
        explorer.session.player.run_to(1)
        follow(explorer, lambda: explorer.at == 1)
        assert explorer.hyperparameters.sliders.rows == []
        explorer.hyperparameters.fold.active = [0]
        follow(explorer, lambda: "features of its own" in explorer.hyperparameters.words.object)
        assert explorer.hyperparameters.sliders.rows == []
    finally:
        explorer.close()


@pytest.mark.parametrize(
    "message",
    [
        {"name": "noise", "value": True},
        {"name": "noise", "value": float("nan")},
        {"name": "noise", "fixed": 1},
        {"name": "other", "value": 1.0},
        {"value": 1.0},
        ["noise", 1.0],
        "noise",
        None,
    ],
)
def test_what_a_browser_may_not_send_changes_nothing(message: object):
    calls: list[object] = []
    sliders = Sliders(lambda *call: calls.append(call), lambda *call: calls.append(call))
    sliders.adopt(SPEC.open().hyperparameters)
    sliders._handle_msg(message)
    assert calls == []


def test_the_table_of_a_cell_sets_its_rows_and_follows_them():
    kernel = {"name": "lp", "tied": [["lengthscale", "width"]], "bounds": {"period": [0.5, 2.0]}}
    run = gpx.Spec("sgpr", {"num_inducing": 5}, SPEC.data, kernel=kernel).open()
    table = run.hyperparameters
    pane = pn.panel(table)
    [sliders] = pane.select(Sliders)
    rows = {row["name"]: row for row in sliders.rows}
    assert (rows["lp.period"]["low"], rows["lp.period"]["high"]) == pytest.approx((0.5, 2.0))

    sliders._handle_msg({"name": "lp.width", "value": 0.3})
    sliders._handle_msg({"name": "noise", "fixed": True})
    assert (table["lp.width"].value, table["lp.lengthscale"].value) == (0.3, 0.3)
    assert table.kernel()["fixed"] == ["noise"]
    sliders._handle_msg({"name": "noise", "value": -1.0})
    words = pane.select(pn.pane.HTML)[0]
    assert words.object == "The value of noise is −1; give a number above 0."
    table["noise"].value = 0.25
    assert words.object == ""
    assert {row["name"]: row["value"] for row in sliders.rows}["noise"] == 0.25
    assert gpx.Spec("sgpr", {"num_inducing": 5}, SPEC.data, kernel=table.kernel()).open().hyperparameters[
        "lp.width"
    ].value == pytest.approx(0.3)


def test_points_of_ones_own_are_kept_by_the_list_of_starts():
    own = [[0.1], [0.5], [0.9]]
    explorer = gpx.Explorer(gpx.Spec("sgpr", {"start": own}, SPEC.data))
    try:
        assert explorer.choices.settings.values["start"] == own
        explorer.choices.seed.enter(5)
        follow(explorer, lambda: explorer.run is not None and explorer.run.spec.seed == 5)
        assert explorer.run.spec.settings["start"] == own
    finally:
        explorer.close()
