"""The explorer as users get it, in a process of its own. Each line on stdin is answered with what is alive in it.

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
from gpexplorer.ui.playback.player import Player
from gpexplorer.ui.server import serve
from gpexplorer.ui.shared_limits import Limits
from stand_in_files import believed, public_files, write_like


def count() -> dict[str, int]:
    """Count live explorers, runs and player threads, and the players that take steps."""
    gc.collect()
    objects = gc.get_objects()
    threads = [thread for thread in threading.enumerate() if thread.name == "gpexplorer-player"]
    kinds = {"explorers": Explorer, "runs": Run}
    alive = {name: sum(1 for instance in objects if type(instance) is kind) for name, kind in kinds.items()}
    playing = sum(1 for instance in objects if type(instance) is Player and instance.playing)
    return {**alive, "threads": len(threads), "playing": playing}


def answer() -> None:
    """Answer each line on stdin with one line of JSON."""
    for _ in sys.stdin:
        print(json.dumps(count()), flush=True)


if __name__ == "__main__":
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    files = public_files()
    os.environ["GPEXPLORER_DATA_DIR"] = str(files or folder)
    threading.Thread(target=answer, daemon=True).start()
    with nullcontext() if files else believed(write_like(card("kin40k"), folder)):
        serve(port, store=folder / "store", limits=Limits(ready_pages=0))
