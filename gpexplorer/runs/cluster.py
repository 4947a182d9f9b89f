"""Independent work on the workers of a Dask scheduler, in the place of the builtin `map`.

Results come back in the order of the pieces whatever worker did them, so that sums do not depend on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import SettingError

TIMEOUT = 10  # seconds to reach a scheduler
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
    except (OSError, ValueError, TimeoutError):
        raise SettingError(f"No Dask scheduler answers at {address!r} within {TIMEOUT} s; is it running?") from None
    with client:
        yield client


def mapped(client: Any) -> Map:
    """A `map` for `method.map`: pure functions of a module, on the client's workers, results in order as they come."""

    def on_workers(function: Callable[..., Any], *pieces: Iterable[Any]) -> Iterator[Any]:
        futures = client.map(function, *map(list, pieces), pure=False)
        return (future.result() for future in futures)

    return on_workers
