"""The choice of columns of a table: what a caller says about its target, its inputs, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...errors import DataError
from ..quoting import listing, nearest, quote


@dataclass(frozen=True)
class Choice:
    """Which columns of a table to use.

    Parameters
    ----------
    target : str, optional
        The target; the last number column that does not name the rows if omitted.
    inputs : tuple of str, optional
        The inputs; all other columns that can explain something if omitted.
    drop : tuple of str
        Columns that are not inputs.
    objects : str, optional
        One text column, such as SMILES, to use as input instead of numbers.
    missing : {"refuse", "drop", "fill"}, optional
        Whether rows with a missing value are an error, are left out, or are filled: with the median of the column, and
        with 0 and 1 beside it where that explains the target. By default they are filled. Rows whose target is missing
        are then left out.
    encode : tuple of str
        Columns of which each different text becomes an input of 0 and 1.
    dates : tuple of str
        Columns of dates, which become days since 1970-01-01.
    decimal : {".", ","}
        How decimals are written in columns of text.
    texts : tuple of str
        Columns that are read as text and are inputs beside the numbers, for a kernel on named columns.
    groups : str, optional
        A column of texts or numbers that is no input: rows with the same value in it are held out together.
    kinds : tuple of (str, str)
        How columns are to be read: "number", "number 1.234,5", "number missing -999", "words", "date", "date mdy"
        or "text", by column.
    """

    target: str | None = None
    inputs: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    objects: str | None = None
    missing: Literal["refuse", "drop", "fill"] | None = None
    encode: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    decimal: Literal[".", ","] = "."
    texts: tuple[str, ...] = ()
    groups: str | None = None
    kinds: tuple[tuple[str, str], ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that are requested by name."""
        chosen = (self.target, *(self.inputs or ()), self.objects, *self.encode, *self.dates, *self.texts, self.groups)
        return tuple(dict.fromkeys((*(c for c in chosen if c is not None), *dict(self.kinds))))

    @property
    def is_full(self) -> bool:
        """Whether target and inputs are both given."""
        return self.target is not None and (self.inputs is not None or self.objects is not None)

    @property
    def identity(self) -> dict[str, Any]:
        """What distinguishes two readings of one file. Later fields count where they are set: old keys stay valid.

        Kinds are not part of it, because a program that was told the kinds reads the same rows as one that found them.
        """
        fields, defaults = asdict(self), asdict(Choice())
        always_included = ("target", "inputs", "drop", "objects", "missing")
        changed = {name for name, value in fields.items() if value != defaults[name]} - {"kinds"}
        identity = {name: value for name, value in fields.items() if name in always_included or name in changed}
        return identity | {"missing": self.missing or "refuse"}  # the default of earlier versions

    def asked(self, column: str) -> str:
        """The kind that was asked for a column, or ""."""
        if column in self.encode:
            return "words"
        return "date" if column in self.dates and column not in dict(self.kinds) else dict(self.kinds).get(column, "")


def refuse_choice(name: str, columns: Sequence[str], choice: Choice) -> None:
    """Raise DataError for columns that do not exist, and for contradictory roles."""
    for column in (*choice.named, *choice.drop):
        if column not in columns:
            raise DataError(f"{name} has no column {quote(column)}. {nearest(column, columns)}")
    taken = (choice.objects, *choice.texts, *choice.drop, *(choice.inputs or ()))
    if choice.target is not None and choice.target in taken:
        raise DataError(f"{name}: {quote(choice.target)} is the target, so it is neither an input nor dropped.")
    if choice.groups in (choice.target, *taken, *choice.encode, *choice.dates) and choice.groups is not None:
        raise DataError(f"{name}: {quote(choice.groups)} has the group of each row, so it has no other use.")
    if choice.objects and choice.inputs is not None:
        raise DataError(f"{name}: inputs are either columns of numbers or the one column {quote(choice.objects)}.")
    if choice.objects and choice.texts:
        raise DataError(
            f"{name}: {quote(choice.objects)} is the only input, but texts={listing(choice.texts)} are inputs, too: "
            "give all of them as texts."
        )
    twice = [c for c in choice.texts if c in (*(choice.inputs or ()), *choice.encode, *choice.dates, *choice.drop)]
    if twice:
        raise DataError(f"{name}: {quote(twice[0])} is read as text, so it is no column of numbers, and not dropped.")
