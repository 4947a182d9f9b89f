"""The mutants of a source file: each changes one operator, sign or constant of one function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "and", ast.Or: "or",
}  # fmt: skip
# How thick, large or transparent something is drawn, in calls of pictures: no number that a person reads.
DECORATION = {
    "size", "line_width", "line_dash", "alpha", "fill_alpha", "line_alpha", "background_fill_alpha", "padding",
    "spacing", "margin", "show_grid", "glyph_height", "label_height", "border_radius", "min_border_left",
    "min_border_right", "min_border_top", "min_border_bottom",
}  # fmt: skip
LEAST = 1e-100  # smaller constants guard against a division by zero or the logarithm of zero


@dataclass(frozen=True)
class Mutant:
    """One change of a source file; without a number of its node, no change."""

    source: str
    line: int
    change: str
    function: str  # the outermost function that holds the change: "Cholesky.solve"
    node: int | None = None  # its number in ast.walk

    def tree(self) -> ast.Module:
        """The changed module."""
        tree = ast.parse(self.source)
        if self.node is not None:
            apply(list(ast.walk(tree))[self.node])
        return ast.fix_missing_locations(tree)

    @property
    def text(self) -> str:
        """The line that is changed, as it was."""
        return self.source.splitlines()[self.line - 1].strip()


def mutants(source: str, sentences: bool = False) -> Iterator[Mutant]:
    """Yield the mutants of the functions in a source text; docstrings, annotations and error messages do not change.

    With `sentences`, only those in the numbers of a sentence, and in what decides which sentence is written.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    ignored = {id(node) for root in ignored_parts(tree) for node in ast.walk(root)}
    if sentences:
        in_sentences = {id(node) for root in sentence_parts(tree) for node in ast.walk(root)}
        ignored |= {id(node) for node in nodes} - in_sentences
    inside = {
        id(node): name
        for name, function in outer_functions(tree)
        for statement in function.body
        for node in ast.walk(statement)
    }
    for index, node in enumerate(nodes):
        if id(node) in ignored or id(node) not in inside or not (change := changed(node)):
            continue
        yield Mutant(source, node.lineno, change, inside[id(node)], index)  # type: ignore[attr-defined]


def outer_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods that lie in no other function, with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from outer_functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from outer_functions(node, prefix)


@cache
def owners(source: str) -> dict[int, int]:
    """The first line of the innermost statement of each line of the functions in a source text."""
    return {
        line: statement.lineno
        for _, function in outer_functions(ast.parse(source))
        for statement in ast.walk(function)  # an outer statement comes before those in it
        if isinstance(statement, ast.stmt) and statement is not function
        for line in range(first_line(statement), (statement.end_lineno or statement.lineno) + 1)
    }


def first_line(statement: ast.stmt) -> int:
    """The line of a statement, or of its first decorator."""
    return min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])


def with_notes(tree: ast.Module, name: str, path: str) -> ast.Module:
    """A module in which each statement of a function first calls `name(path, line)`; the tree is changed."""
    for _, function in outer_functions(tree):
        for node in list(ast.walk(function)):
            for block in ("body", "orelse", "finalbody"):
                statements = getattr(node, block, None)
                if isinstance(statements, list):
                    setattr(node, block, [part for each in statements for part in (*note(each, name, path), each)])
    return ast.fix_missing_locations(tree)


def note(statement: ast.stmt, name: str, path: str) -> Iterator[ast.stmt]:
    """The call before a statement; none before a docstring."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        arguments: list[ast.expr] = [ast.Constant(path), ast.Constant(statement.lineno)]
        call = ast.Call(ast.Name(name, ast.Load()), arguments, [])
        yield ast.copy_location(ast.Expr(call), statement)


def ignored_parts(tree: ast.Module) -> Iterator[ast.AST]:
    """Annotations, errors, text, sizes of blocks of rows, `strict` and `daemon`, costs, and what is not seen.

    Costs are predictions, and `row_numbers` is how a posterior says how large its blocks of rows may be.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.Assert):
            yield node
        elif isinstance(node, ast.JoinedStr):  # its words and formats; the numbers that a sentence states are changed
            parts = (getattr(part, "format_spec", part) for part in node.values)
            yield from (part for part in parts if part is not None)
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef):
            if node.returns is not None:
                yield node.returns
            if node.name in ("cost", "row_numbers") or node.name.endswith("_cost"):
                yield from node.body
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("row_blocks", "large_blocks"):
            yield from node.args[1:]
        elif isinstance(node, ast.keyword) and node.arg in ("strict", "daemon"):
            yield node
    yield from unseen_parts(tree)


def unseen_parts(tree: ast.Module) -> Iterator[ast.AST]:
    """What nobody sees: seeds, guards against zero, and, in a file of pictures, sizes of marks and of legends."""
    yield from decoration(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "generator":
            yield from node.args
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reshape":
            yield from (part for part in node.args if isinstance(part, ast.UnaryOp))  # NumPy reads -2 as -1
        elif isinstance(node, ast.Constant) and isinstance(node.value, float) and 0.0 < node.value < LEAST:
            yield node


def decoration(tree: ast.Module) -> Iterator[ast.AST]:
    """How large or transparent marks are, and columns of a legend, in files that import HoloViews or Bokeh."""
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module).partition(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)}
    for node in ast.walk(tree) if imported & {"holoviews", "bokeh"} else ():
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "overlay":
            yield from node.args[2:]
        elif isinstance(node, ast.keyword) and node.arg in DECORATION:
            yield node
        elif isinstance(node, ast.Dict):
            named = zip(node.keys, node.values, strict=True)
            yield from (value for key, value in named if getattr(key, "value", None) in DECORATION)


def sentence_parts(tree: ast.Module) -> Iterator[ast.AST]:
    """The numbers of texts, and the conditions of which a branch is or returns a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue):
            yield node
        elif isinstance(node, ast.IfExp | ast.If):
            branches = [*node.body, *node.orelse] if isinstance(node, ast.If) else [node.body, node.orelse]
            if any(is_text(getattr(branch, "value", branch)) for branch in branches):
                yield node.test


def is_text(node: ast.AST | None) -> bool:
    """Whether an expression is a text, or the sum or a list of such."""
    if isinstance(node, ast.BinOp):
        return is_text(node.left) or is_text(node.right)
    if isinstance(node, ast.List | ast.Tuple):
        return any(map(is_text, node.elts))
    if isinstance(node, ast.Call):  # Outcome("..."), notes.append("...")
        return any(map(is_text, node.args))
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    )


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
