"""The arguments of the tables' calls: what each letter stands for, by element type and size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DTYPES = ("float32", "float16", "bfloat16", "int32", "uint8", "int8", "bool", "complex64")
"""Element types of the arguments."""

WIDE = ("float64", "int64", "uint64", "complex128", "int16", "uint32")
"""Element types of the arguments with `jax.enable_x64`."""


@dataclass(frozen=True)
class Size:
    """shape: of x, y, u, i, q; length: of v, w, n; side: of the square matrices a, s, b."""

    shape: tuple[int, ...]
    length: int
    side: int


SIZES = {
    "usual": Size((5, 7), 7, 4),
    "one": Size((1, 1), 1, 1),
    "empty": Size((0, 7), 0, 0),
    "scalar": Size((), 3, 2),
    "wide": Size((33, 130), 300, 17),
}
"""By name. JAX itself refuses some calls for some of them."""


def arguments(dtype: str, size: Size, special: bool = False) -> dict[str, Any]:
    """The arrays by letter, the same on every call.

    x, y: any numbers; u: numbers above 0; v, w: vectors; t: a scalar; a: a matrix; s: a symmetric one that is
    positive definite; b: two matrices; img, ker: an image and a filter; i, n: i32 numbers of 0 to 3; q: bools; key:
    a random key. special: NaN, infinities, zeros of both signs, denormals or limits of integers among x, y, v, w.
    """
    rng = np.random.default_rng(11)
    t, odd = jnp.dtype(dtype), (lambda z: _odd(rng, z)) if special else (lambda z: z)
    side = (size.side, size.side)
    a = _numbers(rng, side, t)
    whole = {
        "x": odd(_numbers(rng, size.shape, t)),
        "y": odd(_numbers(rng, size.shape, t)),
        "u": _numbers(rng, size.shape, t, above=True),
        "v": odd(_numbers(rng, (size.length,), t)),
        "w": odd(_numbers(rng, (size.length,), t)),
        "t": _numbers(rng, (), t),
        "a": a,
        "s": a if t == np.bool_ else (a @ a.conj().T + 4 * np.eye(size.side)).astype(t),
        "b": _numbers(rng, (2, *side), t),
        "img": _numbers(rng, (1, 6, 7, 2), t),
        "ker": _numbers(rng, (3, 3, 2, 4), t),
        "i": rng.integers(0, 4, size.shape).astype(np.int32),
        "n": rng.integers(0, 4, size.length).astype(np.int32),
        "q": rng.random(size.shape) < 0.6,
    }
    return {name: jnp.asarray(z) for name, z in whole.items()} | {"key": jax.random.key(7)}


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], t: Any, above: bool = False) -> np.ndarray:
    if t == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if t.kind in "iu":
        return rng.integers(1 if above else (-6 if t.kind == "i" else 0), 12, shape).astype(t)
    z = np.round(64 * rng.standard_normal(shape)) / 64
    z = np.abs(z) + 1 / 64 if above else z
    if t.kind == "c" and not above:
        z = z + 1j * np.round(64 * rng.standard_normal(shape)) / 64
    return np.asarray(z).astype(t)


def _odd(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
    if z.dtype == np.bool_:
        return z
    if z.dtype.kind in "iu":
        info = jnp.iinfo(z.dtype)
        pool = np.asarray([info.min, info.min + 1, info.max, info.max - 1, 0, 1], object)
    else:
        pool = np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e4, float(2.0**-10)], object)
    taken = pool[rng.integers(0, len(pool), z.shape)]
    return np.where(rng.random(z.shape) < 0.6, z.astype(object), taken).astype(z.dtype)
