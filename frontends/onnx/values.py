"""Values while a model is traced: known ones are numpy arrays, computed ones JAX's, sequences are lists.

A known array whose elements are symbolic sizes has the dtype `object`, and beside it the integer type that it has in
the model; what is computed from these alone stays known, unless the symbols leave it open: whether two sizes are equal
may be known only to the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class SizeArray(np.ndarray[Any, Any]):
    """A known array with symbolic sizes among its elements. element: its type in the model; None where whoever made it
    has not said."""

    element: np.dtype[Any] | None = None


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
        made = jnp.stack(flat).reshape(value.shape) if flat else jnp.zeros(value.shape, jnp.int64)
        return made.astype(dtype_of(value))
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


def sized(value: np.ndarray, element: np.dtype[Any]) -> np.ndarray:
    """Known sizes of an integer type; numbers where none is symbolic."""
    if all(isinstance(n, int | np.integer) for n in value.reshape(-1)):
        return np.asarray(value).astype(element)
    made = value.view(SizeArray)
    made.element = np.dtype(element)
    return made


def settled(value: Any, element: np.dtype[Any]) -> Any:
    """What numpy gives of known values, as an array: sizes of a type, unless they have one; of objects that are all
    numbers or truths, these. numpy gives the element itself where the rank is 0."""
    from jax import export

    if isinstance(value, bool | int) or export.is_symbolic_dim(value):
        made = np.empty((), object)
        made[()] = value
        value = made
    if not isinstance(value, np.ndarray) or value.dtype != object or is_text(value):
        return value
    if value.size and all(isinstance(n, bool | np.bool) for n in value.reshape(-1)):
        return value.astype(bool)
    return sized(value, getattr(value, "element", None) or element)


def dtype_of(value: Any) -> np.dtype[Any]:
    """The dtype of an array; of sizes that in the model."""
    if is_sizes(value):
        return getattr(value, "element", None) or np.dtype(np.int64)
    return np.dtype(value.dtype)


def dtype_named(number: int) -> np.dtype[Any]:
    """The dtype of a number of `onnx.TensorProto.DataType`; `object` for text. Raises ValueError for no such number."""
    from onnx import TensorProto, helper

    if number == TensorProto.UNDEFINED or number not in TensorProto.DataType.values():
        raise ValueError(f"{number} is no element type: onnx.TensorProto.DataType has those that there are")
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


def elements_at(x: Any, places: Any, axis: int) -> Any:
    """The elements of x at places along an axis, within its bounds; zeros where x has none: `jnp.take` gives x there,
    whatever the shape of the places."""
    import jax.numpy as jnp

    if isinstance(x.shape[axis], int) and not x.shape[axis]:
        return jnp.zeros((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]), x.dtype)
    return jnp.take(x, places, axis=axis, mode="clip")


# -- what is decided of sizes ------------------------------------------------------------------------------


def each_size(function: Callable[..., Any], *operands: Any) -> np.ndarray:
    """A function of single sizes for known arrays, which are broadcast. Raises what the function raises."""
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), object)


def equal(a: Any, b: Any) -> bool:
    """Whether two sizes are equal, for all values of their symbols or for none. Raises InconclusiveDimensionOperation
    where some are and some are not: `==` of JAX's sizes is False there."""
    from jax import export
    from jax.errors import InconclusiveDimensionOperation

    gap = whole(a) - whole(b)
    if not export.is_symbolic_dim(gap):
        return bool(gap == 0)
    try:
        if gap > 0:
            return False
    except InconclusiveDimensionOperation:
        pass
    if gap < 0:
        return False
    raise InconclusiveDimensionOperation(f"whether {a} and {b} are equal is open")


def quotient(size: Any, by: Any) -> Any:
    """`size // by`, without the factors that all terms of the size have in common with a number `by`: JAX keeps
    `(3 * s) // 9` apart from `s // 3`."""
    size, by = whole(size), whole(by)
    if isinstance(size, int) or not isinstance(by, int):
        return size // by
    factor = 2
    while factor <= by:
        rest = size % factor if by % factor == 0 else 1
        if isinstance(rest, int) and rest == 0:
            size, by = size // factor, by // factor
        else:
            factor += 1
    return size // by


def smaller(a: Any, b: Any) -> Any:
    """The smaller one of two sizes, which may be an expression."""
    from jax.core import min_dim

    return min_dim(whole(a), whole(b))


def larger(a: Any, b: Any) -> Any:
    """The larger one of two sizes, which may be an expression."""
    from jax.core import max_dim

    return max_dim(whole(a), whole(b))
