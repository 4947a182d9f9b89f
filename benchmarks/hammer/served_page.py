"""The page in a process of its own, for experiments."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from .. import environment

SERVER = f"{__package__}.observed_server"


class ServedPage(NamedTuple):
    """A server of the page.

    Attributes
    ----------
    address : str
        Host and port.
    process : psutil.Process
        The server.
    log : Path
        What it has written, both streams.
    pipe : subprocess.Popen
        Its standard streams.
    """

    address: str
    process: psutil.Process
    log: Path
    pipe: subprocess.Popen[str]

    def computing(self) -> int:
        """Number of players that take steps, or still compute one."""
        return self._players()[0]

    def pages(self) -> int:
        """Number of pages that are open, or ready for a visitor."""
        return self._players()[1]

    def _players(self) -> list[int]:
        assert self.pipe.stdin is not None and self.pipe.stdout is not None
        self.pipe.stdin.write("\n")
        self.pipe.stdin.flush()
        while not re.fullmatch(r"\d+ \d+\n", line := self.pipe.stdout.readline()):
            if not line:
                raise RuntimeError(f"The page's server has ended: {self.log.read_text('utf-8', 'replace')[-2000:]}")
            with self.log.open("a") as log:  # Panel writes its warnings to stdout
                log.write(line)
        return [int(number) for number in line.split()]

    def log_lines(self) -> list[str]:
        """The lines of its log."""
        return self.log.read_text("utf-8", "replace").splitlines()


@contextmanager
def served_page(folder: Path, ready_pages: int = 0, max_sessions: int = 60) -> Iterator[ServedPage]:
    """Serve the page for as long as the block lasts, with log and store in a directory."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    command = [sys.executable, "-m", SERVER, str(port), str(ready_pages), str(folder / "store"), str(max_sessions)]
    with log.open("w") as output:
        pipe = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True,
            env=environment() | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        assert pipe.stdout is not None
        greeting = pipe.stdout.readline()
        if not greeting.startswith("Explorer:"):
            raise RuntimeError(f"The page was not served: {log.read_text()[-2000:]}")
        yield ServedPage(f"localhost:{port}", psutil.Process(pipe.pid), log, pipe)
    finally:
        pipe.kill()
        pipe.communicate()
