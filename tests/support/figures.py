"""The figures of the house: how much code there is, in how many files and functions, and what has a single importer.

    python tests/support/figures.py                 a table of the targets, and one line per package
    python tests/support/figures.py --single        the files with one importer, with their lines of code
    python tests/support/figures.py --collect       also the seconds that pytest needs to collect all tests

Code means lines that are no docstring, no comment and not blank.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 320  # lines of code of a file
ALONE = 75  # a file with less code and one importer says why it is a file of its own
REASON = "apart because"  # the words of that sentence, in the docstring of the file
TARGETS = {"files": 400, "code": 34_500, "mean function": 9, "single importers": 70, "seconds to collect": 15}


class Module(NamedTuple):
    """One file of the package."""

    name: str
    path: Path
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # all of the tree, walked once: there are two million in the repository
    lines: set[int]  # numbers of the lines of code

    @property
    def code(self) -> int:
        """The number of lines of code."""
        return len(self.lines)


def docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    """The numbers of the lines that belong to docstrings of a module, its classes and its functions."""
    lines: set[int] = set()
    for node in nodes:
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(text: str, nodes: Iterable[ast.AST]) -> set[int]:
    """The numbers of the lines of code."""
    docs = docstring_lines(nodes)
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return {number for number, line in lines if line and not line.startswith("#") and number not in docs}


@cache
def modules(folder: str = "gpexplorer", root: Path = ROOT) -> dict[str, Module]:
    """Every file of a package, by the name under which it is imported."""
    result = {}
    gc.disable()  # there is no garbage here, and the search for it would take as long as all the rest
    for path in sorted((root / folder).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        nodes = tuple(ast.walk(tree))
        result[name] = Module(name, path, tree, nodes, code_lines(text, nodes))
    gc.enable()
    return result


def imported_modules(module: Module, known: dict[str, Module]) -> set[str]:
    """The modules among these that a module imports, at its top, inside functions and for types alike."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    imported = set[str]()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else str(node.module)
            names = {f"{base}.{alias.name}" for alias in node.names}
            imported |= {name if name in known else base for name in names}
    return (imported & set(known)) - {module.name}


def single_importers(known: dict[str, Module]) -> dict[str, str]:
    """The files that one other file imports, and which."""
    importers = defaultdict[str, set[str]](set)
    for module in known.values():
        for name in imported_modules(module, known):
            importers[name].add(module.name)
    files = [name for name, module in known.items() if not module.path.name.startswith("__")]
    return {name: next(iter(importers[name])) for name in files if len(importers[name]) == 1}


def without_reason(known: dict[str, Module]) -> list[str]:
    """The small files with one importer whose docstring does not say why they are apart."""
    small = [known[name] for name in single_importers(known) if known[name].code < ALONE]
    return [
        module.name
        for module in small
        if REASON not in " ".join((ast.get_docstring(module.tree) or "").lower().split())
    ]


def function_lengths(known: dict[str, Module]) -> list[int]:
    """The lines of code of every function and method, those of the functions inside it included."""
    lengths = []
    for module in known.values():
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append(len(module.lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1))))
    return lengths


def seconds_to_collect() -> float:
    """Seconds of a processor that pytest needs to find all tests."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    before = os.times()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--single", action="store_true", help="list the files with one importer")
    parser.add_argument("--collect", action="store_true", help="measure how long it takes to collect the tests")
    given = parser.parse_args()
    begin = time.monotonic()
    known = modules()
    single, lengths = single_importers(known), function_lengths(known)
    code = sum(module.code for module in known.values())
    figures = {
        "files": len(known),
        "code": code,
        "functions": len(lengths),
        "mean function": sum(lengths) / len(lengths),
        "code per file": code / len(known),
        "longest file": max(module.code for module in known.values()),
        "single importers": len(single),
        "of these small and without a reason": len(without_reason(known)),
    }
    if given.collect:
        figures["seconds to collect"] = seconds_to_collect()
    for name, value in figures.items():
        target = f"   target {TARGETS[name]:,}" if name in TARGETS else ""
        print(f"{name:38}{value:10,.1f}{target}" if isinstance(value, float) else f"{name:38}{value:8,}  {target}")
    rooms = Counter[str]()
    for module in known.values():
        rooms[module.name.split(".")[1] if module.name.count(".") else "top"] += module.code
    print("code of each package: " + ", ".join(f"{name} {rooms[name]:,}" for name in sorted(rooms)))
    if given.single:
        for name, importer in sorted(single.items()):
            print(f"{known[name].code:5}  {name}  <-  {importer}")
    print(f"({time.monotonic() - begin:.1f} s)")


if __name__ == "__main__":
    main()
