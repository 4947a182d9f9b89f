"""Mutation tests: change one operator, sign or constant of a formula at a time, and see whether a test notices.

    python tests/mutants.py [part of a path ...]     or     make mutants ARGS="objectives posteriors"

A mutant is killed if a test of its file fails, raises, or takes much longer than before. The survivors are printed: a
survivor is either a line that no test checks, or a change that does not matter (a block size, a tolerance, a shortcut).

Each mutant runs in a forked process that has the libraries loaded already, so that it costs little more than its tests.
This file is not part of `make test`. It needs os.fork, so it does not run on Windows.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = {  # source files, and the tests that concern them
    "objectives.py": ["test_objectives.py"],
    "posteriors.py": ["test_objectives.py"],
    "linalg/blocks.py": ["linalg/test_reduction.py"],
    "linalg/cholesky.py": ["linalg/test_cholesky.py"],
    "linalg/conjugate_gradients.py": ["linalg/test_conjugate_gradients.py"],
    "linalg/deferred_updates.py": ["linalg/test_deferred_updates.py"],
    "linalg/kernel_columns.py": ["linalg/test_kernel_columns.py"],
    "linalg/positive_definite.py": ["linalg/test_positive_definite.py"],
    "linalg/preconditioners.py": ["linalg/test_preconditioners.py"],
    "linalg/randomness.py": ["linalg/test_reduction.py"],
    "linalg/ranks.py": ["linalg/test_ranks.py"],
    "linalg/reduction.py": ["linalg/test_reduction.py"],
    "linalg/scipy_descent.py": ["linalg/test_scipy_descent.py"],
    "linalg/tall_products.py": ["linalg/test_tall_products.py"],
    "linalg/workspace.py": ["linalg/test_workspace.py"],
    "kernels/composites.py": ["kernels"],
    "kernels/discrete.py": ["kernels"],
    "kernels/distances.py": ["kernels"],
    "kernels/exponential.py": ["kernels"],
    "kernels/linear.py": ["kernels"],
    "kernels/periodic.py": ["kernels"],
    "kernels/stationary.py": ["kernels"],
    "kernels/strings.py": ["kernels"],
    "kernels/weighted.py": ["kernels"],
    "methods/inducing/moving/sparse_objectives.py": ["methods/inducing/test_moving_points.py", "kernels"],
    "methods/inducing/swapping/factor.py": ["methods/inducing/test_cholqr.py"],
    "methods/inducing/swapping/swap.py": ["methods/inducing/test_cholqr.py", "methods/inducing/test_hard_scales.py"],
    "methods/inducing/swapping/swap_effects.py": ["methods/inducing/test_cholqr.py"],
    "methods/exact/block.py": ["methods/exact/test_gbcd.py"],
    "methods/exact/posteriors.py": ["methods/exact/test_gbcd.py", "methods/exact/test_solver_options.py"],
    "methods/exact/system.py": ["methods/exact/test_gbcd.py"],
    "methods/eigenfunctions/evidence.py": ["methods/eigenfunctions/test_grief.py"],
    "methods/eigenfunctions/orthogonal_basis.py": ["methods/eigenfunctions/test_orthogonal_basis.py"],
    "methods/eigenfunctions/posteriors.py": ["methods/eigenfunctions"],
    "methods/cross_validation/lagrangian.py": ["methods/cross_validation/test_admm.py"],
    "methods/cross_validation/theta_step.py": ["methods/cross_validation/test_theta_step.py"],
    "methods/minibatches/exact_likelihood.py": ["methods/minibatches/test_exact_likelihood.py"],
    "methods/minibatches/gradients.py": ["methods/minibatches/test_minibatches.py"],
    "methods/minibatches/minimax.py": ["methods/minibatches/test_minimax.py"],
    "methods/minibatches/scgd.py": ["methods/minibatches/test_minibatches.py"],
}
OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.Lt: (ast.GtE,),
    ast.LtE: (ast.Gt,),
    ast.Gt: (ast.LtE,),
    ast.GtE: (ast.Lt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "and", ast.Or: "or",
}  # fmt: skip
SLOWER = 4.0  # a mutant that takes this many times as long as the tests, and 20 s, is killed


@dataclass(frozen=True)
class Mutant:
    """One change of a source file."""

    line: int
    change: str
    tree: ast.Module


def mutants(source: str) -> Iterator[Mutant]:
    """Yield the mutants of the functions in a source text; docstrings, annotations and error messages do not change."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    ignored = {id(node) for root in ignored_parts(tree) for node in ast.walk(root)}
    inside = {
        id(node)
        for function in nodes
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
    }
    for index, node in enumerate(nodes):
        if id(node) in ignored or id(node) not in inside:
            continue
        for choice, change in enumerate(changes(node)):
            copied = copy.deepcopy(tree)
            apply(list(ast.walk(copied))[index], choice)
            yield Mutant(node.lineno, change, ast.fix_missing_locations(copied))  # type: ignore[attr-defined]


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


def changes(node: ast.AST) -> list[str]:
    """What can be changed in one node, in words."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        return [f"{SYMBOLS[type(node.op)]} becomes {SYMBOLS[new]}" for new in OPERATORS[type(node.op)]]  # type: ignore[index]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
        return [f"{SYMBOLS[type(node.ops[0])]} becomes {SYMBOLS[new]}" for new in OPERATORS[type(node.ops[0])]]  # type: ignore[index]
    if isinstance(node, ast.BoolOp):
        return [f"{SYMBOLS[type(node.op)]} becomes {SYMBOLS[new]}" for new in OPERATORS[type(node.op)]]  # type: ignore[index]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        return [f"{'-' if isinstance(node.op, ast.USub) else 'not'} is left out"]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [f"{node.value} becomes {not node.value}"]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return [f"{node.value} becomes {other(node.value)}"]
    return []


def other(value: float) -> float:
    """Another constant of the same type."""
    return value + 1 if isinstance(value, int) else (2.0 * value or 1.0)


def apply(node: ast.AST, choice: int) -> None:
    """Make one of the changes of a node."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        node.op = OPERATORS[type(node.op)][choice]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        node.ops[0] = OPERATORS[type(node.ops[0])][choice]()  # type: ignore[assignment]
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op
        if isinstance(node.op, ast.Not):
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = (not value) if isinstance(value, bool) else other(value)  # type: ignore[arg-type]


def passes(path: Path, tree: ast.Module, tests: list[str], seconds: float) -> tuple[bool, float]:
    """Whether the tests pass with this tree in the place of the file, and how long they took, in a forked process."""
    begin, child = time.perf_counter(), os.fork()
    if child == 0:
        status = 3
        try:
            status = run_tests(path, tree, tests, seconds)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return status == 0, time.perf_counter() - begin


def run_tests(path: Path, tree: ast.Module, tests: list[str], seconds: float) -> int:
    """The exit status of pytest; the process is killed after so many seconds."""
    import pytest  # here, because a plugin that is imported before pytest starts gives a warning

    os.setsid()  # apart from the terminal, which would stop a process that reads from it
    signal.alarm(max(1, int(seconds)))
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    os.chdir(ROOT)
    os.environ["PYTEST_XDIST_WORKER"] = "mutant"  # conftest.py then installs no import hook that checks shapes
    replace_module(path, tree)
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]))


def replace_module(path: Path, tree: ast.Module) -> None:
    """Have the module of this file made from the mutated tree when it is imported."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)

    class Mutated(importlib.abc.Loader):
        def exec_module(self, module: object) -> None:
            exec(compile(tree, str(path), "exec", dont_inherit=True), module.__dict__)

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
            if fullname != name:
                return None
            return importlib.util.spec_from_file_location(name, path, loader=Mutated())

    sys.meta_path.insert(0, Finder())


def main(parts: list[str]) -> int:
    """Run the mutants of the chosen files, print a line per file and the survivors; 1 if fewer than 95 % are killed."""
    for library in (
        "numpy",
        "scipy.optimize",
        "scipy.sparse",
        "torch",
        "param",
        "pandas",
        "pyarrow",
    ):
        importlib.import_module(library)
    sys.path.insert(0, str(ROOT))
    killed = total = 0
    for name, tests in TESTS.items():
        if parts and not any(part in name for part in parts):
            continue
        path = ROOT / "gpexplorer" / name
        unchanged = ast.parse(path.read_text("utf-8"))
        fine, usual = passes(path, unchanged, tests, 600.0)
        if not fine:
            print(f"{name}: its tests fail without any change: {' '.join(tests)}", flush=True)
            return 1
        found = list(mutants(path.read_text("utf-8")))
        survivors = [each for each in found if passes(path, each.tree, tests, max(20.0, SLOWER * usual))[0]]
        killed, total = killed + len(found) - len(survivors), total + len(found)
        print(f"{name}: {len(found) - len(survivors)} of {len(found)} killed, {usual:.0f} s per run", flush=True)
        for each in survivors:
            text = path.read_text("utf-8").splitlines()[each.line - 1].strip()
            print(f"    line {each.line}, {each.change}: {text}", flush=True)
    print(f"{killed} of {total} killed ({100.0 * killed / max(total, 1):.1f} %)")
    return int(killed < 0.95 * total)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
