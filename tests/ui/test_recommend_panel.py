"""The panel "What should I use?": an answer with a picture, its use on the page, and cancelling."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from gpexplorer import Spec, data, load_posterior
from gpexplorer.ui.panels.recommend_panel import RecommendPanel
from gpexplorer.ui.session import Session
from gpexplorer.views.runs.comparison_charts import CandidateScores

pytestmark = [
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning:bokeh"),
    pytest.mark.filterwarnings("ignore:Both 'variant' and 'button_style'"),  # of the download button
]
SPEC = Spec("cholqr", {"num_inducing": 5}, {"name": "hypercube", "n": 90, "d": 1, "seed": 3}, kernel="se")


def wait(holds: Callable[[], object], panel: RecommendPanel) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        panel.update()
        time.sleep(0.02)


def test_the_answer_is_words_and_a_picture_and_sets_the_page(tmp_path: Path) -> None:
    adopted: list[Spec] = []
    session = Session(SPEC, adopt=adopted.append)
    session.open()
    panel = RecommendPanel(session)
    try:
        panel.seconds.value = 2
        panel.ask()
        wait(lambda: panel.adopt.visible, panel)
        answer = panel._answer
        assert answer is not None
        assert answer.sentences[0][:-1] in panel.words.object
        assert "runner-up" in panel.words.object
        assert panel.picture.visible
        labels = [entry[0] for entry in panel.legend.entries]
        assert labels[:3] == ["95 % interval", "chosen", "other methods"]
        model = tmp_path / "model.safetensors"
        model.write_bytes(panel.files[0].callback().getvalue())
        X = np.array([[0.2], [0.4]])
        np.testing.assert_allclose(load_posterior(model)(X).mean, answer.predict(X).mean, rtol=1e-6)
        panel._toggle(1)
        assert panel.legend.entries[1][-1] is False
        panel.use()
        assert "Press Play" in panel.note.object
        assert adopted[-1].method == answer.method
        assert adopted[-1].data == SPEC.data
        assert session.spec.kernel == answer.spec.kernel
        session.change_rows("snelson-like")
        panel.use()
        assert "ask again" in panel.note.object
        assert len(adopted) == 1
    finally:
        panel.close()
        session.close()


def test_an_answer_opens_with_the_transform_of_its_target() -> None:
    adopted: list[Spec] = []
    session = Session(SPEC, adopt=adopted.append)
    panel = RecommendPanel(session)
    panel._asked_for = (SPEC.data, SPEC.split)
    try:
        for target_transform in ("yeo-johnson 0.5", "log", ""):
            spec = Spec("ml", kernel="se-ard", seed=2, target_transform=target_transform)
            panel._answer = SimpleNamespace(spec=spec, average=None)  # type: ignore[assignment]
            panel.use()
            assert adopted[-1] == session.spec == replace(spec, data=SPEC.data, settings=session.spec.settings)
    finally:
        panel.close()
        session.close()


def test_cancelling_gives_the_best_answer_so_far_within_a_step() -> None:
    rows = data.load(SPEC.data)
    session = Session(SPEC, lambda _: rows)
    session.open()
    panel = RecommendPanel(session)
    try:
        panel.seconds.value = 600
        panel.ask()
        worker = panel._worker
        assert worker is not None
        wait(lambda: worker.progress is not None, panel)
        begin = time.monotonic()
        panel.pause()
        wait(lambda: panel._worker is None, panel)
        assert time.monotonic() - begin < 10
        assert panel.go.disabled is False
    finally:
        panel.close()
        session.close()


def test_the_picture_shows_each_model_at_its_score_with_its_interval() -> None:
    table = pd.DataFrame({
        "model": ["a", "b", "ridge", "early", "lost", "average of 2 models"],
        "held_out": [60, 60, 60, 20, np.nan, 60], "nlpd": [0.1, 0.2, 0.3, 0.0, np.nan, 0.05],
        "nlpd_low": [0.0, 0.1, 0.2, -0.1, np.nan, 0.0], "nlpd_high": [0.2, 0.3, 0.4, 0.1, np.nan, 0.1],
        "sentence": ["Chosen.", "Worse.", "A simple model.", "Given up.", "No time.", "It is 60 % of a and 40 % of b."],
    })  # fmt: skip
    layers = CandidateScores(table).data()
    assert layers["chosen"][["x", "y"]].to_numpy().tolist() == [[0.1, 5.0]]
    assert layers["average of models"][["x", "y"]].to_numpy().tolist() == [[0.05, 1.0]]
    assert layers["simple models"]["model"].tolist() == ["ridge"]
    assert layers["other methods"]["model"].tolist() == ["b"]
    assert layers["given up early, on fewer rows"]["model"].tolist() == ["early"]
    ends = [[0, 5, 0.2, 5], [0.1, 4, 0.3, 4], [0.2, 3, 0.4, 3], [-0.1, 2, 0.1, 2], [0, 1, 0.1, 1]]
    np.testing.assert_allclose(layers["95 % interval"].to_numpy(), ends)
    assert "average of models" not in CandidateScores(table.iloc[:5]).data()
