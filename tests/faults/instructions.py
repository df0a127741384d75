"""What one instruction does to the bytes of a core and of the device, whatever the instruction is.

What it computes is replaced by a mixing function of all that it reads (element by element where the instruction works
so): another byte in gives other bytes out, and no arithmetic can hide it. Transfers move what they really move. So two
runs that end with equal bytes read the same values everywhere.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects import npu as ops
from tilewright.dialects.base import integer, to_ints
from tilewright.dialects.dtypes import itemsize, size
from tilewright.dialects.npu import BufferType, GmType, NpuOp


class Crash(Exception):
    """An access outside a memory."""


def noise(n: int, seed: int) -> np.ndarray:
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)


WRAPPING = np.errstate(over="ignore")
"""Numbers wrap here; numpy warns of it where they are single ones."""


@WRAPPING
def mix(x: np.ndarray) -> np.ndarray:
    """Scrambles u32 or u64 numbers, each to another one."""
    half, factor = (15, 0x2C1B3C6D) if x.dtype == np.uint32 else (33, 0xFF51AFD7ED558CCD)
    x = x ^ (x >> x.dtype.type(half))
    x *= x.dtype.type(factor)
    return x


def digest(parts: Sequence[np.ndarray], seed: int) -> int:
    for part in parts:
        seed = zlib.crc32(np.ascontiguousarray(part), seed)
    return seed


@functools.lru_cache(maxsize=512)
def pattern(count: int, width: int) -> np.ndarray:
    return mix(mix(np.arange(1, count + 1, dtype=np.uint64))).astype(f"u{width}")


def generated(shape: tuple[int, ...], width: int, seed: int) -> np.ndarray:
    """Numbers that all depend on `seed` and on their place."""
    odd = (seed << 1 | 1) & ((1 << 8 * width) - 1)
    more = (seed >> 8) & ((1 << 8 * width) - 1)
    base = pattern(size(shape), width)
    return (base * base.dtype.type(odd) + base.dtype.type(more)).reshape(shape)


@WRAPPING
def lanes(sources: Sequence[np.ndarray], shape: tuple[int, ...], width: int, seed: int) -> np.ndarray:
    """Element by element."""
    kind = np.uint64 if max(width, *(x.itemsize for x in sources)) > 4 else np.uint32
    total = np.full(shape, seed, kind)
    for x in sources:
        total *= kind(31)
        total += (x if x.size > 1 else x.reshape(-1)[0]).astype(kind)
        total = mix(total)
    return total.astype(f"u{width}")


class Device:
    """Device memory: an arena of bytes, and where each tensor begins."""

    def __init__(self, arena: np.ndarray):
        self.arena = arena

    def elements(self, address: int, width: int) -> tuple[np.ndarray, int]:
        """The arena as unsigned integers of `width` bytes, and the number of the tensor's first one."""
        if address % width:
            raise Crash(f"address {address} is no multiple of {width}")
        return self.arena[: len(self.arena) // width * width].view(f"u{width}"), address // width

    def box(
        self, address: int, view: GmType, first: int, sizes: Sequence[int], steps: Sequence[int]
    ) -> np.ndarray:
        """The elements of a box of a tensor as an array that shares their memory; steps: elements."""
        words, start = self.elements(address, itemsize(view.element))
        first += start
        spans = [(n - 1) * step for n, step in zip(sizes, steps, strict=True)]
        if size(sizes) and (
            first + sum(min(s, 0) for s in spans) < 0 or first + sum(max(s, 0) for s in spans) >= len(words)
        ):
            raise Crash("an access outside device memory")
        if not size(sizes):
            return np.zeros(tuple(sizes), words.dtype)
        strides = [step * words.itemsize for step in steps]
        return np.lib.stride_tricks.as_strided(words[first:], tuple(sizes), strides)


@dataclass(eq=False, slots=True)
class Place:
    """Where a buffer is, in a core's memory."""

    kind: BufferType
    space: str
    shape: tuple[int, ...]
    width: int
    start: int
    stop: int


class Memory:
    """The memories of one core, full of noise at first."""

    def __init__(self, reach: Mapping[str, int], seed: int):
        """reach: bytes of each space; seed: no byte is equal for two of them, modulo 256."""
        self.spaces = {s: _noise(n) ^ np.uint8(seed & 0xFF) for s, n in reach.items()}
        self._views: dict[Place, np.ndarray] = {}

    def view(self, place: Place) -> np.ndarray:
        """The elements of a buffer, as unsigned integers of its width."""
        found = self._views.get(place)
        if found is None:
            memory = self.spaces[place.space]
            if place.start < 0 or place.stop > len(memory):
                raise Crash(f"{place.kind} at {place.start}")
            strides, step = [place.width] if place.shape else [], place.kind.row_bytes
            for n in reversed(place.shape[:-1]):
                strides.insert(0, step)
                step *= n
            found = np.ndarray(place.shape, f"u{place.width}", memory, place.start, strides)
            self._views[place] = found
        return found


@functools.lru_cache(maxsize=32)
def _noise(n: int) -> np.ndarray:
    return noise(n, 5)


@dataclass
class Machinery:
    """What an instruction works on: the core's memory and registers, the device, and where the kernel's tensors are."""

    memory: Memory
    device: Device
    tensors: Sequence[int]
    registers: dict[SSAValue, int] = field(default_factory=dict)


Work = Callable[[Machinery], None]

COMBINED: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "": lambda old, new: new,
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
}
"""What a store leaves of the words that are there and its own: those of one kind may come in any order."""


class Compiler:
    """Turns the instructions of a kernel into functions, once for all orders they run in."""

    def __init__(self, args: Sequence[SSAValue]):
        """args: the kernel's tensors."""
        self.args = {a: i for i, a in enumerate(args)}
        self._seeds: dict[Operation, tuple[Any, ...]] = {}
        self._made: dict[tuple[Any, ...], Work] = {}

    def work(self, op: NpuOp, offsets: tuple[int, ...], slots: Mapping[SSAValue, int]) -> Work:
        """What an instruction does; slots: of the buffers that it takes."""
        key = (op, offsets, tuple(slots.values()))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._compiled(op, offsets, slots)
        return found

    def _compiled(self, op: NpuOp, offsets: tuple[int, ...], slots: Mapping[SSAValue, int]) -> Work:
        if isinstance(op, ops.LoadOp):
            return self._load(op, offsets, slots)
        if isinstance(op, ops.StoreOp):
            return self._store(op, offsets, slots)
        if isinstance(op, ops.LoadIndirectOp):
            return self._gather(op, slots)
        if isinstance(op, ops.LoadScalarOp):
            return self._scalar(op, offsets)
        if isinstance(op, ops.NumberIndexOp):
            return self._number(op, slots)
        return self._compute(op, offsets, slots)

    def _tensor(self, value: SSAValue) -> int:
        while isinstance(value.owner, ops.ViewOp):
            value = value.owner.source
        assert isinstance(value.owner, Block)
        return self.args[value]

    def _seed(self, op: Operation, *more: Any) -> int:
        """A number for what an instruction computes: its name and properties, not where its operands are."""
        key = self._seeds.get(op)
        if key is None:
            said = tuple((k, str(v)) for k, v in sorted(op.properties.items()) if k != "offsets")
            key = self._seeds[op] = (op.name, said)
        return zlib.crc32(repr((*key, more)).encode())

    def _load(self, op: ops.LoadOp, offsets: Sequence[int], slots: Mapping[SSAValue, int]) -> Work:
        view, dest = op.view, _place(op.tile(), slots)
        tensor, fill = self._tensor(op.main_operands()[0]), self._seed(op, "fill")
        first, sizes, steps, inside = _inside(view, op, offsets)
        whole, width = tuple(op.box_sizes), itemsize(view.element)
        converts = isinstance(op.tile().type, BufferType) and dest.kind.element != view.element
        value = np.array(fill & ((1 << 8 * width) - 1), f"u{width}")

        def run(on: Machinery) -> None:
            x = on.device.box(on.tensors[tensor], view, first, sizes, steps)
            if sizes != whole:
                x, part = np.full(whole, value), x
                x[inside] = part
            if converts:
                x = lanes([np.ascontiguousarray(x)], x.shape, dest.width, 7)
            on.memory.view(dest)[...] = x.reshape(dest.shape)

        return run

    def _store(self, op: ops.StoreOp, offsets: Sequence[int], slots: Mapping[SSAValue, int]) -> Work:
        view, source = op.view, _place(op.tile(), slots)
        tensor, whole = self._tensor(op.main_operands()[1]), tuple(op.box_sizes)
        first, sizes, steps, inside = _inside(view, op, offsets)
        others = [_place(v, slots) for v in op.sources()[1:]]
        converts = bool(others) or source.kind.element != view.element
        width, combined = itemsize(view.element), COMBINED[op.accumulates()]

        def run(on: Machinery) -> None:
            x = on.memory.view(source)
            if converts:
                seed = digest([on.memory.view(p) for p in others], 7) if others else 7
                x = lanes([x], x.shape, width, seed)
            box = on.device.box(on.tensors[tensor], view, first, sizes, steps)
            box[...] = combined(box, x.reshape(whole)[inside])

        return run

    def _scalar(self, op: ops.LoadScalarOp, offsets: Sequence[int]) -> Work:
        view, tensor = op.source.type, self._tensor(op.source)
        assert isinstance(view, GmType)
        at = view.offset + sum(o * s for o, s in zip(offsets, view.strides, strict=True))
        within = _within(op)

        def run(on: Machinery) -> None:
            words, first = on.device.elements(on.tensors[tensor], itemsize(view.element))
            on.registers[op.result] = within(int(words[first + at]))

        return run

    def _number(self, op: ops.NumberIndexOp, slots: Mapping[SSAValue, int]) -> Work:
        source, within = _place(op.source, slots), _within(op)

        def run(on: Machinery) -> None:
            on.registers[op.result] = within(int(on.memory.view(source).reshape(())))

        return run

    def _gather(self, op: ops.LoadIndirectOp, slots: Mapping[SSAValue, int]) -> Work:
        view, sizes, tensor = op.source.type, to_ints(op.sizes), self._tensor(op.source)
        assert isinstance(view, GmType)
        index, dest = _place(op.index, slots), _place(op.dest, slots)
        at = np.zeros((), np.int64) + view.offset
        for n, stride in zip(sizes, view.strides, strict=True):
            at = at[..., None] + np.arange(n) * stride
        room = max(size(view.shape) - int(at.max(initial=0)), 1)

        def run(on: Machinery) -> None:
            places = on.memory.view(index).reshape(-1).astype(np.int64) % room
            words, first = on.device.elements(on.tensors[tensor], itemsize(view.element))
            where = first + places[:, None] + at.reshape(1, -1)
            if where.size and (where.min() < 0 or where.max() >= len(words)):
                raise Crash("load outside device memory")
            on.memory.view(dest)[...] = words[where].reshape(dest.shape)

        return run

    def _compute(self, op: NpuOp, offsets: Sequence[int], slots: Mapping[SSAValue, int]) -> Work:
        fresh = isinstance(op, ops.MmadOp) and offsets[0] == 0
        results = [_place(v, slots) for v in op.writes()]
        read = [_place(v, slots) for v in op.reads() if not (fresh and v is op.writes()[0])]
        seed, elementwise = self._seed(op, tuple(offsets)), isinstance(op, ops.ElementwiseVectorOp)

        def run(on: Machinery) -> None:
            memory = on.memory
            sources = [memory.view(p) for p in read]
            if elementwise:
                made = [lanes(sources, p.shape, p.width, seed) for p in results]
            else:
                number = digest(sources, seed)
                made = [generated(p.shape, p.width, number + i) for i, p in enumerate(results)]
            for p, x in zip(results, made, strict=True):
                memory.view(p)[...] = x

        return run


def _within(op: ops.IndexOp) -> Callable[[int], int]:
    """The index that an instruction makes of a number."""
    low, high = integer(op.low), integer(op.high)
    return lambda number: low + number % (high - low + 1)


def _place(value: SSAValue, slots: Mapping[SSAValue, int]) -> Place:
    """Where a buffer operand is."""
    kind = value.type
    assert isinstance(kind, BufferType)
    alloc, slot = value.owner, 0
    if isinstance(alloc, ops.SlotOp):
        alloc, slot = alloc.source.owner, slots[value]
    assert isinstance(alloc, ops.AllocOp) and alloc.address is not None
    start = integer(alloc.address) + slot * kind.slot_bytes
    return Place(kind, kind.space, kind.shape, itemsize(kind.element), start, start + kind.slot_bytes)


def _inside(
    view: GmType, op: ops.TransferOp, offsets: Sequence[int]
) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[slice, ...]]:
    """(first element, sizes, steps in elements, place in the box) of the part of a box that is inside the view."""
    first, sizes, steps, places = view.offset, [], [], []
    for offset, count, step, extent, stride in zip(
        offsets, op.box_sizes, op.box_steps, view.shape, view.strides, strict=True
    ):
        p = offset + np.arange(count) * step
        here = np.flatnonzero((p >= 0) & (p < extent))
        low, n = (int(here[0]), len(here)) if len(here) else (0, 0)
        first += (offset + low * step) * stride
        sizes.append(n)
        steps.append(step * stride)
        places.append(slice(low, low + n))
    return first, tuple(sizes), tuple(steps), tuple(places)
