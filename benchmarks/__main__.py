"""`python -m benchmarks cholqr --data kin40k --m 512`: each module here that has a `command` is a benchmark."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated

import torch
import typer

from gpexplorer.cli.output import call

from . import __name__ as package
from . import __path__ as folders

app = typer.Typer(
    help="Benchmarks, beside what this machine can do at best.", no_args_is_help=True, pretty_exceptions_enable=False
)


@app.callback()
def threads(threads: Annotated[int, typer.Option(help="Torch threads.", min=1)] = 2) -> None:
    """Settings of every benchmark."""
    torch.set_num_threads(threads)


for _module in pkgutil.iter_modules(folders):
    if _module.name != "__main__":
        _imported = importlib.import_module(f"{package}.{_module.name}")
        if hasattr(_imported, "command"):
            app.command(_module.name.replace("_", "-"))(_imported.command)
            for _former_name in getattr(_imported, "FORMER_NAMES", ()):
                app.command(_former_name, hidden=True)(_imported.command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; an error of gpexplorer is printed as its sentence, with exit code 2."""
    call(app, arguments, "python -m benchmarks")


if __name__ == "__main__":
    main()
