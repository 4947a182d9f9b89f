"""The command `predict`: a saved model and a file of rows become a table of predictions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

HALF_WIDTH = 1.959963984540054  # of a 95 % interval, in standard deviations


def predict(
    model: Annotated[Path, typer.Argument(help="A file that `run --model` or posterior.save wrote.")],
    rows: Annotated[Path, typer.Argument(help="A CSV, Parquet or NPZ file with the input columns of the model.")],
    out: Annotated[Path | None, typer.Option(help="Write the table to this CSV file instead of printing it.")] = None,
    of: Annotated[str, typer.Option(help='"y" for new observations, or "f" for the function without noise.')] = "y",
) -> None:
    """Predict the rows of a file with a saved model: mean, standard deviation and the ends of the 95 % interval."""
    import pandas as pd

    from ..data.files.reading import read_path
    from ..posteriors import load_posterior
    from .files import require_writable, writable

    require_writable(out)
    posterior = load_posterior(model).asked_for(of)
    frame = read_path(rows).table.to_pandas()
    mean, var = posterior(frame)
    sd = var.sqrt()
    columns = {"mean": mean, "sd": sd, "lower_95": mean - HALF_WIDTH * sd, "upper_95": mean + HALF_WIDTH * sd}
    table = pd.DataFrame({name: column.cpu().numpy() for name, column in columns.items()})
    if out is None:
        table.to_csv(sys.stdout, index=False)
    else:
        with writable(out):
            table.to_csv(out, index=False)
