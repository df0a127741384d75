"""Cuts the sums of the last tiles of a product, so that all cores have as much to do: "stream-k".

The tiles of a result seldom go into the cores without a rest: of 40 tiles on 24 cores, 16 cores have two and 8 have
one. Here the last rows (or columns) of the result are a product of their own, whose sums are cut into parts as those of
a product of few results are (split.py), and all others keep whole sums. The two products need nothing of each other, so
no barrier parts them; the kernel that adds up the parts stores its rows behind those of the other one, into the same
tensor (graph.place).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialects.base import integer, integer_attr, to_ints
from ...dialects.dtypes import itemsize, size, tensor
from ...dialects.graph import ContractOp, CubeSchedule, FusionOp, GraphOp, IotaOp, PlaceOp, YieldOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.graph.schedules import LastTiles
from ...dialects.open_sizes import any_open
from ...machine import Machine
from ..forms.access import splat_of
from ..forms.nests import Product, nest_of
from ..forms.tensor_builder import BlockBuilder
from ..fusion.fuse import fuse_block
from ..lower.cube.split import product_of, sizes_of, split_extents, split_fusion, split_product, without_axes
from ..lower.scheduled import cannot_obey
from ..strips.strip_groups import way_from_result
from ..strips.strips import resized

TILES = ((128, 256), (256, 128))
"""Rows and columns of tiles of which it is counted how many go into the cores."""

CLEARLY_IDLE = 0.08
"""Sums are cut where cores have nothing to do, and HBM neither, for more than this part of the time."""

EVEN = 0.95
"""Tiles are even over the cores where these have so much of what they have room for."""

FEWEST_SUMMED = 256
"""Sums have at least so many places in each part: with fewer the cube takes less time than a tile takes to store."""


class CannotCut(Exception):
    """What a fusion computes cannot be cut so; the reason, as the rest of a sentence."""


def cut_fusion(fusion: FusionOp, name: str, parts: int, last: LastTiles | None, machine: Machine) -> Block:
    """A block that computes the same in fusions of its own: all sums cut into so many parts, or those of the `last`
    tiles alone. name: the kernel, for errors. Raises PassError where they cannot be."""
    if last is None:
        return split_fusion(fusion, parts, machine)
    try:
        return stream_fusion(fusion, last, parts, machine)
    except CannotCut as why:
        what = f"stream_{last.side}={last.length}"
        raise cannot_obey(name, f"{what}: its last tiles cannot be cut, as {why}") from None


def stream_fusion(fusion: FusionOp, last: LastTiles, parts: int, machine: Machine) -> Block:
    """A block that computes the same in fusions of its own: the sums of the last tiles cut into so many parts, those of
    the others whole. Its arguments are the fusion's inputs, and its yield has the fusion's results. Raises
    CannotCut."""
    product = product_of(fusion)
    dim = None if product is None else cut_dim(product, last.side)
    if product is None or dim is None:
        raise CannotCut("it is no product of matrices")
    extent = shape_of(product.result)[dim]
    if any_open(shape_of(product.result)):
        raise CannotCut("its sizes are open")
    if not 0 < last.length < extent:
        raise CannotCut(f"there are {extent} of them")
    dims = _dims_of_results(fusion, product, dim)
    block, first = Block(arg_types=[v.type for v in fusion.inputs]), extent - last.length
    given: dict[SSAValue, SSAValue] = dict(zip(fusion.body.block.args, block.args, strict=True))
    made: list[SSAValue] = []
    for start, length, cut in ((0, first, 1), (first, last.length, parts)):
        piece = _Piece(block, given, start, length, product, dim, cut)
        made += [piece.value(v, d) for v, d in zip(fusion.yielded(0).values, dims, strict=True)]
    block.add_op(YieldOp.create(operands=made, location=fusion.location))
    fuse_block(block, machine)
    _place(block, dims, extent, first)
    return block


def cut_dim(product: Product, side: str) -> int | None:
    """The dimension of a product's result along which its last rows ("m") or columns ("n") are cut off: the longest of
    that side. None where there is none: convolutions share what lies at the border of two parts."""
    if not isinstance(product, ContractOp) or not split_extents(product):
        return None
    rows, columns = map(len, product.free_dims())
    first = len(to_ints(product.lhs_batch)) + (0 if side == "m" else rows)
    dims = range(first, first + (rows if side == "m" else columns))
    return max(dims, key=lambda d: shape_of(product.result)[d], default=None)


def _dims_of_results(fusion: FusionOp, product: Product, dim: int) -> list[int]:
    """The dimension of each result of a fusion that a dimension of its product becomes. Raises CannotCut."""
    found: dict[SSAValue, int] = {product.result: dim}
    for op in fusion.body.block.ops:
        if isinstance(op, GraphOp) and op is not product and not isinstance(op, YieldOp):
            for i, value in enumerate(op.operands):
                goes_to = op.along(i, found[value]) if value in found else None
                if goes_to is not None and goes_to.dim is not None:
                    found[op.results[0]] = goes_to.dim
    results = fusion.yielded(0).values
    if any(v not in found for v in results):
        raise CannotCut("not all of its results have that dimension")
    return [found[v] for v in results]


class _Piece:
    """Writes what a fusion computes for `length` places from `start` on of a dimension of its product's result, the
    sums cut into so many parts. given: what the arguments of its block are here."""

    def __init__(
        self,
        block: Block,
        given: Mapping[SSAValue, SSAValue],
        start: int,
        length: int,
        product: Product,
        dim: int,
        parts: int,
    ):
        self.build, self.given = BlockBuilder(block), given
        self.start, self.length = start, length
        self.product, self.dim, self.parts = product, dim, parts
        self.made: dict[tuple[SSAValue, int | None], SSAValue] = {}

    def value(self, value: SSAValue, d: int | None) -> SSAValue:
        """Those places of dimension d of a value of the fusion; all of it where d is None. Raises CannotCut."""
        if (value, d) not in self.made:
            self.made[value, d] = self._write(value, d)
        return self.made[value, d]

    def _write(self, value: SSAValue, d: int | None) -> SSAValue:
        if isinstance(value, BlockArgument):
            whole = self.given[value]
            return whole if d is None else self.build.part(whole, d, self.start, self.length)
        op, shape, element = value.owner, list(shape_of(value)), element_of(value)
        assert isinstance(op, Operation)
        self.build.location = op.location
        if d is None:
            return self._added(without_axes(op, [self.value(v, None) for v in op.operands]))
        shape[d] = self.length
        number = splat_of(value)
        if number is not None:
            return self.build.constant(number, shape, element)
        if isinstance(op, IotaOp):
            places = self.build.add(IotaOp, [], tensor(shape, element), dim=op.dim)
            if integer(op.dim) != d or not self.start:
                return places
            return self.build.elementwise("add", places, self.build.constant(self.start, shape, element))
        way = way_from_result(op, d)
        if way is None or (op is self.product and d != self.dim):
            raise CannotCut(f"{op.name} gives no part of its result alone")
        operands = [self.value(v, e) for v, e in zip(op.operands, way.operands, strict=True)]
        self.build.location = op.location
        made = without_axes(op, operands, [tensor(shape, element)], resized(op, way, self.length))
        if isinstance(made, ContractOp) and op is self.product and self.parts > 1:
            summed = split_product(self.build, made, made.lhs, made.rhs, self.parts)
            made.erase()
            return summed
        return self._added(made)

    def _added(self, op: Operation) -> SSAValue:
        self.build.block.add_op(op)
        return op.results[0]


def _place(block: Block, dims: Sequence[int], extent: int, first: int) -> None:
    """Has both parts of each result of a block be one tensor, `extent` long, which is what the block yields then. The
    fusions that give the last places store these, from `first` on, into what the others left. Raises CannotCut."""
    last = block.last_op
    assert isinstance(last, YieldOp)
    many, values, found = len(dims), list(last.operands), list[SSAValue]()
    for front, back, dim in zip(values[:many], values[many:], dims, strict=True):
        front_maker, back_maker = front.owner, back.owner
        if (
            not isinstance(front_maker, FusionOp)
            or not isinstance(back_maker, FusionOp)
            or not (front.has_one_use() and back.has_one_use())
        ):
            raise CannotCut("what makes its results is no kernel alone")
        base = placed(front, dim, 0, extent, None)
        back_maker.detach()
        block.insert_op_before(back_maker, last)
        found.append(placed(back, dim, first, extent, base))
    last.operands = found


def placed(value: SSAValue, dim: int, start: int, extent: int, base: SSAValue | None) -> SSAValue:
    """Has a fusion give a result as a part of a longer tensor, whose other places are those of `base`."""
    fusion = value.owner
    assert isinstance(fusion, FusionOp) and isinstance(value, OpResult)
    last, inside = fusion.yielded(0), list[SSAValue]()
    if base is not None:
        fusion.operands = [*fusion.operands, base]
        inside = [fusion.body.block.insert_arg(base.type, len(fusion.body.block.args))]
    x = last.values[value.index]
    shape = [extent if d == dim else n for d, n in enumerate(shape_of(x))]
    op = PlaceOp.create(
        operands=[x, *inside],
        result_types=[tensor(shape, element_of(x))],
        properties={"dim": integer_attr(dim), "start": integer_attr(start), "extent": integer_attr(extent)},
        location=fusion.location,
    )
    Rewriter.insert_op(op, InsertPoint.before(last))
    last.operands[value.index] = op.result
    whole = Rewriter.replace_value_with_new_type(value, op.result.type)
    whole.name_hint = None  # it is another value, which verify does not compare with the part
    return whole


def cuts_worth_trying(
    product: Product, schedule: CubeSchedule, microseconds: float, machine: Machine
) -> list[CubeSchedule]:
    """Cuts of the sums of a product whose best schedule with whole sums takes so long, as far as they could pay: cores
    are idle with that, for longer than the barrier before the parts are added up takes. Sums of all tiles are cut, or
    those of the last ones alone, into as many parts as leave no core idle."""
    shape, cores = shape_of(product.result), machine.cube_cores
    if not split_extents(product) or any_open(shape):
        return []
    bytes_ = sum(size(shape_of(v)) * itemsize(element_of(v)) for v in (product.lhs, product.rhs, product.result))
    over_hbm = machine.cycles_to_microseconds(bytes_ / machine.hbm_bytes_per_cycle)
    even = max(microseconds / idleness(product, schedule, cores), over_hbm)
    if microseconds - even <= max(CLEARLY_IDLE * microseconds, machine.barrier_microseconds(cores)):
        return []
    batch, rows, columns, _ = sizes_of(product)
    summed, found = max(split_extents(product)), dict[CubeSchedule, None]()
    for tile in TILES:
        tiles = batch * -(-rows // tile[0]) * -(-columns // tile[1])
        found |= {CubeSchedule(split_k=n): None for n in _parts(tiles, summed, cores)[:2]}
        for side, step in zip("mn", tile, strict=True):
            dim = cut_dim(product, side)
            if dim is None:
                continue
            along = -(-shape[dim] // step)
            across = tiles // along
            for whole in range(along - 1, 0, -1):
                parts = _parts((along - whole) * across, summed, cores)
                if whole * across >= cores and _even(whole * across, cores) and parts:
                    last = LastTiles(side, shape[dim] - whole * step)
                    found[last.cut_in(parts[0])] = None
                    break
    return list(found)


def _parts(tiles: int, summed: int, cores: int) -> list[int]:
    """The numbers of parts of sums over `summed` places with which so many tiles leave no core idle; those that are all
    of one length, if there are such."""
    found = [n for n in range(2, summed // FEWEST_SUMMED + 1) if _even(tiles * n, cores)]
    return [n for n in found if summed % n == 0] or found


def _even(tiles: int, cores: int) -> bool:
    return tiles >= EVEN * cores * -(-tiles // cores)


def idleness(product: Product, schedule: CubeSchedule, cores: int) -> float:
    """How many times its share of a product's results the busiest of so many cores has with a schedule."""
    assert schedule.axes is not None and schedule.step is not None and schedule.grid is not None
    nest = nest_of(product)
    busiest, share = 1, 1
    for axes, step, grid in zip(schedule.axes, schedule.step, schedule.grid, strict=True):
        if all(nest.roles[a] != "k" for a in axes):
            extent = size([nest.extents[a] for a in axes])
            tiles = -(-extent // step)
            busiest *= min(-(-tiles // grid) * step, extent)
            share *= extent
    return cores * busiest / max(share, 1)
