"""Products that add nothing up: each result is one product of two elements, which is work for the vector cores."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import to_ints
from ...dialects.dtypes import dtype_name, is_float, size
from ...dialects.graph import ContractOp
from ...dialects.graph.interface import element_of, shape_of
from .patterns import GraphPattern
from .tensor_builder import RewriteBuilder

MULTIPLIED_AS_THEY_ARE = ("f16", "bf16", "f32")
"""Floats whose product in their own type is the exact one rounded once, as a product in f32 that is rounded then."""


class ContractAsMultiply(GraphPattern):
    """A product whose contracted dimensions hold one element, or that has none, is a broadcast multiplication."""

    name = "contract-as-multiply"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        lhs_k, rhs_k = to_ints(op.lhs_contract), to_ints(op.rhs_contract)
        if size([shape_of(op.lhs)[d] for d in lhs_k]) != 1:
            return
        if element_of(op.lhs) != element_of(op.rhs):
            return
        build = RewriteBuilder(rewriter)
        out, work = shape_of(op.result), _work_type(op)
        batch, (m, n) = len(to_ints(op.lhs_batch)), op.free_dims()
        batches, rows = range(batch), range(batch, batch + len(m))
        columns = range(batch + len(m), len(out))
        factors = []
        for x, over, free, summed, dims in (
            (op.lhs, op.lhs_batch, m, lhs_k, [*batches, *rows]),
            (op.rhs, op.rhs_batch, n, rhs_k, [*batches, *columns]),
        ):
            x = build.transpose(x, [*to_ints(over), *free, *summed])
            if summed:
                x = build.reshape(x, [out[d] for d in dims])
            factors.append(build.broadcast(build.convert(x, work), out, dims))
        product = build.elementwise("mul", *factors)
        rewriter.replace(op, (), [build.convert(product, element_of(op.result))])


def _work_type(op: ContractOp) -> Attribute:
    """The type in which to multiply: integers wrap in the result's; floats round once, as the cube's sum would."""
    element, result = element_of(op.lhs), element_of(op.result)
    if not is_float(element):
        return result
    return result if element == result and dtype_name(element) in MULTIPLIED_AS_THEY_ARE else f32
