"""Which dimensions of a kernel's values are one and the same, so that a tile can be made smaller along one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, ShapedType
from xdsl.dialects.func import FuncOp
from xdsl.dialects.scf import ForOp, IfOp, YieldOp
from xdsl.ir import Attribute, Operation, SSAValue

from ..dialects.base import to_ints

Dim = tuple[SSAValue, int]
"""A dimension of a value."""

PRODUCTS = {
    "linalg.matmul": ("mk", "kn", "mn"),
    "linalg.matmul_transpose_b": ("mk", "nk", "mn"),
    "linalg.batch_matmul": ("bmk", "bkn", "bmn"),
}
"""The axes of a product's left and right side and of its sums."""

RESHAPES = {"tensor.collapse_shape", "tensor.expand_shape", "tensor.reshape"}
"""Ops of which nobody says what becomes of each dimension."""


def extents_of(kind: Attribute) -> tuple[int, ...]:
    """The extents of a tensor or memref, DYNAMIC_INDEX for one that is open; () of anything else."""
    return kind.get_shape() if isinstance(kind, ShapedType) else ()


class KernelAxes:
    """The axes of a kernel: classes of dimensions that are equal because an op says so."""

    def __init__(self, func: FuncOp) -> None:
        self._leader: dict[Dim, Dim] = {}
        for op in func.walk():
            for group in _equal(op):
                for other in group[1:]:
                    self._join(group[0], other)

    def axis(self, value: SSAValue, dim: int) -> Dim:
        """The axis of a dimension: the same for all that are equal."""
        found = (value, dim)
        while (leader := self._leader.get(found, found)) != found:
            found = leader
        return found

    def _join(self, one: Dim, other: Dim) -> None:
        a, b = self.axis(*one), self.axis(*other)
        if a != b and _extent(a) == _extent(b) != DYNAMIC_INDEX:
            self._leader[b] = a


def _extent(dim: Dim) -> int:
    value, number = dim
    return extents_of(value.type)[number]


def _equal(op: Operation) -> Iterator[Sequence[Dim]]:
    """Groups of dimensions that an op makes equal."""
    if op.name in RESHAPES:
        return
    shaped = [v for v in (*op.operands, *op.results) if extents_of(v.type)]
    if isinstance(op, ForOp):
        last = op.body.block.last_op
        yielded = last.operands if isinstance(last, YieldOp) else ()
        for values in zip(op.iter_args, op.body.block.args[1:], op.results, yielded, strict=True):
            yield from _same(values)
    elif isinstance(op, IfOp):
        for region in op.regions:
            last = region.block.last_op if region.blocks else None
            if isinstance(last, YieldOp):
                for values in zip(op.results, last.operands, strict=True):
                    yield from _same(values)
    elif op.name in PRODUCTS:
        by_axis: dict[str, list[Dim]] = {}
        for value, axes in zip(op.operands, PRODUCTS[op.name], strict=False):
            for dim, axis in enumerate(axes):
                by_axis.setdefault(axis, []).append((value, dim))
        yield from by_axis.values()
        yield from _same((op.operands[2], *op.results))
    elif op.name in ("linalg.reduce", "linalg.broadcast"):
        half = len(op.operands) // 2
        for narrow, wide in zip(op.operands[:half], op.operands[half:], strict=True):
            if op.name == "linalg.reduce":
                narrow, wide = wide, narrow
            without = numbers_of(op, "dimensions")
            kept = [d for d in range(len(extents_of(wide.type))) if d not in without]
            yield from ([(narrow, i), (wide, d)] for i, d in enumerate(kept))
        for values in zip(op.operands[half:], op.results, strict=False):
            yield from _same(values)
    elif op.name == "linalg.transpose":
        for i, d in enumerate(numbers_of(op, "permutation")):
            yield [(op.operands[1], i), (op.operands[0], d)]
        yield from _same((op.operands[1], *op.results))
    else:
        for value in shaped[1:]:
            if extents_of(value.type) == extents_of(shaped[0].type):
                yield from _same((shaped[0], value))


def _same(values: Sequence[SSAValue]) -> Iterator[Sequence[Dim]]:
    shapes = {len(extents_of(v.type)) for v in values}
    if len(shapes) == 1:
        yield from ([(v, d) for v in values] for d in range(shapes.pop()))


def numbers_of(op: Operation, name: str) -> Sequence[int]:
    """The integers of an attribute; none where an op has no such."""
    found = op.attributes.get(name)
    return to_ints(found) if isinstance(found, DenseArrayBase) else ()
