"""Values while a model is traced: known ones are numpy arrays, computed ones JAX's, sequences are lists.

A known array whose elements are symbolic sizes has the dtype `object`; what is computed from these alone stays known.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def is_known(value: Any) -> bool:
    """Whether a value is known where the model is traced."""
    return isinstance(value, np.ndarray | np.generic)


def is_sizes(value: Any) -> bool:
    """Whether a known array has symbolic sizes among its elements."""
    return isinstance(value, np.ndarray) and value.dtype == object and not is_text(value)


def is_text(value: Any) -> bool:
    """Whether a value is an array of strings."""
    if not isinstance(value, np.ndarray):
        return False
    return value.dtype.kind in "US" or (
        value.dtype == object and value.size > 0 and isinstance(value.reshape(-1)[0], str | bytes)
    )


def as_traced(value: Any) -> Any:
    """A value as an array of JAX; None, lists and what is one already as they are. Sizes become i64."""
    import jax.numpy as jnp

    if value is None or isinstance(value, list):
        return value
    if is_sizes(value):
        flat = [jnp.asarray(n, jnp.int64) for n in value.reshape(-1)]
        return jnp.stack(flat).reshape(value.shape) if flat else jnp.zeros(value.shape, jnp.int64)
    return jnp.asarray(value)


def whole(number: Any) -> Any:
    """An element of a known array as a Python number; a symbolic size as it is."""
    return number.item() if isinstance(number, np.generic) else number


def sizes(numbers: Any) -> np.ndarray:
    """Sizes as a known i64 array, of objects where one is symbolic."""
    listed = [whole(n) for n in numbers]
    if all(isinstance(n, int) for n in listed):
        return np.array(listed, np.int64)
    made = np.empty(len(listed), object)
    made[:] = listed
    return made


def settled(value: Any) -> Any:
    """A known array of objects that are all numbers, as i64; a symbolic size, which numpy gives for one of rank 0, as
    an array."""
    from jax import export

    if export.is_symbolic_dim(value):
        made = np.empty((), object)
        made[()] = value
        return made
    if isinstance(value, np.ndarray) and value.dtype == object and not is_text(value):
        flat = value.reshape(-1)
        if all(isinstance(n, int | np.integer) for n in flat):
            return value.astype(np.int64)
    return value


def dtype_of(value: Any) -> np.dtype[Any]:
    """The dtype of an array; i64 of sizes."""
    return np.dtype(np.int64) if is_sizes(value) else np.dtype(value.dtype)


def dtype_named(number: int) -> np.dtype[Any]:
    """The dtype of a number of `onnx.TensorProto.DataType`; `object` for text."""
    from onnx import helper

    return np.dtype(helper.tensor_dtype_to_np_dtype(number))


def is_float(value: Any) -> bool:
    """Whether an array is of floats, narrow ones included."""
    import ml_dtypes

    dtype = dtype_of(value)
    if dtype.kind == "f":
        return True
    try:
        ml_dtypes.finfo(dtype)
    except ValueError:
        return False
    return dtype.kind not in "iub"
