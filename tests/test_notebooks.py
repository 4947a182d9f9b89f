"""Every notebook runs from top to bottom, in a folder of its own, without a network."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest

from notebook_pictures import PICTURE, executed
from stand_in_files import FILES

pytestmark = pytest.mark.long
NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:zmq", "ignore:There is no current event loop:DeprecationWarning"
)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    if FILES.is_dir():
        monkeypatch.setenv("GPEXPLORER_DATA_DIR", str(FILES.resolve()))
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    book = executed(path, tmp_path)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]
    assert code[-1].outputs, "the last cell shows nothing"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_notebook_has_small_static_pictures_and_one_import_of_the_package(path: Path) -> None:
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    kinds = {kind for cell in code for out in cell.outputs for kind in out.get("data", {"text": ""})}

    assert kinds == {PICTURE}
    assert path.stat().st_size < 400_000
    assert "import gpexplorer as gpx" in code[0].source
    assert "holoviews" not in "".join(cell.source for cell in code)
