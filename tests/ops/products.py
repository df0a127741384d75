"""What tests of kernels of products share: types with their roundings, operands, and values in both memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from memories import outputs

import tilewright as tw

EPS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-20}
"""What a result may be off by, relative to the largest one, a few times."""

TYPES: dict[str, Any] = {"f16": np.float16, "bf16": jnp.bfloat16, "f32": np.float32}


def data(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    """Normal numbers, with which sums over the last dimension of two of them stay near 1."""
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [(rng.standard_normal(s) / np.sqrt(max(s[-1], 1))).astype(TYPES[dtype]) for s in shapes]


def assert_as_in_f32(program: tw.Program, fn: Callable[..., Any], args: Sequence[Any], times: int) -> None:
    """The result in both memories is that of `fn` in f32, off by at most so many times what the type of the first
    argument says."""
    wide = [np.asarray(x, np.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in args]
    want = np.asarray(jax.jit(fn)(*wide), np.float32)
    dtype = next(k for k, v in TYPES.items() if args[0].dtype == v)
    got = outputs(program, program.flatten(args))[0].astype(np.float32)
    np.testing.assert_allclose(got, want, atol=times * EPS[dtype] * np.abs(want).max(initial=0), rtol=0)
