"""A hook of mkdocs: lines such as `<!-- settings: inducing -->` are replaced by what the code and other files say.

Only the standard library is imported here, so that the tests can check the pages without mkdocs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARKER = re.compile(r"^<!-- ([a-z]+)(?:: (.*?))? -->$", flags=re.M)
SAVED_RUN = """import sys, gpexplorer as gpx
run = gpx.Spec("cholqr", {"num_inducing": 10}, data="snelson-like", kernel="se").open()
run.finish(steps=60)
run.save_page(sys.argv[1], title="Ten inducing points look for their places")
"""
FIRST_SCREEN = """import sys
from gpexplorer.views.screens.lesson_page import lesson_spec
from gpexplorer.views.screens.lesson_page import save_lesson
run = lesson_spec(10).open()
run.finish()
save_lesson(run, sys.argv[1])
"""
SIDE_BY_SIDE = """import sys
from gpexplorer.views.screens.side_by_side_page import save_side_by_side
save_side_by_side(sys.argv[1])
"""
PLAYING = {
    "a-run.html": SAVED_RUN,
    "first-screen.html": FIRST_SCREEN,
    "side-by-side.html": SIDE_BY_SIDE,
}  # files that play -> the program that writes each
PAGES = {  # files at the top of the repository, and the page that shows each
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "extend.md",
    "NOTATION.md": "notation.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
}
REPORTS = {  # reports that stand beside the code that wrote them, and the page that shows each
    "benchmarks/arena/report.md": "arena.md",
    "benchmarks/trust/report.md": "trust.md",
    "papers/report.md": "reproduced.md",
}
GENERATED = {  # files that a page shows and that are not kept twice
    "explorer.png": "apps/explorer.png",
    "arena.svg": "benchmarks/arena/arena.svg",
    "cells.jsonl": "benchmarks/arena/cells.jsonl",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page before it becomes HTML."""
    return expanded(markdown)


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: files of other folders that pages show, and files that play, which are not kept."""
    from mkdocs.structure.files import File

    for name, program in PLAYING.items():
        files.append(File.generated(config, name, content=written_by(program)))
    for name, source in GENERATED.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def written_by(program: str) -> str:
    """The file that a program writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "written.html"
        done = subprocess.run(
            [sys.executable, "-c", program, str(file)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"A page of the documentation could not be written: {done.stderr.strip()}")
        return file.read_text("utf-8")


def expanded(markdown: str) -> str:
    """The text of a page with every marker replaced; ValueError for a marker that is not known."""

    def replacement(found: re.Match[str]) -> str:
        name, argument = found[1], found[2] or ""
        if name not in MARKERS:
            raise ValueError(f"The marker {found[0]!r} is not known: choose from {', '.join(MARKERS)}.")
        return MARKERS[name](argument)

    return MARKER.sub(replacement, markdown)


def include(argument: str) -> str:
    """A file of the repository without its title, or one section: "README.md, Start"."""
    name, _, heading = argument.partition(", ")
    text = (ROOT / name).read_text("utf-8")
    if not heading:
        return linked(text.partition("\n")[2])
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    if section is None:
        raise ValueError(f"{name} has no section {heading!r}; a page of docs/ includes it.")
    return linked(section[1])


def linked(text: str) -> str:
    """Links to files of the repository become links to pages; a link to a file without a page becomes its text."""

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], re.sub(r"^(\.\./)*(docs/)?", "", found[2]), found[3] or ""
        pages = PAGES | REPORTS
        if re.match(r"https?://", target) or target in GENERATED or (ROOT / "docs" / target).is_file():
            return f"[{words}]({pages.get(target, target)}{anchor})"
        return f"[{words}]({pages[target]}{anchor})" if target in pages else words

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)", link, text)


def trust(argument: str) -> str:
    """Some rows of a table of the report on trust: "kin40k; ridge, cholqr"."""
    name, _, methods = argument.partition("; ")
    text = (ROOT / "benchmarks" / "trust" / "report.md").read_text("utf-8")
    section = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    if section is None:
        raise ValueError(f"The report on trust has no section {name!r}.")
    rows = [line.strip("|").split("|") for line in section[1].splitlines() if line.startswith("|")]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:5]] for row in rows}
    missing = [method for method in methods.split(", ") if method not in cells]
    if missing:
        raise ValueError(f"The table {name!r} of the report on trust has no row {missing[0]!r}.")
    return table(("method", *cells["method"]), [(method, *cells[method]) for method in methods.split(", ")])


def settings(family: str) -> str:
    """For each method of a family: title, paper, and a table of all settings."""
    return "\n".join(one_method(method) for method in listing("methods") if method["family"] == family)


def methods(_: str) -> str:
    """Every method: key, title, family and paper."""
    page = {"cross_validation": "cross-validation"}
    rows = [
        (f"[`{m['key']}`]({page.get(m['family'], m['family'])}.md#{m['key']})", m["title"], m["family"], m["paper"])
        for m in listing("methods")
    ]
    return table(("key", "title", "family", "paper"), rows)


def others(family: str) -> str:
    """Rows for the methods of a family that the table above this line does not describe."""
    pages = "".join(page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
    described = set(re.findall(r"^\| `([a-z0-9-]+)` \|", pages, flags=re.M))
    methods = [method for method in listing("methods") if method["family"] == family]
    rows = [(f"`{m['key']}`", m["title"], "", "") for m in methods if m["key"] not in described]
    return "".join(table((), rows).splitlines(keepends=True)[2:]).rstrip("\n")


def memory(argument: str) -> str:
    """What each method holds at its defaults, by formula, for several numbers of rows: "100000, 1000000"."""
    sizes = [int(text) for text in argument.split(", ")]
    listed = {n: {entry["key"]: entry for entry in listing(f"costs --rows {n}")} for n in sizes}
    last = listed[sizes[-1]]
    rows = [
        (f"`{key}`", *(f"{listed[n][key]['memory'] / 1e9:.2g} GB" for n in sizes), entry["largest array"])
        for key, entry in last.items()
    ]
    return table(("method", *(f"n = {n:,}" for n in sizes), "largest array"), rows)


def one_method(method: dict[str, Any]) -> str:
    """The heading and the settings of one method."""
    rows = [
        (f"`{entry['name']}`", f"`{json.dumps(entry['default'])}`", entry["takes"], entry["meaning"])
        for entry in method["settings"]
    ]
    heading = f"### {method['title']}: `{method['key']}` {{ #{method['key']} }}"
    return f"{heading}\n\n{method['paper']}\n\n{table(('setting', 'default', 'takes', 'meaning'), rows)}"


def kernels(_: str) -> str:
    """Every kernel: key, title, what its inputs are, and its hyperparameters for two inputs."""
    rows = [
        (f"`{entry['key']}`", entry["title"], entry["inputs"], ", ".join(entry["hyperparameters"]))
        for entry in listing("kernels")
    ]
    return table(("key", "title", "inputs", "hyperparameters for two inputs"), rows)


def data(_: str) -> str:
    """Every data set: name, size, licence and notes."""
    rows = [
        (f"`{entry['name']}`", entry["n"], entry["d"], entry["source"], entry["licence"], entry["notes"])
        for entry in listing("data")
    ]
    return table(("name", "rows", "inputs", "source", "licence", "notes"), rows)


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A table of Markdown."""
    lines = [[cell_text(cell) for cell in row] for row in (head, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell_text(value: Any) -> str:
    """A value in one line, with the characters escaped that would end the cell or begin a tag."""
    text = " ".join(str("" if value is None else value).split()).replace("|", "\\|")
    return text if text.startswith("`") else re.sub(r"([<*_\[])", r"\\\1", text) if "](" not in text else text


@cache
def listing(name: str) -> list[dict[str, Any]]:
    """What `python -m gpexplorer NAME --json` prints; the name may have options."""
    command = [sys.executable, "-m", "gpexplorer", *name.split(), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    entries: list[dict[str, Any]] = json.loads(done.stdout)
    return entries


MARKERS: dict[str, Callable[[str], str]] = {
    "include": include,
    "trust": trust,
    "settings": settings,
    "memory": memory,
    "others": others,
    "methods": methods,
    "kernels": kernels,
    "data": data,
}
