"""One-line changes of a Python file that should make some test fail: each kind at every place where it fits."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
TWINS = {"max": "min", "min": "max", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Edit:
    """A change. line: where it begins, from 1 on; old, new: the code before and after, on one line; source: the whole
    file after it; place: the line and the one before it, which name the place where lines above come and go."""

    kind: str
    line: int
    old: str
    new: str
    source: str
    place: str = ""


def edits(source: str) -> list[Edit]:
    """Every change of a file, in the order of their lines."""
    lines = source.splitlines(keepends=True)
    found = []
    for kind, node, new in _changes(ast.parse(source)):
        old, replaced = _replaced(lines, node, new)
        text = " ".join(old.split())
        if text != new:
            place = " | ".join(x.strip() for x in lines[max(node.lineno - 2, 0) : node.lineno])
            found.append(Edit(kind, node.lineno, text, new, replaced, place))
    return sorted(found, key=lambda e: (e.line, e.kind, e.old, e.new))


def edits_of(path: Path) -> list[Edit]:
    return edits(path.read_text())


def _replaced(lines: list[str], node: ast.expr | ast.stmt, new: str) -> tuple[str, str]:
    """The code of a node, and the file with `new` in its place. Columns count bytes."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
    before, after = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
    whole = "".join(lines[node.lineno - 1 : node.end_lineno])
    old = whole[len(before) : len(whole) - len(after)]
    rest = "".join(lines[: node.lineno - 1]), "".join(lines[node.end_lineno :])
    return old, f"{rest[0]}{before}{new}{after}{rest[1]}"


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Kind, node and what replaces it. Types, docstrings, imports and the words of messages stay."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Raise)):
            if isinstance(node, ast.Raise):
                yield "statement removed", node, "pass"
            continue
        if isinstance(node, ast.expr):
            for kind, changed in _of_expression(node):
                yield (
                    kind,
                    node,
                    f"({ast.unparse(changed)})" if _needs_brackets(changed) else ast.unparse(changed),
                )
        if isinstance(node, ast.stmt):
            yield from _of_statement(node)
        pending.extend(_inside(node))


def _needs_brackets(node: ast.expr) -> bool:
    return isinstance(node, (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp))


def _inside(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that are run."""
    skipped: set[ast.AST | None] = set()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        skipped = {node.returns, *node.decorator_list}
    elif isinstance(node, ast.ClassDef):
        skipped = {*node.decorator_list, *node.bases, *node.keywords}
    elif isinstance(node, (ast.AnnAssign, ast.arg)):
        skipped = {node.annotation}
    elif isinstance(node, ast.Call):  # zip's `strict` says what always holds
        skipped = {k for k in node.keywords if k.arg == "strict"}
    return [child for child in ast.iter_child_nodes(node) if child not in skipped]


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    changed = copy.deepcopy(node)
    match changed:
        case ast.BinOp() if type(changed.op) in OPERATORS and not isinstance(changed.left, ast.JoinedStr):
            changed.op = OPERATORS[type(changed.op)]()
            yield "operator", changed
        case ast.Compare() if type(changed.ops[0]) in COMPARISONS:
            changed.ops[0] = COMPARISONS[type(changed.ops[0])]()
            yield "comparison", changed
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not changed.value)
        case ast.Constant(value=int()):
            yield "constant", ast.Constant(changed.value + 1)
        case ast.Constant(value=float()):
            yield "constant", ast.Constant(changed.value * 2 + 1)
        case ast.UnaryOp(op=ast.Not()):
            yield "not dropped", changed.operand
        case ast.BoolOp():
            changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
            yield "and or", changed
        case ast.IfExp():
            changed.body, changed.orelse = changed.orelse, changed.body
            yield "branches swapped", changed
        case ast.Call():
            yield from _of_call(changed)
        case _:
            pass


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node.func, ast.Name) and node.func.id in TWINS:
        yield "twin", ast.Call(ast.Name(TWINS[node.func.id]), node.args, node.keywords)
    elif len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in ("isinstance", "getattr", "cast", "zip"):
            yield "arguments swapped", ast.Call(node.func, [*node.args[1::-1], *node.args[2:]], node.keywords)


def _of_statement(node: ast.stmt) -> Iterator[tuple[str, ast.stmt | ast.expr, str]]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Break():
            yield "statement removed", node, "pass"
        case ast.If() | ast.While():
            yield "condition turned", node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.FunctionDef(returns=ast.Constant(value=None)) if len(node.body) > 1:
            first = node.body[1] if isinstance(node.body[0], ast.Expr) else node.body[0]
            if first.lineno == first.end_lineno:
                yield "early return", first, "return"
        case _:
            pass
