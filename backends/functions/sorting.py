"""What a sort computes: each key is mapped to integers of the same order, then one stable sort uses these."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...dialects.shapes import Keys
from . import values


def sort(xs: Sequence[Array], keys: Keys, dim: int, keep: int) -> list[Array]:
    """All of xs (one shape) ordered along `dim` by the keys among them; the first `keep` positions. Equals keep
    their order."""
    codes = [
        order_code(xs[k], bool(down), bool(total))
        for k, down, total in zip(keys.operands, keys.descending, keys.total, strict=True)
    ]
    moved = [values.raw(x) for x in xs]
    done = lax.sort([*codes, *moved], dimension=dim, is_stable=True, num_keys=len(codes))[len(codes) :]
    kept = [lax.slice_in_dim(x, 0, keep, axis=dim) for x in done]
    return [values.cooked(x, original.dtype) for x, original in zip(kept, xs, strict=True)]


def order_code(x: Array, descending: bool, total: bool) -> Array:
    """Integers in the order of x (i1: false first): of floats the bits, those behind a minus sign flipped."""
    if x.dtype == np.bool_:
        code = lax.convert_element_type(x, np.uint8)
    elif jnp.issubdtype(x.dtype, jnp.floating):
        width = 8 * x.dtype.itemsize
        signed = np.dtype(f"i{x.dtype.itemsize}")
        bits = lax.bitcast_convert_type(x, signed)
        most = np.asarray(2 ** (width - 1) - 1, signed)
        if not total:
            magnitude = lax.bitwise_and(bits, lax.full_like(bits, most))
            infinity = np.asarray(np.inf, x.dtype).view(signed)
            bits = lax.select(lax.eq(magnitude, lax.full_like(bits, 0)), lax.full_like(bits, 0), bits)
            bits = lax.select(
                lax.gt(magnitude, lax.full_like(bits, infinity)), lax.full_like(bits, most), bits
            )
        negative = lax.lt(bits, lax.full_like(bits, 0))
        code = lax.select(negative, lax.bitwise_xor(bits, lax.full_like(bits, most)), bits)
    else:
        code = x
    return lax.bitwise_not(code) if descending else code
