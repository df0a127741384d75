"""The stages of a launch: kernels that no barrier parts touch no bytes that the other writes, what is read ahead of one
is written by none of them, and the cores that a stage begins on are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from ....dialects.base import text, to_ints
from ....dialects.npu.occupancy import occupancy_of
from ....dialects.npu.structure import KernelOp, LaunchOp
from ....dialects.open_sizes import certain
from ....machine import Machine
from ...launch_groups import Together
from .finding import Bytes, Finding
from .order import Place, TensorPlaces, frames_of


def check_barriers(callers_first: Sequence[FuncOp]) -> list[Finding]:
    """All findings of the functions of a program."""
    frames = frames_of(callers_first)
    out: list[Finding] = []
    for func in callers_first:
        launches = [op for op in func.walk() if isinstance(op, LaunchOp)]
        if all(op.nowait is None and op.ahead is None for op in launches):
            continue
        memory = TensorPlaces(func, frames)
        together = Together(memory.near)
        for op in launches:
            uses = memory.uses(op)
            if op.ahead is not None:
                out += _read_too_early(op, memory)
            if op.nowait is None:
                together.clear()
            elif together.meets(*uses):
                out += _races(op, memory)
            together.add(*uses)
    return out


def check_cores(module: ModuleOp, machine: Machine) -> Iterator[Finding]:
    """Launches that are put on cores which the machine does not have."""
    launches = [op for op in module.walk() if isinstance(op, LaunchOp) and op.first_core is not None]
    kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, KernelOp)} if launches else {}
    for op in launches:
        kernel = kernels.get(op.callee.root_reference.data)
        if kernel is not None:
            taken, there = occupancy_of(kernel, machine).cores, machine.cube_cores
            if certain(op.begins_on + taken, ">", there):
                what = f"begins on core {op.begins_on} and takes {taken} of the {there} that {machine.name} has"
                yield Finding("core-bounds", f"{{first}} {what}", op)


def _read_too_early(op: LaunchOp, memory: TensorPlaces) -> Iterator[Finding]:
    ahead = {*memory.places(op.operands[i] for i in to_ints(op.ahead))}
    for before in op.before_reading():
        written = memory.near(memory.uses(before)[1])
        for place in ahead & written:
            yield _race(before, op, place, ("writes", "read"), "it does so ahead of the barrier", memory)


def _races(op: LaunchOp, memory: TensorPlaces) -> Iterator[Finding]:
    for before in op.independent_before():
        met = memory.meeting(before, op)
        if met is not None:
            place, wrote, writes = met
            does = ("writes" if wrote else "reads", "write" if writes else "read")
            yield _race(before, op, place, does, "it waits for no barrier", memory)


def _race(
    before: LaunchOp, op: LaunchOp, place: Place, does: tuple[str, str], why: str, memory: TensorPlaces
) -> Finding:
    where = memory.ranges.get(place)
    what = f"{{first}} {does[0]} device memory that {{second}} may {does[1]} too early: {why}"
    return Finding("barrier-race", what, before, op, None if where is None else Bytes("gm", *where))
