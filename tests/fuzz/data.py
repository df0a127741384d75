"""The numbers that random programs compute with. A reproducer carries a copy of this file's functions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np


def rand(seed: int, shape: tuple[int, ...], dtype: str, kind: str = "plain") -> Any:
    """An array of a dtype, the same for the same arguments.

    kind: `plain` has floats around 0 (multiples of 1/64) and small integers; `special` has NaN, infinities, zeros of
    both signs and the limits of integers among them; `index` has integers that are mostly positions.
    """
    rng, t = np.random.default_rng(seed), jnp.dtype(dtype)
    if t == np.bool_:
        return rng.random(shape) < 0.5
    if t.kind in "iu":
        low, high = int(jnp.iinfo(t).min), int(jnp.iinfo(t).max)
        x = rng.integers(max(-6, low), 12 if kind != "plain" else min(50, high), shape)
        pool = np.asarray([low, low + 1, -1 if low else 2, 0, 1, high - 1, high, 31, 33], object)
        odd = pool[rng.integers(0, len(pool), shape)]
        keep = rng.random(shape) < {"plain": 1.0, "index": 0.9, "special": 0.6}[kind]
        return np.where(keep, x.astype(object), odd).astype(t)
    x = np.round(64 * rng.standard_normal(shape)) / 64
    if kind == "special":
        pool = np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0**-10, 3e4])
        x = np.where(rng.random(shape) < 0.75, x, pool[rng.integers(0, len(pool), shape)])
    if t.kind == "c":
        x = x + 1j * np.round(64 * rng.standard_normal(shape)) / 64
    return np.asarray(x).astype(t)
