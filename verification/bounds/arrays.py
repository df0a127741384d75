"""Functions of arrays for rules that are traced for XLA, and computed by NumPy where all operands are NumPy's.

XLA takes 20 ms and more to compile the values and the bounds of one op on arrays of one shape; NumPy has computed those
of a hundred thousand numbers by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from ...backends.functions import values
from ...backends.stepper import numbers, reductions


def is_plain(*operands: Any) -> bool:
    """Whether all operands are NumPy's, or numbers."""
    return not any(
        isinstance(x, jax.Array) or (isinstance(x, (list, tuple)) and not is_plain(*x)) for x in operands
    )


class _Namespace:
    """`jax.numpy`, whose functions are those of `numpy` for NumPy's arrays."""

    def __getattr__(self, name: str) -> Any:
        traced: Any = getattr(jax.numpy, name)
        own: Any = getattr(np, name, None)

        def either(*operands: Any, **more: Any) -> Any:
            return (own if is_plain(*operands) else traced)(*operands, **more)

        is_function = name != "finfo" and callable(own) and not isinstance(traced, type)
        setattr(self, name, either if is_function else traced)
        return getattr(self, name)


jnp: Any = _Namespace()


def bitcast(x: Any, dtype: np.dtype) -> Any:
    """The bits of x as of another type as wide."""
    return np.asarray(x, order="C").view(dtype) if is_plain(x) else lax.bitcast_convert_type(x, dtype)


def convert(x: Any, dtype: np.dtype) -> Any:
    """x in another type, as `graph.convert` has it."""
    return numbers.convert(x, dtype) if is_plain(x) else values.convert(x, dtype)


def scalar_function(name: str) -> Callable[..., Any]:
    """What a row of `dialects.elementwise` computes, in the type of its operands."""

    def apply(*operands: Any) -> Any:
        if not is_plain(*operands):
            return values.SCALAR[name](*operands)
        shape = np.broadcast_shapes(*(np.shape(x) for x in operands))
        denormals = any(numbers.has_denormals(x) for x in operands)
        return numbers.apply(name, operands, shape, operands[-1].dtype, denormals)

    return apply


def reduce(x: Any, kind: str, dims: Sequence[int]) -> Any:
    """x combined along `dims`, which disappear."""
    if not is_plain(x):
        return values.reduce(x, kind, dims)
    return reductions.reduce(x, kind, dims).reshape([n for d, n in enumerate(x.shape) if d not in dims])
