"""The operators of the vendor's benchmark (hicann/cann-bench) as plain JAX functions.

Each is written as a user of JAX would write it, from what the benchmark says that it computes, with jnp, lax and jax.nn
alone: no function of ours is used, and no row needed one. Its docstring says what was assumed. Operands come in the
order of a row's shapes, None for those that are absent; attributes are keyword arguments.

What holds for all: operators that the benchmark defines on f32 compute in f32 and cast their results to the type that
they came in; jax.nn's own functions take f16 and bf16 as they are. Products of floats have the type of their operands,
and the f32 sums that the cube has anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Tensors = Sequence[Array]

LEAST_SCALE = 1e-12
"""What stands for the largest magnitude, or the scale, of a row of zeros that is quantised."""


def quantised(x: Array) -> tuple[Array, Array]:
    """i8 and f32 scales of the rows of an f32 tensor, symmetric, by the largest magnitude of each."""
    scale = jnp.maximum(jnp.max(jnp.abs(x), axis=-1), LEAST_SCALE) / 127
    return jnp.clip(jnp.round(x / scale[..., None]), -128, 127).astype(jnp.int8), scale


def normalised(x: Array, gamma: Array, epsilon: float) -> Array:
    """An f32 tensor over the root of the mean square of its last axis, times gamma, in f32."""
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + epsilon) * gamma.astype(jnp.float32)


# -- elementwise ---------------------------------------------------------------------------------------------


def exp(x: Array, *, base: float, scale: float, shift: float) -> Array:
    """base ** (scale * x + shift) in f32; a base that is not positive stands for e."""
    power = scale * x.astype(jnp.float32) + shift
    return jnp.exp(power * math.log(base) if base > 0 else power).astype(x.dtype)


def gelu(x: Array, *, approximate: str) -> Array:
    """By `jax.nn.gelu`; "none" is the form with erf, "tanh" the approximation."""
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def sigmoid(x: Array) -> Array:
    """By `jax.nn.sigmoid`."""
    return jax.nn.sigmoid(x)


def maximum(x: Array, y: Array) -> Array:
    """By `jnp.maximum`, which broadcasts."""
    return jnp.maximum(x, y)


def gcd(x: Array, y: Array) -> Array:
    """By `jnp.gcd`: Euclid's loop over whole tensors, of as many rounds as the worst element needs, which nobody knows
    before. A report counts such a loop once, so the time is that of one round, and less than the truth."""
    return jnp.gcd(x, y)


def foreach_addcdiv_scalar(x1: Tensors, x2: Tensors, x3: Tensors, *, scalar: float) -> list[Array]:
    """x1 + x2 / x3 * scalar of each of several tensors, in f32; the scalar is known, and may be inf or NaN."""
    lists = ([x.astype(jnp.float32) for x in xs] for xs in (x1, x2, x3))
    return [(a + b / c * scalar).astype(x1[0].dtype) for a, b, c in zip(*lists, strict=True)]


def swi_glu(x: Array, *, dim: int) -> Array:
    """silu of the first half of an axis times the second half, in f32."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=dim)
    return (jax.nn.silu(first) * second).astype(x.dtype)


def apply_adam_w(
    var: Array,
    grad: Array,
    m: Array,
    v: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    epsilon: float,
    maximize: bool,
) -> tuple[Array, Array, Array]:
    """The first step of AdamW in f32: epsilon is outside of the root, the decay is decoupled. The benchmark compares
    the new weights alone; here both moments are results, too, as the kernel that was measured writes them."""
    w, g, m32, v32 = (x.astype(jnp.float32) for x in (var, grad, m, v))
    m32 = beta1 * m32 + (1 - beta1) * g
    v32 = beta2 * v32 + (1 - beta2) * g * g
    update = m32 / (1 - beta1) / (jnp.sqrt(v32 / (1 - beta2)) + epsilon) + weight_decay * w
    w = w + lr * update if maximize else w - lr * update
    return w.astype(var.dtype), m32.astype(m.dtype), v32.astype(v.dtype)


# -- rows ----------------------------------------------------------------------------------------------------


def softmax(x: Array, *, dim: int) -> Array:
    """By `jax.nn.softmax`."""
    return jax.nn.softmax(x, axis=dim)


def rms_norm(x: Array, gamma: Array, *, epsilon: float) -> Array:
    """In f32, over the last axis."""
    return normalised(x.astype(jnp.float32), gamma, epsilon).astype(x.dtype)


def dynamic_quant(x: Array) -> tuple[Array, Array]:
    """i8 and the f32 scale of each row of the last axis."""
    return quantised(x.astype(jnp.float32))


def add_rms_norm_dynamic_quant(
    x1: Array, x2: Array, gamma: Array, *, epsilon: float
) -> tuple[Array, Array, Array]:
    """i8 of the norm of a sum, the sum in the type of its operands, and the f32 scales; all of it is in f32."""
    added = x1.astype(jnp.float32) + x2.astype(jnp.float32)
    values, scale = quantised(normalised(added, gamma, epsilon))
    return values, added.astype(x1.dtype), scale


def dequant_swiglu_quant(
    x: Array,
    weight_scale: Array | None = None,
    activation_scale: Array | None = None,
    quant_scale: Array | None = None,
    *,
    activate_left: bool,
) -> tuple[Array, Array]:
    """i8 and the f32 scales of rows of a swiglu in f32. i32 sums of a product come with scales of its columns and rows,
    floats without; quant_scale, where it is, multiplies the columns first. silu is of the left half, or of the right
    one."""
    y = x.astype(jnp.float32)
    if weight_scale is not None:
        y = y * weight_scale
    if activation_scale is not None:
        y = y * activation_scale[:, None]
    left, right = jnp.split(y, 2, axis=-1)
    y = jax.nn.silu(left) * right if activate_left else left * jax.nn.silu(right)
    return quantised(y if quant_scale is None else y * quant_scale)


def adaptive_avg_pool_3d(x: Array, *, output_size: Sequence[int]) -> Array:
    """Means of N C D H W over windows, of which window i of n begins at floor(i * extent / n) and ends before
    ceil((i + 1) * extent / n) along each axis; those that are equal and do not overlap are an axis of a reshape."""
    for axis, size in enumerate(output_size, start=2):
        extent = x.shape[axis]
        if extent % size == 0:
            shape = (*x.shape[:axis], size, extent // size, *x.shape[axis + 1 :])
            x = jnp.mean(x.reshape(shape), axis=axis + 1)
        else:
            edges = [(i * extent // size, -(-(i + 1) * extent // size)) for i in range(size)]
            parts = [lax.slice_in_dim(x, start, end, axis=axis) for start, end in edges]
            x = jnp.concatenate([jnp.mean(part, axis=axis, keepdims=True) for part in parts], axis=axis)
    return x


def mhc_sinkhorn(comb: Array, *, iter_step: int, eps: float) -> Array:
    """Small square matrices made doubly stochastic: a softmax of the rows, then columns and rows over their sums in
    turns, all rounds written out."""
    comb = jax.nn.softmax(comb, axis=-1) + eps
    comb = comb / (jnp.sum(comb, axis=-2, keepdims=True) + eps)
    for _ in range(iter_step - 1):
        comb = comb / (jnp.sum(comb, axis=-1, keepdims=True) + eps)
        comb = comb / (jnp.sum(comb, axis=-2, keepdims=True) + eps)
    return comb


# -- moved and picked ----------------------------------------------------------------------------------------


def transpose(x: Array, *, perm: Sequence[int]) -> Array:
    """By `jnp.transpose`; the result is stored in its new order."""
    return jnp.transpose(x, perm)


def gather(x: Array, index: Array, *, dim: int) -> Array:
    """By `jnp.take_along_axis`. Along other axes the index may be shorter than x, of which it then reads the first
    part. Indices are in bounds, which nothing says to JAX."""
    dim %= x.ndim
    part = tuple(slice(None if axis == dim else size) for axis, size in enumerate(index.shape))
    return jnp.take_along_axis(x[part], index, axis=dim)


def moe_gating_top_k_softmax(
    x: Array, finished: Array | None = None, *, k: int
) -> tuple[Array, Array, Array]:
    """The k largest of a softmax of the last axis, where they are as i32, and the number that each has if those of
    choice 0 come first. The experts of rows that are finished are all one past the last."""
    values, experts = lax.top_k(jax.nn.softmax(x, axis=-1), k)
    rows = math.prod(x.shape[:-1])
    number = jnp.arange(rows * k, dtype=jnp.int32).reshape(k, rows).T.reshape(experts.shape)
    if finished is not None:
        experts = jnp.where(finished[..., None], x.shape[-1], experts)
    return values, experts.astype(jnp.int32), number


def moe_finalize_routing(
    rows: Array,
    source_to_row: Array,
    skip1: Array | None = None,
    skip2: Array | None = None,
    bias: Array | None = None,
    scales: Array | None = None,
    expert_of: Array | None = None,
    *,
    drop_pad_mode: int,
) -> Array:
    """skip1 + skip2 + for each choice of a token, its scale times (its row + the bias of its expert), in f32. Modes 0
    and 1 list all tokens for each choice, 2 and 3 all choices of a token; in modes 1 and 3 an index of -1 is a token
    that was dropped and adds nothing. Without scales there is one choice, of scale 1."""
    choices = 1 if scales is None else scales.shape[1]
    index = source_to_row.reshape(choices, -1).T if drop_pad_mode < 2 else source_to_row.reshape(-1, choices)
    terms = rows.reshape(-1, rows.shape[-1])[index].astype(jnp.float32)
    if bias is not None and expert_of is not None:
        terms = terms + bias[expert_of].astype(jnp.float32)
    if drop_pad_mode in (1, 3):
        terms = jnp.where(index[..., None] < 0, 0, terms)
    if scales is not None:
        terms = scales.astype(jnp.float32)[..., None] * terms
    total = jnp.sum(terms, axis=1)
    for skip in (skip1, skip2):
        total = total if skip is None else total + skip.astype(jnp.float32)
    return total.astype(rows.dtype)


# -- products ------------------------------------------------------------------------------------------------


def gemm(x: Array, y: Array) -> Array:
    """By `@`."""
    return x @ y


def quant_matmul(
    x1: Array,
    x2: Array,
    scale: Array,
    offset: Array | None = None,
    pertoken_scale: Array | None = None,
    bias: Array | None = None,
    *,
    output_dtype: str,
) -> Array:
    """An i8 product with i32 sums, then in f32. An i32 bias is added to the sums; then they are multiplied with the
    scale, the offset is added, and they are multiplied with the scale of their row; a bias of floats comes last."""
    sums = jnp.matmul(x1, x2, preferred_element_type=jnp.int32)
    if bias is not None and bias.dtype == jnp.int32:
        sums, bias = sums + bias, None
    y = sums.astype(jnp.float32) * scale.astype(jnp.float32)
    if offset is not None:
        y = y + offset
    if pertoken_scale is not None:
        y = y * pertoken_scale[:, None]
    if bias is not None:
        y = y + bias
    return y.astype(output_dtype)


def weight_quant_batch_matmul(
    x: Array, weight: Array, scale: Array, offset: Array | None = None, bias: Array | None = None
) -> Array:
    """x @ ((weight + offset) * scale) + bias, where i8 weights are dequantised in the type of x."""
    wide = weight.astype(x.dtype)
    if offset is not None:
        wide = wide + offset
    y = x @ (wide * scale)
    return y if bias is None else (y + bias).astype(x.dtype)


def grouped_matmul(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    group_list: Sequence[int],
    split_item: int,
    transpose_weight: bool,
) -> Array | list[Array]:
    """By `lax.ragged_dot`, JAX's own grouped product. The rows of x are those of one group after the other, whose ends
    are attributes, so they are known; so are the groups of the biases. split_item 0 and 1: a result for each group."""
    sizes = np.diff(group_list, prepend=0)
    y = lax.ragged_dot(
        x, jnp.swapaxes(weight, 1, 2) if transpose_weight else weight, jnp.asarray(sizes, jnp.int32)
    )
    if bias is not None:
        y = (y + bias[np.repeat(np.arange(len(sizes)), sizes)]).astype(x.dtype)
    return y if split_item >= 2 else jnp.split(y, group_list[:-1])


# -- attention -----------------------------------------------------------------------------------------------


def attention(query: Array, key: Array, value: Array, *, scale_value: float, is_causal: bool) -> Array:
    """By `jax.nn.dot_product_attention`, whose layout is the benchmark's (batch, places, heads, size); heads of keys
    may be fewer. A scale that is not positive stands for 1 / sqrt(size). Causal is aligned at the last key, which
    `is_causal=True` of JAX is only for as many keys as queries; else it is a mask."""
    queries, keys = query.shape[1], key.shape[1]
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=jnp.tril(jnp.ones((queries, keys), bool), keys - queries)
        if is_causal and queries != keys
        else None,
        scale=scale_value if scale_value > 0 else None,
        is_causal=is_causal and queries == keys,
    )


def sparse_flash_attention(
    query: Array,
    key: Array,
    value: Array,
    indices: Array,
    *,
    scale_value: float,
    input_layout: str,
    is_causal: bool,
) -> Array:
    """Attention of all heads of a query to the keys that its indices pick, by gather and softmax; causal as in
    `attention`. Layout BSND. The benchmark says that values are the first columns of the keys, so that the vendor's
    kernel reads one of both: the function takes them as two operands, as the benchmark's own does. A query without any
    key that counts is NaN here and 0 there."""
    if input_layout != "BSND" or key.shape[2] != 1:
        raise ValueError("only layout BSND with one head of keys is written down here")
    index = indices[:, :, 0]
    picked = jax.vmap(lambda rows, i: rows[i])(key[:, :, 0], index)
    values = jax.vmap(lambda rows, i: rows[i])(value[:, :, 0], index)
    scores = jnp.einsum("bqnd,bqkd->bqnk", query, picked, preferred_element_type=jnp.float32) * scale_value
    if is_causal:
        last = jnp.arange(query.shape[1]) + key.shape[1] - query.shape[1]
        scores = jnp.where((index <= last[:, None])[:, :, None], scores, -jnp.inf)
    return jnp.einsum("bqnk,bqkd->bqnd", jax.nn.softmax(scores, axis=-1).astype(query.dtype), values)


def mla_prolog(
    x: Array,
    w_dq: Array,
    w_uq_qr: Array,
    w_uk: Array,
    w_dkv_kr: Array,
    gamma_cq: Array,
    gamma_ckv: Array,
    rope_sin: Array,
    rope_cos: Array,
    *,
    n_heads: int,
    rmsnorm_epsilon_cq: float,
    rmsnorm_epsilon_ckv: float,
) -> tuple[Array, Array, Array, Array]:
    """Queries, their rotated part, the norm of the latent keys and their rotated part: multi-head latent attention up
    to the attention. Products give the type of x, norms and rotations are in f32; rotations are of halves, with tables
    as wide as what they turn."""

    def norm(y: Array, gamma: Array, epsilon: float) -> Array:
        return normalised(y.astype(jnp.float32), gamma, epsilon).astype(x.dtype)

    def turned(y: Array, sin: Array, cos: Array) -> Array:
        first, second = jnp.split(y.astype(jnp.float32), 2, axis=-1)
        other = jnp.concatenate([-second, first], axis=-1)
        return (y.astype(jnp.float32) * cos + other * sin).astype(x.dtype)

    size, latent = w_uk.shape[1:]
    up = norm(x @ w_dq, gamma_cq, rmsnorm_epsilon_cq) @ w_uq_qr
    up = up.reshape(*x.shape[:2], n_heads, -1)
    query = jnp.einsum("bsnd,ndh->bsnh", up[..., :size], w_uk)
    down = x @ w_dkv_kr
    return (
        query,
        turned(up[..., size:], rope_sin[:, :, None], rope_cos[:, :, None]),
        norm(down[..., :latent], gamma_ckv, rmsnorm_epsilon_ckv),
        turned(down[..., latent:], rope_sin, rope_cos),
    )


OPERATORS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        adaptive_avg_pool_3d,
        add_rms_norm_dynamic_quant,
        apply_adam_w,
        dequant_swiglu_quant,
        dynamic_quant,
        exp,
        foreach_addcdiv_scalar,
        gather,
        gcd,
        gelu,
        gemm,
        grouped_matmul,
        maximum,
        mhc_sinkhorn,
        mla_prolog,
        moe_finalize_routing,
        moe_gating_top_k_softmax,
        quant_matmul,
        rms_norm,
        sigmoid,
        softmax,
        sparse_flash_attention,
        swi_glu,
        transpose,
        weight_quant_batch_matmul,
    )
} | {"gqa": attention, "mha": attention}
"""By the benchmark's names."""

PICKING = frozenset({"gather", "moe_finalize_routing", "sparse_flash_attention"})
"""Operators that may read less than all of their operands, as indices say. All others must move every byte."""
