"""All figures and tables with their verdicts, in one HTML page and one Markdown table."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import NamedTuple

import holoviews as hv
import pandas as pd
from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models.widgets import Div
from bokeh.resources import INLINE

from gpexplorer.errors import GPExplorerError

from .base import Figure
from .verdicts import Verdict, judge
from .verdicts.rules import NO_BASIS, NOT_COMPUTED

TITLE = "The figures and tables of five papers, computed again"
STYLE: dict[str, str | None] = {"font-family": "system-ui, sans-serif", "max-width": "1100px"}
HEAD = ("compared", "published", "ours", "verdict", "why")


class Judged(NamedTuple):
    """One figure with its rows and verdicts; `error` says why there are none."""

    figure: Figure
    rows: pd.DataFrame
    verdicts: list[Verdict]
    error: str = ""
    missing: int = 0  # pieces of work that are not computed


def run_all(figures: Sequence[Figure], out: Path, full: bool, compute: bool = True) -> Iterator[str]:
    """Compute what is missing of each figure, judge it, and write report.html and report.md after every one.

    A figure that fails is named in the report and keeps no other from being computed. Without `compute`, the pieces
    that are in `out` are judged as far as they go, and the report says how many are missing; a figure without any is
    left out.

    Yields
    ------
    str
        Lines of progress, with the time to go; then the table of verdicts and the names of the files.
    """
    begin, judged = time.monotonic(), list[Judged]()
    figures = [figure for figure in figures if compute or len(figure.missing(out, full)) < len(figure.units(full))]
    for number, figure in enumerate(figures, 1):
        yield f"{figure.name} ({number} of {len(figures)}): {figure.title}"
        try:
            for line in figure.run(out, full) if compute else ():
                if " to go" in line:
                    yield f"  {line}"
            judged.append(from_cells(figure, out, full))
        except (GPExplorerError, OSError, ArithmeticError, LookupError, ValueError) as error:
            judged.append(Judged(figure, pd.DataFrame(), [], f"{type(error).__name__}: {error}"))
            yield f"  {judged[-1].error}"
        (out / "report.md").write_text(f"# {TITLE}\n\n{markdown(judged)}", "utf-8")
        seconds_left = (time.monotonic() - begin) / number * (len(figures) - number)
        yield f"  about {seconds_left / 60:.0f} min to go"
    (out / "report.html").write_text(page(judged), "utf-8")
    yield markdown(judged)
    yield f"Written: {out / 'report.html'}, {out / 'report.md'}"


def from_cells(figure: Figure, out: Path, full: bool) -> Judged:
    """Judge a figure by the pieces that are in `out`, and count those that are not."""
    rows, missing = figure.rows(out, full), len(figure.missing(out, full))
    return Judged(figure, rows, settled(figure, judge(figure.name, rows, full), out, full), missing=missing)


def settled(figure: Figure, verdicts: Sequence[Verdict], out: Path, full: bool) -> list[Verdict]:
    """Settle statements by the pieces of the full version that are kept beside, as far as they go.

    Where neither these nor the quick ones decide a statement, the reason is the time that its pieces take, if it was
    measured.
    """
    kept = out.with_name("full")
    try:
        in_full = {} if full else {v.about: v for v in judge(figure.name, figure.rows(kept, True), True)}
    except (OSError, LookupError, ValueError):  # nothing is there, or too little of it
        in_full = {}
    return [
        _in_full(in_full[verdict.about]) if verdict.about in in_full and in_full[verdict.about].verdict != NO_BASIS
        else verdict if verdict.verdict != NO_BASIS
        else _with_seconds(figure, verdict, kept)
        for verdict in verdicts
    ]  # fmt: skip


def _in_full(verdict: Verdict) -> Verdict:
    return replace(verdict, why="; ".join(filter(None, ["in the sizes of the paper", verdict.why])))


def _with_seconds(figure: Figure, verdict: Verdict, kept: Path) -> Verdict:
    units = [unit for unit in figure.missing(kept, True) if verdict.pieces and verdict.takes(unit)]
    each = [figure.seconds(kept, [unit]) for unit in units]
    if not units or any(map(math.isnan, each)):
        return verdict
    finite = [seconds for seconds in each if math.isfinite(seconds)]
    count = "its piece takes" if len(units) == 1 else f"its {len(units)} pieces take"
    more = "" if len(finite) == len(each) else "more than "  # a part of one tells no end
    why = f"because {count} {more}{sum(finite):,.0f} s of a processor, {figure.pace}"
    return replace(verdict, verdict=NOT_COMPUTED, why=why)


def markdown(judged: Sequence[Judged]) -> str:
    """The verdicts as Markdown, one table per figure, with a count of each verdict on top."""
    lines = [_counted(judged), ""]
    for entry in judged:
        lines += [f"### {entry.figure.name}: {entry.figure.title}", "", entry.figure.paper, ""]
        if entry.missing:
            lines += [f"{entry.missing} pieces of work are not computed.", ""]
        if entry.error:
            lines += [f"It could not be computed. {entry.error}", ""]
            continue
        lines += [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|"]
        lines += [
            f"| {' | '.join(cell(text) for text in (v.about, v.published, v.ours, v.verdict, v.why))} |"
            for v in entry.verdicts
        ]
        lines.append("")
    return "\n".join(lines)


def cell(text: str) -> str:
    """A text as a cell of a Markdown table."""
    return text.replace("|", "\\|")


def page(judged: Sequence[Judged]) -> str:
    """The report with its pictures as one HTML page that needs no network."""
    parts: list[object] = [Div(text=f"<h1>{TITLE}</h1><p>{escape(_counted(judged))}</p>", styles=STYLE)]
    for entry in judged:
        head = f"<h2>{escape(entry.figure.title)}</h2><p>{escape(entry.figure.paper)}</p>"
        parts.append(Div(text=head + (f"<p>{escape(entry.error)}</p>" if entry.error else _table(entry)), styles=STYLE))
        if not entry.error:
            parts.append(hv.render(entry.figure.plot(entry.rows), backend="bokeh"))
    return file_html(column(*parts), INLINE, TITLE)


def _counted(judged: Sequence[Judged]) -> str:
    words = pd.Series([verdict.verdict for entry in judged for verdict in entry.verdicts], dtype=str).value_counts()
    counted = ", ".join(f"{count} {word}" for word, count in words.items() if word not in (NO_BASIS, NOT_COMPUTED))
    without, uncomputed = (int(words.get(word, 0)) for word in (NO_BASIS, NOT_COMPUTED))
    failed = [entry.figure.name for entry in judged if entry.error]
    text = f"{int(words.sum())} statements of {len(judged)} figures and tables: {counted or 'none judged'}"
    text += f"; {uncomputed} not computed, with the time that it takes" if uncomputed else ""
    text += f"; {without} without a basis in what was computed." if without else "."
    return text + (f" Not computed: {', '.join(failed)}." if failed else "")


def _table(entry: Judged) -> str:
    cells = "".join(
        "<tr>"
        + "".join(f"<td>{escape(text)}</td>" for text in (v.about, v.published, v.ours, v.verdict, v.why))
        + "</tr>"
        for v in entry.verdicts
    )
    heads = "".join(f"<th style='text-align:left'>{word}</th>" for word in HEAD)
    return f"<table cellpadding='4'><tr>{heads}</tr>{cells}</table>"
