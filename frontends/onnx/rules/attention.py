"""Attention: two products with a softmax between them; masks are one condition and one summand."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import dtype_named, quotient
from .quantized import MICROSOFT


def split_heads(x: Any, count: int) -> Any:
    """`(batch, sequence, heads * size)` as `(batch, heads, sequence, size)`."""
    import jax.numpy as jnp

    batch, length, width = x.shape
    return jnp.transpose(x.reshape(batch, length, count, quotient(width, count)), (0, 2, 1, 3))


def join_heads(x: Any) -> Any:
    """`(batch, heads, sequence, size)` as `(batch, sequence, heads * size)`."""
    import jax.numpy as jnp

    batch, heads, length, size = x.shape
    return jnp.transpose(x, (0, 2, 1, 3)).reshape(batch, length, heads * size)


def head_product(x: Any, y: Any, axis: int, kind: Any) -> Any:
    """For each head of x the product of its last dimension and that of dimension `axis` of y. y may have fewer heads,
    each of which is that of several neighbours of x."""
    import jax

    batch, heads, length, size = x.shape
    groups = y.shape[1]
    if heads != groups:
        x = x.reshape(batch, groups, (heads // groups) * length, size)
    numbers = (((3,), (axis,)), ((0, 1), (0, 1)))
    made = jax.lax.dot_general(x, y, numbers, preferred_element_type=kind)
    return made.reshape(batch, heads, length, made.shape[-1]) if heads != groups else made


def masked_softmax(scores: Any, allowed: Any = None, added: Any = None, sink: Any = None) -> Any:
    """The softmax of scores along their last dimension, where `allowed`, with `added` to them; rows without any key
    give zeros. sink: the score of one more key, which has no value."""
    import jax
    import jax.numpy as jnp

    if allowed is None and added is None and sink is None:
        return jax.nn.softmax(scores, axis=-1)
    scores = biased(scores, allowed, added)
    least = np.asarray(jnp.finfo(scores.dtype).min, scores.dtype) if sink is None else sink
    most = jnp.maximum(jnp.max(scores, axis=-1, keepdims=True), least)
    powers = jnp.exp(scores - most)
    total = jnp.sum(powers, axis=-1, keepdims=True)
    if sink is None:  # where there are keys, the largest power is 1
        return powers / jnp.maximum(total, np.asarray(1, scores.dtype))
    return powers / (total + jnp.exp(sink - most))


def biased(scores: Any, allowed: Any, added: Any) -> Any:
    """Scores with what is added to them, and -inf where they are not allowed."""
    import jax.numpy as jnp

    nowhere = np.asarray(-np.inf, scores.dtype)
    if added is not None:
        scores = jnp.where(jnp.isneginf(added), nowhere, scores + added.astype(scores.dtype))
    return scores if allowed is None else jnp.where(allowed, scores, nowhere)


def both(*conditions: Any) -> Any:
    """Where all conditions hold; None stands for everywhere."""
    given = [c for c in conditions if c is not None]
    return reduce(lambda a, b: a & b, given) if given else None


def places(queries: Any, keys: Any, offset: Any = 0) -> tuple[Any, Any]:
    """The positions of queries, behind `offset` keys, and of keys, for each score. An offset is one for all, or one for
    each of a batch."""
    import jax
    import jax.numpy as jnp

    # of the shape of scores, so that what compares them needs no kernel of its own
    at, columns = (jax.lax.broadcasted_iota(jnp.int32, (queries, keys), i) for i in (0, 1))
    if getattr(offset, "ndim", 0) == 1:
        return at + each(offset.astype(jnp.int32)), columns
    return at if isinstance(offset, int) and offset == 0 else at + jnp.asarray(offset, jnp.int32), columns


def each(values: Any) -> Any:
    """A value for each of a batch, so that it broadcasts against scores."""
    return values.reshape(-1, 1, 1, 1)


def window(at: Any, columns: Any, causal: bool, left: int = -1, right: int = -1) -> Any:
    """Which keys queries see: none behind themselves, and none too far before or behind; None if all."""
    right = 0 if causal else right
    ahead = columns <= (at + right if right else at) if right >= 0 else None
    return both(ahead, columns >= at - left if left >= 0 else None)


def softcapped(scores: Any, cap: float) -> Any:
    """Scores between -cap and cap."""
    import jax.numpy as jnp

    limit = np.asarray(cap, scores.dtype)
    return jnp.tanh(scores / limit) * limit if cap else scores


SHOWN = ("scores", "capped", "biased", "weights")
"""What the last output of Attention is, by `qk_matmul_output_mode`."""


@rule("Attention")
def _attention(
    node: Node,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
) -> Any:
    import jax.numpy as jnp

    flat = q.ndim == 3
    if flat:
        q, k, v = (split_heads(x, n) for x, n in zip((q, k, v), _head_counts(node), strict=True))
    if past_key is not None:
        k, v = (jnp.concatenate(pair, axis=2) for pair in ((past_key, k), (past_value, v)))
    allowed, added = _masks(node, q, k, mask, past_key, lengths)
    scores = scaled_scores(q, k, node.get("scale"))
    capped = softcapped(scores, node.get("softcap", 0.0))
    precision = node.get("softmax_precision", 0)
    weights = masked_softmax(capped.astype(dtype_named(precision)) if precision else capped, allowed, added)
    weights = weights.astype(q.dtype)
    made = head_product(weights, v.astype(q.dtype), 2, q.dtype)
    mode, shown = node.get("qk_matmul_output_mode", 0), None
    if len(node.outputs) > 3 and node.outputs[3]:
        shown = {
            "scores": lambda: scores,
            "capped": lambda: capped,
            "biased": lambda: biased(capped, allowed, added),
            "weights": lambda: weights,
        }[SHOWN[mode]]().astype(q.dtype)
    return join_heads(made) if flat else made, k, v, shown


def _head_counts(node: Node) -> tuple[int, int, int]:
    queries, keys = node.get("q_num_heads", 0), node.get("kv_num_heads", 0)
    if not queries or not keys:
        raise node.unsupported("operands of rank 3 need q_num_heads and kv_num_heads")
    return queries, keys, keys


def scaled_scores(q: Any, k: Any, scale: float | None) -> Any:
    """The scaled products of queries and keys; of narrow floats, as f32."""
    import jax.numpy as jnp

    kind = np.float64 if q.dtype == np.float64 else np.float32
    size = q.shape[-1]
    if scale is not None:
        factor = np.asarray(scale, kind)
    else:
        factor = (
            np.asarray(1 / size**0.5, kind)
            if isinstance(size, int)
            else 1 / jnp.sqrt(jnp.asarray(size, kind))
        )
    # scaled behind the product, whose f32 sums do not overflow: that costs no kernel
    return head_product(q, k, 3, kind) * factor


def _masks(node: Node, q: Any, k: Any, mask: Any, past: Any, lengths: Any) -> tuple[Any, Any]:
    """Where keys may be seen, and what is added to scores."""
    queries, keys = q.shape[2], k.shape[2]
    offset: Any = 0
    if past is not None:
        offset = past.shape[2]
    elif lengths is not None:
        offset = lengths - queries
    at, columns = places(queries, keys, offset)
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    seen = window(at, columns, bool(node.get("is_causal", 0)), left, right)
    seen = both(seen, None if lengths is None else columns < each(lengths))
    if mask is None:
        return seen, None
    whole = mask.dtype == bool
    mask = for_keys(mask, keys, False if whole else -np.inf)
    return (both(seen, mask), None) if whole else (seen, mask)


def for_keys(mask: Any, keys: Any, filler: float) -> Any:
    """A mask, or what is added to scores, for all keys, with a filler for those that it lacks."""
    import jax.numpy as jnp

    missing = keys - mask.shape[-1]
    known = isinstance(missing, int)
    if known and missing == 0:
        return mask
    # where it is open whether any are missing, there are enough fillers for all
    widths = [(0, 0)] * (mask.ndim - 1) + [(0, missing if known else keys)]
    padded = jnp.pad(mask, widths, constant_values=np.asarray(filler, mask.dtype))
    return padded if known else padded[..., :keys]


# -- rotary embedding --------------------------------------------------------------------------------------


def rotated(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """`(batch, heads, sequence, size)` with pairs of its first elements turned by angles `(batch, sequence, pairs)`."""
    import jax.numpy as jnp

    cos, sin = (t[..., None, :, :].astype(x.dtype) for t in (cos, sin))
    half = cos.shape[-1]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(0, half), slice(half, 2 * half))
    )
    a, b = x[..., first], x[..., second]
    turned = [a * cos - b * sin, a * sin + b * cos]
    if interleaved:
        turned = [jnp.stack(turned, axis=-1).reshape(*x.shape[:-1], 2 * half)]
    rest = [] if x.shape[-1] == 2 * half else [x[..., 2 * half :]]
    return jnp.concatenate([*turned, *rest], axis=-1) if turned[1:] or rest else turned[0]


@rule("RotaryEmbedding")
def _rotary_embedding(node: Node, x: Any, cos: Any, sin: Any, positions: Any = None) -> Any:
    return _rotary(node, x, cos, sin, positions)


@rule("RotaryEmbedding", domain=MICROSOFT)
def _rotary_embedding_of_microsoft(node: Node, x: Any, positions: Any, cos: Any, sin: Any) -> Any:
    import jax.numpy as jnp

    if node.get("is_packed_batching", 0) or node.get("scale", 1.0) != 1:
        raise node.unsupported("batches must not be packed, and scale must be 1")
    if positions.ndim == 1:  # the position of the first token of all sequences
        length = x.shape[-2]
        positions = positions.reshape(1, 1) + jnp.arange(length)[None, :]
    return _rotary(node, x, cos, sin, positions)


def _rotary(node: Node, x: Any, cos: Any, sin: Any, positions: Any) -> Any:
    import jax.numpy as jnp

    flat, pairs = x.ndim == 3, node.get("rotary_embedding_dim", 0) // 2
    if flat:
        size = cos.shape[-1] * 2
        x = split_heads(x, node.get("num_heads", 0) or x.shape[-1] // size)
    if positions is not None:
        cos, sin = (jnp.take(t, positions, axis=0, mode="clip") for t in (cos, sin))
    if pairs:
        cos, sin = cos[..., :pairs], sin[..., :pairs]
    made = rotated(x, cos, sin, bool(node.get("interleaved", 0)))
    return join_heads(made) if flat else made
