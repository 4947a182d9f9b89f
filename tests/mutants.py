"""Mutation tests: change one operator, sign or constant of a formula at a time, and see whether a test notices.

    python tests/mutants.py [part of a path ...]     or     make mutants ARGS="objectives methods/eigenfunctions"
    python tests/mutants.py linalg --sample 20       at most 20 mutants per file, drawn with a fixed seed
    python tests/mutants.py linalg --keep FILE       write each result to FILE, and do not run again what it holds

A part is how the path of a folder or a file of the package begins: `linalg`, `methods/inducing/swapping`, `objectives`.
Without one, every group of TESTS is run. A mutant is killed if a test fails, raises, or takes much longer than before.
Only those tests run that execute the changed line, the fastest first. The survivors are printed: a survivor is either a
line that no test checks, or a change that does not matter (a block size, a tolerance, a shortcut).

The tests are collected once. Each mutant is a forked process in which the changed function replaces the old one, so
that it costs little more than its tests. This file is not part of `make test`. It needs os.fork, so it does not run on
Windows.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import hashlib
import json
import os
import pickle
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = {  # a group of source files (a folder, or one file), and the tests that concern them
    "objectives.py": ["test_objectives.py"],
    "posteriors.py": [
        "test_objectives.py",
        "methods/inducing/test_subset_of_data.py",
        "methods/cross_validation/test_exact_posterior.py",
    ],
    "linalg": ["linalg"],
    "kernels": ["kernels"],
    "features": ["features", "methods/eigenfunctions", "methods/minibatches"],
    "methods/inducing": ["methods/inducing"],
    "methods/exact": ["methods/exact"],
    "methods/eigenfunctions": ["methods/eigenfunctions"],
    "methods/cross_validation": ["methods/cross_validation"],
    "methods/minibatches": ["methods/minibatches"],
}
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "and", ast.Or: "or",
}  # fmt: skip
SLOWER = 4.0  # a mutant whose tests take this many times as long as before, and 20 s, is killed


@dataclass(frozen=True)
class Mutant:
    """One change of a source file."""

    line: int
    change: str
    tree: ast.Module
    function: str  # the outermost function that holds the change: "Cholesky.solve"


def mutants(source: str) -> Iterator[Mutant]:
    """Yield the mutants of the functions in a source text; docstrings, annotations and error messages do not change."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    ignored = {id(node) for root in ignored_parts(tree) for node in ast.walk(root)}
    inside = {
        id(node): name
        for name, function in outer_functions(tree)
        for statement in function.body
        for node in ast.walk(statement)
    }
    for index, node in enumerate(nodes):
        if id(node) in ignored or id(node) not in inside or not (change := changed(node)):
            continue
        copied = copy.deepcopy(tree)
        apply(list(ast.walk(copied))[index])
        yield Mutant(node.lineno, change, ast.fix_missing_locations(copied), inside[id(node)])  # type: ignore[attr-defined]


def outer_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods that lie in no other function, with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from outer_functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from outer_functions(node, prefix)


def ignored_parts(tree: ast.Module) -> Iterator[ast.AST]:
    """Annotations, raised errors, text, and the sizes of blocks of rows, which change no result."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            yield node
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            yield node.returns
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "row_blocks":
            yield from node.args[1:]


def changed(node: ast.AST) -> str:
    """What is changed in one node, in words; empty if there is nothing to change."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OPERATORS:
        return f"{SYMBOLS[type(node.op)]} becomes {SYMBOLS[OPERATORS[type(node.op)]]}"  # type: ignore[index]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
        return f"{SYMBOLS[type(node.ops[0])]} becomes {SYMBOLS[OPERATORS[type(node.ops[0])]]}"  # type: ignore[index]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        return f"{'-' if isinstance(node.op, ast.USub) else 'not'} is left out"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return f"{node.value} becomes {other(node.value)}"
    return ""


def other(value: float) -> float:
    """Another constant of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else (2.0 * value or 1.0)


def apply(node: ast.AST) -> None:
    """Make the change of a node."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        node.op = OPERATORS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        node.ops[0] = OPERATORS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub):
            node.op = ast.UAdd()
        else:
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant):
        node.value = other(node.value)  # type: ignore[arg-type]


def put_in_place(path: Path, tree: ast.Module, qualified: str) -> None:
    """Give the changed code to every living function of this name, in this process."""
    new = next(
        code for code in codes(compile(tree, str(path), "exec", dont_inherit=True)) if code.co_qualname == qualified
    )
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and is_from(function.__code__, path, new):
            function.__code__ = new


def is_from(code: CodeType, path: Path, new: CodeType) -> bool:
    """Whether this code is the old version of the new one."""
    return (
        code.co_qualname == new.co_qualname
        and code.co_firstlineno == new.co_firstlineno
        and code.co_filename == str(path)
    )


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that lie in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@dataclass
class Lines:
    """Which tests execute which lines of the files, and the seconds each test takes."""

    files: frozenset[str]
    tests: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    seconds: list[float] = field(default_factory=list)

    def of(self, items: list[pytest.Item], failures: list[str]) -> tuple[dict[tuple[str, int], set[int]], list[float]]:
        """Run all tests once, with a trace of the lines they execute."""
        for number, item in enumerate(items):
            begin = time.perf_counter()
            sys.settrace(self.tracer(number))
            try:
                run_item(item, items, number)
            finally:
                sys.settrace(None)
            self.seconds.append(time.perf_counter() - begin)
            if failures:
                break
        return dict(self.tests), self.seconds

    def tracer(self, number: int) -> Any:
        """A trace function that notes the lines of the files for one test."""

        def lines(frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                self.tests[frame.f_code.co_filename, frame.f_lineno].add(number)
            return lines

        def calls(frame: FrameType, _: str, __: object) -> Any:
            return lines if frame.f_code.co_filename in self.files else None

        return calls


def run_item(item: pytest.Item, items: list[pytest.Item], number: int) -> None:
    """Run one test with its fixtures."""
    following = items[number + 1] if number + 1 < len(items) else None
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


@dataclass
class Laboratory:
    """A pytest plugin that runs the tests of a group once per mutant of its files, in forked processes."""

    sources: list[Path]
    sample: int
    kept: Path | None
    failures: list[str] = field(default_factory=list)
    killed: int = 0
    total: int = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note each failure."""
        if report.failed:
            self.failures.append(f"{report.nodeid}: {report.longreprtext[-2000:]}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests without any change, then with each mutant."""
        lines = Lines(frozenset(map(str, self.sources)))
        usual = in_fork(lambda: (lines.of(session.items, self.failures), self.failures), seconds=3600.0)
        if usual is None or usual[1]:
            self.say(f"The tests fail without any change: {usual[1][0] if usual else 'no answer in an hour'}")
            return True
        (executed, seconds), _ = usual
        self.say(f"{len(seconds)} tests take {sum(seconds):.0f} s with the trace of their lines")
        before = read_kept(self.kept)
        for path in self.sources:
            self.one_file(path, session.items, executed, seconds, before)
        return True

    def one_file(
        self,
        path: Path,
        items: list[pytest.Item],
        executed: dict[tuple[str, int], set[int]],
        seconds: list[float],
        before: dict[str, bool],
    ) -> None:
        """Run the mutants of one file and print its survivors."""
        source, name = path.read_text("utf-8"), path.relative_to(ROOT / "gpexplorer").as_posix()
        found = list(mutants(source))
        if self.sample and len(found) > self.sample:
            found = sorted(random.Random(0).sample(found, self.sample), key=lambda each: each.line)
        version, survivors = hashlib.sha256(source.encode()).hexdigest()[:12], []
        count: dict[str, int] = defaultdict(int)
        for mutant in found:
            key = f"{name} {version} {mutant.line} {mutant.change}"
            count[key] += 1  # two equal changes of one line are told apart by their order
            key = f"{key} {count[key]}"
            tests = sorted(executed.get((str(path), mutant.line), ()), key=seconds.__getitem__)
            if (dead := before.get(key)) is None:
                dead = bool(tests) and self.dies(path, mutant, items, tests, sum(seconds[each] for each in tests))
                write_kept(self.kept, key, dead)
            if not dead:
                survivors.append((mutant, len(tests)))
        self.killed, self.total = self.killed + len(found) - len(survivors), self.total + len(found)
        if found:
            self.say(f"{name}: {len(found) - len(survivors)} of {len(found)} killed")
        for mutant, runs in survivors:
            text = source.splitlines()[mutant.line - 1].strip()
            self.say(f"    line {mutant.line}, {mutant.change}, run by {runs} tests: {text}")

    @staticmethod
    def say(line: str) -> None:
        """Print a line at once."""
        print(line, file=sys.__stdout__, flush=True)

    def dies(self, path: Path, mutant: Mutant, items: list[pytest.Item], tests: list[int], usual: float) -> bool:
        """Whether one of these tests fails, or they take much longer than usual, with this mutant."""

        def passes() -> bool:
            put_in_place(path, mutant.tree, mutant.function)
            for position, number in enumerate(tests):
                following = items[tests[position + 1]] if position + 1 < len(tests) else None
                items[number].config.hook.pytest_runtest_protocol(item=items[number], nextitem=following)
                if self.failures:
                    return False
            return True

        return in_fork(passes, seconds=max(20.0, SLOWER * usual)) is not True


def in_fork(work: Any, seconds: float) -> Any:
    """The result of a function run in a forked process without output, or None if it dies or takes longer than this."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()  # apart from the terminal, which would stop a process that reads from it
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        try:
            with os.fdopen(send, "wb") as pipe:
                pipe.write(pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(send)
    with_alarm(child, seconds)
    with os.fdopen(receive, "rb") as pipe:
        answer = pipe.read()
    signal.alarm(0)
    os.waitpid(child, 0)
    return pickle.loads(answer) if answer else None


def with_alarm(child: int, seconds: float) -> None:
    """Kill a child and its processes after so many seconds."""

    def kill(*_: object) -> None:
        os.killpg(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.alarm(max(1, int(seconds)))


def read_kept(path: Path | None) -> dict[str, bool]:
    """The results of an earlier run, by mutant."""
    if path is None or not path.exists():
        return {}
    return {row["mutant"]: row["killed"] for row in map(json.loads, path.read_text("utf-8").splitlines())}


def write_kept(path: Path | None, mutant: str, killed: bool) -> None:
    """Append one result."""
    if path is not None:
        with path.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"mutant": mutant, "killed": killed}) + "\n")


def sources_of(group: str, parts: list[str]) -> list[Path]:
    """The files of a group whose paths begin with one of the parts, or all of them."""
    top = ROOT / "gpexplorer" / group
    files = [top] if top.suffix else sorted(path for path in top.rglob("*.py") if path.name != "__init__.py")
    names = {path: path.relative_to(ROOT / "gpexplorer").as_posix() for path in files}
    return [path for path in files if not parts or any(names[path].startswith(part) for part in parts)]


def run_group(group: str, arguments: argparse.Namespace) -> Laboratory | None:
    """Collect the tests of a group and run its mutants, in this process."""
    if not (sources := sources_of(group, arguments.parts)):
        return None
    os.chdir(ROOT)
    os.environ["PYTEST_XDIST_WORKER"] = "mutant"  # conftest.py then installs no import hook that checks shapes
    laboratory = Laboratory(sources, arguments.sample, arguments.keep)
    tests = [f"tests/{test}" for test in arguments.tests or TESTS[group]]
    pytest.main(["-qq", "-s", "-o", "timeout=0", "-p", "no:randomly", *tests], plugins=[laboratory])
    return laboratory


def main() -> int:
    """Run the mutants of the chosen files; 1 if fewer than 95 % of a group are killed."""
    parser = argparse.ArgumentParser(description="Change one operator, sign or constant at a time and run the tests.")
    parser.add_argument("parts", nargs="*", help="folders or files of the package; all groups if there is none")
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants per file")
    parser.add_argument("--keep", type=Path, help="a file of results; what it holds is not run again")
    parser.add_argument("--tests", nargs="*", help="other tests than those of the group, as paths under tests/")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep = arguments.keep.resolve()
    too_few = False
    for group in TESTS:
        if os.fork() == 0:  # a process of its own, which collects only this group's tests
            laboratory = run_group(group, arguments)
            if laboratory and laboratory.total:
                share = laboratory.killed / laboratory.total
                print(f"{group}: {laboratory.killed} of {laboratory.total} killed ({share:.1%})", flush=True)
                os._exit(int(share < 0.95))
            os._exit(int(laboratory is not None))
        too_few |= os.waitstatus_to_exitcode(os.wait()[1]) != 0
    return int(too_few)


if __name__ == "__main__":
    sys.exit(main())
