"""Ops about shapes and types, and those that make values from these: they fold, so that sizes stay known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import (
    as_traced,
    dtype_named,
    dtype_of,
    is_float,
    is_known,
    is_sizes,
    is_text,
    larger,
    quotient,
    sized,
    sizes,
)


@rule("Shape", folds=True, of_shape=True)
def _shape(node: Node, x: Any) -> Any:
    return sized(sizes(x.shape[slice(node.get("start", 0), node.get("end"))]), np.dtype(np.int64))


@rule("Size", folds=True, of_shape=True)
def _size(node: Node, x: Any) -> Any:
    count: Any = 1
    for n in x.shape:
        count = count * n
    return sized(sizes([count]).reshape(()), np.dtype(np.int64))


@rule("Identity", folds=True)
def _identity(node: Node, x: Any) -> Any:
    return x


@rule("Constant", folds=True)
def _constant(node: Node) -> Any:
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
        ("value_string", object),
        ("value_strings", object),
    ):
        if name in node.attributes:
            return np.asarray(node.attributes[name], dtype)
    return node.attributes["sparse_value" if "sparse_value" in node.attributes else "value"]


@rule("ConstantOfShape", folds=True)
def _constant_of_shape(node: Node, shape: Any) -> Any:
    dims = node.dims(0)
    value = np.asarray(node.get("value", np.zeros(1, np.float32))).reshape(())
    return node.library(dims).full(dims, value)


def convert(node: Node, x: Any, dtype: np.dtype[Any]) -> Any:
    """x in another element type, as ONNX converts: floats to integers are cut off, what is narrow saturates where it
    says so."""
    if is_text(x):
        raise node.unsupported("text has no place on a device")
    if is_sizes(x) and dtype.kind in "iu" and dtype.itemsize >= 4:
        return sized(x, dtype)
    if is_sizes(x):
        x = as_traced(x)
    narrow = dtype.itemsize == 1 and dtype.kind not in "iub"
    if is_known(x) and not narrow:
        return np.asarray(x).astype(dtype)
    import jax.numpy as jnp
    import ml_dtypes

    x = jnp.asarray(x)
    if dtype.name in (
        "int4",
        "uint4",
        "int2",
        "uint2",
    ):  # cut to the bits that there are, as wider integers are
        bits, signed = int(dtype.name[-1]), dtype.name[0] == "i"
        number = x.astype(jnp.int32) & ((1 << bits) - 1)
        return jnp.where(signed & (number >> (bits - 1) != 0), number - (1 << bits), number).astype(dtype)
    if narrow and "float8" in dtype.name and node.get("saturate", 1) and is_float(x):
        most = float(ml_dtypes.finfo(dtype).max)
        wide = x.astype(jnp.float32)
        return jnp.where(jnp.isnan(wide), wide, jnp.clip(wide, -most, most)).astype(dtype)
    return x.astype(dtype)


@rule("Cast", folds=True)
def _cast(node: Node, x: Any) -> Any:
    return convert(node, x, _named(node, node.get("to")))


@rule("CastLike", folds=True)
def _cast_like(node: Node, x: Any, like: Any) -> Any:
    return convert(node, x, dtype_of(like))


def _named(node: Node, number: int) -> np.dtype[Any]:
    """The dtype that an attribute names."""
    from onnx import TensorProto

    if number == TensorProto.STRING:
        raise node.unsupported("text has no place on a device")
    return dtype_named(number)


@rule("Range", folds=True)
def _range(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    bounds = [node.number(i) for i in range(3)]
    first, end, step = bounds
    if isinstance(step, int | float) and (step == 0 or step != step):
        raise node.unsupported(f"its delta is {step}")
    if all(isinstance(n, int | float) for n in bounds):
        if not all(map(math.isfinite, bounds)):
            raise node.unsupported(f"it would be from {first} to {end} in steps of {step}")
        xp = node.library([max(math.ceil((end - first) / step), 0)])
        return xp.arange(*bounds, dtype=dtype_of(start))
    import jax.numpy as jnp

    far, stride = (end - first, step) if step > 0 else (first - end, -step)
    count = larger(far if stride == 1 else (far + stride - 1) // stride, 0)
    return (as_traced(start) + jnp.arange(count, dtype=jnp.int64) * step).astype(dtype_of(start))


@rule("EyeLike", folds=True)
def _eye_like(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    if x.ndim != 2:
        raise node.unsupported(f"an operand of {x.ndim} dimensions is no matrix")
    to = node.get("dtype")
    dtype = dtype_of(x) if to is None else _named(node, to)
    return jnp.eye(*x.shape, k=node.get("k", 0), dtype=dtype)


@rule("Reshape", folds=True)
def _reshape(node: Node, x: Any, shape: Any = None) -> Any:
    dims = node.dims(1, "shape")
    if not node.get("allowzero", 0):
        dims = [x.shape[i] if n == 0 else n for i, n in enumerate(dims)]
    return node.xp.reshape(x, tuple(_filled(x.shape, dims)))


def _filled(before: Any, dims: list[Any]) -> list[Any]:
    """Sizes, of which one may be -1: what is left. With symbolic sizes it is a quotient, which JAX finds exact; sizes
    that are there before and behind are no part of it."""
    if all(isinstance(n, int) for n in (*before, *dims)) or not any(n == -1 for n in dims):
        return dims
    left, others = [*before], []
    for n in dims:
        same = next((i for i, m in enumerate(left) if str(m) == str(n)), None)
        if same is not None:
            left.pop(same)
        elif not isinstance(n, int) or n != -1:
            others.append(n)
    rest = quotient(math.prod(left), math.prod(others))
    return [rest if isinstance(n, int) and n == -1 else n for n in dims]


@rule("Flatten", folds=True)
def _flatten(node: Node, x: Any) -> Any:
    axis = node.get("axis", 1)
    axis = x.ndim if axis == x.ndim else node.place(axis, x.ndim)
    sides: list[Any] = [1, 1]
    for i, n in enumerate(x.shape):
        sides[i >= axis] = sides[i >= axis] * n
    return node.xp.reshape(x, tuple(sides))


@rule("Squeeze", folds=True)
def _squeeze(node: Node, x: Any, axes: Any = None) -> Any:
    given = node.axes(1)
    if given is None:
        given = [i for i, n in enumerate(x.shape) if n == 1]
    dropped = {*node.places(given, x.ndim)}
    wrong = next((a for a in dropped if x.shape[a] != 1), None)
    if wrong is not None and isinstance(x.shape[wrong], int):
        raise node.unsupported(
            f"dimension {wrong} is of size {x.shape[wrong]}, and only one of size 1 can be left out"
        )
    return node.xp.reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in dropped))


@rule("Unsqueeze", folds=True)
def _unsqueeze(node: Node, x: Any, axes: Any = None) -> Any:
    given = node.axes(1) or []
    rank = x.ndim + len(given)
    added = {*node.places(given, rank)}
    left = iter(x.shape)
    return node.xp.reshape(x, tuple(1 if i in added else next(left) for i in range(rank)))


@rule("Expand", folds=True)
def _expand(node: Node, x: Any, shape: Any) -> Any:
    wanted = node.dims(1)
    rank = max(x.ndim, len(wanted))
    own = [1] * (rank - x.ndim) + list(x.shape)
    wanted = [1] * (rank - len(wanted)) + wanted
    dims = tuple(a if b == 1 else b for a, b in zip(own, wanted, strict=True))
    xp = node.library(dims)
    return xp.broadcast_to(x if xp is np else as_traced(x), dims)


@rule("Tile", folds=True)
def _tile(node: Node, x: Any, repeats: Any) -> Any:
    repeats = node.dims(1)
    if len(repeats) != x.ndim:
        raise node.unsupported(f"{len(repeats)} repeats have no place in {x.ndim} dimensions")
    xp = node.library([n * r for n, r in zip(x.shape, repeats, strict=True)])
    node.library(repeats)  # refuses those below 0
    return xp.tile(x if xp is np else as_traced(x), tuple(repeats))
