"""In which order sections run, which kernels have sections that wait for each other, and what each op of them waits for
and raises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import Operation

from ...dialects.base import integer
from ...dialects.npu import SetCrossOp, WaitCrossOp
from ...dialects.npu.handing import handed_over
from ...dialects.npu.structure import KernelOp
from .loops import bounds

ORDER = {"cube": 0, "fused": 0, "mixed": 0, "vector": 1}
"""Sections of a core run one after the other in this order."""


def takes_turns(kernel: KernelOp) -> bool:
    """Whether each of two sections hands tiles to the other."""
    return all(handed_over(kernel))


@dataclass
class Signals:
    """The signals of one section: what ops wait for before they run, and what they raise behind them."""

    waits: dict[Operation, list[int]] = field(default_factory=dict)
    raises: dict[Operation, list[int]] = field(default_factory=dict)

    def counted(self, op: Operation, of: dict[Operation, list[int]]) -> Counter[int]:
        """How often an op with all that is in it waits for each signal, or raises it: `of` is one of the two."""
        found, inside = Counter(of.get(op, ())), Counter[int]()
        for inner in (inner for region in op.regions for block in region.blocks for inner in block.ops):
            inside.update(self.counted(inner, of))
        times = bounds(op)[2] if isinstance(op, scf.ForOp) else 1
        found.update({event: count * times for event, count in inside.items()})
        return found


def signals_of(kernel: KernelOp) -> tuple[Sequence[Signals], Sequence[Counter[int]]]:
    """The signals of the two sections of a kernel, and what is raised before either begins.

    Those of its flags; before npu-synchronize, those that it needs: a load waits for the store of what it loads, and a
    store until there is room.
    """
    sections, begin = (Signals(), Signals()), (Counter[int](), Counter[int]())
    for own, section in zip(sections, kernel.sections(), strict=True):
        for op in section.body.walk():
            if isinstance(op, WaitCrossOp):
                own.waits[op] = [integer(op.event)]
            elif isinstance(op, SetCrossOp):
                own.raises[op] = [integer(op.event)]
    if any(own.waits or own.raises for own in sections):
        return sections, begin
    event = 0
    for writer, handed in enumerate(handed_over(kernel)):
        for each in handed:
            begin[1 - writer][event + 1] = each.room
            for ops, side, waited, raised in (
                (each.stores, writer, event + 1, event),
                (each.loads, 1 - writer, event, event + 1),
            ):
                for op in map(each.of_tile, ops):
                    sections[side].waits.setdefault(op, []).append(waited)
                    sections[side].raises.setdefault(op, []).append(raised)
            event += 2
    return sections, begin
