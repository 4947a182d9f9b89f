"""The explorer as users get it, in a process of its own. Lines on stdin ask what is alive in it, or what plays.

`page_server.py PORT FOLDER` serves the page with a store in that folder, and with a random stand-in for kin40k where
this machine does not have the data set.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

from gpexplorer.data.sets.cards import card
from gpexplorer.runs import Run
from gpexplorer.ui.explorer import Explorer
from gpexplorer.ui.playback.background_worker import workers
from gpexplorer.ui.playback.player import Player
from gpexplorer.ui.server import serve
from gpexplorer.ui.shared_limits import Limits
from stand_in_files import believed, public_files, write_like


def count_alive() -> dict[str, int]:
    """Count live explorers, runs and player threads."""
    gc.collect()
    objects = gc.get_objects()
    threads = [thread for thread in threading.enumerate() if thread.name == "gpexplorer-player"]
    kinds = {"explorers": Explorer, "runs": Run}
    alive = {name: sum(1 for instance in objects if type(instance) is kind) for name, kind in kinds.items()}
    return {**alive, "threads": len(threads)}


def count_playing() -> dict[str, int]:
    """Count the players that take steps, without a search through all objects."""
    return {"playing": sum(1 for worker in workers() if isinstance(worker, Player) and worker.playing)}


def answer() -> None:
    """Answer each line on stdin with one line of JSON."""
    for line in sys.stdin:
        print(json.dumps(count_playing() if line.strip() == "playing" else count_alive()), flush=True)


if __name__ == "__main__":
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    files = public_files()
    os.environ["GPEXPLORER_DATA_DIR"] = str(files or folder)
    threading.Thread(target=answer, daemon=True).start()
    with nullcontext() if files else believed(write_like(card("kin40k"), folder)):
        serve(port, store=folder / "store", limits=Limits(ready_pages=0))
