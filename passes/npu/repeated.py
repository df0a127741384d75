"""Rows, columns and numbers that instructions repeat themselves, in the place of tiles that they were repeated to.

Before:  vbroadcast %mean, %t : (8x1) -> 8x1024;   vsub %x, %t, %y
After:   vsub %x, %mean, %y

A number costs an instruction nothing, so it is always taken. A row or a column keeps an instruction from going over its
rows in one run, so it is taken where that costs no more than the tile did, or (`every`) where the tile has no room. In
a module for the vendor's IR it is what the vendor's library repeats.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.scf import ForOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.dtypes import itemsize, size
from ...dialects.npu import (
    ElementwiseVectorOp,
    NpuOp,
    VBroadcastOp,
    buffer,
    buffer_users,
    whole_buffer,
)
from ...dialects.npu.scratch import REPEATING
from ...dialects.npu.structure import SectionOp
from ...dialects.open_sizes import example
from ...dialects.shapes import is_column_of, is_row_of
from ...machine import Machine
from .loops import trip_count

COLUMN_WIDTHS = (2, 4)
"""Bytes of the elements whose columns an instruction repeats."""


def repeat_in_place(section: SectionOp, machine: Machine, every: bool = False) -> bool:
    """Has the instructions of a section read what is repeated for them; every: whatever that costs. Whether any did."""
    found = False
    orders: dict[Block, dict[Operation, int]] = {}
    for op in [op for op in section.body.walk() if isinstance(op, VBroadcastOp)]:
        users = _users(op, machine.in_library, orders)
        if not users or not (every or _is_no_slower(op, users, machine)):
            continue
        for user in users:
            for i, value in enumerate(user.operands):
                if value is op.dest:
                    user.operands[i] = op.source
        alloc = op.dest.owner
        assert isinstance(alloc, Operation)
        op.detach()
        op.erase()
        alloc.detach()
        alloc.erase()
        found = True
    return found


def _users(
    op: VBroadcastOp, vendor: bool, orders: dict[Block, dict[Operation, int]]
) -> Sequence[ElementwiseVectorOp]:
    """The instructions that read what is repeated, where all of them may repeat it themselves; else none. vendor:
    whether by the vendor's library; orders: as `_stays` keeps them."""
    source, dest = buffer(op.source), buffer(op.dest)
    if whole_buffer(op.dest) is not op.dest or dest.dtype() == "i1" or size(dest.shape) == 1:
        return ()
    one = size(source.shape) == 1
    column = is_column_of(source.shape, dest.shape) and itemsize(source.element) in COLUMN_WIDTHS
    if not (one or column or is_row_of(source.shape, dest.shape)) or (one and vendor):
        return ()
    users: list[ElementwiseVectorOp] = []
    for user in buffer_users(op.dest):
        if user is op:
            continue
        if not isinstance(user, ElementwiseVectorOp) or user.destinations()[0] is op.dest:
            return ()
        others = [v for v in user.sources() if v is not op.dest]
        full = buffer(user.destinations()[0]).shape
        if vendor and user.instruction not in REPEATING:
            return ()
        if full != dest.shape or len(others) != len(user.sources()) - 1:
            return ()
        if not any(buffer(v).shape == full for v in others) or (len(user.sources()) != 2 and not one):
            return ()
        users.append(user)
    return users if _stays(op, users, orders) else ()


def _stays(
    op: VBroadcastOp, users: Sequence[ElementwiseVectorOp], orders: dict[Block, dict[Operation, int]]
) -> bool:
    """Whether what is repeated is not written over before the last of its users. orders: the numbers of the ops of each
    block that was looked at, as far as they are left."""
    whole = whole_buffer(op.source)
    writers = [u for u in buffer_users(whole) if isinstance(u, NpuOp) and _writes(u, whole)]
    block = op.parent
    assert block is not None
    if len(writers) == 1:  # each round of a loop in which it is written is over before the next one
        within = writers[0].parent
        return within is not None and all(within.find_ancestor_op_in_block(u) is not None for u in (op, *users))
    if any(u.parent is not block for u in (*writers, *users)):
        return False
    if block not in orders:
        orders[block] = {each: i for i, each in enumerate(block.ops)}
    order = orders[block]
    last = max(order[u] for u in users)
    return not any(order[op] < order[w] <= last for w in writers)


def _writes(op: NpuOp, whole: SSAValue) -> bool:
    return any(whole_buffer(v) is whole for v in op.writes())


def _is_no_slower(op: VBroadcastOp, users: Sequence[ElementwiseVectorOp], machine: Machine) -> bool:
    """Whether users that repeat a row or a column take no longer than the repetition and what reads it."""
    if size(buffer(op.source).shape) == 1:
        return True
    saved = _rounds(op) * op.cost(machine, ()).cycles
    for user in users:
        whole = user.cost(machine, ()).cycles
        tried = user.clone()
        for i, value in enumerate(tried.operands):
            if value is op.dest:
                tried.operands[i] = op.source
        saved -= _rounds(user) * (tried.cost(machine, ()).cycles - whole)
        tried.erase()
    return saved >= 0


def _rounds(op: Operation) -> int:
    """How often an instruction runs in its section."""
    found, block = 1, op.parent
    while block is not None and isinstance(loop := block.parent_op(), ForOp):
        found *= max(example(trip_count(loop)), 1)
        block = loop.parent
    return found


