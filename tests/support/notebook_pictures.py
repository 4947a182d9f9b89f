"""Runs notebooks and keeps what their cells answer, so that it shows on a code host and on paper.

`python tests/support/notebook_pictures.py notebooks/*.ipynb` runs them in place. Pictures are kept as SVG, beside them
printed lines, values and tables. Seconds, which differ each time, are replaced by a dash, and live pages are left out.
nbformat is imported where it is used: it takes 1.5 s, which each process that only looks for tests would pay.
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

PICTURE = "image/svg+xml"
FORGET = """for _name in get_ipython().run_line_magic("who_ls", ""):
    del globals()[_name]
"""  # the names of another notebook, without the search for garbage of %reset, which takes most of a second
IN_HTML = re.compile(r'<img [^>]*src="data:image/svg\+xml;base64,([^"]+)"[^>]*/?>')
STYLE = re.compile(r"<style.*?</style>", re.S)
DURATION = re.compile(r"\b\d[\d.,]*(?:e[+-]?\d+)?( ?)(s|ms|seconds|minutes)\b")
TIMED = re.compile(r"second|clock|wall|\b(?:time|ms)\b|took", re.I)
ADDRESS = re.compile(r" at 0x[0-9a-f]+|(?:/[\w.-]+){3,}/")


def read(path: Path) -> Any:
    """A notebook."""
    import nbformat

    return nbformat.read(path, as_version=4)


def executed(path: Path, folder: Path, timeout: int = 200, kernel: Any = None) -> Any:
    """Run a notebook in this folder and return it with all its outputs.

    Parameters
    ----------
    path
        The notebook.
    folder
        Where its files go.
    timeout
        Seconds that a cell may take.
    kernel
        The manager of a kernel that runs already, which spares the seconds of its imports. What another notebook has
        named there is deleted first.
    """
    import nbformat
    from nbclient import NotebookClient

    book = read(path)
    if kernel is not None:
        book.cells.insert(0, nbformat.v4.new_code_cell(f"{FORGET}import os\nos.chdir({str(folder)!r})\ndel os"))
    client = NotebookClient(
        book, kernel, timeout=timeout, record_timing=False, store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )  # fmt: skip
    try:
        client.execute()
    finally:
        if kernel is not None:
            client.kc.stop_channels()
            del book.cells[0]
    return book


def masked(text: str) -> str:
    """A text without durations, addresses in memory and folders of this machine."""
    return ADDRESS.sub("", DURATION.sub(r"–\1\2", text))


def masked_html(html: str) -> str:
    """A table without its seconds: those of a column, or of a row, whose name says that it has them."""
    timed: set[int] = set()

    def row(found: re.Match[str]) -> str:
        cells = re.findall(r"<t([hd])([^>]*)>(.*?)</t[hd]>", found[1], flags=re.S)
        if cells and all(kind == "h" for kind, _, _ in cells):
            timed.update(place for place, (_, _, name) in enumerate(cells) if TIMED.search(name))
        in_row = bool(cells) and cells[0][0] == "h" and len(cells) == 2 and TIMED.search(cells[0][2])
        shown = [
            (
                kind,
                style,
                "–" if kind == "d" and (in_row or place in timed) and re.search(r"\d", value) else masked(value),
            )
            for place, (kind, style, value) in enumerate(cells)
        ]
        return "<tr>" + "".join(f"<t{kind}{style}>{value}</t{kind}>" for kind, style, value in shown) + "</tr>"

    return re.sub(r"<tr[^>]*>(.*?)</tr>", row, STYLE.sub("", html), flags=re.S)


def answers(output: Any) -> list[Any]:
    """What a saved notebook keeps of one output: printed lines, a picture, or a table with the pictures below it."""
    from nbformat.v4 import new_output

    if output.output_type == "stream":
        return [new_output("stream", name="stdout", text=masked(output.text))] if output.name == "stdout" else []
    data = output.get("data", {})
    if PICTURE in data:
        return [new_output("display_data", {PICTURE: data[PICTURE]})]
    if "text/html" in data:
        pictures = [base64.b64decode(content).decode() for content in IN_HTML.findall(data["text/html"])]
        html = masked_html(IN_HTML.sub("", data["text/html"]))
        shown = [new_output("display_data", {"text/html": html, "text/plain": "a table"})]
        return shown + [new_output("display_data", {PICTURE: picture}) for picture in pictures]
    if any("widget-view" in kind for kind in data) or "text/plain" not in data:
        return []
    return [new_output("display_data", {"text/plain": masked(data["text/plain"])})]


def joined(outputs: list[Any]) -> list[Any]:
    """The outputs with printed lines that follow each other as one, since a kernel cuts them by time."""
    kept: list[Any] = []
    for output in outputs:
        if kept and output.output_type == kept[-1].output_type == "stream":
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def keep_answers(book: Any) -> Any:
    """Remove what differs from one run to the next: seconds, live pages, and when cells were run."""
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = joined([kept for output in cell.outputs for kept in answers(output)])
            cell.execution_count = None
    book.metadata = {name: book.metadata[name] for name in ("kernelspec", "language_info") if name in book.metadata}
    book.metadata["language_info"] = {"name": "python"}
    return book


if __name__ == "__main__":
    import nbformat

    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            nbformat.write(keep_answers(executed(Path(name), Path(scratch))), name)
        print(name, Path(name).stat().st_size)
