"""Finds the redundant flags of a safe kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from .clocks import Clocks
from .model import GONE, LOOP, SET, SET_CROSS, WAIT, WAIT_CROSS, CheckedKernel, CheckedNode


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
    return [flag for flag in flag_pairs(kernel) if safe_without([nodes[op] for op in flag.ops], unsafe)]


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


def irredundant(flags: Sequence[Sequence[CheckedNode]], unsafe: Callable[[], bool]) -> list[int]:
    """Which of `flags`, each the nodes of one, are left when those that are not needed are gone, one after the
    other until each one left is needed; nodes of the others stay GONE."""
    left = list(range(len(flags)))
    while True:
        before = len(left)
        for i in list(left):
            if safe_without(flags[i], unsafe):
                for node in flags[i]:
                    node.kind = GONE
                left.remove(i)
        if len(left) == before:
            return left


def _walk(nodes: Sequence[CheckedNode]) -> Iterator[CheckedNode]:
    for node in nodes:
        yield node
        if node.kind == LOOP:
            yield from _walk(node.body)
