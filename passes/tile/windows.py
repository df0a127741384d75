"""Kernels for windows over a tensor: pooling and other reduce_window ops."""

from __future__ import annotations

from contextlib import ExitStack

from xdsl.ir import BlockArgument, SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, describe, ints, pack, text, to_ints
from ...dialects.dtypes import dtype_name, element_type, itemsize, size
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.graph import FusionOp, ReduceWindowOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import GmType, padded_bytes
from ...dialects.tile import TileType
from ...machine import Machine
from ..access import resolve
from ..errors import PassError
from ..pins import Pins, schedule_for
from .builder import KernelBuilder, dense, divide_grid, gm_of, hand_back, number
from .cores import copy_cycles, pieces_of, worth_waking
from .schedule import UB_FRACTION, cut_tile, largest_tile

UNROLLED_TAPS = 16
"""Windows of more positions than this are walked by loops instead of being written out."""


def lower_window(fusion: FusionOp, machine: Machine, name: str, pins: Pins = None) -> ops.KernelOp:
    """A reduce_window kernel: loads each tile's input with its border, then combines shifted boxes of it."""
    schedule_for(pins, name, frozenset())
    op = next(o for o in fusion.body.block.ops if isinstance(o, ReduceWindowOp))
    out, source, kind = shape_of(op.result), shape_of(op.x), text(op.kind)
    window, strides, dilation, low = (to_ints(p) for p in (op.window, op.strides, op.dilation, op.low))
    rank = len(out)
    load = resolve(
        op.x,
        [Expr.of(-1 - d) for d in range(rank)],
        {-1 - d: n for d, n in enumerate(source)},
        lambda v: isinstance(v, BlockArgument),
    )
    at = {i.terms[0][0]: s for i, s in zip(load.indices, load.strides, strict=True)}
    element = element_of(op.x)
    dtype = dtype_name(element)
    unit = machine.vector
    native = (
        element if dtype == "i1" or dtype in unit.native else element_type(unit.compute_as.get(dtype, dtype))
    )
    neutral = identity(kind, dtype)

    def halo(tile) -> list[int]:
        return [
            (t - 1) * s + (w - 1) * d + 1 for t, s, w, d in zip(tile, strides, window, dilation, strict=True)
        ]

    def fits(tile) -> bool:
        need = 2 * padded_bytes(halo(tile), element) + 2 * padded_bytes(tile, element)
        need += 4 * padded_bytes(tile, native)
        if native != element:
            need += padded_bytes(halo(tile), native)
        return need <= machine.spaces["ub"].bytes * UB_FRACTION

    largest = largest_tile(out, frozenset(), fits)
    if largest is None:
        raise PassError(f"{describe(op)}: a window of {list(window)} does not fit ub of {machine.name}")
    strided = [at.get(-1 - d, 0) for d in range(rank)]
    read, write = GmType.of(source, element, strided), dense(out, element)
    taps = size(out) * size(window) * itemsize(native) / unit.repeat_bytes
    copies = copy_cycles("load", read, halo(largest), machine) + copy_cycles("store", write, largest, machine)
    most = worth_waking(copies + taps, machine)
    pieces = pieces_of(copies + taps, machine)
    tile = cut_tile(largest, out, frozenset(), itemsize(element), most, pieces)
    split = divide_grid([-(-n // t) for n, t in zip(out, tile, strict=True)], most)
    on_grid = [d for d in range(rank) if split[d][0] > 1]
    b = KernelBuilder(
        machine,
        "vector",
        [split[d][0] for d in on_grid],
        [gm_of(a) for a in fusion.body.block.args],
        [dense(out, element)],
        slots={"ub": 2},
    )
    b.location = fusion.location
    assert isinstance(load.base, BlockArgument)
    view = b.view(b.gm(load.base.index), source, strided, load.offset)
    cls = ops.ELEMENTWISE[REDUCTION_FUNCTION[kind]]
    with b.section("fused" if machine.fused else "vector"), ExitStack() as stack:
        position = []
        for d in range(rank):
            cores, trips = split[d]
            p = Expr.of(b.coordinates[on_grid.index(d)]) * trips if cores > 1 else Expr()
            if trips > 1:
                p = p + stack.enter_context(b.loop(trips))
            position.append(p * tile[d])
        offsets = [p * s + -lo for p, s, lo in zip(position, strides, low, strict=True)]
        data = b.load(view, offsets, halo(tile), TileType.of(halo(tile), element, "ub"), fill=neutral)
        if native != element:
            data = b.add(ops.ELEMENTWISE["convert"], [data], [TileType.of(halo(tile), native, "ub")]).results[
                0
            ]
        part = TileType.of(tile, native, "ub")

        def tap(where: list[Expr]):
            indices, rows = pack(where)
            return b.add(
                ops.ExtractOp, [data, *indices], [part], offsets=rows, sizes=ints(tile), steps=ints(strides)
            ).results[0]

        if size(window) <= UNROLLED_TAPS:
            total = None
            for n in range(size(window)):
                where, rest = [], n
                for d in reversed(range(rank)):
                    where.insert(0, Expr(rest % window[d] * dilation[d]))
                    rest //= window[d]
                piece = tap(where)
                total = piece if total is None else b.add(cls, [total, piece], [part]).results[0]
            assert total is not None
        else:
            carried: list[SSAValue] = [b.add(ops.FillOp, [], [part], value=number(neutral)).results[0]]
            first = carried
            with ExitStack() as nest:
                where = []
                for d in range(rank):
                    outside, carried = carried, list(carried)
                    nest.callback(hand_back, outside, carried)
                    where.append(nest.enter_context(b.loop(window[d], carried)) * dilation[d])
                carried[0] = b.add(cls, [carried[0], tap(where)], [part]).results[0]
            total = first[0]
        if native != element:
            total = b.add(ops.ELEMENTWISE["convert"], [total], [TileType.of(tile, element, "ub")]).results[0]
        b.store(total, b.output(0), position, tile)
    return b.finish(name)
