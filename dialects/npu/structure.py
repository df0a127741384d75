"""Kernels, their sections, and the host program that launches them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, SymbolRefAttr, TensorType, i1
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, NoTerminator, Pure, SymbolOpInterface

from ..base import INDEX, FormattedOp, integer, text, to_ints
from ..dtypes import tensor
from ..graph import ConstantOp, YieldOp
from ..graph.attributes import DataAttr
from .types import GmType

CORES = ("cube", "vector", "fused")


def is_number(type_: Attribute) -> bool:
    """Whether a value of the host program is a number in the host's memory: a tensor of rank 0."""
    return isinstance(type_, TensorType) and not type_.get_shape()


@irdl_op_definition
class KernelOp(FormattedOp):
    """A program that all cores of `grid` run: block arguments are the grid coordinates, the device tensors read,
    then the `outputs` written (with mix kernels also `workspaces`, private scratch in device memory)."""

    name = "npu.kernel"
    SYMBOL: ClassVar[str | None] = "sym_name"
    sym_name = prop_def(StringAttr)
    kind = prop_def(StringAttr)
    grid = prop_def(DenseArrayBase)
    outputs = prop_def(IntegerAttr)
    workspaces = prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface())

    def verify_(self) -> None:
        n = len(to_ints(self.grid))
        args = self.body.block.args
        if any(a.type != INDEX for a in args[:n]) or any(not isinstance(a.type, GmType) for a in args[n:]):
            raise self.error(f"@{text(self.sym_name)} needs {n} index arguments, then device tensors")
        if len(args) - n < integer(self.outputs) + integer(self.workspaces):
            raise self.error(f"@{text(self.sym_name)} has fewer arguments than outputs")
        if any(g < 1 for g in to_ints(self.grid)):
            raise self.error(f"@{text(self.sym_name)} has an empty grid")


@irdl_op_definition
class SectionOp(FormattedOp):
    """What one kind of core runs. The sections of a kernel run side by side; a vector section of a mix kernel
    runs on `units` vector cores for each cube core, numbered by its block argument."""

    name = "npu.section"
    core = prop_def(StringAttr)
    units = prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def verify_(self) -> None:
        if text(self.core) not in CORES:
            raise self.error(f"core {text(self.core)!r} is not one of {', '.join(CORES)}")
        if [a.type for a in self.body.block.args] != [INDEX]:
            raise self.error("has one index argument, the unit's number")


@irdl_op_definition
class GmAllocOp(FormattedOp):
    """A tensor in device memory; `address` (bytes) comes with npu-plan-memory."""

    name = "npu.gm_alloc"
    address = opt_prop_def(IntegerAttr)
    result = result_def(GmType)


@irdl_op_definition
class GmConstantOp(FormattedOp):
    """A constant that is in device memory before the program starts."""

    name = "npu.gm_constant"
    value = prop_def(DataAttr)
    address = opt_prop_def(IntegerAttr)
    result = result_def(GmType)


@irdl_op_definition
class LaunchOp(FormattedOp):
    """Runs a kernel on the device: inputs, outputs and workspaces in the kernel's order. Where the kernel takes a
    device tensor of rank 0, an input may be a number of the host, which travels with the launch's arguments."""

    name = "npu.launch"
    SYMBOL: ClassVar[str | None] = "callee"
    callee = prop_def(SymbolRefAttr)
    outputs = prop_def(IntegerAttr)
    workspaces = prop_def(IntegerAttr)
    arguments = var_operand_def()

    def inputs(self) -> Sequence:
        return self.operands[: len(self.operands) - integer(self.outputs) - integer(self.workspaces)]

    def written(self) -> Sequence:
        first = len(self.operands) - integer(self.outputs) - integer(self.workspaces)
        return self.operands[first : first + integer(self.outputs)]

    def verify_(self) -> None:
        if len(self.operands) < integer(self.outputs) + integer(self.workspaces):
            name = self.callee.root_reference.data
            raise self.error(f"@{name} has fewer operands than outputs and workspaces")
        for i, value in enumerate(self.operands):
            if not isinstance(value.type, GmType) and (i >= len(self.inputs()) or not is_number(value.type)):
                raise self.error(
                    f"operand {i} is {value.type}: it must be a device tensor, or an input number"
                )


@irdl_op_definition
class CallOp(FormattedOp):
    """Runs a function of the host program on device tensors: its inputs, then the `outputs` that it writes. The
    function has a frame of its own in device memory for everything else, since no function calls itself."""

    name = "npu.call"
    SYMBOL: ClassVar[str | None] = "callee"
    callee = prop_def(SymbolRefAttr)
    outputs = prop_def(IntegerAttr)
    arguments = var_operand_def(GmType)

    def inputs(self) -> Sequence[SSAValue]:
        return self.operands[: len(self.operands) - integer(self.outputs)]

    def written(self) -> Sequence[SSAValue]:
        return self.operands[len(self.operands) - integer(self.outputs) :]

    def verify_(self) -> None:
        name = self.callee.root_reference.data
        if len(self.operands) < integer(self.outputs):
            raise self.error(f"@{name} has fewer operands than outputs")
        for v in self.operands:
            assert isinstance(v.type, GmType)
            if not v.type.dense:
                raise self.error(f"@{name} gets {v.type}; it takes whole tensors")


@irdl_op_definition
class CopyOp(FormattedOp):
    """Copies a whole tensor within device memory."""

    name = "npu.copy"
    source = operand_def(GmType)
    dest = operand_def(GmType)

    def written(self) -> Sequence[SSAValue]:
        return [self.dest]

    def verify_(self) -> None:
        assert isinstance(self.source.type, GmType) and isinstance(self.dest.type, GmType)
        if self.source.type.bytes != self.dest.type.bytes:
            raise self.error(f"copies {self.source.type} to {self.dest.type}")


@irdl_op_definition
class HostCallOp(FormattedOp):
    """Brings the inputs to the host, runs `module` (StableHLO) there, and sends the outputs back. An input may also be
    a number that the host has. `work`: bytes that the host reads and writes meanwhile."""

    name = "npu.host_call"
    op = prop_def(StringAttr)
    module = prop_def(StringAttr)
    outputs = prop_def(IntegerAttr)
    work = opt_prop_def(IntegerAttr)
    arguments = var_operand_def()

    def inputs(self) -> Sequence[SSAValue]:
        return self.arguments[: len(self.arguments) - integer(self.outputs)]

    def written(self) -> Sequence[SSAValue]:
        return self.arguments[len(self.arguments) - integer(self.outputs) :]

    def verify_(self) -> None:
        inputs = len(self.operands) - integer(self.outputs)
        for i, value in enumerate(self.operands):
            if not isinstance(value.type, GmType) and (i >= inputs or not is_number(value.type)):
                raise self.error(
                    f"operand {i} is {value.type}: it must be a device tensor, or an input number"
                )


@irdl_op_definition
class ScalarsOp(FormattedOp):
    """Arithmetic on numbers in the host's memory, in the ops of the graph level."""

    name = "npu.scalars"
    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), Pure())

    def verify_(self) -> None:
        if not all(is_number(v.type) for v in (*self.operands, *self.results)):
            raise self.error("takes and gives tensors of rank 0")
        if [a.type for a in self.body.block.args] != [v.type for v in self.inputs]:
            raise self.error("block arguments must have the inputs' types")
        last = self.body.block.last_op
        if not isinstance(last, YieldOp) or [v.type for v in last.operands] != list(self.result_types):
            raise self.error("must end with graph.yield of the results' types")

    def work(self) -> int:
        """How many operations the host does."""
        return sum(not isinstance(op, YieldOp | ConstantOp) for op in self.body.block.ops)


@irdl_op_definition
class ToHostOp(FormattedOp):
    """Waits for the device, then reads a number of its memory."""

    name = "npu.to_host"
    source = operand_def(GmType)
    result = result_def(TensorType)

    def verify_(self) -> None:
        assert isinstance(self.source.type, GmType)
        kind = self.source.type
        if self.result.type != tensor([], kind.element) or kind.shape:
            raise self.error(f"reads {kind} as {self.result.type}")


@irdl_op_definition
class ToDeviceOp(FormattedOp):
    """Writes a number of the host into device memory."""

    name = "npu.to_device"
    number = operand_def(TensorType)
    dest = operand_def(GmType)

    def written(self) -> Sequence[SSAValue]:
        return [self.dest]

    def verify_(self) -> None:
        assert isinstance(self.dest.type, GmType)
        kind = self.dest.type
        if self.number.type != tensor([], kind.element) or kind.shape:
            raise self.error(f"writes {self.number.type} to {kind}")


@irdl_op_definition
class NpuYieldOp(FormattedOp):
    """Ends a region of the host program with the tensors that hold its results, then its numbers."""

    name = "npu.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator())


def check_yields(op: FormattedOp, what: str, block: Block, types: Sequence[Attribute]) -> None:
    """A region of the host program ends with npu.yield of these types. Raises VerifyException."""
    last = block.last_op
    got = [v.type for v in last.operands] if isinstance(last, NpuYieldOp) else []
    if got != list(types):
        given, wanted = (", ".join(map(str, t)) or "nothing" for t in (got, types))
        raise op.error(f"its {what} yields {given} where {wanted} is expected")


@irdl_op_definition
class LoopOp(FormattedOp):
    """Repeats `body` while `condition` yields the number true, or `trip_count` times where that is known.

    `initial` has device tensors first: they are the loop's state, which the body's end updates in place. After them
    come numbers of the host, whose last values are the results.
    """

    name = "npu.loop"
    initial = var_operand_def()
    results_ = var_result_def(TensorType)
    trip_count = opt_prop_def(IntegerAttr)
    condition = region_def("single_block")
    body = region_def("single_block")

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

    def written(self) -> Sequence[SSAValue]:
        return self.state

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
class BranchOp(FormattedOp):
    """Runs the branch that the first operand, a number of the host, selects (the last one where it is out of range).
    Device tensors that a branch yields are copied to `outputs`; numbers after them are the op's results."""

    name = "npu.branch"
    index = operand_def(TensorType)
    outputs = var_operand_def(GmType)
    results_ = var_result_def(TensorType)
    branches = var_region_def("single_block")

    def written(self) -> Sequence[SSAValue]:
        return self.outputs

    def verify_(self) -> None:
        if not is_number(self.index.type) or not all(is_number(t) for t in self.result_types):
            raise self.error("index and results must be tensors of rank 0")
        types = [*(v.type for v in self.outputs), *self.result_types]
        for i, region in enumerate(self.branches):
            check_yields(self, f"branch {i}", region.block, types)


WRITERS = (LaunchOp, CallOp, CopyOp, HostCallOp, ToDeviceOp, LoopOp, BranchOp)
"""Ops that write device tensors: those of their `written()`."""

__all__ = [
    "WRITERS",
    "BranchOp",
    "CallOp",
    "CopyOp",
    "GmAllocOp",
    "GmConstantOp",
    "HostCallOp",
    "KernelOp",
    "LaunchOp",
    "LoopOp",
    "NpuYieldOp",
    "ScalarsOp",
    "SectionOp",
    "ToDeviceOp",
    "ToHostOp",
    "is_number",
]
