"""In how many walks over the pieces of its rows a kernel does its stages, and what it does in each.

A reduction ends one walk behind those that it depends on. A walk loads again what it needs along the rows, and computes
it anew: between two walks only what is narrow, which does not move along the rows, is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...dialects.dtypes import dtype_name
from ...dialects.elementwise import identity
from ...kernels.builder import exactly
from ...kernels.graph import StageGraph
from ...kernels.plan import StagePlace
from ...kernels.stage import KernelStage, Ref, tile_bytes


@dataclass(frozen=True)
class RowWalk:
    """One walk over the pieces. stages: what is done with each piece, in order, its `reductions` among them; behind:
    what is done once it has ended."""

    stages: Sequence[int]
    reductions: Sequence[int]
    behind: Sequence[int]


def neutral(stage: KernelStage) -> float | int:
    """What changes nothing where a reduction combines it."""
    assert stage.combines is not None
    return identity(stage.combines, dtype_name(stage.elements[0]))


class RowWalks:
    """The walks of a kernel whose reductions all reduce the same axes. before: the stages in front of the first one."""

    def __init__(self, stages: StageGraph, lanes: int | None) -> None:
        """lanes: the axis along which lanes lie, where pieces are combined lane by lane; else None."""
        self.stages = stages
        self.lanes = lanes
        self.rows = stages.rows()
        self.known: list[int] = []
        """For each stage, how many walks have to end before it can be done; for a reduction, before it is known."""
        self.moves: list[bool] = []
        """Whether each stage has something of its own for each piece."""
        for stage in stages:
            before = max((self.known[j] for j, _ in stage.operands), default=0)
            self.known.append(before + bool(stage.reduces))
            along = bool((stage.axes | stage.moves) & self.rows) or any(self.moves[j] for j, _ in stage.operands)
            self.moves.append(along and not stage.reduces)
        needed = set(stages.needed())
        last = max((self.known[i] + self.moves[i] for i in needed if self._ends(i)), default=0)
        inside = [self._inside(w, needed) for w in range(1, last + 1)]
        narrow = self._narrow(inside, needed)
        self.before = narrow[0]
        self.walks = [
            RowWalk(done, [i for i in done if stages[i].reduces], narrow[w])
            for w, done in enumerate(inside, start=1)
        ]

    def _ends(self, i: int) -> bool:
        """Whether a walk is made for the sake of a stage."""
        return bool(self.stages[i].reduces) or (self.moves[i] and self.stages[i].kind == "store")

    def _inside(self, walk: int, needed: Iterable[int]) -> list[int]:
        """The stages of a walk: its reductions with all they need, then what it stores along the rows."""
        stages = self.stages
        ends = [i for i in needed if self._ends(i) and self.known[i] + self.moves[i] == walk]
        reduced = self._closed(i for i in ends if stages[i].reduces)
        stored = self._closed(ends) - reduced
        return [*sorted(reduced), *stages.ordered(sorted(stored))]

    def _closed(self, ends: Iterable[int]) -> set[int]:
        """StageGraph with all that they use of the same piece."""
        found: set[int] = set()
        pending = list(ends)
        while pending:
            i = pending.pop()
            if i not in found:
                found.add(i)
                pending += [j for j, _ in self.stages[i].operands if self.moves[j]]
        return found

    def _narrow(self, inside: Sequence[Sequence[int]], needed: set[int]) -> list[list[int]]:
        """What does not move along the rows, by the walk behind which it is done: as late as what uses it allows."""
        due = {i: len(inside) for i in needed}
        for walk, done in enumerate(inside):
            for i in done:
                for j, _ in self.stages[i].operands:
                    due[j] = min(due[j], walk)
        places: list[list[int]] = [[] for _ in range(len(inside) + 1)]
        for i in sorted(needed, reverse=True):
            if self.moves[i] or self.stages[i].reduces:
                continue
            at = self.known[i] if self.stages[i].kind == "store" else due[i]
            places[at].append(i)
            for j, _ in self.stages[i].operands:
                due[j] = min(due[j], at)
        return [self.stages.ordered(sorted(place)) for place in places]

    def lanewise(self, stage: KernelStage) -> bool:
        """Whether the pieces of a reduction are combined lane by lane, and lanes once behind the walk: a piece's own
        lanes take several times as long as to combine two pieces."""
        return self.lanes in stage.reduces and len(stage.elements) == 1

    def carried_axes(self, stage: KernelStage) -> frozenset[int]:
        """The axes of what goes from one piece to the next of a reduction: lanes are among them until the walk ends."""
        return stage.axes | stage.reduces if self.lanewise(stage) else stage.axes

    def places(self, tile: Sequence[int], outer: Sequence[int], inner: Sequence[int]) -> tuple[StagePlace, ...]:
        """Where each stage stands with pieces of these extents: in loops along `outer` axes, and those of a walk in
        loops along `inner` ones, too."""
        found = [StagePlace(tuple(outer)) for _ in self.stages]
        for number, walk in enumerate(self.walks, start=1):
            for i in walk.stages:
                stage, known = self.stages[i], found[i].walks
                carried = tile_bytes(tile, self.carried_axes(stage), stage.elements) if stage.reduces else 0
                found[i] = StagePlace((*outer, *inner), (*known, number), carried)
        return tuple(found)

    def times(self, i: int) -> int:
        """In how many walks a stage is done; 1 for one between them."""
        return max(sum(i in walk.stages for walk in self.walks), 1)

    # -- room --------------------------------------------------------------------------------------------------

    @cached_property
    def unrolled(self) -> tuple[StageGraph, list[tuple[int, frozenset[int]]]]:
        """The stages in the order in which they are emitted, those of several walks once for each; and the place of
        each: what share a place may share memory."""
        unrolled, places = StageGraph(), []
        varies = self.stages.varies()
        kept: dict[int, int] = {}

        def put(i: int, place: int, known: dict[int, int]) -> None:
            stage = self.stages[i]
            known[i] = len(unrolled)
            unrolled.append(replace(stage, operands=[(known[j], k) for j, k in stage.operands]))
            places.append((place, varies[i]))

        for i in self.before:
            put(i, 0, kept)
        for number, walk in enumerate(self.walks, start=1):
            inside = dict(kept)
            for i in walk.stages:
                put(i, number, inside)
            kept.update((i, inside[i]) for i in walk.reductions)
            for i in walk.behind:
                put(i, 0, kept)
        return unrolled, places

    def ub_bytes(self, tile: Sequence[int], slots: int, ragged: bool = True) -> int:
        """Bytes of ub with pieces of these extents. What is loaded or stored in a walk has a place of its own, so that
        the loads of the next walk run ahead; the temporaries of all walks share theirs, as in npu-allocate."""
        unrolled, places = self.unrolled
        return unrolled.ub_bytes(tile, slots, in_place=True, places=places) + self.combining_bytes(tile, ragged)

    def combining_bytes(self, tile: Sequence[int], ragged: bool = True) -> int:
        """Bytes on top of the stages' own: the masked pieces of a walk if they may be `ragged`, what is carried,
        comparisons. What is carried is there from one end of its walk to the other, and keeps its place."""
        carried = masked = 0
        for walk in self.walks:
            sources: dict[tuple[Ref, bytes | int | None], int] = {}
            for stage in (self.stages[i] for i in walk.reductions):
                (ref,) = stage.operands
                source = self.stages[ref[0]]
                sources[ref, exactly(neutral(stage))] = tile_bytes(tile, source.axes, source.elements)
                carried += 4 * tile_bytes(tile, stage.axes, stage.elements)
                if self.lanewise(stage):
                    carried += tile_bytes(tile, source.axes, stage.elements)
            masked = max(masked, sum(sources.values()))
        return carried + (masked if ragged else 0)
