"""Barriers between dependent instructions of one pipe, where the machine does not end one before it begins the next.

A barrier stands as late as it can, so that it is one for all that depends on what is ahead of it. Before that,
instructions that follow each other on a pipe are reordered where fewer barriers do: those of chains that know nothing
of each other take turns (`interleave`), as compilers for in-order pipes hide latencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from ...dialects.npu import NpuOp, PipeBarrierOp
from .check.clocks import Clocks, Stamp
from .check.device import stored_again
from .check.model import WORK, CheckedKernel, CheckedNode, CheckedSection, Place, TouchedBytes


class _Placing(Clocks):
    """Walks a section whose flags are there, and finds the instructions that need a barrier before them: each as late
    as can be, so that it stands behind all that a later one may depend on, too."""

    def __init__(
        self,
        kernel: CheckedKernel,
        section: CheckedSection,
        again: frozenset[int],
        start: Mapping[int, int],
        found: dict[Operation, None],
    ) -> None:
        super().__init__(kernel, again, only=section, start=start)
        self.found = found

    def _work(self, node: CheckedNode) -> None:
        if node.op in self.found:
            self.clocks[node.queue][node.queue] = self.begun[node.queue]
        super()._work(node)

    def _race(self, what: str, first: Stamp, second: Stamp, cell: TouchedBytes | None) -> None:
        queue, number = second
        if first[0] == queue:
            self.found[self.trail[queue][number - 1].op] = None
            self.clocks[queue][queue] = number - 1
        else:
            super()._race(what, first, second, cell)


def needing_barriers(models: Sequence[CheckedKernel], number: int) -> list[Operation]:
    """The instructions of a section that need a barrier of their pipe before them, in no order that matters."""
    found: dict[Operation, None] = {}
    for model in models:
        section = model.sections[number]
        if model.unordered.isdisjoint(section.queues.values()):
            continue
        again = stored_again(model)
        for start in model.starts():
            _Placing(model, section, again, start, found).run()
    return list(found)


def put_barrier(op: Operation) -> None:
    """Puts a barrier of its pipe before an instruction."""
    assert isinstance(op, NpuOp)
    assert op.parent is not None
    barrier = PipeBarrierOp.create(properties={"pipe": StringAttr(op.PIPE)}, location=op.location)
    op.parent.insert_op_before(barrier, op)


# -- fewer barriers ----------------------------------------------------------------------------------------------


def interleave(section: CheckedSection) -> bool:
    """Reorders the instructions of a section that follow each other on a pipe where fewer barriers do; whether any
    moved. The section has no flags yet, and its nodes are no longer in the program's order."""
    moved = False
    for run in list(_runs(section.nodes)):
        order = _in_levels(run)
        if order is not None:
            _put(run, order)
            moved = True
    return moved


def _runs(nodes: Sequence[CheckedNode]) -> Iterator[list[CheckedNode]]:
    """Unordered instructions of one pipe, nothing but names between them in the program."""
    run: list[CheckedNode] = []
    for node in nodes:
        fits = node.kind == WORK and node.unordered and not node.op.results and not node.device
        if run and not (fits and node.queue == run[0].queue):
            yield run
            run = []
        if fits:
            run.append(node)
        yield from _runs(node.body)
    if run:
        yield run


def _in_levels(run: Sequence[CheckedNode]) -> list[CheckedNode] | None:
    """The order of a run in which each instruction stands as early as so few barriers let it; None where the order that
    it has takes no more of them."""
    level: list[int] = []
    needed, behind = 0, -1
    last_write: dict[TouchedBytes, int] = {}
    reads: dict[TouchedBytes, list[int]] = {}
    for i, node in enumerate(run):
        read, written = _cells(node.reads), _cells(node.writes)
        before = {last_write[c] for c in (*read, *written) if c in last_write}
        before.update(j for c in written for j in reads.get(c, ()))
        level.append(max((level[j] + 1 for j in before), default=0))
        if any(j >= behind for j in before):
            needed, behind = needed + 1, i
        for cell in written:
            last_write[cell], reads[cell] = i, []
        for cell in read:
            reads.setdefault(cell, []).append(i)
    if max(level, default=0) >= needed:
        return None
    return [run[i] for i in sorted(range(len(run)), key=lambda i: level[i])]


def _cells(places: Sequence[Place]) -> list[TouchedBytes]:
    return [cell for place in places for slot in place.slots for cell in slot]


def _put(run: Sequence[CheckedNode], order: Sequence[CheckedNode]) -> None:
    """Puts a run's instructions into an order, behind what has names between them."""
    block, behind = run[-1].op.parent, run[-1].op.next_op
    assert block is not None
    for node in run:
        node.op.detach()
    for node in order:
        if behind is None:
            block.add_op(node.op)
        else:
            block.insert_op_before(node.op, behind)
