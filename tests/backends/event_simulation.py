"""A plain event simulation of a block of cores, written apart from the simulator: every instruction is put into the
queue of its pipe, and pipes run whenever they can. No order of the program is used but that of each queue, no loop is
taken in one step."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.backends.simulator.core import BarrierWait
from tilewright.backends.simulator.nodes import (
    BARRIER,
    LOOP,
    SET,
    SET_CROSS,
    WAIT,
    WAIT_CROSS,
    Env,
    TimedCross,
    TimedFlag,
    TimedInstruction,
    TimedNode,
)
from tilewright.backends.simulator.pricing import InstructionPrices
from tilewright.backends.simulator.section import TimedLoop
from tilewright.dialects.npu import Pipe
from tilewright.machine import PIPES


@dataclass
class Item:
    """What stands in a queue: a kind, cycles of work, and the channel of a flag or event."""

    kind: int
    pipe: int
    busy: int = 0
    issue: int = 0
    channel: object = None
    issued: int = 0
    operand: int | None = None
    turn: Turn | None = None


@dataclass
class Turn:
    """What a product or a drain with a unit flag waits for: so many of the other kind, of the sums at a place."""

    place: int
    drains: bool
    after: int
    pieces: int


@dataclass
class PlainCore:
    """One core: its instructions to come, its queues, when each pipe is free, the flags that are up. signalling: cycles
    until another core's event is here."""

    section: int
    core: str
    sends: set[int]
    items: Iterator[Item]
    heads: Sequence[int]
    waits: Sequence[int]
    signalling: int
    queues: list[deque[Item]] = field(default_factory=lambda: [deque() for _ in PIPES])
    free: list[int] = field(default_factory=lambda: [0] * len(PIPES))
    flags: dict[object, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    done: dict[tuple[int, bool], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """When products and drains of sums had their first piece, and were over."""
    held: Item | None = None
    over: bool = False
    barrier: BarrierWait | None = None

    def __post_init__(self) -> None:
        if self.barrier is not None:
            self.free[:] = [dict(self.barrier.begins).get(self.core, 0)] * len(self.free)


def unrolled(
    nodes: Sequence[TimedNode], env: Env, price: InstructionPrices, turns: dict[tuple[int, bool], int]
) -> Iterator[Item]:
    """The instructions in the order of the program; `turns` counts products and drains of sums."""
    for node in nodes:
        if isinstance(node, TimedLoop):
            assert node.kind == LOOP
            first, stop = node.lower.evaluate(env), node.upper.evaluate(env)
            for index in range(first, stop, node.step):
                env[node.variable] = index
                yield from unrolled(node.body, env, price, turns)
        elif isinstance(node, TimedInstruction):
            variant = node.variant(env) if node.rows else 0
            busy = price.busy[node.number][variant]
            turn = None
            if node.sums is not None:
                place, drains = node.sums.at(env), node.sums.drains
                turn = Turn(place, drains, turns[place, not drains], node.sums.pieces)
                turns[place, drains] += 1
            yield Item(node.kind, node.pipe, busy, node.issue, operand=node.operand, turn=turn)
        elif isinstance(node, TimedFlag):
            channel = node.channel + node.counter.evaluate(env) % node.slots
            yield Item(node.kind, node.pipe, issue=node.issue, channel=channel)
        elif isinstance(node, TimedCross):
            yield Item(node.kind, node.pipe, issue=node.issue, channel=node.event)
        else:
            yield Item(node.kind, 0, issue=node.issue)


def run(
    kernel, point: tuple[int, ...], prices: Sequence[InstructionPrices], barrier: BarrierWait | None = None
) -> list[int]:
    """When each core of the block at a grid point is done, in cycles; `barrier`: which it waits for."""
    machine = kernel.machine
    heads = [machine.cube_head_cycles if pipe == Pipe.M else 0 for pipe in PIPES]
    waits = [machine.wait_cycles.get(pipe, 0) for pipe in PIPES]
    cores = [
        PlainCore(
            i,
            section.core,
            kernel.sections[i].sends,
            unrolled(kernel.sections[i].body, kernel.sections[i].environment(point, unit), prices[i], defaultdict(int)),
            heads,
            waits,
            round(machine.cross_us * machine.clock_mhz),
            barrier=barrier,
        )
        for i, section in enumerate(kernel.sections)
        for unit in range(section.units)
    ]
    events: dict[tuple[int, int, object], deque[int]] = defaultdict(deque)
    while not all(core.over for core in cores):
        moved = False
        for number, core in enumerate(cores):
            moved |= _issue(core)
            for pipe in range(len(PIPES)):
                moved |= _drain(core, number, pipe, cores, events)
            core.over = core.held is None and core.items is EMPTY and not any(core.queues)
        assert moved or all(core.over for core in cores), "deadlock"
    return [max(*core.free, core.barrier.cycles if core.barrier else 0) for core in cores]


EMPTY: Iterator[Item] = iter(())


def _issue(core: PlainCore) -> bool:
    """Puts instructions into queues until one must wait: a barrier, or one of the scalar unit itself."""
    moved = False
    while True:
        item, core.held = core.held or next(core.items, None), None
        if item is None:
            core.items = EMPTY
            return moved
        waits = item.kind == BARRIER or core.queues[0]
        if waits and any(core.queues[:1] if item.kind != BARRIER else core.queues):
            core.held = item
            return moved
        core.free[0] += item.issue
        if core.barrier is not None and item.operand is not None and item.operand not in core.barrier.ahead:
            core.free[0] = max(core.free[0], core.barrier.cycles)
            core.barrier = None
        item.issued = core.free[0]
        if item.kind == BARRIER:
            core.free[:] = [max(core.free)] * len(core.free)
        else:
            core.queues[item.pipe].append(item)
            if item.pipe == 0:
                return True
        moved = True


def _drain(core: PlainCore, number: int, pipe: int, cores: Sequence[PlainCore], events) -> bool:
    """Runs what stands in one queue as far as its flags are up."""
    queue, moved = core.queues[pipe], False
    while queue:
        item = queue[0]
        start = max(core.free[pipe], item.issued)
        if item.kind == WAIT:
            if not core.flags[item.channel]:
                return moved
            start = max(start, core.flags[item.channel].popleft() + core.heads[pipe]) + core.waits[pipe]
        elif item.kind == WAIT_CROSS:
            senders = [
                i for i, c in enumerate(cores) if c.section != core.section and item.channel in c.sends
            ]
            if not senders or not all(events[i, number, item.channel] for i in senders):
                return moved
            arrived = max(events[i, number, item.channel].popleft() for i in senders) + core.signalling
            start = max(start, arrived) + core.waits[pipe]
        elif item.turn is not None:
            before = core.done[item.turn.place, not item.turn.drains]
            if len(before) < item.turn.after:
                return moved
            first, last = before[item.turn.after - 1] if item.turn.after else (0, 0)
            piece = -(-item.busy // item.turn.pieces)
            start = max(start, first)
            end = max(start + item.busy, last + piece)
            core.done[item.turn.place, item.turn.drains].append((start + piece, end))
            start = end - item.busy
        elif item.kind == SET:
            core.flags[item.channel].append(start)
        elif item.kind == SET_CROSS:
            for other in range(len(cores)):
                events[number, other, item.channel].append(start)
        queue.popleft()
        if item.kind not in (SET, SET_CROSS):
            core.free[pipe] = start + item.busy
        moved = True
    return moved
