"""`python -m gpexplorer.bench cholqr --data kin40k --m 512`"""

from __future__ import annotations

from typing import Annotated

import torch
import typer

from . import cholqr as cholqr_bench

app = typer.Typer(help="Figures beside the machine's own floor.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def threads(threads: Annotated[int, typer.Option(help="Torch threads.", min=1)] = 2) -> None:
    """Settings of every benchmark."""
    torch.set_num_threads(threads)


@app.command()
def cholqr(
    data: Annotated[str, typer.Option(help="A registry set or generator.")] = "kin40k",
    m: Annotated[int, typer.Option(help="Inducing points.", min=1)] = 512,
    sweeps: Annotated[int, typer.Option(help="Sweeps of m tries.", min=1)] = 4,
    proposals: Annotated[int, typer.Option(help="Candidates tested exactly each try.", min=1)] = 2,
    pivots: Annotated[int, typer.Option(help="Information pivots z.", min=1)] = 16,
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Seconds a swap over the floor; objective and SMSE after each sweep; drift."""
    kind = {"float64": torch.float64, "float32": torch.float32}[dtype]
    for line in cholqr_bench.report(data, m, sweeps, kind, device, num_proposals=proposals, num_pivots=pivots):
        typer.echo(line)


if __name__ == "__main__":
    app()
