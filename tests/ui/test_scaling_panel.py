"""Measurements of growing cost: their first sizes, the name of their picture, and those in a part of a story."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpexplorer import Scaling, Spec
from gpexplorer.runs.studies.measured_run import Measured
from gpexplorer.ui.address import read_query
from gpexplorer.ui.explorer import START, Explorer
from gpexplorer.ui.panels import scaling_panel
from gpexplorer.ui.panels.scaling_panel import ScalingPanel
from gpexplorer.ui.session import Session


@pytest.mark.parametrize(("data", "last"), [("concrete", 927), ({"name": "friedman1", "n": 60}, 4000)])
def test_sizes_end_with_the_rows_that_there_are(data: object, last: int, data_dir: Path):
    """A set of 927 training rows was asked for 4,000, and the measurement refused."""
    explorer = Explorer(Spec("random", {"num_inducing": 5}, data=data))
    explorer.settle()
    panel = ScalingPanel(explorer.session)

    sizes = panel._sizes()

    assert len(sizes) == 5
    assert sizes[-1] == panel.high.value == last
    assert sizes[0] == panel.low.value < last / 3
    panel.axis.value = "m"
    assert panel._sizes()[-1] == 128
    explorer.close()


def test_a_saved_chart_is_called_by_what_was_measured():
    spec = Spec("random", {"num_inducing": 5}, data={"name": "friedman1", "n": 60})
    panel = ScalingPanel(Session(spec))
    study = Scaling(spec, "n", [20, 40, 80], lambda _, n: Measured(n, 10, n * 1e-4, 8.0 * n, 0.1, 5))
    list(study)
    panel._worker = SimpleNamespace(scalings=[study], over=True, error="", close=lambda: None)

    panel._show(panel._worker)

    assert panel.chart._live.figure.name == "Scaling with n, random"
    panel._session.close()


@pytest.fixture
def growth() -> Iterator[Explorer]:
    explorer = Explorer()
    explorer.adopt(read_query("story=growth&part=3", Spec(**START)))
    yield explorer
    explorer.close()


def test_a_part_measures_and_says_the_slopes_of_its_runs(growth: Explorer, monkeypatch: pytest.MonkeyPatch):
    power, released, ended = 3.0, threading.Event(), []

    class Child:
        def __enter__(self) -> Child:
            return self

        def __exit__(self, *exception: object) -> None:
            ended.append(self)

        def measure(self, spec: Spec, rows: int) -> Measured:
            assert released.wait(20)
            scatter = 1.2 if rows in (500, 2000) else 1.0
            return Measured(rows, 1, scatter * 1e-8 * rows ** (power if spec.method == "ml" else 2.0))

    def until_measured() -> str:
        study._worker.thread.join(20)
        growth.story.study.update()
        return study.note.object

    monkeypatch.setattr(scaling_panel, "Child", Child)
    study = growth.story.study
    study.toggle()
    assert study.note.object == "0 of 12 runs measured. Their process takes some seconds to start."
    growth.story.go(1)  # while the first size is measured, which ends the measurement
    assert study.go.label == "Measure"
    assert growth.story.study is not study
    released.set()
    study._worker.thread.join(20)
    study.update()
    assert study._progress() == "1 of 12 runs measured."
    growth.story.go(-1)
    assert growth.story.study is study
    assert len(growth.story._place) == 1
    assert study.note.object.startswith("Stopped: 1 of 12 runs measured.<br>")
    assert "measure 4 different ones at least" in study.note.object
    for power, said, factors in (
        (3.0, "likelihood grows faster", "3.33, 16"),
        (2.0, "The intervals overlap", "1.67, 4"),
    ):
        study.toggle()
        note = until_measured()
        assert "at 1,000 and 2,000 rows, relative to 500: n² 2, 4; n³ 4, 16; GPCV-ADMM 1.67, 4; " in note
        assert f"likelihood {factors}." in note
        assert "GPCV-ADMM: grows like n^1.97 (95% interval 1.77 to 2.17;" in note
        assert f"likelihood: grows like n^{power - 0.03:.2f} (95% interval" in note
        assert said in note
    assert study.go.label == "Measure"
    assert len(ended) == 3
    growth.story.go(1)
    assert growth.story.study._sizes == (60, 85, 120, 170, 240, 340, 480)
    assert growth.story.study is not study
    growth._go_back("?story=growth&part=3")  # the browser's Back
    assert growth.story.study is study
    assert study.note.object == note  # what was measured stays with its part
    assert "Stopped" not in note
    growth.story.leave()
    assert growth.story.study is None
    assert study not in growth.session.panels


def test_a_process_that_cannot_be_started_is_a_sentence(growth: Explorer, monkeypatch: pytest.MonkeyPatch):
    def refused() -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(scaling_panel, "Child", refused)
    study = growth.story.study
    study.toggle()
    study._worker.thread.join(20)
    growth.story.study.update()

    assert "while the process that measures was being started" in study.note.object
    assert study.go.label == "Measure"
