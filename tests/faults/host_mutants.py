"""Faults of the host program: its addresses, its steps and their order, what they are given, and its numbers.

As in mutants.py; what is changed is a module of the program's functions, without the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mutation import Mutation, Random, every, pick
from stream_mutants import STREAM_MUTATIONS
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, SymbolRefAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects.base import integer, ints, to_ints
from tilewright.dialects.graph import ConstantOp
from tilewright.dialects.graph.attributes import DataAttr
from tilewright.dialects.npu import structure
from tilewright.machine import Machine

STEPS = (
    structure.LaunchOp,
    structure.CopyOp,
    structure.CallOp,
    structure.HostCallOp,
    structure.ToHostOp,
    structure.ToDeviceOp,
    structure.ScalarsOp,
    structure.LoopOp,
    structure.BranchOp,
)
GIVEN = (structure.LaunchOp, structure.CallOp, structure.HostCallOp)
"""Steps with a list of arguments."""


def _drop(op: Operation) -> str:
    said = f"drop {op.name} {op.properties.get('callee', '')}"
    op.detach()
    op.erase()
    return said


def _visible(op: Operation, wanted: Any) -> list[SSAValue]:
    """The values of a type that an op could take."""
    found: list[SSAValue] = []
    at: Operation | None = op
    while at is not None and not isinstance(at, ModuleOp):
        before = at.prev_op
        while before is not None:
            found += [r for r in before.results if r.type == wanted]
            before = before.prev_op
        block = at.parent
        assert isinstance(block, Block)
        found += [a for a in block.args if a.type == wanted]
        at = None if isinstance(at.parent_op(), FuncOp) else at.parent_op()
    return found


# -- addresses -------------------------------------------------------------------------------------------------


def shift_tensor(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, every(module, structure.GmAllocOp, structure.GmConstantOp))
    return None if op is None else _shift(op, rng, machine)


def _shift(op: Any, rng: Random, machine: Machine) -> str | None:
    if not op.result.uses:
        return None
    align = machine.gm_align
    by = rng.choice((align, -align, align // 2, op.result.type.bytes // 2 or 32))
    op.properties["address"] = IntegerAttr(integer(op.address) + by, op.address.type)
    return f"shift {op.result.type} by {by} bytes"


def swap_tensors(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    found = every(module, structure.GmAllocOp, structure.GmConstantOp)
    if len(found) < 2:
        return None
    a, b = rng.sample(found, 2)
    a.properties["address"], b.properties["address"] = b.properties["address"], a.properties["address"]
    return f"swap the addresses of {a.result.type} and {b.result.type}"


def merge_tensors(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    found = every(module, structure.GmAllocOp, structure.GmConstantOp)
    if len(found) < 2:
        return None
    a, b = rng.sample(found, 2)
    a.properties["address"] = b.properties["address"]
    return f"{a.result.type} at the address of {b.result.type}"


def shift_argument(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """The program's arguments are elsewhere."""
    func = pick(rng, [f for f in every(module, FuncOp) if to_ints(f.attributes.get("npu.addresses"))])
    if func is None:
        return None
    addresses = list(to_ints(func.attributes["npu.addresses"]))
    i = rng.randrange(len(addresses))
    by = rng.choice((machine.gm_align, -machine.gm_align, machine.gm_align // 2))
    addresses[i] += by
    func.attributes["npu.addresses"] = ints(addresses)
    return f"argument {i} shifted by {by} bytes"


def shift_workspace(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A launch's workspace is elsewhere: by a little, or at another tensor that is used."""
    found = []
    for op in every(module, structure.LaunchOp):
        n = integer(op.workspaces)
        found += [v.owner for v in op.operands[len(op.operands) - n :]]
    op = pick(rng, [o for o in found if isinstance(o, structure.GmAllocOp)])
    if op is None:
        return None
    others = [o for o in every(module, structure.GmAllocOp, structure.GmConstantOp) if o is not op]
    if others and rng.random() < 0.5:
        op.properties["address"] = rng.choice(others).properties["address"]
        return f"workspace {op.result.type} at another tensor's address"
    return _shift(op, rng, machine)


# -- frames ----------------------------------------------------------------------------------------------------


def _framed(module: ModuleOp, rng: Random) -> FuncOp | None:
    return pick(rng, [f for f in every(module, FuncOp) if "npu.frame" in f.attributes])


def shift_frame(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """All that a called function has in device memory is elsewhere, which it says or does not say."""
    func = _framed(module, rng)
    if func is None:
        return None
    start, end = to_ints(func.attributes["npu.frame"])
    by = rng.choice((-(end - start), -machine.gm_align, machine.gm_align, -start, end - start))
    if not by:
        return None
    for op in every(func, structure.GmAllocOp):
        op.properties["address"] = IntegerAttr(integer(op.address) + by, op.address.type)
    told = rng.random() < 0.6
    if told:
        func.attributes["npu.frame"] = ints([start + by, end + by])
    return (
        f"shift the frame of @{func.sym_name.data} by {by} bytes{'' if told else ', which it does not say'}"
    )


def shrink_frame(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A called function says that it works in less memory than it does, or the arena has less."""
    func = _framed(module, rng)
    if func is None or rng.random() < 0.2:
        entry = next(f for f in every(module, FuncOp) if "npu.arena_bytes" in f.attributes)
        old = integer(entry.attributes["npu.arena_bytes"])
        by = rng.choice((1, machine.gm_align, old // 2))
        entry.attributes["npu.arena_bytes"] = IntegerAttr(max(old - by, 0), 64)
        return f"shrink the arena by {by} bytes"
    start, end = to_ints(func.attributes["npu.frame"])
    by = rng.choice((1, machine.gm_align, (end - start) // 2, end - start))
    at_start = rng.random() < 0.5
    func.attributes["npu.frame"] = ints([start + by, end] if at_start else [start, end - by])
    return f"shrink the frame of @{func.sym_name.data} by {by} bytes at its {'start' if at_start else 'end'}"


# -- steps -----------------------------------------------------------------------------------------------------


def drop_step(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    kinds = (structure.LaunchOp, structure.CopyOp, structure.CallOp)
    op = pick(rng, every(module, *kinds))
    return None if op is None else _drop(op)


def drop_to_device(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, every(module, structure.ToDeviceOp))
    return None if op is None else _drop(op)


def _pairs(module: ModuleOp) -> Iterator[tuple[Operation, Operation]]:
    """Neighbouring steps of which the second does not take a number that the first gives."""
    for op in every(module, *STEPS):
        after = op.next_op
        while after is not None and not isinstance(after, STEPS):
            after = after.next_op
        if after is None:
            continue
        between, stop = op.next_op, False
        while between is not after and between is not None:
            stop |= any(v.owner is op for v in between.operands)
            between = between.next_op
        if not stop and not any(v.owner is op for inner in after.walk() for v in inner.operands):
            yield op, after


def reorder_steps(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    chosen = pick(rng, list(_pairs(module)))
    if chosen is None:
        return None
    first, second = chosen
    first.detach()
    second.parent.insert_op_after(first, second)
    return f"{first.name} after {second.name}"


# -- what a step is given --------------------------------------------------------------------------------------


def drop_argument(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, [o for o in every(module, *GIVEN) if o.operands])
    if op is None:
        return None
    at = rng.randrange(len(op.operands))
    op.operands = [v for i, v in enumerate(op.operands) if i != at]
    return f"{op.name} without operand {at}"


def swap_arguments(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, [o for o in every(module, *GIVEN) if len(o.operands) > 1])
    if op is None:
        return None
    pairs = [
        (i, j) for j in range(len(op.operands)) for i in range(j) if op.operands[i] is not op.operands[j]
    ]
    alike = [(i, j) for i, j in pairs if op.operands[i].type == op.operands[j].type]
    chosen = pick(rng, alike if alike and rng.random() < 0.7 else pairs)
    if chosen is None:
        return None
    i, j = chosen
    op.operands[i], op.operands[j] = op.operands[j], op.operands[i]
    return f"{op.name} with operands {i} and {j} swapped"


def other_argument(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A step takes another tensor or number of the same type."""
    steps = (
        *GIVEN,
        structure.CopyOp,
        structure.ToDeviceOp,
        structure.ToHostOp,
        structure.NpuYieldOp,
        ReturnOp,
    )
    op = pick(rng, [o for o in every(module, *steps) if o.operands])
    if op is None:
        return None
    at = rng.randrange(len(op.operands))
    others = [v for v in _visible(op, op.operands[at].type) if v is not op.operands[at]]
    other = pick(rng, others)
    if other is None:
        return None
    op.operands[at] = other
    return f"operand {at} of {op.name} is another {other.type}"


def other_callee(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A launch runs the kernel of another launch, or a call another one's function, of the same types."""
    found = every(module, structure.LaunchOp, structure.CallOp)
    kinds: dict[tuple[Any, ...], set[str]] = {}
    for op in found:
        kinds.setdefault(_signature(op), set()).add(op.callee.root_reference.data)
    op = pick(rng, [o for o in found if len(kinds[_signature(o)]) > 1])
    if op is None:
        return None
    old = op.callee.root_reference.data
    new = rng.choice(sorted(kinds[_signature(op)] - {old}))
    op.properties["callee"] = SymbolRefAttr(new)
    return f"{op.name} of @{new} instead of @{old}"


def _signature(op: Any) -> tuple[Any, ...]:
    return (
        op.name,
        op.properties.get("outputs"),
        op.properties.get("workspaces"),
        *(v.type for v in op.operands),
    )


def reverse_copy(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, every(module, structure.CopyOp))
    if op is None:
        return None
    op.operands = op.operands[::-1]
    return f"the copy of {op.source.type} goes the other way"


def recount_outputs(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A launch or call says that it writes one tensor more or less, or has a workspace more."""
    op = pick(rng, every(module, structure.LaunchOp, structure.CallOp))
    if op is None:
        return None
    key = rng.choice([k for k in ("outputs", "workspaces") if k in op.properties])
    old = op.properties[key]
    new = integer(old) + rng.choice((1, -1))
    if new < 0:
        return None
    op.properties[key] = IntegerAttr(new, old.type)
    return f"{op.name} with {new} {key}"


# -- numbers ---------------------------------------------------------------------------------------------------


def change_number(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """Arithmetic of the host computes something else."""
    inner = [o for s in every(module, structure.ScalarsOp) for o in s.body.block.ops]
    op = pick(rng, inner)
    if op is None:
        return None
    if isinstance(op, ConstantOp):
        array = op.value.data.array()
        new = ~array if array.dtype == bool else (array + 1).astype(array.dtype)
        op.properties["value"] = DataAttr.of(new)
        return f"the constant {array} becomes {new}"
    pairs = [(i, v) for i, o in enumerate(op.operands) for v in _visible(op, o.type) if v is not o]
    chosen = pick(rng, pairs)
    if chosen is None:
        return None
    op.operands[chosen[0]] = chosen[1]
    return f"operand {chosen[0]} of {op.name} is another number"


def other_number(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """What slices, branches or loops go by, or carry, is another number: of the trip before, say."""
    found = [
        (op, i, v)
        for op in every(module, *STEPS, structure.NpuYieldOp)
        for i, old in enumerate(op.operands)
        if structure.is_number(old.type)
        for v in _visible(op, old.type)
        if v is not old
    ]
    chosen = pick(rng, found)
    if chosen is None:
        return None
    op, i, value = chosen
    op.operands[i] = value
    return f"operand {i} of {op.name} is another number"


def change_trips(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    op = pick(rng, [o for o in every(module, structure.LoopOp) if o.trip_count is not None])
    if op is None:
        return None
    old = integer(op.trip_count)
    new = rng.choice((old + 1, max(old - 1, 0), 0))
    op.properties["trip_count"] = IntegerAttr(new, op.trip_count.type)
    return f"{new} trips instead of {old}"


HOST_MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "shift an address": (shift_tensor, swap_tensors, merge_tensors, shift_argument),
    "shift a workspace": (shift_workspace,),
    "shift or shrink a frame": (shift_frame, shrink_frame),
    "reorder steps": (reorder_steps,),
    "drop a step": (drop_step, drop_to_device),
    "change arguments": (drop_argument, swap_arguments, other_argument, recount_outputs, reverse_copy),
    "change a callee": (other_callee,),
    "change numbers": (change_number, other_number, change_trips),
    **STREAM_MUTATIONS,
}
"""The kinds of the mutants of a host program."""
