"""The page in a process of its own, which says how many of its runs are computing.

`python -m gpexplorer.bench.hammer.served_page PORT READY_PAGES STORE` serves it as `serve` does. Each line on stdin is
answered with the number of players that take steps or still compute one.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil


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
        assert self.pipe.stdin is not None and self.pipe.stdout is not None
        self.pipe.stdin.write("\n")
        self.pipe.stdin.flush()
        return int(self.pipe.stdout.readline())

    def log_lines(self) -> list[str]:
        """The lines of its log."""
        return self.log.read_text("utf-8", "replace").splitlines()


@contextmanager
def served_page(folder: Path, ready_pages: int = 0) -> Iterator[ServedPage]:
    """Serve the page for as long as the block lasts, with log and store in a directory."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    log = folder / "server.log"
    command = [sys.executable, "-m", __name__, str(port), str(ready_pages), str(folder / "store")]
    with log.open("w") as output:
        pipe = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        assert pipe.stdout is not None
        first = pipe.stdout.readline()
        if not first.startswith("Explorer:"):
            raise RuntimeError(f"The page was not served: {log.read_text()[-2000:]}")
        yield ServedPage(f"localhost:{port}", psutil.Process(pipe.pid), log, pipe)
    finally:
        pipe.kill()
        pipe.communicate()


def _answer() -> None:
    from ...ui.playback.background_worker import workers
    from ...ui.playback.player import Player

    for _ in sys.stdin:
        players = [worker for worker in workers() if isinstance(worker, Player)]
        print(sum(1 for player in players if player.playing or player.working_since), flush=True)


if __name__ == "__main__":
    from ...ui.server import serve
    from ...ui.shared_limits import Limits

    threading.Thread(target=_answer, daemon=True).start()
    serve(int(sys.argv[1]), store=sys.argv[3], limits=Limits(ready_pages=int(sys.argv[2])))
