"""Two writers of one run, killed again and again: what each had acknowledged must be there afterwards.

Run as a script with the store's path; it prints [acknowledged, stored, refused, torn] a round. The writers are forked
from a process that has imported everything and computed nothing, and write 61 bytes a call, so that kills tear lines.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import torch

from gpexplorer import Spec, Store
from gpexplorer.errors import StoreError
from gpexplorer.methods.base import registry
from gpexplorer.runs.storage import json_lines
from toy_method import ROWS, Toy

KILLS = 8
SPEC_SETTINGS = {"limit": 10**6, "block": 2}


def spec() -> Spec:
    return Spec("toy", SPEC_SETTINGS, ROWS)


def write(path: str, acknowledge: int) -> NoReturn:
    """Take steps without end, and report how many records are stored; exits with 3 if another process has the run."""
    real = os.write
    json_lines.os.write = lambda file, raw: real(file, raw[:61])
    try:
        run = Store(path).open(spec())
    except StoreError:
        os._exit(3)
    while run.advance():
        real(acknowledge, b"%d\n" % len(run.trace))
    os._exit(4)


def fork(path: str, acknowledge: int) -> int:
    pid = os.fork()
    if pid == 0:
        write(path, acknowledge)
    return pid


def main(path: str) -> None:
    torch.set_num_threads(1)
    registry["toy"] = Toy
    rng = random.Random(0)
    for _ in range(KILLS):
        read_end, write_end = os.pipe()
        writers = [fork(path, write_end) for _ in range(2)]
        os.close(write_end)
        reports = os.read(read_end, 65536)  # until the first is stored
        time.sleep(rng.uniform(0.01, 0.25))
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
        ended = [os.waitpid(writer, 0)[1] for writer in writers]
        while chunk := os.read(read_end, 65536):
            reports += chunk
        os.close(read_end)
        stored = len(Store(path).kept(spec().key()).records)
        refused = sum(os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3 for status in ended)
        torn = not (Path(path) / spec().key() / "journal.jsonl").read_bytes().endswith(b"\n")
        print(json.dumps([int(reports.split()[-1]), stored, refused, torn]))


if __name__ == "__main__":
    main(sys.argv[1])
