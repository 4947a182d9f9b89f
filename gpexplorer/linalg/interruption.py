"""A long computation can be ended from outside: between blocks of rows it asks whether to go on.

    with interruptible(lambda: time.monotonic() > end):
        ...

Whoever waits for the result says when it is no longer wanted. Loops over blocks of rows (`blocks.row_blocks` and
`blocks.sum_over_rows`), a kernel that a run counts, and loops over minibatches call `go_on`. What is computed
inside the `with` block gets no result then, and whatever was complete before stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Ask = Callable[[], bool]
_ask: ContextVar[Ask | None] = ContextVar("whether to end", default=None)  # of the current thread


class Interrupted(BaseException):
    """A computation ends without a result. As KeyboardInterrupt, it passes by `except Exception`."""


@contextmanager
def interruptible(ask: Ask) -> Iterator[None]:
    """End what is computed in this context, in this thread, by raising Interrupted once `ask` returns True."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def go_on() -> None:
    """Raise Interrupted if the computation in progress is no longer wanted. It takes less than a microsecond."""
    ask = _ask.get()
    if ask is not None and ask():
        raise Interrupted
