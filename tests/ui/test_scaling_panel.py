"""The sizes that a measurement of growing cost begins with, and the name of its picture."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gpexplorer import Scaling, Spec
from gpexplorer.runs.studies.measured_run import Measured
from gpexplorer.ui.explorer import Explorer
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
