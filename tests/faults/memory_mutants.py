"""Faults in where a kernel's buffers lie: addresses, sizes, slots, and the workspaces between its sections."""

from __future__ import annotations

from typing import Any

from mutation import Random, every, pick, recount, section_of
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation

from tilewright.dialects import npu as ops
from tilewright.dialects.base import integer, ints, to_ints
from tilewright.dialects.npu import BufferType, GmType, NpuOp, structure
from tilewright.machine import Machine


def shift_address(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, every(kernel, ops.AllocOp))
    if op is None:
        return None
    kind: BufferType = op.result.type
    align = max(machine.spaces[kind.space].align, 32)
    steps = (
        align,
        -align,
        32,
        -32,
        4,
        kind.slot_bytes,
        -kind.slot_bytes,
        kind.slot_bytes // 2 // align * align,
    )
    by = rng.choice([s for s in steps if s])
    op.properties["address"] = IntegerAttr(integer(op.address) + by, i64)
    return f"shift {kind} by {by} bytes"


def shrink_buffer(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A buffer gets a slot less."""
    op = pick(rng, [o for o in every(kernel, ops.AllocOp) if o.result.type.slots > 1])
    if op is None:
        return None
    kind: BufferType = op.result.type
    less = BufferType.of(kind.shape, kind.element, kind.space, kind.slots - 1)
    op.result._type = less  # the slots that are taken of it keep their type
    return f"shrink {kind} to {less}"


def shrink_room(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A buffer is placed as if it were smaller: all buffers behind it in its space move down."""
    op = pick(rng, every(kernel, ops.AllocOp))
    if op is None:
        return None
    kind: BufferType = op.result.type
    align = max(machine.spaces[kind.space].align, 32)
    by = rng.randint(1, max(kind.slot_bytes * kind.slots // align, 1)) * align
    start = integer(op.address)
    moved = [
        o
        for o in every(section_of(op), ops.AllocOp)
        if o.result.type.space == kind.space and integer(o.address) >= start + kind.slot_bytes * kind.slots
    ]
    if not moved:
        return None
    for other in moved:
        other.properties["address"] = IntegerAttr(integer(other.address) - by, i64)
    return f"leave {by} bytes less for {kind}"


def swap_slots(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """One use of a multi-buffer takes another slot."""
    op = pick(rng, [o for o in every(kernel, ops.SlotOp) if o.source.type.slots > 1])
    if op is None:
        return None
    uses = [u for u in op.result.uses if isinstance(u.operation, NpuOp)]
    if not uses or rng.random() < 0.4:
        return recount(op, rng)
    use = rng.choice(uses)
    other = op.clone()
    assert isinstance(op.parent, type(use.operation.parent))
    op.parent.insert_op_after(other, op)
    said = recount(other, rng)
    use.operation.operands[use.index] = other.result
    return f"for {use.operation.name} only, {said}"


def swap_buffers(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """Two buffers exchange addresses."""
    op = pick(rng, every(kernel, ops.AllocOp))
    if op is None:
        return None
    same = [
        o
        for o in every(section_of(op), ops.AllocOp)
        if o.result.type.space == op.result.type.space and o.address != op.address
    ]
    other = pick(rng, same)
    if other is None:
        return None
    a, b = op.properties["address"], other.properties["address"]
    op.properties["address"], other.properties["address"] = b, a
    return f"swap the addresses of {op.result.type} and {other.result.type}"


def _through_workspace(kernel: structure.KernelOp) -> list[Any]:
    """The transfers to and from workspaces."""
    n = integer(kernel.workspaces)
    found = []
    stack = list(kernel.body.block.args[len(kernel.body.block.args) - n :])
    while stack:
        for use in stack.pop().uses:
            if isinstance(use.operation, ops.ViewOp):
                stack.append(use.operation.result)
            elif isinstance(use.operation, ops.TransferOp):
                found.append(use.operation)
    return found


def shift_in_workspace(kernel: structure.KernelOp, rng: Random, machine: Machine) -> str | None:
    """One side of a workspace stores or loads beside where the other one does."""
    op = pick(rng, [o for o in _through_workspace(kernel) if to_ints(o.properties.get("offsets"))])
    if op is None:
        return None
    old = to_ints(op.properties["offsets"])
    new = list(old)
    at = rng.randrange(len(new))
    new[at] += rng.choice((1, -1, 16, -new[at]) if new[at] else (1, -1, 16))
    op.properties["offsets"] = ints(new)
    return f"{op.name} of a workspace at {new} instead of {list(old)}"


def shift_view_of_workspace(kernel: structure.KernelOp, rng: Random, machine: Machine) -> str | None:
    """One side of a workspace sees it some elements further on, or with another stride."""
    op = pick(rng, _through_workspace(kernel))
    if op is None:
        return None
    (at,) = [i for i, v in enumerate(op.main_operands()) if isinstance(v.type, GmType)]
    source = op.main_operands()[at]
    kind: GmType = source.type
    strides, offset = list(kind.strides), kind.offset
    if strides and rng.random() < 0.5:
        d = rng.randrange(len(strides))
        strides[d] += rng.choice((1, -1))
    else:
        offset += rng.choice((1, 16, -1))
    made = ops.ViewOp.create(
        operands=[source], result_types=[GmType.of(kind.shape, kind.element, strides, offset)]
    )
    op.parent.insert_op_before(made, op)
    op.operands[at] = made.result
    return f"{op.name} sees {made.result.type} of a workspace"


def swap_tensors_of_kernel(kernel: structure.KernelOp, rng: Random, machine: Machine) -> str | None:
    """An instruction takes one device tensor for another one of its type: a workspace for an output, say."""
    args = [a for a in kernel.body.block.args if isinstance(a.type, GmType)]
    pairs = [(a, b) for a in args for b in args if a is not b and a.type == b.type and a.uses]
    chosen = pick(rng, pairs)
    if chosen is None:
        return None
    a, b = chosen
    use = rng.choice(list(a.uses))
    use.operation.operands[use.index] = b
    return f"{use.operation.name} takes device tensor {b.index} for {a.index}"
