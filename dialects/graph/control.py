"""Control flow, fusion regions and host calls of the graph level."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, StringAttr, i1
from xdsl.ir import Attribute
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure

from ..base import FormattedOp, text
from ..dtypes import tensor
from .ops import GraphOp

FUSION_KINDS = ("vector", "cube", "mix", "move", "index")
"""What a fusion becomes: loops on vector cores; a contraction; a contraction with a vector epilogue; data
movement by DMA alone; indexed access."""


@irdl_op_definition
class YieldOp(FormattedOp):
    """Ends a region of the graph level with its results."""

    name = "graph.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator())


class RegionOp(GraphOp):
    def infer(self) -> Sequence[Attribute]:
        return list(self.result_types)

    def yielded(self, region: int) -> YieldOp:
        last = self.regions[region].block.last_op
        if not isinstance(last, YieldOp):
            raise self.error(f"region {region} must end with graph.yield")
        return last

    def check_yield(self, region: int, expected: Sequence[Attribute]) -> None:
        got = [v.type for v in self.yielded(region).values]
        if got != list(expected):
            given, wanted = (", ".join(map(str, types)) or "nothing" for types in (got, expected))
            raise self.error(f"region {region} yields {given} where {wanted} is expected")

    def flops(self) -> int:
        return sum(
            op.flops() for region in self.regions for op in region.block.ops if isinstance(op, GraphOp)
        )


@irdl_op_definition
class FusionOp(RegionOp):
    """Ops that become one kernel. The region is closed: everything comes in through `inputs`."""

    name = "graph.fusion"
    inputs = var_operand_def()
    outputs = var_result_def()
    kind = prop_def(StringAttr)
    domain = prop_def(DenseArrayBase)
    """Extents of the iteration axes that the ops' `axes` attributes refer to."""
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), Pure())

    def verify_(self) -> None:
        if text(self.kind) not in FUSION_KINDS:
            raise self.error(f"kind {text(self.kind)!r} is not one of {', '.join(FUSION_KINDS)}")
        if [a.type for a in self.body.block.args] != [v.type for v in self.inputs]:
            raise self.error("block arguments must have the inputs' types")
        self.check_yield(0, self.result_types)


@irdl_op_definition
class WhileOp(RegionOp):
    """Repeats `body` on the carried values while `condition` yields true.

    A counted loop has both `trip_count`, how often the body runs, and `counter`, the position of the carried
    i32 scalar that steps by one from its initial value.
    """

    name = "graph.while"
    inits = var_operand_def()
    outputs = var_result_def()
    trip_count = opt_prop_def(IntegerAttr)
    counter = opt_prop_def(IntegerAttr)
    condition = region_def("single_block")
    body = region_def("single_block")
    traits = traits_def(Pure())

    def verify_(self) -> None:
        types = [v.type for v in self.inits]
        if list(self.result_types) != types:
            raise self.error("results must have the types of the initial values")
        for region in (self.condition, self.body):
            if [a.type for a in region.block.args] != types:
                raise self.error("block arguments must have the types of the initial values")
        if [v.type for v in self.yielded(0).values] != [tensor([], i1)]:
            raise self.error("condition must yield one tensor<i1>")
        self.check_yield(1, types)


@irdl_op_definition
class CaseOp(RegionOp):
    """Runs branch `index` (the last one where it is out of range); branches see the values around them."""

    name = "graph.case"
    index = operand_def()
    outputs = var_result_def()
    branches = var_region_def("single_block")
    traits = traits_def(Pure())

    def verify_(self) -> None:
        if not self.branches:
            raise self.error("needs a branch")
        for i in range(len(self.branches)):
            self.check_yield(i, self.result_types)


@irdl_op_definition
class HostOp(GraphOp):
    """A StableHLO op that no engine of the device runs: JAX runs `module` on the host, at a stated cost.

    `op` names it in reports; `module` is StableHLO text with one public function `main`.
    """

    name = "graph.host"
    inputs = var_operand_def()
    outputs = var_result_def()
    op = prop_def(StringAttr)
    module = prop_def(StringAttr)
    reasons = opt_prop_def(ArrayAttr)
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return list(self.result_types)
