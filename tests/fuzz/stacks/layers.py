"""Layers as public nets write them, for the steps of random stacks. Images have the layout NHWC or NCHW; tokens are
(batch, positions, features). A reproducer carries a copy of this file."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

# -- images ------------------------------------------------------------------------------------------------


def conv(x, w, layout, stride=1, groups=1, dilation=1, padding="SAME"):
    """A convolution; w is HWIO beside NHWC, OIHW beside NCHW."""
    filters = "HWIO" if layout == "NHWC" else "OIHW"
    return lax.conv_general_dilated(
        x, w, (stride, stride), padding, rhs_dilation=(dilation, dilation),
        dimension_numbers=(layout, filters, layout), feature_group_count=groups,
    )  # fmt: skip


def conv_transposed(x, w, layout, stride=2):
    filters = "HWIO" if layout == "NHWC" else "OIHW"
    return lax.conv_transpose(x, w, (stride, stride), "SAME", dimension_numbers=(layout, filters, layout))


def along(v, layout):
    """One number for each channel."""
    return v if layout == "NHWC" else v[:, None, None]


def places(layout):
    return (1, 2) if layout == "NHWC" else (2, 3)


def batch_norm(x, scale, shift, mean, variance, layout):
    """As an inference has it."""
    y = (x - along(mean, layout)) * lax.rsqrt(along(variance, layout) + 1e-5)
    return y * along(scale, layout) + along(shift, layout)


def batch_norm_of_batch(x, scale, shift, layout):
    """As training has it."""
    axes = (0, *places(layout))
    mean, variance = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * along(scale, layout) + along(shift, layout)


def group_norm(x, scale, shift, groups, layout):
    if layout == "NHWC":
        b, h, w, c = x.shape
        y, axes = x.reshape(b, h, w, groups, c // groups), (1, 2, 4)
    else:
        b, c, h, w = x.shape
        y, axes = x.reshape(b, groups, c // groups, h, w), (2, 3, 4)
    y = y.astype(jnp.float32)
    mean = y.mean(axes, keepdims=True)
    y = (y - mean) * lax.rsqrt(((y - mean) ** 2).mean(axes, keepdims=True) + 1e-6)
    return y.reshape(x.shape).astype(x.dtype) * along(scale, layout) + along(shift, layout)


def pool(x, kind, size, stride, layout, padding="SAME"):
    window = (1, size, size, 1) if layout == "NHWC" else (1, 1, size, size)
    steps = (1, stride, stride, 1) if layout == "NHWC" else (1, 1, stride, stride)
    if kind == "max":
        return lax.reduce_window(x, jnp.asarray(-jnp.inf, x.dtype), lax.max, window, steps, padding)
    total = lax.reduce_window(x, jnp.asarray(0, x.dtype), lax.add, window, steps, padding)
    return total / (size * size)


def global_pool(x, layout, keepdims=False):
    return jnp.mean(x, places(layout), keepdims=keepdims)


def squeeze_excite(x, w1, b1, w2, b2, layout, gate=jax.nn.sigmoid):
    y = global_pool(x, layout)
    y = gate(jax.nn.relu(y @ w1 + b1) @ w2 + b2)
    return x * (y[:, None, None, :] if layout == "NHWC" else y[:, :, None, None])


def upsample(x, layout, kind="repeat"):
    a, b = places(layout)
    if kind == "repeat":
        return jnp.repeat(jnp.repeat(x, 2, axis=a), 2, axis=b)
    shape = list(x.shape)
    shape[a], shape[b] = 2 * shape[a], 2 * shape[b]
    return jax.image.resize(x, shape, kind)


def pixel_shuffle(x, layout):
    """Four channels become one of twice the height and width."""
    if layout == "NHWC":
        b, h, w, c = x.shape
        return x.reshape(b, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(b, 2 * h, 2 * w, c // 4)
    b, c, h, w = x.shape
    return x.reshape(b, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(b, c // 4, 2 * h, 2 * w)


def concat(parts, layout):
    return jnp.concatenate(parts, axis=-1 if layout == "NHWC" else 1)


def to_tokens(x, layout):
    if layout == "NCHW":
        x = jnp.moveaxis(x, 1, -1)
    return x.reshape(x.shape[0], -1, x.shape[-1])


def to_image(x, height, width, layout):
    y = x.reshape(x.shape[0], height, width, x.shape[-1])
    return y if layout == "NHWC" else jnp.transpose(y, (0, 3, 1, 2))


# -- tokens ------------------------------------------------------------------------------------------------


def linear(x, w, b=None):
    y = x @ w
    return y if b is None else y + b


def linear_transposed(x, w, b=None):
    """With weights as PyTorch has them."""
    y = jnp.einsum("...i,oi->...o", x, w)
    return y if b is None else y + b


def layer_norm(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6) * scale + shift


def layer_norm_wide(x, scale, shift):
    """In f32, whatever x is, with the variance as a difference."""
    y = x.astype(jnp.float32)
    mean = jnp.mean(y, axis=-1)
    variance = jnp.maximum(jnp.mean(jnp.square(y), axis=-1) - jnp.square(mean), 0)
    y = (y - mean[..., None]) * lax.rsqrt(variance + 1e-5)[..., None]
    return (y * scale + shift).astype(x.dtype)


def rms_norm(x, scale):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def rotary(x, base=10000.0):
    """Rotates pairs of (batch, positions, heads, size) by angles of their positions."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * base ** (-jnp.arange(half) / half)
    sin, cos = jnp.sin(angles)[:, None, :].astype(x.dtype), jnp.cos(angles)[:, None, :].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def split_heads(x, heads):
    """(batch, positions, heads, size)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def merge_heads(x):
    return x.reshape(*x.shape[:-2], -1)


def mask_of(kind, rows, keys, window=4):
    """Which keys a row sees: `causal`, `sliding`, or all."""
    i, j = jnp.arange(rows)[:, None] + keys - rows, jnp.arange(keys)[None, :]
    if kind == "causal":
        return j <= i
    if kind == "sliding":
        return (j <= i) & (j > i - window)
    return None


def attend_matmul(q, k, v, kind="", bias=None):
    """Of (batch, positions, heads, size), as torch code has it: heads in front, matmuls, masks with -inf."""
    groups = q.shape[2] // k.shape[2]
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    if groups > 1:
        k, v = jnp.repeat(k, groups, axis=1), jnp.repeat(v, groups, axis=1)
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if bias is not None:
        s = s + bias
    seen = mask_of(kind, s.shape[-2], s.shape[-1])
    if seen is not None:
        s = jnp.where(seen, s, -jnp.inf)
    return (jax.nn.softmax(s, axis=-1) @ v).swapaxes(1, 2)


def attend_einsum(q, k, v, kind="", bias=None):
    """The same as JAX code has it: einsums, softmax in f32, masks with the lowest number."""
    b, s, h, d = q.shape
    q = q.reshape(b, s, k.shape[2], h // k.shape[2], d) * d**-0.5
    x = jnp.einsum("bsgrd,btgd->bgrst", q, k).astype(jnp.float32)
    if bias is not None:
        x = x + bias.reshape(*bias.shape[:-3], k.shape[2], -1, *bias.shape[-2:])
    seen = mask_of(kind, x.shape[-2], x.shape[-1])
    if seen is not None:
        x = jnp.where(seen, x, jnp.finfo(x.dtype).min)
    p = jax.nn.softmax(x, axis=-1).astype(v.dtype)
    return jnp.einsum("bgrst,btgd->bsgrd", p, v).reshape(b, s, h, -1)


def attend_library(q, k, v, kind="", bias=None):
    window = (3, 0) if kind == "sliding" else None
    causal = kind == "causal"
    return jax.nn.dot_product_attention(q, k, v, bias=bias, is_causal=causal, local_window_size=window)


def attend_vmap(q, k, v, kind="", bias=None):
    """One head at a time, mapped over heads and batch."""
    groups = q.shape[2] // k.shape[2]
    k, v = jnp.repeat(k, groups, axis=2), jnp.repeat(v, groups, axis=2)

    def head(q, k, v, b):
        s = q @ k.T * q.shape[-1] ** -0.5 + b
        seen = mask_of(kind, *s.shape)
        s = s if seen is None else jnp.where(seen, s, -1e4)
        e = jnp.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)) @ v

    b = jnp.zeros((q.shape[2], 1, 1), q.dtype) if bias is None else bias
    of_heads = jax.vmap(head, in_axes=(1, 1, 1, 0), out_axes=1)
    return jax.vmap(of_heads, in_axes=(0, 0, 0, None))(q, k, v, b.reshape(b.shape[-3:]))


def heads_first(q, k, v, kind="", bias=None):
    """With heads as a part of the batch, as fairseq has it."""
    b, s, h, d = q.shape
    t, groups = k.shape[1], h // k.shape[2]
    k, v = jnp.repeat(k, groups, axis=2), jnp.repeat(v, groups, axis=2)
    q, k, v = (jnp.moveaxis(x, 2, 1).reshape(b * h, x.shape[1], d) for x in (q, k, v))
    x = lax.dot_general(q * d**-0.5, k, (((2,), (2,)), ((0,), (0,))))
    if bias is not None:
        x = (x.reshape(b, h, s, t) + bias).reshape(b * h, s, t)
    seen = mask_of(kind, s, t)
    if seen is not None:
        x = x + jnp.where(seen, 0, -1e4).astype(x.dtype)
    y = lax.dot_general(jax.nn.softmax(x, axis=-1), v, (((2,), (1,)), ((0,), (0,))))
    return jnp.moveaxis(y.reshape(b, h, s, d), 1, 2)


def window_partition(x, size):
    """(batch, height, width, c) to (windows, size * size, c)."""
    b, h, w, c = x.shape
    y = x.reshape(b, h // size, size, w // size, size, c)
    return y.transpose(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)


def window_merge(x, size, height, width):
    y = x.reshape(-1, height // size, width // size, size, size, x.shape[-1])
    return y.transpose(0, 1, 3, 2, 4, 5).reshape(-1, height, width, x.shape[-1])


def patch_merge(x):
    """Swin's: four neighbours become channels."""
    parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    return jnp.concatenate(parts, axis=-1)


def hard_swish(x):
    return x * jax.nn.relu6(x + 3) / 6


def gelu_exact(x):
    return jax.nn.gelu(x, approximate=False)


def gelu_tanh(x):
    return jax.nn.gelu(x, approximate=True)


def quick_gelu(x):
    return x * jax.nn.sigmoid(1.702 * x)


def mixed_tokens(x, w1, w2):
    """MLP-Mixer's layer across positions."""
    return (gelu_tanh(x.swapaxes(1, 2) @ w1) @ w2).swapaxes(1, 2)


def sinusoid(t, size):
    """Diffusion's embedding of a time."""
    angles = t[:, None].astype(jnp.float32) * jnp.exp(-9.2 * jnp.arange(size // 2) / (size // 2))
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
