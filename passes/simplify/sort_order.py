"""Sorts whose operands and results are turned round, or of whose results the first positions are wanted."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, ints, to_ints
from ...dialects.dtypes import tensor
from ...dialects.graph import ReverseOp, SliceOp, SortOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from ..forms.tensor_builder import RewriteBuilder
from ..patterns import GraphPattern


class SortBackwards(GraphPattern):
    """A sort of reversed operands, whose results are reversed again, is the sort in the other order.

    Equals are in the order of the operands then as before.
    """

    name = "sort-backwards"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SortOp, rewriter: PatternRewriter, /) -> None:
        dim = integer(op.dim)
        back = [use.operation for r in op.results for use in r.uses]
        if op.kept() != shape_of(op.xs[0])[dim] or not back or not all(_reverses(v, dim) for v in op.xs):
            return
        if not all(isinstance(user, ReverseOp) and to_ints(user.dims) == (dim,) for user in back):
            return
        down = ints([1 - d for d in op.order().descending])
        made = SortOp.create(
            operands=[v.owner.x for v in op.xs if isinstance(v.owner, ReverseOp)],
            result_types=op.result_types,
            properties={**op.properties, "descending": down},
        )
        RewriteBuilder(rewriter).insert(made)
        for old, new in zip(op.results, made.results, strict=True):
            for user in [use.operation for use in old.uses]:
                rewriter.replace(user, (), [new])
        rewriter.erase(op)


def _reverses(value: SSAValue, dim: int) -> bool:
    """Whether a value is another one turned round along one dimension alone."""
    return isinstance(value.owner, ReverseOp) and to_ints(value.owner.dims) == (dim,)


class SortKeeps(GraphPattern):
    """A sort of whose results only the first positions are wanted keeps no others."""

    name = "sort-keeps"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SortOp, rewriter: PatternRewriter, /) -> None:
        dim, shape = integer(op.dim), shape_of(op.xs[0])
        slices = [use.operation for r in op.results for use in r.uses]
        if any_open(shape) or not slices:
            return
        if not all(isinstance(s, SliceOp) and _begins(s, dim) for s in slices):
            return
        wanted = max(to_ints(s.limits)[dim] for s in slices if isinstance(s, SliceOp))
        if wanted >= op.kept():
            return
        kept = [wanted if d == dim else n for d, n in enumerate(shape)]
        made = SortOp.create(
            operands=op.xs,
            result_types=[tensor(kept, element_of(x)) for x in op.xs],
            properties={**op.properties, "keep": integer_attr(wanted)},
        )
        RewriteBuilder(rewriter).insert(made)
        for old, new in zip(op.results, made.results, strict=True):
            _take(rewriter, old, new)
        rewriter.erase(op)


def _begins(op: SliceOp, dim: int) -> bool:
    """Whether a slice has the first positions along a dimension, and all along others."""
    shape, limits = shape_of(op.x), to_ints(op.limits)
    if any_open(limits):
        return False
    whole = all(d == dim or n == m for d, (n, m) in enumerate(zip(shape, limits, strict=True)))
    return whole and not any(to_ints(op.starts)) and all(s == 1 for s in to_ints(op.strides))


def _take(rewriter: PatternRewriter, old: OpResult, new: SSAValue) -> None:
    """Has slices of a result be slices of another one, which has fewer positions."""
    slices: Sequence[SliceOp] = [
        use.operation for use in old.uses if isinstance(use.operation, SliceOp)
    ]
    for op in slices:
        if op.result.type == new.type:
            rewriter.replace(op, (), [new])
            continue
        rewriter.replace(op, (), [_sliced(rewriter, op, new)])


def _sliced(rewriter: PatternRewriter, op: SliceOp, x: SSAValue) -> SSAValue:
    build = RewriteBuilder(rewriter)
    return build.slice(x, to_ints(op.starts), to_ints(op.limits), to_ints(op.strides))
