"""The script that runs scikit-learn's checks for every method, on a few of them."""

from __future__ import annotations

import pytest

from estimator_checks import report
from gpexplorer import Estimator


def test_a_line_says_what_passed_what_is_refused_and_what_failed(monkeypatch: pytest.MonkeyPatch):
    lines = list(report(["ml", "rff", "svgp"], only="check_sample_weight"))

    assert [line.split()[0] for line in lines] == ["ml", "rff", "svgp"]
    assert all(line.endswith(" s") for line in lines), lines  # nothing failed
    assert [int(line.split()[3]) for line in lines][:2] == [0, 0]
    assert int(lines[2].split()[3]) > 0  # minibatches take no weights

    monkeypatch.setattr(Estimator, "predict", lambda self, X: None)
    [line] = report(["ml"], only="check_regressors_train")
    assert line.split()[1] == "0"
    assert "check_regressors_train (" in line
