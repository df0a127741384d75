"""Reductions, cumulative ones, sorts and scatters by NumPy, in the order of `backends/functions`: the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from ...dialects.dtypes import name_of_numpy
from ...dialects.elementwise import REDUCTION_FUNCTION, identity
from ...dialects.shapes import Keys
from ..functions.values import NARROW_FLOATS, PARTS
from . import numbers
from .numbers import F32


def scalar(value: float | int | bool, dtype: np.dtype) -> np.ndarray:
    """`value` in `dtype` (shape []); an integer dtype takes the nearest value that it has."""
    if np.dtype(dtype).kind in "iu" and not isinstance(value, bool):
        info = np.iinfo(dtype)
        value = int(min(max(value, info.min), info.max))
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype)


def neutral(kind: str, dtype: np.dtype) -> np.ndarray:
    """The neutral element of a reduction kind, shape []."""
    return scalar(identity(kind, name_of_numpy(dtype)), dtype)


def is_floating(dtype: np.dtype) -> bool:
    return (
        dtype.kind not in "iub" and dtype.kind != "c" and not name_of_numpy(dtype).lstrip("u").startswith("i")
    )


def widened(kind: str, x: np.ndarray) -> np.ndarray:
    """x in the type in which a reduction runs: sums and products of narrow floats are in f32."""
    return numbers.convert(x, F32) if kind in ("sum", "prod") and x.dtype in NARROW_FLOATS else x


_WHOLE = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def reduce(x: np.ndarray, kind: str, dims: Sequence[int]) -> np.ndarray:
    """x combined along `dims`, which keep size 1; same dtype."""
    wide = widened(kind, x)
    if not is_floating(wide.dtype):
        return _reduce_whole(wide, kind, tuple(dims))
    for d in dims:
        wide = _by_parts(wide, d, kind)
    if kind != "sum" and wide.dtype in numbers.WORK:
        none = wide != wide
        if none.any():
            wide = np.where(none, wide.dtype.type(np.nan), wide)
    return numbers.convert(wide, x.dtype)


def _reduce_whole(x: np.ndarray, kind: str, dims: tuple[int, ...]) -> np.ndarray:
    if x.dtype in numbers.INTEGERS or x.dtype == numbers.BOOL:
        function = _WHOLE[kind]
        if x.dtype == numbers.BOOL:
            function = np.logical_or if kind in ("sum", "max", "or") else np.logical_and
        return function.reduce(x, axis=dims, keepdims=True, dtype=x.dtype, initial=neutral(kind, x.dtype)[()])
    for d in dims:
        x = _by_parts(x, d, kind)
    return x


def _by_parts(x: np.ndarray, d: int, kind: str) -> np.ndarray:
    """Dimension d combined to size 1: cut into PARTS equal parts, with neutral elements behind it, of which the first
    half is combined with the second until one is left; and so on with that."""
    if x.shape[d] == 0:
        return np.full([1 if i == d else n for i, n in enumerate(x.shape)], neutral(kind, x.dtype))
    x = x.swapaxes(0, d)
    while (n := x.shape[0]) > 1:
        count = min(PARTS, 1 << (n - 1).bit_length())
        length = -(-n // count)
        if n < count * length:
            more = np.full((count * length - n, *x.shape[1:]), neutral(kind, x.dtype))
            x = np.concatenate([x, more])
        while count > 1:
            count //= 2
            x = numbers.combine(kind, x[: count * length], x[count * length :])
    return x.swapaxes(0, d)


def cumulate(x: np.ndarray, kind: str, dim: int, reverse: bool) -> np.ndarray:
    """Each element combined with all before it along `dim` (behind it where `reverse`)."""
    wide, n, step = widened(kind, x).swapaxes(0, dim), x.shape[dim], 1
    nothing = neutral(kind, wide.dtype)
    while step < n:
        blank = np.full((step, *wide.shape[1:]), nothing)
        moved = np.concatenate([wide[step:], blank] if reverse else [blank, wide[: n - step]])
        wide, step = numbers.combine(kind, moved, wide), 2 * step
    if wide.dtype in numbers.WORK:
        wide = np.where(wide != wide, wide.dtype.type(np.nan), wide)
    return numbers.convert(wide.swapaxes(0, dim), x.dtype)


def arg_reduce(x: np.ndarray, kind: str, dim: int, index_dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Extreme value along `dim` and its first index, both with size 1; NaN is more extreme than anything."""
    value = reduce(x, kind, [dim])
    found = x == value
    if is_floating(x.dtype):
        found = np.where(value != value, x != x, found)
    first = found.argmax(axis=dim, keepdims=True) if x.shape[dim] else np.zeros(value.shape, np.int64)
    index = np.where(found.any(axis=dim, keepdims=True), first, max(x.shape[dim] - 1, 0))
    return value, numbers.convert(index.astype(np.int32), index_dtype)


# -- orders ------------------------------------------------------------------------------------------------


def sort(xs: Sequence[np.ndarray], keys: Keys, keep: int) -> list[np.ndarray]:
    """All of xs [rows, n] ordered along the second dimension by the keys among them; the first `keep` positions.
    Equals keep their order."""
    codes = [
        _order_code(xs[k], bool(down), bool(total))
        for k, down, total in zip(keys.operands, keys.descending, keys.total, strict=True)
    ]
    order = np.lexsort(codes[::-1], axis=-1)[:, :keep]
    return [np.take_along_axis(x, order, axis=1) for x in xs]


def _order_code(x: np.ndarray, descending: bool, total: bool) -> np.ndarray:
    """Integers in the order of x: of floats the bits, those behind a minus sign flipped."""
    if x.dtype == np.bool_:
        code = x.astype(np.uint8)
    elif is_floating(x.dtype):
        signed = np.dtype(f"i{x.dtype.itemsize}")
        bits = np.ascontiguousarray(x).view(signed)
        most = signed.type(np.iinfo(signed).max)
        if not total:
            size = bits & most
            infinity = np.asarray(np.inf, x.dtype).view(signed)
            bits = np.where(size == 0, signed.type(0), bits)
            bits = np.where(size > infinity, most, bits)
        code = np.where(bits < 0, bits ^ most, bits)
    else:
        code = (
            x
            if x.dtype in numbers.INTEGERS
            else x.astype(np.int8 if ml_dtypes.iinfo(x.dtype).min else np.uint8)
        )
    return np.invert(code) if descending else code


def scatter(x: np.ndarray, index: np.ndarray, updates: np.ndarray, kind: str) -> np.ndarray:
    """x [r, ...] with updates [n, ...] put into the rows that index [n] names, one after the other; others are left
    out."""
    out = x.copy()
    rows = index.reshape(-1)
    inside = np.flatnonzero((rows >= 0) & (rows < x.shape[0]))
    if kind == "set":
        out[rows[inside]] = updates[inside]  # NumPy keeps the last one of several
        return out
    for i in inside:
        row = int(rows[i])
        out[row : row + 1] = numbers.apply(
            REDUCTION_FUNCTION[kind],
            [out[row : row + 1], updates[i : i + 1]],
            out[row : row + 1].shape,
            x.dtype,
        )
    return out
