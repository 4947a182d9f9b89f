"""The HTML file of a run or of two: pictures, a player, and what is needed to repeat the run."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import importlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple

from bokeh.document import Document
from bokeh.embed.util import standalone_docs_json_and_render_items
from bokeh.util.paths import bokehjs_path

from ...data import is_named
from ...data.quoting import what_is_seen
from ...errors import GPExplorerError, SettingError, not_written, quoted
from ...runs import Spec, code
from ...runs.run import Run
from ...runs.storage.own_files import replacing
from ...runs.studies.comparison import aligned, differences_of_two
from .. import for_run
from ..base import View, arranged
from .recorded_figures import PackedColumns, Properties, RecordedFigure, evenly_spaced, facts, record, thinned

MOST_FRAMES = 200
LARGEST = 4_700_000  # bytes of a file
SCORING_SECONDS = 5.0  # for the scores of the frames of one run
CARD_ROWS = 5  # of a picture, in page_style.css as well: title, question, legend, caption, figure
SHOWN = 3  # pictures where none is named
ALIGNED = ("step", "seconds")
HERE = Path(__file__).parent
UNPACK = (HERE / "unpack_bokeh.js").read_text("utf-8")


class RecordedRun(NamedTuple):
    """One run of a page.

    Attributes
    ----------
    name : str
        Heading of the run.
    run : Run
        The run.
    records : list of int
        Indices of the records that have a frame.
    figures : list of RecordedFigure
        Its pictures, with one frame per record.
    notes : list of str
        Sentences for the reader: what should be known about the rows, and why a picture is missing.
    """

    name: str
    run: Run
    records: list[int]
    figures: list[RecordedFigure]
    notes: list[str]


def save_page(
    runs: Run | Mapping[str, Run],
    path: str | os.PathLike[str],
    keys: Sequence[str] = (),
    *,
    by: str = "step",
    title: str = "",
    report: Callable[[float], object] = lambda fraction: None,
) -> Path:
    """Write a run, or two runs side by side, as one HTML file that plays without a server and without a network.

    Parameters
    ----------
    runs : Run or mapping of str to Run
        The run, or two runs by the names that stand above them.
    path : str or PathLike
        The file to write.
    keys : sequence of str, optional
        Which pictures: the `key` of views. By default the prediction, the picture of the family, and the convergence.
    by : str, default "step"
        What two runs have in common under the slider: "step" or "seconds" of work.
    title : str, default ""
        Heading of the page; by default it names the method and the data.
    report : callable, optional
        Called with the fraction of the work that is done.

    Returns
    -------
    Path
        The file, smaller than 5 MB.

    Raises
    ------
    SettingError
        If a run has no records, there is no such picture, or the file cannot be written.

    Notes
    -----
    A run of more than 200 steps is shown at 200 of them, evenly spaced; fewer where the file would become too large.
    These steps are scored for up to 5 seconds, the last one first; at another one stands the newest score before it.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path).lower().endswith((".html", ".htm")):
        raise SettingError(f'A page cannot be saved as {quoted(path)}: give an .html file, such as "run.html".')
    return written(path, lambda: page_of(runs, keys, by=by, title=title, report=report))


def written(path: str | os.PathLike[str], content: Callable[[], str]) -> Path:
    """Write a text to a file, whole or not at all, and return its path.

    A file that cannot be written is refused with a SettingError before the text is made.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with replacing(target, private=False) as fresh:
            fresh.write_text(content(), encoding="utf-8")
    except OSError as error:
        if isinstance(error, GPExplorerError):  # of what makes the text, with its own sentence
            raise
        raise SettingError(f"Cannot write {target} {not_written(error, 'choose another file')}") from None
    return target


def page_of(
    runs: Run | Mapping[str, Run],
    keys: Sequence[str] | Mapping[str, Mapping[str, Any]] = (),
    *,
    by: str = "step",
    title: str = "",
    report: Callable[[float], object] = lambda fraction: None,
) -> str:
    """Return the text of the file that `save_page` writes.

    Parameters
    ----------
    runs, by, title, report : Run or mapping of str to Run or str or callable
        As for `save_page`.
    keys : sequence of str or mapping of str to mapping, optional
        As for `save_page`; a mapping gives the options of each picture.
    """
    runs_by_name = dict(runs) if isinstance(runs, Mapping) else {runs.method.title: runs}
    if by not in ALIGNED or len(runs_by_name) not in (1, 2):
        raise SettingError(
            f"A page shows one run or two, aligned by step or seconds; not {len(runs_by_name)} by {by!r}."
        )
    recorded = []
    for number, (name, run) in enumerate(runs_by_name.items()):
        if not len(run.trace):
            raise SettingError(f"The run {name!r} has no record to draw yet. Take a step first: run.advance().")
        records = evenly_spaced(len(run.trace), MOST_FRAMES)
        _score(run, records)
        views = _views(run, keys, SHOWN if len(runs_by_name) == 1 else 2)

        def share(fraction: float, number: int = number) -> None:
            report((number + fraction) / len(runs_by_name))

        figures, notes = record(run, views, records, share)
        if not figures:
            raise SettingError(" ".join(["There is nothing to draw.", *notes]))
        recorded.append(RecordedRun(name, run, records, figures, [*_notes_on_rows(run, recorded), *notes]))
    while True:
        content = _document(recorded, by, title or _title(recorded))
        most = max(len(recorded_run.records) for recorded_run in recorded)
        if len(content) <= LARGEST:
            return content
        if most <= 2:
            raise SettingError(f"The page has {len(content):,} bytes with two frames; name fewer pictures.")
        recorded = [
            _thinned(recorded_run, max(2, most * LARGEST * 9 // (len(content) * 10))) for recorded_run in recorded
        ]


def _score(run: Run, records: Sequence[int]) -> None:
    """Score the records that have a frame, the last one first, while this takes no longer than a few seconds."""
    if run.outcome is not None and run.outcome.reason == "failed":
        return
    end = time.monotonic() + SCORING_SECONDS
    with suppress(GPExplorerError):  # the pictures are shown where no score can be computed
        for at in (records[-1], *records[:-1]):
            run.scores(at)
            if time.monotonic() > end:
                break


def _notes_on_rows(run: Run, others: Sequence[RecordedRun]) -> list[str]:
    """What should be known about the rows of a run, as on its page; nothing that stands at another run already."""
    notes = map(what_is_seen, run.split.notes if run.split is not None else ())
    return [note for note in notes if all(note not in other.notes for other in others)]


def _views(run: Run, keys: Sequence[str] | Mapping[str, Mapping[str, Any]], shown: int) -> list[View]:
    views = {view.key: view for view in for_run(run)}
    missing = [key for key in keys if key not in views]
    if missing:
        raise SettingError(f"This run has no picture {missing[0]!r}; it has {', '.join(views)}.")
    if not keys:
        ordered = arranged(list(views.values()))
        return ordered[:shown] if shown == SHOWN else [ordered[0], *ordered[2:3]]
    for key, options in keys.items() if isinstance(keys, Mapping) else ():
        views[key].param.update(**{name: value for name, value in options.items() if name in views[key].param})
    return [views[key] for key in keys]


def _thinned(recorded: RecordedRun, most: int) -> RecordedRun:
    indices = evenly_spaced(len(recorded.records), min(most, len(recorded.records) - 1))
    figures = [thinned(figure, indices) for figure in recorded.figures]
    return recorded._replace(records=[recorded.records[k] for k in indices], figures=figures)


def _title(recorded: Sequence[RecordedRun]) -> str:
    run = recorded[0].run
    rows = f"{len(run.problem.train):,} rows"
    data = run.split.name if run.split is not None else "data in memory"
    return f"{' and '.join(recorded_run.name for recorded_run in recorded)} on {data}, {rows}"


def place_name(place: float, by: str) -> str:
    """Return what a place of the slider is called: a step, or seconds of work."""
    return f"step {place:.0f}" if by == "step" else f"{place:.3g} s of work"


def _document(recorded: Sequence[RecordedRun], by: str, title: str) -> str:
    document = Document()
    packed, pages = PackedColumns(), []
    for recorded_run in recorded:
        for figure in recorded_run.figures:
            if figure.figure.document is None:
                document.add_root(figure.figure)
        figures = [
            {
                "id": figure.figure.id,
                "columns": {
                    source: {name: packed.add(history, figure.log) for name, history in columns.items()}
                    for source, columns in figure.columns.items()
                },
                "properties": _each_once(figure.properties),
                "captions": figure.captions,
                "dark": figure.dark,
                "legend": figure.legend,
            }
            for figure in recorded_run.figures
        ]
        pages.append({"figures": figures, "facts": facts(recorded_run.run, recorded_run.records)})
    try:
        docs, items = standalone_docs_json_and_render_items(document, suppress_callback_warning=True)
    finally:
        document.clear()
    places = {str(root): str(element) for root, element in items[0].roots.to_json().items()}
    tables = [recorded_run.run.table().iloc[recorded_run.records] for recorded_run in recorded]
    slider, frames = aligned(tables, by, MOST_FRAMES)
    content = {
        "runs": pages, "names": [place_name(place, by) for place in slider], "frames": frames.tolist(), "docs": docs,
        "items": [item.to_json() for item in items], "aligned": by, "shared": _shared_axes(recorded),
    }  # fmt: skip
    sections = [_section(recorded_run, places, _heading(recorded_run, recorded)) for recorded_run in recorded]
    return _html(title, sections, content, packed.compressed())


def _shared_axes(recorded: Sequence[RecordedRun]) -> list[list[tuple[int, str]]]:
    """For each axis on which two runs of the same rows show the same quantity: number of its picture and id, per run.

    As side by side on the page, both pictures get the ends that hold what either shows.
    """
    if len(recorded) < 2 or len({repr(each.run.spec.data) for each in recorded if isinstance(each.run.spec, Spec)}) > 1:
        return []
    numbers = [{figure.view.key: number for number, figure in enumerate(each.figures)} for each in recorded]
    shared = []
    for key in (key for key in numbers[0] if key in numbers[1]):
        sides = [each.figures[number[key]].figure for each, number in zip(recorded, numbers, strict=True)]
        for axis, scale, ends in (("xaxis", "x_scale", "x_range"), ("yaxis", "y_scale", "y_range")):
            if len({(getattr(side, axis)[0].axis_label, type(getattr(side, scale))) for side in sides}) == 1:
                shared.append([(number[key], getattr(s, ends).id) for number, s in zip(numbers, sides, strict=True)])
    return shared


def _each_once(values: Sequence[Properties]) -> dict[str, list[Any]]:
    """The different values, and for each frame the number of its value: most frames have the axes of the one before."""
    entries = [value for k, value in enumerate(values) if value not in values[:k]]
    return {"at": [entries.index(value) for value in values], "entries": entries}


def _html(title: str, sections: Sequence[str], content: Any, frames: bytes) -> str:
    scripts, bokeh = [UNPACK, (HERE / "page_player.js").read_text("utf-8")], packed_bokeh()
    template = (HERE / "page_template.html").read_text("utf-8")
    text = _packed(json.dumps(content, allow_nan=False, separators=(",", ":"), default=float).encode())
    frames_text = base64.b64encode(frames).decode()
    words = title + unescape(re.sub("<[^>]*>", "", "".join(sections)))
    parts = {
        "DIGEST": hashlib.sha256((words + text + frames_text + bokeh).encode()).hexdigest(),  # page_player.js compares
        "POLICY": content_policy(scripts),
        "TITLE": escape(title),
        "CSS": (HERE / "page_style.css").read_text("utf-8"),
        "RUNS": "".join(sections),
        "FOOTER": escape(f"Written by gpexplorer {importlib.import_module('gpexplorer').__version__}."),
        "CONTENT": text,
        "FRAMES": frames_text,
        "BOKEH": bokeh,
        "UNPACK": scripts[0],
        "PLAYER": scripts[1],
    }
    pieces = template.split("@@")  # text and names of parts alternate, so that the content of a part is not searched
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


@cache
def packed_bokeh() -> str:
    """Return the program of Bokeh, compressed, as the text of an element that `UNPACK` runs; the same each time."""
    return _packed((bokehjs_path() / "js" / "bokeh.min.js").read_bytes())


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def content_policy(scripts: Sequence[str]) -> str:
    """Return the policy of a file in which no other script than these runs, and which loads nothing."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Bokeh is unpacked before it runs, and makes its CustomJS by new Function: 'unsafe-eval'.
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _heading(recorded: RecordedRun, all_runs: Sequence[RecordedRun]) -> str:
    """Name of one of two runs, and the settings in which it differs from the other; empty for a run alone."""
    if len(all_runs) == 1:
        return ""
    specs = [each.run.spec for each in all_runs if isinstance(each.run.spec, Spec)]
    has_specs, changes = len(specs) == len(all_runs), [str(each.run.changes) for each in all_runs]
    differs = differences_of_two(specs, changes)[all_runs.index(recorded)] if has_specs else ""
    return f'<h2>{escape(recorded.name)}</h2><p class="hint">{escape(differs)}</p>'


def _section(recorded: RecordedRun, places: Mapping[str, str], heading: str) -> str:
    """The place of one run on the page."""
    cards = "".join(
        f'<article data-figure="{escape(figure.figure.id)}"><h3>{escape(figure.view.title)}</h3>'
        f'<p class="hint">{escape(figure.view.help)}</p><div class="legend"></div><p class="caption"></p>'
        f'<div class="figure" id="{escape(places[figure.figure.id])}"></div></article>'
        for figure in recorded.figures
    )
    notes = "".join(f'<p class="hint">{escape(note)}</p>' for note in recorded.notes)
    rows = f"--rows: {CARD_ROWS * len(recorded.figures)}"  # that two runs share, so that they stand beside each other
    head = f'<div class="head">{heading}<dl class="facts"></dl>{notes}</div>'
    return f'<section style="{rows}">{head}<div class="cards">{cards}</div>{_origin(recorded)}</section>'


def _origin(recorded: RecordedRun) -> str:
    """The settings of the run, and the program that repeats it where its data have a name.

    A run that was changed by hand has a sentence that says so.
    """
    spec, changes = recorded.run.spec, recorded.run.changes
    if not isinstance(spec, Spec):
        return ""
    if changes:
        return f'<p class="hint">This run was changed by hand ({escape(str(changes))}). No program repeats it.</p>'
    text = code.program(spec, recorded.records[-1]) if is_named(spec.data) else spec.to_json()
    return f"<details><summary>How to repeat this run</summary><pre>{escape(text)}</pre></details>"
