"""Commands of the command line in processes of their own, forked from one that has imported the package.

A new interpreter takes 3 s of a processor to import it; the fork begins with the arguments, in its own folder.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

IMPORTED = ["gpexplorer.methods", "gpexplorer.runs", "gpexplorer.recommendation", "gpexplorer.cli.run_commands"]


def _begin(arguments: tuple[str, ...], folder: Path, output: Path) -> None:
    """What the fork does: the standard streams become files, and the command begins."""
    os.chdir(folder)
    for name, number in (("stdout", 1), ("stderr", 2)):
        file = os.open(output / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        setattr(sys, name, open(number, "w", buffering=1, closefd=False))  # noqa: SIM115
    from gpexplorer.__main__ import main

    sys.argv = ["gpexplorer", *arguments]
    main(list(arguments))


@dataclass(frozen=True)
class Forked:
    """A command in a process of its own, and the files of what it says."""

    process: ForkServerProcess
    output: Path

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self.process.pid or 0, number)

    def error(self) -> str:
        """What it has written to its standard error until now."""
        file = self.output / "stderr"
        return file.read_text() if file.exists() else ""

    def ended(self, timeout: float) -> tuple[int, str, str]:
        """Wait for its end: the exit code, as of a process of the shell, and what it has said."""
        self.process.join(timeout)
        code = self.process.exitcode
        assert code is not None, self.error()
        return code, (self.output / "stdout").read_text(), self.error()


def forked(*arguments: str, folder: Path) -> Forked:
    """Begin a command in this folder; what it says is written to files there."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=_begin, args=(arguments, folder, folder), daemon=True)
    process.start()
    return Forked(process, folder)
