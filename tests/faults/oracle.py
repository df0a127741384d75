"""Runs kernels on real bytes in any order that the machine allows: the judge of what npu-check lets pass.

It knows nothing of the checker. A core's scalar unit issues in program order into pipes; each pipe runs its queue
in order; flags are counters. Wherever several pipes could go on, a *schedule* decides. Memory is bytes: one array
per space of each core, one for the device, full of noise at the start.

What an instruction computes is replaced by a mixing function of all that it reads (element by element where the
instruction works so): another byte in gives other bytes out, and no arithmetic can hide it. Transfers move what
they really move. So two runs that end with equal bytes read the same values everywhere.
"""

from __future__ import annotations

import functools
import itertools
import random
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects import npu as ops
from tilewright.dialects.base import Linear, integer, text, to_ints
from tilewright.dialects.dtypes import itemsize, size
from tilewright.dialects.npu import BufferType, GmType, NpuOp, structure
from tilewright.machine import Machine

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")


class Stuck(Exception):
    """Nothing can go on: deadlock."""


class Crash(Exception):
    """An access outside a memory."""


class Device:
    """Device memory: an arena of bytes, and where each tensor begins."""

    def __init__(self, arena: np.ndarray):
        self.arena = arena

    def elements(self, address: int, width: int) -> tuple[np.ndarray, int]:
        """The arena as unsigned integers of `width` bytes, and the number of the tensor's first one."""
        if address % width:
            raise Crash(f"address {address} is no multiple of {width}")
        return self.arena[: len(self.arena) // width * width].view(f"u{width}"), address // width


def noise(n: int, seed: int) -> np.ndarray:
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)


# -- one instruction -----------------------------------------------------------------------------------------


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
        seed = zlib.crc32(np.ascontiguousarray(part).view(np.uint8).tobytes(), seed)
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
        total += (x if x.shape == shape else x.reshape(-1)[0]).astype(kind)
        total = mix(total)
    return total.astype(f"u{width}")


# -- one core --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Item:
    """Something in a pipe's queue."""

    kind: str
    op: Operation
    offsets: tuple[int, ...] = ()
    where: dict[SSAValue, int] = field(default_factory=dict)
    channel: Any = None


@dataclass
class Core:
    """One core of a grid point."""

    section: structure.SectionOp
    number: int
    unit: int
    block: int
    env: dict[SSAValue, int]
    memory: dict[str, np.ndarray]
    program: Iterator[Item] = field(default_factory=lambda: iter(()))
    queues: dict[str, deque[Item]] = field(default_factory=lambda: {p: deque() for p in PIPES})
    flags: dict[Any, int] = field(default_factory=dict)
    stopped: Item | None = None
    done: bool = False


class Launch:
    """One launch of a kernel, ready to run in any order."""

    def __init__(
        self,
        kernel: structure.KernelOp,
        machine: Machine,
        device: Device,
        addresses: Sequence[int],
        seed: int = 0,
        points: Sequence[tuple[int, ...]] | None = None,
    ):
        """addresses: bytes, of each tensor argument. points: the grid points to run, all by default."""
        self.kernel, self.machine, self.device = kernel, machine, device
        grid = to_ints(kernel.grid)
        args = kernel.body.block.args
        self.base: dict[SSAValue, int] = dict(zip(args[len(grid) :], addresses, strict=True))
        constants: dict[SSAValue, int] = {}
        sections: list[structure.SectionOp] = []
        for op in kernel.body.block.ops:
            if isinstance(op, structure.SectionOp):
                sections.append(op)
            else:
                self._name(op, constants)
        self.sends = [
            {integer(op.event) for op in s.body.walk() if isinstance(op, ops.SetCrossOp)} for s in sections
        ]
        spaces = {name: space.bytes for name, space in machine.spaces.items() if name != "gm"}
        reach = _reach(kernel, spaces)
        self.cores: list[Core] = []
        self.cross: dict[tuple[int, int, int], int] = {}
        every = list(itertools.product(*map(range, grid)))
        for block, point in enumerate(every if points is None else points):
            for number, section in enumerate(sections):
                for unit in range(integer(section.units)):
                    env = dict(constants) | dict(zip(args, point, strict=False))
                    env[section.body.block.args[0]] = unit
                    memory = {
                        s: noise(n, hash((seed, block, number, unit, s)) & 0xFFFFFFFF)
                        for s, n in reach.items()
                    }
                    core = Core(section, number, unit, block, env, memory)
                    core.program = self._issue(core, section.body.block)
                    self.cores.append(core)

    def _name(self, op: Operation, env: dict[SSAValue, int]) -> None:
        if isinstance(op, arith.ConstantOp):
            assert isinstance(op.value, IntegerAttr)
            env[op.result] = op.value.value.data
        elif isinstance(op, ops.ViewOp):
            self.base[op.result] = self.base[op.source]

    def _issue(self, core: Core, block: Block) -> Iterator[Item]:
        """The instructions of a core in program order."""
        env = core.env
        for op in block.ops:
            if isinstance(op, scf.ForOp):
                index = op.body.block.args[0]
                for value in range(env[op.lb], env[op.ub], env[op.step]):
                    env[index] = value
                    yield from self._issue(core, op.body.block)
            elif isinstance(op, arith.ConstantOp | ops.ViewOp):
                self._name(op, env)
            elif isinstance(op, ops.SlotOp):
                slots = op.source.type.slots
                (at,) = _rows(op, env)
                env[op.result] = at % slots
            elif isinstance(op, ops.SyncOp):
                number = integer(op.properties["event"]) + _rows(op, env)[0] % integer(op.properties["slots"])
                channel = (text(op.properties["source"]), text(op.properties["target"]), number)
                yield Item("set" if isinstance(op, ops.SetFlagOp) else "wait", op, channel=channel)
            elif isinstance(op, ops.SetCrossOp):
                yield Item("send", op, channel=integer(op.event))
            elif isinstance(op, ops.WaitCrossOp):
                yield Item("receive", op, channel=integer(op.event))
            elif isinstance(op, ops.BarrierOp):
                yield Item("barrier", op)
            elif isinstance(op, NpuOp):
                offsets = tuple(_rows(op, env)) if "offsets" in op.properties else ()
                slots = {v: env.get(v, 0) for v in op.operands if isinstance(v.type, BufferType)}
                yield Item("work", op, offsets, slots)

    # -- running -------------------------------------------------------------------------------------------

    def run(self, schedule: Schedule) -> None:
        """To the end. Raises Stuck on deadlock, Crash for an access outside a memory."""
        cores = self.cores
        for core in cores:
            self._feed(core)
        while True:
            ready = [(core, pipe) for core in cores for pipe in self._heads(core)]
            if not ready:
                if all(core.done and not any(core.queues.values()) for core in cores):
                    return
                raise Stuck
            core, pipe = schedule.choose(ready)
            self._step(core, pipe)

    def in_order(self) -> None:
        """In program order, each block's first section first: needs no flag (but obeys cross-core ones)."""
        for block in sorted({c.block for c in self.cores}):
            for core in sorted((c for c in self.cores if c.block == block), key=lambda c: (c.number, c.unit)):
                for item in core.program:
                    if item.kind == "work":
                        self._work(core, item)
                core.done = True

    def _feed(self, core: Core) -> None:
        """Issues up to the next instruction that the scalar unit itself runs or waits at."""
        core.stopped = None
        for item in core.program:
            pipe = _pipe(item)
            if pipe == "S":
                core.stopped = item
                return
            core.queues[pipe].append(item)
        core.done = True

    def _heads(self, core: Core) -> Iterator[str]:
        if core.stopped is not None and self._ready(core, core.stopped):
            yield "S"
        for pipe, queue in core.queues.items():
            if queue and self._ready(core, queue[0]):
                yield pipe

    def _ready(self, core: Core, item: Item) -> bool:
        if item.kind == "wait":
            return core.flags.get(item.channel, 0) > 0
        if item.kind == "barrier":
            return not any(core.queues.values())
        if item.kind == "receive":
            senders = self._senders(core, item.channel)
            return bool(senders) and all(self.cross.get((id(s), id(core), item.channel), 0) for s in senders)
        return True

    def _senders(self, core: Core, event: int) -> list[Core]:
        return [
            c
            for c in self.cores
            if c.block == core.block and c.number != core.number and event in self.sends[c.number]
        ]

    def _step(self, core: Core, pipe: str) -> None:
        scalar = pipe == "S"
        item = core.stopped if scalar else core.queues[pipe].popleft()
        assert item is not None
        if item.kind == "work":
            self._work(core, item)
        elif item.kind == "set":
            core.flags[item.channel] = core.flags.get(item.channel, 0) + 1
        elif item.kind == "wait":
            core.flags[item.channel] -= 1
        elif item.kind == "send":
            for other in self.cores:
                if other.block == core.block and other.number != core.number:
                    key = (id(core), id(other), item.channel)
                    self.cross[key] = self.cross.get(key, 0) + 1
        elif item.kind == "receive":
            for sender in self._senders(core, item.channel):
                self.cross[id(sender), id(core), item.channel] -= 1
        if scalar:
            self._feed(core)

    # -- effects -------------------------------------------------------------------------------------------

    def _buffer(self, core: Core, item: Item, value: SSAValue) -> np.ndarray:
        """The bytes of a buffer operand as [rows, elements] of its width."""
        kind = value.type
        assert isinstance(kind, BufferType)
        alloc = value.owner
        slot = 0
        if isinstance(alloc, ops.SlotOp):
            alloc, slot = alloc.source.owner, item.where[value]
        assert isinstance(alloc, ops.AllocOp) and alloc.address is not None
        start = integer(alloc.address) + slot * kind.slot_bytes
        memory = core.memory[kind.space]
        if start < 0 or start + kind.slot_bytes > len(memory):
            raise Crash(f"{kind} at {start}")
        width = itemsize(kind.element)
        inner = kind.shape[-1] if kind.shape else 1
        rows = size(kind.shape[:-1])
        flat = memory[start : start + kind.slot_bytes].reshape(rows, -1)[:, : inner * width]
        return flat

    def _read(self, core: Core, item: Item, value: SSAValue) -> np.ndarray:
        kind = value.type
        assert isinstance(kind, BufferType)
        found = np.ascontiguousarray(self._buffer(core, item, value)).view(f"u{itemsize(kind.element)}")
        return found.reshape(kind.shape)

    def _write(self, core: Core, item: Item, value: SSAValue, x: np.ndarray) -> None:
        target = self._buffer(core, item, value)
        target[...] = np.ascontiguousarray(x).reshape(target.shape[0], -1).view(np.uint8)

    def _flat(
        self, view: GmType, op: ops.TransferOp, offsets: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Element numbers of a box within its tensor, and which of them are inside the view (None for all)."""
        at = _offsets(op.box_sizes, op.box_steps, view.strides)
        at = at + (view.offset + sum(o * s for o, s in zip(offsets, view.strides, strict=True)))
        inside, whole = np.ones((), bool), True
        for offset, count, step, extent in zip(offsets, op.box_sizes, op.box_steps, view.shape, strict=True):
            p = offset + np.arange(count) * step
            here = (p >= 0) & (p < extent)
            whole = whole and bool(here.all())
            inside = inside[..., None] & here
        return at, None if whole else inside

    def _work(self, core: Core, item: Item) -> None:
        op = item.op
        assert isinstance(op, NpuOp)
        if isinstance(op, ops.LoadOp):
            self._load(core, item, op)
        elif isinstance(op, ops.TransferOp):
            self._store(core, item, op)
        elif isinstance(op, ops.LoadIndirectOp):
            self._gather(core, item, op)
        elif isinstance(op, ops.LoadScalarOp):
            view = op.source.type
            assert isinstance(view, GmType)
            at = view.offset + sum(o * s for o, s in zip(item.offsets, view.strides, strict=True))
            words, first = self.device.elements(self.base[op.source], itemsize(view.element))
            low, high = integer(op.low), integer(op.high)
            core.env[op.result] = low + int(words[first + at]) % (high - low + 1)
        else:
            self._compute(core, item, op)

    def _load(self, core: Core, item: Item, op: ops.LoadOp) -> None:
        view = op.view
        at, inside = self._flat(view, op, item.offsets)
        words, first = self.device.elements(self.base[op.main_operands()[0]], itemsize(view.element))
        fill = _seed(op, ("fill",)) & ((1 << 8 * itemsize(view.element)) - 1)
        if inside is None:
            x = _take(words, first + at)
        else:
            x = np.where(inside, _take(words, first + np.where(inside, at, 0)), words.dtype.type(fill))
        kind = op.tile().type
        assert isinstance(kind, BufferType)
        if kind.element != view.element:
            x = lanes([x], x.shape, itemsize(kind.element), 7)
        self._write(core, item, op.tile(), x.reshape(kind.shape))

    def _store(self, core: Core, item: Item, op: ops.TransferOp) -> None:
        view, kind = op.view, op.tile().type
        assert isinstance(kind, BufferType)
        x = self._read(core, item, op.tile())
        if kind.element != view.element:
            x = lanes([x], x.shape, itemsize(view.element), 7)
        at, inside = self._flat(view, op, item.offsets)
        words, first = self.device.elements(self.base[op.main_operands()[1]], itemsize(view.element))
        where = first + (at if inside is None else at[inside])
        if where.size and (where.min() < 0 or where.max() >= len(words)):
            raise Crash("store outside device memory")
        x = x.reshape(at.shape)
        words[where] = x if inside is None else x[inside]

    def _gather(self, core: Core, item: Item, op: ops.LoadIndirectOp) -> None:
        view, sizes = op.source.type, to_ints(op.sizes)
        assert isinstance(view, GmType)
        index = self._read(core, item, op.index).reshape(-1).astype(np.int64)
        at = np.zeros((), np.int64) + view.offset
        for n, stride in zip(sizes, view.strides, strict=True):
            at = at[..., None] + np.arange(n) * stride
        room = max(size(view.shape) - int(at.max(initial=0)), 1)
        words, first = self.device.elements(self.base[op.source], itemsize(view.element))
        x = _take(words, first + (index % room)[:, None] + at.reshape(1, -1))
        assert isinstance(op.dest.type, BufferType)
        self._write(core, item, op.dest, x.reshape(op.dest.type.shape))

    def _compute(self, core: Core, item: Item, op: NpuOp) -> None:
        fresh = isinstance(op, ops.MmadOp) and item.offsets[0] == 0
        read = [v for v in op.reads() if not (fresh and v is op.writes()[0])]
        sources = [self._read(core, item, v) for v in read]
        seed = _seed(op, item.offsets)
        elementwise = isinstance(op, ops.ElementwiseVectorOp)
        for i, value in enumerate(op.writes()):
            kind = value.type
            assert isinstance(kind, BufferType)
            width = itemsize(kind.element)
            if elementwise:
                x = lanes(sources, kind.shape, width, seed)
            else:
                x = generated(kind.shape, width, digest(sources, seed) + i)
            self._write(core, item, value, x)


@functools.lru_cache(maxsize=1024)
def _offsets(sizes: tuple[int, ...], steps: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Element numbers of a box relative to its first one."""
    at = np.zeros((), np.int64)
    for count, step, stride in zip(sizes, steps, strides, strict=True):
        at = at[..., None] + np.arange(count) * (step * stride)
    return at


def _take(words: np.ndarray, at: np.ndarray) -> np.ndarray:
    if at.size and (at.min() < 0 or at.max() >= len(words)):
        raise Crash("load outside device memory")
    return words[at]


_SEEDS: dict[Any, int] = {}


def _seed(op: Operation, more: tuple[Any, ...]) -> int:
    """A number for what an instruction computes: its name and properties, not where its operands are."""
    key = (op.name, more, tuple((k, str(v)) for k, v in sorted(op.properties.items()) if k != "offsets"))
    found = _SEEDS.get(key)
    if found is None:
        found = _SEEDS[key] = zlib.crc32(repr(key).encode())
    return found


def _rows(op: Any, env: dict[SSAValue, int]) -> list[int]:

    indices = op.indices if isinstance(op, ops.SlotOp) else op.index_operands()
    return Linear.decode(op.properties["offsets"], len(indices)).evaluate([env[v] for v in indices])


def _pipe(item: Item) -> str:
    op = item.op
    if item.kind in ("set", "send"):
        return text(op.properties["source"])
    if item.kind in ("wait", "receive"):
        return text(op.properties["target"])
    assert isinstance(op, NpuOp)
    return op.PIPE.value


def _reach(kernel: structure.KernelOp, spaces: dict[str, int]) -> dict[str, int]:
    """How much of each space a kernel uses (no more than there is)."""
    found: dict[str, int] = {}
    for op in kernel.walk():
        if isinstance(op, ops.AllocOp):
            kind = op.result.type
            assert isinstance(kind, BufferType)
            end = (integer(op.address) if op.address is not None else 0) + kind.slot_bytes * kind.slots
            found[kind.space] = min(max(found.get(kind.space, 0), end), spaces.get(kind.space, 0))
    return found


class Schedule:
    """Chooses among pipes that can go on: by rank, or at random with probability `chance`."""

    def __init__(self, seed: int, chance: float, slow: str | None = None, fast: str | None = None):
        self.random = random.Random(seed)
        self.chance = chance
        self.rank = {p: self.random.random() for p in PIPES}
        if slow is not None:
            self.rank[slow] = -1.0
        if fast is not None:
            self.rank[fast] = 2.0
        self.blocks: dict[int, float] = {}

    def choose(self, ready: Sequence[tuple[Core, str]]) -> tuple[Core, str]:
        if self.random.random() < self.chance:
            return self.random.choice(ready)
        return max(ready, key=lambda r: (self.rank[r[1]], self._of(r[0])))

    def _of(self, core: Core) -> float:
        found = self.blocks.get(id(core))
        if found is None:
            found = self.blocks[id(core)] = self.random.random()
        return found


def schedules(pipes: Sequence[str], extra: int, seed: int = 0) -> Iterator[Schedule]:
    """Every pipe as slow as can be, every pipe as fast as can be, then random ones."""
    for pipe in pipes:
        yield Schedule(seed, 0.0, slow=pipe)
        yield Schedule(seed, 0.0, fast=pipe)
    for i in range(extra):
        yield Schedule(seed + 1 + i, (1.0, 0.5, 0.1)[i % 3])
