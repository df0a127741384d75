"""Scatter at the graph level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from ..base import integer, text
from ..dtypes import dtype_name, size
from ..elementwise import COMBINED, LINEAR, SCATTERS
from .extents import BoundedDim
from .interface import Casting, GraphOp, Grouping, Place, element_of, shape_of


@irdl_op_definition
class ScatterOp(GraphOp):
    """x [r, c] with row i of `updates` [n, c] put into row index[i] by `kind`, one after the other: `set` replaces,
    the others combine as a reduction of that kind does. A row whose index is outside of [0, r) is left out.

    With `groups`, rows and updates are divided into so many equal runs, and the program promises that no update is
    put into a row of another run than its own: a batch of scatters."""

    name = "graph.scatter"
    GROUPING: ClassVar[Grouping] = "index"
    x = operand_def()
    index = operand_def()
    updates = operand_def()
    kind = prop_def(StringAttr)
    groups = opt_prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure())

    def casting(self) -> Casting:
        return "keep" if text(self.kind) in COMBINED else "follow"

    def keeps(self) -> str:
        return COMBINED[text(self.kind)]

    def partwise(self) -> bool:
        return text(self.kind) in LINEAR

    def infer(self) -> Sequence[Attribute]:
        x, index, updates = (shape_of(v) for v in self.operands)
        if text(self.kind) not in SCATTERS:
            raise ValueError(f"kind {text(self.kind)!r} is not one of {', '.join(SCATTERS)}")
        if len(x) != 2 or len(index) != 1 or tuple(updates) != (*index, x[1]):
            raise ValueError(f"cannot put rows of {list(updates)} at {list(index)} into {list(x)}")
        if dtype_name(element_of(self.index)) != "i32" or element_of(self.updates) != element_of(self.x):
            raise ValueError(f"cannot put {self.updates.type} at {self.index.type} into {self.x.type}")
        if self.runs() < 1 or x[0] % self.runs() or index[0] % self.runs():
            raise ValueError(f"{x[0]} rows and {index[0]} updates are not {self.runs()} equal groups")
        return [self.x.type]

    def along(self, i: int, d: int) -> BoundedDim | None:
        if i == 0 or d == 1:
            return BoundedDim(d) if d == 1 or self.runs() == 1 else None
        if self.runs() > 1:
            return None
        return BoundedDim(None, padding=-1 if i == 1 else None)

    def meeting(self) -> Sequence[tuple[Place, Place]]:
        return [((1, 0), (2, 0))]

    def runs(self) -> int:
        """Into how many equal groups rows and updates are divided."""
        return 1 if self.groups is None else integer(self.groups)

    def flops(self) -> int:
        return 0 if text(self.kind) == "set" else size(shape_of(self.updates))
