"""Which of the bytes that a kernel reads cross HBM when nothing is resident: reuse over its loops, against the
capacity of L2.

A load that does not depend on a loop's index reads the same bytes in every trip. They are still in L2 the next
time if what all cores move in one trip of that loop fits there; otherwise they cross HBM again. The same holds for
what a body reads once more, as a second loop over the same pieces does. Cores side by side that read the same bytes
fetch them once, unless L2 is told not to keep them. Slices at places that are read, of which nobody knows which they
are, are taken as all of their tensor, one after the other: it crosses HBM once at most.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...dialects import npu as ops
from .nodes import LOOP, WORK, TimedInstruction, TimedNode
from .section import TimedLoop, TimedSection


@dataclass
class _Stream:
    """What one instruction moves within some loops, on one core: bytes asked for, distinct bytes, bytes that
    cross HBM. loops: those around it, by their variables."""

    work: TimedInstruction
    asked: float
    distinct: float
    crossing: float
    loops: dict[int, TimedLoop] = field(default_factory=dict)

    def bytes_read(self) -> Hashable:
        """Which bytes it reads, in all trips of its loops: streams for which this is equal read the same."""
        op = self.work.op
        assert isinstance(op, ops.TransferOp)
        places = []
        for offset in op.linear_over(self.work.indices):
            walked = [
                (c * self.loops[v].step, self.loops[v].typical_trips, self.loops[v].lower)
                for v, c in offset.terms
                if v in self.loops
            ]
            places.append((offset.without(self.loops), tuple(walked)))
        return op.view, tuple(places), tuple(op.box_sizes), tuple(op.box_steps)


class Reuse:
    """The reuse within one launch of a kernel."""

    def __init__(
        self,
        sections: Sequence[TimedSection],
        grid: Sequence[int],
        capacity: int,
        bypassing: frozenset[int],
        sizes: Sequence[int],
    ) -> None:
        """sizes: bytes of each operand."""
        self.grid, self.capacity, self.bypassing, self.sizes = tuple(grid), capacity, bypassing, sizes
        self.streams: dict[tuple[int | None, bool], list[_Stream]] = {}
        """Those of each operand, by whether they write."""
        for stream in (stream for s in sections for stream in self._top(s)):
            self.streams.setdefault((stream.work.operand, stream.work.writes), []).append(stream)

    def crossing_share(self, operand: int) -> float:
        """The share of the bytes read of an operand that crosses HBM."""
        mine = self.streams.get((operand, False), ())
        asked = sum(s.asked for s in mine)
        known = sum(s.crossing for s in mine if not s.work.indirect)
        places = sum(s.crossing for s in mine if s.work.indirect)
        if operand not in self.bypassing:
            places = min(places, self.sizes[operand])
        return (known + places) / asked if asked else 0.0

    def distinct_bytes(self, operand: int, writes: bool) -> float:
        """Distinct bytes of an operand that all cores together read, or write; overlaps are counted twice."""
        return sum(s.distinct for s in self.streams.get((operand, writes), ()))

    @cached_property
    def footprint(self) -> float:
        """Distinct bytes that all cores together move, of operands that L2 keeps; overlaps are counted twice."""
        return sum(
            s.distinct
            for (operand, _), streams in self.streams.items()
            if operand not in self.bypassing
            for s in streams
        )

    def _top(self, section: TimedSection) -> list[_Stream]:
        ranks = [*self.grid, section.units]
        streams = self._nodes(section.body, ranks)
        for s in streams:
            for variable, count in enumerate(ranks):
                s.asked *= count
                if variable in s.work.moves_with:
                    s.distinct *= count
                    s.crossing *= count
                elif s.work.operand in self.bypassing:
                    s.crossing *= count
        return streams

    def _nodes(self, nodes: Sequence[TimedNode], ranks: Sequence[int]) -> list[_Stream]:
        found: list[_Stream] = []
        for node in nodes:
            if node.kind == WORK:
                assert isinstance(node, TimedInstruction)
                if node.operand is not None and node.moves:
                    moved = float(node.moves)
                    found.append(_Stream(node, moved, moved, moved))
            elif node.kind == LOOP:
                assert isinstance(node, TimedLoop)
                found += self._loop(node, ranks)
        self._read_again(found, ranks)
        return found

    def _read_again(self, streams: Sequence[_Stream], ranks: Sequence[int]) -> None:
        """Takes away what a body reads a second time, if L2 keeps it until then."""
        reads: dict[int | None, list[_Stream]] = {}
        for s in streams:
            if not (s.work.writes or s.work.indirect) and s.work.operand not in self.bypassing:
                reads.setdefault(s.work.operand, []).append(s)
        known: set[Hashable] = set()
        again: dict[int, _Stream] = {}
        for s in (s for each in reads.values() if len(each) > 1 for s in each):
            bytes_ = s.work.operand, s.bytes_read()
            if bytes_ in known:
                again[id(s)] = s
            known.add(bytes_)
        once = [s for s in streams if id(s) not in again] if again else streams
        if self._all_cores(once, ranks) <= self.capacity:
            for s in again.values():
                s.distinct = s.crossing = 0.0

    def _loop(self, loop: TimedLoop, ranks: Sequence[int]) -> list[_Stream]:
        inside = self._nodes(loop.body, ranks)
        trips = max(loop.typical_trips, 0)
        if trips <= 1:
            for s in inside:
                s.loops[loop.variable] = loop
            return inside
        kept = self._all_cores(inside, ranks) <= self.capacity
        for s in inside:
            s.asked *= trips
            s.loops[loop.variable] = loop
            if loop.variable in s.work.moves_with:
                s.distinct *= trips
                s.crossing *= trips
            elif not kept or s.work.operand in self.bypassing:
                s.crossing *= trips
        return inside

    def _all_cores(self, streams: Sequence[_Stream], ranks: Sequence[int]) -> float:
        """Distinct bytes of one trip over all cores of the grid."""
        total = 0.0
        for s in streams:
            if s.work.operand in self.bypassing:
                continue
            bytes_ = s.distinct
            for variable, count in enumerate(ranks):
                if variable in s.work.moves_with:
                    bytes_ *= count
            total += bytes_
        return total
