"""What a file is that is no table which can be read: by the end of its name, or by its first bytes despite its name."""

from __future__ import annotations

import re
import zlib

PICTURE = "a {} picture, despite its name: choose the file that has the numbers"
IN_R = "{} of R, despite its name: save its table there by write.csv"
PACKED = "compressed by {}: unpack it first"
IN_PYTHON = "{}, despite its name: {}, or save its table as CSV"
OF_OFFICE = "a spreadsheet or another file of Office, despite its name: save its table as CSV"
WEB_PAGE = "a page of the web or XML, despite its name: save its table as CSV"
ARFF = (
    "an ARFF file, despite its name: put the names of its attributes, with commas between them, in place of all lines "
    "up to @data"
)
PICKLE = "a pickle of Python, despite its name: it is not opened, as it can contain programs; save its table as CSV"
BY_NAME = {  # the end of a name -> what such a file is
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "a spreadsheet"),
    **dict.fromkeys((".pkl", ".pickle"), "a pickle"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif"), "a picture"),
    **dict.fromkeys((".h5", ".hdf5"), "an HDF5 file"),
    **dict.fromkeys((".sqlite", ".db"), "a database"),
    **dict.fromkeys((".rds", ".rda", ".rdata"), "a file of R"),
    **dict.fromkeys((".bz2", ".xz", ".zst"), "compressed, and not by gzip"),
    **dict.fromkeys((".dta", ".sav", ".sas7bdat"), "a file of Stata, SPSS or SAS"),
    ".arff": "an ARFF file",
    ".pdf": "a PDF document",
    ".mat": "a file of MATLAB",
}
_FIRST_BYTES = {  # without blanks and line breaks
    b"PK\3\4": "a spreadsheet or a zip archive, despite its name: save its table as CSV",
    b"\x1f\x8b": "compressed by gzip: add .gz to its name",
    b"PAR1": "a Parquet file: give it a name that ends in .parquet",
    b"\xd0\xcf\x11\xe0": OF_OFFICE,
    b"ARROW1": "an Arrow or Feather file, despite its name: give pandas.read_feather(...) of it",
    **dict.fromkeys((b"<!DOCTYPE", b"<!doctype", b"<html", b"<table", b"<?xml"), WEB_PAGE),
    **dict.fromkeys((b"[{", b'{"'), "JSON, despite its name: give pandas.read_json(...) of it"),
    b"%PDF-": "a PDF document, despite its name: copy its table into a spreadsheet, and save that as CSV",
    b"\x89PNG": PICTURE.format("PNG"),
    b"\xff\xd8\xff": PICTURE.format("JPEG"),
    **dict.fromkeys((b"GIF87a", b"GIF89a"), PICTURE.format("GIF")),
    b"\x89HDF": IN_PYTHON.format("an HDF5 file", "give pandas.read_hdf(...) of it, or its arrays"),
    b"SQLiteformat3\0": IN_PYTHON.format("an SQLite database", "give pandas.read_sql(...) of a table"),
    **dict.fromkeys(
        (b"MATLAB5.0MAT-file", b"MATLAB7.3MAT-file"),
        IN_PYTHON.format("a file of MATLAB", "give the arrays that scipy.io.loadmat(...) reads"),
    ),
    b"\x93NUMPY": IN_PYTHON.format("an array of NumPy", "give numpy.load(...) of it"),
    **dict.fromkeys((b"RDX2", b"RDX3"), IN_R.format("an RData file")),
    **dict.fromkeys((b"X\0\0\0\2", b"X\0\0\0\3"), IN_R.format("an RDS file")),
    b"\xfd7zXZ\0": PACKED.format("xz"),
    b"\x28\xb5\x2f\xfd": PACKED.format("zstd"),
    **{bytes([0x80, protocol]): PICKLE for protocol in range(2, 6)},
}
BINARY = "not text (it has control characters, as pictures and archives have): give a table as CSV, Parquet or NPZ"
UTF_16 = "not text (it has zero bytes, as UTF-16 without its mark has): save it as UTF-8"
_LOOKED_AT = 4096  # bytes
_CONTROL = bytes(sorted({*range(32), 127} - {1, *range(7, 14), 26, 27, *range(28, 32)}))  # those that no text has
_MOST_CONTROL = 0.02  # their share in a text


def other_kind(data: bytes) -> str:
    """Return what the contents of a file are if they are no text, as the rest of a sentence with a way out; else ""."""
    first = data[:200].translate(None, b" \t\r\n")
    named = next((description for start, description in _FIRST_BYTES.items() if first.startswith(start)), "")
    if first.startswith(b"\x1f\x8b"):
        return _inside_gzip(data) or named
    if re.match(rb"(?i)(?:%[^\n]*\n|\s)*@relation\s", data):
        return ARFF
    is_bzip2 = re.match(rb"BZh[1-9]1AY&SY", first) is not None  # other names of columns begin with BZh
    return PACKED.format("bzip2") if is_bzip2 else named or _binary(data[:_LOOKED_AT])


def _inside_gzip(data: bytes) -> str:
    """What is packed, where it is no text: R packs all that it saves."""
    try:
        start = zlib.decompressobj(wbits=31).decompress(data[:_LOOKED_AT], _LOOKED_AT)
    except zlib.error:
        return ""
    return other_kind(start) if start else ""


def _binary(start: bytes) -> str:
    """Whether this is the beginning of a file that is no text: half of the bytes of numbers in UTF-16 are zero."""
    zeros = [start[place::2].count(0) for place in (0, 1)]
    if max(zeros) > 0.6 * len(start) / 2 and min(zeros) < 0.05 * len(start) / 2:
        return UTF_16
    is_binary = any(zeros) or len(start.translate(None, _CONTROL)) < (1.0 - _MOST_CONTROL) * len(start)
    return BINARY if is_binary else ""
