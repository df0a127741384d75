"""Grouped products: rows in groups, each multiplied by a matrix of its own, as a mixture of experts has them.

JAX writes `ragged_dot(x, w, sizes)` for rows [m, k], matrices [g, k, n] and g sizes as one product over groups and k:

    %inside = first[g] <= row < last[g] ; %masked = select(%inside, broadcast x, 0) : [g, m, k]
    %y = contract %masked, %w over g and k : [m, n]

which multiplies every row by every matrix. Here the rows of each group become tiles of a fixed number of rows, and each
tile is multiplied by the matrix of its group:

    %rows = gather of a window of rows of x for each tile ; %experts = gather of w for each tile
    %tiles = contract %rows, %experts {batch: tiles} ; %y = the row of %tiles for each row, or 0

The product loads both at their places (`gathered_operands.py`), and nothing of [g, m, k] is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr, i1, i32
from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer, integer_attr, ints, text, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size, tensor
from ...dialects.graph import (
    ELEMENTWISE,
    BroadcastOp,
    ConcatOp,
    ContractOp,
    CumulateOp,
    ElementwiseOp,
    GatherOp,
    IotaOp,
    SliceOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from ...machine import Machine
from ..access import splat_of
from .patterns import GraphPattern
from .tensor_builder import RewriteBuilder, TensorBuilder

TILES = (16, 32, 64, 128)
"""Rows of a tile that are tried: from those of a fractal to as many as hide the loads of a matrix."""

COLUMNS = 256
"""Columns of a matrix that a core multiplies at a time, as many as l0c has room for."""

LAUNCHES = 5
"""Kernels that a grouped product takes more than one product: of places, and of the rows of tiles."""


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


class GroupProduct(GraphPattern):
    """A product over groups of rows, with 0 in all other rows, is one of tiles of rows, each of one group."""

    name = "group-product"
    LATE: ClassVar[bool] = True

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        if to_ints(op.lhs_batch) or any_open([*shape_of(op.lhs), *shape_of(op.rhs)]):
            return
        m, n = op.free_dims()
        sides = (op.lhs, to_ints(op.lhs_contract), m), (op.rhs, to_ints(op.rhs_contract), n)
        for mine, other in (sides, sides[::-1]):
            masked = masked_rows(mine[0])
            if masked is None or masked.group not in mine[1] or list(mine[2]) != [masked.row]:
                continue
            group = other[1][mine[1].index(masked.group)]
            rows = rows_of_tile(op, mine[0], other[0], masked, self.machine)
            if rows is not None:
                found = self._in_tiles(RewriteBuilder(rewriter), op, masked, mine[1], other, group, rows)
                if mine is sides[1]:
                    rank = len(shape_of(found))
                    found = RewriteBuilder(rewriter).transpose(found, [*range(1, rank), 0])
                rewriter.replace(op, (), [found])
                return

    def _in_tiles(
        self,
        build: TensorBuilder,
        op: ContractOp,
        masked: MaskedRows,
        summed: Sequence[int],
        other: tuple[SSAValue, Sequence[int], Sequence[int]],
        group: int,
        rows: int,
    ) -> SSAValue:
        """The product in tiles of so many rows: [m, *n]. summed: dimensions of the masked operand; other: the other
        one, what is summed over of it, in the order of `summed`, and what is free; group: its dimension of groups."""
        matrices, matched, _ = other
        table, shape = shape_of(masked.x), shape_of(matrices)
        count = table[masked.x_row]
        tiles = tiles_of(count, shape[group], rows, self.machine)
        places = TilePlaces(build, masked, count, rows, tiles)
        window = [rows if d == masked.x_row else n for d, n in enumerate(table)]
        lhs = _slices(build, masked.x, places.begins(), masked.x_row, window, keep=True)
        rhs = _slices(
            build, matrices, places.group(), group, [1 if d == group else n for d, n in enumerate(shape)]
        )

        def inner(dims: Sequence[int], gone: int) -> list[int]:
            """Where dimensions are behind that of the tiles, without the groups."""
            return [1 + d - (d > gone) for d in dims if d != gone]

        n = [d for d in range(len(shape)) if d not in matched]
        out = [tiles, rows, *(shape[d] for d in n)]
        product = build.add(
            ContractOp,
            [lhs, rhs],
            tensor(out, element_of(op.result)),
            **{
                **op.properties,
                "lhs_batch": ints([0]),
                "rhs_batch": ints([0]),
                "lhs_contract": ints(inner(summed, masked.group)),
                "rhs_contract": ints(inner(matched, group)),
            },
        )
        each = build.reshape(product, [out[0] * rows, *out[2:]])
        taken = _slices(build, each, places.row(), 0, [1, *out[2:]])
        shape = shape_of(taken)
        return build.add(
            ELEMENTWISE["select"],
            [
                build.broadcast(places.any(), shape, [0]),
                taken,
                build.constant(0, shape, element_of(taken)),
            ],
            taken.type,
        )


def rows_of_tile(
    op: ContractOp, rows: SSAValue, matrices: SSAValue, masked: MaskedRows, machine: Machine
) -> int | None:
    """Rows of a tile with which a grouped product takes least; None where the product of all rows with all matrices
    takes less.

    A tile takes the longer of its products and its loads: of its matrix, and for each COLUMNS of that of its rows.
    Groups end somewhere in a tile: there is up to one more tile for each than rows fill. Without tiles, the masked rows
    are stored and loaded on top.
    """
    name = dtype_name(element_of(rows))
    if name not in machine.cube:
        return None
    count, groups = shape_of(rows)[masked.row], shape_of(rows)[masked.group]
    numbers = size(shape_of(matrices)) // max(groups, 1)
    load = numbers * itemsize(element_of(matrices)) / machine.moves["gm", "l1"].bytes_per_cycle
    each = numbers / machine.cube[name].macs

    def cycles(tile: int) -> float:
        return tiles_of(count, groups, tile, machine) * max(tile * each, load * (1 + tile / COLUMNS))

    able = [tile for tile in TILES if tile <= count]
    if not able or groups < 2 or not numbers:
        return None
    best = min(able, key=cycles)
    masked = size(shape_of(rows)) * itemsize(element_of(rows))
    stored = masked / (machine.moves["ub", "gm"].bytes_per_cycle * machine.vector_cores)
    again = masked / (machine.moves["gm", "l1"].bytes_per_cycle * machine.cube_cores)
    fewer = (count * groups * each - cycles(best)) / machine.cube_cores
    saved = machine.cycles_to_microseconds(fewer + stored + again)
    return best if saved > LAUNCHES * machine.vector_launch_microseconds(1) else None


def tiles_of(rows: int, groups: int, tile: int, machine: Machine) -> int:
    """The most tiles that rows in groups fill, where each tile has rows of one group; if there are more than cores, as
    many for each of a part of these: the others take other columns."""
    tiles, cores = (rows + groups * (tile - 1)) // tile, machine.cube_cores
    part = cores & -cores
    return tiles if tiles < cores else -(-tiles // part) * part


def masked_rows(value: SSAValue) -> MaskedRows | None:
    """What an operand is, if it is rows in groups with 0 in the rows of other groups; None otherwise."""
    select = _function(value, "select")
    if select is None or splat_of(select.operands[2]) != 0:
        return None
    inside = _function(select.operands[0], "and")
    spread = select.operands[1].owner
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
        dims, shape = to_ints(spread.dims), shape_of(value)
        alone = [d for d in range(len(shape)) if d != group]
        if list(dims) != alone or list(shape_of(spread.x)) != [shape[d] for d in alone]:
            continue
        sizes = sizes_between(first, last)
        if sizes is not None:
            return MaskedRows(group, row, spread.x, alone.index(row), sizes, last)
    return None


def sizes_between(first: SSAValue, last: SSAValue) -> SSAValue | None:
    """The sizes of groups of which each begins where the one before it ends, the first one at 0; None for others."""
    sums, parts = last.owner, first.owner
    if not isinstance(sums, CumulateOp) or text(sums.kind) != "sum" or integer(sums.reverse):
        return None
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


def _slices(
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

    def __init__(self, build: TensorBuilder, masked: MaskedRows, count: int, rows: int, tiles: int):
        self.build, self.count, self.rows, self.tiles = build, count, rows, tiles
        sizes, self.last = build.convert(masked.sizes, i32), build.convert(masked.last, i32)
        self.first = build.elementwise("sub", self.last, sizes)
        self.groups = shape_of(sizes)[0]
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

    def _of_its_group(
        self, count: int, first: SSAValue, last: SSAValue, values: Sequence[SSAValue]
    ) -> SSAValue:
        """For each of `count` places, the number of the group that it is in: first <= place < last; 0 without one.
        values: what is added up for each place and group, [count, groups]."""
        place = self._places(count)
        shape = shape_of(place)

        def compare(name: str, bound: SSAValue) -> SSAValue:
            spread = self.build.broadcast(bound, shape, [1])
            return self.build.add(ELEMENTWISE[name], [place, spread], tensor(shape, i1))

        inside = self.build.elementwise("and", compare("ge", first), compare("lt", last))
        total = values[0]
        for value in values[1:]:
            total = self.build.elementwise("add", total, value)
        zero = self.build.constant(0, shape, i32)
        return self.build.reduce(
            self.build.add(ELEMENTWISE["select"], [inside, total, zero], total.type), "sum", [1]
        )

    def _places(self, count: int) -> SSAValue:
        return self.build.add(IotaOp, [], tensor([count, self.groups], i32), dim=integer_attr(0))

    def _spread(self, value: SSAValue, count: int) -> SSAValue:
        return self.build.broadcast(value, [count, self.groups], [1])

    def group(self) -> SSAValue:
        """The group of each tile: [tiles]. Tiles without rows have group 0."""
        numbers = self.build.add(IotaOp, [], tensor([self.tiles, self.groups], i32), dim=integer_attr(1))
        return self._of_its_group(self.tiles, self.first_tile, self.end_tile, [numbers])

    def _begin(self, tile: SSAValue, count: int) -> SSAValue:
        """The first row of the tile that is so many after its group's first one, by place and group."""
        begin = self._vector("add", self._spread(self.first, count), self._shifted(tile, "shl"))
        return self._vector("min", begin, self.count - self.rows)  # as the window of a gather begins

    def begins(self) -> SSAValue:
        """The first row of each tile: [tiles]."""
        after = self._vector("sub", self._places(self.tiles), self._spread(self.first_tile, self.tiles))
        return self._of_its_group(
            self.tiles, self.first_tile, self.end_tile, [self._begin(after, self.tiles)]
        )

    def row(self) -> SSAValue:
        """For each row, its place among the rows of all tiles: [count]."""
        place = self._places(self.count)
        after = self._shifted(
            self._vector("sub", place, self._spread(self.first, self.count)), "shr_arithmetic"
        )
        tile = self._vector("add", after, self._spread(self.first_tile, self.count))
        within = self._vector("sub", place, self._begin(after, self.count))
        return self._of_its_group(self.count, self.first, self.last, [self._shifted(tile, "shl"), within])

    def any(self) -> SSAValue:
        """Whether each row is in a group: [count]."""
        row = self.build.add(IotaOp, [], tensor([self.count], i32), dim=integer_attr(0))
        end = self.build.part(self.last, 0, self.groups - 1, 1)
        end = self.build.broadcast(self.build.reshape(end, []), [self.count], [])
        return self.build.add(ELEMENTWISE["lt"], [row, end], tensor([self.count], i1))
