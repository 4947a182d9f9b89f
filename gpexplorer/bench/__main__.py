"""`python -m gpexplorer.bench cholqr --data kin40k --m 512`: each module here that has a `command` is one benchmark."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated

import torch
import typer

from .. import bench

app = typer.Typer(help="Figures beside the machine's own floor.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def threads(threads: Annotated[int, typer.Option(help="Torch threads.", min=1)] = 2) -> None:
    """Settings of every benchmark."""
    torch.set_num_threads(threads)


for _found in pkgutil.iter_modules(bench.__path__):
    if _found.name != "__main__":
        _module = importlib.import_module(f"{bench.__name__}.{_found.name}")
        if hasattr(_module, "command"):
            app.command(_found.name.replace("_", "-"))(_module.command)

if __name__ == "__main__":
    app()
