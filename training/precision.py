"""Functions that compute in a smaller type than their parameters have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def cast_floats(tree: Any, dtype: Any) -> Any:
    """A tree with all arrays of floats in `dtype`. Integers, booleans, complex numbers and Python's own numbers stay
    as they are."""

    def cast(x: Any) -> Any:
        own = getattr(x, "dtype", None)
        return jnp.asarray(x, dtype) if own is not None and jnp.issubdtype(own, jnp.floating) else x

    return jax.tree.map(cast, tree)


def mixed(fn: Callable[..., Any], dtype: Any, output: Any = jnp.float32) -> Callable[..., Any]:
    """`fn` in mixed precision: computed in `dtype`, of parameters that stay as they are.

    All floats among the arguments are cast to `dtype` before the call, and those of the result to `output` (None:
    they stay) after it. A gradient with respect to an argument is cast back, so it has the argument's type: that of
    f32 parameters arrives in f32. Raises TypeError where `dtype` or `output` is no type of floats.
    """
    for each in (dtype, output):
        if each is not None and not jnp.issubdtype(each, jnp.floating):
            raise TypeError(
                f"mixed precision needs a type of floats such as jnp.float16, not {jnp.dtype(each).name}"
            )

    @functools.wraps(fn)
    def in_dtype(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = cast_floats((args, kwargs), dtype)
        result = fn(*args, **kwargs)
        return result if output is None else cast_floats(result, output)

    return in_dtype
