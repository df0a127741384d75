"""Between device memory and tiles: views, boxes that are loaded and stored, and single numbers."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, IntegerAttr, UnitAttr
from xdsl.interfaces import HasFolderInterface
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import EffectInstance, Pure

from ...machine import Machine
from .. import npu
from ..base import INDEX, to_ints
from ..dtypes import dtype_name, size
from ..effects import effects_on
from ..npu.buffers import check_indirect, check_scalar, check_view
from ..npu.interface import NpuOp
from ..npu.legality import refuse_drain, refuse_path
from ..npu.types import GmType, Pipe
from ..open_index import OpenIndexOp
from ..shapes import check_list_lengths, check_scaled
from .interface import TileOp, tile_type
from .types import TileType


@irdl_op_definition
class ViewOp(TileOp, HasFolderInterface):
    """A strided view of a whole device tensor; moves nothing."""

    name = "tile.view"
    source = operand_def(GmType)
    result = result_def(GmType)
    traits = traits_def(Pure())

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        return [self.source] if self.source.type == self.result.type else None

    def verify_(self) -> None:
        assert isinstance(self.source.type, GmType) and isinstance(self.result.type, GmType)
        check_view(self, self.source.type, self.result.type)


@irdl_op_definition
class SizeOp(OpenIndexOp):
    """An index that is known only at run time, as how often a loop runs."""

    name = "tile.size"


class BoxOp(TileOp):
    """Transfers the box of `sizes` at `at [...]`; `steps` between its elements default to 1."""

    ADDRESSED: ClassVar[bool] = True

    def check_box_of(self, view: GmType, tile: TileType, sizes: Sequence[int]) -> None:
        rank = len(view.shape)
        if len(sizes) != rank or len(self.linear()) != rank:
            raise self.error(f"needs an offset and a size for each of {rank} dimensions")
        check_list_lengths(self, rank, "steps")
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

    def effects(self) -> AbstractSet[EffectInstance]:
        return super().effects() | effects_on([self.source], [])

    def verify_(self) -> None:
        super().verify_()
        assert isinstance(self.source.type, GmType)
        self.check_box_of(self.source.type, tile_type(self.result), to_ints(self.sizes))
        if tile_type(self.result).space not in ("l1", "ub"):
            raise self.error(f"fills l1 or ub, not {tile_type(self.result).space}")
        if self.source.type.element != tile_type(self.result).element:
            raise self.error(
                f"moves {self.source.type.element} into {self.result.type}, and converts nothing"
            )

    def pipes(self) -> Sequence[Pipe]:
        return (Pipe.MTE2,)

    def refused_by(self, machine: Machine) -> str | None:
        return refuse_path(machine, "gm", tile_type(self.result).space, Pipe.MTE2)


@irdl_op_definition
class StoreOp(BoxOp):
    """ub or l0c -> device memory; elements outside the tensor are not written.

    Of accumulators (l0c), negative ones become 0 on the way with `relu`. With `factor` they are multiplied by that
    then, in f32; integers are rounded to even, `zero` is added, and they saturate. With `scales` in fb, a third
    operand, each column is multiplied by a number of its own instead: the low 32 bits of its word, as an f32.
    """

    name = "tile.store"
    source = operand_def(TileType)
    dest = operand_def(GmType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    steps = opt_prop_def(DenseArrayBase)
    factor = opt_prop_def(FloatAttr)
    zero = opt_prop_def(IntegerAttr)
    relu = opt_prop_def(UnitAttr)

    def effects(self) -> AbstractSet[EffectInstance]:
        return effects_on([self.source], [self.dest])

    def verify_(self) -> None:
        super().verify_()
        assert isinstance(self.dest.type, GmType)
        self.check_box_of(self.dest.type, tile_type(self.source), to_ints(self.sizes))
        if tile_type(self.source).space not in ("l0c", "ub"):
            raise self.error(f"drains l0c or ub, not {tile_type(self.source).space}")
        if self.dest.type.element != tile_type(self.source).element and tile_type(self.source).space == "ub":
            raise self.error(f"moves {self.source.type} to {self.dest.type.element}, and converts nothing")
        if self.factor is not None and tile_type(self.source).space == "ub":
            raise self.error("scales what leaves ub: only accumulators are scaled on their way")
        if self.relu is not None and tile_type(self.source).space == "ub":
            raise self.error("has relu for what leaves ub: only accumulators become 0 on their way")
        scales = [tile_type(v) for v in self.main_operands()[2:]]
        if scales and tile_type(self.source).space == "ub":
            raise self.error("scales what leaves ub: only accumulators are scaled on their way")
        check_scaled(self, self.factor, self.zero, tile_type(self.source).shape, scales)

    @property
    def scales(self) -> SSAValue | None:
        """The words of the columns, where they are scaled by numbers of their own."""
        return next(iter(self.main_operands()[2:]), None)

    def pipes(self) -> Sequence[Pipe]:
        return (Pipe.FIX if tile_type(self.source).space == "l0c" else Pipe.MTE3,)

    def refused_by(self, machine: Machine) -> str | None:
        assert isinstance(self.dest.type, GmType)
        source = tile_type(self.source)
        refused = refuse_path(machine, source.space, "gm", self.pipes()[0])
        if refused is not None or source.space == "ub":
            return refused
        elements = dtype_name(source.element), dtype_name(self.dest.type.element)
        return refuse_drain(machine, *elements, self.factor, self.zero, self.relu, self.scales is not None)


@irdl_op_definition
class LoadIndirectOp(TileOp):
    """For each element offset in `index`, the box of `sizes` that starts there."""

    name = "tile.load_indirect"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.LoadIndirectOp
    source = operand_def(GmType)
    index = operand_def(TileType)
    sizes = prop_def(DenseArrayBase)
    result = result_def(TileType)

    def effects(self) -> AbstractSet[EffectInstance]:
        return super().effects() | effects_on([self.source], [])

    def verify_(self) -> None:
        super().verify_()
        assert isinstance(self.source.type, GmType)
        check_indirect(self, self.source.type, tile_type(self.index).element, to_ints(self.sizes))
        self.check_space(self.index, self.result)
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

    def effects(self) -> AbstractSet[EffectInstance]:
        return super().effects() | effects_on([self.source], [])

    def verify_(self) -> None:
        super().verify_()
        assert isinstance(self.source.type, GmType)
        check_scalar(self, self.source.type, len(self.linear()))
