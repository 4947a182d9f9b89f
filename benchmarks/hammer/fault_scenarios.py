"""What is written while calls fail (`faults.py`), and what must hold afterwards."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch

import pandas as pd
import pooch
import requests
import torch

from gpexplorer.cli import listings
from gpexplorer.data.sets import cards
from gpexplorer.data.sets.cards import Card, CardFile
from gpexplorer.posteriors import load_posterior
from gpexplorer.runs import Run, Spec, Store
from gpexplorer.runs.storage.codec import encode
from gpexplorer.runs.storage.own_files import replacing
from gpexplorer.runs.studies.sweep import grid, sweep

STEPS, LONG_STEPS = 4, 6
SPEC = Spec("random", {"num_inducing": 3}, {"name": "friedman1", "n": 30, "seed": 1}, budget={"steps": STEPS})
NOTE = "a note that was kept"


class Scenario(NamedTuple):
    """Something that is written.

    Attributes
    ----------
    name : str
        What it is.
    act : callable
        Takes a directory and a list. It writes into the directory, and appends to the list what was acknowledged.
    check : callable
        Takes the same, after a call has failed, and raises where something acknowledged is lost or half a file is read.
    """

    name: str
    act: Callable[[Path, list[Any]], None]
    check: Callable[[Path, list[Any]], None]


@cache
def _reference() -> tuple[list[str], tuple[Any, Any]]:
    """The steps of the run as text, and two posteriors of it."""
    run = SPEC.open()
    run.finish(steps=LONG_STEPS)
    return [_text(record.step) for record in run.trace], (run.posterior(1), run.posterior(STEPS))


def _text(step: Any) -> str:
    return json.dumps(encode(step), sort_keys=True)


def _store(folder: Path, acknowledged: list[Any]) -> None:
    """A run in a store. It goes on after an interrupt, as in a notebook, and its note is written."""
    store = Store(folder / "store")
    run = store.open(SPEC)
    try:
        interrupts = 0
        while run.done < STEPS or not len(run.trace):
            try:
                record = run.advance(score=run.done == 1)
            except KeyboardInterrupt:
                interrupts += 1
                continue
            if record is None:
                return
            acknowledged.append(record.index)
        store.annotate(SPEC.key(), NOTE)
        acknowledged.append(NOTE)
    finally:
        run.close()


def _store_holds(folder: Path, acknowledged: list[Any]) -> None:
    gc.collect()  # what an error has left open, such as a lock
    store, steps = Store(folder / "store"), _reference()[0]
    records = store.kept(SPEC.key()).records if SPEC.key() in store.names() else []
    indices = [entry for entry in acknowledged if entry != NOTE]
    assert len(records) >= len(indices), f"{len(indices)} records were acknowledged, {len(records)} are stored"
    assert [_text(record.step) for record in records] == steps[: len(records)], "a record is not the one written"
    if NOTE in acknowledged:
        assert store.note(SPEC.key()) == NOTE, "the note is lost"
    run: Run = store.open(SPEC)
    run.finish(steps=LONG_STEPS)
    if run.outcome is not None and run.outcome.reason != "failed":
        assert [_text(record.step) for record in run.trace] == steps, "the run does not go on as before"
    run.close()
    assert not list(folder.glob("store/**/journal*.new")), "a file was left over"


def _model(folder: Path, acknowledged: list[Any]) -> None:
    """A saved model is replaced by another one."""
    path = folder / "model.safetensors"
    for number, posterior in enumerate(_reference()[1]):
        posterior.save(path)
        acknowledged.append(number)


def _model_holds(folder: Path, acknowledged: list[Any]) -> None:
    path, posteriors = folder / "model.safetensors", _reference()[1]
    if not path.exists():
        assert not acknowledged, "a saved model is gone"
        return
    X = torch.linspace(0.0, 1.0, 70, dtype=torch.float64).reshape(7, 10)
    mean = load_posterior(path)(X).mean
    same = [number for number, posterior in enumerate(posteriors) if torch.equal(mean, posterior(X).mean)]
    assert same and same[-1] >= max(acknowledged, default=0), "the file is neither the model before nor the one after"


def _sweep(folder: Path, acknowledged: list[Any]) -> None:
    """The runs of a sweep, and its table after each of them."""
    ended: dict[str, Any] = {}
    for run in sweep(grid(SPEC, {"seed": [0, 1]}), store=folder / "store"):
        if run.finished is None:
            continue
        ended[run.name] = [run.sentence]
        with replacing(folder / "table.parquet", private=False) as fresh:
            pd.DataFrame(ended).to_parquet(fresh)
        acknowledged.append(run.name)


def _sweep_holds(folder: Path, acknowledged: list[Any]) -> None:
    gc.collect()
    table = folder / "table.parquet"
    names = list(pd.read_parquet(table).columns) if table.exists() else []
    assert set(acknowledged) <= set(names), "a run that has ended is not in the table"
    store = Store(folder / "store")
    for name in store.names():
        store.kept(name)
    ended = [run for run in sweep(grid(SPEC, {"seed": [0, 1]}), store=folder / "store") if run.finished is not None]
    assert len(ended) == 2, "the sweep does not go on"


def _exports(folder: Path, acknowledged: list[Any]) -> None:
    """The steps of a run as CSV and Parquet, and a page of it, each in place of an older file."""
    from gpexplorer.views.saved_page import page_file

    run = _finished()
    for name in ("steps.csv", "steps.parquet"):
        with replacing(folder / name, private=False) as fresh:
            table = run.table()
            table.to_csv(fresh, index=False) if name.endswith(".csv") else table.to_parquet(fresh, index=False)
        acknowledged.append(name)
    content = _page()
    with patch.object(page_file, "page_of", lambda *_, **__: content):  # it is made once: it takes a second
        page_file.save_page(run, folder / "page.html", ["convergence"])
    acknowledged.append("page.html")


@cache
def _page() -> str:
    from gpexplorer.views.saved_page.page_file import page_of

    return page_of(_finished(), ["convergence"])


@cache
def _finished() -> Run:
    run = SPEC.open()
    run.finish()
    return run


def _exports_hold(folder: Path, acknowledged: list[Any]) -> None:
    count = len(_finished().trace)
    names = {path.name for path in folder.iterdir() if path.suffix != ".new"}  # an interrupt may leave a fresh file
    assert set(acknowledged) <= names, "a file that was written is gone"
    for name in names:
        path = folder / name
        if name == "page.html":
            assert path.read_text("utf-8").rstrip().endswith("</html>"), "half a page"
        elif name == "steps.csv":
            assert len(pd.read_csv(path)) == count, "half a table"
        elif name == "steps.parquet":
            assert len(pd.read_parquet(path)) == count, "half a table"


CSV = b"x,y\n" + b"1,2\n" * 1000
CARD_FILE = CardFile("rows/rows.csv", "https://example.org/rows.csv", hashlib.sha256(CSV).hexdigest(), len(CSV))
CARD = Card(
    name="rows", title="", task="regression", n=1000, d=1, licence="", layout="table", inputs=("x",), target="y",
    split={}, notes=(), traps=(), files=(CARD_FILE,),
)  # fmt: skip


class _Answer:
    """What `requests.get` returns for the file."""

    headers: ClassVar[dict[str, str]] = {"content-length": str(len(CSV))}

    def raise_for_status(self) -> None:
        """Nothing is wrong."""

    def iter_content(self, chunk_size: int) -> Iterator[bytes]:
        """The file by pieces."""
        return (CSV[begin : begin + chunk_size] for begin in range(0, len(CSV), chunk_size))


def _download(folder: Path, acknowledged: list[Any]) -> None:
    """A file of a data set is downloaded, and then read from the cache."""
    place = patch.dict(os.environ, {cards.ENV: str(folder / "cached")})
    answer = patch.object(requests, "get", lambda *_, **__: _Answer())
    with place, answer, patch.object(pooch.get_logger(), "disabled", True):
        for _ in range(2):
            cards.fetch_card(CARD)
            acknowledged.append(len(CSV))


def _download_holds(folder: Path, acknowledged: list[Any]) -> None:
    path = folder / "cached" / CARD_FILE.path
    assert path.exists() or not acknowledged, "a file that was loaded is gone"
    assert not path.exists() or path.read_bytes() == CSV, "half a file is in the cache"
    _download(folder, [])


LISTS: dict[str, list[dict[str, Any]]] = {"methods": [{"key": "random"}], "kernels": [], "data": []}


def _lists(folder: Path, acknowledged: list[Any]) -> None:
    """The lists of methods, kernels and data sets are collected and kept, and then read."""
    kept = patch.object(listings, "_path", lambda: folder / "catalogue-0.json")
    modules = {name: module for name, module in sys.modules.items() if name != "gpexplorer.methods.base"}
    with kept, patch.object(listings, "collected", lambda: LISTS), patch.object(sys, "modules", modules):
        for _ in range(2):
            acknowledged.append(listings.catalogue())


def _lists_hold(folder: Path, acknowledged: list[Any]) -> None:
    _lists(folder, acknowledged)
    assert all(lists == LISTS for lists in acknowledged), "half a list was read"


SCENARIOS = (
    Scenario("store", _store, _store_holds),
    Scenario("saved model", _model, _model_holds),
    Scenario("sweep", _sweep, _sweep_holds),
    Scenario("exports", _exports, _exports_hold),
    Scenario("download", _download, _download_holds),
    Scenario("cache of lists", _lists, _lists_hold),
)
