"""The families side by side: five ways to learn one surface, under one bar, and what each costs.

Everything plays in the browser. The server sends one family after the other as it has been computed; every page that
comes later gets what an earlier one had computed.

Apart because it is a screen of its own, whose families all sessions share.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import param

from ...views.screens.side_by_side_page import (
    FAMILIES,
    PLAYER,
    SIZE,
    SIZES,
    STYLE,
    Family,
    StepTimes,
    family_of,
    surface_of,
)
from ..styles import beside
from ..text import sentence
from .screen import Screen

_one_at_a_time = threading.Lock()  # families are computed by one thread, so that a class leaves a core to the server
_computed: dict[tuple[str, int], Family] = {}
_times = StepTimes()


class SideBySide(Screen):
    """The page of one session; a parameter of a family is None until it has been computed."""

    surface = param.Dict(doc="Places of the rows, and the scale of the colours.")
    exact, swaps, blocks, eigenfunctions, minibatches, folds = (param.Dict(doc="A `Family`.") for _ in FAMILIES)
    times = param.Dict({}, doc="Pairs of rows and seconds per step of every family.")
    measuring = param.String(doc="What is being measured.")

    _esm = f"{PLAYER}\nconst FAMILIES = {list(FAMILIES)}\n{beside(__file__, 'side_by_side.js')}"
    _stylesheets: ClassVar[list[str]] = [STYLE, ":host { width: 100%; }"]

    def __init__(self, **params: Any) -> None:
        self._closed = False
        super().__init__(**self._known(SIZE), times=_measured(), **params)

    async def begin(self) -> None:
        """Send the families one after the other."""
        n = self.surface["n"]
        for key in FAMILIES:
            if getattr(self, key) is None:
                family = await asyncio.to_thread(_family, key, n)
                if self._closed or self.surface["n"] != n:
                    return
                self.param.update(**{key: family})

    async def answer(self, request: Mapping[str, Any]) -> None:
        """Show other numbers of rows, or measure the time of a step; say what goes wrong."""
        try:
            if request["kind"] == "rows":
                await self._change_rows(SIZES[SIZES.index(request["n"])])
            elif request["kind"] == "time":
                await self._measure()
        except Exception as error:
            self.notice = sentence(error, "families were being computed")

    def end(self) -> None:
        """Compute nothing more for this page."""
        self._closed = True

    async def _change_rows(self, n: int) -> None:
        self.param.update(**{key: None for key in FAMILIES})
        self.param.update(**self._known(n))
        await self.begin()

    async def _measure(self) -> None:
        while _times.next and not self._closed:
            self.measuring = _times.next
            await asyncio.to_thread(_advance)
            self.times = _measured()
        self.measuring = ""

    def _known(self, n: int) -> dict[str, Any]:
        """The surface with n rows, and the families that an earlier page had computed on it."""
        return {"surface": surface_of(n), **{key: family for (key, rows), family in _computed.items() if rows == n}}


def _family(key: str, n: int) -> Family:
    with _one_at_a_time:
        if (key, n) not in _computed:
            _computed[key, n] = family_of(key, n)
        return _computed[key, n]


def _advance() -> None:
    with _one_at_a_time:
        _times.advance()


def _measured() -> dict[str, Any]:
    """A copy, because a parameter that is given the same object again sends nothing."""
    return {key: list(pairs) for key, pairs in _times.table.items() if pairs}
