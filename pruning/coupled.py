"""Structured pruning: units (channels, neurons, heads) that several arrays share, and nets with fewer of them.

A channel is a slice of the filter that makes it, of its bias, and of each filter that reads it; a head is a block of
columns of three products and a block of rows of a fourth. `Coupled` says which axes of which arrays these are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .units import Units, leaf_of, named_leaves

Axis = tuple[str, int] | tuple[str, int, int]
"""The name of an array, one of its axes, and how many times all units are repeated along it (1 if left out)."""


class Coupled(Units):
    """Axes of arrays that have one set of units, which can only be removed together.

    axes: (name, axis) or (name, axis, repeats) each. A name is a path as `jax.tree_util.keystr` writes it
    ("['blocks'][0]['attention']['q']"). Along an axis lie `repeats` times all units, and each unit may be a block of
    neighbours: an axis has repeats * units * size elements. repeats is 1 if left out; a convolution's result
    [n, h, w, c] that is flattened before a product has its channels h * w times.
    units: how many there are, such as the number of heads; None: each element of the first axis is one (of those
    repeated, each element of the first repeat).

    Two examples:

        Coupled([("['conv1']", 3), ("['bias1']", 0), ("['conv2']", 2)])
        Coupled([("['q']", 1), ("['k']", 1), ("['v']", 1), ("['out']", 0)], units=4)
    """

    def __init__(self, axes: Sequence[Axis], units: int | None = None) -> None:
        if not axes:
            raise ValueError("coupled axes are none: name at least one array and its axis")
        self.axes = [(a[0], a[1], a[2] if len(a) == 3 else 1) for a in axes]
        self._units = units
        for name, axis, repeats in self.axes:
            if repeats < 1:
                raise ValueError(f"axis {axis} of {name} has its units {repeats} times: say 1 or more")
        if len({(name, axis) for name, axis, _ in self.axes}) < len(self.axes):
            raise ValueError("an axis is coupled with itself: name each once")

    def units(self, params: Any) -> int:
        """The number of units. Raises ValueError where an array is not there or its axis has not the units."""
        return self.views(params)[1]

    def views(self, params: Any) -> tuple[dict[str, jax.Array], int]:
        """The arrays by name, and the number of units. Raises ValueError as `units`."""
        named = named_leaves(params)
        arrays = {name: leaf_of(named, name) for name, _, _ in self.axes}
        first, axis, repeats = self.axes[0]
        for name, where, _ in self.axes:
            if not -arrays[name].ndim <= where < arrays[name].ndim:
                raise ValueError(f"{name} {list(arrays[name].shape)} has no axis {where}")
        units = self._units or arrays[first].shape[axis] // repeats
        for name, where, times in self.axes:
            size = arrays[name].shape[where]
            if not units or size % (units * times):
                raise ValueError(
                    f"axis {where} of {name} has {size} elements, which are not {times} times {units} units: say how "
                    "often they are repeated, or how many units there are"
                )
        return arrays, units

    def rows(self, params: Any) -> list[tuple[str, jax.Array]]:
        """Each coupled axis as an array [units, elements] of what belongs to each unit, with its name."""
        arrays, units = self.views(params)
        found = []
        for name, axis, repeats in self.axes:
            array = jnp.moveaxis(arrays[name], axis, 0)
            split = array.reshape(repeats, units, -1)
            found.append((name, jnp.moveaxis(split, 1, 0).reshape(units, -1)))
        return found

    def cut(self, params: Any, kept: Any) -> Any:
        """`prune` of these units."""
        return prune(params, self, kept)

    def blank(self, params: Any, kept: Any) -> Any:
        """`zeroed` of these units."""
        return zeroed(params, self, kept)

    def magnitudes(self, params: Any) -> jax.Array:
        """`magnitude` of these units."""
        return magnitude(params, self)

    def step(self, params: Any, multiple: int) -> int:
        """How many units are a multiple of `multiple` elements along each of the axes."""
        arrays, units = self.views(params)
        sizes = [arrays[name].shape[axis] // (units * repeats) for name, axis, repeats in self.axes]
        return math.lcm(*(multiple // math.gcd(multiple, size) for size in sizes))


def magnitude(params: Any, coupled: Coupled) -> jax.Array:
    """How important each unit is, by the root of the sum of the squares of all that belongs to it, f32 [units].

    An array with two coupled axes counts for both. Raises ValueError as `Coupled.units`.
    """
    return jnp.sqrt(sum(jnp.sum(_squares(rows), axis=1) for _, rows in coupled.rows(params)))


def taylor(params: Any, grads: Any, coupled: Coupled, of: Sequence[str] | None = None) -> jax.Array:
    """How much the loss changes without each unit, to first order, f32 [units]: the magnitude of the sum of gradient
    times parameter over what reads the unit.

    That sum is the derivative of the loss by a factor of the unit's value, whatever makes the value: of a channel
    (Molchanov et al. 2017, equation 8) or of a head (Michel et al. 2019, equation 2). grads: the tree of the gradient
    of a loss with respect to `params`. Means of the result over several batches are better than the result of one
    gradient of all, in which opposite signs cancel. of: the arrays that read the units, by name; None: those coupled
    along another axis than their last, as [in, out] matrices and filters [h, w, in, out] read theirs. Raises
    ValueError as `Coupled.units`, and where no array is left to sum.
    """
    _, units = coupled.views(params)
    total = jnp.zeros(units, jnp.float32)
    used = 0
    for (name, axis, _), (_, p), (_, g) in zip(
        coupled.axes, coupled.rows(params), coupled.rows(grads), strict=True
    ):
        rank = jnp.ndim(leaf_of(named_leaves(params), name))
        if name in of if of is not None else axis % rank != rank - 1:
            total += jnp.sum(p.astype(jnp.float32) * g.astype(jnp.float32), axis=1)
            used += 1
    if not used:
        names = ", ".join(name for name, _, _ in coupled.axes)
        raise ValueError(f"nothing is known to read the units: name in `of` those that do, of {names}")
    return jnp.abs(total)


def best(importance: jax.Array, keep: int) -> jax.Array:
    """The units to keep, int32 [keep] in ascending order: the most important ones, of equal ones the first. Raises
    ValueError where there are not so many."""
    if not 0 < keep <= importance.shape[0]:
        raise ValueError(
            f"{importance.shape[0]} units: say how many to keep from 1 to {importance.shape[0]}, not {keep}"
        )
    return jnp.sort(jax.lax.top_k(importance, keep)[1].astype(jnp.int32))


def prune(params: Any, coupled: Coupled, kept: Any) -> Any:
    """The tree with the units of `kept` only, in this order, in all coupled arrays; others are as they were.

    kept: int [k], numbers of units. Raises ValueError as `Coupled.units`.
    """

    def cut(array: jax.Array, axis: int, repeats: int, units: int) -> jax.Array:
        moved = jnp.moveaxis(array, axis, 0)
        split = moved.reshape(repeats, units, moved.shape[0] // (repeats * units), *moved.shape[1:])
        chosen = jnp.take(split, jnp.asarray(kept), axis=1)
        return jnp.moveaxis(chosen.reshape(-1, *moved.shape[1:]), 0, axis)

    return _changed(params, coupled, cut)


def zeroed(params: Any, coupled: Coupled, kept: Any) -> Any:
    """The tree with zeros for all units but those of `kept`, in all coupled arrays: what `prune` makes of it computes
    the same, at full size. Raises ValueError as `Coupled.units`."""

    def cut(array: jax.Array, axis: int, repeats: int, units: int) -> jax.Array:
        keeps = jnp.zeros(units, bool).at[jnp.asarray(kept)].set(True)
        size = array.shape[axis] // (repeats * units)
        wide = jnp.tile(jnp.repeat(keeps, size), repeats)
        shape = [1] * array.ndim
        shape[axis] = -1
        return jnp.where(wide.reshape(shape), array, jnp.zeros((), array.dtype))

    return _changed(params, coupled, cut)


def _changed(params: Any, coupled: Coupled, change: Callable[..., jax.Array]) -> Any:
    """The tree with each coupled array changed along each of its coupled axes."""
    arrays, units = coupled.views(params)
    for name, axis, repeats in coupled.axes:
        arrays[name] = change(arrays[name], axis, repeats, units)
    return jax.tree.map_with_path(lambda path, leaf: arrays.get(jax.tree_util.keystr(path), leaf), params)


def _squares(x: jax.Array) -> jax.Array:
    return jnp.square(x.astype(jnp.float32))
