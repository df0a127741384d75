"""Bounded tensors: of their bound's size, with an extent that says how many elements along a dimension count.

A result of @main whose size depends on data names, for each of its dimensions, the result that is its extent, an i32
number; -1 stands for a dimension that counts in full:

    func.func @main(%x: tensor<16x4xf32>) -> (tensor<16x4xf32> {graph.extents = array<i64: 1, -1>}, tensor<i32>)

What the elements behind the extent are is not said. Results that are extents come behind those that are not; a caller
sees the others, cut to their extents. At every level @main has the attribute.

`BoundedDim` is what an op says of one of its operands' dimensions that is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from ..base import ints, text, to_ints
from .attributes import Literal

EXTENTS = "graph.extents"

BOUNDED = "tilewright.bounded"
"""The composite of StableHLO that `tw.bounded` becomes: `set_dimension_size` with a result of the same type."""

FULL = -1
"""In place of the number of an extent: the dimension counts in full."""


Padding = str | int | Literal | SSAValue
"""What is behind an extent: the neutral element of a kind of reduction, a number, a scalar constant, or a scalar
operand of the op."""


@dataclass(frozen=True)
class BoundedDim:
    """What becomes of a dimension of an operand of which only the first n elements count.

    dim: the dimension of each result that it becomes, of which `(scale * n + offset) // divisor` elements count, at
    least 0 and at most all; None: no dimension of a result. padding: what has to be behind the first n elements for
    that; None: anything.
    """

    dim: int | None
    scale: int = 1
    offset: int = 0
    divisor: int = 1
    padding: Padding | None = None


@dataclass(frozen=True)
class Extent:
    """A bounded dimension of a result of @main: the number of the result, its dimension, and the number of the result
    that is its extent."""

    result: int
    dim: int
    by: int


def extents_of(func: FuncOp) -> tuple[Extent, ...]:
    """The bounded dimensions of a function's results."""
    return tuple(
        Extent(i, d, by) for i, row in _rows(func) for d, by in enumerate(to_ints(row)) if by != FULL
    )


def _rows(func: FuncOp) -> Iterator[tuple[int, DenseArrayBase]]:
    for i, attrs in enumerate(func.res_attrs or ()):
        row = attrs.data.get(EXTENTS)
        if isinstance(row, DenseArrayBase):
            yield i, row


def set_extents(func: FuncOp, rows: Mapping[int, Sequence[int]]) -> None:
    """Says of results of a function, by their numbers, which result is the extent of each dimension, or `FULL`."""
    known = func.res_attrs.data if func.res_attrs is not None else ()
    attrs = [dict(a.data) for a in known] or [dict[str, Attribute]() for _ in func.function_type.outputs]
    for i, row in rows.items():
        attrs[i][EXTENTS] = ints(row)
    func.res_attrs = ArrayAttr([DictionaryAttr(a) for a in attrs])


def verify_extents(func: FuncOp) -> None:
    """Only @main has bounded results; each names, for each dimension, a later result that is an i32 number; all
    results behind the first extent are extents. Raises VerifyException."""
    name, types = text(func.sym_name), [_parts(t) for t in func.function_type.outputs]
    hidden = {e.by for e in extents_of(func)}
    for i, attrs in enumerate(func.res_attrs or ()):
        row = attrs.data.get(EXTENTS)
        if row is None:
            continue
        here = f"result {i} of @{name}"
        if name != "main":
            raise VerifyException(f"{here} is bounded; only the results of @main can be")
        if not isinstance(row, DenseArrayBase):
            raise VerifyException(f"{here}: {EXTENTS} is an array of the results that are extents, not {row}")
        numbers, rank = to_ints(row), len(types[i][0])
        if len(numbers) != rank:
            raise VerifyException(f"{here}: {EXTENTS} has {len(numbers)} entries for {rank} dimensions")
        for by in numbers:
            if by != FULL and not i < by < len(types):
                raise VerifyException(
                    f"{here}: its extent is a result behind it, and there is none of number {by}"
                )
            if by != FULL and types[by] != ((), "i32"):
                raise VerifyException(f"{here}: its extent, result {by}, must be an i32 of rank 0")
    first = min(hidden, default=len(types))
    if hidden != {*range(first, len(types))}:
        raise VerifyException(f"the results of @{name} that are extents must be the last ones")


def _parts(kind: Attribute) -> tuple[tuple[int, ...], str]:
    """Shape and element type of a tensor, of either form; that of another type is empty."""
    from xdsl.dialects.builtin import TensorType

    from ..dtypes import dtype_name, shape_in

    if isinstance(kind, TensorType):
        return shape_in(kind), str(kind.element_type)
    shape, element = getattr(kind, "shape", ()), getattr(kind, "element", None)
    return shape, "" if element is None else dtype_name(element)
