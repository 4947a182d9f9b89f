"""Every notebook runs from top to bottom, in a folder of its own, without a network; the first one in JupyterLab."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client import KernelManager

from notebook_pictures import PICTURE, executed, joined, masked, masked_html, read
from stand_in_files import FILES

pytestmark = pytest.mark.long
IN_LAB = "first_swap"  # which test_jupyter_in_browser.py runs
NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """One kernel for all notebooks, since its imports take as long as many a notebook."""
    folder = str(tmp_path_factory.mktemp("jupyter"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, folder)
        if FILES.is_dir():
            patch.setenv("GPEXPLORER_DATA_DIR", str(FILES.resolve()))
        patch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(cwd=folder)
        yield manager
        manager.shutdown_kernel(now=True)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem != IN_LAB], ids=lambda path: path.stem)
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:zmq", "ignore:There is no current event loop:DeprecationWarning"
)
def test_notebook_runs(path: Path, tmp_path: Path, kernel: KernelManager) -> None:
    book = executed(path, tmp_path, kernel=kernel)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]
    assert code[-1].outputs, "the last cell shows nothing"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_notebook_begins_with_one_import_and_the_idea_as_a_small_static_picture(path: Path) -> None:
    cells = read(path).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    kinds = {kind for cell in code for out in cell.outputs for kind in out.get("data", {"text/plain": ""})}
    first = ast.parse(code[0].source).body
    imports = [ast.unparse(line) for line in first if isinstance(line, ast.Import | ast.ImportFrom)]

    assert PICTURE in kinds
    assert kinds <= {PICTURE, "text/html", "text/plain"}
    assert [line for line in imports if "rdkit" not in line or path.stem != "molecules"] == ["import gpexplorer as gpx"]
    assert not [line.name for line in first if isinstance(line, ast.FunctionDef)]
    assert code[0].outputs, "the idea comes as a picture first"
    assert not [cell for cell in cells if cell.get("attachments")]  # JupyterLab logs an error for each of them
    assert "holoviews" not in "".join(cell.source for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_cell_that_ends_with_a_value_keeps_its_answer(path: Path) -> None:
    for cell in read(path).cells:
        if cell.cell_type != "code" or not (lines := ast.parse(cell.source).body):
            continue
        last = lines[-1]
        answers = isinstance(last, ast.Expr) and not cell.source.rstrip().endswith(";")
        written = ast.unparse(last)
        silent = re.search(r"\.(close|finish|clear|save|append|update)\(", written)
        assert cell.outputs or not answers or silent, cell.source


def test_seconds_of_a_saved_table_are_masked() -> None:
    table = "<table><tr><th></th><th>seconds</th><th>smse</th></tr><tr><th>a</th><td>0.25</td><td>0.5</td></tr></table>"
    row = "<table><tr><th>seconds of work</th><td>0.25</td></tr><tr><th>smse</th><td>0.5</td></tr></table>"

    for html in (table, table.replace("seconds", "ms per iteration"), row):
        assert "0.25" not in masked_html(html)
        assert "<td>0.5</td>" in masked_html(html)
    assert masked("3 swaps in 0.37 s and 12 ms, 4 points") == "3 swaps in – s and – ms, 4 points"


def test_printed_lines_of_a_cell_are_kept_as_one_output() -> None:
    import nbformat

    lines = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in ("a\n", "b\n")]
    picture = nbformat.v4.new_output("display_data", {PICTURE: "<svg/>"})

    kept = joined([*lines, picture, lines[1]])

    assert [output.output_type for output in kept] == ["stream", "display_data", "stream"]
    assert kept[0].text == "a\nb\n"


def test_saved_notebooks_are_small() -> None:
    sizes = {path.stem: path.stat().st_size for path in NOTEBOOKS}
    assert max(sizes.values()) < 350_000
    assert sum(sizes.values()) < 1_500_000
