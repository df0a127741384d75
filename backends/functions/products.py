"""What a matrix product computes, once for all three levels.

XLA passes products to a library, whose order of additions depends on the shape. XLA would also fold a transpose of an
operand into the product, even if that changes the order. `OPTIONS` forbids it, but not where both operands or the
result are transposed: there `mma` keeps the transposes away. It folds those that change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...dialects.sparsity import KEPT_OF
from .compiling import in_rows
from .values import convert, reduce, settle

_WIDENED = frozenset(map(np.dtype, (jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2)))
"""Types whose products XLA on the CPU has only in f32 in some forms, and refuses in others when they run."""

_ACCUMULATOR = {
    np.dtype(np.float32): np.dtype(np.float32),
    np.dtype(np.float16): np.dtype(np.float32),
    **dict.fromkeys(_WIDENED, np.dtype(np.float32)),
    np.dtype(np.int8): np.dtype(np.int32),
}


def accumulator(operand: np.dtype, result: np.dtype) -> np.dtype:
    """The dtype that products of `operand` add up in: f32 for f32 and narrower floats; i32 for i8; else the
    result's."""
    return _ACCUMULATOR.get(np.dtype(operand), np.dtype(result))


SAME_KERNEL_ROWS, SAME_KERNEL_COLUMNS, SAME_KERNEL_TERMS, SAME_KERNEL_PANEL = 64, 9, 8, 64
"""XLA's kernel for a product, and with it the order of its additions, follows the numbers of rows and columns. From
these numbers of rows, columns and terms on, more rows have never changed a bit (measured over k = 8..513; in 8 columns
they do up to 80 rows on processors with AVX2, and of 2 or 5 terms). With so many rows, tiles of whole panels of columns
side by side, as a batch, or taken from a transposed right side have never either (k = 1..512). Smaller tiles stay as
they are."""


def dot_general(a: Array, b: Array, dimension_numbers: Any, dtype: np.dtype) -> Array:
    """A product in `dtype` (see `accumulator`); operands of other dtypes are converted to it first."""
    if np.dtype(a.dtype) not in _ACCUMULATOR or a.dtype != b.dtype or np.dtype(a.dtype) in _WIDENED:
        a, b = convert(a, dtype), convert(b, dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        return lax.dot_general(a, b, dimension_numbers, preferred_element_type=dtype)
    over, batch = dimension_numbers
    kept = [_kept(x, [*o, *d]) for x, o, d in zip((a, b), over, batch, strict=True)]
    rows, columns = (prod(x.shape[d] for d in dims) for x, dims in zip((a, b), kept, strict=True))
    if rows == columns == 1:
        return _inner(a, b, over, batch, kept, dtype)
    if rows == 1 or columns == 1:
        # XLA fuses such a product with what is around it, and adds up in another order then
        return in_rows(
            lax.dot_general(in_rows(a), in_rows(b), dimension_numbers, preferred_element_type=dtype)
        )
    product = lax.dot_general(a, b, dimension_numbers, preferred_element_type=dtype)
    # XLA makes a product of single terms a multiplication, which it would merge with an addition behind it
    single = all(a.shape[d] == 1 for d in over[0])
    return settle(product) if single else product


def _kept(x: Array, named: Sequence[int]) -> list[int]:
    """The other dimensions of x."""
    return [d for d in range(x.ndim) if d not in named]


def _inner(
    a: Array, b: Array, over: Any, batch: Any, kept: Sequence[Sequence[int]], dtype: np.dtype
) -> Array:
    """`dot_general` of vectors, whose `kept` dimensions have one element. XLA makes it a multiplication and a sum, and
    LLVM merges these or not."""
    shape = [a.shape[d] for d in batch[0]]
    count = prod(a.shape[d] for d in over[0])
    rows = [
        lax.reshape(lax.transpose(convert(x, dtype), (*first, *last, *others)), (*shape, count))
        for x, first, last, others in zip((a, b), batch, over, kept, strict=True)
    ]
    sums = reduce(settle(lax.mul(*rows)), "sum", [len(shape)])
    return lax.reshape(sums, (*shape, *(1 for others in kept for _ in others)))


def expand(values: Array, index: Array, dim: int) -> Array:
    """What 2:4 sparse numbers stand for (dialects/graph/sparsity.py): values i8 [..., n / 2, ...] and index i8
    [..., n / 8, ...] along `dim`, result i8 [..., n, ...]."""
    v, i = jnp.moveaxis(values, dim, -1), jnp.moveaxis(index, dim, -1)
    rest, groups = v.shape[:-1], v.shape[-1] // KEPT_OF
    first, second = (v.reshape(*rest, groups, KEPT_OF)[..., n] for n in range(KEPT_OF))
    bits = jnp.stack([i & np.int8(15), (i >> np.int8(4)) & np.int8(15)], axis=-1).reshape(*rest, groups)
    at_first, at_second = bits & np.int8(3), bits >> np.int8(2)
    zero = jnp.zeros_like(first)
    dense = [
        jnp.where(at_first == np.int8(n), first, jnp.where(at_second == np.int8(n), second, zero))
        for n in range(4)
    ]
    return jnp.moveaxis(jnp.stack(dense, axis=-1).reshape(*rest, 4 * groups), -1, dim)


def both_of(x: Array, dim: int) -> Array:
    """The numbers of pairs (i4x2, as i8) along a dimension, i8: all first ones, then all second ones."""
    second = lax.shift_right_arithmetic(x, lax.full_like(x, 4))
    first = lax.shift_right_arithmetic(lax.shift_left(x, lax.full_like(x, 4)), lax.full_like(x, 4))
    return lax.concatenate([first, second], dim)


def unpacked(x: Array) -> Array:
    """The numbers of pairs (i4x2, as i8) [..., n], i8 [..., 2 n]: those of a pair side by side."""
    first, second = jnp.split(both_of(x, x.ndim - 1), 2, axis=-1)
    return jnp.stack([first, second], axis=-1).reshape(*x.shape[:-1], 2 * x.shape[-1])


def mma(
    a: Array,
    b: Array,
    acc: Array,
    step: Any,
    transposed: bool = False,
    bias: Array | None = None,
    index: Array | None = None,
    pairs: bool = False,
) -> Array:
    """acc [m, n] + a [m, k] x b [k, n] in acc's dtype; from zeros where `step` (int or i32) is 0, or from rows of the
    `bias` [1, n]. transposed: b is the transpose of something, which the library is given instead where it adds up
    alike: it takes it in less time. index: i8 [k / 8, n], where b [k / 2, n] is 2:4 sparse. pairs: whether the elements
    of a and b, i8, are two numbers of 4 bits each."""
    over = 0
    if pairs:
        a, b = both_of(a, 1), both_of(b, 0)
    if index is not None:
        b, transposed = expand(b, index, 0), False
    if bias is not None:
        rows = lax.broadcast_in_dim(bias, acc.shape, (0, 1))
        if isinstance(step, int):
            acc = rows if step == 0 else acc
        else:
            acc = lax.select(lax.broadcast(lax.eq(step, np.int32(0)), acc.shape), rows, acc)
        step = 1
    if transposed and a.shape[0] >= SAME_KERNEL_ROWS and b.shape[1] % SAME_KERNEL_PANEL == 0:
        b, over = lax.transpose(b, (1, 0)), 1  # XLA takes a transpose of a transpose away
    else:
        a = in_rows(a)  # XLA would make two transposed sides a product of what they are transposes of
    product = dot_general(a, b, (((1,), (over,)), ((), ())), np.dtype(acc.dtype))
    if isinstance(step, int):
        # and a product that is transposed, one of its transposed sides
        return in_rows(product) if step == 0 else lax.add(acc, product)
    first = lax.broadcast(lax.eq(step, np.int32(0)), acc.shape)
    return lax.add(lax.select(first, lax.full_like(acc, 0), acc), product)
