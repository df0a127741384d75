"""Faults in the order of a host program's streams: events lost, retargeted or moved, commands on other streams.

As in mutants.py; what is changed is a module of the program's functions.
"""

from __future__ import annotations

from mutation import Mutation, Random, every, pick
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, UnitAttr, i64
from xdsl.ir import Operation

from tilewright.dialects.base import integer, integer_attr, ints, text, to_ints
from tilewright.dialects.npu import structure
from tilewright.dialects.npu.streams import PROGRAM, QUEUES, Command
from tilewright.machine import Machine


def _drop(module: ModuleOp, rng: Random, kind: type[Operation], said: str) -> str | None:
    op = pick(rng, every(module, kind))
    if op is None:
        return None
    op.detach()
    op.erase()
    return f"drop a {said} event {integer(op.event)} on {text(op.stream)}"


def drop_wait(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    return _drop(module, rng, structure.WaitEventOp, "wait for")


def drop_record(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    return _drop(module, rng, structure.RecordEventOp, "record of")


def retarget_event(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A record or a wait names another event."""
    found = every(module, structure.RecordEventOp, structure.WaitEventOp)
    numbers = sorted({integer(op.event) for op in found})
    if len(numbers) < 2:
        return None
    op = rng.choice(found)
    new = rng.choice([n for n in numbers if n != integer(op.event)])
    said = f"{op.name} of event {integer(op.event)} takes {new}"
    op.properties["event"] = IntegerAttr(new, i64)
    return said


def retarget_stream(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A record or a wait is on another stream, or a command is."""
    found = every(module, structure.RecordEventOp, structure.WaitEventOp, Command)
    found = [op for op in found if op.properties.get("stream") is not None]
    if not found:
        return None
    op = rng.choice(found)
    old = text(op.properties["stream"])
    new = rng.choice([q for q in QUEUES if q not in (old, PROGRAM)])
    op.properties["stream"] = StringAttr(new)
    return f"{op.name} on {new} instead of {old}"


def move_event(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A wait comes one command later, or a record one earlier."""
    found = every(module, structure.RecordEventOp, structure.WaitEventOp)
    if not found:
        return None
    op = rng.choice(found)
    wait, block, at = isinstance(op, structure.WaitEventOp), op.parent, op
    while True:
        at = at.next_op if wait else at.prev_op
        if at is None or (at.next_op is None and wait):
            return None
        if isinstance(
            at, Command | structure.LoopOp | structure.BranchOp | structure.CallOp | structure.ScalarsOp
        ):
            break
    op.detach()
    if wait:
        block.insert_op_after(op, at)
    else:
        block.insert_op_before(op, at)
    return f"move {op.name} of event {integer(op.event)} over {at.name}"


def drop_barrier(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A launch does not wait at the barrier before it."""
    op = pick(rng, [o for o in every(module, structure.LaunchOp) if o.joined is not None and o.nowait is None])
    if op is None:
        return None
    op.properties["nowait"] = UnitAttr()
    op.properties.pop("ahead", None)
    op.properties.pop("barriers", None)
    return f"drop the barrier before {op.name} @{op.callee.root_reference.data}"


def read_ahead(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A launch reads one more input ahead of the barrier before it."""
    op = pick(rng, [o for o in every(module, structure.LaunchOp) if o.joined is not None and o.nowait is None])
    if op is None:
        return None
    left = [i for i, v in enumerate(op.inputs()) if v in op.reads() and i not in to_ints(op.ahead)]
    if not left:
        return None
    op.properties["ahead"] = ints(sorted([*to_ints(op.ahead), more := rng.choice(left)]))
    return f"read input {more} of {op.name} @{op.callee.root_reference.data} ahead of the barrier"


def pass_barriers(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A launch passes one more barrier with what it reads ahead."""
    launches = [o for o in every(module, structure.LaunchOp) if o.ahead is not None]
    op = pick(rng, [o for o in launches if o.passes_barriers < sum(1 for _ in o.sets_before())])
    if op is None:
        return None
    op.properties["barriers"] = integer_attr(more := op.passes_barriers + 1)
    return f"{op.name} @{op.callee.root_reference.data} reads ahead of {more} barriers"


def leave_the_chip(module: ModuleOp, rng: Random, machine: Machine) -> str | None:
    """A launch beside others begins behind the last core."""
    op = pick(rng, [o for o in every(module, structure.LaunchOp) if o.nowait is not None])
    if op is None:
        return None
    op.properties["first_core"] = integer_attr(first := machine.cube_cores + rng.randrange(3))
    return f"put {op.name} @{op.callee.root_reference.data} on core {first}"


STREAM_MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "drop an event": (drop_wait, drop_record),
    "retarget an event": (retarget_event, retarget_stream),
    "move an event": (move_event,),
    "drop a barrier": (drop_barrier,),
    "read ahead of a barrier": (read_ahead,),
    "pass more barriers": (pass_barriers,),
    "leave the chip": (leave_the_chip,),
}
