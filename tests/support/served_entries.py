"""Servers of the page, started as people start them: by `serve`, by `panel serve`, and by a notebook's kernel."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
KERNEL = """
import asyncio
from gpexplorer.ui.notebook.relay import kernel_server

async def serve():
    server = kernel_server()
    print(server._root, flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""
ENTRIES = ("serve", "panel", "kernel")


class Entry(NamedTuple):
    """A server in a process of its own.

    Attributes
    ----------
    port, path
        Where it listens, and the path of the page; a kernel's page needs a name, which no stranger knows.
    log
        A file with all that it has printed.
    process
        The process.
    """

    port: int
    path: str
    log: Path
    process: subprocess.Popen[str]

    @property
    def lives(self) -> bool:
        """Whether the process goes on."""
        return self.process.poll() is None


def with_entry_points(folder: Path) -> dict[str, str]:
    """An environment in which the entry points of pyproject.toml are installed, also where the metadata are older."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    metadata = folder / "gpexplorer_entry_points-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gpexplorer-entry-points\nVersion: 1\n")
    lines = [f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in of.items()) for group, of in groups.items()]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}


@contextmanager
def started(entry: str, folder: Path, *options: str, metadata: bool = True) -> Iterator[Entry]:
    """Start a server and wait until it listens. Nobody has asked it for anything.

    With `metadata` False, `panel serve` finds no entry point of this package, as after an installation by an older
    version.
    """
    port = free_port()
    module = {"serve": ["-m", "gpexplorer", "serve"], "panel": ["-m", "panel", "serve", "apps/explorer.py"]}
    arguments = ["-c", KERNEL] if entry == "kernel" else [*module[entry], *options, "--port", str(port)]
    environment = with_entry_points(folder / "installed")
    if not metadata:
        environment["PYTHONPATH"] = str(ROOT)
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=output, stderr=output, text=True
        )
    try:
        if entry == "kernel":
            _wait(lambda: log.read_text().endswith("/\n"), process, log)
            address = log.read_text().split()[-1]
            port, path = int(address.split(":")[1].split("/")[0]), f"/{address.split('/')[1]}/view"
        else:
            ready = "Explorer: http" if entry == "serve" else "Starting Bokeh server with process id"
            _wait(lambda: ready in log.read_text(), process, log)
            path = "/explorer"
        yield Entry(port, path, log, process)
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def _wait(holds, process: subprocess.Popen[str], log: Path) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)
