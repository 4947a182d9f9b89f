"""What a saved page contains: its columns as `page_player.js` computes them."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import numpy as np

DTYPES = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "g4": "<f4", "q2": "<u2"}


def unpacked(columns: dict[str, Any], blob: bytes, start: int) -> tuple[list[Any], int]:
    """The entries of a column as page_player.js computes them, and where the next column begins."""
    entries: list[Any] = []
    before: tuple[str, np.ndarray] | None = None
    for kind, extent in columns["entries"]:
        if kind == "json":
            entries.append(extent)
            continue
        shape = extent[:2] if isinstance(extent, list) else [extent]
        size, count = int(kind[1]), int(np.prod(shape))
        raw = np.frombuffer(blob, np.uint8, count * size, start).reshape(size, count).T.ravel()
        if kind == "q2":
            levels = np.frombuffer(raw.tobytes(), DTYPES[kind]).reshape(shape).cumsum(0, dtype=np.uint16)
            if before is not None and before[0] == kind and before[1].shape == levels.shape:
                levels = levels + before[1]
            before = (kind, levels)
            start += len(raw)
            entries.append(extent[2] + extent[3] * levels.astype(float))
            continue
        if before is not None and before[0] == kind and len(before[1]) == len(raw):
            raw = raw ^ before[1]
        before = (kind, raw)
        start += len(raw)
        entries.append(np.frombuffer(raw.tobytes(), DTYPES[kind]).reshape(shape))
    return entries, start


def frames_of(page: str) -> dict[str, Any]:
    """The content of a page with its columns unpacked: figures[k]["columns"][source][name] is one array per frame."""
    content, blob = _parts(page)
    start = 0
    for figure in [figure for run in content["runs"] for figure in run["figures"]]:
        for columns in figure["columns"].values():
            for name, column in columns.items():
                entries, start = unpacked(column, blob, start)
                columns[name] = [entries[place] for place in column["at"]]
    assert start == len(blob)
    return content


def kinds_of(page: str) -> set[str]:
    """Return the kinds in which the columns of a page are packed."""
    figures = [figure for run in _parts(page)[0]["runs"] for figure in run["figures"]]
    packed = [column for figure in figures for columns in figure["columns"].values() for column in columns.values()]
    return {kind for column in packed for kind, _ in column["entries"]}


def _parts(page: str) -> tuple[dict[str, Any], bytes]:
    contents = dict(re.findall(r'<script type="[^"]+" id="(content|frames)">([^<]*)</script>', page))
    content, frames = (gzip.decompress(base64.b64decode(contents[name])) for name in ("content", "frames"))
    return json.loads(content), frames
