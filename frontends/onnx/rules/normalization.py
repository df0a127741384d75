"""Normalisation: by statistics of batches, instances, layers and groups, by norms, and dropout.

Statistics of narrow floats are computed in f32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import dtype_named, is_float
from .reductions import wide
from .windows import per_channel


def _moments(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """x less its mean, the mean and the variance over axes, which stay."""
    import jax.numpy as jnp

    mean = jnp.mean(x, axes, keepdims=True)
    apart = x - mean
    return apart, mean, jnp.mean(apart * apart, axes, keepdims=True)


def _per_channel(p: Any, rank: int) -> Any:
    """A parameter of the channels, which are dimension 1, in f32 or wider; others as they are."""
    p = wide(p)
    return per_channel(p, rank) if p.ndim == 1 and rank > 1 else p


@rule("BatchNormalization")
def _batch_norm(node: Node, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    """Opsets before 14 train where there are more outputs; opset 7 may have statistics of each feature."""
    import jax

    trains = node.get("training_mode", 0) if node.version >= 14 else len(node.outputs) > 1
    parameters = [_per_channel(p, x.ndim) for p in (scale, bias, mean, variance)]
    own_scale, own_bias, own_mean, own_variance = parameters
    h, results = wide(x), ()
    if trains:
        axes = (0,) if mean.ndim > 1 else tuple(i for i in range(x.ndim) if i != 1)
        apart, current, spread = _moments(h, axes)
        results = _running(node, (mean, variance), (current, spread))
    else:
        apart, spread = h - own_mean, own_variance
    y = apart * (own_scale * jax.lax.rsqrt(spread + node.get("epsilon", 1e-5))) + own_bias
    return y.astype(x.dtype), *results


def _running(node: Node, before: tuple[Any, ...], current: tuple[Any, ...]) -> tuple[Any, ...]:
    """The further outputs in training: running statistics, and in opsets before 14 those of the batch, too."""
    momentum = node.get("momentum", 0.9)
    shaped = [c.reshape(b.shape) for b, c in zip(before, current, strict=True)]
    made = [wide(b) * momentum + c * (1 - momentum) for b, c in zip(before, shaped, strict=True)]
    dtypes = [b.dtype for b in before]
    both = made if node.version >= 14 else made + shaped
    return tuple(m.astype(t) for m, t in zip(both, dtypes * 2, strict=False))


@rule("InstanceNormalization")
def _instance_norm(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    import jax

    apart, _, variance = _moments(wide(x), tuple(range(2, x.ndim)))
    factor = _per_channel(scale, x.ndim) * jax.lax.rsqrt(variance + node.get("epsilon", 1e-5))
    return (apart * factor + _per_channel(bias, x.ndim)).astype(x.dtype)


def over_rms(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """x over the root of its mean square over axes."""
    import jax
    import jax.numpy as jnp

    return x * jax.lax.rsqrt(jnp.mean(x * x, axes, keepdims=True) + np.asarray(epsilon, x.dtype))


def _stash(node: Node) -> np.dtype[Any]:
    """The type in which statistics are computed."""
    number = node.get("stash_type", 1)
    dtype = dtype_named(number)
    if not is_float(np.zeros((), dtype)):
        raise node.unsupported(f"statistics are floats, and stash_type {number} is no type of floats")
    return dtype


def _last_axes(node: Node, x: Any) -> tuple[int, ...]:
    return tuple(range(node.place(node.get("axis", -1), x.ndim), x.ndim))


@rule("LayerNormalization")
def _layer_norm(node: Node, x: Any, scale: Any, bias: Any = None) -> Any:
    import jax

    apart, mean, variance = _moments(x.astype(_stash(node)), _last_axes(node, x))
    inverse = jax.lax.rsqrt(variance + node.get("epsilon", 1e-5))
    y = (apart * inverse).astype(x.dtype) * scale
    return (y if bias is None else y + bias), mean, inverse


@rule("RMSNormalization")
def _rms_norm(node: Node, x: Any, scale: Any) -> Any:
    y = over_rms(x.astype(_stash(node)), _last_axes(node, x), node.get("epsilon", 1e-5)).astype(x.dtype)
    return y.astype(scale.dtype) * scale


@rule("GroupNormalization")
def _group_norm(node: Node, x: Any, scale: Any, bias: Any) -> Any:
    """Opset 18 scales groups, and later ones channels."""
    import jax

    groups = node.get("num_groups")
    n, c, *rest = x.shape
    cells = x.reshape(n, groups, c // groups, *rest)
    h = cells.astype(_stash(node)) if node.version >= 21 else wide(cells)
    apart, _, variance = _moments(h, tuple(range(2, cells.ndim)))
    y = (apart * jax.lax.rsqrt(variance + node.get("epsilon", 1e-5))).astype(x.dtype)
    if node.version >= 21:
        y = y.reshape(x.shape)
    scale, bias = (per_channel(p, y.ndim) for p in (scale, bias))
    return (y * scale + bias).reshape(x.shape)


@rule("MeanVarianceNormalization")
def _mean_variance_norm(node: Node, x: Any) -> Any:
    """The body of the op subtracts squares, which may leave less than zero."""
    import jax.numpy as jnp

    apart, _, variance = _moments(wide(x), tuple(node.places(node.get("axes", (0, 2, 3)), x.ndim)))
    return (apart / (jnp.sqrt(variance) + 1e-9)).astype(x.dtype)


@rule("LpNormalization")
def _lp_norm(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    order, axis, h = node.get("p", 2), node.get("axis", -1), wide(x)
    sums = jnp.sum(h * h if order == 2 else jnp.abs(h), axis, keepdims=True)
    norm = jnp.sqrt(sums) if order == 2 else sums
    return jnp.where(norm == 0, jnp.zeros((), h.dtype), h / norm).astype(x.dtype)


@rule("LRN")
def _lrn(node: Node, x: Any) -> Any:
    import jax

    size, h = node.get("size"), wide(x)
    window, padding = [1] * x.ndim, [(0, 0)] * x.ndim
    window[1], padding[1] = size, ((size - 1) // 2, size // 2)
    sums = jax.lax.reduce_window(h * h, np.zeros((), h.dtype), jax.lax.add, window, [1] * x.ndim, padding)
    base = sums * (node.get("alpha", 1e-4) / size) + node.get("bias", 1.0)
    return (h * base ** -node.get("beta", 0.75)).astype(x.dtype)


@rule("Dropout")
def _dropout(node: Node, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """Opsets before 12 infer; the mask is of the type of x before opset 10."""
    import jax
    import jax.numpy as jnp

    kind = bool if node.version >= 10 else x.dtype
    trains = node.version >= 12 and bool(node.number(2, False))
    if not trains or (ratio is not None and node.number(1) == 0):
        return x, jnp.ones(x.shape, kind)
    rate = jnp.float32(0.5) if ratio is None else ratio.reshape(()).astype(jnp.float32)
    seed = node.get("seed")
    key = node.random() if seed is None else jax.random.key(int(seed))
    mask = jax.random.uniform(key, x.shape, jnp.float32) >= rate
    h = wide(x)
    scaled = h * (1 / (1 - rate)).astype(h.dtype)
    return jnp.where(mask, scaled, jnp.zeros((), h.dtype)).astype(x.dtype), mask
