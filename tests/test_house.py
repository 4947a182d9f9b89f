"""Rules of the repository that a program can check: imports, folders, names, docstrings, public names and the wheel."""

from __future__ import annotations

import ast
import logging.config
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from importlinter.cli import lint_imports
from packaging.requirements import Requirement
from typer.main import get_command

import figures
import gpexplorer as gpx
from gpexplorer.__main__ import app
from gpexplorer.errors import SettingError
from gpexplorer.methods.base import Method, registry

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = sorted(path for part in ("gpexplorer", "benchmarks", "papers") for path in ROOT.glob(f"{part}/**/*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PLAYER = "gpexplorer/views/saved_page/page_player.js"
WITHOUT_REASON = 0  # files that do not say yet why they are apart; this number only falls
DRAWING = {"bokeh", "holoviews", "panel", "panel_material_ui", "matplotlib"}


@pytest.fixture(autouse=True, scope="module")
def _trees_are_freed() -> Iterator[None]:
    """Two million nodes, which every later search for garbage in this process would walk through."""
    yield
    figures.modules.cache_clear()


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_imports_strictly_lower_floors(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        logging.config, "dictConfig", lambda config: None
    )  # it would switch off the loggers of all tests

    status = lint_imports(config_filename="pyproject.toml", no_cache=True)

    assert status == 0, capsys.readouterr().out


def test_no_module_imports_itself_by_way_of_another():
    package = figures.modules("gpexplorer")
    graph = {name: figures.imported_modules(module, package) for name, module in package.items()}

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"an import circle: {' -> '.join(circle.args[1])}")


def test_a_folder_holds_at_most_16_modules():
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in PROGRAM if path.name != "__init__.py")

    assert {folder: count for folder, count in counts.items() if count > 16} == {}


def test_files_and_functions_are_small_and_named_for_what_they_hold():
    everything = [
        figures.modules(folder).values() for folder in ("gpexplorer", "benchmarks", "papers", "apps", "tests")
    ]
    modules = [module for folder in everything for module in folder]
    functions = {
        f"{module.path.name}: {node.name}": (node.end_lineno or 0) - node.lineno + 1 - documentation(node)
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert len(modules) > 700
    too_long = {module.path.name: module.code for module in modules if module.code > figures.LONGEST}
    assert too_long == {}
    assert {name: length for name, length in functions.items() if length > 60} == {}
    assert not {module.path.stem for module in modules} & {"utils", "util", "misc", "helpers", "core", "common"}


def documentation(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of lines of a function's docstring."""
    text = ast.get_docstring(node, clean=False)
    return 0 if text is None else text.count("\n") + 1


def test_a_small_file_with_one_importer_says_why_it_is_apart():
    assert len(figures.without_reason(figures.modules("gpexplorer"))) <= WITHOUT_REASON


PARALLEL = {"base", "settings", "state", "loop", "costs", "posteriors", "learning"}  # same role in parallel packages


def test_two_modules_share_a_name_only_where_they_play_the_same_part():
    homes: dict[str, list[str]] = {}
    for path in ROOT.glob("gpexplorer/**/*.py"):
        homes.setdefault(path.stem, []).append(str(path.parent.relative_to(ROOT)))
    allowed = PARALLEL | {"__init__", "__main__"}

    assert {name: folders for name, folders in homes.items() if len(folders) > 1 and name not in allowed} == {}


def definitions() -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Every function and class of the package, with where it stands."""
    for module in figures.modules("gpexplorer").values():
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield f"{module.path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def test_sentences_write_numbers_of_rows_and_steps_with_thousands():
    counted = re.compile(r" (new |test |training )?(rows|steps|runs|points|draws)\b")
    words = {"sizes", "of", "step", "number_of_points(choice.grid.axes)"}  # words already, a name, a notebook
    bare = [
        f"{module.path.name}: {ast.unparse(value.value)}"
        for module in figures.modules("gpexplorer").values()
        if module.path.name != "candidates.py"  # whose names are lists with commas
        for text in module.nodes
        if isinstance(text, ast.JoinedStr)
        for value, after in pairwise(text.values)
        if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant) and counted.match(after.value)
        if value.format_spec is None and ast.unparse(value.value) not in words and ".join" not in ast.unparse(value)
    ]
    assert not bare


def test_public_docstrings_have_at_least_three_words():
    texts = {place: ast.get_docstring(node) for place, node in definitions() if not node.name.startswith("_")}

    assert len(texts) > 1000
    assert {place: text for place, text in texts.items() if text and len(text.split()) < 3} == {}


def test_a_method_is_never_passed_as_any():
    untyped = [
        place
        for place, node in definitions()
        if isinstance(node, ast.FunctionDef)
        for argument in node.args.args
        if argument.arg == "method" and argument.annotation and ast.unparse(argument.annotation) == "Any"
    ]

    assert untyped == []


def test_importing_the_package_draws_nothing_and_computes_nothing():
    loaded = set(fresh("import sys, gpexplorer\nprint(*{name.partition('.')[0] for name in sys.modules})").split())

    assert not loaded & {*DRAWING, "torch", "pandas", "scipy"}


def test_the_shelf_below_the_views_imports_no_drawing_library():
    shelf = ["data", "kernels", "methods", "load", "Method", "Spec", "Run", "Store", "Estimator"]
    begin = "\n".join(["import sys, gpexplorer as gpx", *(f"gpx.{name}" for name in shelf)])

    loaded = set(fresh(f"{begin}\nprint(*{{name.partition('.')[0] for name in sys.modules}})").split())

    assert {"torch", "pandas", "sklearn"} <= loaded
    assert not loaded & DRAWING


def test_the_shelf_holds_what_it_names():
    assert [name for name in gpx.__all__ if not hasattr(gpx, name)] == []
    assert set(dir(gpx)) >= {"Spec", "Run", "Estimator", "Explorer", "data", "kernels", "methods"}
    with pytest.raises(AttributeError, match=r"gpexplorer has no 'Spce'; it has .*Spec"):
        gpx.Spce  # noqa: B018


@pytest.fixture
def scratch_registry() -> Iterator[None]:
    """Methods registered by a test leave with it."""
    before = dict(registry)
    yield
    registry.clear()
    registry.update(before)


@pytest.mark.usefixtures("scratch_registry")
def test_two_methods_cannot_share_a_key():
    before = dict(registry)

    with pytest.raises(TypeError, match="method key 'cholqr' is taken by CholQR"):
        type("Impostor", (Method,), {"key": "cholqr"})

    assert registry == before


def test_an_unknown_method_is_answered_with_the_known_ones():
    with pytest.raises(SettingError, match=r"'cholrq' is not known.*cholqr"):
        gpx.methods["cholrq"]


def test_the_readme_names_commands_that_the_makefile_has():
    readme, makefile = (ROOT / "README.md").read_text("utf-8"), (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.M))

    named = set(re.findall(r"\bmake ([a-z]+)\b", readme))

    assert {"app", "test"} <= named <= targets


def test_the_readme_names_subcommands_that_exist():
    readme = (ROOT / "README.md").read_text("utf-8")

    named = set(re.findall(r"^python -m gpexplorer ([a-z]+)", readme, flags=re.M))

    assert {"run", "data", "methods", "serve"} <= named <= set(get_command(app).commands)


def test_every_pinned_version_is_inside_its_range_and_installed():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    needs = [Requirement(text) for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"])]

    for need in needs:
        assert need.specifier.contains(pinned[need.name.lower()]), need
        assert version(need.name).split("+")[0] == pinned[need.name.lower()], need


def tried_alone(wheel: Path, folder: Path) -> str:
    """What the command line of a wheel prints outside the checkout, after it has loaded every public name."""
    zipfile.ZipFile(wheel).extractall(folder)
    code = """
import sys
sys.modules.update(benchmarks=None, papers=None)  # importing them is an error
sys.path = [sys.argv[1], *(path for path in sys.path if path not in ("", sys.argv[2]))]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
import gpexplorer
assert gpexplorer.__file__.startswith(sys.argv[1]), gpexplorer.__file__
for name in gpexplorer.__all__:
    getattr(gpexplorer, name)
from gpexplorer.__main__ import main
main(["--version"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code, str(folder), str(ROOT)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_carries_the_cards_and_the_types(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    environment = {**os.environ, "GPEXPLORER_REPOSITORY": "https://example.org/we/gpexplorer"}
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, env=environment)

    [wheel] = tmp_path.glob("*.whl")
    files = set(zipfile.ZipFile(wheel).namelist())
    described = zipfile.ZipFile(wheel).read(next(name for name in files if name.endswith("METADATA"))).decode()
    assert "Project-URL: Source, https://example.org/we/gpexplorer\n" in described
    assert f"](https://example.org/we/gpexplorer/raw/v{gpx.__version__}/apps/explorer.gif)" in described
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", described) == []

    assert wheel.name.startswith(f"gpexplorer-{gpx.__version__}-py3-none-any")
    pictures = "gpexplorer/ui/screens/card_pictures.json"
    story = "gpexplorer/ui/stories/swaps.yaml"
    assert {"gpexplorer/py.typed", "gpexplorer/data/cards/kin40k.yaml", story, pictures, PLAYER} <= files
    assert not {name for name in files if not name.startswith("gpexplorer")}
    assert tried_alone(wheel, tmp_path / "alone") == f"gpexplorer {gpx.__version__}\n"


def test_citation_names_this_version_and_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    titles = {re.sub(r"\W+", "", entry["title"]).lower().replace("^", "") for entry in citation["references"]}
    readme = re.sub(r"\W+", "", (ROOT / "README.md").read_text("utf-8").replace("²", "2")).lower()
    assert citation["version"] == gpx.__version__
    assert len(titles) == 5
    assert all(title in readme for title in titles)


def blocks(document: str, language: str = "python") -> list[str]:
    """The fenced code blocks of a document at the root."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text("utf-8"), flags=re.M | re.S)


def test_the_readme_example_runs_and_learns(capsys: pytest.CaptureFixture[str]):
    example, with_a_file = blocks("README.md")
    assert "recommend" in compile(with_a_file, "README.md", "exec").co_names
    names: dict[str, Any] = {}

    exec(compile(example, "README.md", "exec"), names)

    assert names["run"].scores()["smse"] < 0.3
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    assert "smse" in capsys.readouterr().out
