"""The page as `serve` serves it, which answers on its standard streams how many of its runs are computing.

`python -m gpexplorer.ui.observed_server PORT READY_PAGES STORE` is for measurements from another process: each line on
stdin is answered with the number of players that take steps or still compute one.
"""

from __future__ import annotations

import sys
import threading

from .playback.background_worker import workers
from .playback.player import Player
from .server import serve
from .shared_limits import Limits


def computing() -> int:
    """Number of players of this process that take steps, or still compute one."""
    players = [worker for worker in workers() if isinstance(worker, Player)]
    return sum(1 for player in players if player.playing or player.working_since)


def answer() -> None:
    """Answer each line on stdin."""
    for _ in sys.stdin:
        print(computing(), flush=True)


if __name__ == "__main__":
    threading.Thread(target=answer, daemon=True).start()
    serve(int(sys.argv[1]), store=sys.argv[3], limits=Limits(ready_pages=int(sys.argv[2])))
