"""The instructions of a core as nodes: on-chip work, transfers, and integers read from device memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import SSAValue

from ...dialects import npu as ops
from ...dialects.base import FormattedOp, integer, to_ints
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import BufferType, NpuOp
from ...dialects.npu.interface import fill_value, gm
from . import numbers
from .nodes import IssuedNode
from .places import BufferPlace, Row, evaluated
from .reductions import scalar
from .rules import RULES, Number, drained, ints_of

if TYPE_CHECKING:
    from .cores import BlockCore
    from .plan import SteppedKernel
    from .values import PlannedKernel

Part = tuple[int, Sequence[int], Sequence[int], tuple[slice, ...] | None]
"""Of a box, what is inside its tensor: bytes from the tensor's start on, sizes, strides in bytes, and its place in the
box, None where it is all of it."""


@dataclass(slots=True)
class DeviceBox:
    """A box of a device tensor. tensor: its number among the kernel's; offset, strides: of the view, in bytes."""

    tensor: int
    dtype: np.dtype
    offset: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    spans: tuple[int, ...]
    """Bytes between neighbours of the box along each dimension."""
    reach: tuple[int, ...]

    @staticmethod
    def of(value: SSAValue, plan: PlannedKernel, sizes: Sequence[int], steps: Sequence[int]) -> DeviceBox:
        view, number = gm(value), plan.number
        dtype = numpy_dtype(view.element)
        strides = tuple(number(s) * dtype.itemsize for s in view.strides)
        return DeviceBox(
            plan.tensors[value],
            dtype,
            number(view.offset) * dtype.itemsize,
            tuple(sizes),
            tuple(steps),
            tuple(map(number, view.shape)),
            strides,
            tuple(s * step for s, step in zip(strides, steps, strict=True)),
            tuple((n - 1) * step for n, step in zip(sizes, steps, strict=True)),
        )

    def part(self, at: Sequence[int]) -> Part:
        """What is inside the tensor of the box that begins at a place."""
        offset = self.offset
        for first, reach, extent, stride in zip(at, self.reach, self.extents, self.strides, strict=True):
            last = first + reach
            if first < 0 or last < 0 or first >= extent or last >= extent:
                return self._clipped(at)
            offset += first * stride
        return offset, self.sizes, self.spans, None

    def _clipped(self, at: Sequence[int]) -> Part:
        offset, sizes, places = self.offset, [], []
        for first, n, step, extent, stride in zip(
            at, self.sizes, self.steps, self.extents, self.strides, strict=True
        ):
            inside = [i for i in range(n) if 0 <= first + i * step < extent]
            low, count = (inside[0], len(inside)) if inside else (0, 0)
            offset += (first + low * step) * stride if inside else 0
            sizes.append(count)
            places.append(slice(low, low + count))
        return offset, sizes, self.spans, tuple(places)


class Work(IssuedNode):
    """An instruction: the buffers it reads and writes, and its `at [...]`. sums: of a product or a drain with a unit
    flag; scratch: the bytes that it says it works in."""

    __slots__ = ("reads", "rows", "scratch", "sums", "writes")

    def __init__(
        self, op: NpuOp, queue: int, plan: SteppedKernel, places: Mapping[SSAValue, BufferPlace]
    ) -> None:
        super().__init__(op, queue)
        self.rows: tuple[Row, ...] = plan.rows(op)
        self.reads = [places[v] for v in op.reads() if isinstance(v.type, BufferType)]
        self.writes = [places[v] for v in op.writes() if isinstance(v.type, BufferType)]
        self.scratch: BufferPlace | None = None
        flagged = op.flagged_sums()
        self.sums = None if flagged is None else places[flagged]

    def accesses(self, core: BlockCore) -> list[tuple[DeviceBox, Part, bool]]:
        """The boxes of device memory that it reads or, where the last is true, writes, on a core that comes to it."""
        return []


class OnChip(Work):
    """Work on on-chip memory alone. fresh: (row, source) where the source is not used when the row of `at [...]` is
    0."""

    __slots__ = ("compute", "fresh", "numbers", "remakes")

    def __init__(
        self, op: NpuOp, queue: int, plan: SteppedKernel, places: Mapping[SSAValue, BufferPlace]
    ) -> None:
        super().__init__(op, queue, plan, places)
        self.compute, self.rows, self.remakes = plan.computing(op, RULES[type(op)])
        fresh = op.starts_fresh()
        self.fresh = None if fresh is None else (fresh[0], list(op.reads()).index(fresh[1]))
        self.numbers = op.PIPE == ops.Pipe.S

    def run(self, core: BlockCore) -> None:
        at, env = evaluated(self.rows, core.env), core.env
        unused = self.fresh[1] if self.fresh is not None and at[self.fresh[0]] == 0 else -1
        mark = core.begin(self)
        if self.sums is not None:
            core.order.unit_flags(core, self.sums, self.fresh is None, unused >= 0, mark)
        sources = []
        for i, place in enumerate(self.reads):
            slot = place.slot(env)
            if i != unused:
                core.read(place, slot, mark)
            sources.append(core.view(place, slot, mark))
        if self.scratch is not None:
            core.work_in(self.scratch, [(place, place.slot(env)) for place in self.writes], mark)
        targets = []
        for place in self.writes:
            slot = place.slot(env)
            targets.append(core.view(place, slot, mark))
            core.write(place, slot, mark)
        device = core.device
        made = self.compute(at, sources, device.denormals)
        for target, x in zip(targets, made, strict=True):
            target[...] = x
        if self.remakes and not device.denormals:
            device.denormals = any(map(numbers.has_denormals, targets))
        if self.numbers:
            core.order.scalar(core, self)


class LoadBox(Work):
    """A box of device memory to a buffer; `fill` outside the tensor."""

    __slots__ = ("box", "fill", "whole")

    def __init__(
        self, op: ops.LoadOp, queue: int, plan: SteppedKernel, places: Mapping[SSAValue, BufferPlace]
    ) -> None:
        super().__init__(op, queue, plan, places)
        sizes, steps = box_of(op, plan.number)
        self.box = DeviceBox.of(op.main_operands()[0], plan, sizes, steps)
        self.fill = scalar(fill_value(op.properties.get("fill")), self.box.dtype)
        self.whole = tuple(sizes)

    def accesses(self, core: BlockCore) -> list[tuple[DeviceBox, Part, bool]]:
        return [(self.box, self.box.part(evaluated(self.rows, core.env)), False)]

    def run(self, core: BlockCore) -> None:
        box = self.box
        part = box.part(evaluated(self.rows, core.env))
        mark = core.begin(self)
        x = core.load(box, part, mark)
        if part[3] is not None:
            tile = np.full(self.whole, self.fill)
            tile[part[3]] = x
            x = tile
        place = self.writes[0]
        slot = place.slot(core.env)
        target = core.view(place, slot, mark)
        core.write(place, slot, mark)
        x = x.reshape(target.shape)
        target[...] = x if x.dtype == target.dtype else numbers.convert(x, target.dtype)


class StoreBox(Work):
    """A buffer to a box of device memory, what is inside the tensor. kind: how it is combined with what is there."""

    __slots__ = ("box", "drain", "kind", "plain", "whole")

    def __init__(
        self, op: ops.StoreOp, queue: int, plan: SteppedKernel, places: Mapping[SSAValue, BufferPlace]
    ) -> None:
        super().__init__(op, queue, plan, places)
        sizes, steps = box_of(op, plan.number)
        self.box = DeviceBox.of(op.main_operands()[1], plan, sizes, steps)
        self.drain = drained(op, self.box.dtype)
        self.whole = tuple(sizes)
        self.kind = op.accumulates()
        same = self.reads[0].buffer.dtype == self.box.dtype
        self.plain = same and len(self.reads) == 1 and not {"relu", "factor"} & op.properties.keys()

    def accesses(self, core: BlockCore) -> list[tuple[DeviceBox, Part, bool]]:
        part = self.box.part(evaluated(self.rows, core.env))
        return [*([(self.box, part, False)] if self.kind else []), (self.box, part, True)]

    def run(self, core: BlockCore) -> None:
        part = self.box.part(evaluated(self.rows, core.env))
        mark = core.begin(self)
        if self.sums is not None:
            core.order.unit_flags(core, self.sums, True, False, mark)
        sources = []
        for place in self.reads:
            slot = place.slot(core.env)
            core.read(place, slot, mark)
            sources.append(core.view(place, slot, mark))
        x = sources[0]
        if not self.plain:
            x = self.drain(x, sources[1] if len(sources) > 1 else None)
        x = x.reshape(self.whole)
        x = x if part[3] is None else x[part[3]]
        if self.kind:
            old = core.load(self.box, part, mark)
            x = numbers.apply(self.kind, [old, x], old.shape, old.dtype, core.device.denormals)
        core.store(self.box, part, x, mark)


@dataclass(frozen=True)
class GatheredRows:
    """What `load_indirect` takes of a tensor for each index: rows of a box that begins so many elements into it. Where
    one would leave the tensor, it is the nearest row that does not, as XLA has it. places: where the rows of a box
    begin, in elements; length: elements of one."""

    places: np.ndarray
    length: int

    @staticmethod
    def of(box: DeviceBox) -> GatheredRows:
        sizes, width = box.sizes, box.dtype.itemsize
        steps, run, lead = [s // width for s in box.strides], 1, len(sizes)
        while lead and (sizes[lead - 1] == 1 or steps[lead - 1] == run):
            lead -= 1
            run *= sizes[lead]
        outer = np.full((), box.offset // width)
        for n, step in zip(sizes[:lead], steps, strict=False):
            outer = outer[..., None] + np.arange(n) * step
        return GatheredRows(outer.reshape(1, -1), run)

    def positions(self, index: np.ndarray, length: int) -> np.ndarray:
        """The places of all elements in a tensor of so many elements."""
        rows = np.clip(index.reshape(-1, 1).astype(np.int64) + self.places, 0, max(length - self.length, 0))
        return rows[..., None] + np.arange(self.length)


class Gather(Work):
    """For each index of a buffer the box that begins so many elements into a tensor."""

    __slots__ = ("box", "gathered")

    def __init__(
        self, op: ops.LoadIndirectOp, queue: int, plan: SteppedKernel, places: Mapping[SSAValue, BufferPlace]
    ) -> None:
        super().__init__(op, queue, plan, places)
        sizes = tuple(map(plan.number, to_ints(op.sizes)))
        self.box = DeviceBox.of(op.source, plan, sizes, (1,) * len(sizes))
        self.gathered = GatheredRows.of(self.box)

    def positions(self, core: BlockCore) -> np.ndarray:
        """The places of all elements in the tensor, counted in elements."""
        index = self.reads[0]
        first = core.memory.views[index.buffer.number][index.slot(core.env)]
        assert first is not None
        length = core.launch.tensors[self.box.tensor].bytes // self.box.dtype.itemsize
        return self.gathered.positions(first, length)

    def run(self, core: BlockCore) -> None:
        mark = core.begin(self)
        index, place = self.reads[0], self.writes[0]
        slot = index.slot(core.env)
        core.read(index, slot, mark)
        core.view(index, slot, mark)
        x = core.gather(self.box, self.positions(core), mark)
        slot = place.slot(core.env)
        target = core.view(place, slot, mark)
        core.write(place, slot, mark)
        if x.size:
            target[...] = x.reshape(target.shape)


class LoadNumber(LoadBox):
    """One element of device memory, which the scalar unit waits for."""

    __slots__ = ()

    def run(self, core: BlockCore) -> None:
        super().run(core)
        core.order.scalar(core, self)


class Index(Work):
    """One integer, within a range, as an index."""

    __slots__ = ("high", "index", "low")

    def __init__(
        self, op: ops.IndexOp, queue: int, plan: SteppedKernel, places: Mapping[SSAValue, BufferPlace]
    ) -> None:
        super().__init__(op, queue, plan, places)
        self.low, self.high = plan.number(integer(op.low)), plan.number(integer(op.high))
        self.index = plan.index(op.result)

    def found(self, core: BlockCore) -> int:
        """The integer, and notes that it is read."""
        raise NotImplementedError

    def run(self, core: BlockCore) -> None:
        core.env[self.index] = max(self.low, min(self.found(core), self.high))
        core.order.scalar(core, self)


class NumberIndex(Index):
    """One integer of ub."""

    __slots__ = ()

    def found(self, core: BlockCore) -> int:
        mark, place = core.begin(self), self.reads[0]
        slot = place.slot(core.env)
        core.read(place, slot, mark)
        return int(core.view(place, slot, mark).reshape(()))


class Scalar(Index):
    """One integer of device memory; 0 where the tensor has none."""

    __slots__ = ("box",)

    def __init__(
        self, op: ops.LoadScalarOp, queue: int, plan: SteppedKernel, places: Mapping[SSAValue, BufferPlace]
    ) -> None:
        super().__init__(op, queue, plan, places)
        ones = (1,) * len(self.rows)
        self.box = DeviceBox.of(op.source, plan, ones, ones)

    def accesses(self, core: BlockCore) -> list[tuple[DeviceBox, Part, bool]]:
        return [(self.box, self.box.part(evaluated(self.rows, core.env)), False)]

    def found(self, core: BlockCore) -> int:
        part, mark = self.box.part(evaluated(self.rows, core.env)), core.begin(self)
        value = core.load(self.box, part, mark)
        return int(value.reshape(())) if value.size else 0


def box_of(op: FormattedOp, number: Number) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes and steps of a transfer's box."""
    sizes = ints_of(op, "sizes", number)
    return sizes, ints_of(op, "steps", number, (1,) * len(sizes))


def instruction(op: NpuOp, queue: int, plan: SteppedKernel, places: Mapping[SSAValue, BufferPlace]) -> Work:
    """The node of an instruction."""
    for kinds, made in _KINDS:
        if isinstance(op, kinds):
            return made(op, queue, plan, places)
    return OnChip(op, queue, plan, places)


_KINDS: Sequence[tuple[type, type[Any]]] = (
    (ops.LoadNumberOp, LoadNumber),
    (ops.LoadOp, LoadBox),
    (ops.StoreOp, StoreBox),
    (ops.LoadIndirectOp, Gather),
    (ops.LoadScalarOp, Scalar),
    (ops.NumberIndexOp, NumberIndex),
)
