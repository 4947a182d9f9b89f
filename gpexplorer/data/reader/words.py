"""Words of a column: which spellings are one word, which word of training a new cell means, and what is no word.

Blanks around a word, capitals, accents that are characters of their own, and 1.0 for 1 make no difference. Words of one
or two letters that training has in both spellings, such as "A" and "a", stay two words. Where it was said that a column
has words, equal numbers such as 1.1 and 1.10 do so, too.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .cells import INVISIBLE, PLAIN_NUMBER, Texts
from .number_format import FRACTIONS, SYMBOLS, written

MOST_GAP_WORDS = 3  # different texts without a digit that are gaps of a column of numbers, such as "unknown"
SMILES_SAMPLE = 500  # first different cells by which molecules are recognised
SHORT = 2  # letters of words whose capitals may matter
YES_NO = (
    ("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"), ("nein", "ja"), ("n", "j"), ("non", "oui"),
    ("no", "si"), ("no", "s\u00ed"), ("off", "on"), ("nej", "ja"), ("nee", "ja"), ("nao", "sim"), ("n\u00e3o", "sim"),
    ("falsch", "wahr"), ("faux", "vrai"), ("falso", "verdadero"), ("falso", "verdadeiro"), ("falso", "vero"),
    ("nie", "tak"), ("no", "s\u00ec"), ("\u043d\u0435\u0442", "\u0434\u0430"), ("0", "1"),
)  # fmt: skip
_VALUES = {word: float(value) for pair in YES_NO for value, word in enumerate(pair)}
_PLAIN = re.compile(PLAIN_NUMBER)
# The atoms, bonds, branches and rings of SMILES; a third of the texts must contain a bond, a branch or a ring.
_SMILES = re.compile(r"(?=.*[BCNOPSFIbcnops])(?:Cl|Br|[BCNOPSFIbcnops]|\[[^\[\]\s]{1,40}\]|[-=#$:/\\.()%0-9@+*])+")
_STRUCTURE = re.compile(r"[=#()1-9\[]")
_NEARLY_NUMBER = re.compile(
    r"[~\u2248]\s*[0-9.,]+|[0-9.,]+\s*(\u00b1|\+/?-)\s*[0-9.,]+|([0-9]+\s+)?[0-9]+/[0-9]+|[0-9]+ (out )?of [0-9]+"
    rf"|[0-9]*\s*[{FRACTIONS}]"
)
_ONE_NUMBER = re.compile(  # in other text, with a mark or a sign by which it is an amount, such as R 1,000 and 15+
    rf"(?=.*[0-9][.,][0-9]|.*[{SYMBOLS}+\u00d7])(\D*)[0-9]+(?:[.,' ][0-9]{{3}})*(?:[.,][0-9]+)?(\D*)"
)
_NO_RING = re.compile(r"\[[^\]]*\]|%\d\d|\D")  # atoms in brackets, rings of two digits, and all that is no digit


def word_key(text: str) -> str:
    """What two spellings of one word have in common."""
    if _PLAIN.fullmatch(text) and abs(float(text)) < 1e15:
        return f"{float(text):.12g}"
    return unicodedata.normalize("NFC", " ".join(text.split())).casefold()


class Levels(NamedTuple):
    """The different words of a column.

    Attributes
    ----------
    names : tuple of str
        The most frequent spelling of each word, in order.
    counts : tuple of int
        How many rows have each word.
    merged : tuple of str
        The words that training has in more than one spelling.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    merged: tuple[str, ...] = ()

    @property
    def has_equal_numbers(self) -> bool:
        """Whether numbers such as 7 and 007 became one word."""
        return any(_PLAIN.fullmatch(name) for name in self.merged)

    def places(self, texts: Texts) -> np.ndarray:
        """The number of the word of each row [n]; NaN for gaps, and -1 for a word that training does not have."""
        find = self._finder()
        values = [find(text) if text else np.nan for text in texts.distinct]
        return np.asarray(texts.spread(np.array(values, dtype=np.float64)))

    def spelled(self, cells: Sequence[str]) -> tuple[str, ...]:
        """Texts as training writes them, where it has such a word."""
        if not self.names:
            return tuple(cells)
        find = self._finder()
        places = {text: int(find(text)) for text in set(cells)}
        return tuple(self.names[places[text]] if places[text] >= 0 else text for text in cells)

    def _finder(self) -> Callable[[str], float]:
        """A function that gives the number of a word, or -1."""
        exact = {name: float(i) for i, name in enumerate(self.names)}
        by_key: dict[str, float] = {}
        for i, name in enumerate(self.names):
            key = word_key(name)
            by_key[key] = -1.0 if key in by_key else float(i)  # two words: neither is meant for certain
        return lambda text: exact.get(text, by_key.get(word_key(text), -1.0))


def levels_of(texts: Texts, numbers_apart: bool = False) -> Levels:
    """The words of a column of training rows; numbers that are equal, such as 7 and 007, are one word or apart."""
    spellings: dict[str, Counter[str]] = {}
    for text, count in texts.counts().items():
        if text and count:
            key = text if numbers_apart and _PLAIN.fullmatch(text) else word_key(text)
            spellings.setdefault(key, Counter())[" ".join(text.split())] += count
    words: dict[str, int] = {}
    merged = []
    for of_key in spellings.values():
        most = max(of_key, key=lambda name: (of_key[name], name))
        if len(of_key) > 1 and len(most) <= SHORT and not most[:1].isdigit():
            words |= of_key
        else:
            words[most] = sum(of_key.values())
            merged += [most] if len(of_key) > 1 else []
    names = sorted(words)
    return Levels(tuple(names), tuple(words[name] for name in names), tuple(merged))


def repeated_words(cells: Sequence[str]) -> Levels:
    """The words of a column that a kernel compares, in every spelling; none for molecules, and texts of single rows."""
    counts = Counter(filter(None, cells))
    if 2 * len(counts) > counts.total() or are_smiles(tuple(counts)[:SMILES_SAMPLE]):
        return Levels((), ())
    names = sorted(counts)
    return Levels(tuple(names), tuple(counts[name] for name in names))


def are_yes_no(names: Sequence[str]) -> bool:
    """Whether these words are the two of one pair, such as yes and no, with 0 and 1 beside them or for one of them."""
    words = {name.casefold() for name in names}
    bits, others = words & {"0", "1"}, words - {"0", "1"}
    return any(others == set(pair) for pair in YES_NO[:-1]) or (len(bits) == 2 and others in ({"true"}, {"false"}))


def yes_no(text: str) -> float | None:
    """1 for yes, 0 for no, None for another text."""
    return _VALUES.get(word_key(text))


def gap_words_of(cells: list[str], counts: dict[str, int]) -> tuple[tuple[str, ...], list[str]]:
    """Texts that stand for gaps, since they have no letter or are there more than once, and the other texts."""
    words = tuple(
        text
        for text in cells
        if not any(c.isdigit() for c in text) and (counts[text] > 1 or not any(c.isalpha() for c in text))
    )
    words = words if len(words) <= MOST_GAP_WORDS else ()
    return words, [text for text in cells if text not in words]


def nearly_number(names: Sequence[str]) -> str:
    """The first of some words if at least half of them are numbers; else "".

    They are such as ~5, 5 \u00b1 0.2, 1/2 and 3 out of 10, numbers with different units, or have the same text around
    their number.
    """
    nearly = [name for name in names if _NEARLY_NUMBER.fullmatch(name) or ((part := written(name)) and part.unit)]
    around = [(match.groups(), name) for name in names if (match := _ONE_NUMBER.fullmatch(name))]
    most, rows = next(iter(Counter(texts for texts, _ in around).most_common(1)), (("", ""), 0))
    nearly = max(nearly, [name for texts, name in around if texts == most and rows > 1], key=len)
    return nearly[0] if nearly and 2 * len(nearly) >= len(names) else ""


def are_smiles(sample: Sequence[str]) -> bool:
    """Whether these texts are molecules in the SMILES notation, in which a digit opens a ring and closes it."""
    with_structure = sum(bool(_STRUCTURE.search(text)) for text in sample)
    rings = [Counter(_NO_RING.sub("", text)) for text in sample]
    are_closed = all(count % 2 == 0 for digits in rings for count in digits.values())
    return are_closed and 3 * with_structure >= len(sample) and all(_SMILES.fullmatch(text) for text in sample)


def name_key(title: str) -> str:
    """What two spellings of the name of a column have in common."""
    return re.sub(r"[\s_'\"`]+", "", unicodedata.normalize("NFC", title.translate(INVISIBLE))).casefold()
