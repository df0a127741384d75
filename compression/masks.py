"""Masks that keep n of m neighbours, such as the 2 of 4 that sparse matrix units skip the others of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def n_of_m(importance: jax.Array, n: int, m: int, axis: int = 0) -> jax.Array:
    """A mask, bool of the shape of `importance`: of each m neighbours along `axis` the n largest in magnitude, of equal
    ones the first.

    importance: weights, or gradient times weight. axis: the one that a product sums over. Raises ValueError where m
    does not divide it, or n is not from 1 to m.
    """
    if not 0 < n <= m:
        raise ValueError(f"cannot keep {n} of {m}: say 1 to {m}")
    size = importance.shape[axis]
    if size % m:
        raise ValueError(
            f"axis {axis} of {list(importance.shape)} has no whole groups of {m}: leave this array dense"
        )
    moved = jnp.moveaxis(jnp.abs(importance), axis, -1)
    groups = moved.reshape(*moved.shape[:-1], size // m, m)
    mine, other = groups[..., :, None], groups[..., None, :]
    earlier = jnp.tril(jnp.ones((m, m), bool), -1)
    before = jnp.sum((other > mine) | ((other == mine) & earlier), axis=-1)
    return jnp.moveaxis((before < n).reshape(moved.shape), -1, axis)


def two_of_four(importance: jax.Array, axis: int = 0) -> jax.Array:
    """`n_of_m` with 2 of 4 (Mishra et al. 2021, "Accelerating sparse deep neural networks")."""
    return n_of_m(importance, 2, 4, axis)


def masked(params: Any, masks: Any) -> Any:
    """The parameters with zeros where their mask is false. masks: a tree of the same structure, with None for what
    has no mask. Called in the forward function, it keeps gradients of zeroed numbers at zero."""
    return jax.tree.map(
        lambda mask, p: p if mask is None else jnp.where(mask, p, jnp.zeros((), p.dtype)),
        masks,
        params,
        is_leaf=lambda x: x is None,
    )
