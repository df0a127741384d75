"""Kernels, their sections, and the host program that launches them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice, takewhile
from typing import ClassVar

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import (
    EffectInstance,
    IsolatedFromAbove,
    NoTerminator,
    Pure,
    SymbolOpInterface,
)

from ..base import integer, to_ints
from ..dtypes import element_type, itemsize, shape_in, size, tensor
from ..graph import ConstantOp, YieldOp
from ..graph.attributes import DataAttr
from ..host_text import OpenTextAttr
from ..symbols import KernelUser
from .control import BranchOp, LoopOp, NpuYieldOp
from .host_program import DeviceTensorOp, HostProgramOp, HostVisitor, R, is_passive
from .interface import gm
from .legality import Kernel, Section
from .streams import COMPUTE, COPY_IN, COPY_OUT, HOST, Command, EventOp, RecordEventOp, WaitEventOp, is_number
from .types import GmType


@irdl_op_definition
class KernelOp(Kernel):
    """A program that all cores of `grid` run: block arguments are the grid coordinates, the device tensors read,
    then the `outputs` written (with mix kernels also `workspaces`, private scratch in device memory)."""

    name = "npu.kernel"
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface())


@irdl_op_definition
class SectionOp(Section):
    """What one kind of core runs. The sections of a kernel run side by side; a vector section of a mix kernel
    runs on `units` vector cores for each cube core, numbered by its block argument."""

    name = "npu.section"
    traits = traits_def(NoTerminator())


@irdl_op_definition
class GmAllocOp(DeviceTensorOp):
    """A tensor in device memory; `address` (bytes) comes with npu-plan-memory."""

    name = "npu.gm_alloc"


@irdl_op_definition
class GmConstantOp(DeviceTensorOp):
    """A constant that is in device memory before the program starts."""

    name = "npu.gm_constant"
    value = prop_def(DataAttr)

    def verify_(self) -> None:
        data = self.value.data
        want, kind = GmType.of(data.shape, element_type(data.dtype)), self.result.type
        # an open dimension may be the number that the data has: then shapes are equal, and types are not
        if kind != want and not (
            isinstance(kind, GmType) and kind.dense and kind.element == want.element and kind.shape == want.shape
        ):
            raise self.error(f"should give {want}, but is written as {self.result.type}")


AS_A_STAGE = ("joined", "nowait", "first_core", "ahead", "barriers")
"""The properties of a launch that say how it is a stage of another one."""


@irdl_op_definition
class LaunchOp(Command, KernelUser):
    """Runs a kernel on the device: inputs, outputs and workspaces in the kernel's order. Where the kernel takes a
    device tensor of rank 0, an input may be a number of the host, which travels with the launch's arguments.

    `joined`: it runs in the launch of the npu.launch before it, behind a barrier over all cores of that launch. The
    two then are of one *group*, which is one launch of the device. `nowait`: no barrier stands before it, so cores
    begin with it that are done with what is before it. `first_core`: its blocks are on the cores of the group from
    this one on, in cube cores or the share of the chip that one is: on others than launches before it, which it runs
    beside. `ahead`: numbers of inputs that cores read before they wait at the last barrier: each goes on until it comes
    to another tensor. `barriers`: they read these ahead of so many barriers, where that is not one: each core as soon
    as it is done with what it does before. `again`: it makes what an equal launch before it made, so that this need
    not stay in memory.

    `updates`: the numbers of outputs that the kernel writes in part: what their tensors hold stays elsewhere."""

    name = "npu.launch"
    SYMBOL: ClassVar[str | None] = "callee"
    outputs = prop_def(IntegerAttr)
    workspaces = prop_def(IntegerAttr)
    joined = opt_prop_def(UnitAttr)
    nowait = opt_prop_def(UnitAttr)
    first_core = opt_prop_def(IntegerAttr)
    ahead = opt_prop_def(DenseArrayBase)
    barriers = opt_prop_def(IntegerAttr)
    updates = opt_prop_def(DenseArrayBase)
    again = opt_prop_def(UnitAttr)
    arguments = var_operand_def()

    def group(self) -> list[LaunchOp]:
        """The launches that run as one with this one, itself included, in order."""
        found: list[LaunchOp] = [self]
        while found[0].joined is not None and (before := joinable_before(found[0])) is not None:
            found.insert(0, before)
        return [*found, *self.stages_behind()]

    def stages_behind(self) -> Iterator[LaunchOp]:
        """The launches of its group behind this one, in order."""
        after = self.next_op
        while after is not None:
            if isinstance(after, LaunchOp) and after.joined is not None:
                yield after
            elif not splits_nothing(after):
                break
            after = after.next_op

    def without_barrier(self) -> list[LaunchOp]:
        """This launch and those behind it up to the next barrier, or the end of its group."""
        return [self, *takewhile(lambda op: op.nowait is not None, self.stages_behind())]

    @property
    def begins_on(self) -> int:
        """The first of the cores that its blocks are on, counted within its group."""
        return 0 if self.first_core is None else integer(self.first_core)

    def stages_before(self) -> list[LaunchOp]:
        """The launches of its group between the barrier before this one and the one before that, the last one first."""
        first = [self, *self.independent_before()][-1]
        before = None if first.joined is None else joinable_before(first)
        return [] if before is None else [before, *before.independent_before()]

    def sets_before(self) -> Iterator[list[LaunchOp]]:
        """The launches of its group before this one between two barriers each, as `stages_before` has them, back to the
        first."""
        before = self.stages_before()
        while before:
            yield before
            before = before[-1].stages_before()

    @property
    def passes_barriers(self) -> int:
        """Ahead of how many barriers it reads what it reads ahead."""
        return 1 if self.barriers is None else integer(self.barriers)

    def before_reading(self) -> list[LaunchOp]:
        """The launches that may still run while this one reads what it reads ahead, the last one first."""
        return [op for stage in islice(self.sets_before(), self.passes_barriers) for op in stage]

    def independent_before(self) -> list[LaunchOp]:
        """The launches before this one that no barrier parts from it, the last one first."""
        found: list[LaunchOp] = []
        launch = self
        while launch.nowait is not None and (before := joinable_before(launch)) is not None:
            found.append(before)
            launch = before
        return found

    def inputs(self) -> Sequence[SSAValue]:
        return self.operands[: len(self.operands) - integer(self.outputs) - integer(self.workspaces)]

    def written(self) -> Sequence[SSAValue]:
        first = len(self.operands) - integer(self.outputs) - integer(self.workspaces)
        return self.operands[first : first + integer(self.outputs)]

    def updated(self) -> Sequence[SSAValue]:
        """The outputs that keep what they hold where the kernel does not write."""
        return [self.written()[o] for o in to_ints(self.updates)]

    def reads(self) -> Sequence[SSAValue]:
        return [v for v in self.inputs() if not is_number(v.type)]

    def at_issue(self) -> Sequence[SSAValue]:
        return [v for v in self.inputs() if is_number(v.type)]

    def writes(self) -> Sequence[SSAValue]:
        """Outputs, and workspaces, which hold what the kernel puts there meanwhile."""
        return self.operands[len(self.inputs()) :]

    def verify_(self) -> None:
        super().verify_()
        if len(self.operands) < integer(self.outputs) + integer(self.workspaces):
            name = self.callee.root_reference.data
            raise self.error(f"@{name} has fewer operands than outputs and workspaces")
        _check_updates(self, self.updates, integer(self.outputs))
        for i, value in enumerate(self.operands):
            if not isinstance(value.type, GmType) and (i >= len(self.inputs()) or not is_number(value.type)):
                raise self.error(
                    f"operand {i} is {value.type}: it must be a device tensor, or an input number"
                )
        if self.joined is not None and joinable_before(self) is None:
            name = self.callee.root_reference.data
            raise self.error(f"@{name} is joined, but right before it there is no npu.launch on its stream")
        if self.nowait is not None and self.joined is None:
            name = self.callee.root_reference.data
            raise self.error(f"@{name} waits for no barrier, but it is joined to no npu.launch before it")
        if self.first_core is not None and (self.nowait is None or integer(self.first_core) < 1):
            name = self.callee.root_reference.data
            raise self.error(
                f"@{name} begins on core {self.begins_on}, but only a launch that waits for no barrier begins "
                "on another core than 0"
            )
        self._check_ahead()

    def _check_ahead(self) -> None:
        """Raises VerifyException where there is no barrier before which something could be read, or it is no input."""
        ahead, name = list(to_ints(self.ahead)), self.callee.root_reference.data
        if self.ahead is not None and not self.stages_before():
            raise self.error(f"@{name} reads ahead of a barrier, but there is none before it")
        _check_each_once(self, f"@{name} reads {ahead} ahead", ahead, "inputs", len(self.inputs()))
        if self.barriers is not None:
            passed = self.passes_barriers if self.ahead is not None else 0
            there = sum(1 for _ in islice(self.sets_before(), max(passed, 0)))
            if not 1 <= self.passes_barriers <= there:
                raise self.error(
                    f"@{name} reads ahead of {self.passes_barriers} barriers, but there are {there} that it could pass"
                )

    def misfit(self, kernel: Kernel) -> str | None:
        name = self.callee.root_reference.data
        if any(kernel.properties.get(key) != self.properties[key] for key in ("outputs", "workspaces")):
            return f"names other outputs and workspaces than @{name}"
        grid = kernel.properties.get("grid")
        axes = len(to_ints(grid)) if isinstance(grid, DenseArrayBase) else 0
        takes = [a.type for a in kernel.body.block.args[axes:]]
        if len(self.operands) != len(takes):
            return f"gives @{name} {len(self.operands)} tensors, but it takes {len(takes)}"
        for i, (value, want) in enumerate(zip(self.operands, takes, strict=True)):
            if not _fits(value.type, want):
                return f"gives @{name} {value.type} as tensor {i}, but it takes {want}"
        return None

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.launch(self)


def _check_updates(op: HostProgramOp, updates: DenseArrayBase | None, outputs: int) -> None:
    """Raises VerifyException where these are not some of the outputs of an op."""
    given = list(to_ints(updates))
    _check_each_once(op, f"updates {given}", given, "outputs", outputs)


def _check_each_once(op: HostProgramOp, said: str, given: Sequence[int], kind: str, count: int) -> None:
    """Raises VerifyException where the numbers that it `said` are not some of so many inputs or outputs."""
    if any(not 0 <= i < count for i in given) or len(set(given)) < len(given):
        raise op.error(f"{said}, but has {kind} 0 to {count - 1}, each once")


def splits_nothing(op: Operation) -> bool:
    """Whether an op may stand between the launches of a group: a tensor or a view, at which nothing happens."""
    return is_passive(op) and not isinstance(op, EventOp)


def joinable_before(launch: LaunchOp) -> LaunchOp | None:
    """The launch that another one may be joined to: on its stream, and the command before it, without an event between
    them. None where there is none."""
    before = launch.prev_op
    while before is not None and splits_nothing(before):
        before = before.prev_op
    return before if isinstance(before, LaunchOp) and before.queue == launch.queue else None


def _fits(kind: Attribute, want: Attribute) -> bool:
    """Whether a kernel that takes a device tensor may be given a value of this type."""
    if not isinstance(want, GmType):
        return False
    if isinstance(kind, GmType):
        return (kind.shape, kind.element) == (want.shape, want.element)
    if not isinstance(kind, TensorType):
        return False
    return (shape_in(kind), kind.element_type) == (want.shape, want.element) or (is_number(kind) and not want.shape)


@irdl_op_definition
class CallOp(HostProgramOp):
    """Runs a function of the host program on device tensors: its inputs, then the `outputs` that it writes. The
    function has a frame of its own in device memory for everything else, since no function calls itself.

    `updates`: the numbers of outputs that hold something before, which the function reads and may leave there."""

    name = "npu.call"
    SYMBOL: ClassVar[str | None] = "callee"
    callee = prop_def(SymbolRefAttr)
    outputs = prop_def(IntegerAttr)
    updates = opt_prop_def(DenseArrayBase)
    arguments = var_operand_def(GmType)

    def inputs(self) -> Sequence[SSAValue]:
        return self.operands[: len(self.operands) - integer(self.outputs)]

    def written(self) -> Sequence[SSAValue]:
        return self.operands[len(self.operands) - integer(self.outputs) :]

    def updated(self) -> Sequence[SSAValue]:
        """The outputs that hold something before."""
        return [self.written()[o] for o in to_ints(self.updates)]

    def reads(self) -> Sequence[SSAValue]:
        return [*self.inputs(), *self.updated()]

    def writes(self) -> Sequence[SSAValue]:
        return self.written()

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.call(self)

    def verify_(self) -> None:
        name = self.callee.root_reference.data
        if len(self.operands) < integer(self.outputs):
            raise self.error(f"@{name} has fewer operands than outputs")
        _check_updates(self, self.updates, integer(self.outputs))
        for v in self.operands:
            assert isinstance(v.type, GmType)
            if not v.type.dense:
                raise self.error(f"@{name} gets {v.type}; it takes whole tensors")


@irdl_op_definition
class CopyOp(Command):
    """Copies a whole tensor within device memory."""

    name = "npu.copy"
    source = operand_def(GmType)
    dest = operand_def(GmType)

    def reads(self) -> Sequence[SSAValue]:
        return [self.source]

    def writes(self) -> Sequence[SSAValue]:
        return [self.dest]

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.copy(self)

    def verify_(self) -> None:
        super().verify_()
        assert isinstance(self.source.type, GmType) and isinstance(self.dest.type, GmType)
        if self.source.type.bytes != self.dest.type.bytes:
            raise self.error(f"copies {self.source.type} to {self.dest.type}")


@irdl_op_definition
class HostCallOp(Command):
    """Runs `module` (StableHLO) on the host: tensors of the host's memory in and out. In the text of a module with open
    dimensions sizes stand for numbers, as in `graph.host`. `work`: bytes that the host reads and writes meanwhile."""

    STREAM: ClassVar[str] = HOST

    name = "npu.host_call"
    op = prop_def(StringAttr)
    module = prop_def(StringAttr | OpenTextAttr)
    work = opt_prop_def(IntegerAttr)
    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)

    def elements(self) -> int:
        """Of all results."""
        return sum(size(shape_in(v.type)) for v in self.outputs if isinstance(v.type, TensorType))

    def host_bytes(self) -> int:
        """What the host reads and writes for it, at least."""
        if self.work is not None:
            return integer(self.work)
        types = [v.type for v in (*self.inputs, *self.outputs) if isinstance(v.type, TensorType)]
        return sum(size(shape_in(t)) * itemsize(t.element_type) for t in types)

    def reads(self) -> Sequence[SSAValue]:
        return self.inputs

    def writes(self) -> Sequence[SSAValue]:
        return self.outputs

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.host_call(self)


@irdl_op_definition
class ScalarsOp(HostProgramOp):
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

    def reads(self) -> Sequence[SSAValue]:
        return self.inputs

    def writes(self) -> Sequence[SSAValue]:
        return self.outputs

    def effects(self) -> AbstractSet[EffectInstance]:
        return frozenset()

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.scalars(self)

    def work(self) -> int:
        """How many operations the host does."""
        return sum(not isinstance(op, YieldOp | ConstantOp) for op in self.body.block.ops)


@irdl_op_definition
class ToHostOp(Command):
    """Reads a tensor of device memory: the result is a copy in the host's memory."""

    STREAM: ClassVar[str] = COPY_OUT

    name = "npu.to_host"
    source = operand_def(GmType)
    result = result_def(TensorType)

    @property
    def parks(self) -> bool:
        """Whether a tensor only waits in the host's memory until it goes back to the device."""
        users = (use.operation for use in self.result.uses)
        return not is_number(self.result.type) and all(isinstance(user, ToDeviceOp) for user in users)

    def reads(self) -> Sequence[SSAValue]:
        return [self.source]

    def writes(self) -> Sequence[SSAValue]:
        return [self.result]

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.to_host(self)

    def verify_(self) -> None:
        super().verify_()
        kind = gm(self.source)
        if self.result.type != tensor(kind.shape, kind.element):
            raise self.error(f"reads {kind} as {self.result.type}")


@irdl_op_definition
class ToDeviceOp(Command):
    """Writes a tensor of the host's memory into device memory. A number that the program's thread has travels with a
    command on the compute stream."""

    STREAM: ClassVar[str] = COPY_IN

    name = "npu.to_device"
    source = operand_def(TensorType)
    dest = operand_def(GmType)

    @property
    def restores(self) -> bool:
        """Whether it brings back a tensor that waited in the host's memory."""
        return isinstance(self.source.owner, ToHostOp) and self.source.owner.parks

    def with_command(self) -> bool:
        """Whether it is a number that the program's thread has."""
        return is_number(self.source.type) and not isinstance(self.source.owner, Command)

    def home(self) -> str:
        return COMPUTE if self.with_command() else COPY_IN

    def reads(self) -> Sequence[SSAValue]:
        return () if self.with_command() else [self.source]

    def at_issue(self) -> Sequence[SSAValue]:
        return [self.source] if self.with_command() else ()

    def writes(self) -> Sequence[SSAValue]:
        return [self.dest]

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.to_device(self)

    def verify_(self) -> None:
        super().verify_()
        kind = gm(self.dest)
        if self.source.type != tensor(kind.shape, kind.element):
            raise self.error(f"writes {self.source.type} to {kind}")


__all__ = [
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
    "RecordEventOp",
    "ScalarsOp",
    "SectionOp",
    "ToDeviceOp",
    "ToHostOp",
    "WaitEventOp",
    "is_number",
]
