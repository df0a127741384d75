"""Functions that a program writes in terms of others."""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.dtypes import dtype_name
from ...dialects.graph import ELEMENTWISE, ElementwiseOp
from ...dialects.graph.interface import element_of
from ..forms.access import splat_of
from ..forms.tensor_builder import RewriteBuilder
from ..patterns import GraphPattern


class TermsAsLogistic(GraphPattern):
    """1 / (1 + exp(-x)), as JAX writes `sigmoid`, is one function where its type is computed in a wider one.

    Each of the terms would be rounded on the way, and converted twice."""

    name = "terms-as-logistic"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ElementwiseOp, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, ELEMENTWISE["div"]) or splat_of(op.operands[0]) != 1:
            return
        dtype = dtype_name(element_of(op.results[0]))
        if self.machine.vector.computes("exp", dtype) == dtype:
            return
        negated = _of("exp", _beside_one(op.operands[1]))
        source = _of("neg", negated)
        if source is not None:
            rewriter.replace(op, (), [RewriteBuilder(rewriter).elementwise("logistic", source)])


def _of(function: str, value: SSAValue | None) -> SSAValue | None:
    """What a function is of that makes a value for one op alone."""
    if value is None or not isinstance(value.owner, ELEMENTWISE[function]) or not value.has_one_use():
        return None
    return value.owner.operands[0]


def _beside_one(value: SSAValue) -> SSAValue | None:
    """What 1 is added to, where a sum is for one op alone."""
    if not isinstance(value.owner, ELEMENTWISE["add"]) or not value.has_one_use():
        return None
    left, right = value.owner.operands
    return right if splat_of(left) == 1 else left if splat_of(right) == 1 else None
