"""Whole blocks of a net that add to a shortcut: without one, the net computes what the others add."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp


def block_magnitude(blocks: Sequence[Any]) -> jax.Array:
    """The root of the mean square of each block's parameters, f32 [n]. blocks: a tree of arrays each."""
    return jnp.stack(
        [jnp.sqrt(_mean(jax.tree.map(lambda p: jnp.square(_f32(p)), block))) for block in blocks]
    )


def block_taylor(blocks: Sequence[Any], grads: Sequence[Any]) -> jax.Array:
    """The magnitude of gradient times parameter, summed over each block, f32 [n]: to first order, how much the loss
    changes if all parameters of the block become zero. grads: the gradients of the blocks."""
    products = [
        jax.tree.map(lambda p, g: jnp.sum(_f32(p) * _f32(g)), b, g)
        for b, g in zip(blocks, grads, strict=True)
    ]
    return jnp.abs(jnp.stack([jnp.sum(jnp.stack(jax.tree.leaves(p))) for p in products]))


def block_influence(states: Sequence[jax.Array] | jax.Array) -> jax.Array:
    """How much each block turns what it is given, f32 [n]: 1 less the cosine between its input and its result, mean
    over all rows (Men et al. 2024, "ShortGPT").

    states: n + 1 arrays [..., d], what the first block is given and what each block gives.
    """
    wide = [_f32(x) for x in states]
    if len(wide) < 2:
        raise ValueError(
            "the influence of blocks needs what the first is given and what each gives: 2 arrays or more"
        )

    def turned(a: jax.Array, b: jax.Array) -> jax.Array:
        lengths = jnp.sqrt(jnp.sum(a * a, axis=-1) * jnp.sum(b * b, axis=-1))
        return 1 - jnp.mean(jnp.sum(a * b, axis=-1) / jnp.maximum(lengths, 1e-30))

    return jnp.stack([turned(a, b) for a, b in pairwise(wide)])


def without_blocks(blocks: Sequence[Any], removed: Sequence[int]) -> list[Any]:
    """The blocks but for those with the numbers of `removed`. Raises ValueError for a number that no block has, and
    where none would be left."""
    wrong = [i for i in removed if not 0 <= i < len(blocks)]
    if wrong or len({*removed}) == len(blocks):
        raise ValueError(
            f"cannot remove blocks {list(removed)} of {len(blocks)}: say some from 0 to {len(blocks) - 1}, not all"
        )
    return [block for i, block in enumerate(blocks) if i not in {*removed}]


def _f32(x: Any) -> jax.Array:
    return jnp.asarray(x).astype(jnp.float32)


def _mean(tree: Any) -> jax.Array:
    leaves = jax.tree.leaves(tree)
    return sum((jnp.sum(x) for x in leaves), jnp.float32(0)) / max(1, sum(x.size for x in leaves))
