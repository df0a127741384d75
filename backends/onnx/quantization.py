"""Quantized numbers as ONNX has them: what is stored, between QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dialects.dtypes import is_float
from ...dialects.graph import DequantizeOp, QuantizeOp, RequantizeOp, StorageOp
from ...dialects.quantized import QuantizedFacts
from .elementwise import combined
from .moves import reshape
from .values import Value
from .writer import OnnxWriter


def quantize(op: QuantizeOp, w: OnnxWriter) -> Value:
    scale, zero = (None if v is None else w.full(v) for v in op.scale_and_zero())
    return quantized_as(w.full(op.x), op.kind.data, scale, zero)


def dequantize(op: DequantizeOp, w: OnnxWriter) -> Value:
    scale, zero = (None if v is None else w.full(v) for v in op.scale_and_zero())
    return dequantized(w.full(op.x), op.kind.data, scale, zero)


def requantize(op: RequantizeOp, w: OnnxWriter) -> Value:
    """In units of the result's scale first, by the quotient of the scales, which is rounded to f32."""
    source, target = op.type_of(op.x).data, op.type_of(op.result).data
    blocks = source.blocks or target.blocks
    many = source.quotients(target)
    quotients = QuantizedFacts(source.storage, "f32", tuple(many), _each(source.zeros, len(many)), blocks)
    units = QuantizedFacts(target.storage, "f32", (1.0,) * len(many), _each(target.zeros, len(many)), blocks)
    return quantized_as(dequantized(w.full(op.x), quotients), units)


def _each(zeros: tuple[int, ...] | None, many: int) -> tuple[int, ...]:
    assert zeros is not None
    return zeros if len(zeros) == many else zeros * many


def storage(op: StorageOp, w: OnnxWriter) -> Value:
    return w.small(op.x)


def quantized_as(x: Value, facts: QuantizedFacts, scale: Value | None = None, zero: Value | None = None) -> Value:
    """What is stored for numbers; scale, zero: those that the type does not have, one for each block."""
    scales, zeros, axes = _parameters(x, facts, scale, zero)
    made = x.writer.node("QuantizeLinear", [x, scales, zeros], x.shape, facts.storage, **axes)
    if facts.narrowed:
        low, high = (x.writer.number(end, facts.storage) for end in facts.range)
        made = combined("Min", combined("Max", made, low), high)
    return made


def dequantized(x: Value, facts: QuantizedFacts, scale: Value | None = None, zero: Value | None = None) -> Value:
    """The numbers that stored ones stand for."""
    scales, zeros, axes = _parameters(x, facts, scale, zero)
    return x.writer.node("DequantizeLinear", [x, scales, zeros], x.shape, facts.expressed, **axes)


def _parameters(
    x: Value, facts: QuantizedFacts, scale: Value | None, zero: Value | None
) -> tuple[Value, Value, dict[str, Any]]:
    """Scales, zero points and attributes of QuantizeLinear or DequantizeLinear."""
    w, grid = x.writer, facts.grid(x.shape)

    def known(values: Sequence[float], dtype: str) -> Value:
        array = np.asarray(values)
        return w.constant(np.broadcast_to(array.reshape(()), grid) if array.size == 1 else array.reshape(grid), dtype)

    scales = known(facts.scales or (), facts.expressed) if scale is None else scale
    floats = is_float(facts.storage)  # which have no zero points
    zeros = known(((0,) if floats else facts.zeros) or (0,), facts.storage) if zero is None else zero
    if not facts.blocks:
        return scales, zeros, {}
    if len(facts.blocks) == 1 and facts.blocks[0][1] == 1:
        return scales, zeros, {"axis": facts.blocks[0][0]}
    axis, block = max(facts.blocks, key=lambda each: each[1])
    scales, zeros = (_spread(v, facts, x.shape, axis) for v in (scales, zeros))
    return scales, zeros, {"axis": axis, "block_size": block}


def _spread(value: Value, facts: QuantizedFacts, shape: tuple[int, ...], axis: int) -> Value:
    """Numbers for blocks as ONNX has them: one for each element along all dimensions but `axis`."""
    blocks = dict(facts.blocks)
    pairs = [(n // blocks[d], blocks[d]) if d in blocks else (1, n) for d, n in enumerate(shape)]
    pairs = [(n, 1) if d == axis else (n, m) for d, (n, m) in enumerate(pairs)]
    apart = reshape(value, [size for n, _ in pairs for size in (n, 1)])
    whole = value.writer.expand(apart, [size for pair in pairs for size in pair])
    return reshape(whole, [n * m for n, m in pairs])
