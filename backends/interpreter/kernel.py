"""Runs a kernel of the npu level: its grid, sections and loops stay loops, its instructions become array code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array, lax
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import GmType, ops
from ...dialects.npu.interface import NpuOp, buffer, fill_value, gm
from ...dialects.npu.structure import KernelOp, SectionOp
from ...machine import Machine
from . import boxes, values
from .bytes_mode import BytesMemory
from .instructions import RULES, Spec, offsets_of, steps_of
from .liveness import bounds, carried
from .memory import Memory, TypedMemory, known_indices
from .scope import Offset, Scope, traced
from .views import View

ORDER = {"cube": 0, "fused": 0, "vector": 1}
"""Sections of a core run one after the other in this order."""

SILENT = (ops.ViewOp, ops.AllocOp, ops.SlotOp, ops.SyncOp, ops.BarrierOp, ops.SetCrossOp, ops.WaitCrossOp, scf.YieldOp)
"""Ops that change no value."""


@dataclass(frozen=True)
class Local:
    """Where the cores of a kernel are run in two groups, a group's `tensors` hold only what the group writes: stores
    count the coordinate `axis` from `start`. `size` is the number of coordinates in a group."""

    axis: SSAValue
    start: Any
    size: int
    tensors: frozenset[int]

    def scope(self, scope: Scope, tensor: int) -> Scope:
        """The index values to use for a store to `tensor`."""
        if tensor not in self.tensors:
            return scope
        here = Offset(scope.index[self.axis].value - self.start, 0, self.size - 1)
        return Scope(scope.zero, {**scope.index, self.axis: here})


class Core:
    """The state of a kernel while its ops are traced.

    `tensors` holds the current array of each device tensor, `where[value]` the tensor and view that an argument or
    view stands for. With `machine` the on-chip memory is in bytes mode.
    """

    def __init__(self, kernel: KernelOp, zero: Array, machine: Machine | None):
        self.kernel = kernel
        self.scope = Scope(zero)
        self.machine = machine
        self.memory: Memory | None = None
        self.tensors: dict[int, Array] = {}
        self.where: dict[SSAValue, tuple[int, View]] = {}
        self.written_by: dict[Operation, list[int]] = {}
        self.local: Local | None = None

    def bind(self, argument: SSAValue, tensor: int, view: View) -> None:
        """Let a block argument stand for a view of a tensor."""
        self.where[argument] = (tensor, view)

    def run(self, split: int | None = None, start: Any = 0, count: Any = 0) -> None:
        """Run all cores, or with `split` those whose coordinate on that axis is in [start, start + count)."""
        for op in self.kernel.walk():
            if isinstance(op, ops.ViewOp):
                self.where[op.result] = (self.where[op.source][0], View.of(gm(op.result)))
        self._grid(to_ints(self.kernel.grid), 0, start, count, split)

    def _grid(self, axes: Sequence[int], axis: int, start: Any, count: Any, split: int | None) -> None:
        if axis == len(axes):
            self._sections()
            return
        arg = self.kernel.body.block.args[axis]

        def inner() -> None:
            self._grid(axes, axis + 1, start, count, split)

        def bind(i: Any) -> None:
            self.scope.index[arg] = Offset(i, 0, axes[axis] - 1)

        if axis == split:
            self._repeat(start, start + count, bind, inner, self.kernel, None)
        elif axes[axis] == 1:
            self.scope.index[arg] = Offset.known(0)
            inner()
        else:
            self._repeat(np.int32(0), np.int32(axes[axis]), bind, inner, self.kernel, None)

    def _sections(self) -> None:
        block = self.kernel.body.block
        sections = [op for op in block.ops if isinstance(op, SectionOp)]
        for op in block.ops:
            if op not in sections:
                self.execute(op)
        for section in sorted(sections, key=lambda s: ORDER[text(s.core)]):
            units = integer(section.units)
            unit = section.body.block.args[0]
            if units == 1:
                self.scope.index[unit] = Offset.known(0)
                self._section(section)
                continue

            def bind(i: Any, unit: SSAValue = unit, units: int = units) -> None:
                self.scope.index[unit] = Offset(i, 0, units - 1)

            def run(section: SectionOp = section) -> None:
                self._section(section)

            self._repeat(np.int32(0), np.int32(units), bind, run, section, None)

    def _section(self, section: SectionOp) -> None:
        ops_ = list(section.body.block.ops)
        self.memory = (
            TypedMemory(self.scope, carried(ops_, known_indices(self.scope)))
            if self.machine is None
            else BytesMemory(self.scope, section, self.machine)
        )
        self.block(section.body.block)
        self.memory = None

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.execute(op)

    def execute(self, op: Operation) -> None:
        rule = EXECUTE.get(type(op))
        if rule is not None:
            rule(self, op)
        elif isinstance(op, NpuOp) and type(op) in RULES:
            self._instruction(op)
        elif not isinstance(op, SILENT):
            raise VerifyException(f"{describe(op)} is not an op of a kernel")

    def _instruction(self, op: NpuOp) -> None:
        assert self.memory is not None
        sources = [self.memory.read(v) for v in op.reads()]
        targets = op.writes()
        for v, x in zip(targets, RULES[type(op)](op, self.scope, sources, [Spec.of(v) for v in targets]), strict=True):
            self.memory.write(v, x)

    # -- loops ---------------------------------------------------------------------------------------------

    def loop(self, op: scf.ForOp) -> None:
        first, step, trips = bounds(op)
        arg, block = op.body.block.args[0], op.body.block
        if trips == 0:
            return
        if trips == 1:
            self.scope.index[arg] = Offset.known(first)
            self.block(block)
            return

        def bind(i: Any) -> None:
            self.scope.index[arg] = Offset(i, 0, trips - 1).scaled(step, first)

        self._repeat(np.int32(0), np.int32(trips), bind, lambda: self.block(block), op, op)

    def _repeat(
        self,
        low: Any,
        high: Any,
        bind: Callable[[Any], None],
        body: Callable[[], None],
        scope: Operation,
        loop: scf.ForOp | None,
    ) -> None:
        """`body` for each index in [low, high). Device tensors that `scope` writes are carried."""
        roots = self._written(scope)

        def step(carry: tuple[Any, list[Array], list[Array]]) -> tuple[Any, list[Array], list[Array]]:
            i, tensors, chip = carry
            self.tensors.update(zip(roots, tensors, strict=True))
            if loop is not None and self.memory is not None:
                self.memory.enter(loop, chip)
            bind(i)
            body()
            return i + np.int32(1), [self.tensors[r] for r in roots], self._chip(loop)

        chip = self.memory.save(loop) if loop is not None and self.memory is not None else []
        start = (traced(low), [self.tensors[r] for r in roots], chip)
        _, tensors, chip = lax.while_loop(lambda c: lax.lt(c[0], traced(high)), step, start)
        self.tensors.update(zip(roots, tensors, strict=True))
        if loop is not None and self.memory is not None:
            self.memory.leave(loop, chip)

    def _chip(self, loop: scf.ForOp | None) -> list[Array]:
        return self.memory.take(loop) if loop is not None and self.memory is not None else []

    def _written(self, scope: Operation) -> list[int]:
        """The device tensors that the ops inside `scope` write."""
        found = self.written_by.get(scope)
        if found is None:
            targets = [v for op in scope.walk() if isinstance(op, NpuOp) for v in op.writes()]
            found = sorted({self.where[v][0] for v in targets if isinstance(v.type, GmType)})
            self.written_by[scope] = found
        return found

    # -- device memory -------------------------------------------------------------------------------------

    def load(self, op: ops.LoadOp) -> None:
        assert self.memory is not None
        tensor, view = self.where[op.main_operands()[0]]
        target = op.tile()
        fill = fill_value(op.properties.get("fill"))
        x = boxes.load(
            self.tensors[tensor], view, offsets_of(op, self.scope), op.box_sizes, steps_of(op), fill, buffer(target).shape
        )
        self.memory.write(target, values.convert(x, numpy_dtype(buffer(target).element)))

    def store(self, op: ops.TransferOp) -> None:
        assert self.memory is not None
        tensor, view = self.where[op.main_operands()[1]]
        dest = self.tensors[tensor]
        x = values.convert(self.memory.read(op.tile()), dest.dtype)
        scope = self.scope if self.local is None else self.local.scope(self.scope, tensor)
        self.tensors[tensor] = boxes.store(dest, view, x, offsets_of(op, scope), op.box_sizes, steps_of(op))

    def load_indirect(self, op: ops.LoadIndirectOp) -> None:
        assert self.memory is not None
        tensor, view = self.where[op.source]
        x = boxes.gather_boxes(self.tensors[tensor], view, self.memory.read(op.index), to_ints(op.sizes))
        target = buffer(op.dest)
        self.memory.write(op.dest, values.convert(lax.reshape(x, target.shape), numpy_dtype(target.element)))

    def scalar(self, op: ops.LoadScalarOp) -> None:
        tensor, view = self.where[op.source]
        self.scope.index[op.result] = read_scalar(
            self.tensors[tensor], view, offsets_of(op, self.scope), integer(op.low), integer(op.high)
        )

    def constant(self, op: arith.ConstantOp) -> None:
        assert isinstance(op.value, IntegerAttr)
        self.scope.index[op.result] = Offset.known(op.value.value.data)


def read_scalar(source: Array, view: View, offsets: Sequence[Offset], low: int, high: int) -> Offset:
    """One integer of a view, clamped to [low, high]."""
    ones = [1] * len(offsets)
    x = boxes.load(source, view, offsets, ones, ones, 0, ())
    clamped = lax.clamp(values.scalar(low, x.dtype), x, values.scalar(high, x.dtype))
    return Offset(lax.convert_element_type(clamped, np.int32), low, high)


EXECUTE: dict[type[Operation], Callable[[Core, Any], None]] = {
    arith.ConstantOp: Core.constant,
    scf.ForOp: Core.loop,
    ops.LoadNdOp: Core.load,
    ops.LoadNd2NzOp: Core.load,
    ops.StoreNdOp: Core.store,
    ops.FixpipeOp: Core.store,
    ops.LoadIndirectOp: Core.load_indirect,
    ops.LoadScalarOp: Core.scalar,
}
