"""Rewrites of graph-simplify for the ops of the prefix-xor unit."""

from __future__ import annotations

from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from tilewright.dialects.graph import ELEMENTWISE
from tilewright.passes.patterns import GraphPattern

from .ops import PrefixXorOp

XorOp = ELEMENTWISE["xor"]


class MergePrefixXors(GraphPattern):
    """The xor of two prefix xors becomes the prefix xor of the xor: one pass over the unit instead of two."""

    name = "acme-merge-prefix-xors"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: XorOp, rewriter: PatternRewriter, /) -> None:
        made = [value.owner for value in op.operands]
        if not all(isinstance(o, PrefixXorOp) and o.result.has_one_use() for o in made):
            return
        mixed = XorOp.create(operands=[o.x for o in made], result_types=op.result_types)
        rewriter.replace(op, [mixed, PrefixXorOp.create(operands=mixed.results, result_types=op.result_types)])
