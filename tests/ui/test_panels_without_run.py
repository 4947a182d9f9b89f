"""Where no run is open, a panel says what it needs, and nothing in it can be started; where one is, all can."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gpexplorer as gpx
from gpexplorer.errors import DataError
from gpexplorer.ui.panels.compare_panel import ComparePanel
from gpexplorer.ui.panels.predict_panel import PredictPanel
from gpexplorer.ui.panels.race_panel import RacePanel
from gpexplorer.ui.panels.scaling_panel import ScalingPanel
from gpexplorer.ui.panels.share_panel import SharePanel
from gpexplorer.ui.session import Session

PANELS: dict[type[Any], Callable[[Any], list[Any]]] = {  # what each one begins with
    PredictPanel: lambda panel: [panel.upload, panel.again],
    ScalingPanel: lambda panel: [panel.go],
    RacePanel: lambda panel: [panel.go],
    ComparePanel: lambda panel: [panel.keep, panel.sweeps.go, panel.sweeps.on_splits, panel.pair.go],
    SharePanel: lambda panel: [panel.page],
}
GOOD = gpx.Spec("cholqr", {"num_inducing": 8}, {"name": "friedman1", "n": 60})
WAY_OUT = "choose data and settings that can be opened."


def refusing(_: Any) -> Any:
    raise DataError("The file is gone.")


@pytest.fixture
def session() -> Any:
    session = Session(GOOD)
    yield session
    session.close()


def opened(session: Session, panel: Any, holds: Callable[[], object]) -> None:
    """Take frames, as the page does, until something holds; then show it in the panel."""
    end = time.monotonic() + 30
    while not holds():
        session.take(0.02)
        assert time.monotonic() < end
    for part in [*session.panels, panel]:
        part.update()


@pytest.mark.parametrize("kind", PANELS)
def test_a_panel_without_a_run_says_what_it_needs(kind: type[Any], session: Session):
    session.read = refusing
    panel = kind(session, lambda _: "") if kind is SharePanel else kind(session)
    before = panel.note.object
    session.open()
    opened(session, panel, lambda: session.has_failed)
    assert panel.note.object.endswith(WAY_OUT)
    assert all(start.disabled for start in PANELS[kind](panel))

    session.choose(GOOD)
    opened(session, panel, lambda: session.run is not None and session.screen.key)
    assert panel.note.object == before
    starts = [start for start in PANELS[kind](panel) if start is not getattr(panel, "again", None)]
    assert not any(start.disabled for start in starts)
    panel.close()


def test_why_rows_of_ones_own_have_no_link_is_a_sentence_that_wraps(session: Session):
    rows = gpx.load((torch.rand(40, 2), torch.rand(40)))
    own = Session(gpx.Spec("cholqr", {"num_inducing": 8}, {"name": "upload", "file": "mine.csv"}), lambda _: rows)
    panels = [SharePanel(each, lambda _: "") for each in (session, own)]
    for each, panel in zip((session, own), panels, strict=True):
        each.open()
        opened(each, panel, lambda each=each: each.run is not None and each.screen.key)

    with_link, without = panels
    assert "data=friedman1" in with_link.link.value
    assert (with_link._linked.visible, with_link.refusal.visible) == (True, False)
    assert without.refusal.object.endswith("send the program or the Spec with them.")
    assert (without._linked.visible, without.refusal.visible) == (False, True)  # a field of one line would cut it
    assert without.copy_link.copied == ""
    for panel in panels:
        panel.close()
    own.close()


def test_the_run_before_can_be_used_and_the_settings_that_were_refused_cannot(session: Session):
    session.open()
    opened(session, panel := PredictPanel(session), lambda: session.screen.key)
    session.read = refusing
    session.open()
    opened(session, panel, lambda: session.has_failed)
    assert not panel.upload.disabled
    for kind, is_ready in ((RacePanel, False), (ScalingPanel, False), (SharePanel, True)):
        other = kind(session, lambda _: "") if kind is SharePanel else kind(session)
        other.update()
        assert [start.disabled for start in PANELS[kind](other)] == [not is_ready]
        assert ("The run that was asked for last could not be opened" in other.note.object) != is_ready
        other.close()
    panel.close()


def test_a_run_that_waits_for_play_can_be_measured_and_not_yet_predict(session: Session):
    session.prepare("It is large.")
    opened(session, panel := PredictPanel(session), lambda: True)
    assert panel.note.object == "No run is open yet: press Play."
    assert panel.upload.disabled
    scaling = ScalingPanel(session)
    scaling.update()
    assert not scaling.go.disabled
    panel.close()
    scaling.close()
