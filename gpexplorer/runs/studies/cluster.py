"""Independent work on the workers of a Dask scheduler, in the place of the builtin `map`.

Results come back in the order of the pieces whatever worker did them, so that sums do not depend on the cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ...errors import SettingError

TIMEOUT = 10  # seconds to reach a scheduler
AHEAD = 2  # pieces a worker's thread has before it: one to work on, one that is on its way
Map = Callable[..., Iterable[Any]]


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A Dask client of this scheduler ("tcp://host:8786"), closed at the end; SettingError where there is none.

    The scheduler runs what it is sent: connect to one that is yours.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SettingError("Dask is not installed: pip install gpexplorer[cluster].") from None
    try:
        client = Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, TypeError, ValueError, TimeoutError):
        raise SettingError(f"No Dask scheduler answers at {address!r} within {TIMEOUT} s; is it running?") from None
    with client:
        yield client


def mapped(client: Any, ahead: int = AHEAD) -> Map:
    """Return a mapper for `Method.with_mapper`: pure functions run on the client's workers, results come in order.

    At most `ahead` pieces a thread of the workers are sent before their results are taken, and a tensor that is the
    same in every piece is sent once: what is in flight does not grow with the number of pieces.
    """

    def on_workers(function: Callable[..., Any], *pieces: Iterable[Any]) -> Iterator[Any]:
        most, shared = ahead * max(sum(client.nthreads().values()), 1), Shared(client)
        flight: deque[Any] = deque()
        try:
            for piece in zip(*pieces, strict=True):
                if len(flight) == most:
                    yield flight.popleft().result()
                flight.append(client.submit(function, *shared(piece), pure=False))
            while flight:
                yield flight.popleft().result()
        finally:
            client.cancel(list(flight))

    return on_workers


class Shared:
    """What the pieces of one map have in common: the very tensor of the piece before is kept on the cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._last: tuple[Any, ...] = ()
        self._sent: dict[int, Any] = {}  # place of the argument -> where the cluster keeps it

    def __call__(self, piece: tuple[Any, ...]) -> list[Any]:
        """The arguments to submit: those met a second time in a row by what stands for them."""
        for place, (now, before) in enumerate(zip(piece, self._last, strict=False)):
            if now is not before:
                self._sent.pop(place, None)
            elif isinstance(now, Tensor) and place not in self._sent:
                self._sent[place] = self._client.scatter(now, hash=False)
        self._last = piece
        return [self._sent.get(place, argument) for place, argument in enumerate(piece)]
