"""Scalar functions of each element, and the tensors that are made of nothing: constants and coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.dialects.builtin import i1 as I1
from xdsl.interfaces import HasFolderInterface
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def, result_def, traits_def
from xdsl.traits import ConstantLike, Pure

from ..base import integer
from ..dtypes import COMPLEX, PAIR, dtype_name, element_type, is_complex, part, same_width, size, tensor
from ..elementwise import PARTS, Function
from ..factory import make_elementwise
from .attributes import DataAttr
from .extents import BoundedDim
from .interface import Casting, GraphOp, Grouping, element_of, shape_of


class ElementwiseOp(GraphOp, HasFolderInterface):
    """One scalar function over each element; all operands have the result's shape."""

    GROUPING: ClassVar[Grouping] = "elementwise"
    READS_THROUGH_LAYOUT: ClassVar[bool] = True

    FUNCTION: ClassVar[Function]

    def fold(self) -> Sequence[SSAValue | Attribute] | None:
        same = self.FUNCTION.name == "convert" and self.operands[0].type == self.results[0].type
        return [self.operands[0]] if same else None

    def casting(self) -> Casting:
        given = [element_of(v) for v in self.operands]
        if self.FUNCTION.result == "any":
            if dtype_name(given[0]) in NARROWABLE and dtype_name(element_of(self.results[0])) in NARROWABLE:
                return "move"
            return "keep"
        if self.FUNCTION.result in ("bits", "part", "pair"):
            return "fixed"
        if self.FUNCTION.divisor is not None and _is_large(self.operands[self.FUNCTION.divisor]):
            return "follow"
        return "keep" if self.FUNCTION.keeps else "follow"

    def keeps(self) -> str:
        if self.FUNCTION.result == "any":
            return "it cuts off digits of its operand"
        return self.FUNCTION.keeps or "its types say what its bits mean"

    def infer(self) -> Sequence[Attribute]:
        shape = shape_of(self.operands[-1])
        for v in self.operands:
            if shape_of(v) != shape:
                raise ValueError(f"operand shapes differ: {[list(shape_of(o)) for o in self.operands]}")
        values = self.operands[1:] if self.FUNCTION.predicate else self.operands
        if self.FUNCTION.predicate and element_of(self.operands[0]) != I1:
            raise ValueError(f"operand 0 must be i1, got {element_of(self.operands[0])}")
        if len({element_of(v) for v in values}) != 1:
            raise ValueError(f"operand element types differ: {', '.join(str(element_of(v)) for v in values)}")
        kind = self.FUNCTION.result
        given = element_of(values[0])
        if PAIR in (given, element_of(self.results[0])) and kind != "bits":
            raise ValueError("computes with pairs of numbers, which only products do: graph.bitcast gives their bytes")
        if kind == "bits":
            same_width(given, element_of(self.results[0]))
        if kind == "part" and given != COMPLEX:
            raise ValueError(f"takes complex<f32>, got {given}")
        if kind == "pair" and given != part(COMPLEX):
            raise ValueError(f"takes f32, got {given}")
        known = {
            "same": part(given) if self.FUNCTION.real else given,
            "i1": I1,
            "part": part(given),
            "pair": COMPLEX,
        }
        return [tensor(shape, known.get(kind, element_of(self.results[0])))]

    def along(self, i: int, d: int) -> BoundedDim:
        return BoundedDim(d)

    def flops(self) -> int:
        pairs = any(is_complex(element_of(v)) for v in (*self.operands, *self.results))
        each = self.FUNCTION.complex_flops if pairs else self.FUNCTION.flops
        return each * size(shape_of(self.results[0]))


NARROWABLE = frozenset(["f32", "f16", "bf16", "i1"])
"""Types between which a conversion does no more than to round."""


def constant_behind(value: SSAValue) -> np.ndarray | None:
    """The constant whose elements a value has, possibly repeated, moved or left out; None where it is none."""
    while isinstance(owner := value.owner, GraphOp):
        if isinstance(owner, ConstantOp):
            data = owner.value.data
            return data.elements() if data.splat else data.array()
        if owner.casting() != "move" or len(owner.operands) != 1 or element_of(owner.operands[0]) != element_of(value):
            return None
        value = owner.operands[0]
    return None


def _is_large(divisor: SSAValue) -> bool:
    """Whether a divisor is a constant that no quotient is larger than its dividend for."""
    found = constant_behind(divisor)
    return found is not None and found.size > 0 and found.dtype.kind in "fV" and bool((np.abs(found) >= 1).all())


ELEMENTWISE: dict[str, type[ElementwiseOp]] = make_elementwise("graph", ElementwiseOp, __name__, TensorType)

PART_OPS: dict[str, type[ElementwiseOp]] = make_elementwise(
    "graph", ElementwiseOp, __name__, TensorType, PARTS
)
"""`graph.real`, `graph.imag`, `graph.complex`."""


@irdl_op_definition
class ConstantOp(GraphOp, HasFolderInterface):
    """A constant tensor."""

    name = "graph.constant"
    CASTING: ClassVar[Casting] = "fixed"
    KERNEL: ClassVar[bool] = False
    WHOLE: ClassVar[bool] = True
    value = prop_def(DataAttr)
    result = result_def()
    traits = traits_def(Pure(), ConstantLike())

    def fold(self) -> Sequence[SSAValue | Attribute]:
        return [self.value]

    def infer(self) -> Sequence[Attribute]:

        return [tensor(self.value.data.shape, element_type(self.value.data.dtype))]


@irdl_op_definition
class IotaOp(GraphOp):
    """Each element is its own coordinate along `dim`."""

    name = "graph.iota"
    KEEPS: ClassVar[str] = "it counts beyond the integers that narrow types hold"
    GROUPING: ClassVar[Grouping] = "generated"
    dim = prop_def(IntegerAttr)
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        if not 0 <= integer(self.dim) < len(shape_of(self.result)):
            raise ValueError(f"dim {integer(self.dim)} is outside the result's rank")
        return [self.result.type]
