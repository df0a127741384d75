"""Faults in the order of a kernel's instructions: flags that are lost, swapped or retargeted, instructions moved."""

from __future__ import annotations

from mutation import Random, described, every, flags_like, pick, recount, section_of
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Operation

from tilewright.dialects import npu as ops
from tilewright.dialects.base import integer, text
from tilewright.dialects.npu import NpuOp
from tilewright.machine import Machine


def drop_set(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, every(kernel, ops.SetFlagOp, ops.SetCrossOp))
    return None if op is None else _drop(op)


def drop_wait(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, every(kernel, ops.WaitFlagOp, ops.WaitCrossOp))
    return None if op is None else _drop(op)


def drop_flag(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """Both sides of a flag, so that nothing is unpaired."""
    op = pick(rng, every(kernel, ops.SetFlagOp))
    if op is None:
        return None
    said = f"drop all of {described(op)}"
    for one in flags_like(kernel, op):
        one.detach()
        one.erase()
    return said


def drop_unit_flag(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A product or a drain no longer has its unit flag."""
    op = pick(rng, [o for o in every(kernel, ops.MmadOp, ops.FixpipeOp, ops.FixpipeL1Op) if o.unit_flag is not None])
    if op is None:
        return None
    del op.properties["unit_flag"]
    return f"drop the unit flag of {described(op)}"


def drop_cross(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """Both sides of a cross-core event."""
    op = pick(rng, every(kernel, ops.SetCrossOp))
    if op is None:
        return None
    for one in every(kernel, ops.SetCrossOp, ops.WaitCrossOp):
        if one.event == op.event:
            one.detach()
            one.erase()
    return f"drop cross-core event {integer(op.event)}"


def retarget_cross(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """One side of a cross-core event names another event, or another pipe that tells of it or is held."""
    op = pick(rng, every(kernel, ops.SetCrossOp, ops.WaitCrossOp))
    if op is None:
        return None
    said, side = described(op), "source" if isinstance(op, ops.SetCrossOp) else "target"
    used = {o.PIPE for o in every(section_of(op), NpuOp) if hasattr(o, "PIPE")}
    others = sorted(used - {text(op.properties[side])})
    if others and rng.random() < 0.5:
        op.properties[side] = StringAttr(rng.choice(others))
    else:
        known = {integer(o.event) for o in every(kernel, ops.SetCrossOp)}
        known = {*known, max(known, default=0) + 1} - {integer(op.event)}
        op.properties["event"] = IntegerAttr(rng.choice(sorted(known)), i64)
    return f"retarget {said} to {described(op)}"


def drop_barrier(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, every(kernel, ops.BarrierOp))
    return None if op is None else _drop(op)


def drop_pipe_barrier(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, every(kernel, ops.PipeBarrierOp))
    return None if op is None else _drop(op)


def retarget_pipe_barrier(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A barrier holds another pipe."""
    op = pick(rng, every(kernel, ops.PipeBarrierOp))
    used = set() if op is None else {o.PIPE for o in every(section_of(op), NpuOp) if hasattr(o, "PIPE")}
    others = sorted(used - {"S"} - ({text(op.pipe)} if op is not None else set()))
    if op is None or not others:
        return None
    said = described(op)
    op.properties["pipe"] = StringAttr(rng.choice(others))
    return f"retarget {said} to {described(op)}"


def move_barrier(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A barrier comes one instruction earlier or later."""
    op = pick(rng, every(kernel, ops.BarrierOp, ops.PipeBarrierOp))
    if op is None:
        return None
    at = _move(op, rng.random() < 0.5)
    return None if at is None else f"move a barrier over {at.name}"


def _move(op: Operation, later: bool) -> Operation | None:
    """Moves an op over the next instruction or loop, or over the one before, which it returns if there is one."""
    at = op.next_op if later else op.prev_op
    while at is not None and not isinstance(at, NpuOp | ForOp):
        at = at.next_op if later else at.prev_op
    block = op.parent
    if at is None or block is None:
        return None
    op.detach()
    if later:
        block.insert_op_after(op, at)
    else:
        block.insert_op_before(op, at)
    return at


def _drop(op: Operation) -> str:
    said = f"drop {described(op)}"
    op.detach()
    op.erase()
    return said


def swap_events(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """Two flag ops of one kind exchange pipes and events."""
    kind = rng.choice((ops.SetFlagOp, ops.WaitFlagOp))
    found = every(kernel, kind)
    if len(found) < 2:
        return None
    a, b = rng.sample(found, 2)
    for key in ("source", "target", "event", "slots"):
        a.properties[key], b.properties[key] = b.properties[key], a.properties[key]
    return f"swap {described(a)} with {described(b)}"


def retarget(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """One flag op names another pipe or event."""
    op = pick(rng, every(kernel, ops.SyncOp))
    if op is None:
        return None
    key = rng.choice(("source", "target", "event"))
    said = described(op)
    if key == "event":
        op.properties["event"] = IntegerAttr((integer(op.properties["event"]) + rng.randint(1, 7)) % 8, i64)
    else:
        used = {o.PIPE for o in every(section_of(op), NpuOp) if hasattr(o, "PIPE")}
        others = sorted(used - {text(op.properties[key])})
        if not others:
            return None
        op.properties[key] = StringAttr(rng.choice(others))
    return f"retarget {said} to {described(op)}"


def recount_flag(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """One flag op counts its slots another way."""
    op = pick(rng, [o for o in every(kernel, ops.SyncOp) if integer(o.properties["slots"]) > 1])
    return None if op is None else recount(op, rng)


def _movable(op: Operation) -> bool:
    return isinstance(op, NpuOp | ForOp)


def reorder(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """An instruction or a flag changes places with the one behind it."""
    pairs = []
    for op in kernel.walk():
        after = op.next_op
        while after is not None and isinstance(after, ops.SlotOp | ops.AllocOp):
            after = after.next_op
        if _movable(op) and after is not None and _movable(after) and not isinstance(after, YieldOp):
            names = {u.operation for r in op.results for u in r.uses}
            if after not in names and not (isinstance(op, ForOp) and isinstance(after, ForOp)):
                pairs.append((op, after))
    found = pick(rng, pairs)
    if found is None:
        return None
    first, second = found
    block = second.parent
    first.detach()
    block.insert_op_after(first, second)
    return f"move {described(first)} behind {described(second)}"


def hoist(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A wait moves behind what it protects, or a set before what it reports."""
    op = pick(rng, every(kernel, ops.SyncOp, ops.SetCrossOp, ops.WaitCrossOp))
    if op is None:
        return None
    at = _move(op, later=isinstance(op, ops.WaitFlagOp | ops.WaitCrossOp))
    return None if at is None else f"move {described(op)} over {at.name}"
