"""Reductions whose rows do not fit ub: rows are read in pieces, and carried tiles combine their partial results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import i1 as I1
from xdsl.ir import Attribute, SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, integer_attr, ints, pack
from ...dialects.dtypes import dtype_name
from ...dialects.elementwise import REDUCTION_FUNCTION
from ...dialects.tile import TileType, tile_type
from ...kernels.builder import exactly, hand_back, number
from ...kernels.emit import Emitter
from ...kernels.graph import StageGraph
from ...kernels.stage import Ref, Stage
from .schedule import reaches_over
from .walks import RowWalk, RowWalks, neutral


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

    def emit(self, emitter: Emitter, loops: Sequence[tuple[int, int]]) -> None:
        """Emits all stages inside `loops` (axis, trips)."""
        builder, rows = emitter.builder, self.walks.rows
        done: dict[Ref, SSAValue] = {}
        outer = [(a, n) for a, n in loops if a not in rows]
        inner = [(a, n) for a, n in loops if a in rows]
        with ExitStack() as stack:
            for axis, trips in outer:
                index = stack.enter_context(builder.loop(trips))
                emitter.position[axis] = emitter.position[axis] + index * emitter.tile[axis]
            for i in self.walks.before:
                emitter.emit(i, self.stages[i], done)
            for walk in self.walks.walks:
                emitter.position.update((a, Expr()) for a in rows)
                self._walk(emitter, inner, walk, done)
                for i in walk.behind:
                    emitter.emit(i, self.stages[i], done)

    def _walk(
        self, emitter: Emitter, inner: Sequence[tuple[int, int]], walk: RowWalk, done: dict[Ref, SSAValue]
    ) -> None:
        """Adds what all pieces are reduced to, in loops (axis, trips)."""
        carried = self._neutral(emitter, walk)
        self._loops(emitter, inner, walk, done, carried)
        self._reduced(emitter, walk, carried, done)

    def _loops(
        self,
        emitter: Emitter,
        inner: Sequence[tuple[int, int]],
        walk: RowWalk,
        done: dict[Ref, SSAValue],
        carried: list[SSAValue],
    ) -> None:
        """A walk's stages in loops (axis, trips), whose results are `carried` then."""
        with ExitStack() as nest:
            for axis, trips in inner:
                inside = list(carried)
                nest.callback(hand_back, carried, inside)
                index = nest.enter_context(emitter.builder.loop(trips, inside))
                emitter.position[axis] = emitter.position[axis] + index * emitter.tile[axis]
                carried = inside
            self._piece(emitter, walk, dict(done), carried)

    def _piece(
        self, emitter: Emitter, walk: RowWalk, done: dict[Ref, SSAValue], carried: list[SSAValue]
    ) -> None:
        """A walk's stages for one piece, which becomes part of what is `carried`."""
        masked: dict[tuple[Ref, bytes | int | None], SSAValue] = {}
        first = 0
        for i in walk.stages:
            stage = self.stages[i]
            if not stage.reduces:
                emitter.emit(i, stage, done)
                continue
            behind = first + len(stage.elements)
            carried[first:behind] = self._combined(emitter, stage, done, masked, carried[first:behind])
            first = behind

    def _reduced(
        self, emitter: Emitter, walk: RowWalk, carried: Sequence[SSAValue], done: dict[Ref, SSAValue]
    ) -> None:
        """Adds the results of a walk's reductions."""
        first = 0
        for i in walk.reductions:
            stage = self.stages[i]
            values = carried[first : first + len(stage.elements)]
            if self.walks.lanewise(stage):
                values = emitter.build(stage, values)
            done.update(((i, j), value) for j, value in enumerate(values))
            first += len(stage.elements)

    def _neutral(self, emitter: Emitter, walk: RowWalk) -> list[SSAValue]:
        """What a walk's reductions begin with."""
        out = []
        for stage in (self.stages[i] for i in walk.reductions):
            axes = self.walks.carried_axes(stage)
            for j, element in enumerate(stage.elements):
                value = number(0 if j else neutral(stage))
                fill = emitter.builder.add(ops.FillOp, [], [emitter.type(axes, element)], value=value)
                out += fill.results
        return out

    def _combined(
        self,
        emitter: Emitter,
        stage: Stage,
        done: dict[Ref, SSAValue],
        masked: dict[tuple[Ref, bytes | int | None], SSAValue],
        carried: list[SSAValue],
    ) -> list[SSAValue]:
        """What is `carried` of a reduction, with a piece. masked: pieces whose places behind the end of the rows have
        a number that changes nothing, by what they are made of and that number."""
        kind, builder = stage.combines, emitter.builder
        assert kind is not None
        (source,) = stage.operands
        tile = done[source]
        ragged = self._ragged(emitter, stage.reduces)
        if ragged:
            key = source, exactly(neutral(stage))
            if key not in masked:
                masked[key] = self._masked(emitter, tile, ragged, neutral(stage))
            tile = masked[key]
        parts = [tile] if self.walks.lanewise(stage) else list(emitter.build(stage, [tile]))
        if len(parts) == 1:
            cls = ops.ELEMENTWISE[REDUCTION_FUNCTION[kind]]
            return [builder.add(cls, [carried[0], parts[0]], [carried[0].type]).results[0]]
        return self._combined_arg(emitter, kind, parts, carried, next(iter(stage.reduces)))

    def _masked(
        self, emitter: Emitter, tile: SSAValue, ragged: Sequence[int], value: float | int
    ) -> SSAValue:
        rank = len(emitter.tile)
        indices, rows = pack([emitter.at(a) if a in ragged else Expr() for a in range(rank)])
        bounds = [self.extents[a] if a in ragged else emitter.tile[a] for a in range(rank)]
        return emitter.builder.add(
            ops.MaskOp, [tile, *indices], [tile.type], offsets=rows, bounds=ints(bounds), value=number(value)
        ).results[0]

    def _ragged(self, emitter: Emitter, reduced: Iterable[int]) -> list[int]:
        """The axes along which the last piece reaches over the end."""
        return [a for a in reduced if reaches_over(self.extents[a], emitter.tile[a])]

    def _combined_arg(
        self, emitter: Emitter, kind: str, parts: list[SSAValue], carried: list[SSAValue], axis: int
    ) -> list[SSAValue]:
        """The better of the best so far and a piece's best; the first index wins, NaN wins over numbers."""
        builder = emitter.builder
        value, index = parts
        best, best_index = carried
        mask = TileType.of(tile_type(value).shape, I1, "ub")

        def op(name: str, *operands: SSAValue, result: Attribute | None = None) -> SSAValue:
            return builder.add(ops.ELEMENTWISE[name], operands, [result or operands[-1].type]).results[0]

        indices, rows = pack([emitter.at(axis)])
        start = builder.add(
            ops.IotaOp,
            indices,
            [TileType.of([1] * len(emitter.tile), tile_type(index).element, "ub")],
            offsets=rows,
            dim=integer_attr(0),
            step=integer_attr(1),
        ).results[0]
        shifted = op("add", index, start, result=index.type)
        better = op("gt" if kind == "max" else "lt", value, best, result=mask)
        if dtype_name(tile_type(value).element)[0] in "fb":
            nan = op("ne", value, value, result=mask)
            number_so_far = op("eq", best, best, result=mask)
            better = op("or", better, op("and", nan, number_so_far))
            better = op("and", better, number_so_far)
        return [op("select", better, value, best), op("select", better, shifted, best_index)]


class PeeledPieces(RowPieces):
    """The same over one axis that is reduced, for stages that store nothing but what comes of the reduction: what is
    left behind the last whole piece is a piece of its own, and nothing is masked."""

    def _walk(
        self, emitter: Emitter, inner: Sequence[tuple[int, int]], walk: RowWalk, done: dict[Ref, SSAValue]
    ) -> None:
        (axis,) = self.walks.rows
        length = emitter.tile[axis]
        whole, rest = divmod(self.extents[axis], length)
        if not rest:
            super()._walk(emitter, inner, walk, done)
            return
        start = emitter.position[axis]
        carried = self._neutral(emitter, walk)
        self._loops(emitter, [(axis, whole)] if whole > 1 else [], walk, done, carried)
        emitter.position[axis] = start + whole * length
        emitter.tile = [rest if a == axis else n for a, n in enumerate(emitter.tile)]
        self._piece(emitter, walk, dict(done), carried)
        emitter.tile = [length if a == axis else n for a, n in enumerate(emitter.tile)]
        self._reduced(emitter, walk, carried, done)

    def _ragged(self, emitter: Emitter, reduced: Iterable[int]) -> list[int]:
        return []
