"""Many elements to one: along dimensions, to the place of an extreme value, and in windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from ..base import integer, text, to_ints
from ..dtypes import size, tensor
from ..elementwise import COMBINED, LINEAR, REDUCTIONS
from .extents import BoundedDim
from .interface import Casting, GraphOp, Grouping, check_ranks, element_of, shape_of


def _reduced(shape: Sequence[int], dims: Sequence[int]) -> list[int]:
    if any(not 0 <= d < len(shape) for d in dims) or len(set(dims)) != len(dims):
        raise ValueError(f"dims {list(dims)} do not name distinct dimensions of {list(shape)}")
    return [s for d, s in enumerate(shape) if d not in dims]


def _along_reduced(dims: Sequence[int], d: int, kind: str) -> BoundedDim:
    """What becomes of a dimension of a reduction's operand."""
    if d in dims:
        return BoundedDim(None, padding=kind)
    return BoundedDim(d - sum(gone < d for gone in dims))


def along_windows(to: int, window: int, stride: int, dilation: int, border: int, kind: str) -> BoundedDim:
    """What becomes of a dimension that windows go along, with a border of so many elements at both ends together."""
    reach = (window - 1) * dilation + 1
    padding = kind if window > 1 or border else None
    return BoundedDim(to, offset=border - reach + stride, divisor=stride, padding=padding)


@irdl_op_definition
class ReduceOp(GraphOp):
    """Combines all elements along `dims` with `kind` (sum, prod, max, min, and, or), from its neutral element."""

    name = "graph.reduce"
    GROUPING: ClassVar[Grouping] = "reduction"
    READS_THROUGH_LAYOUT: ClassVar[bool] = True
    x = operand_def()
    kind = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def casting(self) -> Casting:
        return "keep" if text(self.kind) in COMBINED else "follow"

    def keeps(self) -> str:
        return COMBINED[text(self.kind)]

    def partwise(self) -> bool:
        return text(self.kind) in LINEAR

    def infer(self) -> Sequence[Attribute]:
        if text(self.kind) not in REDUCTIONS:
            raise ValueError(f"kind {text(self.kind)!r} is not one of {', '.join(REDUCTIONS)}")
        return [tensor(_reduced(shape_of(self.x), to_ints(self.dims)), element_of(self.x))]

    def along(self, i: int, d: int) -> BoundedDim:
        return _along_reduced(to_ints(self.dims), d, text(self.kind))

    def flops(self) -> int:
        return size(shape_of(self.x))


@irdl_op_definition
class ArgReduceOp(GraphOp):
    """The largest (`max`) or smallest (`min`) element along `dim` and its first index; NaN wins."""

    name = "graph.arg_reduce"
    CASTING: ClassVar[Casting] = "follow"
    GROUPING: ClassVar[Grouping] = "reduction"
    READS_THROUGH_LAYOUT: ClassVar[bool] = True
    x = operand_def()
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    value = result_def()
    index = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if text(self.kind) not in ("max", "min"):
            raise ValueError(f"kind {text(self.kind)!r} is not one of max, min")
        dim = integer(self.dim)
        shape = _reduced(shape_of(self.x), [dim])
        if shape_of(self.x)[dim] == 0:
            raise ValueError(
                f"dimension {dim} of {list(shape_of(self.x))} has no elements, so no largest or smallest"
            )
        return [tensor(shape, element_of(self.x)), tensor(shape, element_of(self.index))]

    def along(self, i: int, d: int) -> BoundedDim:
        return _along_reduced([integer(self.dim)], d, text(self.kind))

    def flops(self) -> int:
        return size(shape_of(self.x))


@irdl_op_definition
class ReduceWindowOp(GraphOp):
    """Reduces windows of x: window, strides and dilation per dimension; the border counts as neutral."""

    name = "graph.reduce_window"
    GROUPING: ClassVar[Grouping] = "vector"
    READS_THROUGH_LAYOUT: ClassVar[bool] = True
    x = operand_def()
    kind = prop_def(StringAttr)
    window = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    dilation = prop_def(DenseArrayBase)
    low = prop_def(DenseArrayBase)
    high = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def casting(self) -> Casting:
        return "keep" if text(self.kind) in COMBINED else "follow"

    def keeps(self) -> str:
        return COMBINED[text(self.kind)]

    def partwise(self) -> bool:
        return text(self.kind) in LINEAR

    def infer(self) -> Sequence[Attribute]:
        if text(self.kind) not in REDUCTIONS:
            raise ValueError(f"kind {text(self.kind)!r} is not one of {', '.join(REDUCTIONS)}")
        props = (self.window, self.strides, self.dilation, self.low, self.high)
        lists = [to_ints(p) for p in props]
        check_ranks("window, stride, dilation, low and high padding", len(shape_of(self.x)), *lists)
        if any(n < 1 for entries in lists[:3] for n in entries):
            raise ValueError("needs windows, strides and dilations of at least 1")
        spec = zip(shape_of(self.x), *lists, strict=True)
        return [
            tensor([window_count(d + lo + hi, w, s, dl) for d, w, s, dl, lo, hi in spec], element_of(self.x)),
        ]

    def along(self, i: int, d: int) -> BoundedDim:
        props = (self.window, self.strides, self.dilation, self.low, self.high)
        window, stride, dilation, low, high = (to_ints(p)[d] for p in props)
        return along_windows(d, window, stride, dilation, low + high, text(self.kind))

    def flops(self) -> int:
        return size(shape_of(self.result)) * size(to_ints(self.window))


def window_count(extent: int, window: int, stride: int, dilation: int) -> int:
    """How many windows of `window` elements, `dilation` apart, start every `stride` within `extent` elements."""
    reach = (window - 1) * dilation + 1
    return 0 if extent < reach else (extent - reach) // stride + 1
