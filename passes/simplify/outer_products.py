"""Products without a contraction: each result is one product of two elements, so they run on the vector cores."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import to_ints
from ...dialects.dtypes import dtype_name, is_float, numbers_in, size
from ...dialects.graph import ContractOp, TransposeOp
from ...dialects.graph.interface import element_of, shape_of
from ..forms.tensor_builder import RewriteBuilder
from ..patterns import GraphPattern

MULTIPLIED_AS_THEY_ARE = ("f16", "bf16", "f32")
"""Floats whose product in their own type is the exact one rounded once, as a product in f32 that is rounded then."""


class ContractAsMultiply(GraphPattern):
    """A product that has no contracted dimension, or only of one element, is a broadcast multiplication.

    Its factors are brought to the order that a transpose behind it asks for.
    """

    name = "contract-as-multiply"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        lhs_k, rhs_k = to_ints(op.lhs_contract), to_ints(op.rhs_contract)
        terms = size([shape_of(op.lhs)[d] for d in lhs_k]) * numbers_in(element_of(op.lhs))
        if terms != 1 or element_of(op.lhs) != element_of(op.rhs):
            return
        user = op.result.get_user_of_unique_use()
        transposed = user if isinstance(user, TransposeOp) else None
        m, n = op.free_dims()
        rank, batch = len(shape_of(op.result)), len(to_ints(op.lhs_batch))
        perm = tuple(range(rank)) if transposed is None else to_ints(transposed.perm)
        place = [perm.index(d) for d in range(rank)]
        batches, rows, columns = place[:batch], place[batch : batch + len(m)], place[batch + len(m) :]
        build = RewriteBuilder(rewriter)
        out, work = [shape_of(op.result)[p] for p in perm], _work_type(op)
        factors = []
        for x, kept, places, summed in (
            (op.lhs, [*to_ints(op.lhs_batch), *m], [*batches, *rows], lhs_k),
            (op.rhs, [*to_ints(op.rhs_batch), *n], [*batches, *columns], rhs_k),
        ):
            ordered = sorted(zip(places, kept, strict=True))
            x = build.transpose(x, [*(d for _, d in ordered), *summed])
            if summed:
                x = build.reshape(x, [out[at] for at, _ in ordered])
            factors.append(build.broadcast(build.convert(x, work), out, [at for at, _ in ordered]))
        product = build.convert(build.elementwise("mul", *factors), element_of(op.result))
        if transposed is None:
            rewriter.replace(op, (), [product])
        else:
            rewriter.replace(transposed, (), [product])
            rewriter.erase(op)


def _work_type(op: ContractOp) -> Attribute:
    """The type in which to multiply: integers wrap in the result's; floats round once, as the cube's sum would."""
    element, result = element_of(op.lhs), element_of(op.result)
    if not is_float(element):
        return result
    return result if element == result and dtype_name(element) in MULTIPLIED_AS_THEY_ARE else f32
