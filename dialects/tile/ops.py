"""Ops on tiles. Values, no buffers: each has the npu instruction it becomes in `instruction`."""

from __future__ import annotations

from typing import Any, ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, SymbolRefAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure, SymbolOpInterface

from .. import npu
from ..base import INDEX, FormattedOp, Linear, integer, text, to_ints
from ..dtypes import size
from ..elementwise import Function
from ..factory import make_elementwise
from ..npu.buffers import check_view
from ..npu.cumulate import VCumulateOp
from ..npu.interface import NpuOp
from ..npu.scatter import VScatterOp
from ..npu.sorting import VSortOp
from ..npu.structure import CORES
from ..npu.types import GmType
from ..shapes import (
    Keys,
    check_arg_reduce,
    check_bits,
    check_box,
    check_broadcast,
    check_cumulate,
    check_extract,
    check_iota,
    check_lanes,
    check_mask,
    check_matmul,
    check_reduce,
    check_scatter,
    check_sort,
    check_transpose,
)
from .types import TileType


def tile_type(value: SSAValue) -> TileType:
    """The tile type of a value. Raises TypeError for anything else."""
    if not isinstance(value.type, TileType):
        raise TypeError(f"expected !tile.tile, got {value.type}")
    return value.type


class TileOp(FormattedOp):
    """A pure op on tiles; `instruction` is the npu op that computes it."""

    INSTRUCTION: ClassVar[type[NpuOp] | None] = None

    def linear(self) -> Linear:
        attr = self.properties["offsets"]
        assert isinstance(attr, DenseArrayBase)
        return Linear.decode(attr, len(self.index_operands()))

    def check_space(self, *values: SSAValue, space: str = "ub") -> None:
        for v in values:
            if tile_type(v).space != space:
                raise self.error(f"works on {space}, not {v.type}")


class ElementwiseTileOp(TileOp):
    """One scalar function over tiles in ub: each operand has the result's shape, or is a single element."""

    FUNCTION: ClassVar[Function]

    def verify_(self) -> None:
        self.check_space(*self.operands, *self.results)
        check_lanes(self, tile_type(self.results[0]).shape, [tile_type(v).shape for v in self.operands])
        check_bits(
            self, self.FUNCTION, tile_type(self.operands[0]).element, tile_type(self.results[0]).element
        )


ELEMENTWISE: dict[str, type[ElementwiseTileOp]] = make_elementwise(
    "tile", ElementwiseTileOp, __name__, TileType
)
for _name, _cls in ELEMENTWISE.items():
    _cls.INSTRUCTION = npu.ELEMENTWISE[_name]


@irdl_op_definition
class KernelOp(FormattedOp):
    """One fusion: a grid over cores, then the device tensors read, written (`outputs`) and, between the sections
    of a mix kernel, used as `workspaces`. `slots` = buffers in flight in [l1, l0a, l0b, l0c, ub]."""

    name = "tile.kernel"
    SYMBOL: ClassVar[str | None] = "sym_name"
    sym_name = prop_def(StringAttr)
    kind = prop_def(StringAttr)
    grid = prop_def(DenseArrayBase)
    outputs = prop_def(IntegerAttr)
    workspaces = prop_def(IntegerAttr)
    slots = prop_def(DenseArrayBase)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface())

    def verify_(self) -> None:
        n = len(to_ints(self.grid))
        args = self.body.block.args
        if any(a.type != INDEX for a in args[:n]) or any(not isinstance(a.type, GmType) for a in args[n:]):
            raise self.error(f"@{text(self.sym_name)} needs {n} index arguments, then device tensors")
        if len(args) - n < integer(self.outputs) + integer(self.workspaces):
            raise self.error(f"@{text(self.sym_name)} has fewer arguments than outputs and workspaces")
        if any(g < 1 for g in to_ints(self.grid)):
            raise self.error(f"@{text(self.sym_name)} has an empty grid")
        if len(to_ints(self.slots)) != 5 or any(s < 1 for s in to_ints(self.slots)):
            raise self.error(f"@{text(self.sym_name)} needs five slot counts of at least 1")


@irdl_op_definition
class SectionOp(FormattedOp):
    """What one kind of core runs; its block argument numbers the core within the block (0 .. units-1)."""

    name = "tile.section"
    core = prop_def(StringAttr)
    units = prop_def(IntegerAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def verify_(self) -> None:
        if text(self.core) not in CORES:
            raise self.error(f"core {text(self.core)!r} is not one of {', '.join(CORES)}")
        if [a.type for a in self.body.block.args] != [INDEX]:
            raise self.error("has one index argument, the unit's number")


@irdl_op_definition
class LaunchOp(FormattedOp):
    """Runs a kernel on tensors. `inits[i]` is the operand that output i starts as, or -1: such an output is an
    update in place."""

    name = "tile.launch"
    SYMBOL: ClassVar[str | None] = "callee"
    callee = prop_def(SymbolRefAttr)
    inits = prop_def(DenseArrayBase)
    arguments = var_operand_def()
    outputs = var_result_def()
    traits = traits_def(Pure())

    def verify_(self) -> None:
        inits = to_ints(self.inits)
        if len(inits) != len(self.outputs):
            raise self.error(f"needs {len(self.outputs)} inits, has {len(inits)}")
        for i, r in zip(inits, self.outputs, strict=True):
            if i >= len(self.arguments) or (i >= 0 and self.arguments[i].type != r.type):
                raise self.error(f"output {r.type} cannot start as operand {i}")


@irdl_op_definition
class ViewOp(TileOp):
    """A strided view of a whole device tensor; moves nothing."""

    name = "tile.view"
    source = operand_def(GmType)
    result = result_def(GmType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        assert isinstance(self.source.type, GmType) and isinstance(self.result.type, GmType)
        check_view(self, self.source.type, self.result.type)


class BoxOp(TileOp):
    """Transfers the box of `sizes` at `at [...]`; `steps` between its elements default to 1."""

    ADDRESSED: ClassVar[bool] = True

    def check_box_of(self, view: GmType, tile: TileType) -> None:
        rank, sizes = len(view.shape), to_ints(self.properties["sizes"])  # pyright: ignore[reportArgumentType]
        if len(sizes) != rank or len(self.linear().rows) != rank:
            raise self.error(f"needs an offset and a size for each of {rank} dimensions")
        if size(sizes) != size(tile.shape):
            raise self.error(f"box {list(sizes)} does not fill {tile}")


@irdl_op_definition
class LoadOp(BoxOp):
    """Device memory -> l1 or ub. What lies outside the tensor becomes `fill` (0 where absent)."""

    name = "tile.load"
    source = operand_def(GmType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)
    fill = opt_prop_def(FloatAttr | IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        assert isinstance(self.source.type, GmType)
        self.check_box_of(self.source.type, tile_type(self.result))
        if tile_type(self.result).space not in ("l1", "ub"):
            raise self.error(f"fills l1 or ub, not {tile_type(self.result).space}")


@irdl_op_definition
class StoreOp(BoxOp):
    """ub or l0c -> device memory; elements outside the tensor are not written."""

    name = "tile.store"
    source = operand_def(TileType)
    dest = operand_def(GmType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)

    def verify_(self) -> None:
        assert isinstance(self.dest.type, GmType)
        self.check_box_of(self.dest.type, tile_type(self.source))
        if tile_type(self.source).space not in ("l0c", "ub"):
            raise self.error(f"drains l0c or ub, not {tile_type(self.source).space}")


@irdl_op_definition
class LoadIndirectOp(TileOp):
    """For each element offset in `index`, the box of `sizes` that starts there."""

    name = "tile.load_indirect"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.LoadIndirectOp
    source = operand_def(GmType)
    index = operand_def(TileType)
    sizes = prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        count = size(tile_type(self.index).shape) * size(to_ints(self.sizes))
        if count != size(tile_type(self.result).shape):
            raise self.error(f"gives {count} elements, not {self.result.type}")


@irdl_op_definition
class ScalarOp(TileOp):
    """One integer of a device tensor, clamped to [low, high], as an index."""

    name = "tile.scalar"
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(GmType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    low = prop_def(IntegerAttr)
    high = prop_def(IntegerAttr)
    result = result_def(INDEX)
    traits = traits_def(Pure())


@irdl_op_definition
class MoveOp(TileOp):
    """l1 -> l0a/l0b: a box as a matrix, optionally repeated over a `window` (image to column) or transposed."""

    name = "tile.move"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.LoadL0Op
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(TileType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)
    window = opt_prop_def(DenseArrayBase)
    window_steps = opt_prop_def(DenseArrayBase)
    transpose = opt_prop_def(IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        spaces = (tile_type(self.source).space, tile_type(self.result).space)
        if spaces not in (("l1", "l0a"), ("l1", "l0b")):
            raise self.error(f"moves l1 to l0a or l0b, not {spaces[0]} to {spaces[1]}")
        check_box(self, tile_type(self.source).shape, to_ints(self.sizes))
        moved = size(to_ints(self.sizes)) * size(to_ints(self.window))
        if moved != size(tile_type(self.result).shape):
            raise self.error(f"moves {moved} elements into {self.result.type}")


@irdl_op_definition
class DrainOp(TileOp):
    """l0c -> ub: the box of `sizes` at `at [...]` of an accumulator (fused cores only)."""

    name = "tile.drain"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.CopyL0cOp
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(TileType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        self.check_space(self.source, space="l0c")
        self.check_space(self.result)
        check_box(self, tile_type(self.source).shape, to_ints(self.sizes))


@irdl_op_definition
class ZeroOp(TileOp):
    """A fresh accumulator; the first `tile.mma` on it starts from zero, so it costs nothing."""

    name = "tile.zero"
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        self.check_space(self.result, space="l0c")


@irdl_op_definition
class MmaOp(TileOp):
    """acc + a x b, in the accumulator's type; where the step `at [...]` is 0, a x b alone."""

    name = "tile.mma"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.MmadOp
    ADDRESSED: ClassVar[bool] = True
    a = operand_def(TileType)
    b = operand_def(TileType)
    acc = operand_def(TileType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        spaces = tuple(tile_type(v).space for v in self.main_operands())
        if spaces != ("l0a", "l0b", "l0c") or self.result.type != self.acc.type:
            raise self.error(f"needs operands in l0a, l0b, l0c, got {', '.join(spaces)}")
        check_matmul(self, *(tile_type(v).shape for v in self.main_operands()))


@irdl_op_definition
class BroadcastOp(TileOp):
    """Repeats size-1 dimensions to the result's shape."""

    name = "tile.broadcast"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VBroadcastOp
    source = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        check_broadcast(self, tile_type(self.source).shape, tile_type(self.result).shape)


@irdl_op_definition
class ReduceOp(TileOp):
    """Combines along `dims`, which keep size 1."""

    name = "tile.reduce"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VReduceOp
    source = operand_def(TileType)
    kind = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_reduce(self, text(self.kind), source, to_ints(self.dims), out, self.result.type)


@irdl_op_definition
class ArgReduceOp(TileOp):
    """Extreme value along `dim` and its first index, both with size 1 there."""

    name = "tile.arg_reduce"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VArgReduceOp
    source = operand_def(TileType)
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    value = result_def(TileType)
    index = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        outs = [(tile_type(v).shape, v.type) for v in (self.value, self.index)]
        check_arg_reduce(self, text(self.kind), tile_type(self.source).shape, integer(self.dim), outs)


@irdl_op_definition
class TransposeOp(TileOp):
    """Result dimension i is operand dimension `perm[i]`."""

    name = "tile.transpose"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VTransposeOp
    source = operand_def(TileType)
    perm = prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        types = self.source.type, self.result.type
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_transpose(self, source, to_ints(self.perm), out, types)


@irdl_op_definition
class IotaOp(TileOp):
    """Each element is its coordinate along `dim` times `step`, plus `at [...]`."""

    name = "tile.iota"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VIotaOp
    ADDRESSED: ClassVar[bool] = True
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    dim = prop_def(IntegerAttr)
    step = prop_def(IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        check_iota(self, tile_type(self.result).shape, integer(self.dim), self.result.type)


@irdl_op_definition
class FillOp(TileOp):
    """A tile of one value."""

    name = "tile.fill"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VFillOp
    value = prop_def(FloatAttr | IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())


@irdl_op_definition
class MaskOp(TileOp):
    """Replaces elements whose coordinate, counted from `at [...]`, reaches `bounds` by `value`."""

    name = "tile.mask"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VMaskOp
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(TileType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    bounds = prop_def(DenseArrayBase)
    value = prop_def(FloatAttr | IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_mask(self, source, out, len(self.linear().rows), to_ints(self.bounds))


@irdl_op_definition
class ExtractOp(TileOp):
    """The box of `sizes` with `steps` at `at [...]` of a tile in ub."""

    name = "tile.extract"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VExtractOp
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(TileType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_extract(self, source, to_ints(self.sizes), out, self.result.type)


@irdl_op_definition
class CumulateOp(TileOp):
    """Each element combined with all before it along `dim`; with all behind it where `reverse` is 1."""

    name = "tile.cumulate"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = VCumulateOp
    source = operand_def(TileType)
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    reverse = prop_def(IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        self.check_space(self.source, self.result)
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_cumulate(self, text(self.kind), source, out, integer(self.dim))


@irdl_op_definition
class ScatterOp(TileOp):
    """`target` with rows of `updates` put into those that `index` names, counted from `at [...]`, by `kind`."""

    name = "tile.scatter"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = VScatterOp
    ADDRESSED: ClassVar[bool] = True
    target = operand_def(TileType)
    index = operand_def(TileType)
    updates = operand_def(TileType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    kind = prop_def(StringAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        self.check_space(*self.main_operands(), self.result)
        shapes = [tile_type(v).shape for v in (*self.main_operands(), self.result)]
        check_scatter(self, text(self.kind), shapes, len(self.linear().rows))


@irdl_op_definition
class SortOp(TileOp):
    """Orders the rows of all operands by some of them (see `graph.sort`) and gives their first positions; the last
    result is the memory it works in."""

    name = "tile.sort"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = VSortOp
    xs = var_operand_def(TileType)
    keys = prop_def(DenseArrayBase)
    descending = prop_def(DenseArrayBase)
    total = prop_def(DenseArrayBase)
    outputs = var_result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        self.check_space(*self.operands, *self.results)
        keys = Keys(to_ints(self.keys), to_ints(self.descending), to_ints(self.total))
        *outs, work = [tile_type(v).shape for v in self.results]
        check_sort(self, keys, [tile_type(v).shape for v in self.xs], outs, work)


@irdl_op_definition
class BarrierOp(TileOp):
    """Separates two phases of a section: what was stored before is complete, buffers may be reused."""

    name = "tile.barrier"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.BarrierOp


ALL: list[type[Any]] = [
    *ELEMENTWISE.values(),
    ArgReduceOp,
    BarrierOp,
    BroadcastOp,
    CumulateOp,
    DrainOp,
    ExtractOp,
    FillOp,
    IotaOp,
    KernelOp,
    LaunchOp,
    LoadIndirectOp,
    LoadOp,
    MaskOp,
    MmaOp,
    MoveOp,
    ReduceOp,
    ScalarOp,
    SectionOp,
    ScatterOp,
    SortOp,
    StoreOp,
    TransposeOp,
    ViewOp,
    ZeroOp,
]
