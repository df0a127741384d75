"""Grouped products: rows in groups, each multiplied by a matrix of its own, as a mixture of experts has them.

JAX writes `ragged_dot(x, w, sizes)` for rows [m, k], matrices [g, k, n] and g sizes as one product over groups and k:

    %inside = first[g] <= row < last[g] ; %masked = select(%inside, broadcast x, 0) : [g, m, k]
    %y = contract %masked, %w over g and k : [m, n]

which multiplies every row by every matrix. Here the rows of each group become tiles of a fixed number of rows, and each
tile is multiplied by the matrix of its group:

    %rows = gather of a window of rows of x for each tile ; %experts = gather of w for each tile
    %tiles = contract %rows, %experts {batch: tiles} ; %y = the row of %tiles for each row, or 0

The product loads both at their places (`gathered_operands.py`), and nothing of [g, m, k] is made. The gradient of the
matrices is a product of masked rows with masked rows for each group, over all rows:

    %d = contract %masked_x, %masked_y {batch: g} over m : [g, k, n]

which becomes one for each tile, whose results are added up by group.

Where the sizes are numbers of the program, each group is a product of its own rows with its own matrix, all of them one
product with a batch where they have as many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, op_type_rewrite_pattern

from ...dialects.base import integer_attr, ints, to_ints
from ...dialects.dtypes import dtype_name, is_float, itemsize, size, tensor
from ...dialects.graph import ConcatOp, ConstantOp, ContractOp, ScatterOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open, certain, choosing, is_open, most_of
from ...machine import Machine
from ..forms.access import splat_of
from ..forms.row_groups import MaskedRows, TilePlaces, masked_rows, or_zero, slices, tiles_of, windows
from ..forms.tensor_builder import RewriteBuilder, TensorBuilder
from ..patterns import GraphPattern

TILES = (16, 32, 64, 128)
"""Rows of a tile that are tried: from those of a fractal to as many as hide the loads of a matrix."""

COLUMNS = 256
"""Columns of a matrix that a core multiplies at a time, as many as l0c has room for."""

LAUNCHES = 5
"""Kernels that a grouped product takes more than one product: of places, and of the rows of tiles."""


class GroupProduct(GraphPattern):
    """A product over groups of rows, with 0 in all other rows, is one of tiles of rows, each of one group."""

    name = "group-product"
    LATE: ClassVar[bool] = True

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        if to_ints(op.lhs_batch):
            return
        m, n = op.free_dims()
        sides = (op.lhs, to_ints(op.lhs_contract), m), (op.rhs, to_ints(op.rhs_contract), n)
        for mine, other in (sides, sides[::-1]):
            masked = masked_rows(mine[0])
            if masked is None or masked.group not in mine[1] or list(mine[2]) != [masked.row]:
                continue
            if any_open([*masked.others(mine[0]), *shape_of(other[0])]):
                continue
            known = known_sizes(masked)
            rows = None if known is not None else rows_of_tile(mine[0], other[0], masked, self.machine)
            build = RewriteBuilder(rewriter)
            if known is not None:
                found = _one_by_one(build, op, masked, mine[1], other, known)
            elif rows is None:
                continue
            else:
                places = TilePlaces(build, masked, rows, self.machine)
                found = _in_tiles(build, op, masked, mine[1], other, places)
            if mine is sides[1]:
                rank = len(shape_of(found))
                found = build.transpose(found, [*range(1, rank), 0])
            rewriter.replace(op, (), [found])
            return


MOST_KNOWN = 16
"""Groups of several sizes, at most, that are products of their own."""


def known_sizes(masked: MaskedRows) -> list[int] | None:
    """The rows of each group where these are numbers of the program, whose products are to be apart; None else."""
    op, count = masked.sizes.owner, shape_of(masked.x)[masked.x_row]
    (groups,) = shape_of(masked.sizes)
    each = splat_of(masked.sizes)
    if each is not None:
        found = [int(each)] * groups
    elif isinstance(op, ConstantOp):
        found = [int(n) for n in op.value.data.array()]
    else:
        return None
    if is_open(count) or min(found) < 0 or sum(found) > count:
        return None
    alike = len(set(found)) == 1 and sum(found) == count
    return found if alike or groups <= MOST_KNOWN else None


def _one_by_one(
    build: TensorBuilder,
    op: ContractOp,
    masked: MaskedRows,
    summed: Sequence[int],
    other: tuple[SSAValue, Sequence[int], Sequence[int]],
    sizes: Sequence[int],
) -> SSAValue:
    """The product of each group of so many rows with its matrix: [m, *n]. summed, other: as in `_in_tiles`."""
    matrices, matched, free = other
    x, row = masked.x, masked.x_row
    group, count = matched[summed.index(masked.group)], shape_of(x)[row]
    columns = [shape_of(matrices)[d] for d in free]

    def product(rows: SSAValue, of: SSAValue, groups: int, each: int) -> SSAValue:
        """`groups` products of `each` rows; rows have the groups before them."""
        shape = [*shape_of(rows)]
        parted = build.reshape(rows, [*shape[:row], groups, each, *shape[row + 1 :]])
        over = [d - (d > masked.group) for d in summed if d != masked.group]
        left = parted, [d + (d > row) for d in over]
        right = of, [d for d in matched if d != group]
        kind = tensor([groups, each, *columns], element_of(op.result))
        return build.reshape(_batched(build, op, left, right, kind, (row, group)), [groups * each, *columns])

    if len(set(sizes)) == 1 and sum(sizes) == count:
        return product(x, matrices, len(sizes), sizes[0])
    parts, begin = list[SSAValue](), 0
    for i, each in enumerate(sizes):
        if each:
            parts.append(product(build.part(x, row, begin, each), build.part(matrices, group, i, 1), 1, each))
        begin += each
    if begin < count:
        parts.append(build.constant(0, [count - begin, *columns], element_of(op.result)))
    whole = tensor([count, *columns], element_of(op.result))
    return parts[0] if len(parts) == 1 else build.add(ConcatOp, parts, whole, dim=integer_attr(0))


def _in_tiles(
    build: TensorBuilder,
    op: ContractOp,
    masked: MaskedRows,
    summed: Sequence[int],
    other: tuple[SSAValue, Sequence[int], Sequence[int]],
    places: TilePlaces,
) -> SSAValue:
    """The product in tiles: [m, *n]. summed: dimensions of the masked operand; other: the other one, what is summed
    over of it, in the order of `summed`, and what is free."""
    matrices, matched, free = other
    group, shape = matched[summed.index(masked.group)], shape_of(matrices)
    lhs = windows(build, masked, places)
    rhs = slices(
        build, matrices, places.group(), group, [1 if d == group else n for d, n in enumerate(shape)]
    )

    def inner(dims: Sequence[int], gone: int) -> list[int]:
        """Where dimensions are behind that of the tiles, without the groups."""
        return [1 + d - (d > gone) for d in dims if d != gone]

    columns = [shape[d] for d in free]
    product = _batched(
        build,
        op,
        (lhs, inner(summed, masked.group)),
        (rhs, inner(matched, group)),
        tensor([places.tiles, places.rows, *columns], element_of(op.result)),
    )
    each = build.reshape(product, [places.tiles * places.rows, *columns])
    taken = slices(build, each, places.row(), 0, [1, *columns])
    return or_zero(build, build.broadcast(places.any(), shape_of(taken), [0]), taken)


def _batched(
    build: TensorBuilder,
    op: ContractOp,
    lhs: tuple[SSAValue, Sequence[int]],
    rhs: tuple[SSAValue, Sequence[int]],
    result: Attribute,
    batch: tuple[int, int] = (0, 0),
) -> SSAValue:
    """A product for each tile or group, as `op` is one. lhs, rhs: operands, and what is summed over of them; batch: the
    dimension of each that has the tiles."""
    dims = {
        "lhs_batch": ints(batch[:1]),
        "rhs_batch": ints(batch[1:]),
        "lhs_contract": ints(lhs[1]),
        "rhs_contract": ints(rhs[1]),
    }
    return build.add(ContractOp, [lhs[0], rhs[0]], result, **{**op.properties, **dims})


def _least(
    tried: Sequence[int], cost: Callable[[int], float], without: float, machine: Machine
) -> int | None:
    """The rows of a tile that cost least, in microseconds; None where it costs less `without` tiles."""
    best = min(tried, key=cost)
    return best if without - cost(best) > LAUNCHES * machine.vector_launch_microseconds(1) else None


@choosing()
def rows_of_tile(rows: SSAValue, matrices: SSAValue, masked: MaskedRows, machine: Machine) -> int | None:
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

    wide = size(shape_of(rows)) * itemsize(element_of(rows))
    stored = wide / (machine.moves["ub", "gm"].bytes_per_cycle * machine.vector_cores)
    again = wide / (machine.moves["gm", "l1"].bytes_per_cycle * machine.cube_cores)

    def microseconds(tile: int) -> float:
        taken = tiles_of(count, groups, tile, machine) * max(tile * each, load * (1 + tile / COLUMNS))
        return machine.cycles_to_microseconds(taken / machine.cube_cores)

    able = [tile for tile in TILES if certain(tile, "<=", count)]
    if not able or most_of(count) is None or groups < 2 or not numbers:
        return None
    without = machine.cycles_to_microseconds(count * groups * each / machine.cube_cores + stored + again)
    return _least(able, microseconds, without, machine)


class GroupSums(GraphPattern):
    """Products over all rows for each group, all other rows of which are 0, are sums of products of tiles of rows."""

    name = "group-sums"
    LATE: ClassVar[bool] = True

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ContractOp, rewriter: PatternRewriter, /) -> None:
        if not is_float(element_of(op.result)):
            return
        lhs, rhs = masked_rows(op.lhs), masked_rows(op.rhs)
        if lhs is None or rhs is None or lhs.sizes is not rhs.sizes:
            return
        if any_open([*lhs.others(op.lhs), *rhs.others(op.rhs)]):
            return
        batch = to_ints(op.lhs_batch), to_ints(op.rhs_batch)
        summed = to_ints(op.lhs_contract), to_ints(op.rhs_contract)
        if batch != ((lhs.group,), (rhs.group,)) or summed != ((lhs.row,), (rhs.row,)):
            return
        rows = self._rows_of_tile(op, lhs)
        if rows is not None:
            rewriter.replace(op, (), [self._added_up(RewriteBuilder(rewriter), op, lhs, rhs, rows)])

    @choosing()
    def _rows_of_tile(self, op: ContractOp, lhs: MaskedRows) -> int | None:
        """Rows of a tile with which the sums take least; None where products over all rows for each group take less.

        A tile's results are stored, loaded and added up in f32. What is masked is stored and loaded either way.
        """
        machine, name = self.machine, dtype_name(element_of(op.lhs))
        if name not in machine.cube:
            return None
        groups, *free = shape_of(op.result)
        count, results = shape_of(op.lhs)[lhs.row], size(free)
        width = (size(shape_of(op.lhs)) + size(shape_of(op.rhs))) // (count * groups) if count * groups else 0

        def microseconds(all_rows: int, sums: int) -> float:
            """For products of so many rows, with so many numbers of f32 stored and loaded for the sums."""
            products = all_rows * results / machine.cube[name].macs / machine.cube_cores
            moved = 2 * all_rows * width * itemsize(element_of(op.lhs)) + 2 * sums * itemsize(f32)
            return machine.cycles_to_microseconds(max(products, moved / machine.hbm_bytes_per_cycle))

        able = [tile for tile in TILES if certain(tile, "<=", count)]
        if not able or most_of(count) is None or groups < 2 or not results:
            return None

        def tiled(tile: int) -> float:
            tiles = tiles_of(count, groups, tile, machine)
            return microseconds(tiles * tile, (tiles + 2 * groups) * results)

        return _least(able, tiled, microseconds(count * groups, 0), machine)

    def _added_up(
        self, build: TensorBuilder, op: ContractOp, lhs: MaskedRows, rhs: MaskedRows, rows: int
    ) -> SSAValue:
        """The products of tiles of so many rows, added up by group."""
        groups, *free = shape_of(op.result)
        places = TilePlaces(build, lhs, rows, self.machine)
        left, right = ((_own_rows(build, side, places), [1 + side.x_row]) for side in (lhs, rhs))
        product = _batched(build, op, left, right, tensor([places.tiles, *free], f32))
        each = build.reshape(product, [places.tiles, size(free)])
        zero = build.constant(0, [groups, size(free)], f32)
        kind = StringAttr("sum")
        total = build.add(ScatterOp, [zero, places.group(), each], zero.type, kind=kind)
        return build.convert(build.reshape(total, [groups, *free]), element_of(op.result))


def _own_rows(build: TensorBuilder, side: MaskedRows, places: TilePlaces) -> SSAValue:
    """The rows of each tile, and 0 in those that are another tile's."""
    window = windows(build, side, places)
    return or_zero(build, build.broadcast(places.own, shape_of(window), [0, 1 + side.x_row]), window)
