"""Ops that select elements by their values: the largest, the distinct, those that are not zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...bounding import begins, compressed, coordinates, first, packed
from ..node import Node
from ..table import rule
from ..values import is_float, is_known, smaller


@rule("TopK")
def _top_k(node: Node, x: Any, k: Any = None) -> Any:
    """Of equal elements the first comes first, and all are sorted, whether they have to be or not. Zeros are equal, and
    so are NaNs, which are above all numbers."""
    import jax
    import jax.numpy as jnp

    count = node.get("k") if k is None else node.number(1)
    axis = node.place(node.get("axis", -1), x.ndim)
    rows, size = jnp.moveaxis(x, axis, -1), x.shape[axis]
    if isinstance(count, int) and not 0 <= count <= (size if isinstance(size, int) else count):
        raise node.unsupported(f"it takes {count} of {size} elements")
    if node.get("largest", 1) and not is_float(x):
        values, places = jax.lax.top_k(rows, count)
    else:
        numbers = jax.lax.broadcasted_iota(jnp.int32, rows.shape, x.ndim - 1)
        # reversed before and behind, a stable sort is a stable one in the other order
        turn = (lambda v: jnp.flip(v, -1)) if node.get("largest", 1) else (lambda v: v)
        ordered = jax.lax.sort((turn(rows), turn(numbers)), dimension=-1, is_stable=True, num_keys=1)
        values, places = (turn(v)[..., :count] for v in ordered)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(places, -1, axis).astype(jnp.int64)


@rule("NonZero", folds=True)
def _non_zero(node: Node, x: Any) -> Any:
    """The coordinates [rank, n] in row-major order; [0, n] of a number."""
    if node.xp is np:
        return np.stack(np.nonzero(x)) if x.ndim else np.zeros((0, int(x != 0)), np.int64)
    import jax.numpy as jnp

    flat = x.reshape(-1) != 0
    (places,), count = packed(flat, [jnp.arange(flat.shape[0], dtype=jnp.int64)])
    if not x.ndim:
        return first(jnp.zeros((0, 1), jnp.int64), count, 1)
    if any(isinstance(n, int) and not n for n in x.shape):
        return first(jnp.zeros((x.ndim, 0), jnp.int64), 0, 1)
    return first(jnp.stack(coordinates(places, x.shape)), count, 1)


@rule("Compress")
def _compress(node: Node, x: Any, condition: Any) -> Any:
    """Slices that a condition is true for; those behind its end are left out."""
    import jax.numpy as jnp

    axis = node.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = node.place(axis, x.ndim)
    if is_known(node.inputs[1]):
        return jnp.take(x, np.flatnonzero(node.inputs[1]), axis)
    rows, size = jnp.moveaxis(x, axis, 0), condition.shape[0]
    if size != rows.shape[0]:
        least = smaller(size, rows.shape[0])
        rows, condition = rows[:least], condition[:least]
    (made,) = compressed(condition, [rows], axis)
    return made


@rule("Unique")
def _unique(node: Node, x: Any) -> Any:
    """The distinct elements, or slices along an axis; where each occurs first, which of them is at each place of x, and
    how often each occurs."""
    import jax.numpy as jnp

    axis = node.get("axis")
    rows = jnp.reshape(x, -1) if axis is None else jnp.moveaxis(x, axis, 0)
    to = 0 if axis is None else node.place(axis, x.ndim)
    n = rows.shape[0]
    numbers = jnp.arange(n, dtype=jnp.int64)
    if isinstance(n, int) and not n:
        made = [first(numbers, 0) for _ in range(3)]
        return jnp.moveaxis(rows, 0, to), made[0], numbers, made[2]
    order = _order(rows)
    ordered = rows[order]
    leads = begins(ordered)
    group = jnp.cumsum(leads, dtype=jnp.int64) - 1
    if node.get("sorted", 1):
        mask, places, inverse = leads, order, jnp.zeros_like(order).at[order].set(group)
    else:  # groups are numbered by their first elements, which are the first in a stable order
        leaders = jnp.zeros_like(order).at[jnp.where(leads, group, n)].set(order, mode="drop")
        leader = jnp.zeros_like(order).at[order].set(leaders[group])
        mask, places, ordered = leader == numbers, numbers, rows
        inverse = (jnp.cumsum(mask, dtype=jnp.int64) - 1)[leader]
    (made,) = compressed(mask, [ordered], to)
    (indices,), count = packed(mask, [places])
    counts = jnp.zeros(n, jnp.int64).at[inverse].add(1)
    return made, first(indices, count), inverse, first(counts, count)


def _order(rows: Any) -> Any:
    """The i64 places of rows in ascending order, compared from the first element on; equal ones keep theirs."""
    import jax
    import jax.numpy as jnp

    numbers = jnp.arange(rows.shape[0], dtype=jnp.int64)

    def sorted_by(keys: Any, order: Any) -> Any:
        return jax.lax.sort((keys, order), num_keys=1, is_stable=True)[1]

    if rows.ndim == 1:
        return sorted_by(rows, numbers)
    columns = rows.reshape(rows.shape[0], -1).T
    last = columns.shape[0] - 1

    def step(i: Any, order: Any) -> Any:
        return sorted_by(columns[last - i][order], order)

    return jax.lax.fori_loop(0, columns.shape[0], step, numbers)
