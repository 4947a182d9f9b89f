"""Results written where a person asked for them, on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from ..errors import SettingError
from ..runs.studies.comparison import Finished, table
from ..runs.studies.sweep import Swept


def kept_table(runs: Iterator[Swept], count: int, out: Path, say: Callable[[str], object]) -> pd.DataFrame:
    """The table of a sweep, written after each of its runs: an interrupt leaves what was done.

    SettingError where `out` cannot be written, before the first run and not after the last.
    """
    done = dict[str, Finished]()
    with writable(out):
        out.open("ab").close()
    for number, run in enumerate(runs, 1):
        say(f"{number} of {count} · {run.name} · {run.sentence}")
        done |= {run.name: run.finished} if run.finished else {}
        with writable(out):
            table(done).to_parquet(out)
    return table(done)


@contextmanager
def writable(out: Path) -> Iterator[None]:
    """Writing to --out; a disk that refuses is a sentence."""
    try:
        yield
    except OSError as error:
        raise SettingError(f"Cannot write {out} ({error.strerror or error}): choose another --out.") from None
