"""The column picker of a file of one's own, what it opens, and what it says to a file that cannot be used."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpexplorer as gpx
from gpexplorer.data.files.inputs_by_name import ModelInputs
from gpexplorer.errors import SettingError
from gpexplorer.recommendation.held_out import parts
from gpexplorer.runs.code import program
from gpexplorer.runs.link import write
from gpexplorer.ui.explorer import Explorer
from gpexplorer.ui.inputs.data_source import DataSource
from gpexplorer.ui.inputs.own_file import OwnFile
from gpexplorer.ui.inputs.presets import BEFORE
from gpexplorer.ui.playback.open_run import OpenRequest, OpenRun
from messy_table import messy_csv, sensor_csv
from pages import until

pytestmark = pytest.mark.usefixtures("uploads_here")


class Picker:
    """An `OwnFile` with the messy table, and what it has opened and said."""

    def __init__(self, data: bytes | None = None) -> None:
        self.opened: list[tuple[Any, Any, str]] = []
        self.errors: list[str] = []
        self.file = OwnFile(lambda *chosen: self.opened.append(chosen), self.errors.append, lambda _: None)
        data = messy_csv() if data is None else data
        self.file.offer("messy.csv", data, gpx.data.preview("messy.csv", data))

    def tick(self, name: str, use: bool = True) -> None:
        names = [line[0] for line in self.file.columns.lines]
        self.file.columns._handle_msg([[names.index(name), use]])

    def use(self) -> Any:
        self.file._use_columns()
        data, read, _ = self.opened[-1]
        return data, read(0)


def test_the_list_of_columns_shows_the_first_cells_that_are_not_empty() -> None:
    picker = Picker(b"a,b,c,d,y\n,1,,x,3\n,, ,z,4\n,2,,,5\n,3,7,w,6\n")
    assert [line[3] for line in picker.file.columns.lines] == ["", "1 · 2", "", "x · z", "3 · 4 · 5"]


def test_sensible_columns_are_ticked_and_the_numbers_are_those_of_the_file(tmp_path: Path, monkeypatch: Any) -> None:
    picker = Picker()
    assert picker.file.columns.inputs == ("größe", "colour", "when")
    data, split = picker.use()
    assert data == {
        "name": "upload", "file": "messy.csv", "target": "price", "inputs": ["größe", "colour", "when"],
        "missing": "fill", "encode": ["colour"], "dates": ["when"], "decimal": ",",
    }  # fmt: skip
    assert "größe is missing" in split.train.names  # its gaps explain something
    assert (split.train.d, len(split.train) + len(split.test)) == (6, 240)

    # The program made from it reads the file by its name, and prints the same number.
    run = gpx.Spec("cholqr", {"num_inducing": 8}, data=data, budget={"steps": 3}).open(data=split)
    run.finish()
    monkeypatch.chdir(tmp_path)
    Path("messy.csv").write_bytes(messy_csv())
    code = program(run.spec, 3)
    assert "gpx.load('messy.csv'" in code
    opened = OpenRun()
    opened.open(OpenRequest(gpx.Spec("cholqr", {"num_inducing": 8}, data=data), lambda _: split))
    assert opened.summary is not None
    assert "gpx.load('messy.csv'" in program(opened.summary.spec, 3)  # what the page shows
    opened.close()
    printed: list[float] = []
    exec(re.sub(r"\bprint\(", "printed.append(", code), {"printed": printed})
    assert printed == [pytest.approx(run.scores()["smse"], rel=1e-8)]
    with pytest.raises(SettingError, match=r"messy\.csv"):
        write(run.spec)


@pytest.mark.parametrize(("prices", "commas"), [("87,70", True), ("87,701", False)])
def test_one_column_that_cannot_have_thousands_says_that_the_file_has_decimal_commas(prices: str, commas: bool) -> None:
    picker = Picker("".join(["Druck;Preis\n", *(f"{i},236;{prices}\n" for i in range(10, 40))]).encode())

    assert picker.file.decimal.visible
    assert picker.file.decimal.value is commas


def test_molecules_bring_their_kernel_alone_and_beside_numbers(tmp_path: Path, monkeypatch: Any) -> None:
    picker = Picker()
    picker.tick("smiles")
    picker.tick("when", use=False)
    assert picker.file.columns.inputs == ("größe", "colour", "smiles")
    data, split = picker.use()
    kernel = picker.opened[-1][2]
    assert kernel == "se-ard+molecules[smiles]"
    assert (data["texts"], data["inputs"]) == (["smiles"], ["größe", "colour"])
    run = gpx.Spec("cholqr", {"num_inducing": 8}, data=data, kernel=kernel, budget={"steps": 2}).open(data=split)
    run.finish()
    monkeypatch.chdir(tmp_path)
    Path("messy.csv").write_bytes(messy_csv())
    printed: list[float] = []
    exec(re.sub(r"\bprint\(", "printed.append(", program(run.spec, 2)), {"printed": printed})
    assert printed == [pytest.approx(run.scores()["smse"], rel=1e-8)]

    for name in ("größe", "colour"):
        picker.tick(name, use=False)
    picker.file._use_columns()
    assert picker.opened[-1][2] == "molecules"
    assert picker.opened[-1][0]["objects"] == "smiles"


def test_the_target_is_no_input_and_hostile_ticks_change_nothing() -> None:
    picker = Picker()
    picker.file.target.enter("größe")
    assert "größe" not in picker.file.columns.inputs
    before = picker.file.columns.inputs
    for message in (None, [[99, True]], [[True, True]], [["0", True]], [[0, 1]], {"index": 0}, [[6, True]]):
        picker.file.columns._handle_msg(message)
    assert picker.file.columns.inputs == before


def test_gaps_are_filled_where_that_is_chosen_and_nothing_ticked_is_reported() -> None:
    picker = Picker()
    assert len(picker.use()[1].train) + len(picker.use()[1].test) == 240
    picker.file.missing.enter("drop")
    assert len(picker.use()[1].train) + len(picker.use()[1].test) == 234
    for name in ("größe", "colour", "when"):
        picker.tick(name, use=False)
    picker.file._use_columns()
    assert "tick at least one" in picker.errors[-1]


def patients_csv() -> bytes:
    """A table of 12 patients with 5 rows each, whose names have gaps in two rows."""
    rows = [f"{k / 7:.3f},p{k % 12},{k * k % 11}" for k in range(60)]
    rows[3], rows[30] = rows[3].replace("p3", ""), rows[30].replace("p6", "")
    return "\n".join(["a,patient,y", *rows]).encode()


def test_a_column_can_say_which_rows_belong_together(tmp_path: Path, monkeypatch: Any) -> None:
    picker = Picker(patients_csv())
    groups = picker.file.groups
    assert picker.file.columns.inputs == ("a", "patient")
    assert [label for _, labels in groups.groups for label in labels][1:] == ["a", "patient"]  # not the target
    groups.enter("patient")
    assert picker.file.columns.inputs == ("a",)  # which rows belong together is no input
    picker.tick("patient")
    assert picker.file.columns.inputs == ("a",)
    data, split = picker.use()
    assert data["groups"] == "patient"
    train, test = (set(part.groups.number.tolist()) for part in (split.train, split.test))
    assert train | test == set(range(12))
    assert not train & test
    assert len(split.train) + len(split.test) == 58  # the rows without a patient are left out

    # The rows that a recommendation holds out are whole patients, and so are those of a method of cross-validation.
    for part in parts(split, 0):
        assert not set(part.train.groups.number.tolist()) & set(part.test.groups.number.tolist())
    monkeypatch.chdir(tmp_path)
    Path("messy.csv").write_bytes(patients_csv())
    run = gpx.Spec("gpcv-admm", {"folds": 3}, data=data, budget={"steps": 2}).open(data=split)
    run.finish()
    printed: list[float] = []
    exec(re.sub(r"\bprint\(", "printed.append(", program(run.spec, 2)), {"printed": printed})
    assert printed == [pytest.approx(run.scores()["smse"], rel=1e-8)]


def test_the_column_of_groups_and_the_target_exclude_each_other() -> None:
    picker = Picker(b"a,b,y\n" + b"".join(b"%d,%d,%d\n" % (k * k, k % 4, k % 5) for k in range(20)))
    picker.file.groups.enter("b")
    picker.file.target.enter("b")
    assert picker.file.groups.value == ""
    assert picker.file.choice().groups is None
    assert "b" not in [label for _, labels in picker.file.groups.groups for label in labels]
    picker.file.groups.enter("y")
    assert picker.file.columns.inputs == ("a",)
    picker.file.groups.enter("")
    assert picker.file.columns.inputs == ("a", "y")


def test_the_picker_leaves_with_its_use_comes_back_and_can_leave_inputs_out() -> None:
    picker = Picker()
    assert picker.file.picker.visible
    assert picker.file.again.visible
    assert not picker.file.choose_again(drop=("nothing",))
    assert not picker.file.choose_again(kinds={"nothing": "number missing 0"})
    assert picker.opened == []
    picker.use()
    assert not picker.file.picker.visible
    picker.file.again.clicks += 1
    assert picker.file.picker.visible
    assert picker.file.choose_again(drop=("colour = red", "größe is missing"))
    assert picker.opened[-1][0]["inputs"] == ["when"]
    assert not picker.file.choose_again(drop=("when",))  # one input has to be left


def test_a_number_that_stands_for_a_gap_is_read_so_from_then_on(tmp_path: Path, monkeypatch: Any) -> None:
    picker = Picker(sensor_csv())
    assert picker.use()[1].train.X.min() == -999.0
    assert picker.file.choose_again(kinds={"temperature": "number missing -999"})
    data, read, _ = picker.opened[-1]
    split = read(0)
    assert split.train.X.min() > -2.0
    new = gpx.data.read_rows("new.csv", sensor_csv(rows=40, new=True), ModelInputs(reader=split.train.reader))
    assert new.why[0] == "filled: temperature"
    monkeypatch.chdir(tmp_path)
    Path("messy.csv").write_bytes(sensor_csv())
    run = gpx.Spec("cholqr", {"num_inducing": 8}, data=data, budget={"steps": 2}).open(data=split)
    run.finish()
    printed: list[float] = []
    exec(re.sub(r"\bprint\(", "printed.append(", program(run.spec, 2)), {"printed": printed})
    assert printed == [pytest.approx(run.scores()["smse"], rel=1e-8)]


def test_an_empty_upload_is_a_sentence() -> None:
    picker = Picker()
    picker.file.upload._handle_msg({"status": "initializing"})
    picker.file.upload._handle_msg({"status": "finished"})
    assert "empty (0 bytes)" in picker.errors[-1]
    assert not picker.file.picker.visible


def test_the_data_box_names_the_file_and_returns_to_it() -> None:
    chosen: list[Any] = []
    source = DataSource(gpx.Spec("cholqr"), lambda *each: chosen.append(each), lambda _: None, lambda _: None)
    source.own.offer("messy.csv", messy_csv(), gpx.data.preview("messy.csv", messy_csv()))
    source.own._use_columns()
    assert "messy.csv" in source.names.groups[0][1][0]
    assert source.names.value == "upload"
    source.names.enter("friedman1")
    source.names.enter("upload")
    assert [each[0] if isinstance(each[0], str) else each[0]["file"] for each in chosen] == [
        "messy.csv", "friedman1", "messy.csv",
    ]  # fmt: skip


def test_a_failed_opening_is_an_error_and_fades_the_pictures_of_the_run_before() -> None:
    page = Explorer(gpx.Spec("cholqr", {"num_inducing": 4}, data={"name": "friedman1", "n": 40}))
    try:
        page.settle()
        page.session.change_rows({"name": "upload", "file": "x.csv"}, lambda _: gpx.load("missing.csv"))
        for _ in range(100):
            page.update(wait=0.1)
            if page.status.alert.visible:
                break
        assert page.status.alert.severity == "error"
        faded = (page.pictures.top, page.status.line, page.status.bar)
        assert [part.styles["opacity"] for part in faded] == ["0.25"] * 3
        assert "could not be opened" in page.title.object
        assert "missing.csv" not in page.title.object  # the message says it
        assert BEFORE in page.title.object
        assert page.transport.play.disabled  # the run before is still open, and is not the chosen one
        step = page.session.player._last
        page.key(" ")
        page.key("ArrowRight")
        assert not page.session.player.playing
        assert page.session.player.asked == page.session.player._answered
        assert page.session.player._last == step
        for close in (lambda: page.status.alert.param.update(closed=True), lambda: page.key("?")):
            close()  # the sentence stands on the page once
            assert "missing.csv" in page.title.object
            page.status.say(page._failed, "error")
            assert "missing.csv" not in page.title.object
        page.session.change_rows({"name": "friedman1", "n": 40})
        for _ in range(100):
            page.update(wait=0.1)
            if page.pictures.top.styles["opacity"] != "0.25":
                break
        assert page.pictures.top.styles == {"opacity": "1", "filter": "none"}  # a browser keeps what is left out
        assert "could not be opened" not in page.title.object
    finally:
        page.close()


def test_the_question_about_a_file_names_its_target_and_one_about_other_data_does_not() -> None:
    page = Explorer(gpx.Spec("cholqr", {"num_inducing": 4}, data={"name": "friedman1", "n": 40}))
    target = f"<i>{'price' * 20}"
    content = f"a,{target}\n".encode() + b"".join(b"%d,%d\n" % (k * k % 31, k % 7) for k in range(40))

    def wait(holds: Callable[[], bool]) -> None:
        for _ in range(300):
            page.update(wait=0.1)
            if holds():
                return
        raise AssertionError(page.title.object)

    try:
        page.settle()
        assert page.recommendation.begin.label == "What should I use?"
        hidden = [page.sources.own.picker, page.recommendation._layout, page.story._layout]
        assert not any(map(len, hidden))  # what nobody sees is not on the page
        page.sources.own.offer("houses.csv", content, gpx.data.preview("houses.csv", content))
        assert page.sources.own.picker in page.top
        assert len(page.sources.own.picker) == 3
        page.sources.own._use_columns()
        wait(lambda: "What predicts &lt;i&gt;pricep" in page.title.object)
        assert "…?</h1>" in page.title.object
        assert page.recommendation.begin.label == f"What predicts {target[:59]}…?"
        assert page.recommendation._layout.visible
        page.recommendation.adopt.visible = True  # as if there were an answer
        page.sources.own._use_columns()
        assert not page.recommendation.adopt.visible
        page.sources.names.enter("friedman1")
        wait(lambda: "What predicts" not in page.title.object)
        assert page.recommendation.begin.label == "What should I use?"
    finally:
        page.close()


def test_a_busy_text_ends() -> None:
    page = Explorer(gpx.Spec("cholqr", {"num_inducing": 4}, data={"name": "friedman1", "n": 40}))
    try:
        page.settle()
        before = page.status.cost.object
        page._wait("Opening houses.csv …")
        assert "Opening houses.csv" in page.status.cost.object
        page._wait("")
        assert page.status.cost.object == before
    finally:
        page.close()


def test_a_method_that_does_not_suit_the_rows_is_refused_and_the_next_one_opens() -> None:
    """It said that the run has no record -1, and the pictures that something unexpected went wrong."""
    rows = {"name": "friedman1", "n": 40}
    page = Explorer(gpx.Spec("cholqr", {"num_inducing": 4}, data=rows))

    def wait_for(opacity: str) -> None:
        for _ in range(100):
            page.update(wait=0.1)
            if page.pictures.top.styles.get("opacity") == opacity:
                return
        pytest.fail(f"the pictures have another opacity than {opacity}")

    try:
        page.settle()
        page.session.choose(gpx.Spec("states", data=rows))
        wait_for("0.25")
        assert page.status.alert.severity == "error"
        assert "States needs one input, such as time, but there are 10" in page.status.alert[0].object
        assert page.session.run is None
        assert BEFORE in page.title.object  # the pictures are still there, although their run is closed
        buttons = (page.transport.play, page.transport.forward, page.transport.back, page.transport.stop)
        assert all(button.disabled for button in buttons)
        page.key(" ")  # there is nothing to play
        assert not page.session.player.playing
        page.session.player.play()
        page.session.choose(gpx.Spec("fitc", {"num_inducing": 4}, data=rows))
        wait_for("1")
        assert page.session.run is not None
        assert [page.transport.play.disabled, page.transport.forward.disabled] == [False, False]
    finally:
        page.close()


def test_a_refusal_that_nobody_waits_for_any_more_is_not_shown() -> None:
    """Who passed a method that does not suit the rows on the way to another read its refusal above the other's run."""
    rows = {"name": "friedman1", "n": 40}
    page = Explorer(gpx.Spec("cholqr", {"num_inducing": 4}, data=rows))
    try:
        page.settle()
        page.session.choose(gpx.Spec("states", data=rows))
        until(lambda: page.session.player._failed)
        page.session.choose(gpx.Spec("fitc", {"num_inducing": 4}, data=rows))
        until(lambda: page.session.run is not None)
        for _ in range(5):
            page.update(wait=0.1)
        assert not page.status.alert.visible
        assert "could not be opened" not in page.title.object
    finally:
        page.close()
