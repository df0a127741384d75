"""In how many walks over the pieces of its rows a kernel does its steps, and what it does in each.

A reduction ends one walk behind those that it depends on. A walk loads again what it needs along the rows, and computes
it anew: between two walks only what is narrow, which does not move along the rows, is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...dialects.dtypes import dtype_name
from ...dialects.elementwise import identity
from .builder import exactly
from .steps import Ref, Step, Steps, tile_bytes


@dataclass(frozen=True)
class RowWalk:
    """One walk over the pieces. steps: what is done with each piece, in order, its `reductions` among them; behind:
    what is done once it has ended."""

    steps: Sequence[int]
    reductions: Sequence[int]
    behind: Sequence[int]


def neutral(step: Step) -> float | int:
    """What changes nothing where a reduction combines it."""
    assert step.combines is not None
    return identity(step.combines, dtype_name(step.elements[0]))


class RowWalks:
    """The walks of a kernel whose reductions all reduce the same axes. before: the steps in front of the first one."""

    def __init__(self, steps: Steps, lanes: int | None) -> None:
        """lanes: the axis along which lanes lie, where pieces are combined lane by lane; else None."""
        self.steps = steps
        self.lanes = lanes
        self.rows = steps.rows()
        self.known: list[int] = []
        """For each step, how many walks have to end before it can be done; for a reduction, before it is known."""
        self.moves: list[bool] = []
        """Whether each step has something of its own for each piece."""
        for step in steps:
            before = max((self.known[j] for j, _ in step.operands), default=0)
            self.known.append(before + bool(step.reduces))
            along = bool((step.axes | step.moves) & self.rows) or any(self.moves[j] for j, _ in step.operands)
            self.moves.append(along and not step.reduces)
        needed = set(steps.needed())
        last = max((self.known[i] + self.moves[i] for i in needed if self._ends(i)), default=0)
        inside = [self._inside(w, needed) for w in range(1, last + 1)]
        narrow = self._narrow(inside, needed)
        self.before = narrow[0]
        self.walks = [
            RowWalk(done, [i for i in done if steps[i].reduces], narrow[w])
            for w, done in enumerate(inside, start=1)
        ]

    def _ends(self, i: int) -> bool:
        """Whether a walk is made for the sake of a step."""
        return bool(self.steps[i].reduces) or (self.moves[i] and self.steps[i].kind == "store")

    def _inside(self, walk: int, needed: Iterable[int]) -> list[int]:
        """The steps of a walk: its reductions with all they need, then what it stores along the rows."""
        steps = self.steps
        ends = [i for i in needed if self._ends(i) and self.known[i] + self.moves[i] == walk]
        reduced = self._closed(i for i in ends if steps[i].reduces)
        stored = self._closed(ends) - reduced
        return [*sorted(reduced), *steps.ordered(sorted(stored))]

    def _closed(self, ends: Iterable[int]) -> set[int]:
        """Steps with all that they use of the same piece."""
        found: set[int] = set()
        pending = list(ends)
        while pending:
            i = pending.pop()
            if i not in found:
                found.add(i)
                pending += [j for j, _ in self.steps[i].operands if self.moves[j]]
        return found

    def _narrow(self, inside: Sequence[Sequence[int]], needed: set[int]) -> list[list[int]]:
        """What does not move along the rows, by the walk behind which it is done: as late as what uses it allows."""
        due = {i: len(inside) for i in needed}
        for walk, done in enumerate(inside):
            for i in done:
                for j, _ in self.steps[i].operands:
                    due[j] = min(due[j], walk)
        places: list[list[int]] = [[] for _ in range(len(inside) + 1)]
        for i in sorted(needed, reverse=True):
            if self.moves[i] or self.steps[i].reduces:
                continue
            at = self.known[i] if self.steps[i].kind == "store" else due[i]
            places[at].append(i)
            for j, _ in self.steps[i].operands:
                due[j] = min(due[j], at)
        return [self.steps.ordered(sorted(place)) for place in places]

    def lanewise(self, step: Step) -> bool:
        """Whether the pieces of a reduction are combined lane by lane, and lanes once behind the walk: a piece's own
        lanes take several times as long as to combine two pieces."""
        return self.lanes in step.reduces and len(step.elements) == 1

    def times(self, i: int) -> int:
        """In how many walks a step is done; 1 for one between them."""
        return max(sum(i in walk.steps for walk in self.walks), 1)

    # -- room --------------------------------------------------------------------------------------------------

    @cached_property
    def unrolled(self) -> tuple[Steps, list[tuple[int, frozenset[int]]]]:
        """The steps in the order in which they are emitted, those of several walks once for each; and the place of
        each: what share a place may share memory."""
        unrolled, places = Steps(), []
        varies = self.steps.varies()
        kept: dict[int, int] = {}

        def put(i: int, place: int, known: dict[int, int]) -> None:
            step = self.steps[i]
            known[i] = len(unrolled)
            unrolled.append(replace(step, operands=[(known[j], k) for j, k in step.operands]))
            places.append((place, varies[i]))

        for i in self.before:
            put(i, 0, kept)
        for number, walk in enumerate(self.walks, start=1):
            inside = dict(kept)
            for i in walk.steps:
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
        """Bytes on top of the steps' own: the masked pieces of a walk if they may be `ragged`, what is carried,
        comparisons. What is carried is there from one end of its walk to the other, and keeps its place."""
        carried = masked = 0
        for walk in self.walks:
            sources: dict[tuple[Ref, bytes | int | None], int] = {}
            for step in (self.steps[i] for i in walk.reductions):
                (ref,) = step.operands
                source = self.steps[ref[0]]
                sources[ref, exactly(neutral(step))] = tile_bytes(tile, source.axes, source.elements)
                carried += 4 * tile_bytes(tile, step.axes, step.elements)
                if self.lanewise(step):
                    carried += tile_bytes(tile, source.axes, step.elements)
            masked = max(masked, sum(sources.values()))
        return carried + (masked if ragged else 0)
