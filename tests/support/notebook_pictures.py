"""Runs notebooks and keeps the pictures of their cells, so that they show on a code host and on paper.

`python tests/support/notebook_pictures.py notebooks/*.ipynb` runs them in place. What a cell draws is kept as SVG. Its
bytes do not change; tables, printed lines and live pages are left out, because seconds and random names do.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

PICTURE = "image/svg+xml"


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
    book = nbformat.read(path, as_version=4)
    if kernel is not None:
        book.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -sf\nimport os\nos.chdir({str(folder)!r})\ndel os"))
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


def keep_pictures(book: Any) -> Any:
    """Remove what differs from one run to the next: everything but the pictures."""
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            drawn = [out.data[PICTURE] for out in cell.outputs if PICTURE in out.get("data", {})]
            cell.outputs = [nbformat.v4.new_output("display_data", {PICTURE: picture}) for picture in drawn]
            cell.execution_count = None
    book.metadata = {name: book.metadata[name] for name in ("kernelspec", "language_info") if name in book.metadata}
    book.metadata["language_info"] = {"name": "python"}
    return book


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            nbformat.write(keep_pictures(executed(Path(name), Path(scratch))), name)
        print(name, Path(name).stat().st_size)
