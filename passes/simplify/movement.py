"""Rewrites broadcasts and pads into forms that loads can absorb."""

from __future__ import annotations

import numpy as np
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import ints, to_ints
from ...dialects.dtypes import tensor
from ...dialects.graph import BroadcastOp, ConstantOp, DataAttr, DynamicUpdateSliceOp, PadOp, ReshapeOp
from ...dialects.graph import movement as canonical
from ...dialects.graph.interface import INDEX_TENSOR, GraphOp, element_of, shape_of
from ...dialects.open_sizes import certain
from ..forms.access import is_layout, splat_of
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
