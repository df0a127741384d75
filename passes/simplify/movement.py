"""Rewrites broadcasts and pads into forms that loads can absorb."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import ComplexType, i1, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, ints, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size, tensor
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ConcatOp,
    ConstantOp,
    DataAttr,
    DynamicUpdateSliceOp,
    ElementwiseOp,
    IotaOp,
    PadOp,
    ReshapeOp,
)
from ...dialects.graph import movement as canonical
from ...dialects.graph.interface import INDEX_TENSOR, GraphOp, element_of, shape_of
from ...dialects.npu.types import ROW_BYTES
from ...dialects.open_sizes import any_open, certain
from ..forms.access import behind_ones, is_layout, splat_of
from ..forms.tensor_builder import RewriteBuilder
from ..patterns import GraphPattern


class SimplifyBroadcasts(GraphPattern):
    """A broadcast of a broadcast is one broadcast."""

    name = "merge-broadcasts"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BroadcastOp, rewriter: PatternRewriter, /) -> None:
        canonical.MergeBroadcasts().match_and_rewrite(op, rewriter)


class DropIdentityBroadcast(GraphPattern):
    """A broadcast that changes nothing is its operand."""

    name = "drop-identity-broadcast"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BroadcastOp, rewriter: PatternRewriter, /) -> None:
        if (same := op.fold()) is not None:
            rewriter.replace(op, (), same)


class BroadcastAsReshape(GraphPattern):
    """A broadcast that only adds dimensions of one place, for an op that reads dense tensors, is a reshape.

    A reshape is another view of what is in memory; a broadcast there would be a kernel.
    """

    name = "broadcast-as-reshape"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BroadcastOp, rewriter: PatternRewriter, /) -> None:
        dims, shape = to_ints(op.dims), shape_of(op.result)
        kept = all(certain(n, "==", shape[d]) for n, d in zip(shape_of(op.x), dims, strict=True))
        added = all(certain(n, "==", 1) for d, n in enumerate(shape) if d not in dims)
        dense = [use for use in op.result.uses if _reads_dense(use.operation)]
        if not (kept and added and dense and list(dims) == sorted(dims)):
            return
        viewed = RewriteBuilder(rewriter).reshape(op.x, shape)
        for use in dense:
            use.operation.operands[use.index] = viewed
            rewriter.notify_op_modified(use.operation)
        if not op.result.uses:
            rewriter.erase(op)


def _reads_dense(op: Operation) -> bool:
    """Whether the kernel of an op folds no layout op into its loads."""
    return isinstance(op, GraphOp) and not op.regions and not (op.READS_THROUGH_LAYOUT or is_layout(op))


class SimplifyReshapes(GraphPattern):
    """A reshape of a reshape is one reshape."""

    name = "merge-reshapes"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter, /) -> None:
        canonical.MergeReshapes().match_and_rewrite(op, rewriter)


class DropIdentityReshape(GraphPattern):
    """A reshape that changes nothing is its operand."""

    name = "drop-identity-reshape"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter, /) -> None:
        if op.x.type == op.result.type and not op.attributes:
            rewriter.replace(op, (), [op.x])


class PadAsUpdate(GraphPattern):
    """A pad between elements, or with a value known at run time, is a strided update of a filled tensor.

    What negative padding crops is a slice of that.
    """

    name = "pad-as-update"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: PadOp, rewriter: PatternRewriter, /) -> None:
        low, high, interior = to_ints(op.low), to_ints(op.high), to_ints(op.interior)
        if not any(interior) and splat_of(op.value) is not None:
            return
        x, element = op.x, element_of(op.x)
        shape = shape_of(x)
        spread = [
            max(lo, 0) + max(hi, 0) + (n - 1) * (i + 1) + 1
            for n, lo, hi, i in zip(shape, low, high, interior, strict=True)
        ]
        splat = splat_of(op.value)
        build = RewriteBuilder(rewriter)
        filled = (
            build.constant(splat, spread, element)
            if splat is not None
            else build.broadcast(op.value, spread, [])
        )
        starts = [
            build.add(ConstantOp, [], INDEX_TENSOR, value=DataAttr.of(np.asarray(max(lo, 0), np.int32)))
            for lo in low
        ]
        updated = build.add(
            DynamicUpdateSliceOp,
            [filled, x, *starts],
            tensor(spread, element),
            strides=ints([i + 1 for i in interior]),
        )
        if any(v < 0 for v in (*low, *high)):
            limits = [n - max(-hi, 0) for n, hi in zip(spread, high, strict=True)]
            updated = build.slice(updated, [max(-lo, 0) for lo in low], limits, [1] * len(shape))
        rewriter.replace(op, (), [updated])


FEW_RUNS = 64
"""So few runs are moved one by one."""

LOADED_TOO = 3
"""How many times the cycles of its selects a kernel takes that has each number in a block of its own: by the
simulator's figures for two to eight parts of 2 and 4 bytes."""


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
        if all(isinstance(behind_ones(x).owner, ElementwiseOp) for x in op.parts):
            return  # the kernel that computes them stores them
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
