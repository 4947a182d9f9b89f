"""The explorer as users get it, in a process of its own; a line on stdin is answered with what is alive in it."""

from __future__ import annotations

import gc
import json
import sys
import threading

from gpexplorer.runs import Run
from gpexplorer.ui.explorer import Explorer
from gpexplorer.ui.serving import serve


def count() -> dict[str, int]:
    """Live explorers, runs and player threads."""
    gc.collect()
    held = gc.get_objects()
    threads = [thread for thread in threading.enumerate() if thread.name == "gpexplorer-player"]
    kinds = {"explorers": Explorer, "runs": Run}
    alive = {name: sum(1 for thing in held if type(thing) is kind) for name, kind in kinds.items()}
    return {**alive, "threads": len(threads)}


def answer() -> None:
    """One line of JSON for each line asked."""
    for _ in sys.stdin:
        print(json.dumps(count()), flush=True)


if __name__ == "__main__":
    threading.Thread(target=answer, daemon=True).start()
    serve(port=int(sys.argv[1]))
