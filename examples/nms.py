"""Non-maximum suppression of detected boxes in plain JAX: `forward` and `tiny`."""

import jax
import jax.numpy as jnp
import numpy as np

THRESHOLD = 0.5


def overlap(boxes: jax.Array) -> jax.Array:
    """Intersection over union of every pair, f32 [n, n]; boxes f32 [n, 4] as y0, x0, y1, x1."""
    low = jnp.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = jnp.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = jnp.prod(jnp.maximum(high - low, 0), axis=-1)
    area = jnp.prod(boxes[:, 2:] - boxes[:, :2], axis=-1)
    return shared / (area[:, None] + area[None, :] - shared)


def suppress(boxes: jax.Array, scores: jax.Array, n_out: int) -> tuple[jax.Array, jax.Array]:
    """The best `n_out` boxes that overlap no better one by more than the threshold, and their scores.

    boxes f32 [n, 4], scores f32 [n]; where fewer are left, the rest has score 0 and is zero.
    """
    order = jnp.argsort(-scores)
    boxes, scores = boxes[order], scores[order]
    worse = jnp.triu(jnp.ones((len(order), len(order)), bool), 1)
    hides = (overlap(boxes) > THRESHOLD) & worse

    def visit(i: jax.Array, kept: jax.Array) -> jax.Array:
        return kept & ~(hides[i] & kept[i])

    kept = jax.lax.fori_loop(0, len(order), visit, jnp.ones(len(order), bool))
    scores, best = jax.lax.top_k(jnp.where(kept, scores, 0.0), n_out)
    return jnp.where(scores[:, None] > 0, boxes[best], 0.0), scores


def example_boxes(n: int, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """n boxes in clusters, f32 [n, 4], and distinct scores in 0..1, f32 [n]."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0, 1, (max(n // 6, 1), 2))[rng.integers(0, max(n // 6, 1), n)]
    centres = centres + rng.normal(0, 0.01, (n, 2))
    sizes = rng.uniform(0.05, 0.12, (n, 2))
    boxes = np.concatenate([centres - sizes, centres + sizes], axis=-1).astype(np.float32)
    scores = (rng.permutation(n).astype(np.float32) + 1) / (n + 1)
    return jnp.asarray(boxes), jnp.asarray(scores)


def forward(boxes: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """boxes f32 [512, 4], scores f32 [512]; the best 100: boxes f32 [100, 4] and scores f32 [100]."""
    return suppress(boxes, scores, 100)


def forward_inputs() -> tuple[jax.Array, jax.Array]:
    """512 boxes in clusters of about six, and their scores."""
    return example_boxes(512)


def tiny(boxes: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For tests; boxes f32 [23, 4], scores f32 [23]; the best 7."""
    return suppress(boxes, scores, 7)


def tiny_inputs() -> tuple[jax.Array, jax.Array]:
    """23 boxes and their scores."""
    return example_boxes(23)
