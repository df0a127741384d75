"""Runs kernels on real bytes in any order that the machine allows: the judge of what npu-check lets pass.

It knows nothing of the checker. A core's scalar unit issues in program order into pipes; each pipe runs its queue in
order, but that an instruction which need not wait for those ahead of it may come before some of them, up to a flag or a
barrier; flags are counters. Wherever several things could come next, a *schedule* decides. Memory is bytes: one array
per space of each core, one for the device, full of noise at the start. What an instruction does to them is in
instructions.py.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from instructions import Compiler, Crash, Device, Machinery, Memory, Work, noise
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects import npu as ops
from tilewright.dialects.affine import Expr
from tilewright.dialects.base import integer, text, to_ints
from tilewright.dialects.npu import BufferType, NpuOp, structure
from tilewright.machine import Machine

__all__ = ["Crash", "Device", "Launch", "Schedule", "Stuck", "noise", "schedules"]

AHEAD = 3
"""Instructions that one of the same pipe comes before at most."""

Head = tuple["Core", str, int]
"""What may come next: a core, its pipe, and the place in that pipe's queue."""

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")


class Stuck(Exception):
    """Nothing can go on: deadlock."""


@dataclass(slots=True)
class Item:
    """Something in a pipe's queue."""

    kind: str
    pipe: str
    channel: Any = None
    work: Work | None = None
    turn: Turn | None = None
    unordered: bool = False


UNIT = 512
"""Bytes of sums that a unit flag is for."""


@dataclass(slots=True)
class Turn:
    """What a product or a drain with a unit flag waits for: of each 512 bytes of its sums so many drains, or
    products."""

    own: list[tuple[str, int]]
    needs: dict[tuple[str, int], float]


class Turns:
    """The products and drains with unit flags that a core has issued."""

    def __init__(self) -> None:
        self.issued: dict[tuple[str, int], int] = {}
        self.begun: dict[int, bool] = {}

    def of(self, op: Operation, step: Sequence[int], env: dict[SSAValue, int]) -> Turn | None:
        """The turn of an instruction that is issued next. One waits for ever where its sums are not there, or have not
        left before they begin anew."""
        if not isinstance(op, ops.MmadOp | ops.FixpipeOp | ops.FixpipeL1Op) or op.unit_flag is None:
            return None
        product = isinstance(op, ops.MmadOp)
        value = op.acc if product else op.source
        alloc = ops.whole_buffer(value)
        size = alloc.type.slot_bytes
        address = integer(alloc.owner.address) + env.get(value, 0) * size
        turn = Turn([], {})
        for unit in range(address // UNIT, -(-(address + size) // UNIT)):
            stuck = product == self.begun.get(unit, False) and (not product or step[0] == 0)
            self.begun[unit] = product
            own, other = (("M", unit), ("FIX", unit))[:: 1 if product else -1]
            self.issued[own] = self.issued.get(own, 0) + 1
            turn.own.append(own)
            turn.needs[other] = float("inf") if stuck else self.issued.get(other, 0)
        return turn


class Plan:
    """What the cores of a kernel issue, found out once for all runs of it.

    A core's items depend on nothing but its place, unless the kernel reads indices from device memory."""

    def __init__(self, kernel: structure.KernelOp, machine: Machine):
        self.machine = machine
        self.grid = to_ints(kernel.grid)
        args = kernel.body.block.args
        self.coordinates = args[: len(self.grid)]
        self.constants: dict[SSAValue, int] = {}
        self.sections: list[structure.SectionOp] = []
        for op in kernel.body.block.ops:
            if isinstance(op, structure.SectionOp):
                self.sections.append(op)
            else:
                _name(op, self.constants)
        self.sends = [
            {integer(o.event) for o in s.body.walk() if isinstance(o, ops.SetCrossOp)} for s in self.sections
        ]
        spaces = {name: space.bytes for name, space in machine.spaces.items() if name != "gm"}
        self.reach = _reach(kernel, spaces)
        self.indexed = any(isinstance(op, ops.IndexOp) for op in kernel.walk())
        self.compiler = Compiler(args[len(self.grid) :])
        self._issued: dict[tuple[Any, ...], list[Item]] = {}
        self._rows: dict[Operation, tuple[Expr, ...]] = {}

    def items(self, point: Sequence[int], number: int, unit: int, env: dict[SSAValue, int]) -> Iterator[Item]:
        """The instructions of a core in program order."""
        section = self.sections[number]
        env |= self.constants | dict(zip(self.coordinates, point, strict=True))
        env[section.body.block.args[0]] = unit
        if self.indexed:
            return self._issue(env, section.body.block, Turns())
        key = (tuple(point), number, unit)
        if key not in self._issued:
            self._issued[key] = list(self._issue(env, section.body.block, Turns()))
        return iter(self._issued[key])

    def _issue(self, env: dict[SSAValue, int], block: Block, turns: Turns) -> Iterator[Item]:
        for op in block.ops:
            if isinstance(op, scf.ForOp):
                index = op.body.block.args[0]
                for value in range(env[op.lb], env[op.ub], env[op.step]):
                    env[index] = value
                    yield from self._issue(env, op.body.block, turns)
            elif isinstance(op, arith.ConstantOp):
                _name(op, env)
            elif isinstance(op, ops.SlotOp):
                (at,) = self._evaluated(op, env)
                env[op.result] = at % op.source.type.slots
            elif isinstance(op, ops.SyncOp):
                at = self._evaluated(op, env)[0] % integer(op.properties["slots"])
                source, target = text(op.properties["source"]), text(op.properties["target"])
                channel = (source, target, integer(op.properties["event"]) + at)
                sets = isinstance(op, ops.SetFlagOp)
                yield Item("set" if sets else "wait", source if sets else target, channel)
            elif isinstance(op, ops.SetCrossOp):
                yield Item("send", text(op.source), integer(op.event))
            elif isinstance(op, ops.WaitCrossOp):
                yield Item("receive", text(op.target), integer(op.event))
            elif isinstance(op, ops.BarrierOp):
                yield Item("barrier", op.PIPE)
            elif isinstance(op, ops.PipeBarrierOp):
                yield Item("pipe barrier", *op.pipes())
            elif isinstance(op, NpuOp) and not isinstance(op, ops.ViewOp):
                offsets = tuple(self._evaluated(op, env)) if "offsets" in op.properties else ()
                slots = {v: env.get(v, 0) for v in op.operands if isinstance(v.type, BufferType)}
                turn = turns.of(op, offsets, env)
                work = self.compiler.work(op, offsets, slots)
                yield Item("work", op.PIPE, None, work, turn, op.is_unordered(self.machine))

    def _evaluated(self, op: Any, env: dict[SSAValue, int]) -> list[int]:
        rows = self._rows.get(op)
        if rows is None:
            rows = self._rows[op] = op.linear()
        return [row.evaluate(env) for row in rows]


_PLANS: dict[structure.KernelOp, Plan] = {}


def plan_of(kernel: structure.KernelOp, machine: Machine) -> Plan:
    """The plan of a kernel, which must stay as it is; of the last two kernels it is kept."""
    found = _PLANS.pop(kernel, None) or Plan(kernel, machine)
    _PLANS[kernel] = found
    if len(_PLANS) > 2:
        del _PLANS[next(iter(_PLANS))]
    return found


def _name(op: Operation, env: dict[SSAValue, int]) -> None:
    if isinstance(op, arith.ConstantOp):
        assert isinstance(op.value, IntegerAttr)
        env[op.result] = op.value.value.data


@dataclass(eq=False)
class Core:
    """One core of a grid point."""

    number: int
    unit: int
    block: int
    on: Machinery
    program: Iterator[Item]
    queues: dict[str, deque[Item]] = field(default_factory=lambda: {p: deque() for p in PIPES})
    flags: dict[Any, int] = field(default_factory=dict)
    turns: dict[tuple[str, int], int] = field(default_factory=dict)
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
        """addresses: bytes, of each tensor argument. seed: of what memories hold. points: the grid points to run, all
        by default."""
        self.plan = plan = plan_of(kernel, machine)
        self.cores: list[Core] = []
        self.cross: dict[tuple[Core, Core, int], int] = {}
        every = itertools.product(*map(range, plan.grid)) if points is None else points
        for block, point in enumerate(every):
            for number, section in enumerate(plan.sections):
                for unit in range(integer(section.units)):
                    memory = Memory(plan.reach, 17 * seed + 29 * block + 7 * number + 3 * unit)
                    on = Machinery(memory, device, addresses)
                    program = plan.items(point, number, unit, on.registers)
                    self.cores.append(Core(number, unit, block, on, program))
        self.blocks = {b: list(cores) for b, cores in itertools.groupby(self.cores, lambda c: c.block)}
        self.senders: dict[tuple[Core, int], list[Core]] = {}

    # -- running -------------------------------------------------------------------------------------------

    def run(self, schedule: Schedule) -> None:
        """To the end. Raises Stuck on deadlock, Crash for an access outside a memory."""
        for core in self.cores:
            self._feed(core)
        heads = {core: self._heads(core) for core in self.cores}
        while True:
            ready = [head for found in heads.values() for head in found]
            if not ready:
                if all(core.done and not any(core.queues.values()) for core in self.cores):
                    return
                raise Stuck
            core, pipe, place = schedule.choose(ready)
            if self._step(core, pipe, place):
                for other in self.blocks[core.block]:
                    heads[other] = self._heads(other)
            else:
                heads[core] = self._heads(core)

    def in_order(self) -> None:
        """Each core in program order, the first section's first, until it waits for another one: needs no flag but
        those between cores. Raises Stuck on deadlock."""
        for cores in self.blocks.values():
            waiting: dict[Core, Item | None] = dict.fromkeys(cores)
            while waiting:
                moved = [self._advance(core, waiting) for core in cores if core in waiting]
                if not any(moved):
                    raise Stuck

    def _advance(self, core: Core, waiting: dict[Core, Item | None]) -> bool:
        """Runs a core until it waits, which is noted, or ends; whether it got on."""
        item, moved = waiting[core] or next(core.program, None), False
        while item is not None:
            if item.kind == "receive" and not self._ready(core, item):
                waiting[core] = item
                return moved
            moved = True
            if item.work is not None:
                item.work(core.on)
            elif item.kind in ("send", "receive"):
                self._signal(core, item)
            item = next(core.program, None)
        del waiting[core]
        core.done = True
        return True

    def _signal(self, core: Core, item: Item) -> None:
        """Sends to the cores of the other section, or takes what they sent."""
        if item.kind == "send":
            for other in self.blocks[core.block]:
                if other.number != core.number:
                    key = (core, other, item.channel)
                    self.cross[key] = self.cross.get(key, 0) + 1
        else:
            for sender in self._senders(core, item.channel):
                self.cross[sender, core, item.channel] -= 1

    def _feed(self, core: Core) -> None:
        """Issues up to the next instruction that the scalar unit itself runs or waits at."""
        core.stopped = None
        for item in core.program:
            if item.pipe == "S":
                core.stopped = item
                return
            core.queues[item.pipe].append(item)
        core.done = True

    def _heads(self, core: Core) -> list[Head]:
        found: list[Head] = []
        if core.stopped is not None and self._ready(core, core.stopped):
            found.append((core, "S", 0))
        for pipe, queue in core.queues.items():
            if queue and self._ready(core, queue[0]):
                found.append((core, pipe, 0))
                found += [(core, pipe, place) for place in _overlapping(queue)]
        return found

    def _ready(self, core: Core, item: Item) -> bool:
        if item.turn is not None:
            return all(core.turns.get(other, 0) >= needs for other, needs in item.turn.needs.items())
        if item.work is not None:
            return True
        if item.kind == "wait":
            return core.flags.get(item.channel, 0) > 0
        if item.kind == "barrier":
            return not any(core.queues.values())
        if item.kind == "receive":
            senders = self._senders(core, item.channel)
            return bool(senders) and all(self.cross.get((s, core, item.channel), 0) for s in senders)
        return True

    def _senders(self, core: Core, event: int) -> list[Core]:
        found = self.senders.get((core, event))
        if found is None:
            found = self.senders[core, event] = [
                c
                for c in self.blocks[core.block]
                if c.number != core.number and event in self.plan.sends[c.number]
            ]
        return found

    def _step(self, core: Core, pipe: str, place: int) -> bool:
        """Runs one item; whether other cores may notice."""
        scalar = pipe == "S"
        item = core.stopped if scalar else core.queues[pipe][place]
        assert item is not None
        if not scalar:
            del core.queues[pipe][place]
        if item.turn is not None:
            for own in item.turn.own:
                core.turns[own] = core.turns.get(own, 0) + 1
        if item.work is not None:
            item.work(core.on)
        elif item.kind == "set":
            core.flags[item.channel] = core.flags.get(item.channel, 0) + 1
        elif item.kind == "wait":
            core.flags[item.channel] -= 1
        elif item.kind in ("send", "receive"):
            self._signal(core, item)
        if scalar:
            self._feed(core)
        return item.kind == "send"


def _overlapping(queue: deque[Item]) -> Iterator[int]:
    """The places of instructions in a pipe's queue that may come before the first one."""
    if queue[0].kind == "work" and queue[0].turn is None:
        for place, item in enumerate(itertools.islice(queue, 1, AHEAD + 1), 1):
            if item.kind != "work" or item.turn is not None:
                return
            if item.unordered:
                yield place


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
    """Chooses among pipes that can go on: by rank, or at random with probability `chance`. overlap: of what a pipe may
    do next, the last comes first."""

    def __init__(
        self, seed: int, chance: float, slow: str | None = None, fast: str | None = None, overlap: bool = False
    ):
        self.overlap = 1 if overlap else -1
        self.random = random.Random(seed)
        self.chance = chance
        self.rank = {p: self.random.random() for p in PIPES}
        if slow is not None:
            self.rank[slow] = -1.0
        if fast is not None:
            self.rank[fast] = 2.0
        self.blocks: dict[int, float] = {}

    def choose(self, ready: Sequence[Head]) -> Head:
        if self.random.random() < self.chance:
            return self.random.choice(ready)
        return max(ready, key=lambda r: (self.rank[r[1]], self._of(r[0]), self.overlap * r[2]))

    def _of(self, core: Core) -> float:
        found = self.blocks.get(id(core))
        if found is None:
            found = self.blocks[id(core)] = self.random.random()
        return found


def schedules(pipes: Sequence[str], extra: int, seed: int = 0) -> Iterator[Schedule]:
    """Every pipe as slow as can be, every pipe as fast as can be, each with what it may do later first, then random
    ones."""
    for pipe in pipes:
        yield Schedule(seed, 0.0, slow=pipe)
        yield Schedule(seed, 0.0, fast=pipe)
    yield Schedule(seed, 0.0, overlap=True)
    for i in range(extra):
        yield Schedule(seed + 1 + i, (1.0, 0.5, 0.1)[i % 3])
