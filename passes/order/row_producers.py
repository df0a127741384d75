"""What a kernel that makes one row does for it, so that kernels that read the row can do that themselves.

`row_producer_of` says how a kernel makes a row, `readings_of` how one reads it, both of kernels without open sizes;
recomputed_rows.py puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.scf import ForOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from ...dialects import tile as ops
from ...dialects.affine import Expr
from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import size
from ...dialects.npu.types import GmType
from ...dialects.open_sizes import any_open
from ...dialects.tile import TileOp, TileType, tile_type
from ...dialects.tile.vector import IN_PLACE
from ..npu.loops import counts_of

ROWWISE = (ops.LoadOp, ops.FillOp, ops.ElementwiseTileOp, ops.BroadcastOp, ops.ReduceOp, ops.RoundToOp)
"""Ops that do the same at each place of a row, or combine all of them, wherever the row begins."""


@dataclass(frozen=True)
class RowProducer:
    """How a kernel makes a row of `extent` elements, along the last dimension of its tiles: `row` is the tile that it
    stores, `done` all that this is made of, in order. length: of what a core makes of it. whole: whether each element
    depends on all of them. coordinate: of the core in the grid; None where there is one core. places: the dimension of
    the tensor that a load walks for the row, for those that do."""

    row: SSAValue
    done: Sequence[TileOp]
    length: int
    extent: int
    whole: bool
    coordinate: SSAValue | None
    places: Mapping[ops.LoadOp, int]

    @property
    def rank(self) -> int:
        return len(tile_type(self.row).shape)

    @property
    def least_rank(self) -> int:
        """The rank of the tiles that it can be made of, at least: leading extents of 1 may be left out."""
        shapes = [tile_type(v).shape for op in self.done for v in op.results]
        ones = next((d for d in range(self.rank - 1) if any(s[d] != 1 for s in shapes)), self.rank - 1)
        return self.rank - ones

    def inputs(self) -> list[BlockArgument]:
        """The tensors that it is made of."""
        loads = [op for op in self.done if isinstance(op, ops.LoadOp)]
        return list(dict.fromkeys(tensor_of(op.source) for op in loads))


@dataclass(frozen=True)
class Readings:
    """How a kernel reads a row: each load, and its place behind where a core begins. begin: that place, over the
    coordinates of the grid; length: elements from there on; rank: of the tiles that are loaded."""

    places: Mapping[ops.LoadOp, Expr[SSAValue]]
    begin: Expr[SSAValue]
    length: int
    rank: int


def alone(kernel: ops.KernelOp) -> ops.SectionOp | None:
    """The section of a kernel that vector cores run, each by itself; None for another kernel."""
    sections = kernel.sections()
    if len(sections) != 1 or integer(kernel.workspaces):
        return None
    (section,) = sections
    assert isinstance(section, ops.SectionOp)
    if text(section.core) not in ("vector", "fused") or integer(section.units) != 1:
        return None
    return section


def has_open_sizes(kernel: ops.KernelOp) -> bool:
    """Whether a size or a place in a kernel is known only at run time."""
    numbers = [*to_ints(kernel.grid)]
    for value in kernel.body.block.args:
        if isinstance(kind := value.type, GmType):
            numbers += [*kind.shape, *kind.strides, kind.offset]
    for op in kernel.walk():
        if isinstance(op, ops.SizeOp):
            return True
        if isinstance(op, TileOp) and op.ADDRESSED:
            numbers += [n for at in op.linear() for n in (at.constant, *(c for _, c in at.terms))]
        for value in op.results:
            if isinstance(kind := value.type, TileType):
                numbers += kind.shape
            elif isinstance(kind, GmType):
                numbers += [*kind.shape, *kind.strides, kind.offset]
    return any_open(numbers)


# -- how a row is made ---------------------------------------------------------------------------------------------


def row_producer_of(kernel: ops.KernelOp, result: int) -> RowProducer | None:
    """How a kernel makes a result that is one row, or one number; None where it does not, or in a way that another one
    cannot repeat: in loops, from other rows, or as an update."""
    section, tensor = alone(kernel), kernel.body.block.args[first_output(kernel) + result]
    if section is None:
        return None
    stores = list(_transfers(tensor))
    if len(stores) != 1 or not isinstance(store := stores[0], ops.StoreOp) or store.parent is not section.body.block:
        return None
    row = store.source
    done, place = _made_of(row, section.body.block), _place(store, store.dest, _counts(kernel))
    if done is None or place is None:
        return None
    assert isinstance(tensor.type, GmType)
    extent, (*others, length), coordinate = size(tensor.type.shape), tile_type(row).shape, _coordinate(kernel)
    if size(others) != 1 or (length == 1 and extent != 1) or place != _times(coordinate, length):
        return None
    if length * prod(to_ints(kernel.grid)) != extent or not all(_fits(op, row) for op in done):
        return None
    whole = any(isinstance(op, ops.ReduceOp) and len(others) in to_ints(op.dims) for op in done)
    if whole and coordinate is not None:
        return None
    places: dict[ops.LoadOp, int] = {}
    for op in done:
        if isinstance(op, ops.LoadOp):
            along, tensor = _walked(op, length, coordinate, extent), _whole(op.source)
            if along is None or tensor is None or tensor.index >= first_output(kernel):
                return None
            if along >= 0:
                places[op] = along
    return RowProducer(row, done, length, extent, whole, coordinate, places)


def first_output(kernel: ops.KernelOp) -> int:
    """The number of the argument of a kernel that is its first output."""
    return len(kernel.body.block.args) - integer(kernel.outputs) - integer(kernel.workspaces)


def _coordinate(kernel: ops.KernelOp) -> SSAValue | None:
    """The coordinate of a core in a grid of one axis; None where there is one core. A grid with more axes makes no
    row: what it stores is at another place than this coordinate says."""
    cores = [i for i, n in enumerate(to_ints(kernel.grid)) if n != 1]
    return kernel.body.block.args[cores[0]] if cores else None


def _times(coordinate: SSAValue | None, length: int) -> Expr[SSAValue]:
    return Expr() if coordinate is None else Expr.of(coordinate, length)


def _made_of(row: SSAValue, block: Block) -> list[TileOp] | None:
    """All that a tile is made of, in order; None where that is not in one block, or more than the same for each place
    of a row."""
    found: set[Operation] = set()
    pending = [row]
    while pending:
        op = pending.pop().owner
        if not isinstance(op, ROWWISE) or op.parent is not block or IN_PLACE in op.attributes:
            return None
        if op not in found:
            found.add(op)
            pending += [v for v in op.main_operands() if isinstance(v.type, TileType)]
    return [op for op in block.ops if isinstance(op, TileOp) and op in found]


def _fits(op: TileOp, row: SSAValue) -> bool:
    """Whether the tiles of an op have the rank of the row, and its length or one element along it."""
    rank, length = len(tile_type(row).shape), tile_type(row).shape[-1]
    shapes = [tile_type(v).shape for v in (*op.main_operands(), *op.results) if isinstance(v.type, TileType)]
    counted = isinstance(op, ops.ReduceOp) and op.counted is not None
    return not counted and all(len(s) == rank and s[-1] in (1, length) for s in shapes)


def _walked(op: ops.LoadOp, length: int, coordinate: SSAValue | None, extent: int) -> int | None:
    """The dimension of its tensor that a load walks for the row, -1 where it loads what is the same for all of it; None
    where it is neither, or reads behind the end."""
    assert isinstance(op.source.type, GmType)
    sizes, shape = to_ints(op.sizes), tile_type(op.result).shape
    wide = [d for d, n in enumerate(shape) if n != 1]
    from_dims = [d for d, n in enumerate(sizes) if n != 1]
    if op.steps is not None or [sizes[d] for d in from_dims] != [shape[d] for d in wide]:
        return None
    along = from_dims[-1] if shape[-1] != 1 else -1
    for d, (at, n, whole) in enumerate(zip(op.linear(), sizes, op.source.type.shape, strict=True)):
        moved = at - _times(coordinate, length) if d == along else at
        if moved.variables or moved.constant < 0:
            return None
        if moved.constant + (extent if d == along else n) > whole:
            return None
    return along


# -- how a row is read ---------------------------------------------------------------------------------------------


def readings_of(kernel: ops.KernelOp, tensors: Sequence[SSAValue], extent: int) -> Readings | None:
    """How a kernel reads a row of so many elements, which all of these tensors are; None where it does more with it
    than to load runs of it, or reads behind its end."""
    section = alone(kernel)
    if section is None:
        return None
    counts, coordinates = _counts(kernel), kernel.body.block.args[: len(to_ints(kernel.grid))]
    places: dict[ops.LoadOp, Expr[SSAValue]] = {}
    for tensor in tensors:
        for op in _transfers(tensor):
            place = _place(op, op.source, counts) if isinstance(op, ops.LoadOp) else None
            if place is None or not isinstance(op, ops.LoadOp):
                return None
            places[op] = place
    starts = {place.only(coordinates) for place in places.values()}
    if len(starts) != 1:
        return None
    (start,) = starts
    inside = {op: place.without(coordinates) for op, place in places.items()}
    reached = [place.reach(counts) for place in inside.values()]
    first = min(low for low, _ in reached)
    last = max(high + size(to_ints(op.sizes)) for op, (_, high) in zip(inside, reached, strict=True))
    begin = start + first
    low, high = begin.reach(counts)
    if low < 0 or high + last - first > extent:
        return None
    ranks = {len(tile_type(op.result).shape) for op in places}
    if len(ranks) != 1:
        return None
    return Readings({op: place - first for op, place in inside.items()}, begin, last - first, ranks.pop())


def _transfers(tensor: SSAValue) -> Iterator[Operation]:
    """What uses a tensor, or a view of all of it."""
    for use in tensor.uses:
        op = use.operation
        if isinstance(op, ops.ViewOp) and isinstance(tensor, BlockArgument):
            yield from _transfers(op.result)
        else:
            yield op


def tensor_of(view: SSAValue) -> BlockArgument:
    """The tensor of a kernel that a view, which `_whole` has, shows."""
    tensor = _whole(view)
    assert tensor is not None
    return tensor


def _whole(view: SSAValue) -> BlockArgument | None:
    """The tensor of a kernel that a value is, or is a view of; None for a view of a view."""
    source = view.owner.source if isinstance(view.owner, ops.ViewOp) else view
    return source if isinstance(source, BlockArgument) else None


def _counts(kernel: ops.KernelOp) -> dict[SSAValue, int]:
    """How many values each coordinate of a core and each index of a loop takes in a kernel."""
    loops = (op for op in kernel.walk() if isinstance(op, ForOp))
    return {**dict(zip(kernel.body.block.args, to_ints(kernel.grid), strict=False)), **counts_of(loops)}


def _place(
    op: ops.LoadOp | ops.StoreOp, view: SSAValue, counts: Mapping[SSAValue, int]
) -> Expr[SSAValue] | None:
    """Where in its tensor the run begins that a transfer moves; None where it moves no run, or one that reaches over
    the end of the view, and where that shows the tensor in elements of another type. counts: those of the kernel."""
    assert isinstance(view.type, GmType)
    kind, sizes, tensor = view.type, to_ints(op.sizes), _whole(view)
    if tensor is None or not isinstance(tensor.type, GmType) or tensor.type.element != kind.element:
        return None
    tile = tile_type(op.result if isinstance(op, ops.LoadOp) else op.source)
    wide = [d for d, n in enumerate(sizes) if n != 1]
    if op.steps is not None or tile.space != "ub" or sum(n != 1 for n in tile.shape) > 1:
        return None
    if len(wide) > 1 or any(kind.strides[d] != 1 for d in wide):
        return None
    place: Expr[SSAValue] = Expr(kind.offset)
    for at, n, whole, stride in zip(op.linear(), sizes, kind.shape, kind.strides, strict=True):
        if any(v not in counts for v in at.variables):
            return None
        low, high = at.reach(counts)
        if low < 0 or high + n > whole:
            return None
        place = place + at * stride
    return place
