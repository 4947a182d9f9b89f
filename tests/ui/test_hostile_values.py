"""Values that a widget does not offer, sent by a browser under a person's control."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from gpexplorer import Spec
from gpexplorer.errors import GPExplorerError
from gpexplorer.ui.explorer import Explorer
from gpexplorer.ui.inputs.data_source import DataSource
from gpexplorer.ui.panels.race_panel import RacePanel
from gpexplorer.ui.panels.recommend_panel import RecommendPanel
from gpexplorer.ui.panels.scaling_panel import ScalingPanel
from gpexplorer.ui.panels.sweep_panel import SweepPanel
from gpexplorer.ui.session import Session
from gpexplorer.ui.text import number
from gpexplorer.ui.widgets import CHUNK, FileUpload

SPEC = Spec("cholqr", {"num_inducing": 5}, {"name": "hypercube", "n": 40, "d": 1}, kernel="se")


def test_a_setting_that_cannot_be_read_becomes_a_message(monkeypatch: pytest.MonkeyPatch):
    explorer = Explorer(SPEC)

    def unreadable(spec: Spec) -> Spec:
        return int(math.nan)

    monkeypatch.setattr(explorer.choices, "apply_to", unreadable)
    explorer._controls_changed()
    explorer.close()

    assert "the settings were being read" in explorer.status.sentence.object
    assert explorer.session.spec == SPEC


def part(data: object, chunk: object = 1, chunks: object = 1, name: object = "a.csv") -> dict[str, object]:
    return {
        "status": "upload_event", "name": name, "chunk": chunk, "total_chunks": chunks, "data": data,
        "mime_type": "text/csv",
    }  # fmt: skip


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def upload(messages: list[str]) -> FileUpload:
    return FileUpload(messages.append, 2 * CHUNK, label="file")


def test_a_file_arrives_in_parts(upload: FileUpload, messages: list[str]):
    for message in ({"status": "initializing"}, part(b"ab", 1, 2), part(b"cd", 2, 2), {"status": "finished"}):
        upload._handle_msg(message)

    assert upload.value == b"abcd"
    assert messages == []


@pytest.mark.parametrize(
    "message",
    [
        {"status": "error", "error": "File too large"}, {"status": "unknown"}, {}, "text", None, [1],
        part("text"), part(b"", chunk=0), part(b"", chunk=2), part(b"", chunk="1"), part(b"", chunks=10**9),
        part(b"", name=None), part(b"", name=300 * "a"), part(None), {"status": "upload_event"},
    ],
)  # fmt: skip
def test_every_message_that_is_no_file_gets_a_sentence(upload: FileUpload, messages: list[str], message: object):
    upload._handle_msg(message)

    assert len(messages) == 1
    assert "at most 21 MB" in messages[0]
    assert upload.value is None


def test_the_server_counts_the_parts_itself(upload: FileUpload, messages: list[str]):
    for name in ("a.csv", "b.csv", "c.csv"):
        upload._handle_msg(part(bytes(CHUNK - 1), 1, 2, name))

    assert len(messages) == 1
    assert upload._file_buffer == {}


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session(SPEC)
    session.open()
    yield session
    session.close()


@pytest.mark.parametrize("name", ["/etc/hostname", "../private.csv", "", -1, 10**6, ["kin40k"]])
def test_no_path_is_opened_that_a_browser_sends_as_a_data_set(messages: list[str], name: object):
    chosen: list[object] = []
    source = DataSource(SPEC, lambda *choice: chosen.append(choice), messages.append, lambda _: None)

    source.names._handle_msg(name)
    source.names.enter(name)

    assert (chosen, messages) == ([], [])
    assert source.names.value == "hypercube"
    source.names.enter("sin-product")
    assert chosen == [("sin-product", None, "")]


@pytest.mark.parametrize("what", ["data", "device", "method", "", 5])
def test_a_sweep_varies_only_what_it_offers(session: Session, what: object):
    panel = SweepPanel(session, lambda *_: None, dict)
    with contextlib.suppress(GPExplorerError):
        panel.what.value = what  # the values that are proposed for it cannot be found
    panel.values.value = "/etc/hostname"

    panel.toggle()

    assert "choose one of them" in panel.note.object
    assert panel._worker is None


@pytest.mark.parametrize(
    ("widget", "value"),
    [
        ("count", 1e9),
        ("count", 10**9),
        ("count", "3"),
        ("low", -5),
        ("low", None),
        ("high", None),
        ("count", None),
        ("low", math.nan),
        ("high", "a"),
        ("axis", "z"),
    ],
)
def test_sizes_that_no_widget_has_are_refused_at_once(session: Session, widget: str, value: object):
    panel = ScalingPanel(session)
    given = getattr(panel, widget)
    bounds = {"start": given.start, "end": given.end} if widget != "axis" else {}
    setattr(panel, widget, SimpleNamespace(value=value, label=given.label, **bounds))

    panel.toggle()

    assert panel._worker is None
    assert "None" not in panel.note.object
    assert panel.note.object


def test_a_number_that_is_missing_or_below_the_least_one_of_its_field_is_a_sentence(session: Session):
    race, sweeps, asked = RacePanel(session), SweepPanel(session, lambda _: None, dict), RecommendPanel(session)
    scaling = ScalingPanel(session)
    fields = {
        "Seconds per method": (race.seconds, race.toggle, race, "a whole number of at least 1 and at most 3,600"),
        "Steps per run": (sweeps.steps, sweeps.toggle, sweeps, "a whole number of at least 1 and at most 100,000"),
        "Seconds per run": (sweeps.seconds, sweeps.toggle, sweeps, "a whole number of at least 0 and at most 3,600"),
        "Seconds": (asked.seconds, asked.ask, asked, "a whole number of at least 2 and at most 3,600"),
        "From": (scaling.low, scaling.toggle, scaling, "a whole number of at least 1"),
        "Sizes": (scaling.count, scaling.toggle, scaling, "a whole number of at least 3 and at most 12"),
    }  # fmt: skip
    for words, (field, start, panel, allowed) in fields.items():
        usual = field.value
        field.value = None  # emptied
        start()
        assert panel.note.object.startswith(f"{words} is empty; give {allowed}.")
        field.value = field.start - 1
        start()
        assert panel.note.object.startswith(f"{words} is {number(field.start - 1)}; give {allowed}.")
        assert panel._worker is None
        field.value = usual


@pytest.mark.parametrize("seconds", [math.nan, -1.0, 1e9, "long", None])
def test_seconds_that_no_widget_has_start_no_race(session: Session, seconds: object):
    panel = RacePanel(session)
    panel.seconds = SimpleNamespace(value=seconds, label="Seconds per method", start=1, end=3600)
    panel.methods = SimpleNamespace(value=["pcg", "cg", "<b>", 3])

    panel.toggle()

    assert panel._worker is None
    assert "Seconds per method" in panel.note.object
