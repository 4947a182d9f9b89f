"""A Dask cluster on this machine: seconds, efficiency, and the bytes that its workers sent and received.

Workers share the cores and the memory of one machine. An efficiency is that of the cluster beside one worker of it:
seconds with one worker / (workers x seconds). Bytes are those that the kernel counts on the TCP connections of the
workers, so only Linux has them; what Dask says beside the work, such as heartbeats, is part of them.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from gpexplorer.runs import Spec, working
from gpexplorer.runs.studies.cluster import connected, measured_link
from gpexplorer.runs.studies.sweep import grid, sweep

from ..hammer.workers import cluster

ACKED, RECEIVED = 120, 128  # where Linux writes tcpi_bytes_acked and tcpi_bytes_received in a tcp_info
STEPS = 4


def command(
    workers: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "1,2,4",
    rows: Annotated[int, typer.Option(help="Rows of the run that is divided into folds.", min=100)] = 1200,
    runs: Annotated[int, typer.Option(help="Runs of the sweep.", min=1)] = 8,
) -> None:
    """Time a run whose folds are divided, and a sweep, on 1, 2 and 4 workers of this machine."""
    for line in report([int(number) for number in workers.split(",")], rows, runs):
        typer.echo(line)


def report(workers: list[int], rows: int, runs: int) -> Iterator[str]:
    """Yield the lines of the table, in Markdown; the arguments are those of `command`."""
    yield "| work | workers | seconds | efficiency | MB to the workers | MB from them |"
    yield "|---|---|---|---|---|---|"
    one = dict[str, float]()
    for number in workers:
        with cluster(number) as address, connected(address) as client:
            link = measured_link(client)
            for name, work in works(rows, runs, address).items():
                before, begin = traffic_of(client), time.perf_counter()
                work()
                seconds = time.perf_counter() - begin
                to, from_ = ((b - a) / 1e6 for a, b in zip(before, traffic_of(client), strict=True))
                one.setdefault(name, seconds * workers[0])
                efficiency = one[name] / (number * seconds)
                yield f"| {name} | {number} | {seconds:.2f} | {efficiency:.0%} | {to:.2f} | {from_:.2f} |"
        per_piece, latency, rate = 1e3 * link.seconds_per_piece, 1e3 * link.latency, link.bytes_per_second / 1e6
        yield f"| (a piece costs {per_piece:.1f} ms, the first {latency:.0f} ms; {rate:.0f} MB/s) | {number} | | | | |"


def works(rows: int, runs: int, address: str) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    data = {"name": "hypercube", "n": rows * 10 // 9, "d": 4, "noise": 0.1, "seed": 0}
    run = Spec("gpcv-admm", {"folds": 10, "copies": True}, data=data).open()

    def folds() -> None:
        with working(run, address):
            for _ in range(STEPS):
                run.advance()

    spec = Spec("cholqr", {"num_inducing": 64}, data=data, budget={"steps": 40})
    swept = grid(spec, {"seed": list(range(runs))})
    return {
        f"{STEPS} steps with 10 folds of {rows:,} rows": folds,
        f"a sweep of {runs} runs": lambda: deque(sweep(swept, address), maxlen=0),
    }


def traffic_of(client: Any) -> tuple[int, int]:
    """Return the bytes that all workers have received and sent."""
    received, sent = zip(*client.run(traffic).values(), strict=True)
    return sum(received), sum(sent)


def traffic() -> tuple[int, int]:
    """Return the bytes that the open TCP connections of this process have received, and sent with success."""
    received = sent = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
        except OSError:  # the file with which the folder was listed
            continue
        with socket.socket(fileno=os.dup(number)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            sent += struct.unpack_from("Q", info, ACKED)[0]
            received += struct.unpack_from("Q", info, RECEIVED)[0]
    return received, sent
