"""Numbers of which two of four neighbours are kept, the other ones being zero.

dense      a 0 0 b | 0 c 0 d        along `dim`, groups of 4
values     a b c d                  the two that are kept of each group
positions  0 3 1 3                  of each of them in its group, 2 bits: 4 in a byte, the first one lowest
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import IntegerAttr, i8
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from ..base import integer
from ..dtypes import tensor
from ..sparsity import INDEXED, KEPT_OF
from .interface import Casting, GraphOp, Grouping, element_of, shape_of


@irdl_op_definition
class ExpandOp(GraphOp):
    """The numbers that 2:4 sparse ones stand for: `values` i8 [..., n / 2, ...] at the positions of `index` i8
    [..., n / 8, ...], zero elsewhere.

    Of two values at one position, the first one counts. A cube with `[cube.sparse]` reads them as they are, as the
    right side of a product over `dim`; elsewhere graph-simplify writes the op out.
    """

    name = "graph.expand"
    GROUPING: ClassVar[Grouping] = "generated"
    READS_THROUGH_LAYOUT: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "fixed"
    KEEPS: ClassVar[str] = "it is of integers"
    values = operand_def()
    index = operand_def()
    dim = prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        values, index, dim = list(shape_of(self.values)), list(shape_of(self.index)), integer(self.dim)
        if element_of(self.values) != i8 or element_of(self.index) != i8:
            raise ValueError(
                f"expands i8 by an i8 index, not {element_of(self.values)} by {element_of(self.index)}"
            )
        if not 0 <= dim < len(values):
            raise ValueError(f"has no dimension {dim} of {values}")
        dense = [n * KEPT_OF if d == dim else n for d, n in enumerate(values)]
        if dense[dim] % INDEXED or index != [n // INDEXED if d == dim else n for d, n in enumerate(dense)]:
            raise ValueError(
                f"needs an index byte for each {INDEXED // KEPT_OF} values along dimension {dim}: {index} does not "
                f"fit {values}"
            )
        return [tensor(dense, i8)]
