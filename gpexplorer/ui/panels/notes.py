"""What a person wrote about the runs of a page, by their names; in a store too, where there is one that has them."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import StoreError
from ...runs import Run, Store
from ...runs.store import LONGEST_NOTE


class Notes:
    """`version` counts the changes, for those who show notes; `say` is given the sentence of a store that refuses."""

    def __init__(self, store: Store | None = None, say: Callable[[str], None] = lambda _: None) -> None:
        self.store, self.version = store, 0
        self._say = say
        self._held: dict[str, str] = {}

    def of(self, key: str) -> str:
        """What was written about this run; empty where nothing was."""
        return self._held.get(key, "")

    def write(self, key: str, note: str) -> None:
        """Keep this text, cut to the longest there may be; a run that is in the store has it there as well."""
        note = note[:LONGEST_NOTE]
        if note == self.of(key):
            return
        self._held[key] = note
        self.version += 1
        self._send(key)

    def learn(self, key: str, note: str) -> None:
        """A note that was in the store before this page was opened; what was written since goes before it."""
        self._held.setdefault(key, note)

    def store_run(self, run: Run) -> str:
        """Put this run and its note into the store; returns a sentence on where, or on why not."""
        if self.store is None:
            return ""
        try:
            key = self.store.put(run)
        except StoreError as error:
            return str(error)
        self._send(key)
        return f"In the store as {key}, with {len(run.trace)} records."

    def _send(self, key: str) -> None:
        if self.store is None or key not in self.store.names():
            return
        try:
            self.store.annotate(key, self.of(key))
        except StoreError as error:
            self._say(str(error))
