"""How a kernel reads a tensor that is one row: which runs of it, so that a tile of the row can take its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.scf import ForOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from ...dialects import tile as ops
from ...dialects.affine import Expr
from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import size
from ...dialects.npu.types import GmType
from ...dialects.tile import tile_type
from ..npu.loops import counts_of


@dataclass(frozen=True)
class Readings:
    """How a kernel reads a row: each load, and its place behind where a core begins. begin: that place, over the
    coordinates of the core; length: elements from there on."""

    places: Mapping[ops.LoadOp, Expr[SSAValue]]
    begin: Expr[SSAValue]
    length: int


def readings_of(kernel: ops.KernelOp, tensors: Sequence[SSAValue], extent: int) -> Readings | None:
    """How vector cores read a row of so many elements, which all of these tensors are; None where they do more with it
    than to load runs of it, or read behind its end, or in several sections."""
    counts = _counts(kernel)
    coordinates = [
        v for v in counts if isinstance(v, BlockArgument) and not isinstance(v.owner.parent_op(), ForOp)
    ]
    places: dict[ops.LoadOp, Expr[SSAValue]] = {}
    for tensor in tensors:
        for op in _transfers(tensor):
            place = _place(op, op.source, counts) if isinstance(op, ops.LoadOp) else None
            if place is None or not isinstance(op, ops.LoadOp):
                return None
            places[op] = place
    starts = {place.only(coordinates) for place in places.values()}
    if len(starts) != 1 or len({_section(op) for op in places}) != 1:
        return None
    (start,) = starts
    inside = {op: place.without(coordinates) for op, place in places.items()}
    reached = [place.reach(counts) for place in inside.values()]
    first = min(low for low, _ in reached)
    last = max(high + size(to_ints(op.sizes)) for op, (_, high) in zip(inside, reached, strict=True))
    begin = start + first
    low, high = begin.reach(counts)
    if low < 0 or high + last - first > extent:
        return None
    return Readings({op: place - first for op, place in inside.items()}, begin, last - first)


def _section(op: Operation) -> ops.SectionOp | None:
    """The section of vector cores that an op is in; None for one of other cores."""
    at: Operation | None = op
    while at is not None and not isinstance(at, ops.SectionOp):
        at = at.parent_op()
    return at if at is not None and text(at.core) in ("vector", "fused") else None


def _transfers(tensor: SSAValue) -> Iterator[Operation]:
    """What uses a tensor, or a view of all of it."""
    for use in tensor.uses:
        op = use.operation
        if isinstance(op, ops.ViewOp) and isinstance(tensor, BlockArgument):
            yield from _transfers(op.result)
        else:
            yield op


def loads_of(tensor: SSAValue) -> list[ops.LoadOp]:
    """The loads of a tensor, or of views of all of it."""
    return [op for op in _transfers(tensor) if isinstance(op, ops.LoadOp)]


def _counts(kernel: ops.KernelOp) -> dict[SSAValue, int]:
    """How many values each coordinate of a core and each index of a loop takes in a kernel."""
    loops = (op for op in kernel.walk() if isinstance(op, ForOp))
    found: dict[SSAValue, int] = {**counts_of(loops)}
    found.update(zip(kernel.body.block.args, to_ints(kernel.grid), strict=False))
    for section in kernel.sections():
        assert isinstance(section, ops.SectionOp)
        found[section.body.block.args[0]] = integer(section.units)
    return found


def _place(op: ops.LoadOp, view: SSAValue, counts: Mapping[SSAValue, int]) -> Expr[SSAValue] | None:
    """Where in its tensor the run begins that a load moves; None where it moves no run, or one that reaches over the
    end of the view, and where that shows the tensor in elements of another type. counts: those of the kernel."""
    tensor = view.owner.source if isinstance(view.owner, ops.ViewOp) else view
    assert isinstance(view.type, GmType) and isinstance(tensor.type, GmType)
    kind, sizes, tile = view.type, to_ints(op.sizes), tile_type(op.result)
    wide = [d for d, n in enumerate(sizes) if n != 1]
    if op.steps is not None or tile.space != "ub" or sum(n != 1 for n in tile.shape) > 1:
        return None
    if len(wide) > 1 or any(kind.strides[d] != 1 for d in wide) or tensor.type.element != kind.element:
        return None
    place: Expr[SSAValue] = Expr(kind.offset)
    for at, n, whole, stride in zip(op.linear(), sizes, kind.shape, kind.strides, strict=True):
        if any(v not in counts for v in at.variables):
            return None
        low, high = at.reach(counts)
        if low < 0 or high + n > whole:
            return None
        place = place + at * stride
    return place
