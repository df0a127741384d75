"""Functions whose bits are XLA's: the JAX function of each row of `dialects/elementwise.py`, on flat arrays.

XLA compiles a function for a length, so arrays are padded to one of a few lengths. What is compiled is kept for the
process, and by JAX's compilation cache where the user has turned that on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np

from ..functions import values
from ..functions.compiling import OPTIONS, xla_jit

LEAST, GROWTH = 256, 4
"""Arrays are padded to LEAST elements times a power of GROWTH."""


def padded_length(n: int) -> int:
    """The length that an array of n elements is padded to."""
    length = LEAST
    while length < n:
        length *= GROWTH
    return length


_COMPILED: dict[tuple[Any, ...], Any] = {}


def compiled(key: Hashable, function: Callable[..., Any], dtypes: tuple[np.dtype, ...], n: int) -> Any:
    """A function of n elements of each of `dtypes`, as XLA compiled it. key: of equal functions alone."""
    place = (key, dtypes, n)
    if place not in _COMPILED:
        with jax.enable_x64(True):
            structs = [jax.ShapeDtypeStruct((n,), d) for d in dtypes]
            _COMPILED[place] = xla_jit(function, OPTIONS).lower(*structs).compile()
    return _COMPILED[place]


def apply(name: str, operands: Sequence[np.ndarray], shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Function `name` of operands that broadcast to `shape`; the result, of that shape, is rounded to `dtype`."""
    key = name, dtype, values.SCALAR.get(name)  # which may be another one tomorrow
    return apply_to(lambda *xs: values.apply(name, xs, dtype), key, operands, shape)


def apply_to(
    function: Callable[..., Any], key: Hashable, operands: Sequence[np.ndarray], shape: Sequence[int]
) -> np.ndarray:
    """A JAX function that works element by element, of operands that broadcast to `shape`."""
    size = prod(shape)
    n = padded_length(size)
    flat = [_padded(np.broadcast_to(x, shape), n) for x in operands]
    code = compiled(key, function, tuple(np.dtype(x.dtype) for x in flat), n)
    with jax.enable_x64(True):
        return np.asarray(code(*flat))[:size].reshape(tuple(shape))


def _padded(x: np.ndarray, n: int) -> np.ndarray:
    """x as a flat array of n elements; those that are added are 1."""
    out = np.ones(n, x.dtype)
    out[: x.size] = x.reshape(-1)
    return out
