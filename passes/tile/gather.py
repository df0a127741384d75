"""Kernels for gather: start indices become element offsets on the vector core, slices come by indirect loads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, describe, integer, integer_attr, ints, pack, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import FusionOp, GatherOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.interface import gm_traffic
from ...dialects.npu.types import GmType, padded_bytes, row_strides
from ...dialects.tile import TileType
from ...machine import Machine
from ..errors import PassError
from ..pins import Pins, schedule_for
from .builder import KernelBuilder, dense, divide_grid, number
from .cores import copy_cycles, worth_waking
from .schedule import UB_FRACTION, cut_tile, largest_tile, merge_axes

LARGEST_OFFSET = 2**31 - 1


def lower_gather(fusion: FusionOp, machine: Machine, name: str, pins: Pins = None) -> ops.KernelOp:
    """One kernel over (positions, slice): a tile is some positions by some of each slice."""
    schedule_for(pins, name, frozenset())
    op = next(o for o in fusion.body.block.ops if isinstance(o, GatherOp))
    table, out = shape_of(op.x), shape_of(op.result)
    if size(table) > LARGEST_OFFSET:
        raise PassError(f"{describe(op)}: a table of {size(table)} elements is beyond 32-bit offsets")
    element, index_element = element_of(op.x), element_of(op.indices)
    sizes, kept = to_ints(op.slice_sizes), op.slice_dims()
    offset_dims = to_ints(op.offset_dims)
    out_strides, table_strides = row_strides(out), row_strides(table)
    index_shape, index_dim = shape_of(op.indices), integer(op.index_dim)
    index_strides = row_strides(index_shape)
    along = index_strides[index_dim] if index_dim < len(index_shape) else 0
    batch_dims = [d for d in range(len(index_shape)) if d != index_dim]
    groups, batch, batch_strides, batch_out = _positions(
        op.batch_shape(),
        [index_strides[d] for d in batch_dims],
        [out_strides[d] for d in range(len(out)) if d not in offset_dims],
        {batch_dims.index(d) for d in to_ints(op.indices_batch)},
    )
    slice_out = [out_strides[d] for d in offset_dims]
    domain = [*batch, *(sizes[d] for d in kept)]
    n_batch = len(batch)
    strides = [*batch_out, *slice_out]
    inner = n_batch - 1

    def fits(tile) -> bool:
        positions = tile[inner]
        need = 2 * padded_bytes([size(tile)], element) + padded_bytes([*tile], element) * 2
        return need + 8 * padded_bytes([positions], i32) <= machine.spaces["ub"].bytes * UB_FRACTION

    move = machine.moves["gm", "ub"]
    slices = [sizes[d] for d in kept] or [1]
    taken = GmType.of([table[d] for d in kept] or [1], element, [table_strides[d] for d in kept] or [1])
    rank = len(slices)
    moved = gm_traffic(taken, [0] * rank, slices, [1] * rank, machine, itemsize(element))
    each = move.cycles(moved.bytes, moved.runs)
    largest = largest_tile(domain, frozenset(), fits)
    if largest is None:
        raise PassError(f"{describe(op)}: one element does not fit ub of {machine.name}")
    written = copy_cycles("store", GmType.of(domain, element, strides), largest, machine)
    most = worth_waking(size(batch) * each + written, machine)
    # in the time that a slice takes, a copy would bring this much for each of its elements
    alike = max(itemsize(element), int(each * move.bytes_per_cycle / size(slices)))
    tile = cut_tile(largest, domain, frozenset(), alike, most)
    tile = tuple(1 if d < inner else t for d, t in enumerate(tile))
    tile = _whole_slices(domain, tile, n_batch)
    split = divide_grid([-(-n // t) for n, t in zip(domain, tile, strict=True)], most)
    on_grid = [d for d in range(len(domain)) if split[d][0] > 1]
    args = fusion.body.block.args
    b = KernelBuilder(
        machine,
        "vector",
        [split[d][0] for d in on_grid],
        [dense(shape_of(a), element_of(a)) for a in args],
        [dense(out, element)],
        slots={"ub": 2},
    )
    b.location = fusion.location
    place: dict[SSAValue, int] = {a: i for i, a in enumerate(args)}
    x, indices = (b.gm(place[v]) for v in (op.x, op.indices))
    with b.section("fused" if machine.fused else "vector"), ExitStack() as stack:
        position: list[Expr] = []
        for d in range(len(domain)):
            cores, trips = split[d]
            p = Expr.of(b.coordinates[on_grid.index(d)]) * trips if cores > 1 else Expr()
            if trips > 1:
                p = p + stack.enter_context(b.loop(trips))
            position.append(p * tile[d])
        row = TileType.of([tile[inner]], i32, "ub")
        total: SSAValue | None = None

        def vector(function: str, *operands: SSAValue) -> SSAValue:
            return b.add(ops.ELEMENTWISE[function], operands, [row]).results[0]

        def scalar(value: int) -> SSAValue:
            return b.add(ops.FillOp, [], [TileType.of([1], i32, "ub")], value=number(value)).results[0]

        def plus(part: SSAValue) -> SSAValue:
            return part if total is None else vector("add", total, part)

        for j, d in enumerate(to_ints(op.start_map)):
            view = b.view(indices, batch, batch_strides, along * j)
            starts = b.load(
                view,
                position[:n_batch],
                tile[:n_batch],
                TileType.of([tile[inner]], index_element, "ub"),
            )
            if index_element != i32:
                starts = b.add(ops.ELEMENTWISE["convert"], [starts], [row]).results[0]
            starts = vector("max", starts, scalar(0))
            starts = vector("min", starts, scalar(table[d] - sizes[d]))
            total = plus(vector("mul", starts, scalar(table_strides[d])))
        fixed = Expr()
        for d, i in zip(to_ints(op.x_batch), to_ints(op.indices_batch), strict=True):
            if index_shape[i] == 1:
                continue
            axis = groups.index([batch_dims.index(i)])
            if axis == inner:
                part = _iota(b, row, position[axis] * table_strides[d], table_strides[d])
                total = plus(part)
            else:
                fixed = fixed + position[axis] * table_strides[d]
        for k, d in enumerate(kept):
            fixed = fixed + position[n_batch + k] * table_strides[d]
        if fixed.terms or fixed.constant or total is None:
            shift = _iota(b, row if total is None else TileType.of([1], i32, "ub"), fixed, 0)
            total = plus(shift)
        view = b.view(
            x,
            [table[d] for d in kept] or [1],
            [table_strides[d] for d in kept] or [1],
        )
        box = [tile[n_batch + k] for k in range(len(kept))] or [1]
        data = b.add(
            ops.LoadIndirectOp,
            [view, total],
            [TileType.of([tile[inner], *box], element, "ub")],
            sizes=ints(box),
        ).results[0]
        dest = b.view(b.output(0), domain, strides)
        b.store(data, dest, position, tile)
    return b.finish(name)


def _positions(
    shape: Sequence[int], index_strides: Sequence[int], out_strides: Sequence[int], fixed: set[int]
) -> tuple[list[list[int]], list[int], list[int], list[int]]:
    """The positions in few axes: (axes of `shape` that each stands for, extents, strides among the indices, strides in
    the result). `fixed` ones stay alone, those of one position are left out."""
    strides = [dict(enumerate(index_strides)), dict(enumerate(out_strides))]
    groups = merge_axes(shape, strides, [], fixed)
    if not groups:
        return [[]], [1], [1], [1]
    last = [group[-1] for group in groups]
    extents = [size([shape[a] for a in group]) for group in groups]
    return groups, extents, [index_strides[a] for a in last], [out_strides[a] for a in last]


def _whole_slices(domain, tile, n_batch: int) -> tuple[int, ...]:
    """Slice dimensions are cut into exact parts: an indirect load has no edge to mask."""
    return tuple(
        t if d < n_batch else next(x for x in range(min(t, n), 0, -1) if n % x == 0)
        for d, (n, t) in enumerate(zip(domain, tile, strict=True))
    )


def _iota(b: KernelBuilder, row: TileType, start: Expr, step: int) -> SSAValue:
    indices, rows = pack([start])
    return b.add(
        ops.IotaOp, indices, [row], offsets=rows, dim=integer_attr(0), step=integer_attr(step)
    ).results[0]
