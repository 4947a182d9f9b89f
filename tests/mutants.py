"""Mutation tests: change one operator, sign or constant of a formula at a time, and see whether a test notices.

    python tests/mutants.py [part of a path ...]     or     make mutants ARGS="objectives methods/eigenfunctions"
    python tests/mutants.py linalg --sample 20       at most 20 mutants per file, the same ones in each run
    python tests/mutants.py runs --sentences         only the numbers of sentences, and what decides which is written
    python tests/mutants.py linalg --keep FILE       write each result to FILE, and do not run again what it holds
    python tests/mutants.py linalg --keep FILE --again          but run again what survived

A part is how the path of a folder or a file of the package begins: `linalg`, `methods/inducing/swapping`, `objectives`.
Without one, every group of TESTS is run. A mutant is killed if a test fails, raises, or takes much longer than before.
Only those tests run that reach the changed statement, the fastest first, and no more of them than take SECONDS. The
survivors are printed: a survivor is either a line that no test checks, or a change that does not matter (a block size,
a tolerance, a shortcut). Those of which tests/support/equivalent_mutants.py says that nothing can tell them from the
original are not run and not counted. The last lines have the share killed per group.

The tests are collected once, and run once with functions that note which of their statements are reached. Each mutant
is a forked process in which the changed function replaces the old one, and in which everything is imported, so that it
costs little more than its tests. This file is not part of `make test`. It needs os.fork, so it does not run on Windows.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import gc
import hashlib
import importlib
import json
import os
import pickle
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from equivalent_mutants import EQUIVALENT  # noqa: E402
from source_mutants import Mutant, mutants, outer_functions, owners, with_notes  # noqa: E402

# As tests of views are named
FAMILIES = ("chain", "cross_validation", "eigenfunction", "exact", "inducing", "minibatch", "neighbour")
NAMES = ("views", "scales_and_chance", "likelihood_surface", "prediction", "axis_labels")
PICTURES = [f"views/test_{name}.py" for name in NAMES]
DRAWING = (
    "axes_of_pictures", "live_figures", "current_document", "palette", "brushing", "run_rows", "static_pictures",
    "static_svg",
)  # fmt: skip
ALL_METHODS = ["methods/test_contract.py", "methods/test_outcome_sentences.py"]
TESTS = {  # a group of source files (a folder, or one file), and the tests that concern them
    "objectives.py": ["test_objectives.py", "methods/inducing/test_singular_points.py"],
    "posteriors": ["posteriors", "methods/inducing/test_subset_of_data.py", "methods/cross_validation"],
    "linalg": ["linalg"],
    "kernels": ["kernels"],
    "features": ["features", "methods/eigenfunctions", "methods/minibatches"],
    "methods/inducing": ["methods/inducing", *ALL_METHODS],
    "methods/exact": ["methods/exact", *ALL_METHODS],
    "methods/eigenfunctions": ["methods/eigenfunctions", *ALL_METHODS],
    "methods/cross_validation": ["methods/cross_validation", *ALL_METHODS],
    "methods/minibatches": ["methods/minibatches", *ALL_METHODS],
    "methods/neighbours": ["methods/neighbours", *ALL_METHODS],
    "methods/langevin.py": [
        f"methods/eigenfunctions/test_{name}.py" for name in ("langevin", "mcmc", "chain_diagnostics")
    ],
    "methods/chain_diagnostics.py": ["methods/eigenfunctions/test_chain_diagnostics.py"],
    "runs": ["runs"],
    "target_transforms.py": ["test_target_transforms.py", "posteriors/test_transformed.py"],
    "data/standardising.py": ["data/test_standardising.py"],
    "recommendation": ["recommendation"],
    "views/families": [
        *(f"views/test_{name}_views.py" for name in FAMILIES),
        "views/test_views_families.py",
        "views/test_molecule_landscape.py",
    ],
    "views/runs": [
        *PICTURES,
        *(f"views/test_{name}.py" for name in ("comparison_charts", "transformed_targets", "baseline_views")),
    ],
    "views/drawing": [*PICTURES, *(f"views/test_{name}.py" for name in DRAWING)],
    "views/screens": ["views/screens"],
    "views/saved_page": ["views/test_saved_page.py", "views/test_saved_page_parts.py"],
    "views/base.py": [*PICTURES, *(f"views/test_{name}.py" for name in ("axes_of_pictures", "broken_views"))],
    "views/picture.py": ["views/test_static_pictures.py", "views/test_pictures_of_studies.py"],
    "evidence_limits.py": ["test_evidence_limits.py", "methods/inducing/test_growth.py"],
}
SECONDS = 15.0  # of tests per mutant
SLOWER, PATIENCE = (
    6.0,
    60.0,
)  # a mutant whose tests take this many times as long as before, and so many seconds, is killed
NOTE = "__note_statement__"  # the name under which functions find what notes their statements

Place = tuple[str, int]  # a file and the first line of a statement


class Functions:
    """The living functions of some files, whose code is replaced."""

    def __init__(self, files: Iterable[Path]) -> None:
        names = frozenset(map(str, files))
        self._living: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        gc.unfreeze()  # tests/conftest.py freezes what was imported, and frozen objects are not listed
        for function in gc.get_objects():
            if type(function) is FunctionType and function.__code__.co_filename in names:
                self._living[self._key(function.__code__)].append(function)
        gc.freeze()

    @staticmethod
    def _key(code: CodeType) -> tuple[str, str, int]:
        return code.co_filename, code.co_qualname, code.co_firstlineno

    def replace(self, path: Path, tree: ast.Module, qualified: Collection[str]) -> None:
        """Give the code of a changed module to the living functions with these names, in this process."""
        replaced = set()
        for code in codes(compile(tree, str(path), "exec", dont_inherit=True)):
            for function in self._living.get(self._key(code), ()) if code.co_qualname in qualified else ():
                function.__code__ = code
                replaced.add(code.co_qualname)
        if replaced < set(qualified):
            raise LookupError(f"No living function has these names: {sorted(set(qualified) - replaced)}.")


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that lie in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@dataclass(eq=False)  # a plugin of pytest has to be hashable
class Statements:
    """Which tests reach which statements of the files, and the seconds each test takes."""

    tests: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    seconds: list[float] = field(default_factory=list)
    test: set[int] = field(default_factory=set)  # the one that runs
    module: set[int] = field(default_factory=set)  # all tests of its file
    in_shared_fixture: bool = False  # which serves all tests of a module

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Note that a fixture of more than one test is being made."""
        before, self.in_shared_fixture = self.in_shared_fixture, fixturedef.scope != "function"
        try:
            return (yield)
        finally:
            self.in_shared_fixture = before

    def note(self, path: str, line: int) -> None:
        """Note that the test that runs, or all tests of its module, reach a statement."""
        self.tests[path, line] |= self.module if self.in_shared_fixture else self.test

    def of(self, items: list[pytest.Item], failures: list[str]) -> tuple[dict[Place, set[int]], list[float], list[str]]:
        """Run all tests once; what they reach, the seconds of each, and the names of the modules they imported."""
        setattr(builtins, NOTE, self.note)
        for number, item in enumerate(items):
            self.test, self.module = {number}, {k for k, other in enumerate(items) if other.path == item.path}
            begin = time.perf_counter()
            run_item(items[number : number + 2])
            self.seconds.append(time.perf_counter() - begin)
            if failures:
                break
        return dict(self.tests), self.seconds, list(sys.modules)


def run_item(items: list[pytest.Item]) -> None:
    """Run the first of two tests with its fixtures; those that the second needs as well are kept."""
    items[0].config.hook.pytest_runtest_protocol(item=items[0], nextitem=items[1] if len(items) > 1 else None)


@dataclass(eq=False)  # a plugin of pytest has to be hashable
class Laboratory:
    """A pytest plugin that runs the tests of a group once per mutant of its files, in forked processes."""

    sources: list[Path]
    sample: int
    kept: Path | None
    sentences: bool = False
    again: bool = False  # whether survivors of an earlier run are run again
    failures: list[str] = field(default_factory=list)
    killed: int = 0
    total: int = 0
    equivalent: int = 0
    late: int = 0  # killed by the time that they took, or by a crash of the process
    items: list[pytest.Item] = field(default_factory=list)
    reached: dict[Place, set[int]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    functions: Functions = field(init=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note each failure."""
        if report.failed:
            self.failures.append(f"{report.nodeid}: {report.longreprtext[-2000:]}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests without any change, then with each mutant."""
        for path in self.sources:
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        self.functions = Functions(self.sources)
        usual = in_fork(lambda: (self.measured(session), self.failures), seconds=3600.0)
        if usual is None or usual[1]:
            self.say(f"The tests fail without any change: {usual[1][0] if usual else 'no answer in an hour'}")
            return True
        self.items, (self.reached, self.seconds, imported) = session.items, usual[0]
        self.say(f"{len(self.seconds)} tests take {sum(self.seconds):.0f} s")
        for name in imported:  # by one test or another, and else again for each mutant
            with suppress(Exception):
                importlib.import_module(name)
        before = read_kept(self.kept)
        for path in self.sources:
            self.one_file(path, before)
        return True

    def measured(self, session: pytest.Session) -> tuple[dict[Place, set[int]], list[float], list[str]]:
        """Run all tests in this process, with functions that note their statements."""
        statements = Statements()
        session.config.pluginmanager.register(statements)
        for path in self.sources:
            tree = ast.parse(path.read_text("utf-8"))
            names = [name for name, _ in outer_functions(tree)]
            self.functions.replace(path, with_notes(tree, NOTE, str(path)), names)
        return statements.of(session.items, self.failures)

    def one_file(self, path: Path, before: dict[str, bool]) -> None:
        """Run the mutants of one file and print its survivors."""
        source, name = path.read_text("utf-8"), path.relative_to(ROOT / "gpexplorer").as_posix()
        found = numbered(mutants(source, self.sentences))
        known = EQUIVALENT.get(name, {})
        self.equivalent += sum((mutant.text, mutant.change) in known for mutant in found.values())
        found = {key: mutant for key, mutant in found.items() if (mutant.text, mutant.change) not in known}
        self.control(path, list(found.values()))
        if self.sample:  # those that stay the same while other lines of the file change
            found = {key: found[key] for key in sorted(found, key=digest)[: self.sample]}
        survivors, late = [], self.late
        for key, mutant in sorted(found.items(), key=lambda each: each[1].line):
            tests, kept = self.tests_of(path, mutant), f"{name} {digest(source)} {key}"
            dead = before.get(kept)
            if dead is None or (self.again and not dead):
                dead = bool(tests) and self.dies(path, mutant, tests)
                write_kept(self.kept, kept, dead)
            if not dead:
                survivors.append((mutant, len(tests)))
        self.killed, self.total = self.killed + len(found) - len(survivors), self.total + len(found)
        if found:
            by_time = f", {self.late - late} of them by the time they took" if self.late > late else ""
            self.say(f"{name}: {len(found) - len(survivors)} of {len(found)} killed{by_time}")
        for mutant, runs in survivors:
            self.say(f"    line {mutant.line}, {mutant.change}, run by {runs} tests: {mutant.text}")

    def control(self, path: Path, found: list[Mutant]) -> None:
        """Check that a function replaced by itself passes its tests: else every mutant would seem to be killed."""
        for mutant in found:
            if tests := self.tests_of(path, mutant)[:3]:
                unchanged = Mutant(mutant.source, mutant.line, "", mutant.function)
                if self.dies(path, unchanged, tests):
                    raise RuntimeError(f"{mutant.function} of {path} fails its tests when it is replaced by itself.")
                return

    def tests_of(self, path: Path, mutant: Mutant) -> list[int]:
        """The tests that reach the statement of a mutant, the fastest first, as many as take SECONDS, at least one."""
        statement = owners(mutant.source)[mutant.line]
        tests = sorted(self.reached.get((str(path), statement), ()), key=self.seconds.__getitem__)
        ends = accumulate(self.seconds[each] for each in tests)
        return tests[: max(1, sum(end <= SECONDS for end in ends))]

    @staticmethod
    def say(line: str) -> None:
        """Print a line at once."""
        print(line, file=sys.__stdout__, flush=True)

    def dies(self, path: Path, mutant: Mutant, tests: list[int]) -> bool:
        """Whether one of these tests fails, or they take much longer than usual, with this mutant."""

        def passes() -> bool | str:
            try:
                self.functions.replace(path, mutant.tree(), [mutant.function])
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            for position, number in enumerate(tests):
                run_item([self.items[number], *(self.items[each] for each in tests[position + 1 : position + 2])])
                if self.failures:
                    return False
            return True

        answer = in_fork(passes, seconds=max(PATIENCE, SLOWER * sum(self.seconds[each] for each in tests)))
        self.late += answer is None
        if isinstance(answer, str):
            raise RuntimeError(f"{mutant.function} of {path} could not be replaced. {answer}")
        return answer is not True


def numbered(found: Iterable[Mutant]) -> dict[str, Mutant]:
    """The mutants by their function, line and change, which do not change when lines are added above them."""
    result: dict[str, Mutant] = {}
    count: dict[str, int] = defaultdict(int)
    for mutant in found:
        key = f"{mutant.function}: {mutant.text}: {mutant.change}"
        count[key] += 1  # two equal changes of one line are told apart by their order
        result[f"{key} {count[key]}"] = mutant
    return result


def digest(text: str) -> str:
    """A short digest, in the order of which mutants are drawn: the same ones in each run."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def in_fork(work: Any, seconds: float = 0.0) -> Any:
    """The result of a function run in a forked process, or None if it dies.

    With a number of seconds it runs without output, and is killed when it takes longer.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        if seconds:
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
    if seconds:
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


def run_group(group: str, arguments: argparse.Namespace) -> tuple[int, int, int]:
    """Collect the tests of a group and run its mutants: those killed, those tried, and those that are equivalent."""
    sources = sources_of(group, arguments.parts)
    os.chdir(ROOT)
    os.environ["PYTEST_XDIST_WORKER"] = "mutant"  # conftest.py then installs no import hook that checks shapes
    laboratory = Laboratory(sources, arguments.sample, arguments.keep, arguments.sentences, arguments.again)
    tests = [f"tests/{test}" for test in arguments.tests or TESTS[group]]
    pytest.main(["-qq", "-s", "-o", "timeout=0", "-p", "no:randomly", "-m", "not ui", *tests], plugins=[laboratory])
    return laboratory.killed, laboratory.total, laboratory.equivalent


def main() -> int:
    """Run the mutants of the chosen files; 1 if fewer than 95 % of a group are killed."""
    parser = argparse.ArgumentParser(description="Change one operator, sign or constant at a time and run the tests.")
    parser.add_argument("parts", nargs="*", help="folders or files of the package; all groups if there is none")
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants per file")
    parser.add_argument("--sentences", action="store_true", help="only the numbers of sentences and what chooses one")
    parser.add_argument("--again", action="store_true", help="run again what survived in the file of --keep")
    parser.add_argument("--keep", type=Path, help="a file of results; what it holds is not run again")
    parser.add_argument("--tests", nargs="*", help="other tests than those of the group, as paths under tests/")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep = arguments.keep.resolve()
    unknown = [part for part in arguments.parts if not any(sources_of(group, [part]) for group in TESTS)]
    if unknown:
        parser.error(f"no file of these groups begins with {', '.join(unknown)}: {', '.join(TESTS)}")
    chosen = [group for group in TESTS if sources_of(group, arguments.parts)]
    counts = {group: in_fork(lambda group=group: run_group(group, arguments)) or (0, 0, 0) for group in chosen}
    for group, (killed, total, equivalent) in counts.items():
        apart = f", {equivalent} equivalent ones apart" if equivalent else ""
        print(f"{group}: {killed} of {total} killed ({killed / max(total, 1):.1%}){apart}")
    return int(any(killed < 0.95 * max(total, 1) for killed, total, _ in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
