"""Barriers between dependent instructions of one pipe, where the machine does not end one before it begins the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from ...dialects.npu import NpuOp, PipeBarrierOp
from .check.clocks import Clocks, Stamp
from .check.model import CheckedKernel, CheckedNode, CheckedSection, TouchedBytes


class _Placing(Clocks):
    """Walks a section whose flags are there, and finds the instructions that need a barrier before them: each as late
    as can be, so that it stands behind all that a later one may depend on, too."""

    def __init__(
        self,
        kernel: CheckedKernel,
        section: CheckedSection,
        start: Mapping[int, int],
        found: dict[Operation, None],
    ) -> None:
        super().__init__(kernel, only=section, start=start)
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
        if all(map(model.in_order, section.queues)):
            continue
        for start in model.starts():
            _Placing(model, section, start, found).run()
    return list(found)


def put_barrier(op: Operation) -> None:
    """Puts a barrier of its pipe before an instruction."""
    assert isinstance(op, NpuOp)
    assert op.parent is not None
    barrier = PipeBarrierOp.create(properties={"pipe": StringAttr(op.PIPE)}, location=op.location)
    op.parent.insert_op_before(barrier, op)
