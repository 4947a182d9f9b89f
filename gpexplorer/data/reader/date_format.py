"""Dates and times as people write them, as seconds since 1970-01-01.

    2021-03-01   2021-03-01T06:30:00+02:00   1 Mar 2021   March 1st, 2021   01/03/21 1:00 PM   2021-W09-1   2021-Q1

Where numbers stand for day and month, their order is decided once, from all cells of a column: "dmy", "mdy", or "ymd"
with years of two digits. A cell that is no date in this order is unreadable; its order is not changed. Where no cell
shows an order, as in the line above, a later 13/03/2021 has one meaning and is read, and 02/03/2021 has two and is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np

DAY = 86_400.0  # seconds
ORDERS = ("dmy", "mdy", "ymd")
ORDER_NAMES = {"dmy": "day/month/year", "mdy": "month/day/year", "ymd": "year/month/day"}
EPOCH = date(1970, 1, 1).toordinal()
WEST, EAST = -12 * 3600.0, 14 * 3600.0  # the zones of the world, in seconds from UTC
PIVOT, CENTURY = 69, 100  # a year 68 is 2068, and 69 is 1969, as in POSIX

_MONTHS = (
    "jan janv januar january janvier januari enero ene j\u00e4n j\u00e4nner gennaio gen janeiro stycze\u0144 stycznia "
    "\u044f\u043d\u0432\u0430\u0440\u044f",
    "feb februar february f\u00e9vrier f\u00e9vr fevrier februari febrero febbraio fevereiro fev luty lutego "
    "\u0444\u0435\u0432\u0440\u0430\u043b\u044f",
    "mar mrz m\u00e4rz m\u00e4r maerz march mars marzo maart mrt mar\u00e7o marzec marca "
    "\u043c\u0430\u0440\u0442\u0430",
    "apr april avril avr abril abr aprile kwiecie\u0144 kwietnia \u0430\u043f\u0440\u0435\u043b\u044f",
    "may mai mayo maj mei maggio mag maio maja \u043c\u0430\u044f",
    "jun june juni juin junio giugno giu junho czerwiec czerwca \u0438\u044e\u043d\u044f",
    "jul july juli juillet juil julio luglio lug julho lipiec lipca \u0438\u044e\u043b\u044f",
    "aug august ao\u00fbt aout agosto ago augustus augusti sierpie\u0144 sierpnia "
    "\u0430\u0432\u0433\u0443\u0441\u0442\u0430",
    "sep sept september septembre septiembre settembre set setembro wrzesie\u0144 wrze\u015bnia "
    "\u0441\u0435\u043d\u0442\u044f\u0431\u0440\u044f",
    "oct october okt oktober octobre octubre ottobre ott outubro out pa\u017adziernik pa\u017adziernika "
    "\u043e\u043a\u0442\u044f\u0431\u0440\u044f",
    "nov november novembre noviembre novembro listopad listopada \u043d\u043e\u044f\u0431\u0440\u044f",
    "dec december dez dezember d\u00e9cembre d\u00e9c decembre diciembre dic dicembre dezembro grudzie\u0144 grudnia "
    "\u0434\u0435\u043a\u0430\u0431\u0440\u044f",
)
_MONTH_OF = {word: number for number, words in enumerate(_MONTHS, 1) for word in words.split()}
_ZONES = {
    "Z": 0, "UTC": 0, "GMT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
    "CET": 1, "MEZ": 1, "CEST": 2, "MESZ": 2, "BST": 1,
}  # fmt: skip
_MONTH = r"(?P<mon>[^\W\d_]{3,12})\.?"
_OF = r"(?:(?:de|del|di|of)\s+|d')?"  # 3 de mayo de 2021
_WEEKDAY = re.compile(
    r"(?i)^(?:mon|tue|wed|thu|fri|sat|sun|mo|di|mi|do|fr|sa|so|lun|mar|mer|jeu|ven|sam|dim|mi\u00e9|jue|vie|s\u00e1b|dom"
    r"|seg|ter|qua|qui|sex|gio|ma|wo|vr|za|zo|m\u00e5n|tis|ons|tor|l\u00f6r|s\u00f6n)[^\W\d_]*\.?,?\s+(?=\d|[^\W\d_]{3})"
)
_CLOCKS = (
    r"(?P<h>\d{1,2})(?:[:h.](?P<mi>\d{2})(?::(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?)?)?\s*(?:Uhr|h)?"
    r"\s*(?P<ap>[AaPp]\.?[Mm]\.?)?"
)
_TIME = (
    rf"(?:(?:\s*[T,:]\s*|\s+(?:(?:at|um|klo|kl\.?|\u00e0|a las)\s+)?){_CLOCKS}"
    r"\s*(?P<z>Z|z|[A-Z]{3,4}|(?:UTC|GMT)?[+-](?:\d{1,2}:\d{2}|\d{4}|\d{2})|(?:UTC|GMT)[+-]\d)?(?:\s*\[[^\]]*\])?)?"
)
_YEAR = r"(?:1[5-9]|2[01])\d{2}"  # beside a month or a number of the day alone: 3/1000 and 4711-12 are no dates
_FORMS = (
    *(
        re.compile(rf"(?:{form}){_TIME}")
        for form in (
            r"(?P<y>\d{4})(?P<sep>[-/. :])\s?(?P<m>\d{1,2})(?P=sep)\s?(?P<d>\d{1,2})\.?",
            r"(?P<a>\d{1,2})(?P<sep>[-/. ])\s?(?P<b>\d{1,2})(?P=sep)\s?(?P<c>\d{4}|\d{2})\.?",
            rf"(?P<d>\d{{1,2}})(?:st|nd|rd|th|er|\u00ba|\.)?[-/. ]*{_OF}{_MONTH}[-/., ]*{_OF}'?(?P<y>\d{{4}}|\d{{2}})"
            r"(?:\s*\u0433\.?)?",
            rf"{_MONTH}[-/. ]+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[-/., ]+'?(?P<y>\d{{4}}|\d{{2}})",
            rf"(?P<y>\d{{4}})[-/. ]*{_MONTH}[-/. ]*(?P<d>\d{{1,2}})",
            rf"{_MONTH}[-/., ]*{_OF}(?P<y>\d{{4}})",
            rf"{_MONTH}(?:-|[-/ ]*')(?P<y>\d{{2}})",
            rf"(?P<y>\d{{4}})[-/. ]+{_MONTH}",
            rf"(?P<y>{_YEAR})[-/Mm](?P<m>\d{{1,2}})",
            rf"(?P<m>\d{{1,2}})/(?P<y>{_YEAR})",
            r"(?P<m>\d{1,2})[-.](?P<y>(?:19|20)\d{2})",
            r"(?P<y>\d{4})[- ]?W(?P<w>\d{2})(?:-?(?P<wd>[1-7]))?",
            r"(?P<y>\d{4})[- ]?[Qq](?P<q>[1-4])",
            r"[Qq](?P<q>[1-4])[-/ ]*(?P<y>\d{4})",
            rf"(?P<y>{_YEAR})-(?P<yd>\d{{3}})",
            r"(?P<y>\d{4})\s?[\u5e74\ub144]\s?(?P<m>\d{1,2})\s?[\u6708\uc6d4](?:\s?(?P<d>\d{1,2})\s?[\u65e5\uc77c])?",
        )
    ),
    re.compile(
        rf"{_MONTH}\s+(?P<d>\d{{1,2}})\s+{_CLOCKS}\s+(?P<z>[A-Z]{{3,4}}\s+)?(?P<y>\d{{4}})"
    ),  # as `date` prints it
)
_COMPACT = re.compile(
    r"(?P<y>(?:19|20)\d{2})(?P<m>\d{2})(?:(?P<d>\d{2})(?:[T ]?(?P<h>\d{2})(?:(?P<mi>\d{2})(?P<s>\d{2})?)?Z?)?)?(?:\.0)?"
)
_ANY_ORDER = re.compile(r"(?<!\d)\d{1,2}([-/ ])\s?\d{1,2}\1\s?\d{2,4}")  # with points, the day comes first
_AMBIGUOUS = re.compile(r"\d{6}(?:\.0)?|\d{1,2}\.(?:19|20)\d{2}")  # 202103 and 03.2021 are numbers as well
FEWEST_AMBIGUOUS = 6  # different cells that must all be months
_DATED = re.compile(  # names of columns: a word that begins or ends like this, and is no update, candidate or estimate
    r"(?i)(?<![a-z])(?:date|time|day|when|datum|zeit|fecha|jour)|(?-i:Date|Time|Day)"
    r"|(?<!candi)(?<!man)(?<!vali)(?<!up)(?:date|datetime)s?(?![a-z])|(?<!es)time(?![a-z])"
    r"|(?:day|datum|zeit|tag|dag|data)(?![a-z])"
)
_VERSIONS = re.compile(r"(?i)version|firmware|revision|section|chapter")
LONG_DATE = 6  # digits of 03.16.21
_FOUR_DIGITS = re.compile(r"\d{4}")
_LONG_YEAR = re.compile(r"(?<![\d.,])\d{4}")
_CLOCK = re.compile(
    r"(?P<h>\d{1,2}):(?P<mi>\d{2})(?::(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?)?\s*(?P<ap>[AaPp]\.?[Mm]\.?)?"
)


class DateFormat(NamedTuple):
    """How the dates of a column are written.

    Attributes
    ----------
    order : {"", "dmy", "mdy", "ymd"}
        What three numbers such as 01/03/21 stand for; "" where no cell of training shows it.
    compact : bool
        Whether dates are written as 20210301.
    certain : bool
        Whether the cells leave no doubt about the order.
    pivot : int
        Years of two digits below it are in the century of 2000, the others in that of 1900.
    """

    order: Annotated[str, ("", *ORDERS)] = ""
    compact: bool = False
    certain: bool = True
    pivot: int = PIVOT

    def days(self, text: str) -> float | None:
        """Days since 1970-01-01; None if the cleaned cell is no date in this format."""
        orders = ORDERS if not self.order and _ANY_ORDER.search(text) else (self.order or "dmy",)
        meanings = {_seconds(text, order, self.compact, self.pivot) for order in orders} - {None}
        return None if len(meanings) != 1 else float(meanings.pop() or 0.0) / DAY

    def with_century(self, cells: Sequence[str]) -> DateFormat:
        """This format, in which the years of two digits of these cells do not fall apart.

        Years from 60 to 75 would be 2060 to 2068 and 1969 to 1975. Where the years leave a wider gap elsewhere than at
        the pivot, they are divided there.
        """
        order = self.order or "dmy"
        cells = [text for text in cells if not _LONG_YEAR.search(text)]
        pairs = ([_seconds(text, order, self.compact, pivot) for pivot in (0, CENTURY)] for text in cells)
        dates = [date.fromordinal(EPOCH + int(late // DAY)) for early, late in pairs if late not in (None, early)]
        years = sorted({day.year - 2000 for day in dates} & set(range(CENTURY)))
        if not years or years[0] >= PIVOT or years[-1] < PIVOT:
            return self
        begins = {later: later - earlier for earlier, later in pairwise(years)} | {0: CENTURY + years[0] - years[-1]}
        at_pivot = next(year for year in years if year >= PIVOT)
        widest = max(begins, key=lambda year: (begins[year], year == at_pivot, year))
        return self if widest == at_pivot else self._replace(pivot=widest)

    def doubts(self, quoted_name: str, low: float, high: float) -> list[str]:
        """What could be meant otherwise, and how to say so; low and high are the first day and the last one."""
        doubts = []
        if not self.certain:
            other = "mdy" if self.order == "dmy" else "dmy"
            doubts.append(
                f"day and month can be exchanged in every row; they were read in the order {self.order}.\n"
                f'kinds={{{quoted_name}: "date {other}"}} reads them the other way round.'
            )
        if self.pivot != PIVOT:
            first, last = (date.fromordinal(EPOCH + int(day)).year for day in (low, high))
            doubts.append(
                f"years of two digits were read as {first} to {last}, without a wide gap in between; write years of "
                "four digits where others are meant."
            )
        return doubts

    def shown(self) -> str:
        """The format in words, for a table of columns; "" where no order of day and month is known."""
        return "20210301" if self.compact else ORDER_NAMES.get(self.order, "")


def date_format(cells: Sequence[str], rows: Callable[[str], np.ndarray] | None = None) -> DateFormat | None:
    """The format in which all these cells are dates.

    Parameters
    ----------
    cells : sequence of str
        The different cleaned cells of a column, without gaps.
    rows : callable, optional
        The days of all rows in their order, for an order of day and month: of two possible orders, the one in which
        the rows rise or fall from first to last is taken.

    Returns
    -------
    DateFormat or None
        None if there is no such format.
    """
    if not cells or not any(any(character.isdigit() for character in text) for text in cells[:20]):
        return None
    possible = [order for order in ORDERS if all(_seconds(text, order, False) is not None for text in cells)]
    if not possible:
        is_compact = (
            len(cells) > 2 and may_be_digits(cells) and all(_seconds(text, "ymd", True) is not None for text in cells)
        )
        return DateFormat("ymd", True) if is_compact else None
    if len(possible) == 1:
        return DateFormat(possible[0])
    seconds = {order: [_seconds(text, order, False) for text in cells] for order in possible}
    if all(values == seconds[possible[0]] for values in seconds.values()):
        return DateFormat()
    # The order that fits best where the cells alone leave more than one
    spans = {order: np.ptp(np.array(values, float)) for order, values in seconds.items()}
    if "ymd" in possible:  # years of two digits: the wrong end of the date makes a span of decades
        shortest = min(spans, key=lambda order: spans[order])
        others = [order for order in possible if order != "ymd"]
        possible = ["ymd"] if shortest == "ymd" and 4 * spans["ymd"] < min(spans[o] for o in others) else others
        if len(possible) == 1:
            other = max(spans.values()) if possible[0] != "ymd" else min(spans[order] for order in others)
            return DateFormat(possible[0], certain=bool(4 * spans[possible[0]] < other))
    if rows is not None and all("." not in text for text in cells):
        steps = {order: np.diff(rows(order)) for order in possible}
        ordered = [o for o, step in steps.items() if len(step) > 1 and ((step >= 0).all() or (step <= 0).all())]
        if len(ordered) == 1:
            return DateFormat(ordered[0])
    return DateFormat(possible[0], certain=all("." in text for text in cells))


def may_be_digits(cells: Sequence[str]) -> bool:
    """Whether cleaned cells that are numbers as well may be dates such as 20210301, 202103 or 03.2021, by the first."""
    few = cells[:3]
    if not all(_COMPACT.fullmatch(text) or _AMBIGUOUS.fullmatch(text) for text in few):
        return False
    return len(cells) >= FEWEST_AMBIGUOUS or not any(_AMBIGUOUS.fullmatch(text) for text in few)


def are_versions(name: str, cells: Sequence[str]) -> bool:
    """Whether the name of a column says that cleaned cells such as 1.2.10 are versions, and no dates."""
    return bool(_VERSIONS.search(name)) and all("." in text and not _FOUR_DIGITS.search(text) for text in cells)


def is_marked_as_date(name: str, text: str) -> bool:
    """Whether three numbers are to be a date: by a year of four digits, by slashes, or by the name of their column.

    Others in more than one order may be versions such as 13.10.20 and 10.13.20, or numbers of parts.
    """
    return "/" in text or bool(_FOUR_DIGITS.search(text) or _DATED.search(name))


def clock_hours(text: str) -> float | None:
    """A time of day such as 13:45 or 1:45 PM as hours; None if the cleaned cell is none."""
    match = _CLOCK.fullmatch(text)
    seconds = None if match is None else _time(match.groupdict())
    return None if seconds is None else seconds / 3600.0


def _seconds(text: str, order: str, compact: bool, pivot: int = PIVOT) -> float | None:
    """Seconds since 1970-01-01 of a cleaned cell; None if it is no date."""
    if compact and (match := _COMPACT.fullmatch(text)):
        parts = match.groupdict()
        return _from_parts(parts | {"mi": "00"} if parts["h"] and not parts["mi"] else parts, order, pivot)
    for cell in dict.fromkeys((text, _WEEKDAY.sub("", text))):
        for form in _FORMS:
            match = form.fullmatch(cell)
            if match and (value := _from_parts(match.groupdict(), order, pivot)) is not None:
                return value
    return None


def _from_parts(parts: dict[str, str | None], order: str, pivot: int) -> float | None:
    if parts.get("a"):
        numbers = dict(zip(order, (parts["a"], parts["b"], parts["c"]), strict=True))
        if len(str(numbers["y"])) == 1 or len(str(numbers["d"])) > 2 or len(str(numbers["m"])) > 2:
            return None
        if order == "mdy" and parts["sep"] == "." and sum(len(str(number)) for number in numbers.values()) < LONG_DATE:
            return None  # 1.13.20 is a version
        parts = {**parts, **numbers}
    day, time = _day(parts, pivot), _time(parts)
    return None if day is None or time is None else day * DAY + time


def _day(parts: dict[str, str | None], pivot: int) -> int | None:
    """Days since 1970-01-01 of the date alone."""
    text = parts.get("y") or ""
    year = int(text) + (0 if len(text) == 4 else 1900 if int(text) >= pivot else 2000)
    try:
        if parts.get("w"):
            return date.fromisocalendar(year, int(parts["w"] or 1), int(parts.get("wd") or 1)).toordinal() - EPOCH
        if parts.get("yd"):
            number = int(parts["yd"] or 0)
            within = 1 <= number <= date(year, 12, 31).timetuple().tm_yday
            return date(year, 1, 1).toordinal() - EPOCH + number - 1 if within else None
        if parts.get("q"):
            return date(year, 3 * int(parts["q"] or 1) - 2, 1).toordinal() - EPOCH
        month = _MONTH_OF[str(parts["mon"]).casefold()] if parts.get("mon") else int(parts["m"] or 0)
        return date(year, month, int(parts.get("d") or 1)).toordinal() - EPOCH
    except (ValueError, KeyError):
        return None


def _time(parts: dict[str, str | None]) -> float | None:
    """Seconds after midnight, less the offset of the zone; None if there is no such time."""
    if not parts.get("h"):
        return 0.0
    hour, minute, second = (int(parts.get(name) or 0) for name in ("h", "mi", "s"))
    half = (parts.get("ap") or "").lower()[:1]
    if not parts.get("mi") and not half:
        return None
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "p" else 0)
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and minute + second > 0):
        return None
    offset = _offset((parts.get("z") or "").strip())
    if offset is None:
        return None
    return 3600.0 * hour + 60.0 * minute + second + float(f"0.{parts.get('f') or 0}") - offset


def _offset(zone: str) -> float | None:
    """The offset of a zone from UTC in seconds; None if the zone is not known."""
    if zone.upper() in _ZONES or not zone:
        return 3600.0 * _ZONES[zone.upper()] if zone else 0.0
    match = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}(?=:|$)|\d{2}):?(\d{2})?", zone)
    if match is None:
        return None
    offset = (-1.0 if match[1] == "-" else 1.0) * (3600.0 * int(match[2]) + 60.0 * int(match[3] or 0))
    return offset if WEST <= offset <= EAST else None  # 9:00-17:30 is no time
