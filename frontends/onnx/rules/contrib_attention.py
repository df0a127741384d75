"""Attention ops of the domain com.microsoft, from the meaning that ONNX Runtime documents.

What is for its own kernels (beams, packed batches, quantised caches and windows of them) is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from . import attention as heads
from .contractions import integer_matmul
from .normalization import over_rms
from .quantized import MICROSOFT


def _padding(node: Node, mask: Any, batch: Any, queries: Any, keys: Any) -> Any:
    """What a mask adds to scores: nothing where it is 1, and `mask_filter_value` where it is 0. It has a number for
    each key, or it says where the keys of each of a batch end, and begin."""
    import jax.numpy as jnp

    if mask is None:
        return None
    columns = jnp.arange(keys)
    if mask.ndim == 1:
        if mask.shape[0] == batch:
            seen = columns < heads.each(mask)
        elif mask.shape[0] == 2 * batch:
            seen = (columns < heads.each(mask[:batch])) & (columns >= heads.each(mask[batch:]))
        else:
            raise node.unsupported("a mask of cumulated lengths")
    elif mask.ndim == 4:
        seen = mask[:, :, keys - queries : keys, :keys] > 0
    else:
        seen = (mask[:, None, None, :] if mask.ndim == 2 else mask[:, None]) > 0
    return jnp.where(seen, 0, np.asarray(node.get("mask_filter_value", -10000.0), np.float32))


def attended(
    node: Node,
    q: Any,
    k: Any,
    v: Any,
    *summands: Any,
    allowed: Any = None,
    softcap: float = 0.0,
    sink: Any = None,
) -> Any:
    """Attention of heads, with what is added to scores, as `(batch, sequence, heads * size)`."""
    scores = heads.softcapped(heads.scaled_scores(q, k, node.get("scale")), softcap)
    for added in summands:
        scores = scores if added is None else scores + added.astype(scores.dtype)
    weights = heads.masked_softmax(scores, allowed, None, sink).astype(q.dtype)
    return heads.join_heads(heads.head_product(weights, v, 2, q.dtype))


def _causal(node: Node, queries: Any, keys: Any) -> Any:
    """Which keys come no later than each query, of which there are so many behind all but the last keys."""
    if not node.get("unidirectional", 0):
        return None
    at, columns = heads.places(queries, keys, keys - queries)
    return heads.window(at, columns, causal=True)


@rule("Attention", domain=MICROSOFT)
def _packed_attention(
    node: Node,
    x: Any,
    w: Any,
    bias: Any = None,
    mask: Any = None,
    past: Any = None,
    added: Any = None,
    length: Any = None,
) -> Any:
    import jax.numpy as jnp

    made = jnp.matmul(x, w)
    return _self_attention(node, made if bias is None else made + bias, mask, past, added)


@rule("QAttention", domain=MICROSOFT)
def _quantized_attention(
    node: Node,
    x: Any,
    w: Any,
    bias: Any,
    x_scale: Any,
    w_scale: Any,
    mask: Any = None,
    x_zero: Any = None,
    w_zero: Any = None,
    past: Any = None,
) -> Any:
    total = integer_matmul(x, node.input(1), node.input(6), node.input(7))
    made = total.astype(np.float32) * (x_scale.astype(np.float32) * w_scale.astype(np.float32))
    return _self_attention(node, made.astype(bias.dtype) + bias, mask, past, None)


def _self_attention(node: Node, made: Any, mask: Any, past: Any, added: Any) -> Any:
    """Attention of queries, keys and values that are parts of the last dimension."""
    import jax.numpy as jnp

    if node.get("past_present_share_buffer", 0) or node.get("do_rotary", 0):
        raise node.unsupported("a shared buffer of the past, and rotary embeddings within it")
    count, width = node.get("num_heads"), made.shape[-1]
    a, b, _ = node.get("qkv_hidden_sizes") or (width // 3,) * 3
    q, k, v = (heads.split_heads(t, count) for t in (made[..., :a], made[..., a : a + b], made[..., a + b :]))
    if past is not None:
        k, v = (jnp.concatenate(pair, axis=2) for pair in ((past[0], k), (past[1], v)))
    batch, queries, keys = q.shape[0], q.shape[2], k.shape[2]
    padding = _padding(node, mask, batch, queries, keys)
    out = attended(node, q, k, v, padding, added, allowed=_causal(node, queries, keys))
    present = jnp.stack([k, v]) if len(node.outputs) > 1 and node.outputs[1] else None
    return out, present


@rule("MultiHeadAttention", domain=MICROSOFT)
def _multi_head_attention(
    node: Node,
    q: Any,
    k: Any = None,
    v: Any = None,
    bias: Any = None,
    mask: Any = None,
    added: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    past_length: Any = None,
    beams: Any = None,
) -> Any:
    import jax.numpy as jnp

    if past_length is not None or beams is not None:
        raise node.unsupported("a shared buffer of the past, and beams")
    if len(node.outputs) > 3 and node.outputs[3]:
        raise node.unsupported("scores are not given")
    parts = _parted(node, q, k, v)
    q, k, v = (_headed(node, x, b) for x, b in zip(parts, _parts_of_bias(bias, parts), strict=True))
    if past_key is not None:
        k, v = (jnp.concatenate(pair, axis=2) for pair in ((past_key, k), (past_value, v)))
    queries, keys = q.shape[2], k.shape[2]
    padding = _padding(node, mask, q.shape[0], queries, keys)
    return attended(node, q, k, v, padding, added, allowed=_causal(node, queries, keys)), k, v


def _parted(node: Node, q: Any, k: Any, v: Any) -> list[Any]:
    """Queries, keys and values, each `(batch, sequence, width)`, or `(batch, heads, sequence, size)` from elsewhere."""

    def joined(x: Any, i: int) -> Any:
        return x[:, :, :, i].reshape(*x.shape[:2], x.shape[2] * x.shape[4])

    if q.ndim == 5:
        return [joined(q, i) for i in range(3)]
    if k is None:
        raise node.unsupported("it has no keys")
    return [q, joined(k, 0), joined(k, 1)] if k.ndim == 5 else [q, k, v]


def _parts_of_bias(bias: Any, parts: list[Any]) -> list[Any]:
    """A bias in three parts; for keys and values from elsewhere there is none."""
    if bias is None:
        return [None] * 3
    width, last = parts[0].shape[-1], parts[2].shape[-1]
    own = [bias[:width], bias[width : 2 * width], bias[2 * width : 2 * width + last]]
    return [b if x.ndim == 3 else None for x, b in zip(parts, own, strict=True)]


def _headed(node: Node, x: Any, bias: Any) -> Any:
    if x.ndim == 4:
        return x
    return heads.split_heads(x if bias is None else x + bias, node.get("num_heads"))


# -- grouped queries ---------------------------------------------------------------------------------------


@rule("GroupQueryAttention", domain=MICROSOFT)
def _group_query_attention(
    node: Node,
    q: Any,
    k: Any,
    v: Any,
    past_key: Any,
    past_value: Any,
    lengths: Any,
    total: Any,
    cos: Any = None,
    sin: Any = None,
    positions: Any = None,
    added: Any = None,
    sink: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    q_norm: Any = None,
    k_norm: Any = None,
) -> Any:
    """`lengths` are the keys of each of a batch with those of this step, less 1. `total` is the largest one: it must be
    known where there is a past, since the cache grows to it. A cache that is as long already keeps its size; any total
    that fits gives the same function then."""
    import jax.numpy as jnp

    _check_cache(node, k_scale, v_scale)
    count, groups = node.get("num_heads"), node.get("kv_num_heads")
    if k is None:
        size = q.shape[-1] // (count + 2 * groups)
        a, b = count * size, (count + groups) * size
        q, k, v = q[..., :a], q[..., a:b], q[..., b:]
    q, k, v = (heads.split_heads(x, n) for x, n in ((q, count), (k, groups), (v, groups)))
    if q_norm is not None:
        epsilon = node.get("qk_norm_epsilon", 1e-6)
        q, k = (
            over_rms(x.astype(np.float32), (-1,), epsilon).astype(x.dtype) * w
            for x, w in ((q, q_norm), (k, k_norm))
        )
    new = q.shape[2]
    first = past_key is None or _is_zero(past_key.shape[2])
    before = None if first or node.number(6) == new else lengths.reshape(-1).astype(np.int64) + 1 - new
    if node.get("do_rotary", 0):
        if positions is None:
            positions = jnp.arange(new)[None, :] + (0 if before is None else before[:, None])
        cos, sin = (jnp.take(t, positions, axis=0, mode="clip") for t in (cos, sin))
        q, k = (heads.rotated(x, cos, sin, bool(node.get("rotary_interleaved", 0))) for x in (q, k))
    if not first:
        k, v = (_in_cache(past, x, before, node.number(6)) for past, x in ((past_key, k), (past_value, v)))
    keys = k.shape[2]
    window = node.get("local_window_size", -1)
    at, columns = heads.places(new, keys, 0 if before is None else before)
    if node.get("causal", 1):
        allowed = heads.window(at, columns, causal=True, left=window - 1 if window > 0 else -1)
    else:
        allowed = columns < heads.each(lengths) + 1
    if sink is not None or node.get("smooth_softmax", 0):
        sink = np.zeros((), np.float32) if sink is None else sink.reshape(1, -1, 1, 1).astype(np.float32)
    out = attended(
        node,
        q,
        k,
        v,
        None if added is None else heads.for_keys(added, keys, 0),
        allowed=allowed,
        softcap=node.get("softcap", 0.0),
        sink=sink,
    )
    return out, k, v


def _check_cache(node: Node, *scales: Any) -> None:
    if any(s is not None for s in scales) or node.get("sliding_window_cache", 0):
        raise node.unsupported("quantised caches, and caches of a window")
    if len(node.outputs) > 3 and node.outputs[3]:
        raise node.unsupported("scores are not given")


def _is_zero(size: Any) -> bool:
    return isinstance(size, int) and size == 0


def _in_cache(past: Any, x: Any, before: Any, total: Any) -> Any:
    """The past with x behind the first `before` of each of a batch (None: x is all that there is), of at least `total`
    keys."""
    import jax.numpy as jnp

    old, new = past.shape[2], x.shape[2]
    if not (isinstance(old, int) and isinstance(new, int)):  # a past of open length is one that grows
        return x if before is None else jnp.concatenate([past, x], axis=2)
    if before is None:
        return jnp.concatenate([x, past[:, :, new:]], axis=2) if old > new else x
    if old < total and past.shape[0] == 1:
        return jnp.concatenate([past[:, :, : total - new], x], axis=2)
    if old < total:
        past = jnp.pad(past, [(0, 0), (0, 0), (0, total - old), (0, 0)])
    place = jnp.arange(past.shape[2])[None, :] - before[:, None]
    inside = ((place >= 0) & (place < new))[:, None, :, None]
    if new > 1:
        x = jnp.take_along_axis(x, jnp.clip(place, 0, new - 1)[:, None, :, None], axis=2)
    return jnp.where(inside, x, past)
