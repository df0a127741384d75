"""Loops and branches of the host program, and what ends their regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, TensorType, i1
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.traits import IsTerminator, RecursiveMemoryEffect

from ..base import FormattedOp
from ..dtypes import tensor
from .host_program import ControlOp, HostVisitor, R
from .streams import Command, is_number
from .types import GmType


@irdl_op_definition
class NpuYieldOp(Command):
    """Ends a region of the host program with the tensors that hold its results, then its numbers. Tensors that are not
    where the op around the region wants them are copied there, on `stream`."""

    PASSIVE: ClassVar[bool] = True

    name = "npu.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator())

    def moved(self) -> Sequence[tuple[SSAValue, SSAValue]]:
        """The tensors it yields and those that they are copied to, as far as these are other values; none in the region
        of a loop's condition."""
        around = self.parent_op()
        targets: Sequence[SSAValue] = ()
        if isinstance(around, LoopOp) and self.parent is around.body.block:
            targets = around.state
        elif isinstance(around, BranchOp):
            targets = around.outputs
        return [(v, t) for v, t in zip(self.values, targets, strict=False) if v is not t]

    def reads(self) -> Sequence[SSAValue]:
        return [v for v, _ in self.moved()]

    def writes(self) -> Sequence[SSAValue]:
        return [t for _, t in self.moved()]

    def at_issue(self) -> Sequence[SSAValue]:
        return [v for v in self.values if is_number(v.type)]

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.yields(self)


def check_yields(op: FormattedOp, what: str, block: Block, types: Sequence[Attribute]) -> None:
    """A region of the host program ends with npu.yield of these types. Raises VerifyException."""
    last = block.last_op
    got = [v.type for v in last.operands] if isinstance(last, NpuYieldOp) else []
    if got != list(types):
        given, wanted = (", ".join(map(str, t)) or "nothing" for t in (got, types))
        raise op.error(f"its {what} yields {given} where {wanted} is expected")


@irdl_op_definition
class LoopOp(ControlOp):
    """Repeats `body` while `condition` yields the number true, or `trip_count` times where that is known.

    `initial` has device tensors first: they are the loop's state, which the body's end updates in place. After them
    come numbers of the host, whose last values are the results.
    """

    REPEATS: ClassVar[bool] = True

    name = "npu.loop"
    initial = var_operand_def()
    results_ = var_result_def(TensorType)
    trip_count = opt_prop_def(IntegerAttr)
    condition = region_def("single_block")
    body = region_def("single_block")
    traits = traits_def(RecursiveMemoryEffect())

    @property
    def state(self) -> Sequence[SSAValue]:
        """The device tensors that the loop updates."""
        return self.operands[: len(self.operands) - len(self.results)]

    @property
    def numbers(self) -> Sequence[SSAValue]:
        """The initial values of the numbers that it carries."""
        return self.operands[len(self.operands) - len(self.results) :]

    def state_args(self, block: Block) -> Sequence[SSAValue]:
        """A region's names for the state; none where it uses the state's tensors themselves."""
        return block.args[: len(block.args) - len(self.results)]

    def number_args(self, block: Block) -> Sequence[SSAValue]:
        """A region's names for the numbers."""
        return block.args[len(self.state_args(block)) :]

    def ways(self) -> Sequence[Sequence[Block]]:
        regions = (self.body,) if self.trip_count is not None else (self.condition, self.body)
        return [[region.block for region in regions]]

    def reads(self) -> Sequence[SSAValue]:
        return self.state

    def at_issue(self) -> Sequence[SSAValue]:
        return self.numbers

    def writes(self) -> Sequence[SSAValue]:
        return self.state

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.loop(self)

    def verify_(self) -> None:
        types = [v.type for v in self.operands]
        if not all(isinstance(v.type, GmType) for v in self.state) or not all(
            is_number(v.type) for v in self.numbers
        ):
            raise self.error("takes device tensors, then a number for each result")
        if [v.type for v in self.numbers] != list(self.result_types):
            raise self.error("results must have the types of the numbers it carries")
        for region in self.regions:
            given = [a.type for a in region.block.args]
            if given and given not in (types, list(self.result_types)):
                raise self.error("block arguments must have the state's types")
        check_yields(self, "body", self.body.block, types)
        if self.trip_count is None:
            check_yields(self, "condition", self.condition.block, [tensor([], i1)])


@irdl_op_definition
class BranchOp(ControlOp):
    """Runs the branch that the first operand, a number of the host, selects (the last one where it is out of range).
    Device tensors that a branch yields are copied to `outputs`; numbers after them are the op's results."""

    REPEATS: ClassVar[bool] = False

    name = "npu.branch"
    index = operand_def(TensorType)
    outputs = var_operand_def(GmType)
    results_ = var_result_def(TensorType)
    branches = var_region_def("single_block")
    traits = traits_def(RecursiveMemoryEffect())

    def ways(self) -> Sequence[Sequence[Block]]:
        return [[region.block] for region in self.branches]

    def reads(self) -> Sequence[SSAValue]:
        return self.outputs

    def at_issue(self) -> Sequence[SSAValue]:
        return [self.index]

    def writes(self) -> Sequence[SSAValue]:
        return self.outputs

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.branch(self)

    def verify_(self) -> None:
        if not self.branches:
            raise self.error("needs a branch")
        if not is_number(self.index.type) or not all(is_number(t) for t in self.result_types):
            raise self.error("index and results must be tensors of rank 0")
        types = [*(v.type for v in self.outputs), *self.result_types]
        for i, region in enumerate(self.branches):
            check_yields(self, f"branch {i}", region.block, types)
