"""The panel that predicts a new file with the run on the screen, and gives the table as CSV or Parquet."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import panel as pn

from ... import data as data_sets
from ...errors import SettingError
from ...runs.studies.prediction_table import count_reasons, prediction_table, sentence_of_counts
from ..browser.callbacks import work_in_thread
from ..inputs.own_file import CAP
from ..playback.trained_run import TrainedRun
from ..session import Session
from ..tables import TABLE, html_table
from ..text import cut, named, text, with_minus_signs
from ..widgets import FileUpload, button, column, download, line_of_text, row, select
from .study_panel import StudyPanel

SHOWN = 100  # rows on the page, of which some are in sight
MOST_DECIMALS = 6
OPTIONS = {"new observations (y)": "y", "the function without noise (f)": "f"}
UPLOAD = f"New rows (at most {CAP // 10**6} MB)"
UPLOAD_HELP = "a CSV, Parquet or NPZ file with the input columns of the open run. Larger files: gpexplorer predict."
OTHER_RUN = "Another run is on the screen now: predict again for its predictions."
GONE = (
    "The predictions of {} were removed, because their run was on other rows. Predict again for those of the run on "
    "the screen, where the file has its input columns."
)
IN_SIGHT = ":host { max-height: 330px; overflow: auto; }"


class PredictPanel(StudyPanel):
    """The upload of new rows, and their predictions by the run that `session` shows."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._table: pd.DataFrame | None = None
        self._file: tuple[str, bytes] | None = None
        self._basis: tuple[Any, ...] = ()  # run, step and kind of the predictions in the table
        self._rows_of_basis, self._about = "", ""  # its training rows, and what is said of the table
        self.of = select("Predict", OPTIONS, "y", 250)
        self.of.param.watch(self._predict_again, "value")
        hint = "predict the same rows by the step that is shown now."
        self.again = button("Predict again", "refresh", self._predict_again, hint, size="small", visible=False)
        self.upload = FileUpload(self.say, CAP, **named(UPLOAD, UPLOAD_HELP), variant="outlined", margin=(4, 10))
        self.upload.param.watch(self._read, "value")
        self.csv = download("predictions.csv", lambda: self._result.to_csv(index=False))
        self.parquet = download("predictions.parquet", lambda: self._result.to_parquet(index=False))
        self.files = pn.Row(self.csv, self.parquet, visible=False)
        self.note.object = "The run on the screen predicts every row of a file."
        self.head = line_of_text(margin=(2, 12), styles=[TABLE, IN_SIGHT])
        self.counts = line_of_text(margin=(4, 12))
        self._layout = column(row(self.of, self.upload, self.again), self.note, self.head, self.counts, self.files)

    def predict(self, name: str, data: bytes) -> pd.DataFrame:
        """The table of predictions for the rows of a file.

        Raises
        ------
        SettingError
            If no run is open, or it has no record.
        DataError
            If the file cannot be read, or has not the columns of the run.
        """
        run = self._session.run
        if run is None or not len(run.trace):
            raise SettingError("No run is open: open your training rows and take some steps first.")
        posterior = run.posterior(min(self._session.screen.step, len(run.trace) - 1), of="y")
        rows = data_sets.read_rows(name, data, posterior.model_inputs)
        with self._session.shares.turns.turn():
            table = prediction_table(posterior, rows, self.of.value if self.of.value in OPTIONS.values() else "y")
        table.attrs["target"] = run.problem.train.target
        return table

    async def _read(self, event: Any) -> None:
        if not event.new:
            return
        self._file = (str(self.upload.filename or "new.csv"), event.new)
        await self._predict_again()

    async def _predict_again(self, _event: Any = None) -> None:
        """Predict the rows of the file by the step that is shown now."""
        if self._file is None:
            return
        name, data = self._file
        self._remove_table()
        self.say(f"Predicting the rows of {name} …")
        self._basis, self._rows_of_basis, about = self._shown, self._training_rows, self.about_step()
        await work_in_thread(
            partial(self.predict, name, data),
            lambda table: self.show_table(name, table, about),
            self.say,
            "rows were predicted",
        )

    def _remove_table(self) -> None:
        self._table, self.files.visible, self.head.object, self.counts.object = None, False, "", ""

    @property
    def _training_rows(self) -> str:
        """What tells the training rows of the run on the screen from others."""
        spec = self._session.screen.spec
        return repr((spec.data, spec.split))

    @property
    def _shown(self) -> tuple[Any, ...]:
        """What predictions depend on: the run on the screen, its step, and what is predicted."""
        screen = self._session.screen
        return screen.key, screen.step, screen.by_hand, self._session.answer, self.of.value

    def about_step(self) -> str:
        """Say which step predicts, and that more steps would change it where the run has not ended."""
        run, step = self._session.run, self._session.screen.step
        if run is None or not len(run.trace):
            return ""
        if isinstance(run, TrainedRun) and step == run.answered_at:
            return "Predicted by the trained answer, as the file that Save the model writes does."
        begin = f"Predicted by step {step} of {run.method.title}."
        if step < run.done:
            return f"{begin} The run has gone on to step {run.done}: show that step, and predict again."
        if run.outcome is not None and run.outcome.reason == "converged":
            return begin
        if step == 0:
            return f"{begin} Nothing has been learned yet: press Play, and predict again when the run has ended."
        return f"{begin} The run has not converged: more steps may change the predictions."

    def show_table(self, name: str, table: pd.DataFrame, about: str = "") -> None:
        """Show the first rows, which step predicts, how many rows have which reason at the end, and the downloads."""
        self._table = table
        self._about = " ".join(filter(None, [f"{len(table):,} rows of {name}.", about]))
        self.say(self._about)
        decimals = _decimals(table["sd"].to_numpy(float))
        headings = ["row", cut(table.attrs.get("target", "mean"), 40), "± sd", "95 % from", "to", "why"]
        numbers = table[["mean", "sd", "lower_95", "upper_95"]].head(SHOWN).to_numpy(float)
        cells = [[_number(value, decimals) for value in values] for values in numbers]
        self.head.object = html_table(
            headings, [[k + 1, *own, why] for k, (own, why) in enumerate(zip(cells, table["why"], strict=False))]
        )
        counts = " ".join([*table.attrs.get("notes", ()), sentence_of_counts(Counter(count_reasons(table)))])
        if (table["far"] == 1).any():
            counts += " Far rows are far from all training rows: their prediction is little more than a guess."
        if len(table) > SHOWN:
            counts += f" The first {SHOWN:,} rows are shown, and all of them are in the files."
        self.counts.object = text(counts, 900)
        self.files.visible = True

    def update(self) -> None:
        """Offer to predict again where another step or run is shown than the one of the table, and say so.

        Predictions by a run on other rows are removed: a table that stays looks like one of the rows on the screen.
        """
        missing = self._session.missing_run
        if self._table is not None and self._file is not None:
            if missing or self._training_rows != self._rows_of_basis:
                self._remove_table()
                self.say(GONE.format(self._file[0]))
            else:
                self.say(self._about if self._basis[:1] == self._shown[:1] else f"{self._about} {OTHER_RUN}")
        self.require(missing, self.upload)
        self.again.visible = self._file is not None
        self.again.disabled = bool(missing) or self._basis == self._shown

    def pause(self) -> None:
        """Do nothing: the panel has no thread of its own."""

    def close(self) -> None:
        """Free the table and the file."""
        self._table = self._file = None

    @property
    def _result(self) -> pd.DataFrame:
        return self._table if self._table is not None else pd.DataFrame()


def _decimals(sd: np.ndarray) -> int | None:
    """The decimals that show two digits of a usual standard deviation; None where a power of ten is needed."""
    usual = float(np.nanmedian(sd)) if np.isfinite(sd).any() else 1.0
    if not 10.0 ** (1 - MOST_DECIMALS) <= usual < 1e9:
        return None
    return max(1 - int(np.floor(np.log10(usual))), 0)


def _number(value: float, decimals: int | None) -> str:
    """A number with marks between thousands and a minus sign; nothing for a missing one."""
    if not np.isfinite(value):
        return ""
    written = f"{value:.4g}" if decimals is None else f"{value:,.{decimals}f}"
    return with_minus_signs(written)
