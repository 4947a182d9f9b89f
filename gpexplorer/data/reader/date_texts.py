"""Dates and times as people write them, and the offsets of their zones.

    2021-03-01   2021-03-01T06:30:00+02:00   1 Mar 2021   March 1st, 2021   01/03/21 1:00 PM   2021-W09-1   2021-Q1
    2021-H1

Which number is the day and which the month is an argument here; `date_format` decides it.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..quoting import quote

DAY = 86_400.0  # seconds
EPOCH = date(1970, 1, 1).toordinal()
WEST, EAST = -12 * 3600.0, 14 * 3600.0  # the zones of the world, in seconds from UTC
UTC = "UTC"
QUARTER = 900  # seconds: offsets change at whole quarters of an hour
FIRST, LAST = -6e10, 2e11  # seconds since 1970, of which the library knows the offset
PIVOT = 69  # a year 68 is 2068, and 69 is 1969, as in POSIX
WEEK = "week"  # an order, in which two numbers are a year and its week by ISO 8601, as in 202105
YEAR_QUARTER = "quarter"  # an order, in which they are a year and its quarter, as in 2021-3

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
MONTH_OF = {word: number for number, words in enumerate(_MONTHS, 1) for word in words.split()}
_ZONES = {
    "Z": 0, "UTC": 0, "GMT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
    "CET": 1, "MEZ": 1, "CEST": 2, "MESZ": 2, "BST": 1,
}  # fmt: skip
_MONTH = r"(?P<mon>(?!(?:out|set) of)[^\W\d_]{3,12})\.?"  # 3 out of 10 is not October 2010, as it is in Portuguese
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
            rf"(?P<y>{_YEAR})[- ]?[HhSs](?P<half>[12])",
            rf"[HhSs](?P<half>[12])[-/ ]+(?P<y>{_YEAR})",
            rf"(?P<y>{_YEAR})\.(?P<m>0[1-9]|1[0-2])",
            rf"(?P<y>{_YEAR})-(?P<yd>\d{{3}})",
            r"(?P<y>\d{4})\s?[\u5e74\ub144]\s?(?P<m>\d{1,2})\s?[\u6708\uc6d4](?:\s?(?P<d>\d{1,2})\s?[\u65e5\uc77c])?",
        )
    ),
    re.compile(
        rf"{_MONTH}\s+(?P<d>\d{{1,2}})\s+{_CLOCKS}\s+(?P<z>[A-Z]{{3,4}}\s+)?(?P<y>\d{{4}})"
    ),  # as `date` prints it
)
COMPACT = re.compile(
    r"(?P<y>(?:19|20)\d{2})(?P<m>\d{2})"
    r"(?:(?P<d>\d{2})(?:[T ]?(?P<h>\d{2})(?:(?P<mi>\d{2})(?P<s>\d{2})?)?(?P<z>Z)?)?)?(?:\.0)?"
)
_WEEKS = (
    re.compile(r"(?P<y>(?:19|20)\d{2})[-/ ]?(?P<w>\d{2}|(?<=\D)\d)(?:\.0)?"),
    re.compile(r"(?P<w>\d{1,2})[-/ ](?P<y>(?:19|20)\d{2})"),
)
_QUARTERS = (
    re.compile(r"(?P<y>(?:19|20)\d{2})(?:[-/. ](?P<q>\d{1,2})|(?P<digit>\d))(?:\.0)?"),
    re.compile(r"(?P<q>\d{1,2})[-/. ](?P<y>(?:19|20)\d{2})"),
)
_CLOCK = re.compile(
    r"(?P<h>\d{1,2})(?::(?P<mi>\d{2})(?::(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?)?)?\s*(?P<ap>[AaPp]\.?[Mm]\.?)?"
)


class Moment(NamedTuple):
    """A date, with or without a time.

    Attributes
    ----------
    written : float
        Seconds since 1970-01-01, as they are written.
    offset : float or None
        The offset from UTC in seconds; None without a zone.
    has_time : bool
        Whether a time of day is written.
    """

    written: float
    offset: float | None
    has_time: bool


def clock_hours(text: str) -> float | None:
    """A time of day such as 13:45, 1:45 PM or 1 PM as hours; None if the cleaned cell is none."""
    match = _CLOCK.fullmatch(text)
    seconds = None if match is None else _time(match.groupdict())
    return None if seconds is None else seconds / 3600.0


def seconds_of(text: str, order: str, compact: bool, pivot: int = PIVOT) -> float | None:
    """Seconds since 1970-01-01 of a cleaned cell, in UTC; None if it is no date."""
    moment = moment_of(text, order, compact, pivot)
    return None if moment is None else moment.written - (moment.offset or 0.0)


def match_of_week(text: str) -> re.Match[str] | None:
    """The parts of a cleaned cell that may be a year and a week, such as 202105, 2021-05 or 05/2021."""
    return next(filter(None, (form.fullmatch(text) for form in _WEEKS)), None)


def match_of_quarter(text: str) -> re.Match[str] | None:
    """The parts of a cleaned cell that may be a year and a quarter, such as 2021-3, 2021/3, 20213 or 3/2021."""
    return next(filter(None, (form.fullmatch(text) for form in _QUARTERS)), None)


@lru_cache(maxsize=100_000)  # a column is read in several orders, for its format, its zone and its values
def moment_of(text: str, order: str, compact: bool, pivot: int) -> Moment | None:
    """What a cleaned cell says in this order of day and month; None if it is no date."""
    if order in (WEEK, YEAR_QUARTER):
        if match := match_of_week(text) if order == WEEK else match_of_quarter(text):
            return _from_parts(match.groupdict(), order, pivot)
        order = "ymd"
    if compact and (match := COMPACT.fullmatch(text)):
        parts = match.groupdict()
        return _from_parts(parts | {"mi": "00"} if parts["h"] and not parts["mi"] else parts, order, pivot)
    for cell in dict.fromkeys((text, _WEEKDAY.sub("", text))):
        for form in _FORMS:
            match = form.fullmatch(cell)
            if match and (value := _from_parts(match.groupdict(), order, pivot)) is not None:
                return value
    return None


def _from_parts(parts: dict[str, str | None], order: str, pivot: int) -> Moment | None:
    if parts.get("a"):
        numbers = dict(zip(order, (parts["a"], parts["b"], parts["c"]), strict=True))
        if len(str(numbers["y"])) == 1 or len(str(numbers["d"])) > 2 or len(str(numbers["m"])) > 2:
            return None
        parts = {**parts, **numbers}
    day, time, zone = _day(parts, pivot), _time(parts), (parts.get("z") or "").strip()
    offset = offset_of(zone) if zone else None
    if day is None or time is None or (zone and offset is None):
        return None
    return Moment(day * DAY + time, offset, bool(parts.get("h")))


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
        if quarter := parts.get("q") or parts.get("digit"):
            return date(year, 3 * int(quarter) - 2, 1).toordinal() - EPOCH
        if half := parts.get("half"):
            return date(year, 6 * int(half) - 5, 1).toordinal() - EPOCH
        month = MONTH_OF[str(parts["mon"]).casefold()] if parts.get("mon") else int(parts["m"] or 0)
        return date(year, month, int(parts.get("d") or 1)).toordinal() - EPOCH
    except (ValueError, KeyError):
        return None


def _time(parts: dict[str, str | None]) -> float | None:
    """Seconds after midnight; None if there is no such time."""
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
    return 3600.0 * hour + 60.0 * minute + second + float(f"0.{parts.get('f') or 0}")


def offset_of(zone: str, named: bool = True) -> float | None:
    """The offset of a zone from UTC in seconds; None if the zone is not known. A name may be a zone of two offsets."""
    if named and zone.upper() in _ZONES:
        return 3600.0 * _ZONES[zone.upper()]
    match = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}(?=:|$)|\d{2}):?(\d{2})?", zone)
    if match is None:
        return None
    offset = (-1.0 if match[1] == "-" else 1.0) * (3600.0 * int(match[2]) + 60.0 * int(match[3] or 0))
    return offset if WEST <= offset <= EAST else None  # 9:00-17:30 is no time


@lru_cache(maxsize=100_000)
def offset_in(zone: str, quarter: float) -> float:
    """The offset from UTC in seconds at a moment, in quarters of an hour since 1970-01-01.

    Raises
    ------
    DataError
        If the zone is not known on this machine.
    """
    fixed = 0.0 if zone == UTC else offset_of(zone, named=False)
    if fixed is not None:
        return fixed
    try:
        clock = ZoneInfo(zone)
    except (LookupError, ValueError, OSError):
        raise DataError(
            f"The zone {quote(zone)} is not known on this machine: install the package tzdata, or give times in UTC."
        ) from None
    moment = datetime(1970, 1, 1, tzinfo=clock) + timedelta(seconds=min(max(QUARTER * quarter, FIRST), LAST))
    offset = clock.fromutc(moment).utcoffset()
    return 0.0 if offset is None else offset.total_seconds()


def offsets_at(zone: str, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The offsets from UTC in seconds [n] at moments [n]; few days have a change within them."""
    days, place = np.unique(np.nan_to_num(seconds) // DAY, return_inverse=True)
    starts, ends = (
        np.array([offset_in(zone, DAY * day // QUARTER) for day in part.tolist()]) for part in (days, days + 1.0)
    )
    offsets = starts[place] if len(days) else np.zeros(0)
    for row in np.flatnonzero((starts != ends)[place]).tolist():
        offsets[row] = offset_in(zone, seconds[row] // QUARTER)
    return offsets
