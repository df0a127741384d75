"""What a kernel of a group's members holds at once, counted as ops join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from ...dialects.open_sizes import choosing


@dataclass(frozen=True)
class Facts:
    """What is asked again and again of a value: how many elements and bytes each it has, whether they are one known
    number, and the value behind its layout ops."""

    elements: int
    width: int
    splat: bool
    base: SSAValue


@dataclass
class Held:
    """The tensors that a kernel of some ops loads, broadcasts to rows, or makes for others.

    To add or remove an op takes time in proportion to its operands and to the uses of its results, however many
    members there are.
    """

    facts: Callable[[SSAValue], Facts]
    members: set[Operation] = field(default_factory=set)
    outer: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How many tensors are loaded from outside or made for others, by the elements that are read or made and by those
    of the tensor. Each way of looking at a tensor, say each of several slices, is a load of its own."""
    broadcasts: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How many values have more elements than the tensor behind them, by the elements of both."""
    views: dict[SSAValue, Counter[SSAValue]] = field(default_factory=dict)
    """How often members read a value, by the value behind its layout ops."""
    unmet: dict[SSAValue, int] = field(default_factory=dict)
    """How many uses of a member's result are not members."""
    widths: Counter[int] = field(default_factory=Counter)
    """How many values behind what is read, and how many results for others, have elements of so many bytes."""

    def add(self, op: Operation) -> None:
        self.members.add(op)
        for result in op.results:
            for view in self.views.get(result, ()):
                self._outside(view, -1)
            self.unmet[result] = sum(use.operation not in self.members for use in result.uses)
            if self.unmet[result]:
                self._made(result, 1)
        for value in op.operands:
            if value in self.unmet:
                self.unmet[value] -= 1
                if not self.unmet[value]:
                    self._made(value, -1)
            views = self.views.setdefault(self.facts(value).base, Counter())
            views[value] += 1
            if views[value] == 1:
                self._viewed(value, 1)

    def remove(self, op: Operation) -> None:
        """Undoes `add`, of the op that was added last."""
        for value in op.operands:
            base = self.facts(value).base
            views = self.views[base]
            views[value] -= 1
            if not views[value]:
                del views[value]
                self._viewed(value, -1)
            if not views:
                del self.views[base]
            if value in self.unmet:
                if not self.unmet[value]:
                    self._made(value, 1)
                self.unmet[value] += 1
        for result in op.results:
            if self.unmet.pop(result):
                self._made(result, -1)
            for view in self.views.get(result, ()):
                self._outside(view, 1)
        self.members.remove(op)

    def buffers(self, row: int, domain: int, more: Iterable[Operation]) -> tuple[float, int]:
        """How many rows of `row` elements of a domain of so many elements are held if the ops `more` join, where each
        tensor that is loaded or made for others has two buffers; and the bytes of the widest element, at least 4. What
        has fewer elements than the domain, as sums over a part of the row have, is a part of a row."""
        added = [op for op in dict.fromkeys(more) if op not in self.members]
        for op in added:
            self.add(op)
        domain = max(domain, 1)
        outer = sum(n * min(mine / domain, 1) for (mine, base), n in self.outer.items() if base >= row)
        spread = sum(
            n * min(mine / domain, 1) for (mine, base), n in self.broadcasts.items() if mine >= row > base
        )
        widest = max((width for width, count in self.widths.items() if count), default=0)
        for op in reversed(added):
            self.remove(op)
        return 2 * outer + spread, max(widest, 4)

    def _made(self, result: SSAValue, by: int) -> None:
        mine = self.facts(result)
        self.widths[mine.width] += by
        if not mine.splat:
            self.outer[mine.elements, mine.elements] += by

    @choosing()
    def _viewed(self, value: SSAValue, by: int) -> None:
        mine = self.facts(value)
        base = self.facts(mine.base)
        self.widths[base.width] += by
        if mine.base.owner not in self.members:
            self._outside(value, by)
        if not mine.splat and mine.elements > base.elements:
            self.broadcasts[mine.elements, base.elements] += by

    def _outside(self, value: SSAValue, by: int) -> None:
        mine = self.facts(value)
        base = self.facts(mine.base)
        if not base.splat:
            self.outer[mine.elements, base.elements] += by
