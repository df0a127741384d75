"""Between floats and numbers that are stored as others: `dialects/quantized.py` has the element types.

A scale that is known at run time only is an operand, in the element type that is quantized: one number, or one for each
block of the dimensions that have blocks, in their order. So is a zero point, in the storage type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def, var_operand_def
from xdsl.traits import Pure

from ..dtypes import tensor
from ..quantized import QuantizedType, quantized
from .extents import BoundedDim
from .interface import Casting, GraphOp, element_of, shape_of


class QuantizationOp(GraphOp):
    """Between numbers and quantized ones; `scale` and `zero` are given where the type does not have them."""

    TAKES_QUANTIZED: ClassVar[bool] = True
    CASTING: ClassVar[Casting] = "fixed"
    KEEPS: ClassVar[str] = "it is between numbers and quantized ones"

    def along(self, i: int, d: int) -> BoundedDim | None:
        return BoundedDim(d) if i == 0 else None

    def type_of(self, value: SSAValue) -> QuantizedType:
        """The quantized element type of a value. Raises ValueError where it has none."""
        found = quantized(value.type)
        if found is None:
            raise ValueError(f"needs quantized numbers, got {element_of(value)}")
        return found

    def scale_and_zero(self) -> tuple[SSAValue | None, SSAValue | None]:
        """The operands that are the scale and the zero point; None for what the type has."""
        return None, None

    def check_given(self, kind: QuantizedType, shape: Sequence[int], given: Sequence[SSAValue]) -> None:
        """Raises ValueError unless a scale and a zero point are given just where the type has none, in the shape of
        its blocks."""
        facts = kind.data
        grid = facts.grid(shape)
        wanted = [tensor(grid, kind.expressed)] if facts.scales is None else []
        wanted += [tensor(grid, kind.storage)] if facts.zeros is None else []
        if [v.type for v in given] != wanted:
            needs = " and ".join(map(str, wanted)) or "neither scales nor zero points"
            got = ", ".join(str(v.type) for v in given) or "none"
            raise ValueError(f"needs {needs} behind x for {kind}, got {got}")


class _WithGiven(QuantizationOp):
    """An op with the scale and the zero point of `kind` behind x."""

    x = operand_def()
    given = var_operand_def()
    result = result_def()

    @property
    def kind(self) -> QuantizedType:
        """The quantized type. Raises ValueError."""
        raise NotImplementedError

    def scale_and_zero(self) -> tuple[SSAValue | None, SSAValue | None]:
        facts, rest = self.kind.data, list(self.given)
        scale = rest.pop(0) if facts.scales is None else None
        return scale, rest.pop(0) if facts.zeros is None else None


@irdl_op_definition
class QuantizeOp(_WithGiven):
    """x / scale, rounded to even, + zero point, saturated in what is stored."""

    name = "graph.quantize"
    traits = traits_def(Pure())

    @property
    def kind(self) -> QuantizedType:
        return self.type_of(self.result)

    def infer(self) -> Sequence[Attribute]:
        kind = self.kind
        if element_of(self.x) != kind.expressed:
            raise ValueError(f"takes {kind.expressed}, which the result stands for, not {element_of(self.x)}")
        self.check_given(kind, shape_of(self.x), self.given)
        return [tensor(shape_of(self.x), kind)]


@irdl_op_definition
class DequantizeOp(_WithGiven):
    """(x - zero point) * scale, in the type that x stands for."""

    name = "graph.dequantize"
    traits = traits_def(Pure())

    @property
    def kind(self) -> QuantizedType:
        return self.type_of(self.x)

    def infer(self) -> Sequence[Attribute]:
        kind = self.kind
        self.check_given(kind, shape_of(self.x), self.given)
        return [tensor(shape_of(self.x), kind.expressed)]


@irdl_op_definition
class RequantizeOp(QuantizationOp):
    """Quantized numbers in another type: (x - zero point) times the scale of x over that of the result, rounded to
    even, + the result's zero point, saturated in what is stored. The quotient of the scales is rounded to f32."""

    name = "graph.requantize"
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        source, target = self.type_of(self.x), self.type_of(self.result)
        for kind in (source, target):
            self.check_given(kind, shape_of(self.x), ())
        if source.data.blocks and target.data.blocks and source.data.blocks != target.data.blocks:
            raise ValueError("has scales of other blocks on either side")
        if source.expressed != target.expressed:
            raise ValueError(f"takes numbers that stand for {source.expressed} to such of {target.expressed}")
        return [tensor(shape_of(self.x), target)]


@irdl_op_definition
class StorageOp(QuantizationOp):
    """What is stored for quantized numbers, or the quantized numbers that stored ones stand for: nothing changes in
    memory."""

    name = "graph.storage"
    KERNEL: ClassVar[bool] = False
    WHOLE: ClassVar[bool] = True
    x = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        given, made = quantized(self.x.type), quantized(self.result.type)
        if (given is None) == (made is None):
            raise ValueError("is between quantized numbers and what is stored for them")
        kind = given or made
        assert kind is not None
        kind.data.grid(shape_of(self.x))
        if made is not None and element_of(self.x) != made.storage:
            raise ValueError(f"takes {made.storage}, which {made} stores, not {element_of(self.x)}")
        return [tensor(shape_of(self.x), made or kind.storage)]
