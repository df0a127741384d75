"""Finds the redundant flags of a safe kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from .clocks import Clocks
from .model import GONE, LOOP, SET, SET_CROSS, WAIT, WAIT_CROSS, CheckedKernel, CheckedNode
from .waits import WaitGraph


@dataclass(frozen=True)
class FlagPair:
    """All set_flag and wait_flag ops of one event (one for each slot) from pipe `source` to pipe `target` of a
    section; for a cross-core event, `target` is empty and the ops stand in several sections."""

    source: str
    target: str
    event: int
    ops: tuple[Operation, ...]

    def __str__(self) -> str:
        if not self.target:
            return f"cross-core event {self.event}"
        return f"{self.source} -> {self.target} event {self.event}"


def flag_pairs(kernel: CheckedKernel) -> list[FlagPair]:
    """The flags of a kernel in program order. A flag raised before a loop and consumed inside it is one."""
    found: dict[tuple[int, str, str, int], list[Operation]] = {}
    for section in kernel.sections:
        for node in _walk(section.nodes):
            if node.kind in (SET, WAIT):
                found.setdefault((section.number, *node.pair, node.event), []).append(node.op)
            elif node.kind in (SET_CROSS, WAIT_CROSS):
                found.setdefault((-1, "", "", node.event), []).append(node.op)
    return [FlagPair(source, target, event, tuple(ops)) for (_, source, target, event), ops in found.items()]


def removable(kernel: CheckedKernel, tracked: frozenset[int]) -> list[FlagPair]:
    """Flags without any one of which the kernel is still safe."""

    def unsafe() -> bool:
        return any(Clocks(kernel, tracked, start=start).unsafe() for start in kernel.starts(tracked))

    nodes = {node.op: node for section in kernel.sections for node in _walk(section.nodes)}
    flags = flag_pairs(kernel)
    numbers = {id(nodes[op]): i for i, flag in enumerate(flags) for op in flag.ops}
    graphs: list[WaitGraph] = []
    for start in kernel.starts(tracked):
        graphs.append(WaitGraph(kernel, numbers, tracked, start=start))
        if not graphs[-1].safe:
            return []

    def superfluous(i: int, flag: FlagPair) -> bool:
        if not flag.target or any(i in graph.mixed for graph in graphs):  # others run in another order then
            return safe_without([nodes[op] for op in flag.ops], unsafe)
        return all(graph.without(i) is not None for graph in graphs)

    return [flag for i, flag in enumerate(flags) if superfluous(i, flag)]


def safe_without(nodes: Sequence[CheckedNode], unsafe: Callable[[], bool]) -> bool:
    """Whether a program that lacks `nodes` is not `unsafe`."""
    kinds = [node.kind for node in nodes]
    for node in nodes:
        node.kind = GONE
    try:
        return not unsafe()
    finally:
        for node, kind in zip(nodes, kinds, strict=True):
            node.kind = kind


def irredundant(graphs: Sequence[WaitGraph], flags: Iterable[int]) -> list[int]:
    """Which of `flags` are left when those that none of the graphs needs are gone, one after the other until each one
    left is needed."""
    left = list(flags)
    while True:
        before = len(left)
        left = [flag for flag in left if not _removed(graphs, flag)]
        if len(left) == before:
            return left


def _removed(graphs: Sequence[WaitGraph], flag: int) -> bool:
    """Takes a flag out of all graphs, if none needs it."""
    changes = []
    for graph in graphs:
        changed = graph.without(flag)
        if changed is None:
            return False
        changes.append(changed)
    for graph, changed in zip(graphs, changes, strict=True):
        graph.remove(flag, changed)
    return True


def _walk(nodes: Sequence[CheckedNode]) -> Iterator[CheckedNode]:
    for node in nodes:
        yield node
        if node.kind == LOOP:
            yield from _walk(node.body)
