"""Whole blocks of a net that add to a shortcut: without one, the net computes what the others add."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from .units import Units


class Blocks(Units):
    """The blocks of a net that are a list of trees at one path, such as "['blocks']"; each adds to a shortcut.

    A block whose parameters are all zero must add nothing. The function must take a shorter list.
    """

    renames = True

    def __init__(self, name: str) -> None:
        self.name = name

    def units(self, params: Any) -> int:
        """The number of blocks. Raises ValueError where the path is of no list."""
        return len(self.blocks(params))

    def blocks(self, params: Any) -> list[Any]:
        """The blocks. Raises ValueError where the path is of no list."""
        lists: list[Any] = []
        self._replaced(params, lambda blocks: lists.append(blocks) or blocks)
        if not lists or not isinstance(lists[0], list | tuple) or not lists[0]:
            raise ValueError(f"no list of blocks has the name {self.name}: write its path, as ['blocks']")
        return list(lists[0])

    def cut(self, params: Any, kept: Any) -> Any:
        """The tree with the blocks of `kept` only."""
        return self._replaced(params, lambda blocks: type(blocks)(blocks[int(i)] for i in kept))

    def blank(self, params: Any, kept: Any) -> Any:
        """The tree with zeros for all blocks but those of `kept`."""
        stay = {int(i) for i in kept}
        zeros = [jax.tree.map(jnp.zeros_like, block) for block in self.blocks(params)]
        return self._replaced(
            params, lambda blocks: type(blocks)(b if i in stay else zeros[i] for i, b in enumerate(blocks))
        )

    def magnitudes(self, params: Any) -> jax.Array:
        """`block_magnitude` of the blocks."""
        return block_magnitude(self.blocks(params))

    def step(self, params: Any, multiple: int) -> int:
        """1: a block is no element of an axis."""
        return 1

    def _replaced(self, params: Any, change: Any) -> Any:
        def at(path: Any, _: Any) -> bool:
            return jax.tree_util.keystr(path) == self.name

        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: change(leaf) if at(path, leaf) else leaf,
            params,
            is_leaf=at,
            is_leaf_takes_path=True,
        )


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
