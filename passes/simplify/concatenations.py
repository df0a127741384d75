"""Concatenations behind what is elementwise, rather than before it: one kernel computes all parts and stores them side
by side, and none of them is stored to be read again. Concatenations of runs shorter than a block of memory are selects.

Before:  %r = graph.concat %n, %a ; %y = x * concat(c, c) + %r * concat(s, s), as a rotary embedding is often written
After:   %y = graph.concat of (a * c + n * s) and (b * c + a * s), where a and b are the halves of x
"""

from __future__ import annotations

from typing import NamedTuple

from xdsl.dialects.builtin import ComplexType, i1, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size, tensor
from ...dialects.graph import ELEMENTWISE, BroadcastOp, ConcatOp, ElementwiseOp, IotaOp, SliceOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import ROW_BYTES
from ...dialects.open_sizes import any_open, certain
from ..forms.access import splat_of
from ..forms.tensor_builder import RewriteBuilder, TensorBuilder
from ..patterns import GraphPattern

MOST_PARTS = 4
"""Parts of a concatenation for each of which there is an op."""

MOST_EQUAL = 16
"""Parts that a concatenation is cut into so that all are of one size."""

MOST_DEEP = 8
"""Ops between a concatenation and the op of which there is one for each part."""

FEW_RUNS = 64
"""So few runs are moved one by one."""

LOADED_TOO = 3
"""How many times the cycles of its selects a kernel takes that has each number in a block of its own: by the
simulator's figures for two to eight parts of 2 and 4 bytes."""


class _Cut(NamedTuple):
    """So many equal parts along a dimension."""

    dim: int
    parts: int


def _cut_alike(op: ElementwiseOp) -> _Cut | None:
    """How several concatenations are cut that an op takes; None where there are no two, or they are cut differently."""
    if len(op.operands) < 2 or any_open(shape_of(op.results[0])):
        return None
    cuts = [cut for v in op.operands if (cut := _cut_of(v)) is not None]
    return cuts[0] if len(cuts) > 1 and len({*cuts}) == 1 else None


class ConcatLast(GraphPattern):
    """An op of several concatenations that are cut alike is a concatenation of what it makes of their parts."""

    name = "concat-last"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ElementwiseOp, rewriter: PatternRewriter, /) -> None:
        cut, build = _cut_alike(op), RewriteBuilder(rewriter)
        if cut is None:
            return
        made = [_of_parts(build, op, cut, i) for i in range(cut.parts)]
        rewriter.replace(op, (), [build.add(ConcatOp, made, op.results[0].type, dim=integer_attr(cut.dim))])


class ConcatOfEqualParts(GraphPattern):
    """Slices beside computed parts, all of one size, are cut into that size, so that one kernel stores all.

    A slice that is several times as long as the parts becomes several slices."""

    name = "concat-of-equal-parts"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConcatOp, rewriter: PatternRewriter, /) -> None:
        dim = integer(op.dim)
        if any_open(shape_of(op.result)):
            return
        parts = [inner for part in op.parts for inner in _inner_parts(part, dim)]
        computed = {shape_of(part)[dim] for part in parts if isinstance(part.owner, ElementwiseOp)}
        if len(computed) != 1 or not all(isinstance(part.owner, ElementwiseOp | SliceOp) for part in parts):
            return
        (each,) = computed
        counts = [shape_of(part)[dim] // each if each else 0 for part in parts]
        whole = all(n * each == shape_of(part)[dim] for n, part in zip(counts, parts, strict=True))
        if not whole or not len(op.parts) < sum(counts) <= MOST_EQUAL:
            return
        build = RewriteBuilder(rewriter)
        both = zip(parts, counts, strict=True)
        made = [build.part(part, dim, i * each, each) for part, n in both for i in range(n)]
        rewriter.replace(op, (), [build.add(ConcatOp, made, op.result.type, dim=op.dim)])


class InterleaveAsSelect(GraphPattern):
    """A concatenation of runs shorter than a block of memory takes each element of one of its parts.

    Before:  %r = graph.concat %a, %b {dim = 2} : (tensor<8x64x1xf16>, tensor<8x64x1xf16>) -> tensor<8x64x2xf16>
    After:   %r = graph.select %first, %wide_a, %wide_b, where %first says of the last dimension which place is 0

    Each run would be moved by itself, and take as long as a whole block.
    """

    name = "interleave-as-select"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConcatOp, rewriter: PatternRewriter, /) -> None:
        dim, shape, element = integer(op.dim), shape_of(op.result), element_of(op.result)
        first = shape_of(op.parts[0])
        if any_open(shape[dim:]) or isinstance(element, ComplexType):
            return
        alike = all(certain(n, "==", m) for x in op.parts for n, m in zip(shape_of(x), first, strict=True))
        few = certain(size(shape[:dim]), "<", FEW_RUNS)
        if not alike or few or not self._pays(len(op.parts), size(first[dim:]), element):
            return
        if any(isinstance(use.operation, ElementwiseOp) and _cut_alike(use.operation) for use in op.result.uses):
            return  # it comes behind that op
        build, many = RewriteBuilder(rewriter), len(op.parts)
        target = [*shape[:dim], many, *first[dim:]]
        dims = [d for d in range(len(target)) if d != dim]
        places = build.add(IotaOp, [], tensor([many], i32), dim=integer_attr(0))
        found: SSAValue | None = None
        for number in reversed(range(many)):
            part = build.broadcast(op.parts[number], target, dims)
            if found is None:
                found = part
                continue
            here = build.constant(number, [many], i32)
            mask = build.add(ELEMENTWISE["eq"], [places, here], tensor([many], i1))
            found = build.add(
                ELEMENTWISE["select"], [build.broadcast(mask, target, [dim]), part, found], found.type
            )
        assert found is not None
        rewriter.replace(op, (), [build.reshape(found, shape)])

    def _pays(self, parts: int, run: int, element: Attribute) -> bool:
        """Whether to look at each element of so many parts takes less than to store runs of so many, each as long as a
        burst: for a thousand runs of each."""
        unit, name, width = self.machine.vector, dtype_name(element), itemsize(element)
        if not 0 < run * width < ROW_BYTES or unit.computes("select", name) != name:
            return False
        lanes = 1000 * (-(-parts * run * width // ROW_BYTES) * ROW_BYTES // width)
        selects = parts * unit.cycles("broadcast", name, lanes) + (parts - 1) * unit.cycles("select", name, lanes)
        stores = 1000 * parts * self.machine.burst_bytes / self.machine.moves["ub", "gm"].bytes_per_cycle
        return LOADED_TOO * selects < stores


def _inner_parts(part: SSAValue, dim: int) -> list[SSAValue]:
    """The parts of a part that is a concatenation along the same dimension, which nothing else needs; else itself."""
    op = part.owner
    if not isinstance(op, ConcatOp) or integer(op.dim) != dim or not part.has_one_use():
        return [part]
    return [inner for each in op.parts for inner in _inner_parts(each, dim)]


def _cut_of(value: SSAValue, deep: int = MOST_DEEP) -> _Cut | None:
    """How a value is cut that is a concatenation of equal parts, or made of one by broadcasts and elementwise ops that
    nothing else needs; None where it is none."""
    op = value.owner
    if isinstance(op, ConcatOp):
        dim = integer(op.dim)
        extents = {shape_of(part)[dim] for part in op.parts}
        cut = _Cut(dim, len(op.parts))
        return cut if len(extents) == 1 and 1 < cut.parts <= MOST_PARTS else None
    if isinstance(op, BroadcastOp):
        inner = _cut_of(op.x, deep - 1) if deep else None
        if inner is None:
            return None
        dim = to_ints(op.dims)[inner.dim]
        return _Cut(dim, inner.parts) if shape_of(value)[dim] == shape_of(op.x)[inner.dim] else None
    if isinstance(op, ElementwiseOp) and deep and value.has_one_use():
        found = {cut for v in op.operands if (cut := _cut_of(v, deep - 1)) is not None}
        return found.pop() if len(found) == 1 else None
    return None


def _of_parts(build: TensorBuilder, op: ElementwiseOp, cut: _Cut, i: int) -> SSAValue:
    """What an op makes of part i of its operands."""
    operands = [_part(build, v, cut, i) for v in op.operands]
    shape = _shape_of_part(op.results[0], cut)
    return build.add(type(op), operands, tensor(shape, element_of(op.results[0])), **op.properties)


def _part(build: TensorBuilder, value: SSAValue, cut: _Cut, i: int) -> SSAValue:
    """Part i of a value."""
    op, shape = value.owner, _shape_of_part(value, cut)
    number = splat_of(value)
    if number is not None:
        return build.constant(number, shape, element_of(value))
    if _cut_of(value) == cut:
        if isinstance(op, ConcatOp):
            return op.parts[i]
        if isinstance(op, ElementwiseOp):
            return _of_parts(build, op, cut, i)
    if isinstance(op, BroadcastOp):
        dims, source = list(to_ints(op.dims)), op.x
        at = dims.index(cut.dim) if cut.dim in dims else None
        if at is not None and shape_of(source)[at] == shape_of(value)[cut.dim]:
            source = _part(build, source, _Cut(at, cut.parts), i)
        return build.broadcast(source, shape, dims)
    return build.part(value, cut.dim, i * shape[cut.dim], shape[cut.dim])


def _shape_of_part(value: SSAValue, cut: _Cut) -> list[int]:
    return [n // cut.parts if d == cut.dim else n for d, n in enumerate(shape_of(value))]
