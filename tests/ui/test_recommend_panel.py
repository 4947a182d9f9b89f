"""The panel "What should I use?": an answer with a picture, its use on the page, and cancelling."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpexplorer import Spec, data, load_posterior, recommend
from gpexplorer.data import Split
from gpexplorer.posteriors import AveragePosterior
from gpexplorer.recommendation import Recommendation
from gpexplorer.recommendation.averaging import Average
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.held_out import Interval
from gpexplorer.recommendation.promises import planned
from gpexplorer.recommendation.result import STANDINGS
from gpexplorer.runs.studies.prediction_table import predictions_of_file
from gpexplorer.ui.inputs.own_file import FileRows
from gpexplorer.ui.panels.predict_panel import PredictPanel
from gpexplorer.ui.panels.recommend_panel import RecommendPanel, Way, _rows, _saved_model, reworded
from gpexplorer.ui.panels.share_panel import SharePanel
from gpexplorer.ui.playback.trained_run import TrainedRun
from gpexplorer.ui.session import Session
from gpexplorer.views.runs.prediction import Fit

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
        assert "runner-up" in panel.reasons.object
        assert panel.picture.visible
        labels = [entry[0] for entry in panel.chart.legend.entries]
        assert labels[:2] == ["95 % interval", "the answer"]
        assert panel.chart._live.figure.name == "Recommendation, NLPD of models"
        assert labels[2] in (STANDINGS if answer.average is not None else ("other methods",))
        model = tmp_path / "model.safetensors"
        model.write_bytes(panel.files[0].callback().getvalue())
        X = np.array([[0.2], [0.4]])
        np.testing.assert_allclose(load_posterior(model)(X).mean, answer.predict(X).mean, rtol=1e-6)
        panel.chart.toggle(1)
        assert panel.chart.legend.entries[1][-1] is False
        panel.use()
        assert "trained answer is open" in panel.note.object
        assert adopted[-1].method == answer.method
        assert adopted[-1].data == SPEC.data
        assert session.spec.kernel == answer.kernel  # without its theta, so that other rows can be opened
        said = panel.note.object
        session.change_rows("snelson-like")
        panel.update()
        assert panel.note.object == "Other rows are open now; this answer is about hypercube: ask again for these."
        assert not panel.adopt.visible
        panel.use()
        assert len(adopted) == 1
        session.change_rows(SPEC.data)
        panel.update()
        assert panel.note.object == said
        assert panel.adopt.visible
    finally:
        panel.close()
        session.close()


def test_the_page_shows_that_it_works_before_the_thread_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its imports keep the processor busy: what was to be sent after them came seconds late."""
    later: list[Callable[[], None]] = []
    monkeypatch.setattr("gpexplorer.ui.panels.recommend_panel.change", lambda _, act: later.append(act))
    session = Session(SPEC)
    panel = RecommendPanel(session)
    try:
        for seconds, is_refused in ((-1, True), (2, False)):
            panel.seconds.param["value"].bounds = None
            panel.seconds.value = seconds
            panel.ask()
            assert panel.go.disabled
            assert panel.note.object == "Reading the rows …"
            assert panel._worker is None
            later.pop()()
            assert panel.go.disabled == (not is_refused)
            assert panel.cancel.disabled == is_refused
            assert (panel._worker is None) == is_refused
    finally:
        panel.close()
        session.close()


def test_an_answer_opens_with_the_transform_of_its_target() -> None:
    adopted: list[Spec] = []
    session = Session(SPEC, adopt=adopted.append)
    panel = RecommendPanel(session)
    panel._asked_for = panel._open_rows
    try:
        for target_transform in ("yeo-johnson 0.5", "log", ""):
            spec = Spec("ml", kernel="se-ard", seed=2, target_transform=target_transform)
            run = Spec("ml", kernel="se-ard").open(data=data.load(SPEC.data))
            run.advance()
            panel._answer = SimpleNamespace(  # type: ignore[assignment]
                spec=spec, average=None, posterior=None, run=run, sentences=("Use ml.",)
            )
            panel.use()
            assert adopted[-1] == session.spec == replace(spec, data=SPEC.data, settings=session.spec.settings)
    finally:
        panel.close()
        session.close()


def averaged_answer(rows: Split, simple: bool) -> Recommendation:
    """An answer whose average has two models in two scales, or a simple one alone."""
    answer = recommend(rows, seconds=1.0, among=[Candidate("ml, se", "exact", "ml", "se")])
    other = Spec("subset-of-data", {"num_rows": 30}, kernel="matern32", target_transform="yeo-johnson").open(data=rows)
    other.finish(steps=3)
    parts = [other.posterior(of="y")] if simple else [answer.run.posterior(of="y"), other.posterior(of="y")]
    weights = {"the other": 1.0} if simple else {"ml, se": 0.7, "the other": 0.3}
    average = Average(weights, AveragePosterior(parts, [*weights.values()]), answer.expected, (0.1, 0.1), None)
    return replace(answer, average=average)


@pytest.mark.parametrize("simple", [False, True])
def test_the_trained_answer_predicts_as_its_file_does_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simple: bool
) -> None:
    rows = data.load({"name": "hypercube", "n": 90, "d": 1, "seed": 3}, split={"test": 0.2, "seed": 1})
    answer = averaged_answer(rows, simple)
    session = Session(SPEC, lambda _: rows)
    panel, prediction = RecommendPanel(session), PredictPanel(session)
    try:
        panel._answer, panel._asked_for = answer, session.read
        panel.use()
        end = time.monotonic() + 30
        while not isinstance(session.run, TrainedRun):
            session.take(0.05)
            assert time.monotonic() < end
        until_taken(session)
        path = tmp_path / "model.safetensors"
        path.write_bytes(_saved_model(answer))
        name = rows.train.names[0]
        (tmp_path / "new.csv").write_text(f"{name}\n" + "\n".join(f"{x:.3f}" for x in np.linspace(-1.0, 2.0, 40)))
        shown = prediction.predict("new.csv", (tmp_path / "new.csv").read_bytes())
        saved = pd.concat(predictions_of_file(load_posterior(path), tmp_path / "new.csv"))
        for column in ("mean", "sd", "sd_f", "lower_95", "upper_95"):
            np.testing.assert_allclose(shown[column], saved[column], rtol=1e-10)
        assert "as the file that Save the model writes" in prediction.about_step()
        share = SharePanel(session, str)
        share.update()
        monkeypatch.chdir(tmp_path)
        printed: list[Any] = []
        exec(share.copy_code.copied.replace("print(", "printed.append("), {"printed": printed})
        np.testing.assert_allclose(printed[0]["mean"], saved["mean"], rtol=1e-10)
        assert "load_posterior" in share._notebook()
        assert ("average of 2 trained models" in session.answer) is not simple
        drawn = Fit().data(session.run, session.run.done)["mean"]
        np.testing.assert_allclose(
            drawn["y"], answer.posterior.asked_for("f").mean(drawn[["x"]].to_numpy()), rtol=1e-10
        )

        steps = answer.run.done
        session.player.step()  # goes on with the best Gaussian process, and leaves the answer as it is
        while session.player.working_since or (session.screen.step == steps and session.run.outcome is None):
            session.take(0.05)
            assert time.monotonic() < end
        assert answer.run.done == steps
        session.open()  # as "Start again" does
        assert session.answer == ""
    finally:
        panel.close()
        session.close()


def test_the_trained_answer_is_drawn_against_rows_of_many_inputs() -> None:
    rows = data.load({"name": "friedman1", "n": 60}, split={"test": 0.2, "seed": 1})
    answer = averaged_answer(rows, simple=False)
    run = TrainedRun(answer)
    layers = Fit().data(run, run.done)
    observed, predicted = rows.train.y.numpy(), answer.posterior.mean(rows.train.X).numpy()
    np.testing.assert_allclose(np.sort(layers["points"]["x"]), np.sort(observed), rtol=1e-12)
    np.testing.assert_allclose(np.sort(layers["points"]["y"]), np.sort(predicted), rtol=1e-9)
    assert run.scores() == {}
    assert layers["points"].attrs["label"] == "training rows"


def test_what_the_rows_ask_has_a_button_that_asks_again() -> None:
    changed: list[Any] = []

    def choose_again(drop: Any, kinds: Any) -> bool:
        changed.append((drop, kinds))
        return drop != ("elsewhere",)

    session = Session(SPEC)
    panel = RecommendPanel(session, choose_again)
    asked: list[tuple[str, str]] = []
    panel.ask = lambda: asked.append((panel.held_out.value, panel.prefer.value))  # type: ignore[method-assign]
    between, beyond = Interval(1.0, 0.9, 1.1), Interval(12.04, 9.0, 15.0)
    rows = SimpleNamespace(reader=None)
    answer = SimpleNamespace(
        run=SimpleNamespace(problem=SimpleNamespace(train=rows)),
        held_out_by="time", between={"rmse": between}, expected={"rmse": beyond},
        sentences=(
            "Use it.", "Plain <b>.",
            '"a" is -9 in 3 rows.\nkinds={"a": "number missing -9"} reads these cells as gaps.',
            'In order of time: folds="random" holds out rows between others.',
            'Trees have the smaller error, this answer the better bands: prefer="rmse" takes the smaller error.',
            '"twin [m]", "copy" are copies of "a", and can be left out.\ndrop=["twin [m]", "copy"] leaves them out.',
            '"leak" alone explains 99.99 % of the variance of "y": leave it out.\ndrop=["leak"] leaves it out.',
            '"zip" has codes.\nkinds={"zip": "words"} reads them as words.',
            'With "site" as an input.\nfolds="random" in place of groups, with kinds={"site": "words"}, makes it one.',
            "It took 1 s.",
        ),
    )  # fmt: skip
    try:
        panel._show_words(answer)  # type: ignore[arg-type]
        assert "<b>± 1</b><span>expected error (RMSE), between your rows" in panel.words.object
        assert "<b>± 12</b><span>expected error (RMSE), after the last row" in panel.words.object
        assert "<p>Plain &lt;b&gt;.</p>" in panel.reasons.object
        lines = [[part.object if k == 0 else part.label for k, part in enumerate(line)] for line in panel.questions]
        assert lines[0][0] == "<p>&quot;a&quot; is −9 in 3 rows.</p>"
        assert [line[1:] for line in lines] == [
            ["Read −9 as a gap"],
            ["Hold out single rows"], ["Take the smaller error"],
            ["Leave out twin [m], copy"], ["Leave out leak"],
            ["Read zip as words"], ["Hold out single rows, and read site as words"],
        ]  # fmt: skip
        assert not any(option in str(lines) for option in ("folds=", "prefer=", "drop", "kinds"))
        for line in list(panel.questions):
            line[1].clicks += 1
        assert asked == [("", "nlpd"), ("random", "nlpd"), *[("random", "rmse")] * 5]
        dropped = [(("twin [m]", "copy"), {}), (("leak",), {})]
        read = [((), {"zip": "words"}), ((), {"site": "words"})]
        assert changed == [((), {"a": "number missing -9"}), *dropped, *read]
        panel._show_words(answer)  # type: ignore[arg-type]
        back = [part.label for part in panel.questions[-1][1:]]
        assert back == ["Take the better bands", "Hold out as the rows suggest"]
        panel.follow(Way("", drop=("elsewhere",)))
        assert "Only columns of a file" in panel.note.object
        assert len(asked) == 7
    finally:
        panel.close()
        session.close()


def test_errors_about_options_name_the_controls_of_the_page() -> None:
    error = 'folds="groups" found no column of groups: name it with groups=, or give the group of each row.'
    assert "Choose columns" in reworded(error)
    assert "groups=" not in reworded(error)
    assert reworded('before is "x"; give a number') == '“Held out from” is "x"; give a number'
    assert (
        reworded("the rows that were known before it is measured") == "the rows that were known before it is measured"
    )


def test_groups_and_all_rows_of_a_file_are_used_from_the_page() -> None:
    lines = [f"{k % 4},pig {k // 4},{k // 4 % 3},{(k // 4) ** 2 % 17 + 0.1 * (k % 4):.2f}" for k in range(160)]
    content = "\n".join(["week,pig,litter,weight", *lines]).encode()
    choice = data.Choice(target="weight", inputs=("week", "pig", "litter"), encode=("pig",))
    rows, plan = planned(_rows(SPEC, FileRows("pigs.csv", content, choice)), None, {}, None, None, None)
    assert (plan.kind, plan.column) == ("groups", "pig")
    assert len(rows.train) == 160
    assert rows.train.names == ("week", "litter")


def until_taken(session: Session) -> None:
    """Wait until the page has the numbers of the newest record."""
    end = time.monotonic() + 30
    while session.run is None or session.screen.step != session.run.done:
        session.take(0.05)
        assert time.monotonic() < end


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
