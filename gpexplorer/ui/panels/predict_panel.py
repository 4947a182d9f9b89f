"""The panel that predicts a new file with the run on the screen, and gives the table as CSV or Parquet."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pandas as pd
import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...errors import GPExplorerError, SettingError
from ...runs.studies.prediction_table import prediction_table
from ..inputs.file_upload import FileUpload
from ..playback.locked_change import change
from ..session import Session
from ..styles import TEXT
from ..text import named, sentence, text

CAP = data_sets.UPLOAD.file_bytes
SHOWN = 8  # rows on the page
OPTIONS = {"new observations (y)": "y", "the function without noise (f)": "f"}
CSS = """
:host { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 12px 3px 0; text-align: right; }
"""


class PredictPanel(pn.viewable.Viewer):
    """The upload of new rows, and their predictions by the run that `session` shows."""

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(**params)
        self._session = session
        self._table: pd.DataFrame | None = None
        self._file: tuple[str, bytes] | None = None
        self._basis: tuple[Any, ...] = ()  # run, step and kind of the predictions in the table
        self.of = pmui.Select(label="Predict", options=OPTIONS, value="y", width=250, size="small", margin=(6, 10))
        self.of.param.watch(self._predict_again, "value")
        self.again = pmui.Button(
            **named("Predict again", "predict the same rows by the step that is shown now."), icon="refresh",
            variant="outlined", size="small", on_click=self._predict_again, visible=False, margin=(6, 10),
        )  # fmt: skip
        self.upload = FileUpload(
            self._say, CAP,
            **named(
                f"New rows (at most {CAP // 10**6} MB)",
                "a CSV, Parquet or NPZ file with the input columns of the open run. Larger files: gpexplorer predict.",
            ),
            accept=".csv,.tsv,.txt,.gz,.parquet,.pq,.npz", variant="outlined", margin=(4, 10),
        )  # fmt: skip
        self.upload.param.watch(self._read, "value")
        self.csv = pmui.FileDownload(
            callback=self._csv, filename="predictions.csv", label="predictions.csv", variant="outlined", size="small",
            margin=(4, 6),
        )  # fmt: skip
        self.parquet = pmui.FileDownload(
            callback=self._parquet, filename="predictions.parquet", label="predictions.parquet", variant="outlined",
            size="small", margin=(4, 6),
        )  # fmt: skip
        self.files = pn.Row(self.csv, self.parquet, visible=False)
        self.note = pn.pane.HTML(
            "The run on the screen predicts every row of a file.", margin=(2, 12), sizing_mode="stretch_width",
            stylesheets=[TEXT],
        )  # fmt: skip
        self.head = pn.pane.HTML("", margin=(2, 12), sizing_mode="stretch_width", stylesheets=[CSS])
        self._layout = pn.Column(
            pmui.FlexBox(self.of, self.upload, self.again, align_items="center"), self.note, self.head, self.files,
            sizing_mode="stretch_width",
        )  # fmt: skip

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
        columns = posterior.columns
        texts = len(columns.columns.texts) if columns.columns else 0
        X = data_sets.read_inputs(name, data, columns.names, numeric=not isinstance(columns.X, list), texts=texts)
        with self._session.shares.turns.turn():
            return prediction_table(posterior, X, self.of.value if self.of.value in OPTIONS.values() else "y")

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
        self._table, self.files.visible, self.head.object = None, False, ""
        self._say(f"Predicting the rows of {name} …")
        self._basis, about = self._shown, self.about_step()
        document = pn.state.curdoc
        try:
            table = await asyncio.to_thread(self.predict, name, data)
        except Exception as error:
            message = str(error) if isinstance(error, GPExplorerError) else sentence(error, "rows were predicted")
            change(document, lambda: self._say(message))
            return
        change(document, lambda: self.show_table(name, table, about))

    @property
    def _shown(self) -> tuple[Any, ...]:
        """What predictions depend on: the run on the screen, its step, and what is predicted."""
        screen = self._session.screen
        return screen.key, screen.step, screen.by_hand, self.of.value

    def about_step(self) -> str:
        """Say which step predicts, and that more steps would change it where the run has not ended."""
        run, step = self._session.run, self._session.screen.step
        if run is None or not len(run.trace):
            return ""
        begin = f"Predicted by step {step} of {run.method.title}."
        if step < run.done:
            return f"{begin} The run has gone on to step {run.done}: show that step, and predict again."
        if run.outcome is not None and run.outcome.reason == "converged":
            return begin
        if step == 0:
            return f"{begin} Nothing has been learned yet: press Play, and predict again when the run has ended."
        return f"{begin} The run has not converged: more steps may change the predictions."

    def show_table(self, name: str, table: pd.DataFrame, about: str = "") -> None:
        """Show the first rows, how many rows are far or incomplete, which step predicts, and the downloads."""
        self._table = table
        far, missing = int((table["far"] == 1).sum()), int(table["mean"].isna().sum())
        parts = [f"{len(table):,} rows of {name}.", about]
        if far:
            parts.append(f"{far:,} are far from all training rows: their prediction is little more than a guess.")
        if missing:
            parts.append(f"{missing:,} have a missing value, and no prediction.")
        self._say(" ".join(filter(None, parts)))
        first = table.head(SHOWN)
        self.head.object = first.to_html(index=False, escape=True, float_format=lambda value: f"{value:.5g}")
        self.files.visible = True

    def update(self) -> None:
        """Offer to predict again where another step or run is shown than the one of the table."""
        self.again.visible = self._file is not None
        self.again.disabled = self._basis == self._shown

    def set_theme(self, theme: str) -> None:
        """Do nothing: the panel has no figures."""

    def pause(self) -> None:
        """Do nothing: the panel has no thread of its own."""

    def close(self) -> None:
        """Free the table and the file."""
        self._table = self._file = None

    def _say(self, message: str) -> None:
        self.note.object = text(message)

    def _csv(self) -> io.BytesIO:
        return io.BytesIO((self._table if self._table is not None else pd.DataFrame()).to_csv(index=False).encode())

    def _parquet(self) -> io.BytesIO:
        buffer = io.BytesIO()
        (self._table if self._table is not None else pd.DataFrame()).to_parquet(buffer, index=False)
        buffer.seek(0)
        return buffer

    def __panel__(self) -> Any:
        return self._layout
