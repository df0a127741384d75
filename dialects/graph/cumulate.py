"""Cumulative reductions at the graph level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from ..base import integer, text
from ..dtypes import size
from ..elementwise import COMBINED, LINEAR, REDUCTIONS
from .extents import BoundedDim
from .interface import Casting, GraphOp, Grouping, shape_of


@irdl_op_definition
class CumulateOp(GraphOp):
    """Each element combined with all before it along `dim` by `kind` (see `graph.reduce`); with all behind it where
    `reverse` is 1."""

    name = "graph.cumulate"
    GROUPING: ClassVar[Grouping] = "vector"
    x = operand_def()
    kind = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    reverse = prop_def(IntegerAttr)
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
        if not 0 <= integer(self.dim) < len(shape_of(self.x)):
            raise ValueError(f"dim {integer(self.dim)} is outside the rank of {list(shape_of(self.x))}")
        return [self.x.type]

    def along(self, i: int, d: int) -> BoundedDim:
        backwards = d == integer(self.dim) and integer(self.reverse)
        return BoundedDim(d, padding=text(self.kind) if backwards else None)

    def flops(self) -> int:
        return size(shape_of(self.x))
