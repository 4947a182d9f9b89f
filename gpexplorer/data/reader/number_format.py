"""Numbers as people write them: 1,090.60 and 1.090,60, $12 and 12 kg, 35 %, (12) for -12, 27:10:05 and 31:20 for a
duration.

Which mark stands before the decimals is decided once, from all cells of a column. After that any mark of thousands but
this one is accepted, so that 1090.60 and 1,090.60 are the same number, and 1,5 is no number where the mark is a point.

A letter behind a number may be a magnitude, as in 57.69M, or a unit, as in 300 K and 5 m. In one column,

    k         is a thousand;
    K, M, B   and T are magnitudes beside a currency and beside another magnitude. Alone beside other numbers, and
              without a blank, they are magnitudes if that brings them nearer to these, as 57.69M beside 57690000, and
              a unit if not, as 14B beside 12, which a note says. Else they are a unit;
    m, b      are a million and a billion beside a currency, and where both sizes are there, as in 25.1m and 1.2bn.

What training does not settle so, as 57.69M where it has only plain numbers, is unreadable in a new row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from statistics import median
from typing import Annotated, NamedTuple

from ..quoting import exact
from .cells import PLAIN_NUMBER
from .units import same_unit, unit_of_minus

SYMBOLS = "$\u00a3\u00a5\u0e3f" + "".join(map(chr, range(0x20A0, 0x20C1)))
CURRENCY = (
    rf"(?:[A-Z]{{0,3}}[{SYMBOLS}]|(?i:USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|ISK|PLN|CZK|HUF|AUD|CAD|NZD|BRL|MXN|ZAR"
    r"|SGD|HKD|TRY|RUB|kr\.?|sfr\.?|fr\.?|rs\.?|z\u0142|k\u010d|ft)|RM|MYR|Rp\.?|IDR|Php|PHP|THB|KRW|S/\.?)"
)
FRACTIONS = "\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209f\u2150-\u215f"  # as in 2\u00bd and 5\u00b2, which are no units
UNIT = rf"(?:[{SYMBOLS}%\u2030\u00b0\u00b5\u03bc]|[^\W\d_{FRACTIONS}])(?:[^\d,;:()<>=\"]{{0,15}}[23\u00b2\u00b3]?)"
BODY = r"[0-9](?:[0-9.,' _]*[0-9.,])?|[.,][0-9]+"
_CELL = re.compile(
    rf"(?P<first>{CURRENCY}\s*(?=\())?(?P<open>\()?\s*(?P<sign>[+\-\u2013])?\s*(?P<before>{CURRENCY})?\s*(?P<inner>[+\-\u2013])?\s*"
    rf"(?P<body>{BODY})(?P<exponent>[eE][+-]?[0-9]+|D[+-][0-9]+|\s?[x\u00d7]\s?10\^[+-]?[0-9]+)?(?:[/:]-)?(?P<space>\s*)"
    rf"(?P<trailing>--?|\u2013|\u2014)?\s*(?P<after>{UNIT})?\s*(?P<per>/\s?[a-z]{{1,8}})?"
    r"(?P<close>\))?(?:[*\u2020\u2021]|\s?\[[0-9]{1,2}\]){0,3}"
)
SCALES = {
    "thousand": 1e3, "tsd": 1e3, "lakh": 1e5, "mio": 1e6, "mln": 1e6, "million": 1e6, "millions": 1e6, "millionen": 1e6,
    "crore": 1e7, "bn": 1e9, "bln": 1e9, "billion": 1e9, "billions": 1e9, "mrd": 1e9, "milliarden": 1e9,
    "tn": 1e12, "trn": 1e12, "trillion": 1e12, "trillions": 1e12,
}  # fmt: skip
LETTERS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "m": 1e6, "b": 1e9}
SMALL = ("m", "b")  # letters that are hardly ever meant as magnitudes alone
_SCALED = re.compile(rf"(?P<scale>{'|'.join(LETTERS)}|(?i:{'|'.join(SCALES)}))\.?(?:\s*(?P<currency>{CURRENCY}))?")
_AFTER_MINUS = re.compile(rf"%|{CURRENCY}")
_LIMIT = re.compile(r"[<>\u2264\u2265]=?\s*")
_PLAIN = re.compile(PLAIN_NUMBER)
_DURATION = re.compile(
    r"(?:(?P<days>-?[0-9]+) days?,? ?\+?|(?P<sign>-))?(?P<h>[0-9]+):(?P<m>[0-5][0-9]):(?P<s>[0-5][0-9](?:\.[0-9]+)?)"
)
_SHORT_DURATION = re.compile(r"(?P<sign>-?)(?P<first>[0-9]+):(?P<second>[0-5][0-9](?:\.[0-9]+)?)")
_PARTS = re.compile(  # 3 h 30 min, 1d2h, P3DT4H, 2 years 3 months
    r"(?i)(?P<sign>-)?(?P<iso>P)?(?=[0-9T])(?:(?P<y>[0-9.]+)\s*(?:years?|yrs?|y|jahre?)[,\s]*)?"
    r"(?:(?P<mo>[0-9.]+)\s*(?:months?|mos?|monate?)[,\s]*)?"
    r"(?:(?P<w>[0-9.]+)\s*(?:weeks?|wks?|w|wochen?)[,\s]*)?(?:(?P<d>[0-9.]+)\s*(?:days?|d|tage?)[,\s]*)?(?:(?<=[DP])T)?"
    r"(?:(?P<h>[0-9.]+)\s*(?:hours?|hrs?|h|stunden?|std\.?)[,\s]*)?"
    r"(?:(?P<m>[0-9.]+)\s*(?:minutes?|minuten?|mins?\.?|m)[,\s]*)?"
    r"(?:(?P<s>[0-9.]+)\s*(?:seconds?|sekunden?|secs?\.?|sek\.?|s))?"
)
_SIZE = re.compile(r"[0-9.]+\s*[DMSWY]")  # as of shoes
_SECONDS = {"y": 31557600.0, "mo": 2629800.0, "w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
DAYS = "days"  # the unit of durations such as 27:10:05, 2 days 03:10:05 and 3 h 30 min
MINUTES = "minutes"  # of durations such as 59:30 beside 1:02:15, and 59:30.25
EITHER = "minutes or hours"  # of durations such as 31:20 alone
DURATIONS = (DAYS, MINUTES, EITHER)
DURATION_NAME = re.compile(r"(?i)duration|elapsed|\btook\b|(run|lap|travel).?time|dauer$|dur[\u00e9e]e|duraci")
FEWEST_GROUPED = 3  # different cells such as 1.234
DAY = 24  # hours: a smaller number before the colon may be a time of day
_CODE = re.compile(r"[^\W\d_mM][23]")  # as in 2000H2 and 7B3, beside 2000H1 and 7B1
_INFINITE = re.compile(r"(?i)[+-]?inf(inity)?")
OTHER = {".": ",", ",": "."}
EXAMPLES = {".": "1,234.5", ",": "1.234,5"}  # a number with each mark before its decimals, as people name the format
_DIGITS = {first + i: str(i) for first in (0x660, 0x6F0, 0x966, 0xFF10) for i in range(10)} | {
    0x66B: ".", 0x66C: ",", 0xFF0E: ".", 0xFF0C: ",", 0xFF0D: "-", 0xFF0B: "+",
}  # fmt: skip
_KEPT_AS_TEXT = re.compile(r"=?\"([^\"]+)\"|'([^']+)'?")  # how spreadsheets write a number that is to stay text


def _body_pattern(decimal: str) -> re.Pattern[str]:
    d, t = re.escape(decimal), OTHER[decimal]
    groups = "|".join(rf"[1-9][0-9]{{0,2}}(?:{re.escape(mark)}[0-9]{{3}})+" for mark in (t, " ", "'", "_"))
    indian = rf"[1-9][0-9]?(?:{re.escape(t)}[0-9]{{2}})+{re.escape(t)}[0-9]{{3}}"
    return re.compile(rf"(?:[0-9]+|{groups}|{indian})(?:{d}[0-9]*)?|{d}[0-9]+")


_BODIES = {decimal: _body_pattern(decimal) for decimal in OTHER}


class Written(NamedTuple):
    """The parts of a cell that may be a number: its digits with their marks, the sign, the exponent and the unit.

    `scale` is a word or letter that multiplies the number, such as "Mio" or "k", and `suffix` it and the unit together.
    """

    body: str
    negative: bool
    exponent: str
    unit: str
    scale: str = ""
    suffix: str = ""

    @property
    def letter(self) -> str:
        """The letter behind the number, without a currency, that may be a magnitude or a unit; "" if there is none."""
        letter = self.suffix.rstrip(".")
        return letter if letter in LETTERS and self.unit in ("", self.suffix) else ""

    @property
    def is_capital(self) -> bool:
        """Whether this letter is K, M, B or T, without a blank before it."""
        return bool(self.letter and self.scale) and self.letter != "k"

    def is_written_with(self, decimal: str) -> bool:
        """Whether this mark may stand before the decimals; a number with an exponent has no thousands."""
        return bool(_BODIES[decimal].fullmatch(self.body)) and not (self.exponent and OTHER[decimal] in self.body)

    def size(self, decimal: str) -> float:
        """The number without its sign, unit and magnitude, with this mark before the decimals."""
        digits = re.sub(rf"[ _'{re.escape(OTHER[decimal])}]", "", self.body).replace(",", ".")
        return float(f"{digits}{self.exponent}")


def written(text: str) -> Written | None:
    """Take a cleaned cell apart; None if it is no number in any format."""
    kept = _KEPT_AS_TEXT.fullmatch(text)
    match = _CELL.fullmatch((kept[1] or kept[2] if kept else text).translate(_DIGITS))
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    body, trailing = match["body"].strip(), match["trailing"] or ""
    if body[-1] in ".,":  # no cents, as in 12,- or 1.250.--
        trailing = ""
    signs = [mark for mark in (match["sign"], match["inner"], trailing) if mark]
    before, after = (match["first"] or match["before"] or "").strip(), (match["after"] or "").strip()
    if len(signs) + bool(match["open"]) > 1 or trailing not in ("", "-"):
        return None
    if trailing and after and match.end("trailing") == match.start("after") and not _AFTER_MINUS.fullmatch(after):
        return None  # 5-inch and 1-Jan
    if after and not match["space"] and _CODE.fullmatch(after):
        return None
    negative, exponent = bool(match["open"]) or signs not in ([], ["+"]), match["exponent"] or ""
    exponent = re.sub(r"D|\s?[x\u00d7].*\^", "e", exponent)
    scale, unit = _scale_of(after, bool(before), bool(match["space"]))
    if (before and unit) or (match["per"] and not before):
        return None
    return Written(body, negative, exponent, (before or unit) + (match["per"] or ""), scale, after)


def _scale_of(after: str, has_currency: bool, has_space: bool) -> tuple[str, str]:
    """The scale and the unit of what stands behind a number; 300 K and 5m have a unit unless their column says more."""
    match = _SCALED.fullmatch(after)
    if match is None:
        return "", after
    scale, currency = match["scale"], match["currency"] or ""
    if len(scale) > 1 or has_currency:
        return scale, currency
    if currency:
        return (
            (scale, currency) if currency[-1] in SYMBOLS or (len(currency) == 3 and currency.isupper()) else ("", after)
        )
    return ("", after) if scale in SMALL or (has_space and scale != "k") else (scale, "")


def without_limit(text: str) -> str:
    """The number of a cell such as <0.5, which says that a value is below what can be measured."""
    return text[match.end() :] if (match := _LIMIT.match(text)) else text


class NumberFormat(NamedTuple):
    """How the numbers of a column are written.

    Attributes
    ----------
    decimal : {".", ","}
        The mark before the decimals.
    unit : str
        The unit or currency that stands beside the numbers, such as "kg", "%" or "$".
    small : bool
        Whether the numbers of training lie between -1.5 and 1.5, so that a new cell 12% is 0.12.
    evidence : {"none", "sure", "either"}
        Whether no cell has a mark, the cells leave no doubt about the marks, or both can be meant, as in 1,234.
    missing : float or tuple of float, optional
        A number that stands for a gap, such as -999, or several.
    limits : bool
        Whether <0.5 is read as 0.5, because some cells of training are written so.
    scaled : bool
        Whether K, M, B and T stand for a thousand, a million, a billion and a trillion, as in 1.5K and 2M.
    small_letters : bool
        Whether m and b stand for a million and a billion, as in 25.1m and 1.2bn.
    unit_in_all : bool
        Whether all numbers of training have the unit, so that a new one without it is mentioned.
    whole : bool
        Whether all numbers of training are whole, so that a new 1.234 may be meant as 1234.
    """

    decimal: Annotated[str, tuple(OTHER)] = "."
    unit: str = ""
    small: bool = False
    evidence: Annotated[str, ("none", "sure", "either")] = "none"
    missing: float | tuple[float, ...] | None = None
    limits: bool = False
    scaled: bool = False
    small_letters: bool = False
    unit_in_all: bool = False
    whole: bool = False

    def number(self, text: str) -> float | None:
        """The number that a cleaned cell stands for; None if it is none in this format."""
        if (self.decimal == "." and _PLAIN.fullmatch(text)) or _INFINITE.fullmatch(text):
            return float(text)
        if self.unit in DURATIONS and (duration := _duration(text, self.unit)) is not None:
            return duration
        parts = written(without_limit(text) if self.limits else text)
        if parts is None or not parts.is_written_with(self.decimal):
            return None
        is_open = parts.is_capital or (self.scaled and parts.letter in SMALL)
        parts = self.settled(parts)
        if parts.unit and (not same_unit(parts.unit, self.unit) if self.unit else is_open):
            return None
        factor = LETTERS.get(parts.scale) or SCALES.get(parts.scale.casefold(), 1.0)
        value = parts.size(self.decimal) * (-factor if parts.negative else factor)
        return value / 100.0 if parts.unit == "%" and self.unit != "%" and self.small else value

    def settled(self, parts: Written) -> Written:
        """The parts of a cell in which a letter alone is either a magnitude or the unit."""
        if parts.suffix and same_unit(parts.suffix, self.unit):
            return parts._replace(unit=parts.suffix, scale="")
        if not parts.letter:
            return parts
        multiplies = self.small_letters if parts.letter in SMALL else self.scaled or parts.letter == "k"
        unit, scale = ("", parts.letter) if multiplies else (parts.suffix, "")
        return parts._replace(unit=unit, scale=scale)

    def has_other_unit(self, text: str) -> bool:
        """Whether a cleaned cell has a unit where training has none, or no unit where all of training have one."""
        if self.unit and not self.unit_in_all:
            return False
        if _PLAIN.fullmatch(text):
            return self.unit_in_all
        parts = written(without_limit(text) if self.limits else text)
        return parts is not None and bool(self.settled(parts).unit) != bool(self.unit)

    def note_on_unit(self, counts: Mapping[str, int]) -> str:
        """What to say of texts, with their numbers of rows, if only some have the unit or it is not sure; else ""."""
        if self.unit == EITHER:
            text = next(filter(None, counts))
            return f"its cells are durations; {text} was read as {self.number(text):.4g}, in {EITHER}."
        parts = [(part, rows) for text, rows in counts.items() if (part := written(text)) is not None]
        numbers = [(self.settled(part).unit, rows) for part, rows in parts]
        present, with_unit = sum(n for _, n in numbers), sum(n for unit, n in numbers if unit)
        if with_unit in (0, present):
            return ""
        verb, what = "has" if with_unit == 1 else "have", "sign" if self.unit == "%" else "unit"
        share = f"{with_unit:,} of {present:,} numbers {verb} the {what} {self.unit}"
        return f"{share}; the others were read as if they had it."

    def note_on_letter(self, counts: Mapping[str, int]) -> str:
        """What to say of texts, with their numbers of rows, if only some have a letter that may be a unit; else ""."""
        parts = [(part, rows) for text, rows in counts.items() if (part := written(text)) is not None]
        sizes = {scale for part, _ in parts if (scale := self.settled(part).scale)}
        if len(sizes) != 1 or not any(part.is_capital for part, _ in parts):
            return ""
        letter, present = sizes.pop(), sum(rows for _, rows in parts)
        scaled = sum(rows for part, rows in parts if part.letter == letter)
        verb = "has" if scaled == 1 else "have"
        return (
            f"{scaled:,} of {present:,} numbers {verb} the letter {letter}, which was read as {LETTERS[letter]:,.0f}; "
            "write a blank before it if it is a unit."
        )

    def way_out(self, text: str) -> str:
        """What to do about a cleaned cell that is no number in this format; "" if it is none in another one either."""
        parts = written(text)
        if parts is None:
            return ""
        if minus := unit_of_minus(self.unit, parts.unit):
            return f"{self.unit} and {parts.unit} stand for signs: write plain numbers, with a minus for {minus}"
        if self.unit and parts.unit:
            return f"others have the unit {self.unit}: write all of them in one unit"
        if not parts.is_written_with(self.decimal) and parts.is_written_with(OTHER[self.decimal]):
            marks = {".": "point", ",": "comma"}
            own, other = marks[self.decimal], marks[OTHER[self.decimal]]
            return f"others have a {own} before the decimals, and it has a {other}: write all of them with one mark"
        return ""

    def doubt(self, texts: Collection[str]) -> str:
        """A note on a column, with {name} for its name, if its marks may be meant otherwise; "" if they may not."""
        mark = "," if any("," in text for text in texts) else "." if groups_by_points(texts) else ""
        meant = "decimal marks" if mark == self.decimal else "marks of thousands"
        marks = "commas" if mark == "," else "points"
        return mark and (
            f"{{name}}: 1.234 and 1,234 may both be meant; its {marks} were read as {meant}.\n"
            f'kinds={{{{{{name}}: "number {EXAMPLES[OTHER[self.decimal]]}"}}}} reads them the other way.'
        )

    def note_on_marks(self, texts: Collection[str]) -> str:
        """What to say of 3,512 beside 10.25 and others that all have decimals; "" where there is nothing to say."""
        other = OTHER[self.decimal]
        grouped = [text for text in texts if other in text]
        others = [text for text in texts if text and other not in text]
        is_odd = not any(self.decimal in text for text in grouped) and all(self.decimal in text for text in others)
        if not grouped or not others or not is_odd:
            return ""
        meant = grouped[0].replace(other, self.decimal)
        value = f"{self.number(grouped[0]):g}"
        return f": {grouped[0]} was read as {value}, and all others have decimals: is {meant} meant?"

    def shown(self) -> str:
        """The format in words, for a table of columns."""
        gap = f"; {' or '.join(map(exact, self.gaps))} is a gap" if self.gaps else ""
        return f"{EXAMPLES[self.decimal]} {self.unit}".strip() + gap

    @property
    def gaps(self) -> tuple[float, ...]:
        """The numbers that stand for gaps."""
        return self.missing if isinstance(self.missing, tuple) else () if self.missing is None else (self.missing,)

    @property
    def is_told(self) -> bool:
        """Whether cells alone may not tell this format again."""
        return self.decimal == "," or self.missing is not None or self.unit in DURATIONS

    @property
    def decision(self) -> str:
        """The format as the option `kinds` takes it."""
        return " ".join(("number", EXAMPLES[self.decimal], *(("missing", *map(exact, self.gaps)) if self.gaps else ())))


def groups_by_points(cells: Iterable[str]) -> bool:
    """Whether points stand between thousands, since 1.234 stands beside 567, and no cell such as 1234 or 1.5 is there.

    Numbers with three decimals hardly ever end without any, and then hardly ever have three digits.
    """
    bodies = {part.body for part in map(written, cells) if part is not None}
    with_point = {body for body in bodies if "." in body}
    others = bodies - with_point
    return (
        len(with_point) >= FEWEST_GROUPED
        and all(_BODIES[","].fullmatch(body) for body in with_point)
        and all(body.isdigit() and len(body) <= 3 for body in others)
        and any(len(body) == 3 for body in others)
    )


def _duration(text: str, unit: str) -> float | None:
    """A duration in this unit; None if it is none, or may not be meant so."""
    if short := _SHORT_DURATION.fullmatch(text):
        size = int(short["first"]) + float(short["second"]) / 60.0
        return None if unit == DAYS else -size if short["sign"] else size
    if unit == DAYS and (parts := duration_parts(text)):
        return sum(parts.values()) / 86400.0
    long = _DURATION.fullmatch(text)
    if long is None or unit == EITHER:
        return None
    hours = int(long["h"]) + int(long["m"]) / 60.0 + float(long["s"]) / 3600.0
    days = int(long["days"] or 0) + (-hours if long["sign"] else hours) / 24.0
    return days if unit == DAYS else 1440.0 * days


def duration_parts(text: str) -> dict[str, float]:
    """The seconds of the years to seconds of a duration such as 3 h 30 min; {} if it is none.

    A year has 365.25 days, and a month a twelfth of it.
    """
    match = _PARTS.fullmatch(text)
    if match is None or (match["iso"] and "T" not in text.upper() and not match["d"]):  # P3M is three months
        return {}
    parts, sign = {name: match[name] for name in _SECONDS if match[name]}, -1.0 if match["sign"] else 1.0
    return {name: sign * float(part) * _SECONDS[name] for name, part in parts.items() if _PLAIN.fullmatch(part)}


def _unit_of_durations(cells: list[str], is_asked: bool) -> str:
    """The unit in which all these cells are durations; "" if there is none, or all of them can be times of a day."""
    parts = [() if _SIZE.fullmatch(cell) else tuple(duration_parts(cell)) for cell in cells]
    has_parts = any(cell[:1] in "Pp" for cell in cells) or len(set(parts) - {()}) > 1 or any(len(p) > 1 for p in parts)
    if has_parts and all(part or _DURATION.fullmatch(cell) for cell, part in zip(cells, parts, strict=True)):
        return DAYS
    long, short = (
        [match for cell in cells if (match := form.fullmatch(cell))] for form in (_DURATION, _SHORT_DURATION)
    )
    beyond_a_day = [match["days"] or match["sign"] or int(match["h"]) > DAY for match in long]
    have_decimals = any("." in match["second"] for match in short)
    beyond_a_day += [match["sign"] or have_decimals or int(match["first"]) > DAY for match in short]
    if len(beyond_a_day) < len(cells) or not (any(beyond_a_day) or is_asked):
        return ""
    return DAYS if not short else MINUTES if long or have_decimals else EITHER


def missing_number(form: str) -> float | tuple[float, ...] | None:
    """The numbers that stand for gaps in a format such as "1.234,5 missing -99 -999"; None if there is none."""
    numbers = form.partition("missing ")[2].split()
    if not numbers or not all(map(_PLAIN.fullmatch, numbers)):
        return None
    return float(numbers[0]) if len(numbers) == 1 else tuple(map(float, numbers))


def number_format(cells: Iterable[str], decimal: str = "", is_asked: bool = False) -> NumberFormat | None:
    """The format in which all these cleaned cells are numbers.

    Parameters
    ----------
    cells : iterable of str
        The different cells of a column, without gaps.
    decimal : {"", ".", ","}
        The mark before the decimals, if it is known; of a column that can be read with both, this one is taken.
    is_asked : bool
        Whether 1:30 is a duration, also where all cells can be times of day.

    Returns
    -------
    NumberFormat or None
        None if there is no such format, as for words, or numbers with different units.
    """
    cells = list(cells)
    if unit := _unit_of_durations(cells, is_asked):
        return NumberFormat(unit=unit, unit_in_all=True)
    parts = [written(cell) for cell in cells if not _INFINITE.fullmatch(cell)]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    possible = [mark for mark in OTHER if all(part.is_written_with(mark) for part in known)]
    if not possible:
        return None
    form = _with_magnitudes(NumberFormat(decimal if decimal in possible else possible[0]), known)
    known = [form.settled(part) for part in known]
    units = sorted({part.unit for part in known if part.unit})
    if not all(same_unit(one, other) for one in units for other in units):
        return None
    has_marks = any(mark in part.body for part in known for mark in OTHER)
    return form._replace(
        unit=next(iter(units), ""),
        evidence="none" if not has_marks else "sure" if len(possible) == 1 else "either",
        unit_in_all=bool(units) and all(part.unit for part in known),
    )


def _with_magnitudes(form: NumberFormat, parts: list[Written]) -> NumberFormat:
    """The format with the letters that are magnitudes in a column of these different numbers; see this module."""
    letters = {part.letter for part in parts if part.letter}
    words = {SCALES[word] for part in parts if (word := part.scale.casefold()) in SCALES}
    both = {LETTERS[letter] for letter in letters} | words
    small_letters = bool(letters & set(SMALL)) and {1e6, 1e9} <= both
    sizes = {LETTERS[letter] for letter in letters if small_letters or letter not in SMALL} | words
    scaled = "k" in letters or len(sizes) > 1 or _is_nearer(form, parts)
    return form._replace(scaled=scaled, small_letters=small_letters)


def _is_nearer(form: NumberFormat, parts: list[Written]) -> bool:
    """Whether numbers with a capital letter are nearer to those without one if it is a magnitude."""
    with_letter = [size for part in parts if part.is_capital and (size := part.size(form.decimal)) > 0.0]
    others = [part for part in parts if not part.scale and (part.letter in SMALL or not part.letter)]
    plain = [size for part in others if (size := part.size(form.decimal)) > 0.0]
    if not with_letter or not plain:
        return False
    factor = next(LETTERS[part.letter] for part in parts if part.is_capital)
    return median(plain) ** 2 > factor * median(with_letter) ** 2  # the middle of both readings
