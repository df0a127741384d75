"""The instructions and flags of a section as nodes, which the clock of a core runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import Operation

from ...dialects import npu as ops
from ...dialects.affine import Expr
from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.npu import BufferType, Cost, NpuOp
from ...machine import LEVELS, Machine
from .affine import TransferRow
from .errors import SimulationError
from .validity import Extents


@cache
def _numbers(pipes: tuple[str, ...]) -> dict[str, int]:
    return {pipe: i for i, pipe in enumerate(pipes)}


def number_of(pipe: str, machine: Machine, op: Operation) -> int:
    """Where a pipe is in a core's list of times, which is in the order of the machine's. Raises SimulationError."""
    found = _numbers(machine.pipes).get(pipe)
    if found is None:
        raise SimulationError(f"{describe(op)} uses pipe {pipe}, which {machine.name} does not have")
    return found


_EVENTS = 64
"""More than the event ids of any machine: channel = pipe pair * this + event."""
SUMS = 1 << 20
"""The first channel of accumulators; those of flags are less."""
UNIT_BYTES = 512
"""Sums that share a unit flag (Ascend/AscendNPU-IR; ../cost-model.md)."""

WORK, SET, WAIT, BARRIER, PIPE_BARRIER, SET_CROSS, WAIT_CROSS, LOOP = range(8)
"""A pipe_barrier takes its issue alone: instructions of one pipe take as long behind each other as alone (adk bank
test, in docs/cost-model.md)."""

Env = list[int]


@dataclass(frozen=True, slots=True)
class Sums:
    """An accumulator whose product and drain follow each other fractal by fractal: slot s of it has two pairs of times,
    `channel` + 2 s of what its last product did, and the next of its last drain. `pieces`: in how many flags the
    machine counts them; `drains`: whether the instruction is a drain."""

    channel: int
    counter: Expr[int]
    slots: int
    pieces: int
    drains: bool

    @property
    def channels(self) -> range:
        """All pairs of times."""
        return range(self.channel, self.channel + 2 * self.slots)

    def at(self, env: Env) -> int:
        """The channel of the slot that an environment selects."""
        return self.channel + 2 * (self.counter.evaluate(env) % self.slots)


class TimedNode:
    """One instruction or loop; `kind` is one of the constants above, `crosses`: it syncs with other cores, `issue`:
    cycles of the scalar unit that issues it."""

    __slots__ = ("issue", "kind", "op")

    def __init__(self, kind: int, op: Operation) -> None:
        self.kind, self.op, self.issue = kind, op, 0

    @property
    def crosses(self) -> bool:
        return self.kind in (SET_CROSS, WAIT_CROSS)


class TimedInstruction(TimedNode):
    """An instruction that keeps a pipe busy. `operand` is the kernel's device tensor that it moves, if any.

    `variants` are the costs it can have; which one holds follows from how its rows are clipped. `tile_bytes`
    are the bytes of on-chip memory it reads and writes each time, by memory level. `moves` are the bytes of
    device memory it asks for where nothing is clipped, `moves_with` the index variables that change which; `indirect`
    says that some do so by numbers that are read, so that it is not known which bytes these are. `sums` are those of a
    product or a drain with a unit flag.
    """

    __slots__ = (
        "_known",
        "_machine",
        "counted",
        "guards",
        "indices",
        "indirect",
        "moves",
        "moves_with",
        "number",
        "operand",
        "pipe",
        "rows",
        "sums",
        "tile_bytes",
        "variants",
        "writes",
    )
    op: NpuOp

    def __init__(
        self,
        op: NpuOp,
        number: int,
        machine: Machine,
        indices: Sequence[Expr[int]],
        rows: Sequence[TransferRow],
        operand: int | None,
        counted: Extents = (),
        behind: frozenset[int] = frozenset(),
    ) -> None:
        """`counted`: the extents that its cost goes by, where they may be less than the buffers'; `behind`: the index
        variables that change which numbers its own indices are."""
        super().__init__(WORK, op)
        self.number, self.pipe, self.operand = number, number_of(op.PIPE, machine, op), operand
        self.guards: tuple[TransferRow, ...] = ()
        self.counted = counted if any(counted) else ()
        self.indices, self.rows = tuple(indices), (*rows, *(row for row in self.counted if row is not None))
        self.tile_bytes = _tile_bytes(op)
        self.moves, self.moves_with, self.writes = 0, frozenset[int](), False
        if isinstance(op, ops.TransferOp):
            self.moves = size(op.box_sizes) * itemsize(op.view.element)
            self.moves_with = behind | {v for index in self._used(op) for v, _ in index.terms}
            self.writes = op.DEVICE_OPERAND == 1
        self.indirect = bool(behind)
        self.sums: Sums | None = None
        self.variants: list[Cost] = []
        self._known: dict[tuple[int, ...], int] = {}
        self._machine = machine

    def _used(self, op: ops.TransferOp) -> list[Expr[int]]:
        """The indices that some offset of a transfer uses."""
        used = {v for offset in op.linear() for v in offset.variables}
        return [e for v, e in zip(op.index_operands(), self.indices, strict=True) if v in used]

    def variant(self, env: Env) -> int:
        """Which of the costs holds in an environment."""
        key = tuple([_valid(row.offset.evaluate(env), row.count, row.step, row.extent) for row in self.rows])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.variants)
            try:
                self.variants.append(self._cost(env))
            except KeyError as error:
                raise SimulationError(
                    f"{describe(self.op)} has no cost on {self._machine.name}: {error.args[0]}"
                ) from error
        return found

    def guard(self, row: TransferRow) -> None:
        """Where all of `row` lies outside its tensor the instruction is not needed, and costs a cycle."""
        if row not in self.guards:
            self.guards = (*self.guards, row)
            self.rows = (*self.rows, row)

    def _cost(self, env: Env) -> Cost:
        if any(not _valid(row.offset.evaluate(env), row.count, row.step, row.extent) for row in self.guards):
            return Cost(1)
        indices = [i.evaluate(env) for i in self.indices]
        if not self.counted:
            return self.op.cost(self._machine, indices)
        valid = [
            None if row is None else _valid(row.offset.evaluate(env), row.count, row.step, row.extent)
            for row in self.counted
        ]
        return self.op.cost_of_part(self._machine, indices, valid)


def _tile_bytes(op: NpuOp) -> dict[str, int]:
    """Bytes of on-chip buffers read and written, by level of the machine's energy table (l1, l0, ub)."""
    moved: dict[str, int] = {}
    boxed = op.properties.get("sizes")
    for value in (*op.reads(), *op.writes()):
        if isinstance(value.type, BufferType):
            amount = value.type.slot_bytes
            if isinstance(boxed, DenseArrayBase):
                amount = min(amount, size(to_ints(boxed)) * itemsize(value.type.element))
            level = LEVELS.get(value.type.space, value.type.space)
            moved[level] = moved.get(level, 0) + amount
    return moved


def _valid(offset: int, count: int, step: int, extent: int) -> int:
    last = offset + (count - 1) * step
    if 0 <= offset < extent and 0 <= last < extent:
        return count
    if not step:
        return 0
    if step < 0:
        offset, step = last, -step
    first = 0 if offset >= 0 else -(offset // step)
    return max(0, min(count, -(-(extent - offset) // step)) - first)


class TimedFlag(TimedNode):
    """set_flag or wait_flag; its FIFO is `channel` + counter mod `slots`."""

    __slots__ = ("channel", "counter", "pipe", "slots")

    def __init__(self, op: ops.SyncOp, counter: Expr[int], machine: Machine) -> None:
        source, target = (number_of(pipe, machine, op) for pipe in (op.source_pipe(), op.target_pipe()))
        waits = isinstance(op, ops.WaitFlagOp)
        super().__init__(WAIT if waits else SET, op)
        self.pipe = target if waits else source
        self.channel = (source * len(machine.pipes) + target) * _EVENTS + integer(op.properties["event"])
        self.slots = integer(op.properties["slots"])
        self.counter = counter

    def flag(self, env: Env) -> str:
        """`MTE2 -> V event 1`, for messages."""
        source, target = (text(self.op.properties[key]) for key in ("source", "target"))
        event = integer(self.op.properties["event"]) + self.counter.evaluate(env) % self.slots
        return f"{source} -> {target} event {event}"


class TimedCross(TimedNode):
    """set_cross or wait_cross."""

    __slots__ = ("event", "pipe")

    def __init__(self, op: ops.SetCrossOp | ops.WaitCrossOp, machine: Machine) -> None:
        waits = isinstance(op, ops.WaitCrossOp)
        super().__init__(WAIT_CROSS if waits else SET_CROSS, op)
        self.pipe = number_of(text(op.properties["target" if waits else "source"]), machine, op)
        self.event = integer(op.event)
