"""Rounding and scales that are learned from data: AdaRound and LSQ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from .rounding import fake, grid, quantize, spread

STRETCH = (-0.1, 1.1)
"""What the sigmoid is stretched to before it is clipped to 0 and 1 (Nagel et al. 2020, below eq. 23)."""

SHARPNESS = (20.0, 2.0)
"""The exponent of the regulariser, at its begin and at the end."""

WARM_UP = 0.2
"""Fraction of the steps before the regulariser counts."""

Layer = Callable[[jax.Array, Any], jax.Array]
"""Outputs of a layer, from its weight and a batch of its inputs."""


class LearnedRounding(NamedTuple):
    """Integers whose rounding was learned. Errors are mean squares over all outputs that were given; learning is no
    gain where `error` is not below `nearest_error`."""

    q: jax.Array  # i8 (i32 for ranges beyond it), the weight's shape
    error: float
    nearest_error: float


def matrix_product(w: jax.Array, x: Any) -> jax.Array:
    """A layer that is a product."""
    return jnp.matmul(x, w)


def learn_rounding(
    w: ArrayLike,
    scale: ArrayLike,
    inputs: Any,
    outputs: ArrayLike,
    layer: Layer = matrix_product,
    stored: tuple[float, float] = (-7, 7),
    steps: int = 2000,
    batch: int = 32,
    rate: float = 0.01,
    weight: float = 300.0,
    seed: int = 0,
) -> LearnedRounding:
    """Which elements of w are rounded up and which down, learned so that the layer's outputs are those given (AdaRound,
    Nagel et al. 2020, eq. 21 to 25).

    The weight is scale * clip(floor(w / scale) + h(v), stored), where h is a sigmoid, stretched and clipped to 0 and 1.
    v is learned by Adam on the squared error of the outputs, in units of that of rounding to nearest, plus `weight`
    times the mean of 1 - |2 h - 1| ** b, whose exponent b falls in the course. With a weight below some 100, elements
    are still undecided at the end, and rounding them undoes what was learned.

    scale: numbers in the rank of w, as everywhere. inputs: an array, or a pytree of them, [examples, ...]; outputs:
    what the float layer yields, [examples, ...], after its activation if the layer has one. layer: a traceable
    function; it may hold the activation and other weights, and is compiled once. batch: examples of a step. Raises
    ValueError without examples, for different numbers of them and where outputs or weights are not finite.
    """
    w = jnp.asarray(w).astype(jnp.float32)
    outputs = jnp.asarray(outputs).astype(jnp.float32)
    many = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(inputs)} | {outputs.shape[:1]}
    if many == {()} or len(many) != 1 or not outputs.size or not w.size:
        raise ValueError(
            "rounding is learned from inputs and outputs of the same examples along their first dimension: "
            f"give as many of each, and at least one, not {sorted(many)}"
        )
    if steps < 1 or batch < 1:
        raise ValueError(
            f"rounding cannot be learned in {steps} steps of {batch} examples: give at least one of each"
        )
    if not bool(jnp.all(jnp.isfinite(w)) & jnp.all(jnp.isfinite(outputs))):
        raise ValueError("a weight or an output has NaN or infinity: leave it out")
    unit = spread(scale, w.shape)
    inputs = jax.tree.map(jnp.asarray, inputs)
    at_nearest = quantize(w, scale, 0, *stored)
    before = _error(at_nearest * unit, inputs, outputs, layer, batch)
    if before == 0:
        return LearnedRounding(at_nearest, 0.0, 0.0)
    low, high = float(stored[0]), float(stored[1])
    settings = (steps, min(batch, len(outputs)), rate, weight)
    v = _learn(
        w, unit, inputs, outputs, jax.random.key(seed), jnp.float32(before), layer, (low, high), settings
    )
    q = jnp.clip(jnp.floor(w / unit) + (_rectified(v) >= 0.5), low, high).astype(at_nearest.dtype)
    return LearnedRounding(q, _error(q * unit, inputs, outputs, layer, batch), before)


def learned_scale(
    x: ArrayLike,
    scale: ArrayLike,
    zero: ArrayLike = 0,
    low: float = -127,
    high: float = 127,
) -> jax.Array:
    """`fake` whose gradient for the scale is that of LSQ (Esser et al. 2020, eq. 3), times 1 / sqrt(n * high) for
    scales that n elements share (section 2.2), so that scales and weights are learned at one rate. Keep scales above
    0: learn their logarithm, or clip them after each step."""
    x = jnp.asarray(x)
    share = x.size / max(jnp.size(scale), 1)
    return fake(
        x, _weighed(jnp.asarray(scale, jnp.float32), 1 / math.sqrt(max(share * high, 1))), zero, low, high
    )


def first_scale(x: ArrayLike, high: float, blocks: Sequence[tuple[int, int]] = ()) -> jax.Array:
    """What `learned_scale` begins with: 2 mean|x| / sqrt(high) for each block (Esser et al. 2020, section 2.1), and 1
    for one of zeros; f32, shaped as `rounding.grid` says."""
    x = jnp.asarray(x).astype(jnp.float32)
    shape = grid(x.shape, blocks)
    split = jnp.abs(x).reshape([part for n, s in zip(x.shape, shape) for part in (s, n // s)])
    mean = jnp.mean(split, axis=tuple(range(1, split.ndim, 2))).reshape(shape)
    return jnp.where(mean > 0, jnp.maximum(2 * mean / math.sqrt(high), 2.0**-126), 1.0)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _weighed(x: jax.Array, factor: float) -> jax.Array:
    """x, with a gradient that is multiplied by a factor."""
    return x


@_weighed.defjvp
def _weighed_jvp(
    factor: float, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return primals[0], tangents[0] * factor


def _rectified(v: jax.Array) -> jax.Array:
    """How far each element is rounded up (Nagel et al. 2020, eq. 23)."""
    least, most = STRETCH
    return jnp.clip(jax.nn.sigmoid(v) * (most - least) + least, 0, 1)


def _error(w: jax.Array, inputs: Any, outputs: jax.Array, layer: Layer, batch: int) -> float:
    """The mean squared error of a layer's outputs, batch by batch."""
    total = 0.0
    for first in range(0, len(outputs), batch):
        part = jax.tree.map(lambda leaf: leaf[first : first + batch], inputs)  # noqa: B023
        total += float(_squares(w, part, outputs[first : first + batch], layer))
    return total / outputs.size


@partial(jax.jit, static_argnums=3)
def _squares(w: jax.Array, inputs: Any, outputs: jax.Array, layer: Layer) -> jax.Array:
    return jnp.sum((layer(w, inputs).astype(jnp.float32) - outputs) ** 2)


@partial(jax.jit, static_argnums=(6, 7, 8))
def _learn(
    w: jax.Array,
    unit: jax.Array,
    inputs: Any,
    outputs: jax.Array,
    key: jax.Array,
    before: jax.Array,
    layer: Layer,
    stored: tuple[float, float],
    settings: tuple[int, int, float, float],
) -> jax.Array:
    """The learned v."""
    steps, batch, rate, weight = settings
    floor = jnp.floor(w / unit)
    least, most = STRETCH
    # h(v) begins as what rounding down leaves, so the weight begins as itself
    v = -jnp.log((most - least) / (jnp.clip(w / unit - floor, 0, 1) - least) - 1)

    def loss(v: jax.Array, x: Any, y: jax.Array, done: jax.Array) -> jax.Array:
        up = _rectified(v)
        soft = jnp.clip(floor + up, *stored) * unit
        apart = jnp.mean((layer(soft, x).astype(jnp.float32) - y) ** 2) / before
        course = jnp.clip((done - WARM_UP) / (1 - WARM_UP), 0, 1)
        sharpness = SHARPNESS[1] + (SHARPNESS[0] - SHARPNESS[1]) * (1 + jnp.cos(jnp.pi * course)) / 2
        undecided = jnp.mean(1 - jnp.abs(2 * up - 1) ** sharpness)
        return apart + jnp.where(done < WARM_UP, 0, weight) * undecided

    def step(
        i: jax.Array, state: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        v, first, second = state
        at = jax.random.randint(jax.random.fold_in(key, i), (batch,), 0, len(outputs))
        slope = jax.grad(loss)(v, jax.tree.map(lambda leaf: leaf[at], inputs), outputs[at], i / steps)
        # Adam: Kingma and Ba 2015, algorithm 1. The loss is a mean: its slopes are far below the usual 1e-8
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        ahead = first / (1 - 0.9 ** (i + 1))
        return v - rate * ahead / (jnp.sqrt(second / (1 - 0.999 ** (i + 1))) + 1e-20), first, second

    return jax.lax.fori_loop(0, steps, step, (v, jnp.zeros_like(v), jnp.zeros_like(v)))[0]
