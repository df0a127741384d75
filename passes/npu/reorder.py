"""Moves the instructions of a block so that fewer flags order them; the order within each pipe is kept.

Pipes run in parallel, each in program order, so the position of an instruction among those of other pipes only matters
for the placement of flags. One flag for all loads of a block requires all of them to precede the first use.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.npu import AllocOp, BarrierOp, NpuOp, Pipe, SizeOp, SlotOp, SyncOp, ViewOp
from .flags import Home, SyncPair

_NAMES = (AllocOp, SizeOp, SlotOp, ViewOp, arith.ConstantOp)
"""Ops that only name things: they run on no pipe."""


def gather(block: Block, source: Pipe, target: Pipe) -> bool:
    """Moves the instructions of `source` up and those of `target` down past instructions of other pipes, as far as
    these touch nothing of theirs, in every block from `block` inwards. Whether something moved."""
    moved = False
    for op in list(block.ops):
        for region in op.regions:
            moved |= gather(region.block, source, target)
    ops = _names_first(list(block.ops))
    order = _raised(ops, source)
    order = _raised(order[::-1], target)[::-1]
    if order == ops:
        return moved
    for op in ops:
        op.detach()
    block.add_ops(order)
    return True


def wall_off(homes: Iterable[Home], flags: Iterable[SyncPair]) -> None:
    """A barrier before what each flag holds, unless one stands between the flag's two instructions already."""
    ordered = sorted(flags, key=lambda flag: flag.before)
    for home in homes:
        last: int | None = None
        for flag in ordered:
            if flag.block is not home.block or (last is not None and (flag.backward or flag.after < last)):
                continue
            last = flag.before
            held = home.items[flag.before]
            barrier = BarrierOp.create()
            barrier.location = held.location
            home.block.insert_op_before(barrier, held)


def _names_first(ops: list[Operation]) -> list[Operation]:
    """What only names things goes up to where its operands are known."""
    out: list[Operation] = []
    place: dict[Operation, int] = {}
    start = 0
    for op in ops:
        known = [place[v.owner] for v in op.operands if isinstance(v.owner, Operation) and v.owner in place]
        if isinstance(op, _NAMES) and max(known, default=-1) < start:
            out.insert(start, op)
            place[op] = start
            start += 1
        else:
            out.append(op)
            place[op] = len(ops)
    return out


def _raised(ops: list[Operation], pipe: Pipe) -> list[Operation]:
    """The ops with those of a pipe as early as they may be: past instructions of other pipes, neither of which writes
    what the other touches. A block's end and what only names things stay."""
    others: list[Operation] = []
    placed: list[tuple[int, Operation]] = []  # with how many of the others come before each
    least = 0
    touched: dict[SSAValue, int] = {}  # behind the last of the others that touches a value, or writes it
    written: dict[SSAValue, int] = {}
    for op in ops:
        if not isinstance(op, NpuOp) or not _moves(op):
            others.append(op)
            least = len(others)
            continue
        uses, writes = _touched(op)
        if pipe == op.PIPE:
            held = [*(written.get(v, 0) for v in uses), *(touched.get(v, 0) for v in writes)]
            least = max([least, *held])
            placed.append((least, op))
        else:
            others.append(op)
            touched.update(dict.fromkeys(uses, len(others)))
            written.update(dict.fromkeys(writes, len(others)))
    out: list[Operation] = []
    done = 0
    for before, op in placed:
        out += others[done:before]
        out.append(op)
        done = max(done, before)
    return out + others[done:]


def _moves(op: NpuOp) -> bool:
    return not (op.results or isinstance(op, (*_NAMES, SyncOp, BarrierOp)))


def _touched(op: NpuOp) -> tuple[set[SSAValue], set[SSAValue]]:
    """The buffers and tensors that an instruction touches, and those of them that it writes."""
    written = {_root(v) for v in op.writes()}
    return written | {_root(v) for v in op.reads()}, written


def _root(value: SSAValue) -> SSAValue:
    while isinstance(value.owner, SlotOp | ViewOp):
        value = value.owner.source
    return value
