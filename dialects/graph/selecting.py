"""Select-and-scatter, the gradient of pooling, at the graph level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from ..base import text, to_ints
from ..dtypes import size, tensor
from ..elementwise import COMBINED
from .extents import BoundedDim
from .interface import Casting, GraphOp, Grouping, check_ranks, element_of, shape_of
from .reductions import window_count

SELECTS = ("ge", "gt", "le", "lt")
"""The comparisons by which the element that a window has selected so far keeps its place against the next one."""

COMBINES = ("sum", "prod", "max", "min")
"""How what several windows give one element is combined."""


@irdl_op_definition
class SelectAndScatterOp(GraphOp):
    """Each window of x, `window` elements every `strides`, selects one element in row order: the one so far stays
    while `select` holds of it and the next. The window's element of `source` goes to where that element is; what
    meets there is combined by `kind`. Elements that no window selects become the neutral element of `kind`; the
    border of `low` and `high` positions is never selected."""

    name = "graph.select_and_scatter"
    GROUPING: ClassVar[Grouping] = "vector"
    READS_THROUGH_LAYOUT: ClassVar[bool] = True
    x = operand_def()
    source = operand_def()
    select = prop_def(StringAttr)
    kind = prop_def(StringAttr)
    window = prop_def(DenseArrayBase)
    strides = prop_def(DenseArrayBase)
    low = prop_def(DenseArrayBase)
    high = prop_def(DenseArrayBase)
    result = result_def()
    traits = traits_def(Pure())

    def casting(self) -> Casting:
        return "keep" if text(self.kind) in COMBINED else "follow"

    def keeps(self) -> str:
        return COMBINED[text(self.kind)]

    def infer(self) -> Sequence[Attribute]:
        for what, given, known in (("select", self.select, SELECTS), ("kind", self.kind, COMBINES)):
            if text(given) not in known:
                raise ValueError(f"{what} {text(given)!r} is not one of {', '.join(known)}")
        lists = [to_ints(p) for p in (self.window, self.strides, self.low, self.high)]
        check_ranks("window, stride, low and high padding", len(shape_of(self.x)), *lists)
        if any(n < 1 for entries in lists[:2] for n in entries):
            raise ValueError("needs windows and strides of at least 1")
        spec = zip(shape_of(self.x), *lists, strict=True)
        windows = tensor([window_count(n + lo + hi, w, s, 1) for n, w, s, lo, hi in spec], element_of(self.x))
        if self.source.type != windows:
            raise ValueError(f"has windows {windows}, but a source {self.source.type}")
        return [self.x.type]

    def along(self, i: int, d: int) -> BoundedDim | None:
        props = (self.window, self.strides, self.low, self.high)
        return BoundedDim(d) if [to_ints(p)[d] for p in props] == [1, 1, 0, 0] else None

    def flops(self) -> int:
        return 2 * size(shape_of(self.source)) * size(to_ints(self.window))
