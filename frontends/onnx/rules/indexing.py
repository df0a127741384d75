"""Ops that read and write elements at indices. Negative indices count from the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..node import Node
from ..table import rule
from ..values import is_float, is_known, is_sizes, is_text

MODE = "promise_in_bounds"
"""ONNX leaves indices outside of the bounds undefined."""


def check_indices(node: Node, i: int, size: Any) -> None:
    """Raises Unsupported where indices that are known, input i, are outside of a dimension of a size."""
    given = node.input(i)
    if isinstance(size, int) and is_known(given) and not is_sizes(given):
        for index in (given.min(initial=0), given.max(initial=0)) if given.size else ():
            if not -size <= index < size:
                raise node.unsupported(f"the index {index} is outside of a dimension of size {size}")


def _from_front(node: Node, i: int, indices: Any, size: Any) -> Any:
    """Indices, which are of input i, in a dimension of a size, none of them negative."""
    import jax.numpy as jnp

    given = node.inputs[i]
    if is_known(given) and not is_sizes(given) and (given >= 0).all():
        return indices
    return jnp.where(indices < 0, indices + size, indices)


def _grid(shape: Any, axis: int, indices: Any) -> tuple[Any, ...]:
    """The coordinates of the elements of a shape, with indices along an axis."""
    import jax

    return tuple(
        indices if i == axis else jax.lax.broadcasted_iota(indices.dtype, shape, i) for i in range(len(shape))
    )


@rule("GatherElements")
def _gather_elements(node: Node, x: Any, indices: Any) -> Any:
    import jax
    import jax.numpy as jnp

    axis = node.place(node.get("axis", 0), x.ndim)
    check_indices(node, 1, x.shape[axis])
    indices = _from_front(node, 1, indices, x.shape[axis])
    for i, n in enumerate(indices.shape):
        if i != axis and n != x.shape[i]:
            if node.by_data:  # as many as there are: that they are so many is for the model to know
                x = jnp.take(x, jnp.arange(n), i, mode="clip")
            else:
                x = jax.lax.slice_in_dim(x, 0, n, axis=i)
    return jnp.take_along_axis(x, indices, axis, mode=MODE)


def _tuples(node: Node, indices: Any, sizes: Any) -> tuple[Any, ...]:
    """The components of tuples of indices, which are input 1, for dimensions of these sizes."""
    if indices.shape[-1] > len(sizes):
        raise node.unsupported(f"{indices.shape[-1]} indices have no place in {len(sizes)} dimensions")
    given = node.input(1)
    for k, size in enumerate(sizes[: indices.shape[-1]]) if is_known(given) else ():
        check_indices(replace(node, inputs=[None, given[..., k]]), 1, size)
    parts = [indices[..., k] for k in range(indices.shape[-1])]
    return tuple(_from_front(node, 1, p, n) for p, n in zip(parts, sizes, strict=False))


@rule("GatherND")
def _gather_nd(node: Node, x: Any, indices: Any) -> Any:
    import jax

    batches = node.get("batch_dims", 0)
    parts = _tuples(node, indices, x.shape[batches:])
    shape = indices.shape[:-1]
    own = [jax.lax.broadcasted_iota(indices.dtype, shape, i) for i in range(batches)]
    return x.at[(*own, *parts)].get(mode=MODE, wrap_negative_indices=False)


UPDATES = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}
"""The reductions of scatters, and the functions of JAX that are these."""

LOGIC = {"add": "max", "mul": "min"}
"""What sums and products of bools are."""


def _scattered(node: Node, x: Any, index: tuple[Any, ...], updates: Any) -> Any:
    """x after updates at indices, none of them negative, as the reduction of a node says."""
    import jax.numpy as jnp

    how: str = node.get("reduction") or "none"
    kind = x.dtype
    if kind.kind == "b" and how != "none":
        x, updates, how = x.astype(jnp.uint8), updates.astype(jnp.uint8), LOGIC.get(how, how)
    write = getattr(x.at[index], UPDATES[how])
    return write(updates, mode=MODE, wrap_negative_indices=False).astype(kind)


@rule("Scatter", "ScatterElements")
def _scatter_elements(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    axis = node.place(node.get("axis", 0), x.ndim)
    check_indices(node, 1, x.shape[axis])
    indices = _from_front(node, 1, indices, x.shape[axis])
    return _scattered(node, x, _grid(indices.shape, axis, indices), updates)


@rule("ScatterND")
def _scatter_nd(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    return _scattered(node, x, _tuples(node, indices, x.shape), updates)


@rule("TensorScatter")
def _tensor_scatter(node: Node, cache: Any, update: Any, begin: Any = None) -> Any:
    """Each batch of the cache is written from its own place on."""
    import jax
    import jax.numpy as jnp

    axis = node.place(node.get("axis", -2), cache.ndim)
    circular = node.get("mode", "linear") == "circular"
    one = isinstance(cache.shape[0], int) and cache.shape[0] == 1
    if begin is None or (one and not circular):
        place = 0 if begin is None else begin.reshape(())
        return jax.lax.dynamic_update_slice_in_dim(cache, update, place, axis)
    places = begin[:, None] + jnp.arange(update.shape[axis], dtype=begin.dtype)
    places = places % cache.shape[axis] if circular else places
    batch = jax.lax.broadcasted_iota(places.dtype, places.shape, 0)
    index = (batch, *[slice(None)] * (axis - 1), places)
    return cache.at[index].set(jnp.moveaxis(update, axis, 1), mode=MODE, wrap_negative_indices=False)


@rule("OneHot")
def _one_hot(node: Node, indices: Any, depth: Any, values: Any) -> Any:
    import jax
    import jax.numpy as jnp

    if is_text(values):
        raise node.unsupported("text has no place on a device")
    count = node.number(1)
    count = int(count) if isinstance(count, float) else count
    axis = node.place(node.get("axis", -1), indices.ndim + 1)
    kind = jnp.float32 if indices.dtype.itemsize < 4 else indices.dtype
    own = indices.astype(kind if is_float(indices) else jnp.int64)
    own = jnp.expand_dims(_from_front(node, 0, own, count), axis)
    shape = (*indices.shape[:axis], count, *indices.shape[axis:])
    places = jax.lax.broadcasted_iota(jnp.int64, shape, axis).astype(own.dtype)
    return jnp.where(places == own, values[1], values[0])
