"""The numbers of pairs, as floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import f16
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from ..dtypes import PAIR, numbers_in, tensor
from .interface import Casting, GraphOp, Grouping, element_of, shape_of


@irdl_op_definition
class UnpackOp(GraphOp):
    """The numbers of 4 bits in pairs (i4x2) [..., n], as f16 [..., 2 n]: those of a pair side by side, the lower half's
    first.

    It begins a kernel, which ops over its result join; only a vector unit with an `unpack` instruction runs it.
    """

    name = "graph.unpack"
    GROUPING: ClassVar[Grouping] = "opening"
    CASTING: ClassVar[Casting] = "fixed"
    KEEPS: ClassVar[str] = "its numbers are whole"
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        shape = shape_of(self.x)
        if element_of(self.x) != PAIR or not shape:
            raise ValueError(f"unpacks tensors of pairs of numbers (i4x2), not {self.x.type}")
        return [tensor([*shape[:-1], shape[-1] * numbers_in(PAIR)], f16)]
