"""In which order sections run, which kernels have sections that wait for each other, and what each op of them waits for
and raises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects import scf
from xdsl.ir import Operation

from ...dialects.base import integer, text
from ...dialects.npu import SetCrossOp, WaitCrossOp
from ...dialects.npu.handing import handed_over, in_turns, takes_turns
from ...dialects.npu.legality import Section
from ...dialects.npu.structure import KernelOp
from .loops import bounds

ORDER = {"cube": 0, "fused": 0, "mixed": 0, "vector": 1}
"""Sections of a core run one after the other in this order, unless the second one alone hands tiles to the other."""


def in_order(kernel: KernelOp) -> Sequence[Section]:
    """The sections of a kernel in the order in which they run; those that take turns as they stand."""
    found = sorted(kernel.sections(), key=lambda section: ORDER[text(section.core)])
    forth, back = handed_over(kernel)
    return found[::-1] if back and not forth and not in_turns(forth, back) else found


@dataclass
class Signals:
    """The signals of one section: what ops wait for before they run, what they raise behind them, and how often each is
    raised before the section begins."""

    waits: dict[Operation, list[int]] = field(default_factory=dict)
    raises: dict[Operation, list[int]] = field(default_factory=dict)
    begin: Counter[int] = field(default_factory=Counter[int])

    def counted(self, op: Operation, of: dict[Operation, list[int]]) -> Counter[int]:
        """How often an op with all that is in it waits for each signal, or raises it: `of` is one of the two."""
        found, inside = Counter(of.get(op, ())), Counter[int]()
        for inner in (inner for region in op.regions for block in region.blocks for inner in block.ops):
            inside.update(self.counted(inner, of))
        times = bounds(op)[2] if isinstance(op, scf.ForOp) else 1
        found.update({event: count * times for event, count in inside.items()})
        return found


def signals_of(kernel: KernelOp) -> Sequence[Signals]:
    """The signals of the sections of a kernel: those of its flags; before npu-synchronize those that it needs."""
    return _of_flags(kernel) or _needed(kernel)


def implied_signals(kernel: KernelOp) -> Sequence[Signals]:
    """The signals of sections that take turns which no flag has: none behind npu-synchronize."""
    if takes_turns(kernel) and not _of_flags(kernel):
        return _needed(kernel)
    return [Signals() for _ in kernel.sections()]


def _of_flags(kernel: KernelOp) -> Sequence[Signals]:
    """The signals of flags; empty where there are none."""
    found = [Signals() for _ in kernel.sections()]
    for own, section in zip(found, kernel.sections(), strict=True):
        for op in section.body.walk():
            if isinstance(op, WaitCrossOp):
                own.waits[op] = [integer(op.event)]
            elif isinstance(op, SetCrossOp):
                own.raises[op] = [integer(op.event)]
    return found if any(own.waits or own.raises for own in found) else ()


def _needed(kernel: KernelOp) -> Sequence[Signals]:
    """The signals of two sections: a load waits for the store of what it loads, and a store until there is room."""
    found, event = (Signals(), Signals()), 0
    for writer, handed in enumerate(handed_over(kernel)):
        for each in handed:
            found[1 - writer].begin[event + 1] = each.room
            for ops, side, waited, raised in (
                (each.stores, writer, event + 1, event),
                (each.loads, 1 - writer, event, event + 1),
            ):
                for op in map(each.of_tile, ops):
                    found[side].waits.setdefault(op, []).append(waited)
                    found[side].raises.setdefault(op, []).append(raised)
            event += 2
    return found
