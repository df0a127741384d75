"""Values of an ONNX graph, and their types.

A value may be smaller than the tensor of the graph level that it stands for: what is repeated along a dimension is one
element there, since ONNX's elementwise ops repeat it themselves. `Writer.full` makes a whole one where an op needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partialmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from ...dialects.dtypes import StoredAs, dtype_name, shape_in
from .errors import Unsayable

if TYPE_CHECKING:
    from .writer import OnnxWriter

TYPES: dict[str, str] = {
    "f64": "DOUBLE",
    "f32": "FLOAT",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f8E4M3FN": "FLOAT8E4M3FN",
    "f8E4M3FNUZ": "FLOAT8E4M3FNUZ",
    "f8E5M2": "FLOAT8E5M2",
    "f8E5M2FNUZ": "FLOAT8E5M2FNUZ",
    "f8E8M0FNU": "FLOAT8E8M0",
    "f4E2M1FN": "FLOAT4E2M1",
    **{f"i{bits}": f"INT{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"UINT{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    "i1": "BOOL",
}
"""What ONNX calls our element types. It has no 8-bit floats but these, and computes with no complex numbers."""

WIDER: dict[str, tuple[str, ...]] = {
    "i1": ("ui8", "i32"),
    **dict.fromkeys(("i2", "i4"), ("i8", "i32", "f32")),
    **dict.fromkeys(("ui2", "ui4"), ("ui8", "i32", "f32")),
    "i8": ("i32", "f32"),
    "ui8": ("i32", "ui32", "f32"),
    "i16": ("i32", "f32"),
    "ui16": ("i32", "ui32", "f32"),
    "i32": ("i64", "f64"),
    "ui32": ("i64", "f64"),
    "ui64": ("i64",),
    **dict.fromkeys(("bf16", "f16", *(name for name in TYPES if name[:2] in ("f8", "f4"))), ("f32",)),
}
"""In which types an op is computed instead that ONNX does not have for a type: the result, cast back, is the same, as
integers wrap around."""


@dataclass(frozen=True)
class Value:
    """A tensor of the ONNX graph. Arithmetic on values, and with numbers, makes nodes."""

    writer: OnnxWriter = field(repr=False, compare=False)
    name: str
    shape: tuple[int, ...]
    dtype: str

    def with_(self, op_type: str, other: Value | float, dtype: str | None = None, swapped: bool = False) -> Value:
        """An op of this value and another one, or a number."""
        right = other if isinstance(other, Value) else self.writer.number(other, self.dtype)
        pair = (right, self) if swapped else (self, right)
        return self.writer.node(op_type, pair, np.broadcast_shapes(*(v.shape for v in pair)), dtype)

    __add__ = partialmethod(with_, "Add")
    __sub__ = partialmethod(with_, "Sub")
    __rsub__ = partialmethod(with_, "Sub", swapped=True)
    __mul__ = partialmethod(with_, "Mul")
    __truediv__ = partialmethod(with_, "Div")
    __lt__ = partialmethod(with_, "Less", dtype="i1")
    __ge__ = partialmethod(with_, "GreaterOrEqual", dtype="i1")
    equals = partialmethod(with_, "Equal", dtype="i1")

    def __and__(self, other: Value | float) -> Value:
        return self.with_("And" if self.dtype == "i1" else "BitwiseAnd", other)

    def __or__(self, other: Value | float) -> Value:
        return self.with_("Or" if self.dtype == "i1" else "BitwiseOr", other)

    def __invert__(self) -> Value:
        return self.apply("Not" if self.dtype == "i1" else "BitwiseNot")

    def apply(self, op_type: str, dtype: str | None = None, **attributes: Any) -> Value:
        """An op of this value alone, element by element."""
        return self.writer.node(op_type, [self], self.shape, dtype, **attributes)

    def where(self, first: Value | float, second: Value | float, dtype: str = "") -> Value:
        """`first` where this mask holds, else `second`; dtype: their type, where both are numbers. Of truth values it
        is what they say together, as ONNX Runtime has no Where of these."""
        kind = dtype or next(v.dtype for v in (first, second) if isinstance(v, Value))
        a, b = (v if isinstance(v, Value) else self.writer.number(v, kind) for v in (first, second))
        if kind == "i1":
            return self & a | ~self & b
        return self.writer.node("Where", [self, a, b], np.broadcast_shapes(self.shape, a.shape, b.shape), kind)

    def cast(self, dtype: str) -> Value:
        """In another element type: floats are cut off towards 0 for integers, and never saturated."""
        if dtype == self.dtype:
            return self
        eight = {"saturate": 0} if dtype[:2] == "f8" and dtype != "f8E8M0FNU" else {}
        return self.writer.node("Cast", [self], self.shape, dtype, to=self.writer.tensor_type(dtype), **eight)


def type_of(value: SSAValue) -> tuple[tuple[int, ...], str]:
    """Shape and element type of a tensor of the graph level; of quantized numbers what is stored. Raises Unsayable."""
    assert isinstance(value.type, TensorType)
    element = value.type.element_type
    try:
        return shape_in(value.type), dtype_name(element.storage if isinstance(element, StoredAs) else element)
    except ValueError as error:
        raise Unsayable(f"is refused: {error}") from None
