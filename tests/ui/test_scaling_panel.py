"""The sizes that a measurement of growing cost begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpexplorer import Spec
from gpexplorer.ui.explorer import Explorer
from gpexplorer.ui.panels.scaling_panel import ScalingPanel


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
