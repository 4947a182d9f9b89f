"""What a posterior is called in a cell, and that Panel shows it."""

from __future__ import annotations

import numpy as np
import panel as pn
import pytest

from gpexplorer import Spec
from gpexplorer.posteriors.base import Posterior, kinds

LINE = {"name": "hypercube", "n": 60, "d": 1, "seed": 3}


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("random", {"num_inducing": 7}, "inducing, 7 points"),
        ("subset-of-data", {"num_rows": 20}, "rows, 20 rows"),
        ("rff", {"num_features": 30}, "30 features"),
        ("vecchia", {}, "nearest rows, 54 rows"),
    ],
)
def test_a_posterior_says_what_it_is_of_in_one_line(method: str, settings: dict[str, int], words: str):
    run = Spec(method, settings, LINE, kernel="se").open()
    run.finish(steps=7)

    for of in ("f", "y"):
        assert repr(run.posterior(of=of)) == f'<posterior of {of}, target "y", inputs "x": {words}>'
    assert repr(run.posterior().inner) == f"<posterior of f: {words}>"


def test_many_inputs_and_added_rows_stay_one_line():
    run = Spec("cholesky", {"learn": False}, {"name": "friedman1", "n": 50, "d": 9}).open()
    run.finish()
    posterior = run.posterior()

    assert 'inputs "x1", "x2", "x3", "x4", "x5", "x6" and 3 more: rows, 45 rows>' in repr(posterior)
    assert "46 rows" in repr(posterior.with_rows(np.full((1, 9), 0.5), [14.0]))


def test_panel_shows_a_posterior_and_takes_it_for_no_file():
    run = Spec("random", {"num_inducing": 4}, LINE).open()
    run.finish(steps=4)

    shown = pn.panel(run.posterior()).get_root()

    assert "posterior of f" in shown.text
    assert not any(hasattr(kind, "read") for kind in (Posterior, *kinds.values()))
