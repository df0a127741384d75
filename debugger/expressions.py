"""Expressions of the debugger: `%5[0, :8]`, `%5 > 100`, `nan(%7) and %0 == 3`, on values of a program."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from .errors import DebugError

NAME = re.compile(r"%[A-Za-z0-9_$]+(?:\.[A-Za-z0-9_$]+)*")
"""A value, as it is printed."""

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "all": np.all,
    "any": np.any,
    "inf": np.isinf,
    "max": np.max,
    "mean": np.mean,
    "min": np.min,
    "nan": np.isnan,
    "sum": np.sum,
}


def plain(x: np.ndarray) -> np.ndarray:
    """An array in a type that NumPy computes with: f32 for bf16 and narrower floats, i64 for integers."""
    if x.dtype.kind in "bc":
        return x
    if x.dtype.kind in "iu" or "int" in x.dtype.name:
        return x.astype(np.int64)
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)


class Expression:
    """An expression on values of a program. names: of the values that it uses, with their `%`."""

    def __init__(self, text: str) -> None:
        """Raises DebugError for what is no expression."""
        self.text = text.strip()
        self.names: tuple[str, ...] = tuple(dict.fromkeys(NAME.findall(self.text)))
        places = {name: f"_v{i}" for i, name in enumerate(self.names)}
        self._values = {place: name for name, place in places.items()}
        try:
            tree = ast.parse(NAME.sub(lambda found: f" {places[found[0]]} ", self.text).strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise DebugError(
                f"cannot read '{self.text}'; write %5, %5[0, :8] or max(abs(%5)) > 100"
            ) from None
        self._tree = tree.body
        self.is_value = isinstance(tree.body, ast.Name) or (
            isinstance(tree.body, ast.Subscript) and isinstance(tree.body.value, ast.Name)
        )
        """Whether it is a value or a part of one, as it is."""

    def value(self, values: Mapping[str, Any]) -> Any:
        """What it comes to, where its names have these values. Raises DebugError."""
        try:
            with np.errstate(all="ignore"):
                return self._of(self._tree, values)
        except (IndexError, TypeError, ValueError, ZeroDivisionError) as error:
            raise DebugError(f"{self.text}: {error}") from None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true, of an array: for any of its elements. Raises DebugError."""
        return bool(np.any(self.value(values)))

    def _of(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name(id=name) if name in self._values:
                found = values[self._values[name]]
                return found if node is self._tree else _number(found)
            case ast.Name(id=name) if name in ("nan", "inf"):
                return float(name)
            case ast.Subscript(value=inner, slice=part) if node is self._tree and isinstance(inner, ast.Name):
                return np.asarray(values[self._name(inner)])[self._index(part, values)]
            case ast.Subscript(value=inner, slice=part):
                return np.asarray(self._of(inner, values))[self._index(part, values)]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -self._of(inner, values)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not np.any(self._of(inner, values))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self._of(left, values), self._of(right, values))
            case ast.BoolOp(op=op, values=parts):
                return (all if isinstance(op, ast.And) else any)(np.any(self._of(p, values)) for p in parts)
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                type(op) in _COMPARED for op in ops
            ):
                sides = [self._of(each, values) for each in (left, *others)]
                found = [
                    _COMPARED[type(op)](*pair)
                    for op, pair in zip(ops, pairwise(sides), strict=True)
                ]
                return found[0] if len(found) == 1 else np.logical_and.reduce(found)
            case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in FUNCTIONS:
                return FUNCTIONS[name](self._of(inner, values))
        known = ", ".join(FUNCTIONS)
        raise DebugError(
            f"cannot compute '{self.text}'; there are %names, slices, + - * / //, comparisons, {known}"
        )

    def _name(self, node: ast.Name) -> str:
        if node.id not in self._values:
            raise DebugError(f"cannot compute '{self.text}': {node.id} is no value; write %5")
        return self._values[node.id]

    def _index(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        match node:
            case ast.Tuple(elts=parts):
                return tuple(self._index(part, values) for part in parts)
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*(None if e is None else int(self._of(e, values)) for e in (lower, upper, step)))
            case ast.Constant(value=value) if value is Ellipsis:
                return value
        return int(self._of(node, values))


def _number(x: Any) -> Any:
    return plain(x) if isinstance(x, np.ndarray) else x
