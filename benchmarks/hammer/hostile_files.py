"""Hostile data files and journals from Hypothesis: torn valid ones, and others with false headers and lines."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpexplorer.runs.spec import Spec
from gpexplorer.runs.store import Store

from .hostile_inputs import BRACKETS, json_values, names, strategies, torn

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

CELLS = (
    "1", "-2.5", "1e999", "1e-320", "nan", "", "NA", "3,5", '"', "true", "inf", "\0", "x y", "9" * 400, "é",
    "2020-01-01",
)  # fmt: skip
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (8,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (8, -1), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (8,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (10**9,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }",
    "{'descr': [('a', '<f8')], 'shape': (8,)}",
    "{'descr': '<U99999', 'fortran_order': 1, 'shape': (8,)}",
    "{'descr': 'V8', 'fortran_order': True, 'shape': ()}",
    "(" * 3000,
    "[",
    "\\x00",
)
PARTS = ("index", "seconds", "entries", "state", "info", "tensors", "scores", "at", "outcome", "memory")
ODD = ({"tensor": 99}, {"tuple": [1]}, {"named": "State", "fields": {}})
FRAME = {"a": np.linspace(0.5, 4.0, 8), "b": np.arange(8) ** 2.0, "y": np.sin(np.arange(8.0))}
SPEC = Spec("random", {"num_inducing": 3}, {"name": "friedman1", "n": 12, "seed": 1}, budget={"steps": 1})


def data_files() -> SearchStrategy[tuple[str, bytes]]:
    """Names and contents of files that may be tables: text, gzip, NPZ and Parquet."""
    st = strategies()
    cell = st.sampled_from(CELLS) | st.floats().map(str) | st.text(max_size=6)
    text = st.builds(_table, st.sampled_from(",;\t| "), st.lists(st.lists(cell, min_size=1, max_size=4), max_size=9))
    numbers = st.lists(st.lists(st.floats(-1e9, 1e9).map(str), min_size=3, max_size=3), min_size=4, max_size=9)
    even = st.lists(st.lists(cell, min_size=3, max_size=3), min_size=4, max_size=9)
    tables = st.builds(_table, st.sampled_from(",;\t|"), numbers | numbers | even)
    texts = st.one_of(text, tables, tables, st.just(valid_files()["t.csv"]).flatmap(torn))
    whole = st.sampled_from(sorted(valid_files())).map(lambda name: (name, valid_files()[name]))
    return st.one_of(
        st.tuples(st.sampled_from(("t.csv", "t.txt", "t.dat")), texts),
        st.tuples(st.just("t.csv.gz"), texts.map(gzip.compress)),
        st.tuples(st.just("t.npz"), _archives()),
        whole.flatmap(lambda file: st.tuples(st.just(file[0]), torn(file[1]))),
        whole.flatmap(
            lambda file: st.tuples(st.sampled_from(("t.npz", "t.pq", "t.csv", "t.csv.gz")), st.just(file[1]))
        ),
    )


def journals() -> SearchStrategy[tuple[bytes, bytes]]:
    """The spec and the journal of a stored run, with lines exchanged that have correct checksums, or torn."""
    st = strategies()
    spec, journal = valid_run()
    entries = [json.loads(line[17:]) for line in journal.splitlines()]
    odd = json_values() | st.sampled_from(ODD)
    parts = st.dictionaries(st.sampled_from(PARTS) | names(), odd, max_size=2)
    changes = st.dictionaries(st.integers(0, len(entries) - 1), parts, max_size=2)
    changed = changes.map(lambda by_line: _lines([{**entry, **by_line.get(k, {})} for k, entry in enumerate(entries)]))
    line = json_values().map(json.dumps) | st.sampled_from(BRACKETS) | st.text(max_size=20)
    longer = st.lists(line, max_size=2).map(lambda texts: journal + b"".join(map(_line, map(_encoded, texts))))
    return st.one_of(
        st.tuples(st.just(spec), changed), st.tuples(st.just(spec), longer), st.tuples(st.just(spec), torn(journal)),
        st.tuples(torn(spec), st.just(journal)),
    )  # fmt: skip


@cache
def valid_files() -> dict[str, bytes]:
    """One small table in every kind of file."""
    text = _table(",", [[str(value) for value in row] for row in zip(*FRAME.values(), strict=True)])
    parquet = io.BytesIO()
    pq.write_table(pa.table(FRAME), parquet)
    files = {"t.csv": text, "t.csv.gz": gzip.compress(text), "t.parquet": parquet.getvalue()}
    for method in METHODS:
        members = {
            name: _npy(str(np.lib.format.header_data_from_array_1_0(v)), v.tobytes()) for name, v in FRAME.items()
        }
        files[f"t{method}.npz"] = _archive(members, method)
    return files


@cache
def valid_run() -> tuple[bytes, bytes]:
    """The spec and the journal of a run of a few records."""
    with TemporaryDirectory() as folder:
        store = Store(folder)
        run = store.open(SPEC)
        run.finish()
        run.close()
        directory = Path(folder) / SPEC.key()
        return (directory / "spec.json").read_bytes(), (directory / "journal.jsonl").read_bytes()


def _archives() -> SearchStrategy[bytes]:
    st = strategies()
    shapes = st.sampled_from(((), (8,), (8, 2), (0,), (8, 1), (3, 2, 2), (8, 0)))
    kinds = st.sampled_from(("<f8", ">f4", "<i8", "?", "<c16", "<U3", "<M8[ns]", "S4", "<f2", "<u1"))
    good = st.builds(lambda shape, kind: _saved(np.ones(shape).astype(kind)), shapes, kinds)
    lying = st.builds(_npy, st.sampled_from(HEADERS), st.binary(max_size=64))
    member = st.one_of(good, good, lying, st.binary(max_size=40))
    keys = st.sampled_from(("X.npy", "y.npy", "x.npy", "a.npy", "b", "../up.npy", ".npy", "é.npy"))
    plain = st.builds(_archive, st.dictionaries(keys, member, max_size=4), st.sampled_from(METHODS))
    return plain | plain.flatmap(torn)


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npy(header: str, content: bytes) -> bytes:
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def _archive(members: dict[str, bytes], method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _table(delimiter: str, rows: list[list[str]]) -> bytes:
    return _encoded("\n".join(delimiter.join(row) for row in [["a", "b", "y"], *rows]))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _lines(entries: list[Any]) -> bytes:
    return b"".join(_line(json.dumps(entry).encode()) for entry in entries)


def _line(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode() + b" " + text + b"\n"
