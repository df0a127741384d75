"""Products whose accumulators do not leave the cube in the type that the program asks for."""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.dtypes import dtype_name, element_type, is_float, tensor
from ...dialects.graph import ELEMENTWISE, ContractOp, ConvOp, ElementwiseOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.legality import refuse_drain
from ..forms.access import rearranges
from ..forms.tensor_builder import RewriteBuilder
from ..patterns import GraphPattern


class ConvertAccumulators(GraphPattern):
    """A product of integers that is wanted as i8 is one in i32, converted on the vector cores.

    The way out of the cube rounds f32, and passes everything else on as it is.
    """

    name = "convert-accumulators"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp | ConvOp, rewriter: PatternRewriter, /) -> None:
        dtype, wanted = dtype_name(element_of(op.lhs)), dtype_name(element_of(op.result))
        if dtype not in self.machine.cube:
            return
        total = self.machine.accumulator(dtype)
        if refuse_drain(self.machine, total, wanted) is None:
            return
        build = RewriteBuilder(rewriter)
        wide = tensor(shape_of(op.result), element_type(total))
        product = build.add(type(op), list(op.operands), wide, **op.properties)
        rewriter.replace(op, (), [build.convert(product, element_of(op.result))])


class RoundAccumulators(GraphPattern):
    """A conversion behind a product of floats is the way of its sums out of the cube, where that rounds as it does.

    Both round the sums once. Layout ops may stand between the two; nothing else reads the wide sums.
    """

    name = "round-accumulators"

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ElementwiseOp, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, ELEMENTWISE["convert"]):
            return
        wanted, moves, value = element_of(op.results[0]), list[Operation](), op.operands[0]
        while rearranges(value.owner) and value.has_one_use():
            moves.append(value.owner)
            value = value.owner.operands[0]
        product = value.owner
        if not isinstance(product, ContractOp | ConvOp) or not value.has_one_use():
            return
        multiplied, total = dtype_name(element_of(product.lhs)), dtype_name(element_of(value))
        if not is_float(total) or not self._rounds(multiplied, total, dtype_name(wanted)):
            return
        build, operands = RewriteBuilder(rewriter), list(product.operands)
        for old in (product, *reversed(moves)):
            kind = tensor(shape_of(old.results[0]), wanted)
            result = build.add(type(old), operands, kind, **old.properties)
            assert isinstance(result.owner, Operation)
            result.owner.location = old.location
            operands = [result]
        rewriter.replace(op, (), operands)

    def _rounds(self, multiplied: str, total: str, wanted: str) -> bool:
        """Whether sums of products of a type, which `total` holds as they are, leave the cube as `wanted` as well."""
        return (
            wanted != total
            and multiplied in self.machine.cube
            and total == self.machine.accumulator(multiplied)
            and refuse_drain(self.machine, total, wanted) is None
        )
