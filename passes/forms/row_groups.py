"""Rows in groups that follow each other, and the tiles that they fill: what grouped products are made of.

A tile has a fixed number of rows of one group. Which group, and where it begins, is computed from the sizes of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import StringAttr, i1, i32
from xdsl.ir import SSAValue

from ...dialects.base import integer, integer_attr, ints, text, to_ints
from ...dialects.dtypes import tensor
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ConcatOp,
    CumulateOp,
    ElementwiseOp,
    GatherOp,
    IotaOp,
    SliceOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import is_open, most_of
from ...machine import Machine
from .access import splat_of
from .tensor_builder import TensorBuilder


@dataclass(frozen=True)
class MaskedRows:
    """An operand that is x in the rows of a group, and 0 elsewhere. group, row: its dimensions; x: without the groups;
    x_row: the dimension of x that has the rows; sizes, last: how many rows each group has, and where it ends."""

    group: int
    row: int
    x: SSAValue
    x_row: int
    sizes: SSAValue
    last: SSAValue

    def others(self, operand: SSAValue) -> list[int]:
        """The sizes of the operand's dimensions but that of its rows."""
        return [n for d, n in enumerate(shape_of(operand)) if d != self.row]


def tiles_of(rows: int, groups: int, tile: int, machine: Machine) -> int:
    """The most tiles that rows in groups fill, where each tile has rows of one group; if there are more than cores, as
    many for each of a part of these: the others take other columns. Of an open number of rows, those of the most."""
    rows = most_of(rows) or 0
    tiles, cores = (rows + groups * (tile - 1)) // tile, machine.cube_cores
    part = cores & -cores
    return tiles if tiles < cores else -(-tiles // part) * part


def masked_rows(value: SSAValue) -> MaskedRows | None:
    """What an operand is, if it is rows in groups with 0 in the rows of other groups; None otherwise."""
    select = _function(value, "select")
    if select is None or splat_of(select.operands[2]) != 0:
        return None
    mask, places = _repeated(select.operands[0])
    inside, spread = _function(mask, "and"), select.operands[1].owner
    if inside is None or not isinstance(spread, BroadcastOp):
        return None
    orders = [_order(v) for v in inside.operands]
    for begin, end in (orders, orders[::-1]):
        if begin is None or end is None or begin[2] or not end[2]:
            continue
        (first, group), (_, row) = begin[0], begin[1]
        (_, end_row), (last, end_group) = end[0], end[1]
        positions = begin[1][0] is None and end[0][0] is None
        if not positions or first is None or last is None or (group, row) != (end_group, end_row):
            continue
        group, row = places[group], places[row]
        dims, shape = to_ints(spread.dims), shape_of(value)
        alone = [d for d in range(len(shape)) if d != group]
        if list(dims) != alone or list(shape_of(spread.x)) != [shape[d] for d in alone]:
            continue
        sizes = sizes_between(first, last)
        if sizes is not None:
            return MaskedRows(group, row, spread.x, alone.index(row), sizes, last)
    return None


def _repeated(value: SSAValue) -> tuple[SSAValue, Sequence[int]]:
    """What a value repeats along other dimensions, and for each dimension of that where it is in the value."""
    op, shape = value.owner, shape_of(value)
    if isinstance(op, BroadcastOp) and [shape[d] for d in to_ints(op.dims)] == list(shape_of(op.x)):
        return op.x, to_ints(op.dims)
    return value, range(len(shape))


def sizes_between(first: SSAValue, last: SSAValue) -> SSAValue | None:
    """The sizes of groups of which each begins where the one before it ends, the first one at 0; None for others. Where
    a group begins is the end of the one before it, or its own without its size."""
    sums, parts = last.owner, first.owner
    if not isinstance(sums, CumulateOp) or text(sums.kind) != "sum" or integer(sums.reverse):
        return None
    without = _function(first, "sub")
    if without is not None:
        return sums.x if list(without.operands) == [last, sums.x] else None
    if not isinstance(parts, ConcatOp) or len(parts.parts) != 2:
        return None
    zero, rest = parts.parts
    if splat_of(zero) != 0 or shape_of(zero) != (1,) or not isinstance(rest.owner, SliceOp):
        return None
    before = rest.owner.x is last and to_ints(rest.owner.starts) == (0,)
    return sums.x if before and to_ints(rest.owner.strides) == (1,) else None


def _function(value: SSAValue, name: str) -> ElementwiseOp | None:
    op = value.owner
    return op if isinstance(op, ElementwiseOp) and op.FUNCTION.name == name else None


_ORDERS = {"le": (False, False), "lt": (False, True), "ge": (True, False), "gt": (True, True)}
"""Of each comparison: whether it has the smaller one second, and whether both may not be equal."""

Along = tuple[SSAValue | None, int]
"""A vector and the dimension that it goes along; None for the positions along it."""


def _order(value: SSAValue) -> tuple[Along, Along, bool] | None:
    """(smaller, larger, whether they may not be equal) of a comparison of two vectors."""
    op = value.owner
    if not isinstance(op, ElementwiseOp) or op.FUNCTION.name not in _ORDERS:
        return None
    turned, strict = _ORDERS[op.FUNCTION.name]
    sides = [_along(v) for v in (op.operands[::-1] if turned else op.operands)]
    if sides[0] is None or sides[1] is None:
        return None
    return sides[0], sides[1], strict


def _along(value: SSAValue) -> Along | None:
    op = value.owner
    if isinstance(op, IotaOp):
        return None, integer(op.dim)
    if not isinstance(op, BroadcastOp) or len(to_ints(op.dims)) != 1:
        return None
    (dim,) = to_ints(op.dims)
    return (None if isinstance(op.x.owner, IotaOp) else op.x), dim


def or_zero(build: TensorBuilder, condition: SSAValue, value: SSAValue) -> SSAValue:
    """A value where a condition holds, 0 elsewhere."""
    zero = build.constant(0, shape_of(value), element_of(value))
    return build.add(ELEMENTWISE["select"], [condition, value, zero], value.type)


def windows(build: TensorBuilder, masked: MaskedRows, places: TilePlaces) -> SSAValue:
    """The rows from where each tile begins on, [tiles, ...], those of others behind its own included."""
    sizes = [places.rows if d == masked.x_row else n for d, n in enumerate(shape_of(masked.x))]
    return slices(build, masked.x, places.begins, masked.x_row, sizes, keep=True)


def slices(
    build: TensorBuilder, x: SSAValue, starts: SSAValue, dim: int, sizes: Sequence[int], keep: bool = False
) -> SSAValue:
    """The slices of these sizes that begin at each of `starts` along a dimension, which is left out unless kept."""
    kept = [d for d in range(len(sizes)) if keep or d != dim]
    places = build.reshape(starts, [*shape_of(starts), 1])
    return build.add(
        GatherOp,
        [x, places],
        tensor([*shape_of(starts), *(sizes[d] for d in kept)], element_of(x)),
        offset_dims=ints(range(1, 1 + len(kept))),
        collapsed_dims=ints([] if keep else [dim]),
        x_batch=ints([]),
        indices_batch=ints([]),
        start_map=ints([dim]),
        index_dim=integer_attr(1),
        slice_sizes=ints(sizes),
    )


class TilePlaces:
    """Where the tiles are of rows in groups: `count` rows, `tiles` of so many `rows`. All places are i32."""

    def __init__(self, build: TensorBuilder, masked: MaskedRows, rows: int, machine: Machine):
        self.build, self.rows = build, rows
        self.count, self.groups = shape_of(masked.x)[masked.x_row], shape_of(masked.sizes)[0]
        self.tiles = tiles_of(self.count, self.groups, rows, machine)
        sizes, self.last = build.convert(masked.sizes, i32), build.convert(masked.last, i32)
        self.first = build.elementwise("sub", self.last, sizes)
        filled = self._shifted(self._vector("add", sizes, rows - 1), "shr_arithmetic")
        self.end_tile = build.add(
            CumulateOp,
            [filled],
            filled.type,
            dim=integer_attr(0),
            kind=StringAttr("sum"),
            reverse=integer_attr(0),
        )
        self.first_tile = build.elementwise("sub", self.end_tile, filled)
        """The first tile of each group."""

    def _vector(self, function: str, x: SSAValue, y: SSAValue | int) -> SSAValue:
        other = self.build.constant(y, shape_of(x), i32) if isinstance(y, int) else y
        return self.build.elementwise(function, x, other)

    def _shifted(self, x: SSAValue, function: str) -> SSAValue:
        """x times, or by, the rows of a tile, which are a power of two."""
        return self._vector(function, x, self.rows.bit_length() - 1)

    def _of_its_group(self, first: SSAValue, last: SSAValue, values: SSAValue) -> SSAValue:
        """For each place, the value of the group that it is in: first <= place < last; 0 without one. values: one for
        each place and group, [places, groups]."""
        inside = self._between(self._places(shape_of(values)[0]), first, last, 1)
        return self.build.reduce(or_zero(self.build, inside, values), "sum", [1])

    def _between(self, places: SSAValue, first: SSAValue, last: SSAValue, dim: int) -> SSAValue:
        """Whether first <= place < last, of bounds along a dimension."""
        shape = shape_of(places)

        def compared(name: str, bounds: SSAValue) -> SSAValue:
            spread = self.build.broadcast(bounds, shape, [dim])
            return self.build.add(ELEMENTWISE[name], [places, spread], tensor(shape, i1))

        return self.build.elementwise("and", compared("ge", first), compared("lt", last))

    def _places(self, count: int) -> SSAValue:
        return self.build.add(IotaOp, [], tensor([count, self.groups], i32), dim=integer_attr(0))

    def _spread(self, value: SSAValue, count: int) -> SSAValue:
        return self.build.broadcast(value, [count, self.groups], [1])

    def _of_tiles(self, values: SSAValue) -> SSAValue:
        """For each tile, the value of its group: [tiles]; 0 for tiles without rows."""
        return self._of_its_group(self.first_tile, self.end_tile, values)

    def group(self) -> SSAValue:
        """The group of each tile: [tiles]. Tiles without rows have group 0."""
        return self._of_tiles(
            self.build.add(IotaOp, [], tensor([self.tiles, self.groups], i32), dim=integer_attr(1))
        )

    def _begin(self, tile: SSAValue, count: int) -> SSAValue:
        """The first row of the tile that is so many after its group's first one, by place and group."""
        return self._vector("add", self._spread(self.first, count), self._shifted(tile, "shl"))

    def _window(self, begin: SSAValue) -> SSAValue:
        """Where the window of a gather begins for a tile that begins there: none reaches over the last row."""
        if not is_open(self.count):
            return self._vector("min", begin, self.count - self.rows)
        # the number of rows, as data: a pass cannot ask for a size as an input of the program
        row = self.build.add(IotaOp, [], tensor([self.count], i32), dim=integer_attr(0))
        last = self._vector("sub", self.build.reduce(row, "max", [0]), self.rows - 1)
        return self._vector("min", begin, self.build.broadcast(last, shape_of(begin), []))

    @cached_property
    def _own_begins(self) -> SSAValue:
        """The first row of each tile: [tiles]; 0 for tiles without rows."""
        after = self._vector("sub", self._places(self.tiles), self._spread(self.first_tile, self.tiles))
        return self._of_tiles(self._begin(after, self.tiles))

    @cached_property
    def begins(self) -> SSAValue:
        """The first row of each tile's window: [tiles]."""
        return self._window(self._own_begins)

    @cached_property
    def own(self) -> SSAValue:
        """Whether each row of each tile's window is the tile's: [tiles, rows]."""
        last = self._of_tiles(self._spread(self.last, self.tiles))
        end = self.build.elementwise("min", last, self._vector("add", self._own_begins, self.rows))
        shape = [self.tiles, self.rows]
        place = self.build.add(IotaOp, [], tensor(shape, i32), dim=integer_attr(1))
        row = self.build.elementwise("add", place, self.build.broadcast(self.begins, shape, [0]))
        return self._between(row, self._own_begins, end, 0)

    def row(self) -> SSAValue:
        """For each row, its place among the rows of all tiles: [count]."""
        place = self._places(self.count)
        after = self._shifted(
            self._vector("sub", place, self._spread(self.first, self.count)), "shr_arithmetic"
        )
        tile = self._vector("add", after, self._spread(self.first_tile, self.count))
        within = self._vector("sub", place, self._window(self._begin(after, self.count)))
        return self._of_its_group(
            self.first, self.last, self._vector("add", self._shifted(tile, "shl"), within)
        )

    def any(self) -> SSAValue:
        """Whether each row is in a group: [count]."""
        row = self.build.add(IotaOp, [], tensor([self.count], i32), dim=integer_attr(0))
        end = self.build.part(self.last, 0, self.groups - 1, 1)
        end = self.build.broadcast(self.build.reshape(end, []), [self.count], [])
        return self.build.add(ELEMENTWISE["lt"], [row, end], tensor([self.count], i1))
