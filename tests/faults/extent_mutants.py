"""Faults in what a kernel's instructions touch: boxes, views, loops, and what goes by an index."""

from __future__ import annotations

from typing import Any

from mutation import Random, every, pick
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr
from xdsl.dialects.scf import ForOp
from xdsl.ir import Operation

from tilewright.dialects import npu as ops
from tilewright.dialects.base import integer, ints, to_ints
from tilewright.dialects.npu import BufferType, GmType, NpuOp
from tilewright.dialects.npu.cumulate import VCumulateOp
from tilewright.dialects.npu.scatter import VScatterOp
from tilewright.dialects.npu.sorting import VSortOp
from tilewright.machine import Machine


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


INDEXED = (VSortOp, VScatterOp, VCumulateOp, ops.LoadIndirectOp, ops.IndexOp, ops.VMaskOp)


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
    alloc = ops.whole_buffer(value)
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
