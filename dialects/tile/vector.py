"""Ops of the vector unit, on tiles in ub."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, StringAttr
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from ...machine import Machine
from .. import npu
from ..base import INDEX, integer, text, to_ints
from ..dtypes import dtype_name, itemsize
from ..elementwise import REDUCTION_FUNCTION, Function
from ..factory import make_elementwise
from ..npu.interface import NpuOp
from ..npu.legality import refuse_instruction, refuse_rounding
from ..npu.types import ROW_BYTES
from ..shapes import (
    Keys,
    check_arg_reduce,
    check_bits,
    check_broadcast,
    check_counted,
    check_cumulate,
    check_extract,
    check_gather,
    check_iota,
    check_lanes,
    check_mask,
    check_reduce,
    check_rounding,
    check_scatter,
    check_sort,
    check_transpose,
    check_unpack,
)
from .interface import TileOp, tile_type
from .types import TileType

IN_PLACE = "in_place"
"""The attribute of an elementwise op whose result takes the place of its first operand."""


class VectorTileOp(TileOp):
    """An op of the vector unit: all its tiles lie in ub."""

    def verify_(self) -> None:
        super().verify_()
        self.check_space(*self.main_operands(), *self.results)

    @property
    def instruction(self) -> str:
        """The row of the machine's table that says what the op costs; "" where only its instruction can say."""
        return getattr(self.INSTRUCTION, "INSTRUCTION", "")

    def refused_by(self, machine: Machine) -> str | None:
        if not self.instruction:
            return None
        names = [dtype_name(tile_type(v).element) for v in (*self.main_operands(), *self.results)]
        return refuse_instruction(machine, self.instruction, max(names, key=itemsize))


class ElementwiseTileOp(VectorTileOp):
    """One scalar function over tiles in ub: each operand has the result's shape, or is a single element; one of two may
    be a row that is repeated, with extents of 1 but for the last."""

    FUNCTION: ClassVar[Function]

    @property
    def instruction(self) -> str:
        return self.FUNCTION.name

    @property
    def in_place(self) -> bool:
        """Whether the result takes the place of the first operand, which nothing reads later."""
        return IN_PLACE in self.attributes

    def verify_(self) -> None:
        super().verify_()
        check_lanes(self, tile_type(self.results[0]).shape, [tile_type(v).shape for v in self.operands])
        if self.in_place and self.operands[0].type != self.results[0].type:
            raise self.error(f"cannot write {self.results[0].type} over {self.operands[0].type}")
        check_bits(
            self, self.FUNCTION, tile_type(self.operands[0]).element, tile_type(self.results[0]).element
        )


ELEMENTWISE: dict[str, type[ElementwiseTileOp]] = make_elementwise(
    "tile", ElementwiseTileOp, __name__, TileType
)
for _name, _cls in ELEMENTWISE.items():
    _cls.INSTRUCTION = npu.ELEMENTWISE[_name]


@irdl_op_definition
class RoundToOp(VectorTileOp):
    """Converts, rounding by a rule: `even` to integers, within the range of their type, `odd` to a narrower float."""

    name = "tile.round_to"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VRoundToOp
    source = operand_def(TileType)
    mode = prop_def(StringAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        source, out = tile_type(self.source), tile_type(self.result)
        types = source.dtype(), out.dtype()
        check_rounding(self, text(self.mode), (source.shape, out.shape), types)

    def refused_by(self, machine: Machine) -> str | None:
        types = tile_type(self.source).dtype(), tile_type(self.result).dtype()
        return super().refused_by(machine) or refuse_rounding(machine, text(self.mode), *types)


@irdl_op_definition
class UnpackOp(VectorTileOp):
    """The numbers of pairs (i4x2) as f16, twice as many along the last dimension; of a pair the lower half first."""

    name = "tile.unpack"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VUnpackOp
    source = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        check_unpack(self, tile_type(self.source), tile_type(self.result))


@irdl_op_definition
class BroadcastOp(VectorTileOp):
    """Repeats size-1 dimensions to the result's shape."""

    name = "tile.broadcast"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VBroadcastOp
    source = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        check_broadcast(self, tile_type(self.source).shape, tile_type(self.result).shape)


@irdl_op_definition
class ReduceOp(VectorTileOp):
    """Combines along `dims`, which keep size 1: the first `counted` elements along each of them, or all."""

    name = "tile.reduce"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VReduceOp
    source = operand_def(TileType)
    kind = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase)
    counted = opt_prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @property
    def instruction(self) -> str:
        return REDUCTION_FUNCTION[text(self.kind)]

    def verify_(self) -> None:
        super().verify_()
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_reduce(self, text(self.kind), source, to_ints(self.dims), out, self.result.type)
        check_counted(self, source, to_ints(self.dims), self.counted)


@irdl_op_definition
class ArgReduceOp(VectorTileOp):
    """Extreme value along `dim`, of its first `counted` elements or of all, and its first index, both with size 1."""

    name = "tile.arg_reduce"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VArgReduceOp
    source = operand_def(TileType)
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    counted = opt_prop_def(DenseArrayBase)
    value = result_def(TileType)
    index = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        outs = [(tile_type(v).shape, v.type) for v in (self.value, self.index)]
        check_arg_reduce(self, text(self.kind), tile_type(self.source).shape, integer(self.dim), outs)
        check_counted(self, tile_type(self.source).shape, [integer(self.dim)], self.counted)


@irdl_op_definition
class TransposeOp(VectorTileOp):
    """Result dimension i is operand dimension `perm[i]`."""

    name = "tile.transpose"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VTransposeOp
    source = operand_def(TileType)
    perm = prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        types = self.source.type, self.result.type
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_transpose(self, source, to_ints(self.perm), out, types)


@irdl_op_definition
class IotaOp(VectorTileOp):
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
        super().verify_()
        starts = len(self.linear())
        check_iota(self, tile_type(self.result).shape, integer(self.dim), starts, self.result.type)


@irdl_op_definition
class FillOp(VectorTileOp):
    """A tile of one value."""

    name = "tile.fill"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VFillOp
    value = prop_def(FloatAttr | IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())


@irdl_op_definition
class MaskOp(VectorTileOp):
    """Replaces elements whose coordinate, counted from `at [...]`, is negative or reaches `bounds` by `value`."""

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
        super().verify_()
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_mask(self, source, out, len(self.linear()), to_ints(self.bounds))


@irdl_op_definition
class ExtractOp(VectorTileOp):
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
        super().verify_()
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        starts = len(self.linear())
        check_extract(self, source, to_ints(self.sizes), starts, out, self.result.type)


@irdl_op_definition
class GatherOp(VectorTileOp):
    """The element of `source` for each of `places`, which count its elements row by row."""

    name = "tile.gather"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VGatherOp
    source = operand_def(TileType)
    places = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        source, places, result = map(tile_type, (self.source, self.places, self.result))
        check_gather(self, source, places, result, ROW_BYTES)

    def refused_by(self, machine: Machine) -> str | None:
        return refuse_instruction(machine, self.instruction, dtype_name(tile_type(self.source).element))


@irdl_op_definition
class CumulateOp(VectorTileOp):
    """Each element combined with all before it along `dim`; with all behind it where `reverse` is 1."""

    name = "tile.cumulate"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VCumulateOp
    source = operand_def(TileType)
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    reverse = prop_def(IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    @property
    def instruction(self) -> str:
        return REDUCTION_FUNCTION[text(self.kind)]

    def verify_(self) -> None:
        super().verify_()
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        check_cumulate(self, text(self.kind), source, out, integer(self.dim))


@irdl_op_definition
class ScatterOp(VectorTileOp):
    """`target` with rows of `updates` put into those that `index` names, counted from `at [...]`, by `kind`."""

    name = "tile.scatter"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VScatterOp
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
        super().verify_()
        shapes = [tile_type(v).shape for v in (*self.main_operands(), self.result)]
        check_scatter(self, text(self.kind), shapes, len(self.linear()))


@irdl_op_definition
class SortOp(VectorTileOp):
    """Orders the rows of all operands by some of them (see `graph.sort`) and gives their first positions; the last
    result is the memory it works in."""

    name = "tile.sort"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.VSortOp
    xs = var_operand_def(TileType)
    keys = prop_def(DenseArrayBase)
    descending = prop_def(DenseArrayBase)
    total = prop_def(DenseArrayBase)
    outputs = var_result_def(TileType)
    traits = traits_def(Pure())

    @property
    def instruction(self) -> str:
        return ""  # one for each key

    def verify_(self) -> None:
        super().verify_()
        if not self.results:
            raise self.error("needs results, the last of which is a tile to work in")
        keys = Keys(to_ints(self.keys), to_ints(self.descending), to_ints(self.total))
        *outs, work = [tile_type(v).shape for v in self.results]
        check_sort(self, keys, [tile_type(v).shape for v in self.xs], outs, work)
