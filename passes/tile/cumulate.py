"""Kernels for cumulative reductions. Rows that do not fit are walked in pieces, with a carried partial result."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, describe, integer, integer_attr, ints, pack, text
from ...dialects.dtypes import dtype_name, element_type, is_float, itemsize, size
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.graph import CumulateOp, FusionOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import padded_bytes, row_strides
from ...dialects.tile import TileType
from ...machine import Machine
from ..errors import PassError
from ..pins import Pins, schedule_for
from .builder import KernelBuilder, dense, divide_grid, gm_of, number
from .cores import copy_cycles, worth_waking
from .schedule import UB_FRACTION, choose_tile


def lower_cumulate(fusion: FusionOp, machine: Machine, name: str, pins: Pins = None) -> ops.KernelOp:
    """A kernel over (what is outside of the dimension, the dimension, what is inside); f16 and bf16 are summed in
    f32."""
    schedule_for(pins, name, frozenset())
    op = next(o for o in fusion.body.block.ops if isinstance(o, CumulateOp))
    shape, along, kind, element = shape_of(op.x), integer(op.dim), text(op.kind), element_of(op.x)
    domain = [size(shape[:along]), shape[along], size(shape[along + 1 :])]
    flat, backwards = domain[2] == 1, bool(integer(op.reverse))
    function, dtype = REDUCTION_FUNCTION[kind], dtype_name(element)
    work = element if dtype == "i1" else element_type(machine.vector.computes(function, dtype))
    if is_float(element) and kind in ("sum", "prod"):
        work = f32

    def box(tile: Sequence[int]) -> list[int]:
        return [tile[0], tile[1]] if flat else [tile[1], tile[2]]

    def fits(tile: Sequence[int]) -> bool:
        if not flat and tile[0] > 1:
            return False
        need = 4 * padded_bytes(box(tile), element) + 4 * padded_bytes(box(tile), work)
        return need <= machine.spaces["ub"].bytes * UB_FRACTION

    whole = dense(domain, element)
    added = size(domain) * itemsize(work) / machine.vector.repeat_bytes * domain[1].bit_length()
    copies = sum(copy_cycles(kind, whole, domain, machine) for kind in ("load", "store"))
    most = worth_waking(copies + added, machine)
    tile = choose_tile(domain, frozenset({1}), fits, itemsize(element), most)
    if tile is None:
        length, wide = domain[1], min(domain[2], 256 // itemsize(element))
        while length > 1 and not fits((1, length, wide)):
            length = -(-length // 2)
        tile = (1, length, wide)
    if not fits(tile):
        raise PassError(f"{describe(op)}: one element does not fit ub of {machine.name}")
    counts = [-(-n // t) for n, t in zip(domain, tile, strict=True)]
    pieces = counts[1]
    split = divide_grid([counts[0], counts[2]], most)
    cores = {0: split[0], 2: split[1]}
    on_grid = [d for d in cores if cores[d][0] > 1]
    b = KernelBuilder(
        machine,
        "vector",
        [cores[d][0] for d in on_grid],
        [gm_of(a) for a in fusion.body.block.args],
        [gm_of(op.result)],
        slots={"ub": 2},
    )
    b.location = fusion.location
    cls, neutral = ops.ELEMENTWISE[function], identity(kind, dtype)
    whole, dim = TileType.of(box(tile), work, "ub"), 1 if flat else 0
    edge = [1 if d == dim else n for d, n in enumerate(box(tile))]
    carry = TileType.of(edge, work, "ub")
    with b.section("fused" if machine.fused else "vector"), ExitStack() as stack:
        position = [Expr(), Expr(), Expr()]
        for d, (many, trips) in cores.items():
            at = Expr.of(b.coordinates[on_grid.index(d)]) * trips if many > 1 else Expr()
            if trips > 1:
                at = at + stack.enter_context(b.loop(trips))
            position[d] = at * tile[d]
        state: list[SSAValue] = []
        if pieces > 1:
            state = [b.add(ops.FillOp, [], [carry], value=number(neutral)).results[0]]
        with b.loop(pieces, state) as i:
            position[1] = (i * -1 + (pieces - 1) if backwards else i) * tile[1]
            source, dest = (b.view(t, domain, row_strides(domain)) for t in (b.gm(0), b.output(0)))
            loaded = TileType.of(box(tile), element, "ub")
            x = b.load(source, position, tile, loaded, fill=neutral)
            x = _converted(b, x, whole)
            made = b.add(
                ops.CumulateOp,
                [x],
                [whole],
                kind=op.kind,
                dim=integer_attr(dim),
                reverse=op.reverse,
            ).results[0]
            if state:
                before = b.add(ops.BroadcastOp, state, [whole]).results[0]
                made = b.add(cls, [before, made], [whole]).results[0]
                last = [0 if d != dim or backwards else n - 1 for d, n in enumerate(box(tile))]
                indices, offsets = pack([Expr(n) for n in last])
                state[0] = b.add(
                    ops.ExtractOp,
                    [made, *indices],
                    [carry],
                    offsets=offsets,
                    sizes=ints(edge),
                    steps=ints([1, 1]),
                ).results[0]
            b.store(_converted(b, made, loaded), dest, position, tile)
    return b.finish(name)


def _converted(b: KernelBuilder, x: SSAValue, wanted: TileType) -> SSAValue:
    return x if x.type == wanted else b.add(ops.ELEMENTWISE["convert"], [x], [wanted]).results[0]
