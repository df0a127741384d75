"""What to say of a program that does not fit into device memory: how much it needs, where, and what would help."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from ...dialects.graph.donation import donated
from ...dialects.npu.lifetimes import device_tensors, frames_of, fullest, problem_of
from ...dialects.npu.structure import GmConstantOp
from ...machine import Machine
from ...packing import Budget, solve

SHOWN = 5
"""Tensors that are listed."""

TRIED = 8
"""Arguments that are donated together at most, to see whether the program then fits."""


def needs(need: int, machine: Machine) -> str:
    """How much device memory a program needs, and how much there is."""
    return (
        f"the program needs {need} bytes of device memory, but {machine.name} has {machine.spaces['gm'].bytes}"
    )


def no_room(func: FuncOp, inner: Sequence[FuncOp], need: int, machine: Machine) -> str:
    """One sentence on a program that needs more device memory than there is, `need` bytes."""
    live = fullest(func, inner, machine.gm_align)
    listed = "; ".join(map(str, live.tensors[:SHOWN]))
    rest = len(live.tensors) - SHOWN
    more = f"; {rest} smaller ones" if rest > 0 else ""
    frames = f"; called functions, {live.frames} bytes" if live.frames else ""
    return (
        f"{needs(need, machine)}: {live.bytes} are needed {live.place}, by {listed}{more}{frames}; "
        f"{_advice(func, inner, live.bytes, machine)}"
    )


def _advice(func: FuncOp, inner: Sequence[FuncOp], least: int, machine: Machine) -> str:
    """The smallest change after which it fits, or how much is too much."""
    room, align = machine.spaces["gm"].bytes, machine.gm_align
    free = [a for a, free in zip(func.body.block.args, donated(func), strict=True) if free]
    kept = [a for a in func.body.block.args if a not in free]

    def needed(more: Sequence[SSAValue]) -> int:
        found = device_tensors(func, inner, align, [*free, *more])
        fixed = [t for t in found if isinstance(t.value, BlockArgument) and t.value not in (*free, *more)]
        fixed += [t for t in found if isinstance(t.value.owner, GmConstantOp)]
        shared = problem_of([t for t in found if t not in fixed])
        return sum(t.bytes for t in fixed) + solve(shared, Budget(nodes=0)).height + frames_of(inner)

    tensors = {t.value: t.bytes for t in device_tensors(func, inner, align, free)}
    by_size = sorted(kept, key=lambda a: tensors[a])
    for a in by_size:
        if tensors[a] >= least - room and needed([a]) <= room:
            return f"it fits if argument {a.index} of @main is donated"
    largest = by_size[::-1][:TRIED]
    for n in range(2, len(largest) + 1):
        if needed(largest[:n]) <= room:
            numbers = sorted(a.index for a in largest[:n])
            return f"it fits if the arguments {', '.join(map(str, numbers))} of @main are donated"
    if least > room:
        return f"these are {least - room} bytes too many at one time: a smaller batch or narrower types need less"
    return "these alone would fit, but the plan has gaps between them: a smaller batch or narrower types need less"
