"""The page as `serve` serves it, which answers on its standard streams how many of its runs are computing.

`python -m benchmarks.hammer.observed_server PORT READY_PAGES STORE MAX_SESSIONS` is for measurements from another
process: each line on stdin is answered with two numbers: the players that take steps or still compute one, and all
players. Each page that is open or ready has a player.
"""

from __future__ import annotations

import sys
import threading

from gpexplorer.ui.playback.background_worker import workers
from gpexplorer.ui.playback.player import Player
from gpexplorer.ui.server import serve
from gpexplorer.ui.shared_limits import Limits


def players() -> tuple[int, int]:
    """Number of players of this process that take steps or still compute one, and of all that live."""
    living = [worker for worker in workers() if isinstance(worker, Player) and worker.thread.is_alive()]
    return sum(1 for player in living if player.playing or player.working_since), len(living)


def answer() -> None:
    """Answer each line on stdin."""
    for _ in sys.stdin:
        print(*players(), flush=True)


if __name__ == "__main__":
    threading.Thread(target=answer, daemon=True).start()
    serve(int(sys.argv[1]), store=sys.argv[3], limits=Limits(int(sys.argv[4]), ready_pages=int(sys.argv[2])))
