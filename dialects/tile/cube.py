"""The way through the cube: l1 to l0a and l0b, the product on an accumulator, and its way to ub."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, UnitAttr
from xdsl.ir import SSAValue
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
from ..base import INDEX, integer, to_ints
from ..dtypes import dtype_name, size
from ..effects import allocates
from ..npu.interface import NpuOp
from ..npu.legality import refuse_drain, refuse_parted, refuse_path, refuse_product
from ..npu.types import Pipe
from ..shapes import check_box, check_extract, check_handed_on, check_product, check_row_move, transposes
from .interface import TileOp, tile_type
from .types import TileType


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
        super().verify_()
        spaces = (tile_type(self.source).space, tile_type(self.result).space)
        if spaces not in (("l1", "l0a"), ("l1", "l0b")):
            raise self.error(f"moves l1 to l0a or l0b, not {spaces[0]} to {spaces[1]}")
        check_box(self, tile_type(self.source).shape, to_ints(self.sizes), len(self.linear()))
        moved = size(to_ints(self.sizes)) * size(to_ints(self.window))
        if moved != size(tile_type(self.result).shape):
            raise self.error(f"moves {moved} elements into {self.result.type}")

    def refused_by(self, machine: Machine) -> str | None:
        made = tile_type(self.result)
        left = made.space == "l0a"
        return refuse_path(machine, "l1", made.space, Pipe.MTE1) or refuse_parted(
            made.dtype(), made.shape[left], transposes(self) == left
        )


@irdl_op_definition
class MoveRowOp(TileOp):
    """l1 -> bt or fb: a box as a row of numbers for the columns of a product. In a loop, the next row is there before
    the last use of this one with `slots` of 2; those memories are too small for more than one otherwise."""

    name = "tile.move_row"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.LoadRowOp
    ADDRESSED: ClassVar[bool] = True
    source = operand_def(TileType)
    indices = var_operand_def(INDEX)
    offsets = prop_def(DenseArrayBase)
    sizes = prop_def(DenseArrayBase)
    slots = opt_prop_def(IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        if self.slots is not None and integer(self.slots) < 1:
            raise self.error(f"has {integer(self.slots)} slots; it needs at least one")
        source, row = tile_type(self.source), tile_type(self.result)
        check_row_move(self, source, row, to_ints(self.sizes), len(self.linear()))
        if source.element != row.element:
            raise self.error(f"moves {source} to {row}, and converts nothing")

    def refused_by(self, machine: Machine) -> str | None:
        return refuse_path(machine, "l1", tile_type(self.result).space, Pipe.MTE1)


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
        super().verify_()
        self.check_space(self.source, space="l0c")
        self.check_space(self.result)
        source, out = tile_type(self.source).shape, tile_type(self.result).shape
        starts = len(self.linear())
        check_extract(self, source, to_ints(self.sizes), starts, out, self.result.type)

    def refused_by(self, machine: Machine) -> str | None:
        total, drained = (
            dtype_name(tile_type(self.source).element),
            dtype_name(tile_type(self.result).element),
        )
        return refuse_path(machine, "l0c", "ub", Pipe.V) or refuse_drain(machine, total, drained)


@irdl_op_definition
class HandOnOp(TileOp):
    """l0c -> l1: an accumulator in the type of an operand of the next product; with `relu`, negative sums are 0."""

    name = "tile.hand_on"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.FixpipeL1Op
    source = operand_def(TileType)
    relu = opt_prop_def(UnitAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        check_handed_on(self, tile_type(self.source), tile_type(self.result))

    def refused_by(self, machine: Machine) -> str | None:
        total, dtype = tile_type(self.source).dtype(), tile_type(self.result).dtype()
        return refuse_path(machine, "l0c", "l1", Pipe.FIX) or refuse_drain(machine, total, dtype, relu=self.relu)


@irdl_op_definition
class ZeroOp(TileOp):
    """A fresh accumulator; the first `tile.mma` on it starts from zero, so it costs nothing."""

    name = "tile.zero"
    result = result_def(TileType)

    def effects(self) -> AbstractSet[EffectInstance]:
        return allocates(self.results)

    def verify_(self) -> None:
        self.check_space(self.result, space="l0c")


@irdl_op_definition
class MmaOp(TileOp):
    """acc + a x b, in the accumulator's type; where the step `at [...]` is 0, a x b alone, or added to each row of a
    `bias` in bt. With an `index` in l0b, b has the values that are kept of a 2:4 sparse matrix, and it has their
    positions (dialects/graph/sparsity.py). Both are further operands, in this order: index, bias."""

    name = "tile.mma"
    INSTRUCTION: ClassVar[type[NpuOp] | None] = npu.MmadOp
    ADDRESSED: ClassVar[bool] = True
    a = operand_def(TileType)
    b = operand_def(TileType)
    acc = operand_def(TileType)
    indices = var_operand_def()
    offsets = prop_def(DenseArrayBase)
    result = result_def(TileType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        super().verify_()
        given = [tile_type(v) for v in self.main_operands()]
        check_product(self, len(self.linear()), given[:3], given[3:])
        if self.result.type != self.acc.type:
            raise self.error(f"adds to {self.acc.type} and gives {self.result.type}")

    def refused_by(self, machine: Machine) -> str | None:
        a, b, acc = (dtype_name(tile_type(v).element) for v in (self.a, self.b, self.acc))
        return refuse_product(machine, a, b, acc, self.bias is not None, self.index is not None)

    @property
    def bias(self) -> SSAValue | None:
        """What each row of the accumulator starts from; None for zero."""
        return next((v for v in self.main_operands()[3:] if tile_type(v).space == "bt"), None)

    @property
    def index(self) -> SSAValue | None:
        """The positions of the values of b; None where b is dense."""
        return next((v for v in self.main_operands()[3:] if tile_type(v).space == "l0b"), None)
