"""Reductions whose rows do not fit ub: rows are read in pieces, and carried tiles combine their partial results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute

from ...dialects.dtypes import dtype_name
from ...dialects.elementwise import REDUCTION_FUNCTION
from ...kernels.builder import exactly
from ...kernels.graph import StageGraph
from ...kernels.loops import AxisLoop, VectorWriter
from ...kernels.nest import AxisStep
from ...kernels.stage import Apply, Fill, Iota, KernelStage, Mask, Ref
from .schedule import reaches_over
from .walks import RowWalk, RowWalks, neutral

Masked = dict[tuple[Ref, bytes | int | None], Ref]
"""Pieces whose places behind the end of the rows have a number that changes nothing, by what they are made of and that
number."""


@dataclass
class RowPieces:
    """The stages of a kernel over a domain of `extents`, its rows read in pieces: in as many walks as its reductions
    need. lanewise: whether pieces are combined lane by lane where lanes are reduced; they are all of one size then."""

    stages: StageGraph
    extents: Sequence[int]
    lanewise: bool = False

    @cached_property
    def walks(self) -> RowWalks:
        return RowWalks(self.stages, len(self.extents) - 1 if self.lanewise else None)

    def write(self, w: VectorWriter, loops: Sequence[AxisLoop]) -> None:
        """Writes all stages inside of loops."""
        done: dict[Ref, Ref] = {}
        outer = [loop for loop in loops if loop.axis not in self.walks.rows]
        inner = [loop for loop in loops if loop.axis in self.walks.rows]
        with ExitStack() as stack:
            for loop in outer:
                stack.enter_context(w.loop(loop))
            self._write(w, self.walks.before, done)
            for walk in self.walks.walks:
                self._walk(w, inner, walk, done)
                self._write(w, walk.behind, done)

    def _write(self, w: VectorWriter, stages: Iterable[int], done: dict[Ref, Ref]) -> None:
        for i in stages:
            made = w.again(self.stages[i], [done[ref] for ref in self.stages[i].operands])
            done.update(((i, j), ref) for j, ref in enumerate(made))

    def _walk(
        self, w: VectorWriter, inner: Sequence[AxisLoop], walk: RowWalk, done: dict[Ref, Ref]
    ) -> None:
        """Adds what all pieces are reduced to, in loops."""
        carried = self._neutral(w, walk)
        self._loops(w, inner, walk, done, carried)
        self._reduced(w, walk, carried, done)

    def _loops(
        self, w: VectorWriter, inner: Sequence[AxisLoop], walk: RowWalk, done: dict[Ref, Ref], carried: list[Ref]
    ) -> None:
        """A walk's stages in loops, whose results are `carried` then."""
        with ExitStack() as nest:
            for loop in inner:
                nest.enter_context(w.loop(loop, carried))
            self._piece(w, walk, dict(done), carried)

    def _piece(self, w: VectorWriter, walk: RowWalk, done: dict[Ref, Ref], carried: list[Ref]) -> None:
        """A walk's stages for one piece, which becomes part of what is `carried`."""
        masked: Masked = {}
        first = 0
        for i in walk.stages:
            stage = self.stages[i]
            if not stage.reduces:
                self._write(w, [i], done)
                continue
            behind = first + len(stage.elements)
            carried[first:behind] = self._combined(w, stage, done, masked, carried[first:behind])
            first = behind

    def _reduced(self, w: VectorWriter, walk: RowWalk, carried: Sequence[Ref], done: dict[Ref, Ref]) -> None:
        """Adds the results of a walk's reductions."""
        first = 0
        for i in walk.reductions:
            stage = self.stages[i]
            values: Sequence[Ref] = carried[first : first + len(stage.elements)]
            if self.walks.lanewise(stage):
                values = w.again(stage, values)
            done.update(((i, j), ref) for j, ref in enumerate(values))
            first += len(stage.elements)

    def _neutral(self, w: VectorWriter, walk: RowWalk) -> list[Ref]:
        """What a walk's reductions begin with."""
        return [
            w.put(Fill(0 if j else neutral(stage)), [element], self.walks.carried_axes(stage))
            for stage in (self.stages[i] for i in walk.reductions)
            for j, element in enumerate(stage.elements)
        ]

    def _combined(
        self, w: VectorWriter, stage: KernelStage, done: dict[Ref, Ref], masked: Masked, carried: list[Ref]
    ) -> list[Ref]:
        """What is `carried` of a reduction, with a piece."""
        kind, (source,) = stage.combines, stage.operands
        assert kind is not None
        piece, ragged = done[source], self._ragged(w, stage.reduces)
        if ragged:
            key = source, exactly(neutral(stage))
            if key not in masked:
                masked[key] = self._masked(w, piece, ragged, neutral(stage))
            piece = masked[key]
        parts = [piece] if self.walks.lanewise(stage) else w.again(stage, [piece])
        if len(parts) == 1:
            combine, axes = Apply(REDUCTION_FUNCTION[kind]), self.walks.carried_axes(stage)
            return [w.put(combine, stage.elements, axes, [carried[0], parts[0]])]
        return self._combined_arg(w, kind, stage, parts, carried)

    def _masked(self, w: VectorWriter, piece: Ref, ragged: Sequence[int], value: float | int) -> Ref:
        stage = w.graph[piece[0]]
        mask = Mask(tuple((a, self.extents[a]) for a in sorted(ragged)), value)
        return w.put(mask, [w.element(piece)], stage.axes, [piece])

    def _ragged(self, w: VectorWriter, reduced: Iterable[int]) -> list[int]:
        """The axes along which the last piece reaches over the end."""
        return [a for a in reduced if reaches_over(self.extents[a], w.tile[a])]

    def _combined_arg(
        self, w: VectorWriter, kind: str, stage: KernelStage, parts: Sequence[Ref], carried: Sequence[Ref]
    ) -> list[Ref]:
        """The better of the best so far and a piece's best; the first index wins, NaN wins over numbers."""
        (value, index), (best, best_index), (axis,) = parts, carried, stage.reduces

        def op(name: str, *operands: Ref, element: Attribute | None = None) -> Ref:
            return w.put(Apply(name), [element or w.element(operands[-1])], stage.axes, operands)

        start = w.put(Iota(axis), [w.element(index)])
        shifted = op("add", index, start)
        better = op("gt" if kind == "max" else "lt", value, best, element=i1)
        if dtype_name(w.element(value))[0] in "fb":
            nan = op("ne", value, value, element=i1)
            number_so_far = op("eq", best, best, element=i1)
            better = op("or", better, op("and", nan, number_so_far))
            better = op("and", better, number_so_far)
        return [op("select", better, value, best), op("select", better, shifted, best_index)]


class PeeledPieces(RowPieces):
    """The same over one axis that is reduced, for stages that store nothing but what comes of the reduction: what is
    left behind the last whole piece is a piece of its own, and nothing is masked."""

    def _walk(
        self, w: VectorWriter, inner: Sequence[AxisLoop], walk: RowWalk, done: dict[Ref, Ref]
    ) -> None:
        (axis,) = self.walks.rows
        length = w.tile[axis]
        whole, rest = divmod(self.extents[axis], length)
        if not rest:
            super()._walk(w, inner, walk, done)
            return
        carried = self._neutral(w, walk)
        self._loops(w, [AxisLoop(axis, whole)] if whole > 1 else [], walk, done, carried)
        with w.turns(1, AxisStep(axis, 0, whole * length)), w.tiled({axis: rest}):
            self._piece(w, walk, dict(done), carried)
        self._reduced(w, walk, carried, done)

    def _ragged(self, w: VectorWriter, reduced: Iterable[int]) -> list[int]:
        return []
