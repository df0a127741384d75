"""Turns hazards that the clocks found into findings: the op, the loop indices, and why nothing orders the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....dialects.base import describe
from .affine import describe_env
from .clocks import Clocks, Fault, Stamp
from .finding import Bytes, Finding
from .model import WORK, CheckedKernel, CheckedNode


def explained(
    kernel: CheckedKernel, tracked: frozenset[int], full: bool, start: Mapping[int, int]
) -> tuple[list[Finding], set[int]]:
    """The findings of one kernel, each pair of ops once, and the outputs that must come with contents."""
    clocks = Clocks(kernel, tracked, full, start=start)
    if not clocks.run():
        return [], clocks.needs
    clocks = Clocks(kernel, tracked, full, start=start)  # once more, writing down who ran when
    clocks.explain = True
    out: dict[tuple[object, ...], Finding] = {}
    for fault in clocks.run():
        first = _node(clocks, fault.first).op
        second = None if fault.second is None else _node(clocks, fault.second).op
        key = (fault.kind, first, second)
        if key not in out:
            out[key] = _finding(clocks, fault)
    return list(out.values()), clocks.needs


def _node(clocks: Clocks, stamp: Stamp) -> CheckedNode:
    return clocks.trail[stamp[0]][stamp[1] - 1]


def _finding(clocks: Clocks, fault: Fault) -> Finding:
    cell = fault.cell
    return Finding(
        fault.kind,
        fault.what,
        _node(clocks, fault.first).op,
        None if fault.second is None else _node(clocks, fault.second).op,
        None if cell is None else Bytes(cell.space, cell.start, cell.end),
        _where(clocks, fault.first),
        "" if fault.second is None else _where(clocks, fault.second),
        _path(clocks, fault) if fault.kind == "race" else (),
        clocks.kernel.name,
    )


def _where(clocks: Clocks, stamp: Stamp) -> str:
    """`on MTE2 where i = 2`."""
    queue, number = stamp
    section = clocks.kernel.sections[clocks.kernel.queue_sections[queue]]
    env = clocks.envs[queue][number - 1]
    inside = _loops_around(section.nodes, clocks.trail[queue][number - 1])
    names = {v: n for v, n in section.names.items() if v in inside}
    return f" on {clocks.kernel.queue_names[queue]}{describe_env(names, env)}"


def _loops_around(nodes: Sequence[CheckedNode], wanted: CheckedNode) -> tuple[int, ...]:
    """The variables of the loops around a node."""
    for node in nodes:
        if node is wanted:
            return ()
        if node.body and (found := _find(node.body, wanted)) is not None:
            return (node.variable, *found)
    return ()


def _find(nodes: Sequence[CheckedNode], wanted: CheckedNode) -> tuple[int, ...] | None:
    for node in nodes:
        if node is wanted:
            return ()
        if node.body and (found := _find(node.body, wanted)) is not None:
            return (node.variable, *found)
    return None


def _path(clocks: Clocks, fault: Fault) -> tuple[str, ...]:
    """What the second's queue has waited for, and what it has not."""
    assert fault.second is not None
    first, second = (clocks.kernel.queue_names[s[0]] for s in (fault.first, fault.second))
    trail = clocks.trail[fault.first[0]][: fault.known]
    known = max((i for i, n in enumerate(trail, 1) if n.kind == WORK), default=0)
    if fault.first[0] == fault.second[0]:
        if fault.first[1] > fault.known and fault.first[0] in clocks.kernel.unordered:
            return (f"{first} may begin the one before the other is over, and no pipe_barrier is between them",)
        return ("the two run on different units, which nothing orders",)
    if not known:
        return (f"{second} has waited for nothing of {first}",)
    stamp = (fault.first[0], known)
    return (
        f"{second} has waited for {first} up to {describe(_node(clocks, stamp).op)}{_where(clocks, stamp)}",
    )
