"""`make quick`: lint of the changed files, and the tests that they touch, in less than a minute.

Changed are the files that differ from the last commit shared with main, committed or not. Their tests are, in this
order: changed tests; tests named for a changed file; tests that import it; the contract of the methods whose code uses
it; and the folder that mirrors its folder. After SECONDS no further test begins, and the last line says how many were
left; `make test` runs them all. LATE seconds later what still goes on is ended: a long test, and mypy where it has no
cache yet, which it builds up from call to call.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from figures import Module, imported_modules, modules

ROOT = Path(__file__).resolve().parents[2]
SECONDS, LATE = 50.0, 5.0  # from the start of the command, and after that
CONTRACT = "tests/methods/test_contract.py"
PROGRAM = ("gpexplorer", "benchmarks", "papers")
OF_OTHER_FILES = {  # tests of files that are no modules, by how their names begin
    "docs/": ["tests/test_docs.py", "tests/docs"],
    "README.md": ["tests/test_docs.py", "tests/test_house.py"],
    "CONTRIBUTING.md": ["tests/test_recipes.py", "tests/test_docs.py"],
    "pyproject.toml": ["tests/test_house.py", "tests/test_dependencies.py"],
    "notebooks/": ["tests/test_notebooks.py"],
    "gpexplorer/data/cards/": ["tests/data/test_sets.py"],
}


def lines(*command: str) -> list[str]:
    """What a git command prints."""
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()


def changed_files() -> list[str]:
    """Files that differ from the last commit shared with main, and files that git does not know yet."""
    [base] = lines("merge-base", "HEAD", "main") or lines("merge-base", "HEAD", "origin/main") or ["HEAD"]
    names = {*lines("diff", "--name-only", base), *lines("ls-files", "--others", "--exclude-standard")}
    return sorted(name for name in names if (ROOT / name).exists())


def module_name(file: str) -> str:
    """The name under which a file is imported."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def users(changed: set[str], package: dict[str, Module]) -> set[str]:
    """The modules of methods that changed, or that use a changed module of methods, also by way of others."""
    of_methods = {name: module for name, module in package.items() if name.startswith("gpexplorer.methods")}
    found = changed & {*of_methods}
    imports = {name: imported_modules(module, package) for name, module in of_methods.items()}
    while more := {name for name, imported in imports.items() if name not in found and imported & found}:
        found |= more
    return found


def tests_of(files: Iterable[str]) -> list[str]:
    """The test files that these changed files touch, the closest first."""
    all_tests = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/**/test_*.py"))]
    usual = [test for test in all_tests if "/in_browser/" not in test]
    texts = {test: (ROOT / test).read_text("utf-8") for test in usual}
    own, named, importing, folders, others = [], [], [], [], []
    for file in files:
        own += [file] if file in all_tests else []
        others += [test for begin, tests in OF_OTHER_FILES.items() if file.startswith(begin) for test in tests]
        if file.startswith("tests/support/"):
            importing += [test for test in usual if f"from {Path(file).stem} import" in texts[test]]
        if not file.startswith(PROGRAM) or not file.endswith(".py"):
            continue
        name, stem = module_name(file), Path(file).stem
        named += [test for test in usual if Path(test).stem in (f"test_{stem}", f"test_{Path(file).parent.name}")]
        importing += [test for test in usual if f"{name} import" in texts[test] or f"import {name}" in texts[test]]
        folder = Path("tests", *Path(file).parent.parts[0 if not file.startswith("gpexplorer") else 1 :])
        while not (ROOT / folder).is_dir():
            folder = folder.parent
        if folder != Path("tests"):
            folders += [test for test in usual if Path(test).parent == folder]
    contract = [CONTRACT] if any(file.startswith("gpexplorer/methods/") for file in files) else []
    return [test for test in dict.fromkeys([*own, *named, *others, *importing, *contract, *folders])]


class Chosen:
    """A plugin: keeps the contract of the methods that a change concerns, and stops after some seconds."""

    def __init__(self, changed: set[str], order: list[str], end: float) -> None:
        self.changed, self.end = changed, end
        self.place = {str(ROOT / test): place for place, test in enumerate(order)}
        self.left, self.stopped = 0, False
        self.session: pytest.Session | None = None

    def interrupt(self) -> None:
        """End the test that goes on."""
        self.stopped = True
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # which ends a sleep or a wait as well

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep what is concerned, the closest first."""
        from gpexplorer.methods.base import registry

        modules_of_methods = users(self.changed, modules("gpexplorer"))
        keys = {key for key, method in registry.items() if method.__module__ in modules_of_methods}
        out = [item for item in items if item.path == ROOT / CONTRACT and self.method(item) not in keys]
        config.hook.pytest_deselected(items=out)
        items[:] = sorted(set(items) - set(out), key=lambda item: (self.place.get(str(item.path), 0), item.nodeid))

    @staticmethod
    def method(item: pytest.Item) -> object:
        """The key of the method that a test of the contract is about."""
        return getattr(item, "callspec", None) and item.callspec.params.get("method")  # type: ignore[attr-defined]

    def pytest_runtest_logfinish(self) -> None:
        """Count a test, and let no further one begin after the end."""
        self.left -= 1
        if time.monotonic() > self.end and self.left > 0 and self.session is not None:
            self.stopped = True
            self.session.shouldstop = "the time was over"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the session, which a full list of tests belongs to."""
        self.session, self.left = session, len(session.items)
        self.timer = threading.Timer(self.end + LATE - time.monotonic(), self.interrupt)
        self.timer.start()

    def pytest_sessionfinish(self) -> None:
        """No test goes on any more."""
        if self.session is not None:
            self.timer.cancel()


def main() -> int:
    """Lint beside the tests; the exit status of the first that fails."""
    begin = time.monotonic()
    files = changed_files()
    python = [file for file in files if file.endswith(".py")]
    typed = [file for file in python if file.startswith((*PROGRAM, "apps"))]
    commands = [["ruff", "check", *python], ["ruff", "format", "--check", *python]] if python else []
    commands += [["mypy", *typed]] if typed else []
    print(f"{len(files)} changed files, {len(python)} of Python", flush=True)
    linters = [
        subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for command in commands
    ]
    tests = tests_of(files)
    status = 0
    if tests:
        plugin = Chosen({module_name(file) for file in python}, tests, begin + SECONDS)
        status = int(pytest.main(["-q", "-x", "--no-header", *(str(ROOT / test) for test in tests)], plugins=[plugin]))
        if plugin.stopped and status == pytest.ExitCode.INTERRUPTED:
            status = 0
            print(f"{plugin.left} tests were left when the time was over; make test runs them all")
    for command, linter in zip(commands, linters, strict=True):
        name = " ".join(command[:2])
        try:
            printed, _ = linter.communicate(timeout=max(1.0, begin + SECONDS + LATE - time.monotonic()))
        except subprocess.TimeoutExpired:
            linter.kill()
            print(f"{name} was not done when the time was over; make lint runs it to the end")
            continue
        if linter.returncode:
            print(f"{name}:\n{printed}")
        status = status or linter.returncode
    print(f"{time.monotonic() - begin:.0f} s")
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status


if __name__ == "__main__":
    sys.exit(main())
