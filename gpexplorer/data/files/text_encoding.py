"""The encoding of a text file: that of its mark, UTF-8, or else Windows-1252.

It is apart because the encoding is found in the bytes of the whole file, before `delimited` has lines and cells.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from itertools import chain

from ...errors import DataError
from .other_kinds import other_kind

_UNICODE = {  # marks of encodings, the longer ones first, since one of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


def as_utf8(name: str, data: bytes, blocks: Iterable[bytes] = ()) -> tuple[bytes, tuple[str, ...]]:
    """The text as UTF-8, and a note if it was written in another encoding, which `blocks` of the whole file may show.

    Without them, the text is the whole file.
    """
    if encoding := marked_encoding(data):
        try:
            return data.decode(encoding).encode(), ()
        except UnicodeDecodeError:
            raise DataError(f"{name} begins as {encoding.upper()} and is not: save it as UTF-8.") from None
    if kind := other_kind(data):
        raise DataError(f"{name} is {kind}.")
    data = data.removeprefix(codecs.BOM_UTF8)
    if not (byte := _byte_not_in_utf8(blocks or [data])):
        return data, ()
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        raise DataError(f"{name} is not UTF-8: {byte}. Save it as UTF-8.") from None
    return text.encode(), (f"{name} is not UTF-8 ({byte}); it was read as Windows-1252: check its names.",)


def _byte_not_in_utf8(blocks: Iterable[bytes]) -> str:
    """The first byte that makes a text no UTF-8, and its line; "" if there is none."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    for block in chain(blocks, [b""]):
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)
            return f"byte 0x{error.object[error.start]:02x} in line {line}"
        line += block.count(b"\n")
    return ""


def marked_encoding(data: bytes) -> str:
    """The encoding that the first bytes name; "" for none."""
    return next((encoding for mark, encoding in _UNICODE.items() if data.startswith(mark)), "")
