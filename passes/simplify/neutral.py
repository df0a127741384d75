"""Drops arithmetic with neutral elements: JAX counts the places of an open dimension as 0 + 1 * i."""

from __future__ import annotations

from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.dtypes import dtype_name
from ...dialects.graph import ElementwiseOp
from ...dialects.graph.interface import element_of
from ..forms.access import splat_of
from ..patterns import GraphPattern

NEUTRAL = {"add": (0, True), "sub": (0, False), "mul": (1, True), "div": (1, False)}
"""By function of two numbers, the one that changes nothing on the right, and whether it does so on the left, too."""

EXACT = ("mul", "div")
"""Those that change no float either; the sum of -0 and 0 is 0."""


class DropNeutralOperand(GraphPattern):
    """Numbers plus or minus 0, times or by 1, are these numbers."""

    name = "drop-neutral-operand"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ElementwiseOp, rewriter: PatternRewriter, /) -> None:
        known = NEUTRAL.get(op.FUNCTION.name)
        if known is None:
            return
        number, left = known
        kind = dtype_name(element_of(op.results[0]))
        if kind == "i1" or not (kind.startswith(("i", "ui")) or (kind[0] in "fb" and op.FUNCTION.name in EXACT)):
            return
        for same, other in ((0, 1), (1, 0)) if left else ((0, 1),):
            if splat_of(op.operands[other]) == number and op.operands[same].type == op.results[0].type:
                rewriter.replace(op, (), [op.operands[same]])
                return
