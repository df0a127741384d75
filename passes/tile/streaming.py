"""Reductions whose rows do not fit ub: rows are read in pieces, and a carried tile combines their partial results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from xdsl.dialects.builtin import i1 as I1
from xdsl.ir import Attribute, SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, integer_attr, ints, pack
from ...dialects.dtypes import dtype_name
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.tile import TileType, tile_type
from .builder import hand_back, number
from .steps import Emitter, Ref, Steps, tile_bytes


def combining_bytes(steps: Steps, tile: Sequence[int], ragged: bool = True) -> int:
    """Bytes on top of the steps' own where rows are read in pieces: the masked piece if they may be `ragged`, what is
    carried, comparisons."""
    step = next(s for s in steps if s.reduces)
    source = steps[step.operands[0][0]]
    masked = tile_bytes(tile, source.axes, source.elements) if ragged else 0
    return masked + 4 * tile_bytes(tile, step.axes, step.elements)


@dataclass
class RowPieces:
    """The steps of a kernel over a domain of `extents`, with one reduction of `kind`, its rows read in pieces."""

    steps: Steps
    extents: Sequence[int]
    kind: str

    def emit(self, emitter: Emitter, loops: Sequence[tuple[int, int]]) -> None:
        """Emits all steps inside `loops` (axis, trips)."""
        builder, rows = emitter.builder, self.steps.rows()
        at = next(i for i, s in enumerate(self.steps) if s.reduces)
        before = self.steps.ancestors(at)
        beside = [i for i in self.steps.along(rows) if i not in before and i != at]
        done: dict[Ref, SSAValue] = {}
        outer = [(a, n) for a, n in loops if a not in rows]
        inner = [(a, n) for a, n in loops if a in rows]
        with ExitStack() as stack:
            for axis, trips in outer:
                index = stack.enter_context(builder.loop(trips))
                emitter.position[axis] = emitter.position[axis] + index * emitter.tile[axis]
            for a in rows:
                emitter.position[a] = Expr()
            for i in self._shared(at, before, beside, rows):
                emitter.emit(i, self.steps[i], done)
            final = self._walk(emitter, inner, [*before, *self.steps.ordered(beside)], at, done)
            done.update({(at, j): v for j, v in enumerate(final)})
            inside = {*before, *beside, at}
            for i in self.steps.ordered(i for i, _ in enumerate(self.steps) if i not in inside):
                emitter.emit(i, self.steps[i], done)

    def _walk(
        self,
        emitter: Emitter,
        inner: Sequence[tuple[int, int]],
        steps: Sequence[int],
        at: int,
        done: dict[Ref, SSAValue],
    ) -> list[SSAValue]:
        """What all pieces are reduced to by step `at`, in loops (axis, trips) with these steps for each piece."""
        carried = self._neutral(emitter, at)
        with ExitStack() as nest:
            levels: list[list[SSAValue]] = []
            for axis, trips in inner:
                levels.append(carried)
                carried = list(carried)
                nest.callback(hand_back, levels[-1], carried)
                index = nest.enter_context(emitter.builder.loop(trips, carried))
                emitter.position[axis] = emitter.position[axis] + index * emitter.tile[axis]
            self._piece(emitter, steps, at, done, carried)
        return levels[0] if levels else carried

    def _piece(
        self,
        emitter: Emitter,
        steps: Sequence[int],
        at: int,
        done: dict[Ref, SSAValue],
        carried: list[SSAValue],
    ) -> None:
        """The steps for one piece, which becomes part of what is `carried`."""
        for i in steps:
            if (i, 0) not in done:
                emitter.emit(i, self.steps[i], done)
        self._combine(emitter, at, done, carried)

    def _shared(
        self, at: int, before: Sequence[int], beside: Sequence[int], rows: frozenset[int]
    ) -> list[int]:
        """The steps for the pieces that do not depend on the piece and that steps behind the loops need, too: what is
        computed inside of a loop is not there behind it."""
        steps, inside = self.steps, {*before, *beside, at}
        varies = {
            i
            for i in inside
            if any((steps[j].axes | steps[j].moves) & rows for j in (*steps.ancestors(i), i))
        }
        behind = [i for i, _ in enumerate(steps) if i not in inside]
        needed = {a for i in behind for a in steps.ancestors(i)}
        return steps.ordered(sorted(needed & inside - varies - {at}))

    def _neutral(self, emitter: Emitter, at: int) -> list[SSAValue]:
        step = self.steps[at]
        out = []
        for j, element in enumerate(step.elements):
            value = identity(self.kind, dtype_name(element)) if j == 0 else 0
            out.append(
                emitter.builder.add(
                    ops.FillOp, [], [emitter.type(step.axes, element)], value=number(value)
                ).results[0]
            )
        return out

    def _combine(self, emitter: Emitter, at: int, done: dict[Ref, SSAValue], carried: list[SSAValue]) -> None:
        step, kind, builder = self.steps[at], self.kind, emitter.builder
        (source,) = step.operands
        tile = done[source]
        neutral = identity(kind, dtype_name(step.elements[0]))
        ragged = self._ragged(emitter, step.reduces)
        if ragged:
            rank = len(emitter.tile)
            indices, rows = pack([emitter.at(a) if a in ragged else Expr() for a in range(rank)])
            bounds = [self.extents[a] if a in ragged else emitter.tile[a] for a in range(rank)]
            tile = builder.add(
                ops.MaskOp,
                [tile, *indices],
                [tile.type],
                offsets=rows,
                bounds=ints(bounds),
                value=number(neutral),
            ).results[0]
        parts = list(step.emit(emitter, [tile]))
        if len(parts) == 1:
            cls = ops.ELEMENTWISE[REDUCTION_FUNCTION[kind]]
            carried[0] = builder.add(cls, [carried[0], parts[0]], [carried[0].type]).results[0]
            return
        self._combine_arg(emitter, parts, carried, next(iter(step.reduces)))

    def _ragged(self, emitter: Emitter, reduced: Iterable[int]) -> list[int]:
        """The axes along which the last piece reaches over the end."""
        return [a for a in reduced if self.extents[a] % emitter.tile[a]]

    def _combine_arg(
        self, emitter: Emitter, parts: list[SSAValue], carried: list[SSAValue], axis: int
    ) -> None:
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
        better = op("gt" if self.kind == "max" else "lt", value, best, result=mask)
        if dtype_name(tile_type(value).element)[0] in "fb":
            nan = op("ne", value, value, result=mask)
            number_so_far = op("eq", best, best, result=mask)
            better = op("or", better, op("and", nan, number_so_far))
            better = op("and", better, number_so_far)
        carried[0] = op("select", better, value, best)
        carried[1] = op("select", better, shifted, best_index)


class PeeledPieces(RowPieces):
    """The same over one axis that is reduced, for steps that store nothing but what comes of the reduction: what is
    left behind the last whole piece is a piece of its own, and nothing is masked."""

    def _walk(
        self,
        emitter: Emitter,
        inner: Sequence[tuple[int, int]],
        steps: Sequence[int],
        at: int,
        done: dict[Ref, SSAValue],
    ) -> list[SSAValue]:
        (axis,) = self.steps.rows()
        length = emitter.tile[axis]
        whole, rest = divmod(self.extents[axis], length)
        if not rest:
            return super()._walk(emitter, inner, steps, at, done)
        start = emitter.position[axis]
        inside = dict(done)
        carried = super()._walk(emitter, [(axis, whole)] if whole > 1 else [], steps, at, inside)
        emitter.position[axis] = start + whole * length
        emitter.tile = [rest if a == axis else n for a, n in enumerate(emitter.tile)]
        self._piece(emitter, steps, at, dict(done), carried)
        emitter.tile = [length if a == axis else n for a, n in enumerate(emitter.tile)]
        return carried

    def _ragged(self, emitter: Emitter, reduced: Iterable[int]) -> list[int]:
        return []
