"""Dynamic loss scaling (Micikevicius et al. 2018, "Mixed precision training", section 3.2).

f16 has no numbers between 0 and 6e-8, and gradients are often smaller. The loss is multiplied by a scale, so all
gradients are; they are divided by it in f32. A scale that is too large makes some gradient infinite: that step is
skipped and the scale is halved. After enough steps without that it is doubled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

LARGEST = 2.0**126
"""A larger scale has no reciprocal among f32's normal numbers."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LossScale:
    """A loss scale and how it changes: a pytree of two scalars, whose other fields are static.

    Attributes:
        scale: f32 [], what the loss is multiplied by.
        good_steps: int32 [], steps without an overflow since the scale last changed.
        period: after so many of them the scale is multiplied by `factor`.
        factor: what the scale is multiplied or divided by. Of a power of two nothing is rounded.
        smallest: the scale is never below it.
        largest: the scale is never above it.
    """

    scale: jax.Array
    good_steps: jax.Array
    period: int = field(metadata={"static": True})
    factor: float = field(metadata={"static": True})
    smallest: float = field(metadata={"static": True})
    largest: float = field(metadata={"static": True})

    def unscale(self, tree: Any) -> Any:
        """A tree of gradients divided by the scale. f16, bf16 and smaller become f32, since the quotients may be too
        small for them."""
        inverse = 1 / self.scale
        return jax.tree.map(lambda g: _widened(g) * inverse, tree)

    def adjust(self, finite: jax.Array) -> LossScale:
        """The scale after a step. finite: bool [], whether all of its gradients were finite."""
        full = self.good_steps + 1 >= self.period
        larger = jnp.minimum(self.scale * self.factor, self.largest)
        smaller = jnp.maximum(self.scale / self.factor, self.smallest)
        scale = jnp.where(finite, jnp.where(full, larger, self.scale), smaller)
        good_steps = jnp.where(finite & ~full, self.good_steps + 1, 0)
        return replace(self, scale=scale, good_steps=good_steps)


def loss_scale(
    initial: float = 2.0**15,
    period: int = 2000,
    factor: float = 2.0,
    smallest: float = 1.0,
    largest: float = 2.0**24,
) -> LossScale:
    """The loss scale before the first step; the parameters are those of `LossScale`.

    With `initial`, `smallest` and `largest` equal, the scale stays. Raises ValueError where the numbers do not fit
    each other.
    """
    if not 0 < smallest <= initial <= largest <= LARGEST:
        raise ValueError(
            f"a loss scale of {initial:g} between {smallest:g} and {largest:g} is none: say numbers with 0 < smallest "
            f"<= initial <= largest <= 2**126"
        )
    if period < 1 or not (factor > 1 and math.isfinite(factor)):
        raise ValueError(
            f"a loss scale needs a period of 1 or more, not {period}, and a finite factor above 1, not {factor:g}"
        )
    return LossScale(
        jnp.float32(initial), jnp.int32(0), period=period, factor=factor, smallest=smallest, largest=largest
    )


def scaled_grad(loss: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of `loss(params, *batch)` with respect to `params`, through a scaled loss.

    The function that is returned takes (scale, params, *batch) and gives what `jax.grad(loss, has_aux=has_aux)` gives
    for (params, *batch), with gradients in f32 at least (`LossScale.unscale`). Where the scale is too large for the
    types in which gradients are computed, some of them are infinite or NaN.
    """
    both = scaled_value_and_grad(loss, has_aux)

    def gradient(scale: LossScale, params: Any, *batch: Any) -> Any:
        value, grads = both(scale, params, *batch)
        return (grads, value[1]) if has_aux else grads

    return gradient


def scaled_value_and_grad(loss: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
    """As `scaled_grad`, for `jax.value_and_grad`: the function gives the loss, not scaled, and the gradient; with
    has_aux `((loss, aux), gradient)`."""

    def scaled(params: Any, scale: LossScale, *batch: Any) -> tuple[jax.Array, Any]:
        result = loss(params, *batch)
        value = result[0] if has_aux else result
        # The loss itself is multiplied in f32: in f16 it would overflow long before its gradients do.
        return _widened(value) * scale.scale, result

    def both(scale: LossScale, params: Any, *batch: Any) -> Any:
        grads, result = jax.grad(scaled, has_aux=True)(params, scale, *batch)
        return result, scale.unscale(grads)

    return both


def all_finite(tree: Any) -> jax.Array:
    """Whether all numbers of a tree are finite, bool []. Integers are."""
    flags = [
        jnp.all(jnp.isfinite(x))
        for x in jax.tree.leaves(tree)
        if jnp.issubdtype(jnp.result_type(x), jnp.inexact)
    ]
    if not flags:
        return jnp.bool_(True)
    result = flags[0]
    for flag in flags[1:]:
        result = result & flag
    return result


def select_tree(condition: jax.Array, new: Any, old: Any) -> Any:
    """`new` where the condition, bool [], holds, and `old` where not. Raises TypeError where the trees differ in
    structure, or two leaves in shape or dtype: one of them would change the other."""

    def chosen(path: Any, a: Any, b: Any) -> jax.Array:
        a, b = jnp.asarray(a), jnp.asarray(b)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            place = jax.tree_util.keystr(path) or "the result"
            raise TypeError(
                f"{place} is {b.dtype}{list(b.shape)} before the step and {a.dtype}{list(a.shape)} after it: let the "
                "step keep shapes and dtypes"
            )
        return jnp.where(condition, a, b)

    before, after = jax.tree.structure(old), jax.tree.structure(new)
    if before != after:
        raise TypeError(f"the step makes {after} of {before}: let it keep the structure")
    return jax.tree.map_with_path(chosen, new, old)


def step_if_finite(update: Callable[..., Any]) -> Callable[..., tuple[LossScale, Any, jax.Array]]:
    """A step of an optimizer that an overflow skips.

    update: makes the next state of (state, grads, *more): parameters, moments, counters, any tree. The function that
    is returned takes (scale, state, grads, *more) and gives (scale, state, finite). Where a gradient is infinite or
    NaN, finite (bool []) is false, the state is the one before and the scale is smaller. Nothing is asked of the
    host: both states are computed and one is selected. Raises TypeError where `update` changes the structure of the
    state, or a shape or dtype in it.
    """

    def step(scale: LossScale, state: Any, grads: Any, *more: Any) -> tuple[LossScale, Any, jax.Array]:
        finite = all_finite(grads)
        return scale.adjust(finite), select_tree(finite, update(state, grads, *more), state), finite

    return step


def _widened(x: Any) -> jax.Array:
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
