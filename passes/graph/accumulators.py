"""Products whose accumulators do not leave the cube in the type that the program asks for."""

from __future__ import annotations

from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.dtypes import dtype_name, element_type, tensor
from ...dialects.graph import ContractOp, ConvOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.legality import refuse_drain
from .patterns import GraphPattern
from .tensor_builder import RewriteBuilder


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
