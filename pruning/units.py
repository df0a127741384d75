"""What can be removed of a net: units of one kind, each of which can go without the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from difflib import get_close_matches
from typing import Any

import jax
import jax.numpy as jnp


class Units(ABC):
    """Units of one kind in a tree of parameters, such as the channels of a layer or the blocks of a net."""

    renames = False
    """Whether the paths of what is kept change, so that other units have to be removed before."""

    @abstractmethod
    def units(self, params: Any) -> int:
        """The number of units. Raises ValueError where the parameters have no such units."""

    @abstractmethod
    def cut(self, params: Any, kept: Any) -> Any:
        """The tree with the units of `kept` only, int [k]."""

    @abstractmethod
    def blank(self, params: Any, kept: Any) -> Any:
        """The tree with zeros for all units but those of `kept`, in its shapes."""

    @abstractmethod
    def magnitudes(self, params: Any) -> jax.Array:
        """How important each unit is by its size, f32 [units]."""

    @abstractmethod
    def step(self, params: Any, multiple: int) -> int:
        """How many units are a multiple of `multiple` elements along each axis that they lie on."""


def named_leaves(tree: Any) -> dict[str, jax.Array]:
    """The arrays of a tree by `jax.tree_util.keystr` of their paths."""
    leaves, _ = jax.tree.flatten_with_path(tree)
    return {jax.tree_util.keystr(path): jnp.asarray(leaf) for path, leaf in leaves}


def leaf_of(named: dict[str, jax.Array], name: str) -> jax.Array:
    """The array of a name. Raises ValueError, with the name that may be meant, where there is none."""
    if name not in named:
        near = get_close_matches(name, named, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(named))}"
        raise ValueError(f"no parameter has the name {name}; {hint}")
    return named[name]
