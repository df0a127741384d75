"""Ops on tensors without elements: the result is a constant or an operand."""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, text
from ...dialects.dtypes import dtype_name
from ...dialects.elementwise import identity
from ...dialects.graph import (
    ConcatOp,
    ConstantOp,
    ContractOp,
    ConvOp,
    DynamicUpdateSliceOp,
    GraphOp,
    HostOp,
    PadOp,
    ReduceOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from ..forms.tensor_builder import RewriteBuilder
from ..patterns import GraphPattern


class FoldEmptyResults(GraphPattern):
    """An op whose results have no elements is constants."""

    name = "fold-empty-results"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: GraphOp, rewriter: PatternRewriter, /) -> None:
        if not op.results or 0 not in shape_of(op.results[0]):  # asked of every op
            return
        if (
            all(0 in shape_of(r) for r in op.results)
            and not op.regions
            and type(op) not in (ConstantOp, HostOp)
            and not _is_left_out(op)
        ):
            build = RewriteBuilder(rewriter)
            constants = [build.constant(0, shape_of(r), element_of(r)) for r in op.results]
            rewriter.replace(op, (), constants)


def _is_left_out(op: GraphOp) -> bool:
    """Whether what an op gives ends in concatenations, which leave it out: a constant would have one size for each that
    is open."""
    return any_open(shape_of(op.results[0])) and _ends_in_parts(op)


def _ends_in_parts(op: Operation) -> bool:
    users = {use.operation for result in op.results for use in result.uses}
    return all(
        isinstance(user, ConcatOp)
        or (isinstance(user, GraphOp) and 0 in shape_of(user.results[0]) and _ends_in_parts(user))
        for user in users
    )


class FoldEmptyReduce(GraphPattern):
    """A reduction over no elements is its neutral value."""

    name = "fold-empty-reduce"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReduceOp, rewriter: PatternRewriter, /) -> None:
        if 0 in shape_of(op.x):
            element = element_of(op.result)
            neutral = identity(text(op.kind), dtype_name(element))
            constant = RewriteBuilder(rewriter).constant(neutral, shape_of(op.result), element)
            rewriter.replace(op, (), [constant])


class FoldEmptyContract(GraphPattern):
    """A product or convolution of operands without elements is zero."""

    name = "fold-empty-contract"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp | ConvOp, rewriter: PatternRewriter, /) -> None:
        if 0 in shape_of(op.lhs) or 0 in shape_of(op.rhs):
            zero = RewriteBuilder(rewriter).constant(0, shape_of(op.result), element_of(op.result))
            rewriter.replace(op, (), [zero])


class FoldEmptyPad(GraphPattern):
    """A pad around no elements is its value everywhere."""

    name = "fold-empty-pad"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: PadOp, rewriter: PatternRewriter, /) -> None:
        if 0 in shape_of(op.x):
            filled = RewriteBuilder(rewriter).broadcast(op.value, shape_of(op.result), [])
            rewriter.replace(op, (), [filled])


class FoldEmptyUpdate(GraphPattern):
    """An update by no elements changes nothing."""

    name = "fold-empty-update"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: DynamicUpdateSliceOp, rewriter: PatternRewriter, /) -> None:
        if 0 in shape_of(op.update):
            rewriter.replace(op, (), [op.x])


class FoldEmptyConcat(GraphPattern):
    """A concatenation leaves out parts without elements."""

    name = "fold-empty-concat"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConcatOp, rewriter: PatternRewriter, /) -> None:
        dim = integer(op.dim)
        parts = [x for x in op.parts if shape_of(x)[dim] != 0]
        if not parts or len(parts) == len(op.parts):
            return
        if len(parts) > 1:
            parts = [RewriteBuilder(rewriter).add(ConcatOp, parts, op.result.type, dim=op.dim)]
        rewriter.replace(op, (), parts)
