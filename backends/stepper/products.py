"""Matrix products by NumPy: exact for integers; floats are added up in f64 and rounded once to the accumulator's type.

XLA adds in f32, in an order that depends on the shape. So the two differ by no more than the error of XLA's sum, which
is at most k roundoffs of the sum of magnitudes, k 2^-24 (|a| x |b|). This one is the nearer to the exact sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from ...dialects.sparsity import KEPT_OF
from . import numbers
from .numbers import F32, F64

EXACT_IN = {np.dtype(np.int8): 1 << 38, np.dtype(np.uint8): 1 << 36}
"""How many products of a type add up exactly in f64."""

AT_ONCE = 1 << 18
"""Multiply-accumulates of one call of the library: it starts threads for more, which take longer than the product."""

ROWS = 64

_DRAWN: ContextVar[np.random.Generator | None] = ContextVar("drawn", default=None)


@contextmanager
def other_orders(drawn: np.random.Generator) -> Iterator[None]:
    """Inside, sums of products of floats are off, at random, by what adding up in f32 in another order makes of them:
    by a standard deviation of sqrt(k) roundoffs of the sum of magnitudes (verification/tolerance.py)."""
    token = _DRAWN.set(drawn)
    try:
        yield
    finally:
        _DRAWN.reset(token)


def mma(
    a: np.ndarray,
    b: np.ndarray,
    start: np.ndarray | None,
    dtype: np.dtype,
    index: np.ndarray | None = None,
    pairs: bool = False,
) -> np.ndarray:
    """start [m, n] + a [m, k] x b [k, n] in `dtype`; from zeros where start is None. index, pairs: as in
    `functions.products.mma`."""
    if pairs:
        a, b = _both_of(a, 1), _both_of(b, 0)
    if index is not None:
        b = _expand(b, index)
    product = _product(a, b, np.dtype(dtype))
    if start is None:
        return product
    made = start + product
    return numbers.finished(made, False) if dtype in numbers.FLUSHED else made


def _product(a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype in numbers.INTEGERS and a.dtype not in EXACT_IN:
        return np.matmul(a.astype(dtype), b.astype(dtype))
    wide = _wide_product(a.astype(F64), b.astype(F64))
    if dtype in numbers.INTEGERS:
        return wide.astype(np.int64).astype(dtype)
    if (drawn := _DRAWN.get()) is not None:
        magnitudes = _wide_product(np.abs(a).astype(F64), np.abs(b).astype(F64))
        wide = wide + magnitudes * drawn.standard_normal(wide.shape) * np.sqrt(a.shape[1]) * 2.0**-24
    made = wide.astype(F32) if dtype.itemsize < F64.itemsize else wide
    if dtype in (F32, F64):
        return numbers.finished(made, a.shape[1] == 1)
    return numbers.convert(made, dtype)


def _wide_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a [m, k] x b [k, n] in f64, in pieces of which the library needs no threads."""
    (m, k), n = a.shape, b.shape[1]
    if m * k * n <= AT_ONCE:
        return a @ b
    out = np.zeros((m, n))
    depth = min(k, ROWS)
    columns = max(AT_ONCE // (ROWS * depth), 1)
    for i in range(0, m, ROWS):
        for j in range(0, n, columns):
            for p in range(0, k, depth):
                out[i : i + ROWS, j : j + columns] += (
                    a[i : i + ROWS, p : p + depth] @ b[p : p + depth, j : j + columns]
                )
    return out


def _both_of(x: np.ndarray, dim: int) -> np.ndarray:
    """The numbers of pairs (i4x2, as i8) along a dimension, i8: all first ones, then all second ones."""
    return np.concatenate([(x << 4) >> 4, x >> 4], axis=dim)


def unpacked(x: np.ndarray) -> np.ndarray:
    """The numbers of pairs [..., n], i8 [..., 2 n]: those of a pair side by side."""
    return np.stack([(x << 4) >> 4, x >> 4], axis=-1).reshape(*x.shape[:-1], 2 * x.shape[-1])


def _expand(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """What 2:4 sparse numbers [k / 2, n] with their positions [k / 8, n] stand for, i8 [k, n]."""
    v, i = values.T, index.T
    rest, groups = v.shape[:-1], v.shape[-1] // KEPT_OF
    kept = v.reshape(*rest, groups, KEPT_OF)
    bits = np.stack([i & np.int8(15), (i >> np.int8(4)) & np.int8(15)], axis=-1).reshape(*rest, groups)
    dense = np.zeros((*rest, groups, 4), values.dtype)
    np.put_along_axis(dense, (bits >> np.int8(2))[..., None].astype(np.int64), kept[..., 1:2], axis=-1)
    np.put_along_axis(dense, (bits & np.int8(3))[..., None].astype(np.int64), kept[..., 0:1], axis=-1)
    return dense.reshape(*rest, 4 * groups).T
