"""Faults to inject: each mutation changes one thing about the order or the memory of a kernel (host_mutants.py: of the
host program).

A mutation takes a fresh clone and a random generator and changes it in place; it gives a sentence of what it
did, or None where the program has nothing of the kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, i64
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Operation

from tilewright.dialects import npu as ops
from tilewright.dialects.base import integer, ints, text, to_ints
from tilewright.dialects.npu import BufferType, GmType, NpuOp, structure
from tilewright.dialects.npu.cumulate import VCumulateOp
from tilewright.dialects.npu.scatter import VScatterOp
from tilewright.dialects.npu.sorting import VSortOp
from tilewright.machine import Machine

Random = random.Random
Op = TypeVar("Op", bound=Operation)
Mutation = Callable[[Any, Random, Machine], str | None]


def every(root: Operation, *kinds: type) -> list[Any]:
    return [op for op in root.walk() if isinstance(op, kinds)]


def pick(rng: Random, found: Sequence[Any]) -> Any:
    return rng.choice(found) if found else None


def flags_like(root: Operation, one: ops.SyncOp) -> list[ops.SyncOp]:
    """All ops of the same flag in the same section."""
    section = one.parent_op()
    while not isinstance(section, structure.SectionOp):
        assert section is not None
        section = section.parent_op()
    keys = ("source", "target", "event", "slots")
    return [f for f in every(section, ops.SyncOp) if all(f.properties[k] == one.properties[k] for k in keys)]


def section_of(op: Operation) -> Operation:
    while not isinstance(op, structure.SectionOp):
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


def described(op: Operation) -> str:
    return f"{op.name} {dict(sorted((k, str(v)) for k, v in op.properties.items()))}"


# -- flags -----------------------------------------------------------------------------------------------------


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
        used = {o.PIPE.value for o in every(section_of(op), NpuOp) if hasattr(o, "PIPE")}
        others = sorted(used - {text(op.properties[key])})
        if not others:
            return None
        op.properties[key] = StringAttr(rng.choice(others))
    return f"retarget {said} to {described(op)}"


def recount_flag(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """One flag op counts its slots another way."""
    op = pick(rng, [o for o in every(kernel, ops.SyncOp) if integer(o.properties["slots"]) > 1])
    return None if op is None else _recount(op, rng)


def _recount(op: Any, rng: Random) -> str:
    old = to_ints(op.properties["offsets"])
    new = list(old)
    at = rng.randrange(len(new))
    new[at] += rng.choice((1, -1))
    op.properties["offsets"] = ints(new)
    return f"{op.name} counts {new} instead of {list(old)}"


# -- memory ----------------------------------------------------------------------------------------------------


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
        return _recount(op, rng)
    use = rng.choice(uses)
    other = op.clone()
    assert isinstance(op.parent, type(use.operation.parent))
    op.parent.insert_op_after(other, op)
    said = _recount(other, rng)
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


# -- order -----------------------------------------------------------------------------------------------------


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
    waits = isinstance(op, ops.WaitFlagOp | ops.WaitCrossOp)
    at = op.next_op if waits else op.prev_op
    while at is not None and not isinstance(at, NpuOp | ForOp):
        at = at.next_op if waits else at.prev_op
    if at is None:
        return None
    block = op.parent
    op.detach()
    if waits:
        block.insert_op_after(op, at)
    else:
        block.insert_op_before(op, at)
    return f"move {described(op)} over {at.name}"


# -- extents ---------------------------------------------------------------------------------------------------


def shift_box(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A transfer or a move starts elsewhere, or advances otherwise."""
    found = [
        o for o in every(kernel, NpuOp) if "sizes" in o.properties and to_ints(o.properties.get("offsets"))
    ]
    op = pick(rng, found)
    if op is None:
        return None
    old = to_ints(op.properties["offsets"])
    new = list(old)
    at = rng.randrange(len(new))
    new[at] += rng.choice((1, -1, 16, -16, new[at], -new[at]) if new[at] else (1, -1, 16))
    op.properties["offsets"] = ints(new)
    return f"{op.name} at {new} instead of {list(old)}"


def resize_box(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A transfer moves another box of as many elements, or one with other steps."""
    op = pick(rng, [o for o in every(kernel, ops.TransferOp) if o.box_sizes])
    if op is None:
        return None
    sizes = list(op.box_sizes)
    d = rng.randrange(len(sizes))
    if rng.random() < 0.5 and len(sizes) > 1:
        e = rng.choice([i for i in range(len(sizes)) if i != d])
        if sizes[d] % 2 == 0:
            sizes[d], sizes[e] = sizes[d] // 2, sizes[e] * 2
        else:
            sizes[d], sizes[e] = sizes[e], sizes[d]
        if tuple(sizes) == op.box_sizes:
            return None
        op.properties["sizes"] = ints(sizes)
        return f"{op.name} moves {sizes}"
    steps = list(op.box_steps)
    steps[d] += 1
    op.properties["steps"] = ints(steps)
    return f"{op.name} steps {steps}"


def clip_view(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A tensor ends earlier than it does: what is valid of a tile shrinks."""
    values = [o.result for o in every(kernel, ops.ViewOp)]
    values += [a for a in kernel.regions[0].block.args if isinstance(a.type, GmType)]
    values = [v for v in values if v.type.shape and max(v.type.shape) > 1 and v.uses]
    value = pick(rng, values)
    if value is None:
        return None
    kind: GmType = value.type
    d = rng.choice([i for i, n in enumerate(kind.shape) if n > 1])
    shape = [n - 1 if i == d else n for i, n in enumerate(kind.shape)]
    value._type = GmType.of(shape, kind.element, kind.strides, kind.offset)
    return f"clip {kind} to {value.type}"


def shorten_loop(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A loop runs once less."""
    op = pick(rng, every(kernel, ForOp))
    if op is None:
        return None
    bound = op.ub.owner
    less = bound.clone()
    less.properties["value"] = IntegerAttr(integer(bound.properties["value"]) - 1, less.result.type)
    op.parent.insert_op_before(less, op)
    op.operands[1] = less.result
    return "a loop runs once less"


# -- instructions that go by an index --------------------------------------------------------------------------

INDEXED = (VSortOp, VScatterOp, VCumulateOp, ops.LoadIndirectOp, ops.LoadScalarOp, ops.VMaskOp)


def change_indexed(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A sort, scatter, cumulation, gather, mask or read of an index goes by other keys, another dimension, another
    start or other bounds."""
    op = pick(rng, every(kernel, *INDEXED))
    if op is None:
        return None
    changes = {
        key: value
        for key, value in op.properties.items()
        if (isinstance(value, DenseArrayBase) and len(value)) or isinstance(value, IntegerAttr)
    }
    if not changes:
        return None
    key = rng.choice(sorted(changes))
    old = changes[key]
    if isinstance(old, IntegerAttr):
        new: Any = IntegerAttr(integer(old) + rng.choice((1, -1)), old.type)
    else:
        numbers = list(to_ints(old))
        numbers[rng.randrange(len(numbers))] += rng.choice((1, -1))
        new = ints(numbers)
    said = f"{op.name}: {key} {new} instead of {old}"
    op.properties[key] = new
    return said


def swap_operands(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """Such an instruction takes one buffer for another one: a source, a destination or what it works in."""
    op = pick(rng, every(kernel, *INDEXED))
    if op is None:
        return None
    places = [i for i, v in enumerate(op.operands) if isinstance(v.type, BufferType)]
    if len(places) < 2:
        return None
    i, j = rng.sample(places, 2)
    if op.operands[i] is op.operands[j]:
        return None
    op.operands[i], op.operands[j] = op.operands[j], op.operands[i]
    return f"{op.name} with operands {i} and {j} swapped"


def resize_indexed(kernel: Operation, rng: Random, machine: Machine) -> str | None:
    """A buffer of such an instruction has a row or a column more or less."""
    op = pick(rng, every(kernel, *INDEXED))
    if op is None:
        return None
    found = [v for v in op.operands if isinstance(v.type, BufferType) and v.type.shape]
    value = pick(rng, found)
    if value is None:
        return None
    alloc = value.owner.source if isinstance(value.owner, ops.SlotOp) else value
    kind = value.type
    d, by = rng.randrange(len(kind.shape)), rng.choice((1, -1))
    shape = [n + by if i == d else n for i, n in enumerate(kind.shape)]
    if min(shape) < 1:
        return None
    alloc._type = BufferType.of(shape, kind.element, kind.space, alloc.type.slots)
    for use in alloc.uses:
        if isinstance(use.operation, ops.SlotOp):
            use.operation.result._type = BufferType.of(shape, kind.element, kind.space, 1)
    return f"{kind} of {op.name} becomes {alloc.type}"


# -- workspaces ------------------------------------------------------------------------------------------------


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


KERNEL_MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "drop a flag": (drop_set, drop_wait, drop_flag, drop_cross),
    "swap flags": (swap_events,),
    "retarget a flag": (retarget, recount_flag),
    "shift an address": (shift_address, swap_buffers),
    "shrink a buffer": (shrink_buffer, shrink_room),
    "swap slots": (swap_slots,),
    "reorder across pipes": (reorder, hoist),
    "change a valid extent": (shift_box, resize_box, clip_view, shorten_loop),
    "change sort, scatter, cumulate": (change_indexed, swap_operands, resize_indexed),
    "shift a workspace": (shift_in_workspace, shift_view_of_workspace, swap_tensors_of_kernel),
}
"""The kinds of the mutants of a kernel."""
