"""Which units of numbers are one, and which are signs.

It is apart because names of columns have units, too.
"""

from __future__ import annotations

import re

_PREFIX = re.compile(r"(?:m|M)(?=[A-Z]|g(?![a-z]))")
_QUANTITY = re.compile(  # of units that only differ by capitals, as the ampere in pA from the pascal
    r"(?P<ampere>pA)|(?P<pascal>Pa)|(?P<newton>Nm)|(?P<molar>[pn\u00b5\u03bcum]M)|(?P<metre>[pn\u00b5\u03bcum]m)"
    r"|(?P<siemens>[pn\u00b5\u03bcum]S)|(?P<second>[pn\u00b5\u03bcum]s)"
)
_SIGNS = ({"n", "s"}, {"e", "w"}, {"o", "w"}, {"cr", "dr"})  # of directions, and of credit and debit
_MINUS = ("s", "w", "dr")


def same_unit(first: str, second: str) -> bool:
    """Whether capitals, points and the plural alone differ; those of mW and MW, or mg and Mg, are a factor of 10^9."""
    short, long = sorted((first.strip(" ."), second.strip(" .")), key=len)
    if short.casefold() == long.casefold():
        quantities = {match.lastgroup for unit in (short, long) if (match := _QUANTITY.fullmatch(unit))}
        return len(quantities) < 2 and not differ_by_prefix(short, long)
    is_word = len(short) > 3 or (len(short) > 1 and short[1:].islower())  # and no mA beside mAs
    return is_word and long.casefold() in (f"{short}{plural}".casefold() for plural in ("s", "es"))


def differ_by_prefix(first: str, second: str) -> bool:
    """Whether units in texts that only differ by capitals are a factor of 10^9 apart, such as p_mW and p_MW."""
    prefixes = [_PREFIX.findall(text) for text in (first, second)]
    return len(prefixes[0]) == len(prefixes[1]) and prefixes[0] != prefixes[1]


def unit_of_minus(first: str, second: str) -> str:
    """Which of two units stands for a minus where both are signs, as S does beside N; "" if they are none."""
    words = [unit.strip("\u00b0 ").casefold() for unit in (first, second)]
    return "" if set(words) not in _SIGNS else first if words[0] in _MINUS else second
