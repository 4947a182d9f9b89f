"""The format of the dates of a column: the order of day and month, the century, and the clock of their times.

Where numbers stand for day and month, their order is decided once, from all cells of a column: "dmy", "mdy", or "ymd"
with years of two digits; it is "week" or "quarter" for years and weeks such as 202105, or years and quarters such as
2021-3, in a column that is named so. A cell that is no date in this order is unreadable; its order is not changed, and
a cell of the same file that has two meanings is unreadable with it. Where no cell shows an order, as in 2021-03-01 and
20210301, a later 13/03/2021 has one meaning and is read, and 02/03/2021 has two and is not. With points, as in
02.03.2021, the day comes first, unless training has points with the month first.

Days and hours follow the clock of training, because what is learned depends on the hour of the day there:

    zone             cells of training                                           a later cell
    ""               not known: the model was saved by an earlier version        in UTC, with and without a zone
    "none"           no zone                                                     is unreadable if it has a zone
    "some"           some with a zone and some without                           as it is written
    "local"          offsets of one place, which differ by an hour at most       as it is written, if its offset fits
    "UTC"            of offset 0, or with offsets of several places              at the same moment in UTC
    "Europe/Berlin"  a column of this type                                       at the same moment on that clock

In the last three cases, a time without a zone is unreadable; a date without a time is read. Where all of training are
whole days, a zone says nothing, and a later midnight is that day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from .cells import Texts
from .date_texts import (
    COMPACT,
    DAY,
    EPOCH,
    PIVOT,
    QUARTER,
    UTC,
    WEEK,
    YEAR_QUARTER,
    match_of_quarter,
    match_of_week,
    moment_of,
    offset_in,
    offset_of,
    offsets_at,
    seconds_of,
)

ORDERS = ("dmy", "mdy", "ymd")
ORDER_NAMES = {"dmy": "day/month/year", "mdy": "month/day/year", "ymd": "year/month/day"} | {
    WEEK: "year and week", YEAR_QUARTER: "year and quarter",
}  # fmt: skip
NO_ZONE, SOME_ZONES, LOCAL = "none", "some", "local"
CLOCK_CHANGE = 3600.0  # seconds by which the offsets of one place differ in summer and in winter
CENTURY = 100

_ANY_ORDER = re.compile(r"(?<!\d)\d{1,2}([-/ ])\s?\d{1,2}\1\s?\d{2,4}")  # with points, the day comes first
_AMBIGUOUS = re.compile(r"\d{6}(?:\.0)?|\d{1,2}\.(?:19|20)\d{2}")  # 202103 and 03.2021 are numbers as well
_DAY_FIRST = re.compile(r"(?<!\d)\d{1,2}\.\s?\d{1,2}\.\s?\d{2,4}")
FEWEST_AMBIGUOUS = 6  # different cells that must all be months, or dates
_WITH_POINTS = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{2})(?!\d)")
LONG_DATE = 6  # digits of 03.16.21
_DATED = re.compile(  # names of columns: a word that begins or ends like this, and is no update, candidate or estimate
    r"(?i)(?<![a-z])(?:date|time|day|when|datum|zeit|fecha|jour)|(?-i:Date|Time|Day)"
    r"|(?<!candi)(?<!man)(?<!vali)(?<!up)(?:date|datetime)s?(?![a-z])|(?<!es)time(?![a-z])"
    r"|(?:day|datum|zeit|tag|dag|data)(?![a-z])"
)
_NAME_OF_WEEKS = re.compile(r"(?i)week(?!day|end|ly)|woche(?!n)|semaine|semana|^kw$")
_NAME_OF_QUARTERS = re.compile(r"(?i)(?<!head)quarter(?!ly|back|final|master)|quartal|trimest|^qtr$")
_VERSIONS = re.compile(r"(?i)version|firmware|revision|section|chapter")
_FOUR_DIGITS = re.compile(r"\d{4}")
_LONG_YEAR = re.compile(r"(?<![\d.,])\d{4}")


class DateFormat(NamedTuple):
    """How the dates of a column are written.

    Attributes
    ----------
    order : {"", "dmy", "mdy", "ymd", "week", "quarter"}
        What three numbers such as 01/03/21, or two such as 202105 or 2021-3, stand for; "" where no cell of training
        shows it.
    compact : bool
        Whether dates are written as 20210301.
    certain : bool
        Whether the cells leave no doubt about the order.
    pivot : int
        Years of two digits below it are in the century of 2000, the others in that of 1900.
    zone : str
        What the cells of training say of their zone; see this module.
    offsets : tuple of float
        The smallest and the largest offset from UTC in seconds, of cells of texts with a zone.
    whole_days : bool
        Whether all cells of training are whole days, so that a later midnight is that day in any zone.
    without_points : bool
        Whether no cell of training is such as 3.16.2021, so that the day comes first in a later one.
    """

    order: Annotated[str, ("", *ORDER_NAMES)] = ""
    compact: bool = False
    certain: bool = True
    pivot: int = PIVOT
    zone: str = ""
    offsets: tuple[float, ...] = ()
    whole_days: bool = False
    without_points: bool = False

    @property
    def other_orders(self) -> tuple[DateFormat, ...]:
        """The formats in another order than that of training; none where training shows no order."""
        has_order = self.order in ORDERS and not self.compact
        return tuple(self._replace(order=order) for order in ORDERS if order != self.order) if has_order else ()

    def days(self, text: str) -> float | None:
        """Days since 1970-01-01 on the clock of training; None if the cleaned cell is no date in this format."""
        order = "" if self.compact else self.order
        order = "dmy" if order == "mdy" and self.without_points and _DAY_FIRST.search(text) else order
        orders = ORDERS if not order and _ANY_ORDER.search(text) else (order or "dmy",)
        meanings = {moment_of(text, order, self.compact, self.pivot) for order in orders} - {None}
        moment = meanings.pop() if len(meanings) == 1 else None
        if moment is None:
            return None
        is_day = not moment.has_time or (self.whole_days and moment.written % DAY == 0.0)
        seconds = moment.written if is_day else self._on_clock(moment.written, moment.offset)
        return None if seconds is None else seconds / DAY

    def _on_clock(self, written: float, offset: float | None) -> float | None:
        """The seconds on the clock of training of a time that was written with this offset; None if there are none."""
        if not self.zone:
            return written - (offset or 0.0)
        if self.zone in (NO_ZONE, SOME_ZONES) or offset is None:
            fits = self.zone == SOME_ZONES or (offset is None) == (self.zone == NO_ZONE)
            return written if fits else None
        if self.zone == LOCAL:
            return written if self._fits(offset) else None
        return written - offset + offset_in(self.zone, (written - offset) // QUARTER)

    def _fits(self, offset: float) -> bool:
        """Whether an offset is one of the place of training; 0 is so only if training has it, since it may be UTC."""
        low, high = self.offsets
        is_near = max(high, offset) - min(low, offset) <= CLOCK_CHANGE
        return low <= offset <= high or (is_near and offset != 0.0)

    def days_of_moments(self, days: NDArray[np.float64], zone: str | None) -> NDArray[np.float64]:
        """Days [n] on the clock of training, NaN where there are none, of a column with a type.

        Parameters
        ----------
        days : array [n]
            Days since 1970-01-01: moments in UTC if the column has a zone, else as they are written.
        zone : str or None
            The zone of the column, such as Europe/Berlin or +02:00.
        """
        if not self.zone or (zone is None and self.zone in (NO_ZONE, SOME_ZONES)):
            return days
        if zone is None:  # a column of midnights alone has dates, which pandas gives no type of their own
            is_day = (days % 1.0 == 0.0) | np.isnan(days)
            return np.where(is_day & (self.whole_days or bool(is_day.all())), days, np.nan)
        seconds = np.round(days * DAY, 6)
        own = offsets_at(zone, seconds)
        if self.zone in (NO_ZONE, SOME_ZONES):
            on_clock = seconds + (own if self.zone == SOME_ZONES else np.nan)
        elif self.zone == LOCAL:
            offsets, place = np.unique(own, return_inverse=True)
            on_clock = seconds + np.array([o if self._fits(o) else np.nan for o in offsets.tolist()])[place]
        else:
            on_clock = seconds + offsets_at(self.zone, seconds)
        is_day = ((seconds + own) % DAY == 0.0) & self.whole_days
        return np.asarray(np.where(is_day, seconds + own, on_clock) / DAY)

    def with_clock_of(self, cells: Sequence[str]) -> DateFormat:
        """This format, with the clock of these cleaned cells of training."""
        order, without_points = self.order or "dmy", not any(map(_DAY_FIRST.search, cells))
        moments = [m for text in cells if (m := moment_of(text, order, self.compact, self.pivot)) is not None]
        offsets = {moment.offset for moment in moments if moment.has_time}
        known = [offset for offset in offsets if offset is not None]
        whole_days = all(moment.written % DAY == 0.0 for moment in moments)
        if not known:
            return self._replace(zone=NO_ZONE, whole_days=whole_days, without_points=without_points)
        low, high = min(known), max(known)
        zone = LOCAL if high - low <= CLOCK_CHANGE and (low, high) != (0.0, 0.0) else UTC
        zone = SOME_ZONES if None in offsets else zone
        return self._replace(zone=zone, offsets=(low, high), whole_days=whole_days, without_points=without_points)

    def with_century(self, cells: Sequence[str]) -> DateFormat:
        """This format, in which the years of two digits of these cells do not fall apart.

        Years from 60 to 75 would be 2060 to 2068 and 1969 to 1975. Where the years leave a wider gap elsewhere than at
        the pivot, they are divided there.
        """
        order = self.order or "dmy"
        cells = [text for text in cells if not _LONG_YEAR.search(text)]
        pairs = ([seconds_of(text, order, self.compact, pivot) for pivot in (0, CENTURY)] for text in cells)
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
        if self.zone == SOME_ZONES:
            doubts.append("some cells have a zone and some have none; the time was read as it is written in all.")
        if self.zone == UTC and self.offsets != (0.0, 0.0) and self.offsets:
            doubts.append("its cells have zones that differ by more than an hour; they were read as times in UTC.")
        return doubts

    @property
    def expected_zone(self) -> str:
        """How the cells of training are, in a sentence on others."""
        plain = {NO_ZONE: "have no zone", SOME_ZONES: "have any", LOCAL: "have the offsets of one place"}
        return plain.get(self.zone, f"are times of {self.zone}")

    def shown(self) -> str:
        """The format in words, for a table of columns; "" where no order of day and month, and no zone, is known."""
        order = "20210301" if self.compact else ORDER_NAMES.get(self.order, "")
        zone = {NO_ZONE: "", SOME_ZONES: "with and without a zone", LOCAL: "local time"}.get(self.zone, self.zone)
        return ", ".join(filter(None, (order, zone)))


def format_of_moments(days: NDArray[np.float64], zone: str | None) -> DateFormat:
    """The format of a column with a type, from its days [n] and its zone; see `DateFormat.days_of_moments`."""
    fixed = None if zone is None else offset_of(zone, named=False)
    if fixed is not None:
        dates = DateFormat(zone=LOCAL if fixed else UTC, offsets=(fixed, fixed))
    else:
        try:
            offset_in(zone or UTC, 0.0)
        except DataError:  # a machine without a list of zones
            zone = UTC
        dates = DateFormat(zone=zone or NO_ZONE)
    on_clock = dates.days_of_moments(days[~np.isnan(days)], zone)
    return dates._replace(whole_days=bool((on_clock % 1.0 == 0.0).all()))


def without_versions(cells: Sequence[str], is_dated: bool) -> list[str]:
    """Cleaned cells that are dates with the month first, without those such as 1.13.20 if they may be versions.

    They are dates if the name of their column says so, or if there are many, of few years, and of more days than years:
    the last number of versions changes most.
    """
    parts = [match.groups() for text in cells if (match := _WITH_POINTS.match(text))]
    months, days, years = (len(set(column)) for column in zip(*parts, strict=True)) if parts else (0, 0, 0)
    are_dates = is_dated or (len(cells) >= FEWEST_AMBIGUOUS and years <= months and years < days)
    return [text for text in cells if are_dates or not _is_short(text)]


def _is_short(text: str) -> bool:
    """Whether a cleaned cell has fewer digits than 03.16.21, so that it may be a version."""
    match = _WITH_POINTS.match(text)
    return match is not None and sum(map(len, match.groups())) < LONG_DATE


def date_format(
    cells: Sequence[str], rows: Callable[[str], np.ndarray] | None = None, is_dated: bool = False
) -> DateFormat | None:
    """The format in which all these cells are dates.

    Parameters
    ----------
    cells : sequence of str
        The different cleaned cells of a column, without gaps.
    rows : callable, optional
        The days of all rows in their order, for an order of day and month: of two possible orders, the one in which
        the rows rise or fall from first to last is taken.
    is_dated : bool
        Whether the name of the column says that it has dates, so that 3.16.21 is no version.

    Returns
    -------
    DateFormat or None
        None if there is no such format.
    """
    if not cells or not any(any(character.isdigit() for character in text) for text in cells[:20]):
        return None
    possible = [order for order in ORDERS if all(seconds_of(text, order, False) is not None for text in cells)]
    may_be_others = len(possible) > 1 and any(map(_is_short, cells))  # with points, the day comes first if it can
    if "mdy" in possible and (may_be_others or len(without_versions(cells, is_dated)) < len(cells)):
        possible.remove("mdy")
    if not possible:
        compact = DateFormat("ymd", True)
        is_compact = len(cells) > 2 and may_be_digits(cells) and all(compact.days(text) is not None for text in cells)
        return compact if is_compact else None
    if len(possible) == 1:
        return DateFormat(possible[0])
    seconds = {order: [seconds_of(text, order, False) for text in cells] for order in possible}
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


def format_of_texts(name: str, texts: Texts, form: str) -> DateFormat | None:
    """The format in which all cells of a column are dates: one that was asked for, such as "mdy", or as they are."""
    cells = [text for text in texts.distinct if text]
    order = next((o for o, shown in ORDER_NAMES.items() if form in (o, shown)), "")
    if order:
        forms = [DateFormat(order), DateFormat("ymd", True)][: 1 + (order == "ymd")]
        dates = next((own for own in forms if all(own.days(cell) is not None for cell in cells)), None)
    else:
        dates = date_format(
            cells,
            lambda o: (days := texts.parsed(DateFormat(o).with_century(cells).days))[~np.isnan(days)],
            is_named_as_date(name),
        )
    return dates and dates.with_century(cells)


def may_be_digits(cells: Sequence[str]) -> bool:
    """Whether cleaned cells that are numbers as well may be dates such as 20210301, 202103 or 03.2021, by the first."""
    few = cells[:3]
    if not all(COMPACT.fullmatch(text) or _AMBIGUOUS.fullmatch(text) for text in few):
        return False
    return len(cells) >= FEWEST_AMBIGUOUS or not any(_AMBIGUOUS.fullmatch(text) for text in few)


def may_be_compact(values: NDArray[np.float64]) -> bool:
    """Whether numbers lie between 190001 and 209912, followed by digits of a day, an hour, and so on."""
    low, high = np.nanmin(values), np.nanmax(values)
    return any(190001.0 * scale <= low and high < 209913.0 * scale for scale in (1.0, 1e2, 1e4, 1e6, 1e8))


def are_compact(name: str, values: NDArray[np.float64]) -> bool:
    """Whether numbers, NaN where there is none, of a column are dates such as 20210301, or weeks if it is named so."""
    if np.isnan(values).all() or not may_be_compact(values):
        return False
    cells = [f"{v:.15g}" for v in np.unique(values[~np.isnan(values)]).tolist()]
    form = date_format(cells)
    return are_weeks(name, cells) or (form is not None and form.compact)


def are_weeks(name: str, cells: Sequence[str]) -> bool:
    """Whether cleaned cells such as 202105 or 2021-05 of a column with the name of weeks are years and weeks."""
    return is_named_as_weeks(name) and all(
        match_of_week(text) and seconds_of(text, WEEK, False) is not None for text in cells
    )


def order_by_name(name: str, cells: Sequence[str]) -> str:
    """The order of cleaned cells that are years and weeks, or years and quarters such as 2021-3, as their name says."""
    if are_weeks(name, cells):
        return WEEK
    are_quarters = is_named_as_quarters(name) and all(
        match_of_quarter(text) and seconds_of(text, YEAR_QUARTER, False) is not None for text in cells
    )
    return YEAR_QUARTER if are_quarters else ""


def is_named_as_quarters(name: str) -> bool:
    """Whether the name of a column says that it has quarters of years."""
    return bool(_NAME_OF_QUARTERS.search(name))


def is_named_as_weeks(name: str) -> bool:
    """Whether the name of a column says that it has weeks."""
    return bool(_NAME_OF_WEEKS.search(name))


def are_versions(name: str, cells: Sequence[str]) -> bool:
    """Whether the name of a column says that cleaned cells such as 1.2.10 are versions, and no dates."""
    return bool(_VERSIONS.search(name)) and all("." in text and not _FOUR_DIGITS.search(text) for text in cells)


def is_marked_as_date(name: str, text: str) -> bool:
    """Whether three numbers are to be a date: by a year of four digits, by slashes, or by the name of their column.

    Others in more than one order may be versions such as 13.10.20 and 10.13.20, or numbers of parts.
    """
    return "/" in text or bool(_FOUR_DIGITS.search(text)) or is_named_as_date(name)


def is_named_as_date(name: str) -> bool:
    """Whether the name of a column says that it has dates or times."""
    return bool(_DATED.search(name))
