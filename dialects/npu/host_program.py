"""What an op of the host program says of itself, and the one dispatch of all that walk a host program.

A walker is a `HostVisitor`: it has a method for each class of ops, and each op calls its own. Commands fall back on
`command`, which asks for the facts of the op, so the commands of a plugin work in every walker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.irdl import opt_prop_def, result_def
from xdsl.traits import EffectInstance

from ..base import FormattedOp
from ..effects import MemoryEffectInterface, allocates, effects_on
from .types import GmType

if TYPE_CHECKING:
    from .buffers import ViewOp
    from .streams import Command, RecordEventOp, WaitEventOp
    from .structure import (
        BranchOp,
        CallOp,
        CopyOp,
        HostCallOp,
        LaunchOp,
        LoopOp,
        NpuYieldOp,
        ScalarsOp,
        ToDeviceOp,
        ToHostOp,
    )

R = TypeVar("R")


class HostProgramOp(FormattedOp, MemoryEffectInterface):
    """An op of the host program."""

    PASSIVE: ClassVar[bool] = False
    """Whether nothing happens at it, where a program runs in program order."""

    def reads(self) -> Sequence[SSAValue]:
        """Device tensors and values of the host whose contents it uses when it runs."""
        return ()

    def at_issue(self) -> Sequence[SSAValue]:
        """Numbers that the program's thread must have when it comes to the op."""
        return ()

    def writes(self) -> Sequence[SSAValue]:
        """Device tensors that it writes, and values of the host that it makes."""
        return ()

    def written(self) -> Sequence[SSAValue]:
        """Those of the device tensors that hold something for others afterwards."""
        return [v for v in self.writes() if isinstance(v.type, GmType)]

    def effects(self) -> AbstractSet[EffectInstance]:
        return effects_on([*self.reads(), *self.at_issue()], self.writes())

    @abstractmethod
    def accept(self, visitor: HostVisitor[R]) -> R:
        """Calls the visitor's method for this op."""


class DeviceTensorOp(HostProgramOp):
    """A tensor in device memory that ops of the host program name; `address` (bytes) comes with npu-plan-memory."""

    PASSIVE: ClassVar[bool] = True

    address = opt_prop_def(IntegerAttr)
    result = result_def(GmType)

    def effects(self) -> AbstractSet[EffectInstance]:
        return allocates(self.results)

    def accept(self, visitor: HostVisitor[R]) -> R:
        return visitor.tensor(self)


class ControlOp(HostProgramOp):
    """An op that runs its regions."""

    REPEATS: ClassVar[bool]
    """Whether a way may be taken several times."""

    @abstractmethod
    def ways(self) -> Sequence[Sequence[Block]]:
        """The ways through the op, each as the blocks that run one after the other."""


class HostVisitor(ABC, Generic[R]):
    """Something that walks a host program, with a method for each class of ops."""

    def visit(self, op: Operation) -> R:
        if isinstance(op, HostProgramOp):
            return op.accept(self)
        if isinstance(op, ReturnOp):
            return self.returns(op)
        return self.foreign(op)

    @abstractmethod
    def passive(self, op: Operation) -> R:
        """An op that the walker has no method for and at which nothing happens."""

    @abstractmethod
    def command(self, op: Command) -> R:
        """A command that the walker has no method for."""

    @abstractmethod
    def call(self, op: CallOp) -> R: ...

    @abstractmethod
    def scalars(self, op: ScalarsOp) -> R: ...

    @abstractmethod
    def loop(self, op: LoopOp) -> R: ...

    @abstractmethod
    def branch(self, op: BranchOp) -> R: ...

    def launch(self, op: LaunchOp) -> R:
        return self.command(op)

    def copy(self, op: CopyOp) -> R:
        return self.command(op)

    def host_call(self, op: HostCallOp) -> R:
        return self.command(op)

    def to_host(self, op: ToHostOp) -> R:
        return self.command(op)

    def to_device(self, op: ToDeviceOp) -> R:
        return self.command(op)

    def tensor(self, op: DeviceTensorOp) -> R:
        return self.passive(op)

    def view(self, op: ViewOp) -> R:
        return self.passive(op)

    def record_event(self, op: RecordEventOp) -> R:
        return self.passive(op)

    def wait_event(self, op: WaitEventOp) -> R:
        return self.passive(op)

    def yields(self, op: NpuYieldOp) -> R:
        return self.passive(op)

    def returns(self, op: ReturnOp) -> R:
        return self.passive(op)

    @abstractmethod
    def foreign(self, op: Operation) -> R:
        """An op that is not of the host program."""


def is_passive(op: Operation) -> bool:
    """Whether nothing happens at an op where a program runs in program order, whatever the streams and events."""
    return isinstance(op, ReturnOp) or (isinstance(op, HostProgramOp) and op.PASSIVE)
