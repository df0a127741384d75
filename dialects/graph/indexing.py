"""Reads and writes at places that are known when the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr
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
from xdsl.traits import Pure

from ..base import integer, to_ints
from ..dtypes import tensor
from .extents import BoundedDim
from .interface import Casting, GraphOp, Grouping, Place, check_blocks_stay, element_of, shape_of


@irdl_op_definition
class GatherOp(GraphOp):
    """StableHLO's gather: slices of `slice_sizes` of x at clamped starts read from `indices`."""

    name = "graph.gather"
    GROUPING: ClassVar[Grouping] = "index"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    indices = operand_def()
    offset_dims = prop_def(DenseArrayBase)
    collapsed_dims = prop_def(DenseArrayBase)
    x_batch = prop_def(DenseArrayBase)
    indices_batch = prop_def(DenseArrayBase)
    start_map = prop_def(DenseArrayBase)
    index_dim = prop_def(IntegerAttr)
    slice_sizes = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def batch_shape(self) -> list[int]:
        """Shape of the positions in `indices`, its index dimension left out."""
        return [s for d, s in enumerate(shape_of(self.indices)) if d != integer(self.index_dim)]

    def slice_dims(self) -> list[int]:
        """Dimensions of x that survive in the result, in order."""
        gone = {*to_ints(self.collapsed_dims), *to_ints(self.x_batch)}
        return [d for d in range(len(shape_of(self.x))) if d not in gone]

    def infer(self) -> Sequence[Attribute]:
        src, sizes, offset = shape_of(self.x), to_ints(self.slice_sizes), to_ints(self.offset_dims)
        if len(sizes) != len(src) or any(not 0 <= z <= d for z, d in zip(sizes, src, strict=True)):
            raise ValueError(f"slice_sizes {list(sizes)} do not fit the operand {list(src)}")
        index = integer(self.index_dim)
        starts = shape_of(self.indices)
        if not 0 <= index <= len(starts):
            raise ValueError(f"index_dim {index} is outside the rank of {list(starts)}")
        vector = starts[index] if index < len(starts) else 1
        moved = to_ints(self.start_map)
        if len(moved) != vector or any(not 0 <= d < len(src) for d in moved):
            raise ValueError(f"start_map {list(moved)} must name {vector} dimensions of {list(src)}")
        rank, kept = len(self.batch_shape()) + len(offset), len(self.slice_dims())
        if len(offset) != kept or any(not 0 <= d < rank for d in offset):
            raise ValueError(
                f"offset_dims {list(offset)} must name a result dimension for each of {kept} slice dims"
            )
        check_blocks_stay(self.x)
        batch, inner = iter(self.batch_shape()), iter([sizes[d] for d in self.slice_dims()])
        return [
            tensor([next(inner) if d in offset else next(batch) for d in range(rank)], element_of(self.x))
        ]

    def along(self, i: int, d: int) -> BoundedDim | None:
        if i == 1:
            return None if d == integer(self.index_dim) else BoundedDim(self._becomes(d))
        batch = to_ints(self.x_batch)
        if d in batch:
            return BoundedDim(self._becomes(to_ints(self.indices_batch)[batch.index(d)]))
        kept = self.slice_dims()
        whole = d in kept and to_ints(self.slice_sizes)[d] == shape_of(self.x)[d]
        return BoundedDim(to_ints(self.offset_dims)[kept.index(d)]) if whole else None

    def meeting(self) -> Sequence[tuple[Place, Place]]:
        pairs = zip(to_ints(self.x_batch), to_ints(self.indices_batch), strict=True)
        return [((0, a), (1, b)) for a, b in pairs]

    def _becomes(self, d: int) -> int:
        """The dimension of the result that a dimension of the positions in `indices` becomes."""
        offset, index = to_ints(self.offset_dims), integer(self.index_dim)
        batch = [r for r in range(len(shape_of(self.result))) if r not in offset]
        return batch[d - (index < d)]


@irdl_op_definition
class DynamicSliceOp(GraphOp):
    """The box of `sizes` of x that starts at the (clamped) scalar operands."""

    name = "graph.dynamic_slice"
    GROUPING: ClassVar[Grouping] = "index"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    starts = var_operand_def()
    sizes = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def steering(self) -> Sequence[SSAValue]:
        return self.starts

    def infer(self) -> Sequence[Attribute]:
        src, sizes = shape_of(self.x), to_ints(self.sizes)
        if not len(src) == len(sizes) == len(self.starts) or any(
            not 0 <= z <= d for z, d in zip(sizes, src, strict=True)
        ):
            raise ValueError(f"sizes {list(sizes)} with {len(self.starts)} starts do not fit {list(src)}")
        check_blocks_stay(self.x)
        return [tensor(sizes, element_of(self.x))]

    def along(self, i: int, d: int) -> BoundedDim | None:
        return BoundedDim(d) if to_ints(self.sizes)[d] == shape_of(self.x)[d] else None


@irdl_op_definition
class DynamicUpdateSliceOp(GraphOp):
    """x with the box at the (clamped) scalar operands replaced by `update`."""

    name = "graph.dynamic_update_slice"
    GROUPING: ClassVar[Grouping] = "index"
    PARTWISE: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "move"
    x = operand_def()
    update = operand_def()
    starts = var_operand_def()
    strides = opt_prop_def(DenseArrayBase)
    """Steps between the written elements (an interior pad writes every other one); 1 where absent."""
    result = result_def()
    traits = traits_def(Pure())

    def steering(self) -> Sequence[SSAValue]:
        return self.starts

    def infer(self) -> Sequence[Attribute]:
        src, update = shape_of(self.x), shape_of(self.update)
        if not len(src) == len(update) == len(self.starts) or any(
            z > d for z, d in zip(update, src, strict=True)
        ):
            raise ValueError(f"update {list(update)} with {len(self.starts)} starts does not fit {list(src)}")
        if element_of(self.update) != element_of(self.x):
            raise ValueError(f"writes {element_of(self.update)} into {self.x.type}")
        check_blocks_stay(self.x)
        return [self.x.type]

    def along(self, i: int, d: int) -> BoundedDim | None:
        return BoundedDim(d) if shape_of(self.update)[d] == shape_of(self.x)[d] else None
