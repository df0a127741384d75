"""Sorting at the graph level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def, traits_def, var_operand_def, var_result_def
from xdsl.traits import Pure

from ..base import integer, to_ints
from ..dtypes import dtype_name, is_float, numpy_dtype, tensor
from ..shapes import Keys
from .attributes import Literal
from .extents import BoundedDim
from .interface import Casting, GraphOp, Grouping, Place, element_of, shape_of


@irdl_op_definition
class SortOp(GraphOp):
    """Orders all operands, of one shape, along `dim` by some of them; equals keep their order.

    keys: operands to compare by, most important first; descending: for each key, 1 where large comes first; total:
    for each key, 1 where floats are in IEEE 754's total order, 0 where zeros are equal and NaNs are equal and largest.
    keep: how many of the first positions the results have, all where absent.
    """

    name = "graph.sort"
    CASTING: ClassVar[Casting] = "follow"
    GROUPING: ClassVar[Grouping] = "vector"
    xs = var_operand_def()
    dim = prop_def(IntegerAttr)
    keys = prop_def(DenseArrayBase)
    descending = prop_def(DenseArrayBase)
    total = prop_def(DenseArrayBase)
    keep = opt_prop_def(IntegerAttr)
    outputs = var_result_def()
    traits = traits_def(Pure())

    def order(self) -> Keys:
        return Keys(to_ints(self.keys), to_ints(self.descending), to_ints(self.total))

    def kept(self) -> int:
        """How many positions the results have along `dim`."""
        length = shape_of(self.xs[0])[integer(self.dim)]
        return length if self.keep is None else integer(self.keep)

    def infer(self) -> Sequence[Attribute]:
        if not self.xs:
            raise ValueError("needs an operand")
        shapes, dim = [list(shape_of(x)) for x in self.xs], integer(self.dim)
        if any(s != shapes[0] for s in shapes):
            raise ValueError(f"operand shapes differ: {shapes}")
        if not 0 <= dim < len(shapes[0]):
            raise ValueError(f"dim {dim} is outside the rank of {shapes[0]}")
        self.order().check(len(self.xs))
        if not 0 <= self.kept() <= shapes[0][dim]:
            raise ValueError(f"cannot keep {self.kept()} of {shapes[0][dim]}")
        shape = [self.kept() if d == dim else n for d, n in enumerate(shapes[0])]
        return [tensor(shape, element_of(x)) for x in self.xs]

    def along(self, i: int, d: int) -> BoundedDim:
        """What does not count has the keys that come last, and comes behind equals, since these keep their order."""
        order = self.order()
        if d != integer(self.dim) or i not in order.operands:
            return BoundedDim(d)
        k = order.operands.index(i)
        last = last_of(dtype_name(element_of(self.xs[i])), bool(order.descending[k]), bool(order.total[k]))
        return BoundedDim(d, padding=Literal.of(last))

    def meeting(self) -> Sequence[tuple[Place, Place]]:
        dim = integer(self.dim)
        return [((0, dim), (j, dim)) for j in range(1, len(self.xs))]


def last_of(dtype: str, descending: bool, total: bool) -> np.ndarray:
    """The element that nothing comes behind in an order of `graph.sort`, of rank 0."""
    kind = numpy_dtype(dtype)
    if dtype == "i1":
        return np.asarray(not descending)
    if not is_float(dtype):
        info = np.iinfo(kind)
        return np.asarray(info.min if descending else info.max, kind)
    if not total:
        return np.asarray(-np.inf if descending else np.nan).astype(kind)
    # the NaN of all ones, with the sign of the end that it is at
    bits = 8 * kind.itemsize
    ones = (1 << bits) - 1 if descending else (1 << bits - 1) - 1
    return np.asarray(ones, f"uint{bits}").view(kind)
