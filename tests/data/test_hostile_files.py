"""Archives whose parts are damaged or lie, and what the child process that reads uploads says when it fails."""

from __future__ import annotations

import io
import logging
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpexplorer as gpx
from gpexplorer.data import uploads
from gpexplorer.data.files.size_limits import UPLOAD
from gpexplorer.errors import DataError

X = np.random.default_rng(0).normal(size=(12, 2)) + 5.0
HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (12,), }"


def archive(header: str = HEADER, method: int = zipfile.ZIP_STORED) -> bytes:
    """An NPZ file with one column under this header."""
    text, buffer = header.encode() + b"\n", io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("y.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + X[:, 0].tobytes())
    return buffer.getvalue()


def damaged(data: bytes) -> bytes:
    """The file with its compressed bytes exchanged, and its directory whole."""
    begin = data.index(b"y.npy") + 12
    return data[:begin] + b"\xff" * 30 + data[begin + 30 :]


def numbers(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


REFUSED = {
    "one target": (numbers(X=X, y=3.0), r"X has shape \(12, 2\) and y \(\); both need one row per case"),
    "no input": (numbers(X=3.0, y=X[:, 0]), r"X has shape \(\); it must be \[n\] or \[n, d\]"),
    "an open bracket": (archive(HEADER.replace("(12,), }", "(")), '"y" is not an array'),
    "many brackets": (archive("(" * 9_000), "is not an (NPZ archive|array)"),
    "damaged LZMA": (damaged(archive(method=zipfile.ZIP_LZMA)), "is not an NPZ archive that can be read"),
    "damaged BZ2": (damaged(archive(method=zipfile.ZIP_BZIP2)), "is not an NPZ archive that can be read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_archive_that_cannot_be_read_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    data, says = REFUSED[name]
    (tmp_path / "a.npz").write_bytes(data)

    with pytest.raises(DataError, match=says):
        gpx.load(tmp_path / "a.npz")


def test_an_unexpected_error_of_the_child_is_reported_as_one_and_its_text_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    child = tmp_path / "broken_child.py"
    child.write_text(
        "import sys\nfrom gpexplorer.data import upload_child\n"
        "def broken(*arguments, **words): raise KeyError('the shelf is empty')\n"
        "upload_child.read_bytes = broken\nupload_child.main()\n"
    )
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(uploads, "CHILD", "broken_child")
        patched.setattr(uploads, "_ROOT", f"{tmp_path}:{uploads._ROOT}")
        with pytest.raises(DataError, match="could not be read because of an unexpected KeyError") as failure:
            gpx.data.preview("a.csv", b"a,y\n1,2\n")

    assert "memory" not in str(failure.value)
    assert "KeyError: 'the shelf is empty'" in caplog.text


def test_a_child_that_cannot_start_is_not_reported_as_a_file_that_is_too_large(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uploads, "CHILD", "no_such_module")

    with caplog.at_level(logging.WARNING), pytest.raises(DataError, match="could not be read") as failure:
        gpx.data.preview("a.csv", b"a,y\n1,2\n")

    assert "memory" not in str(failure.value)
    assert "No module named no_such_module" in caplog.text


@pytest.mark.parametrize("limits", [replace(UPLOAD, cpu_seconds=0), replace(UPLOAD, memory_bytes=10**6)])
def test_limits_that_are_reached_are_reported_as_limits(limits: object) -> None:
    rows = b"a,y\n" + b"".join(b"%d.5,%d\n" % (i, i % 9) for i in range(300_000))

    with pytest.raises(DataError, match=r"needs more than the .* of memory or .* s"):
        gpx.data.read_upload("large.csv", rows, limits=limits)  # type: ignore[arg-type]
