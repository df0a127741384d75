"""Quantization annotations: `x: f16[N] quant i8(scale=0.1)` quantizes x, and goes on with the numbers that are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import SSAValue

from ...dialects.dtypes import is_float, tensor
from ...dialects.graph import DequantizeOp, QuantizedType, QuantizeOp
from ...dialects.graph.interface import shape_of
from . import syntax
from .builder import Poison
from .diagnostics import TextSpan, did_you_mean
from .expressions import Expressions
from .numbers import is_known_number, is_whole
from .scope import BlockNames


class Quantization(Expressions):
    """Checks annotations and keeps them."""

    # -- quantization --------------------------------------------------------------------------------------

    def quantize(self, node: syntax.Type, value: SSAValue, scope: BlockNames) -> SSAValue:
        """The numbers that are left of a value whose type says how it is quantized; others as they are."""
        if node.quant is None:
            return value
        found = self.quantization(node, shape_of(value), scope)
        if found is None:
            return value
        maker = value.owner
        if isinstance(maker, DequantizeOp):
            if maker.kind == found:
                return value
            help = "one value has one annotation: remove one"
            self.fail(node.quant.dtype.span, "this value is annotated in another way already", help=help)
            return value
        self.at = node.span[0]
        stored = self.emit(QuantizeOp, [value], [tensor(shape_of(value), found)])[0]
        made = self.emit(DequantizeOp, [stored], [value.type])[0]
        made.name_hint = value.name_hint
        return made

    def quantization(
        self, node: syntax.Type, shape: Sequence[int], scope: BlockNames
    ) -> QuantizedType | None:
        """The element type of `quant i8(scale=0.1, zero=3)`; None after an error."""
        quant = node.quant
        assert quant is not None
        narrow = quant.dtype.id
        if narrow not in ("i16", "i8", "i4", "i2", "f8E4M3FN", "f8E5M2"):
            self.fail(
                quant.dtype.span,
                f"`{narrow}` is not a type to quantize to",
                help="i16, i8, i4, i2, f8E4M3FN or f8E5M2",
            )
            return None
        if not is_float(node.dtype.id):
            self.fail(node.dtype.span, f"`quant` is for floats, not {node.dtype.id}")
            return None
        given: dict[str, Any] = {}
        for k in quant.keywords:
            value = self.expr(k.value, scope)
            if k.id.id not in ("scale", "zero", "axis"):
                help = did_you_mean(k.id.id, ("scale", "zero", "axis")) or "it has scale, zero and axis"
                self.fail(
                    k.id.span,
                    f"`quant` has no `{k.id.id}`" if k.id.id else "`quant` takes keywords",
                    help=help,
                )
                return None
            if isinstance(value, Poison):
                return None
            given[k.id.id] = (value, k.value.span)
        if "scale" not in given:
            self.fail(quant.span, "`quant` needs `scale=`", help=f"`quant {narrow}(scale=0.05)`")
            return None
        return self.checked_quant(narrow, node.dtype.id, given, shape)

    def checked_quant(
        self, narrow: str, expressed: str, given: Mapping[str, tuple[Any, TextSpan]], shape: Sequence[int]
    ) -> QuantizedType | None:
        scale, scale_at = given["scale"]
        zero, zero_at = given.get("zero", (0, scale_at))
        axis, axis_at = given.get("axis", (None, scale_at))
        scales = scale if isinstance(scale, list) else [scale]
        zeros = zero if isinstance(zero, list) else [zero]
        if (
            not all(is_known_number(v) and not isinstance(v, bool) and 0 < v < float("inf") for v in scales)
            or not scales
        ):
            self.fail(scale_at, "`scale` is a positive number, or one for each slice along `axis`")
            return None
        low, high = (
            (0, 0) if narrow[0] == "f" else (-(1 << int(narrow[1:]) - 1), (1 << int(narrow[1:]) - 1) - 1)
        )
        if not all(is_whole(v) and low <= v <= high for v in zeros):
            self.fail(zero_at, f"`zero` is a whole number of {narrow}, {low} to {high}")
            return None
        if axis is not None and not (is_whole(axis) and -len(shape) <= axis < len(shape)):
            self.fail(axis_at, f"`axis` is none of the {len(shape)} dimensions")
            return None
        many = isinstance(scale, list) or isinstance(zero, list)
        if many and axis is None:
            self.fail(scale_at, "several scales need `axis=`", help="say which dimension they go along")
            return None
        if axis is not None and not many:
            self.fail(axis_at, "`axis` needs a scale for each slice along it", help="write `scale=[...]`")
            return None
        for values, at in ((scale, scale_at), (zero, zero_at)):
            if isinstance(values, list) and axis is not None and len(values) != shape[axis]:
                self.fail(at, f"{len(values)} numbers for dimension {axis}, which has {shape[axis]}")
                return None
        blocks = [] if axis is None else [(axis % len(shape), 1)]
        if len(scales) < len(zeros):  # one for all slices, each of which has a zero of its own
            scales = scales * len(zeros)
        made = QuantizedType.of(narrow, expressed, scales, zeros, blocks)
        try:
            made.data.check_scales()
        except ValueError as error:
            self.fail(scale_at, f"`quant` {error}")
            return None
        return made
