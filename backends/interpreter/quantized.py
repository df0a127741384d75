"""What ops on quantized numbers compute, at the graph level. Arrays of quantized tensors hold what is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from ...dialects import graph as ops
from ...dialects.dtypes import is_float, numpy_dtype
from ...dialects.graph.interface import element_of
from ...dialects.quantized import QuantizedFacts, quantized
from ..functions.values import convert

F32 = np.dtype(np.float32)


def spread(grid: Array, facts: QuantizedFacts, shape: Sequence[int]) -> Array:
    """A number for each block, as one for each element of a tensor of `shape`; shape () where there are no blocks."""
    if not facts.blocks:
        return lax.reshape(grid, ())
    blocks = dict(facts.blocks)
    grid = lax.reshape(grid, [shape[d] // blocks[d] if d in blocks else 1 for d in range(len(shape))])
    for d, n in facts.blocks:
        grid = jnp.repeat(grid, n, axis=d) if n != 1 else grid
    return grid


def known(values: Sequence[float], facts: QuantizedFacts, shape: Sequence[int], dtype: np.dtype) -> Array:
    """Scales or zero points that the type has, for each element."""
    array = np.asarray(values).astype(dtype)
    count = int(np.prod(facts.grid(shape), dtype=np.int64))
    return spread(jnp.asarray(np.broadcast_to(array, count) if array.size == 1 else array), facts, shape)


def stored(x: Array, zeros: Array | None, facts: QuantizedFacts) -> Array:
    """f32 numbers rounded to even, with zero points added, saturated in what is stored."""
    x = x if is_float(facts.storage) else lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    x = x if zeros is None else x + zeros
    low, high = (np.float32(end) for end in facts.range)
    if not is_float(facts.storage):  # the next f32 number within
        low = np.nextafter(low, np.float32(np.inf)) if low < facts.range[0] else low
        high = np.nextafter(high, np.float32(-np.inf)) if high > facts.range[1] else high
    return convert(lax.clamp(low, x, high), numpy_dtype(facts.storage))


def zeros_of(facts: QuantizedFacts, given: Array | None, shape: Sequence[int], dtype: np.dtype) -> Array | None:
    """The zero point of each element; None where all are 0."""
    if given is not None:
        return spread(convert(given, dtype), facts, shape)
    assert facts.zeros is not None
    return known(facts.zeros, facts, shape, dtype) if any(facts.zeros) else None


def given_of(op: ops.QuantizeOp | ops.DequantizeOp, given: Sequence[Array]) -> tuple[Array | None, Array | None]:
    """The scale and the zero point among operands; None for what the type has."""
    rest = list(given)
    scale = rest.pop(0) if op.kind.data.scales is None else None
    return scale, rest.pop(0) if op.kind.data.zeros is None else None


def quantize(op: ops.QuantizeOp, x: Array, *given: Array) -> Array:
    facts = op.kind.data
    _, zero = given_of(op, given)
    return stored(convert(x, F32) * quantizing(op, x, *given), zeros_of(facts, zero, x.shape, F32), facts)


def quantizing(op: ops.QuantizeOp, x: Array, *given: Array) -> Array:
    """What each element is multiplied by."""
    facts = op.kind.data
    scale, _ = given_of(op, given)
    if scale is not None:
        return spread(np.float32(1) / convert(scale, F32), facts, x.shape)
    assert facts.scales is not None
    return known([1 / s for s in facts.scales], facts, x.shape, F32)


def dequantize(op: ops.DequantizeOp, x: Array, *given: Array) -> Array:
    facts = op.kind.data
    scale, zero = given_of(op, given)
    expressed = numpy_dtype(facts.expressed)
    work = expressed if x.dtype.itemsize == 1 else F32
    zeros = zeros_of(facts, zero, x.shape, work)
    wide = convert(x, work)
    wide = wide if zeros is None else wide - zeros
    if scale is None:
        assert facts.scales is not None
        factor = known(facts.scales, facts, x.shape, work)
    else:
        factor = spread(convert(scale, work), facts, x.shape)
    return convert(lax.optimization_barrier(wide * factor), expressed)


def requantize(op: ops.RequantizeOp, x: Array) -> Array:
    source, target = op.type_of(op.x).data, op.type_of(op.result).data
    return _rescaled(shifted(x, source), source, target)


def shifted(x: Array, facts: QuantizedFacts) -> Array:
    """Stored integers less their zero points, in i32."""
    zeros = zeros_of(facts, None, x.shape, np.dtype(np.int32))
    wide = convert(x, np.dtype(np.int32))
    return wide if zeros is None else wide - zeros


def _rescaled(x: Array, source: QuantizedFacts, target: QuantizedFacts) -> Array:
    """Integers in units of the scales of `source`, as what `target` stores."""
    factor = requantizing(x.shape, source, target)
    return stored(convert(x, F32) * factor, zeros_of(target, None, x.shape, F32), target)


def requantizing(shape: Sequence[int], source: QuantizedFacts, target: QuantizedFacts) -> Array:
    """What each integer in units of the scales of `source` is multiplied by to be in those of `target`."""
    return known(source.quotients(target), source if source.blocks else target, shape, F32)


def storage(op: ops.StorageOp, x: Array) -> Array:
    return x


def of_integers(rule: Callable[..., Array]) -> Callable[..., Array]:
    """The rule of a product, `rule` for plain numbers, that knows quantized ones: the sums of integers without their
    zero points, in i32, in units of the product of the scales."""

    def product(op: ops.ContractOp | ops.ConvOp, lhs: Array, rhs: Array) -> Array:
        left, right, made = (quantized(v.type) for v in (op.lhs, op.rhs, op.result))
        if left is None or right is None:
            return rule(op, lhs, rhs, numpy_dtype(element_of(op.result)))
        total = rule(op, shifted(lhs, left.data), shifted(rhs, right.data), np.dtype(np.int32))
        facts = op.sum_kind().data
        assert facts.scales is not None
        if made is None:
            scaled = convert(total, F32) * known(facts.scales, facts, total.shape, F32)
            return convert(lax.optimization_barrier(scaled), numpy_dtype(facts.expressed))
        return total if facts == made.data else _rescaled(total, facts, made.data)

    return product


RULES = {
    ops.QuantizeOp: quantize,
    ops.DequantizeOp: dequantize,
    ops.RequantizeOp: requantize,
    ops.StorageOp: storage,
}
