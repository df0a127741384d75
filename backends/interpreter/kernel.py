"""Runs a kernel of the npu level: its loops stay loops, its instructions become array code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jax import Array
from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import ops
from ...dialects.npu.interface import NpuOp, buffer
from ...dialects.npu.structure import KernelOp, SectionOp
from ...machine import Machine
from . import values
from .bytes_mode import BytesMemory
from .grid import GridWalker
from .instructions import RULES, Spec
from .liveness import bounds, carried
from .memory import Memory, TypedMemory, known_indices
from .scope import Offset

SILENT = (
    ops.ViewOp,
    ops.AllocOp,
    ops.SlotOp,
    ops.SyncOp,
    ops.BarrierOp,
    ops.SetCrossOp,
    ops.WaitCrossOp,
    scf.YieldOp,
)
"""Ops that change no value when they are met."""


class NpuKernel(GridWalker):
    """A kernel of the npu level. With `machine` the on-chip memory is in bytes mode."""

    SECTION: ClassVar[type[Any]] = SectionOp
    VIEW: ClassVar[type[Any]] = ops.ViewOp

    def __init__(self, kernel: KernelOp, zero: Array, machine: Machine | None):
        super().__init__(kernel, zero)
        self.machine = machine
        self._memory: Memory | None = None

    @property
    def memory(self) -> Memory:
        """The on-chip memory of the core that is running."""
        if self._memory is None:
            raise VerifyException("an instruction stands outside the sections of its kernel")
        return self._memory

    def section(self, op: SectionOp) -> None:
        inner = list(op.body.block.ops)
        self._memory = (
            TypedMemory(self.scope, carried(inner, known_indices(self.scope)))
            if self.machine is None
            else BytesMemory(self.scope, op, self.machine)
        )
        self.block(op.body.block)
        self._memory = None

    def stored_to(self, op: Operation) -> Sequence[SSAValue]:
        return op.writes() if isinstance(op, NpuOp) else ()

    def execute(self, op: Operation) -> None:
        rule = EXECUTE.get(type(op))
        if rule is not None:
            rule(self, op)
        elif isinstance(op, NpuOp) and type(op) in RULES:
            self._instruction(op)
        elif not isinstance(op, SILENT):
            raise VerifyException(f"{describe(op)} is not an op of a kernel")

    def _instruction(self, op: NpuOp) -> None:
        sources = [self.memory.read(v) for v in op.reads()]
        targets = op.writes()
        results = RULES[type(op)](op, self.scope, sources, [Spec.of(v) for v in targets])
        for v, x in zip(targets, results, strict=True):
            self.memory.write(v, x)

    def loop(self, op: scf.ForOp) -> None:
        first, step, trips = bounds(op)
        index, block = op.body.block.args[0], op.body.block
        if trips == 0:
            return
        if trips == 1:
            self.scope.index[index] = Offset.known(first)
            self.block(block)
            return

        def iteration(i: Any, state: Sequence[Array]) -> Sequence[Array]:
            self.memory.enter(op, state)
            self.scope.index[index] = Offset(i, 0, trips - 1).scaled(step, first)
            self.block(block)
            return self.memory.take(op)

        self.memory.leave(op, self.repeat(0, trips, iteration, op, self.memory.save(op)))

    def load(self, op: ops.LoadOp) -> None:
        target = op.tile()
        self._put(target, self.load_box(op, op.main_operands()[0], buffer(target).shape))

    def store(self, op: ops.TransferOp) -> None:
        self.store_box(op, self.memory.read(op.tile()), op.main_operands()[1])

    def load_indirect(self, op: ops.LoadIndirectOp) -> None:
        self._put(op.dest, self.load_boxes(op, self.memory.read(op.index), buffer(op.dest).shape))

    def _put(self, target: SSAValue, x: Array) -> None:
        self.memory.write(target, values.convert(x, numpy_dtype(buffer(target).element)))


EXECUTE: dict[type[Operation], Callable[[NpuKernel, Any], None]] = {
    arith.ConstantOp: NpuKernel.constant,
    scf.ForOp: NpuKernel.loop,
    ops.LoadNdOp: NpuKernel.load,
    ops.LoadNd2NzOp: NpuKernel.load,
    ops.StoreNdOp: NpuKernel.store,
    ops.FixpipeOp: NpuKernel.store,
    ops.LoadIndirectOp: NpuKernel.load_indirect,
    ops.LoadScalarOp: NpuKernel.load_scalar,
}
