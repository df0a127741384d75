"""Arithmetic on numbers that are known for a block: integers, indices and floats."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import AffineMapAttr, AnyFloat, FloatAttr, IntegerAttr, IntegerType
from xdsl.ir import Attribute, Operation

from ...dialects.dtypes import dtype_name, numpy_dtype
from ..size_arithmetic import truncated_quotient, truncated_remainder

Number = int | float


@dataclass(frozen=True)
class DataIndex:
    """An index that data decides: a constant and multiples of numbers, by their keys, that the scalar unit has when the
    kernel runs."""

    constant: int
    terms: tuple[tuple[Hashable, int], ...]

    def __add__(self, other: int | DataIndex) -> DataIndex:
        if isinstance(other, int):
            return DataIndex(self.constant + other, self.terms)
        found = dict(self.terms)
        for key, by in other.terms:
            found[key] = found.get(key, 0) + by
        return DataIndex(self.constant + other.constant, tuple((k, n) for k, n in found.items() if n))

    def __mul__(self, other: int) -> DataIndex:
        if not isinstance(other, int):
            return NotImplemented
        return DataIndex(self.constant * other, tuple((k, n * other) for k, n in self.terms if n * other))

    __radd__ = __add__
    __rmul__ = __mul__


Index = int | DataIndex


def wrapped(value: int, kind: Attribute) -> int:
    """An integer as one of a type, with a sign; one bit is 0 or 1."""
    if not isinstance(kind, IntegerType):
        return value
    bits = kind.width.data
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def _unsigned(value: int, kind: Attribute) -> int:
    return value & ((1 << (kind.width.data if isinstance(kind, IntegerType) else 64)) - 1)


_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": truncated_quotient,
    "remsi": truncated_remainder,
    "floordivsi": operator.floordiv,
    "ceildivsi": lambda a, b: -(-a // b),
    "minsi": min,
    "maxsi": max,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": operator.lshift,
    "shrsi": operator.rshift,
}
_UNSIGNED: dict[str, Callable[[int, int], int]] = {
    "divui": operator.floordiv,
    "remui": operator.mod,
    "ceildivui": lambda a, b: -(-a // b),
    "minui": min,
    "maxui": max,
    "shrui": operator.rshift,
}
_FLOATS: dict[str, Callable[[float, float], float]] = {
    "addf": operator.add,
    "subf": operator.sub,
    "mulf": operator.mul,
    "divf": lambda a, b: a / b if b else math.copysign(math.inf, a) if a else math.nan,
    "maximumf": max,
    "minimumf": min,
    "maxnumf": max,
    "minnumf": min,
}
_UNARY: dict[str, Callable[[float], float]] = {
    "math.sqrt": math.sqrt,
    "math.absf": abs,
    "math.exp": math.exp,
    "math.log": math.log,
    "math.rsqrt": lambda x: 1 / math.sqrt(x),
    "arith.negf": operator.neg,
}
SCALARS = {
    "arith.addf": "add",
    "arith.subf": "sub",
    "arith.mulf": "mul",
    "arith.divf": "div",
    "arith.maximumf": "max",
    "arith.minimumf": "min",
    "arith.maxnumf": "max",
    "arith.minnumf": "min",
    "arith.addi": "add",
    "arith.subi": "sub",
    "arith.muli": "mul",
    "arith.maxsi": "max",
    "arith.minsi": "min",
    "arith.negf": "neg",
    "arith.truncf": "convert",
    "arith.extf": "convert",
    "arith.sitofp": "convert",
    "arith.extsi": "convert",
    "arith.trunci": "convert",
    "arith.fptosi": "convert",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.exp": "exp",
    "math.log": "log",
    "math.absf": "abs",
}
"""The scalar function that an op on numbers is, where they are only known when the kernel runs."""

_COMPARISONS: Sequence[Callable[[int, int], bool]] = [
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]


def rounded(value: float, kind: Attribute) -> float:
    """A float as one of a type."""
    return float(np.asarray(value, numpy_dtype(dtype_name(kind))).astype(np.float64))


def constant(op: Operation) -> Number | None:
    """The value of an `arith.constant`, if it is one number."""
    found = op.properties.get("value")
    if isinstance(found, IntegerAttr):
        return wrapped(found.value.data, found.type)
    return found.value.data if isinstance(found, FloatAttr) else None


def known(op: Operation, values: Sequence[Number]) -> Number | None:
    """What an op on known numbers gives; None for an op that is not arithmetic."""
    dialect, _, name = op.name.partition(".")
    if dialect == "affine":
        return _mapped(op, [int(v) for v in values])
    kind = op.results[0].type if op.results else None
    if kind is None or dialect not in ("arith", "math"):
        return None
    if name == "cmpi":
        return _compared(op, [int(v) for v in values])
    if name == "select":
        return values[1] if values[0] else values[2]
    if name in _INTEGERS or name in _UNSIGNED:
        a, b = (int(v) for v in values)
        if name in _INTEGERS:
            return wrapped(_INTEGERS[name](a, b), kind)
        return wrapped(_UNSIGNED[name](_unsigned(a, kind), _unsigned(b, kind)), kind)
    if name in _FLOATS:
        return rounded(_FLOATS[name](*values), kind)
    if op.name in _UNARY:
        return rounded(_UNARY[op.name](*values), kind)
    return _converted(name, values[0], op.operands[0].type, kind) if len(values) == 1 else None


def linear(op: Operation, values: Sequence[Index]) -> Index | None:
    """What an op on indices gives of which data decides some; None where that is not linear in them."""
    name = op.name.partition(".")[2]
    with suppress(TypeError):
        if op.name == "affine.apply":
            return _mapped(op, values)
        if name in ("addi", "subi"):
            return values[0] + values[1] * (-1 if name == "subi" else 1)
        if name == "muli":
            a, b = values if isinstance(values[1], int) else reversed(values)
            return a * b if isinstance(b, int) else None
    return values[0] if name in ("index_cast", "index_castui", "extsi", "extui") else None


def _converted(name: str, value: Number, source: Attribute, kind: Attribute) -> Number | None:
    if name in ("index_cast", "extsi", "trunci"):
        if name == "extsi" and source == IntegerType(1):
            value = -int(value)
        return wrapped(int(value), kind)
    if name in ("index_castui", "extui"):
        return wrapped(_unsigned(int(value), source) if isinstance(source, IntegerType) else int(value), kind)
    if name in ("sitofp", "uitofp"):
        return rounded(float(_unsigned(int(value), source) if name == "uitofp" else value), kind)
    if name in ("fptosi", "fptoui"):
        return wrapped(int(value), kind)
    if name in ("truncf", "extf"):
        return rounded(float(value), kind)
    if name == "bitcast":
        return _bits(value, source, kind)
    return None


def _bits(value: Number, source: Attribute, kind: Attribute) -> Number:
    found = np.asarray(value, numpy_dtype(dtype_name(source))).view(numpy_dtype(dtype_name(kind)))
    return float(found) if isinstance(kind, AnyFloat) else int(found)


def _compared(op: Operation, values: Sequence[int]) -> int:
    found = op.properties["predicate"]
    assert isinstance(found, IntegerAttr)
    number, kind = found.value.data, op.operands[0].type
    if number >= len(_COMPARISONS):  # the unsigned ones: ult, ule, ugt, uge
        values, number = [_unsigned(v, kind) for v in values], number - 4
    return int(_COMPARISONS[number](*values))


def _mapped(op: Operation, values: Sequence[Any]) -> Any:
    found = op.properties.get("map")
    if not isinstance(found, AffineMapAttr):
        return None
    dims = found.data.num_dims
    results = [e.eval(values[:dims], values[dims:]) for e in found.data.results]
    combine = {"affine.apply": lambda r: r[0], "affine.min": min, "affine.max": max}.get(op.name)
    return combine(results) if combine is not None else None
