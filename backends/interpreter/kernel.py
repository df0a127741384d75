"""Runs a kernel of the npu level: loops stay loops, instructions become array code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from jax import Array, lax
from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects import npu as ops
from ...dialects.base import describe, to_ints
from ...dialects.dtypes import numbers_in, numpy_dtype
from ...dialects.npu import whole_buffer
from ...dialects.npu.interface import NpuOp, buffer, fill_value, gm
from ...dialects.npu.structure import KernelOp, SectionOp
from ...dialects.shapes import transposes
from ...machine import Machine
from ..functions import values
from ..functions.compiling import in_rows
from ..functions.loops import bounds
from ..functions.products import mma
from ..functions.scope import Box, Offset, most, traced
from ..functions.specs import Spec
from ..functions.turns import takes_turns
from . import batching, wide
from .accumulators import find_sides, zeroed
from .batching import NO_BATCH, Batch, find_batches, lift
from .bytes_mode import BytesMemory
from .direct import find_direct
from .exchange import Exchange
from .grid import CoreGroup, GridWalker, coordinates
from .instructions import (
    ALONG,
    LEADING,
    RULES,
    Rule,
    as_operand,
    box_of,
    is_transposed,
    offsets_of,
)
from .liveness import Carried, carried, perfect_nest, runs_once
from .memory import Memory, TypedMemory, known_indices
from .wide import Parts, Wide

SILENT = (
    ops.ViewOp,
    ops.AllocOp,
    ops.SlotOp,
    ops.SyncOp,
    ops.BarrierOp,
    ops.PipeBarrierOp,
    ops.SetCrossOp,
    ops.WaitCrossOp,
    scf.YieldOp,
)
"""Ops that change no value when they are met."""

PACKED_BYTES = 1 << 20
"""Up to this size of one matrix its tiles are cut before the loops that read them: they should stay in the cache."""


@dataclass
class CoreState:
    """What belongs to one core, or to those that run at once, while a kernel is traced; see `NpuKernel`. `unit`: the
    core's number in its block, and what that is called."""

    batch: Batch
    memory: Memory
    carried: Carried
    sides: Mapping[SSAValue, Parts]
    direct: Mapping[Operation, tuple[ops.LoadOp, Box]]
    skipped: set[Operation]
    unit: tuple[SSAValue, Offset] | None


class NpuKernel(GridWalker):
    """A kernel of the npu level. With `machine` the on-chip memory is in bytes mode."""

    SECTION: ClassVar[type[Any]] = SectionOp
    VIEW: ClassVar[type[Any]] = ops.ViewOp

    def __init__(
        self,
        kernel: KernelOp,
        zero: Array,
        machine: Machine | None,
        batches: Mapping[SectionOp, Batch] | None = None,
    ):
        """`batches` as `find_batches` gives them, if they are known."""
        super().__init__(kernel, zero)
        self.batches = batches
        self.machine = machine
        self.batch = NO_BATCH
        self.direct: Mapping[Operation, tuple[ops.LoadOp, Box]] = {}
        self.skipped: set[Operation] = set()
        self.packed: dict[Operation, tuple[Array, list[SSAValue]]] = {}
        """Operands whose tiles lie one after the other, and the loop variables that count them."""
        self.carried = Carried()
        self.sides: Mapping[SSAValue, Parts] = {}
        self.zeroed: set[Operation] = set()
        """Products whose accumulators were zeros when the loop began that resets them."""
        self.stored: set[int] = set()
        """The device tensors that batched iterations stored."""
        self._memory: Memory | None = None

    def run(self, part: CoreGroup | None = None) -> None:
        """All cores, or a part of them. In typed mode one section after the other, its independent iterations at once:
        whatever a section waits for, an earlier one has done by then."""
        if takes_turns(self.kernel):
            self._run_in_turns(part)
            return
        if self.machine is not None or batching.accumulates_together(self.kernel):
            super().run(part)
            return
        self.bind_views()
        batches = find_batches(self.kernel) if self.batches is None else self.batches
        coordinates_ = self.kernel.body.block.args
        for section in self.sections():
            self.batch = batches[section]
            self.direct, self.skipped = find_direct(self.kernel, section)
            axes = [
                a for a in range(len(to_ints(self.kernel.grid))) if coordinates_[a] not in self.batch.counts
            ]
            if part is not None and part.axis not in axes:
                index = coordinates_[part.axis]
                self.scope.index[index] = part.start
                self.batch = self.batch.part(index, part.start, part.count)
            for tensor in self._operands(section) & self.stored:
                self.tensors[tensor] = in_rows(self.tensors[tensor])
            batched = section.body.block.args[0] in self.batch.counts
            body = self.section if batched else self.units
            self.grid(axes, part, lambda s=section, b=body: b(s))
        self.batch = NO_BATCH
        self.direct, self.skipped = {}, set()
        self.packed = {}

    def _run_in_turns(self, part: CoreGroup | None) -> None:
        """Sections that wait for each other, at the places of the grid that are not run at once."""
        self.bind_views()
        if self.machine is None and self.batches is None:
            self.batches = find_batches(self.kernel)
        sections = self.sections()
        shared = self.batch_of(sections[0]).counts
        coordinates_ = self.kernel.body.block.args
        axes = [a for a in range(len(to_ints(self.kernel.grid))) if coordinates_[a] not in shared]
        self.grid(axes, part, lambda: Exchange(self, sections).run())

    def batch_of(self, section: SectionOp) -> Batch:
        """What of a section runs at once."""
        return NO_BATCH if self.machine is not None or self.batches is None else self.batches[section]

    def core_state(self, section: SectionOp, unit: tuple[SSAValue, Offset] | None) -> CoreState:
        """A core of a section before its first instruction."""
        batch = self.batch_of(section)
        if self.machine is not None:
            return CoreState(
                batch, BytesMemory(self.scope, section, self.machine), Carried(), {}, {}, set(), unit
            )
        known = known_indices(self.scope) | dict.fromkeys(batch.counts, 0)
        held = carried(list(section.body.block.ops), known)
        sides = find_sides(section, batch)
        memory = TypedMemory(self.scope, held, batch, sides)
        return CoreState(batch, memory, held, sides, *find_direct(self.kernel, section), unit)

    @contextmanager
    def on(self, core: CoreState) -> Iterator[None]:
        """Ops that are executed meanwhile run on a core."""
        self.batch, self._memory, self.carried, self.sides = core.batch, core.memory, core.carried, core.sides
        self.direct, self.skipped = core.direct, core.skipped
        if core.unit is not None:
            number, value = core.unit
            self.scope.index[number] = value
        yield
        self.batch, self._memory, self.direct, self.skipped, self.packed = NO_BATCH, None, {}, set(), {}

    def _operands(self, section: SectionOp) -> set[int]:
        """The device tensors that a section loads to l1, for products."""
        loads = [
            op for op in section.walk() if isinstance(op, ops.LoadOp) and buffer(op.tile()).space == "l1"
        ]
        return {self.where[op.main_operands()[0]][0] for op in loads}

    @property
    def memory(self) -> Memory:
        """The on-chip memory of the core that is running."""
        if self._memory is None:
            raise VerifyException("an instruction stands outside the sections of its kernel")
        return self._memory

    def section(self, op: SectionOp) -> None:
        if self.machine is None:
            known = known_indices(self.scope) | dict.fromkeys(self.batch.counts, 0)
            self.carried = carried(list(op.body.block.ops), known)
            self.sides = find_sides(op, self.batch)
            self._memory = TypedMemory(self.scope, self.carried, self.batch, self.sides)
        else:
            self._memory = BytesMemory(self.scope, op, self.machine)
        self.block(op.body.block)
        self._memory = None

    def stored_to(self, op: Operation) -> Sequence[SSAValue]:
        return op.writes() if isinstance(op, NpuOp) else ()

    def execute(self, op: Operation) -> None:
        rule = EXECUTE.get(type(op))
        if op in self.skipped:
            return
        if op in self.direct:
            self._operand(op)
        elif rule is not None:
            rule(self, op)
        elif isinstance(op, NpuOp) and (known := RULES.of(type(op))) is not None:
            self._instruction(op, known)
        elif not isinstance(op, SILENT):
            raise VerifyException(f"{describe(op)} is not an op of a kernel")

    def _wide(self, values_: Sequence[SSAValue]) -> list[Wide] | None:
        """The contents of buffers, if the tiles of batched iterations lie side by side in each of them."""
        found = [self.memory.wide(v) for v in values_] if self.batch.rank else [None]
        return [x for x in found if x is not None] if None not in found else None

    def _instruction(self, op: NpuOp, known: Rule) -> None:
        targets = op.writes()
        out = [Spec.of(v) for v in targets]
        leading = LEADING.of(type(op))
        if (leading or ALONG.of(type(op))) and (tiles := self._wide(op.reads())) is not None:
            wholes = wide.compute(op, self.scope, tiles, out)
            if wholes is not None:
                for v, x in zip(targets, wholes, strict=True):
                    self.memory.write(v, x)
                return
        sources = [self.memory.read(v) for v in op.reads()]
        if leading is not None:
            self.memory.write(targets[0], leading(op, self.scope, sources, out[0], self.batch.rank))
            return
        named = [v for v in dict.fromkeys(op.index_operands()) if v in self.batch.counts]

        def rule(*arrays: Array) -> list[Array]:
            here = {v: Offset(x, 0, self.batch.reach(v)) for v, x in zip(named, arrays, strict=False)}
            scope = replace(self.scope, index={**self.scope.index, **here}) if named else self.scope
            return known(op, scope, arrays[len(named) :], out)

        results = lift(rule, [*map(self.batch.values, named), *sources], self.batch.rank)
        for v, x in zip(targets, results, strict=True):
            self.memory.write(v, x)

    def product(self, op: ops.MmadOp) -> None:
        """A product, added to its accumulator; those of batched iterations are one where they share a side."""
        step = 1 if op in self.zeroed else offsets_of(op, self.scope)[0].value
        memory, sides = self.memory, self.sides.get(whole_buffer(op.acc))
        pairs = numbers_in(buffer(op.a).element) == 2
        transposed = self.machine is None and is_transposed(op.b)
        if self.batch.rank and sides is not None:
            assert isinstance(memory, TypedMemory)
            left, right = sides
            a, b = memory.together(op.a, (left, ())), memory.together(op.b, ((), right))
            bias, index = (
                None if v is None else memory.together(v, ((), right)) for v in (op.bias, op.index)
            )
            x = mma(a, b, memory.together(op.acc, sides), step, transposed, bias, index, pairs)
            memory.write(op.acc, Wide(x, buffer(op.acc).shape, sides))
            return
        named = op.main_operands()

        def rule(*x: Array) -> list[Array]:
            given = dict(zip(named[3:], x[3:], strict=True))
            bias, index = (None if v is None else given[v] for v in (op.bias, op.index))
            return [mma(x[0], x[1], x[2], step, transposed, bias, index, pairs)]

        (x,) = lift(rule, [memory.read(v) for v in named], self.batch.rank)
        memory.write(op.acc, x)

    def loop(self, op: scf.ForOp) -> None:
        first, _, trips = bounds(op)
        if not most(trips):
            return
        if op.body.block.args[0] in self.batch.counts:
            self.block(op.body.block)
            return
        if runs_once(trips):
            self.scope.index[op.body.block.args[0]] = self.scope.sizes.offset(first)
            self.block(op.body.block)
            return
        self._pack(op)
        nest = perfect_nest(op, self.batch.counts, self.skipped)
        ranges = [bounds(loop) for loop in nest]
        counts = [n for _, _, n in ranges]
        zeros = zeroed(op, self.batch.counts, self.carried) if self.machine is None else {}
        self.zeroed.update(zeros)

        def iteration(i: Any, state: Sequence[Array]) -> Sequence[Array]:
            self.memory.enter(op, state)
            places = coordinates(i, counts, self.scope.sizes)
            for loop, (start, step, _), at in zip(nest, ranges, places, strict=True):
                self.scope.index[loop.body.block.args[0]] = self.scope.stepped(at, step, start)
            self.block(nest[-1].body.block)
            return self.memory.take(op)

        self.memory.leave(
            op, self.repeat(0, prod(counts), iteration, op, self.memory.save(op, set(zeros.values())))
        )

    def _pack(self, loop: scf.ForOp) -> None:
        """Cuts some operands of a loop into tiles: those that every iteration reads again and that inner
        loops move along. A product of a dense tile takes less work than one of rows of a wide matrix."""
        loops = [op for op in loop.body.walk() if isinstance(op, scf.ForOp)]
        inside: dict[SSAValue, tuple[int, int, int]] = {x.body.block.args[0]: bounds(x) for x in loops}
        each: set[SSAValue] = {loop.body.block.args[0]}
        each.update(op.result for op in loop.body.walk() if isinstance(op, ops.IndexOp))
        for op in loop.body.walk():
            if not isinstance(op, ops.LoadL0Op) or op not in self.direct or op in self.packed:
                continue
            load, box = self.direct[op]
            moving = [v for v in box.indices if v in inside and v not in self.batch.counts]
            tiles = prod(inside[v][2] for v in moving)
            size = tiles * prod(box.sizes) * numpy_dtype(load.view.element).itemsize
            if tiles < 2 or size > PACKED_BYTES or not each.isdisjoint(box.indices):
                continue
            if all(inside[v][:2] == (0, 1) for v in moving):
                batch = Batch({**self.batch.counts, **{v: inside[v][2] for v in moving}}, self.batch.starts)
                self.packed[op] = (
                    wide.apart(self._box(load, box, _matrix_shape(op), batch), batch.sizes),
                    moving,
                )

    def load(self, op: ops.LoadOp) -> None:
        self._put(op.tile(), self._box(op, box_of(op), buffer(op.tile()).shape, self.batch))

    def _box(self, op: ops.LoadOp, box: Box, shape: Sequence[int], batch: Batch) -> Array | Wide:
        """The elements in a box of the device tensor that `op` loads from, [*leading, *shape]."""
        tensor, view = self.where[op.main_operands()[0]]
        dtype = numpy_dtype(op.view.element)
        fill = values.raw_scalar(fill_value(op.properties.get("fill")), dtype)
        if view.is_open:
            source = op.main_operands()[0]
            x = self._taken(source, box.offsets(self.scope), box.sizes, box.steps, fill, shape)
        else:
            x = batching.load(self.tensors[tensor], view, box, self.scope, batch, fill, shape)
        return wide.mapped(lambda y: values.cooked(y, dtype), x)

    def _operand(self, op: Operation) -> None:
        """A load to l0a or l0b, straight from device memory."""
        assert isinstance(op, ops.LoadL0Op)
        load, box = self.direct[op]
        between, out = numpy_dtype(buffer(op.source).element), Spec.of(op.dest)
        if op in self.packed:
            x, moving = self.packed[op]
            for v in moving:
                x = lax.dynamic_index_in_dim(
                    x, traced(self.scope.index[v].value), self.batch.rank, keepdims=False
                )
        else:
            x = self._box(load, box, _matrix_shape(op), self.batch)
        if isinstance(x, Wide):
            parts = x.parts[::-1] if transposes(op) else x.parts
            if x.shape == (out.shape[::-1] if transposes(op) else out.shape):
                whole = Spec(wide.extents(out.shape, parts, self.batch.sizes), out.dtype)
                y = as_operand(op, values.convert(x.x, between), whole)
                self.memory.write(op.dest, Wide(y, out.shape, parts))
                return
        x = wide.apart(x, self.batch.sizes)
        (x,) = lift(lambda m: [as_operand(op, values.convert(m, between), out)], [x], self.batch.rank)
        self.memory.write(op.dest, x)

    def store(self, op: ops.StoreOp) -> None:
        tile, dest = op.tile(), op.main_operands()[1]
        if not self.batch.rank:
            self.store_box(op, self.memory.read(tile), dest, self._words(op, None))
            return
        tiles = self.memory.wide(tile) or self.memory.read(tile)
        words = self._words(op, tiles.parts if isinstance(tiles, Wide) else None)
        tensor, view = self.where[dest]
        scope = self.scope if self.local is None else self.local.scope(self.scope, tensor)
        dtype, box = numpy_dtype(gm(dest).element), box_of(op)
        x = wide.mapped(lambda y: values.drained(op, y, dtype, words), tiles)
        if op.accumulate is not None:
            shape = (*self.batch.sizes, *buffer(tile).shape)
            x = wide.apart(x, self.batch.sizes)
            x = x if x.shape == shape else lax.broadcast_in_dim(x, shape, range(x.ndim))
            nothing = values.raw_scalar(0, dtype)
            old = batching.load(
                self.tensors[tensor], view, box, scope, self.batch, nothing, buffer(tile).shape
            )
            old = wide.apart(old, self.batch.sizes)
            x = values.accumulated(op, lambda: old, x, dtype)
        x = wide.mapped(values.raw, x)
        self.tensors[tensor] = batching.store(self.tensors[tensor], view, x, box, scope, self.batch)
        self.stored.add(tensor)

    def _words(self, op: ops.TransferOp, parts: Parts | None) -> Array | None:
        """The words by which a drain scales its columns, as its tiles lie; None where there are none."""
        if not isinstance(op, ops.FixpipeOp) or op.scales is None:
            return None
        if parts is None:
            return self.memory.read(op.scales)
        assert isinstance(self.memory, TypedMemory)
        return self.memory.together(op.scales, ((), parts[1]))

    def load_indirect(self, op: ops.LoadIndirectOp) -> None:
        shape = buffer(op.dest).shape
        index = self.memory.read(op.index)
        (x,) = lift(lambda i: [self.load_boxes(op, i, shape)], [index], self.batch.rank)
        self._put(op.dest, x)

    def number_index(self, op: ops.NumberIndexOp) -> None:
        """One integer of ub as an index, clamped to [low, high]."""
        self.clamped(op, lax.reshape(self.memory.read(op.source), ()))

    def _put(self, target: SSAValue, x: Array | Wide) -> None:
        dtype = numpy_dtype(buffer(target).element)
        self.memory.write(target, wide.mapped(lambda y: values.convert(y, dtype), x))


def _matrix_shape(op: ops.LoadL0Op) -> tuple[int, int]:
    """Rows and columns of what a load to l0a or l0b without a window takes."""
    sizes = to_ints(op.sizes)
    return prod(sizes[:-1]), sizes[-1]


EXECUTE: dict[type[Operation], Callable[[NpuKernel, Any], None]] = {
    arith.ConstantOp: NpuKernel.constant,
    ops.SizeOp: NpuKernel.size,
    scf.ForOp: NpuKernel.loop,
    ops.MmadOp: NpuKernel.product,
    ops.LoadNdOp: NpuKernel.load,
    ops.LoadNd2NzOp: NpuKernel.load,
    ops.LoadNumberOp: NpuKernel.load,
    ops.StoreNdOp: NpuKernel.store,
    ops.FixpipeOp: NpuKernel.store,
    ops.LoadIndirectOp: NpuKernel.load_indirect,
    ops.LoadScalarOp: NpuKernel.load_scalar,
    ops.NumberIndexOp: NpuKernel.number_index,
}
