"""The command `predict`: a saved model and a file of rows become a table of predictions.

Apart because it needs a saved model only, and neither a spec nor a store.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd

PARQUET = (".parquet", ".pq")


def predict(
    model: Annotated[Path, typer.Argument(help="A file that `run --model` or posterior.save wrote.")],
    rows: Annotated[Path, typer.Argument(help="A CSV, Parquet or NPZ file with the input columns of the model.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the table to this CSV or Parquet file instead of printing it.")
    ] = None,
    of: Annotated[str, typer.Option(help='"y" for new observations, or "f" for the function without noise.')] = "y",
    quantiles: Annotated[str, typer.Option(help="Probabilities of further columns, such as 0.1,0.5,0.9.")] = "",
) -> None:
    """Predict the rows of a file with a saved model, of any number of rows.

    The table has the mean, the standard deviations of the prediction and of f, the ends of the 95 % interval, a flag
    for rows that are far from all training rows, and a column `why` that says which cells were filled, are words that
    training does not have, or cannot be read. The counts of these are printed at the end.
    """
    from ..errors import SettingError
    from ..runs.storage.own_files import replacing
    from ..runs.storage.saved_posterior import load_posterior
    from ..runs.studies.prediction_table import predictions_of_file, sentence_of_counts
    from .files import require_writable, writable

    require_writable(out)
    try:
        levels = [float(level) for level in quantiles.split(",") if level.strip()]
    except ValueError:
        raise SettingError(f"quantiles is {quantiles!r}: give numbers such as 0.1,0.5,0.9.") from None
    counts: Counter[str] = Counter()
    tables = _counted(predictions_of_file(load_posterior(model), rows, of, levels), counts)
    if out is None:
        _write_csv(tables, sys.stdout)
        typer.echo(sentence_of_counts(counts), err=True)
        return
    with writable(out), replacing(out, private=False) as fresh:
        if out.suffix.lower() in PARQUET:
            _write_parquet(tables, fresh)
        else:
            with fresh.open("w", encoding="utf-8", newline="") as file:
                _write_csv(tables, file)
    typer.echo(sentence_of_counts(counts), err=True)


def _counted(tables: Iterator[pd.DataFrame], counts: Counter[str]) -> Iterator[pd.DataFrame]:
    """The tables as they come, with their rows counted by what is said of them."""
    from ..runs.studies.prediction_table import count_reasons

    for table in tables:
        counts.update(count_reasons(table))
        yield table


def _write_csv(tables: Iterator[pd.DataFrame], file: object) -> None:
    for number, table in enumerate(tables):
        table.to_csv(file, index=False, header=number == 0)  # type: ignore[call-overload]


def _write_parquet(tables: Iterator[pd.DataFrame], out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    try:
        for table in tables:
            arrow_table = pa.Table.from_pandas(table, preserve_index=False)
            writer = writer or pq.ParquetWriter(out, arrow_table.schema)
            writer.write_table(arrow_table)
    finally:
        if writer is not None:
            writer.close()
