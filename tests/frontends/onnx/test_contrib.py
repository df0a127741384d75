"""Ops of the domain com.microsoft, with expected values from numpy."""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx_models import model_of, outputs
from tiering import sampled

import tilewright as tw
from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import OnnxError

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def whole(dtype: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def of_microsoft(
    op: str, inputs: list[Any], count: int = 1, constants: Any = (), **attributes: Any
) -> onnx.ModelProto:
    """A model of one node."""
    more = [onnx.helper.make_attribute(n, attributes.pop(n)) for n in ("opset",) if n in attributes]
    model = model_of(op, inputs, count, 17, "com.microsoft", constants=constants, **attributes)
    model.graph.node[0].attribute.extend(more)
    return model


def ran(
    op: str, inputs: list[Any], count: int = 1, constants: Any = (), **attributes: Any
) -> list[np.ndarray]:
    inputs = [None if x is None else np.asarray(x) for x in inputs]
    model = of_microsoft(op, inputs, count, constants, **attributes)
    arrays = [x for i, x in enumerate(inputs) if x is not None and i not in constants]
    return [np.asarray(y) for y in outputs(model, *arrays)]


def close(got: np.ndarray, want: Any, tolerance: float = 1e-5) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(
        got.astype(np.float64), np.asarray(want, np.float64), rtol=tolerance, atol=tolerance
    )


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(erf, otypes=[np.float64])(x / sqrt(2)))


def fast_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# -- activations and products ------------------------------------------------------------------------------


def test_activations() -> None:
    x, b = normal(2, 3, 8), normal(8)
    close(ran("Gelu", [x])[0], gelu(x))
    close(ran("FastGelu", [x])[0], fast_gelu(x))
    close(ran("FastGelu", [x, b])[0], fast_gelu(x + b))
    close(ran("BiasGelu", [x, b])[0], gelu(x + b))
    close(ran("QuickGelu", [x], alpha=1.5)[0], x * sigmoid(1.5 * x))
    close(ran("BiasSplitGelu", [x, b])[0], (x + b)[..., :4] * gelu((x + b)[..., 4:]))
    close(ran("BiasAdd", [x, b, x])[0], x + b + x)
    close(ran("Trilu", [x, np.int64(1)], upper=0)[0], np.tril(x, 1))


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul(transposed: tuple[int, int]) -> None:
    a, b = normal(2, 3, 4), normal(2, 4, 5)
    given = [np.swapaxes(x, 1, 2) if t else x for x, t in zip((a, b), transposed, strict=True)]
    close(ran("FusedMatMul", given, transA=transposed[0], transB=transposed[1], alpha=0.5)[0], 0.5 * (a @ b))


def test_fused_matmul_of_transposed_batches() -> None:
    a, b = normal(3, 2, 4), normal(2, 4, 5)
    close(ran("FusedMatMul", [a, b], transBatchA=1)[0], np.moveaxis(a, 0, 1) @ b)


def test_fused_gemm() -> None:
    a, b, c = normal(3, 4), normal(4, 5), normal(5)
    y = a @ b + c
    close(
        ran("FusedGemm", [a, b, c], activation="LeakyRelu", activation_alpha=0.2)[0],
        np.where(y < 0, 0.2 * y, y),
    )
    with pytest.raises(OnnxError, match="its activation is 'Swoosh'"):
        ran("FusedGemm", [a, b, c], activation="Swoosh")


def test_fused_conv() -> None:
    x, w, z = normal(1, 3, 5, 5), normal(2, 3, 1, 1), normal(1, 2, 5, 5)
    want = np.clip(np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) + z, 0, 1)
    close(ran("FusedConv", [x, w, None, z], activation="Clip", activation_params=[0.0, 1.0])[0], want)


def packed(q: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of fewer bits in bytes, the first in the lowest bits."""
    each = 8 // bits
    q = np.pad(q, [(0, 0)] * (q.ndim - 1) + [(0, -q.shape[-1] % each)])
    parts = q.reshape(*q.shape[:-1], -1, each).astype(np.uint8)
    return (parts << (np.arange(each, dtype=np.uint8) * bits)).sum(-1).astype(np.uint8)


@sampled(2)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "float"])
@pytest.mark.parametrize("length", [32, 72])
@pytest.mark.parametrize("constants", [(), (1, 2, 3)])
def test_matmul_nbits(bits: int, zeros: str, length: int, constants: tuple[int, ...]) -> None:
    features, block = 5, 16
    blocks = -(-length // block)
    a, bias = normal(2, 3, length), normal(features)
    q = RNG.integers(0, 1 << bits, (features, blocks, block))
    scales = RNG.uniform(0.1, 0.2, (features, blocks)).astype(np.float32)
    zero = RNG.integers(0, 1 << bits, (features, blocks))
    w = (q - (zero[:, :, None] if zeros else 1 << (bits - 1))) * scales[:, :, None]
    want = a @ w.reshape(features, -1)[:, :length].T + bias
    points = {"": None, "packed": packed(zero, bits), "float": zero.astype(np.float32)}[zeros]
    given = [a, packed(q, bits), scales, points, None, bias]
    constants = tuple(i for i in constants if given[i] is not None)
    close(
        ran("MatMulNBits", given, 1, constants, N=features, K=length, bits=bits, block_size=block)[0],
        want,
        1e-4,
    )


def test_matmul_nbits_in_an_order_is_refused() -> None:
    given = [normal(2, 16), whole(np.uint8, 3, 1, 8), normal(3, 1), None, np.zeros(16, np.int32)]
    with pytest.raises(OnnxError, match="g_idx"):
        ran("MatMulNBits", given, N=3, K=16, bits=4, block_size=16)


def test_matmul_nbits_is_compiled() -> None:
    a, given = normal(4, 32), [whole(np.uint8, 16, 1, 16), normal(16, 1)]
    model = of_microsoft("MatMulNBits", [a, *given], 1, (1, 2), N=16, K=32, bits=4, block_size=32)
    fn = OnnxFunction(read_model(model))
    np.testing.assert_allclose(tw.compile(fn, a)(a), fn(a), rtol=1e-3, atol=1e-3)


# -- stored numbers ----------------------------------------------------------------------------------------


def number(x: np.ndarray, scale: Any, zero: Any) -> np.ndarray:
    return (x.astype(np.float32) - np.float32(zero)) * np.float32(scale)


def near(got: np.ndarray, y: np.ndarray, scale: Any, zero: Any, dtype: Any) -> None:
    """At most one step away, where the value is near the middle of two."""
    info = np.iinfo(dtype)
    want = np.clip(np.rint(y / scale) + zero, info.min, info.max)
    assert got.dtype == dtype and got.shape == want.shape
    assert np.abs(got.astype(int) - want).max() <= 1 and (got == want).mean() > 0.9


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_functions_of_stored_numbers(dtype: Any) -> None:
    x, y = whole(dtype, 2, 3, 4, 4), whole(dtype, 3, 1, 4)
    sx, zx, sy, zy, so, zo = np.float32(0.05), dtype(3), np.float32(0.1), dtype(7), np.float32(0.2), dtype(11)
    a, b = number(x, sx, zx), number(y, sy, zy)
    near(ran("QLinearAdd", [x, sx, zx, y, sy, zy, so, zo])[0], a + b, so, zo, dtype)
    near(
        ran("QLinearAdd", [x, sx, None, y, sy, None, so])[0],
        number(x, sx, 0) + number(y, sy, 0),
        so,
        0,
        dtype,
    )
    near(ran("QLinearMul", [x, sx, zx, y, sy, zy, so, zo])[0], a * b, so, zo, dtype)
    near(ran("QLinearSigmoid", [x, sx, zx, so / 50, zo])[0], sigmoid(a), so / 50, zo, dtype)
    leaky = np.where(a < 0, 0.3 * a, a)
    near(ran("QLinearLeakyRelu", [x, sx, zx, so, zo], alpha=0.3)[0], leaky, so, zo, dtype)
    near(ran("QLinearSoftmax", [x, sx, zx, so / 50, zo], opset=13)[0], softmax(a), so / 50, zo, dtype)
    near(ran("QLinearReduceMean", [x, sx, zx, so, zo], axes=[1])[0], a.mean(1, keepdims=True), so, zo, dtype)
    near(ran("QLinearConcat", [so, zo, x, sx, zx, x, sy, zy], axis=1)[0],
         np.concatenate([a, number(x, sy, zy)], 1), so, zo, dtype)  # fmt: skip


def test_pools_of_stored_numbers() -> None:
    x, s, z, so, zo = (
        whole(np.uint8, 2, 3, 4, 4),
        np.float32(0.05),
        np.uint8(3),
        np.float32(0.04),
        np.uint8(9),
    )
    a = number(x, s, z)
    near(
        ran("QLinearGlobalAveragePool", [x, s, z, so, zo])[0], a.mean((2, 3), keepdims=True), so, zo, np.uint8
    )
    last = np.moveaxis(x, 1, -1)
    want = np.moveaxis(a, 1, -1).mean((1, 2), keepdims=True)
    near(ran("QLinearGlobalAveragePool", [last, s, z, so, zo], channels_last=1)[0], want, so, zo, np.uint8)
    pooled = a.reshape(2, 3, 2, 2, 2, 2).mean((3, 5))
    near(
        ran("QLinearAveragePool", [x, s, z, so, zo], kernel_shape=[2, 2], strides=[2, 2])[0],
        pooled,
        so,
        zo,
        np.uint8,
    )


def test_quantize_linear_of_16_bits() -> None:
    x, s, z = normal(3, 4), np.float32(0.001), np.uint16(40000)
    near(ran("QuantizeLinear", [x, s, z])[0], x, s, z, np.uint16)
    q = whole(np.int16, 3, 4)
    close(ran("DequantizeLinear", [q, s, np.int16(7)])[0], number(q, s, 7))


def test_products_of_stored_numbers() -> None:
    x, w, bias = whole(np.uint8, 4, 6), whole(np.int8, 6, 5), normal(5)
    sx, sw, zx, zw = np.float32(0.1), normal(5), np.uint8(100), whole(np.int8, 5)
    want = number(x, sx, zx) @ ((w.astype(np.float32) - zw) * sw) + bias
    close(ran("MatMulIntegerToFloat", [x, w, sx, sw, zx, zw, bias])[0], want, 1e-4)
    a = normal(4, 6)
    got = ran("DynamicQuantizeMatMul", [a, w, sw, zw, bias])[0]
    exact = a @ ((w.astype(np.float32) - zw) * sw) + bias
    assert np.abs(got - exact).max() < 0.03 * np.abs(exact).max()


# -- normalisation -----------------------------------------------------------------------------------------


def normalised(x: np.ndarray, scale: np.ndarray, shift: Any, epsilon: float) -> np.ndarray:
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return y * scale + shift


def rms(x: np.ndarray, scale: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale


def test_normalisations() -> None:
    x, skip, scale, shift, bias = normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8), normal(8)
    got = ran("SkipLayerNormalization", [x, skip, scale, shift, bias], epsilon=1e-3)
    close(got[0], normalised(x + skip + bias, scale, shift, 1e-3))
    close(ran("SkipLayerNormalization", [x, skip[0], scale])[0], normalised(x + skip[0], scale, 0, 1e-12))
    close(
        ran("SkipSimplifiedLayerNormalization", [x, skip, scale, bias])[0], rms(x + skip + bias, scale, 1e-12)
    )
    close(ran("SimplifiedLayerNormalization", [x, scale], epsilon=1e-2)[0], rms(x, scale, 1e-2))


def test_embed_layer_normalization() -> None:
    ids, kinds = RNG.integers(0, 10, (2, 4)).astype(np.int32), RNG.integers(0, 2, (2, 4)).astype(np.int32)
    words, places, kind = normal(10, 8), normal(6, 8), normal(2, 8)
    scale, shift, mask = normal(8), normal(8), np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    out, count, total = ran(
        "EmbedLayerNormalization", [ids, kinds, words, places, kind, scale, shift, mask], 3
    )
    want = words[ids] + places[:4] + kind[kinds]
    close(total, want)
    close(out, normalised(want, scale, shift, 1e-12), 1e-4)
    assert count.tolist() == [3, 2]


# -- attention ---------------------------------------------------------------------------------------------


def heads(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def joined(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: Any = 0, scale: Any = None) -> np.ndarray:
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * (scale or 1 / sqrt(q.shape[-1]))
    return joined(softmax(scores + added) @ v)


def later(queries: int, keys: int) -> np.ndarray:
    """-inf for keys behind each query."""
    at = np.arange(queries)[:, None] + keys - queries
    return np.where(np.arange(keys) <= at, 0, -np.inf)


@pytest.mark.parametrize("kind", ["none", "2d", "3d", "lengths", "ends and begins"])
@pytest.mark.parametrize("causal", [0, 1])
def test_packed_attention(kind: str, causal: int) -> None:
    x, w, b = normal(2, 4, 6), normal(6, 24), normal(24)
    seen = np.ones((2, 1, 4, 4), bool)
    mask: Any = None
    if kind == "2d":
        mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
        seen = mask[:, None, None] > 0
    elif kind == "3d":
        mask = RNG.integers(0, 2, (2, 4, 4)).astype(np.int32)
        seen = mask[:, None] > 0
    elif kind == "lengths":
        mask = np.array([3, 2], np.int32)
        seen = np.arange(4) < mask[:, None, None, None]
    elif kind == "ends and begins":
        mask = np.array([4, 3, 1, 0], np.int32)
        seen = (np.arange(4) < mask[:2, None, None, None]) & (np.arange(4) >= mask[2:, None, None, None])
    q, k, v = (heads(t, 2) for t in np.split(x @ w + b, 3, -1))
    added = np.where(seen, 0, -10000.0) + (later(4, 4) if causal else 0)
    got = ran("Attention", [x, w, b, mask], num_heads=2, unidirectional=causal)
    close(got[0], attention(q, k, v, added), 1e-4)


def test_packed_attention_with_a_past() -> None:
    x, w, b, past, bias = (
        normal(2, 3, 6),
        normal(6, 24),
        normal(24),
        normal(2, 2, 2, 5, 4),
        normal(1, 2, 3, 8),
    )
    q, k, v = (heads(t, 2) for t in np.split(x @ w + b, 3, -1))
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    out, present = ran("Attention", [x, w, b, None, past, bias], 2, num_heads=2, unidirectional=1)
    close(out, attention(q, k, v, bias + later(3, 8)), 1e-4)
    close(present, np.stack([k, v]))


def test_quantized_attention() -> None:
    x, w, b = whole(np.uint8, 1, 4, 6), whole(np.int8, 6, 24), normal(24)
    s, t, z = np.float32(0.01), np.float32(0.02), np.uint8(128)
    q, k, v = (heads(p, 2) for p in np.split(number(x, s, z) @ number(w, t, 0) + b, 3, -1))
    got = ran("QAttention", [x, w, b, s, t, None, z, np.int8(0)], num_heads=2)
    close(got[0], attention(q, k, v), 1e-4)


def test_multi_head_attention() -> None:
    q, k, v, bias = normal(2, 3, 8), normal(2, 5, 8), normal(2, 5, 12), normal(28)
    parts = [q + bias[:8], k + bias[8:16], v + bias[16:]]
    own = [heads(x, 2) for x in parts]
    close(ran("MultiHeadAttention", [q, k, v, bias], num_heads=2)[0], attention(*own), 1e-4)
    plain = [heads(x, 2) for x in (q, k, v)]
    mask = np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)
    got = ran("MultiHeadAttention", [q, k, v, None, mask], num_heads=2, scale=0.3)[0]
    close(got, attention(*plain, np.where(mask[:, None, None] > 0, 0, -10000.0), 0.3), 1e-4)
    elsewhere = [heads(q + bias[:8], 2), *plain[1:]]
    close(ran("MultiHeadAttention", [q, *plain[1:], bias], num_heads=2)[0], attention(*elsewhere), 1e-4)
    past = normal(2, 2, 4, 4), normal(2, 2, 4, 6)
    k2, v2 = (np.concatenate([p, x], 2) for p, x in zip(past, plain[1:], strict=True))
    got = ran("MultiHeadAttention", [q, k, v, None, None, None, *past], 3, num_heads=2, unidirectional=1)
    close(got[0], attention(plain[0], k2, v2, later(3, 9)), 1e-4)
    close(got[1], k2)
    close(got[2], v2)


def test_multi_head_attention_of_packed_parts() -> None:
    qkv = normal(2, 3, 2, 3, 4)
    own = [qkv[:, :, :, i].swapaxes(1, 2) for i in range(3)]
    close(ran("MultiHeadAttention", [qkv], num_heads=2)[0], attention(*own), 1e-4)
    q = normal(2, 3, 8)
    got = ran("MultiHeadAttention", [q, qkv[:, :, :, :2]], num_heads=2)[0]
    close(got, attention(heads(q, 2), own[0], own[1]), 1e-4)


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def test_rotary_embedding() -> None:
    x, cos, sin = normal(2, 3, 16), normal(9, 4), normal(9, 4)
    positions = RNG.integers(0, 9, (2, 3))
    want = turned(heads(x, 2), cos[positions][:, None], sin[positions][:, None])
    close(ran("RotaryEmbedding", [x, positions, cos, sin])[0], joined(want))
    want = turned(heads(x, 2), cos[2:5], sin[2:5])
    close(ran("RotaryEmbedding", [want * 0 + heads(x, 2), np.array([2]), cos, sin])[0], want)


def cached(shape: tuple[int, ...], before: list[int], k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A past of some length, and what it is with keys k behind its first `before`, of whatever the batch has."""
    past = normal(*shape)
    made = past.copy()
    for i, n in enumerate(before):
        made[i, :, n : n + k.shape[2]] = k[i]
    return past, made


@sampled(2)
@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize(("new", "length", "before"), [
    (4, 0, [0, 0]),  # a prompt
    (4, 8, [0, 0]),  # a prompt, into a buffer
    (1, 8, [5, 2]),  # a token of each
    (3, 8, [5, 2]),
])  # fmt: skip
@pytest.mark.parametrize("packed_", [False, True])
def test_group_query_attention(rotary: int, new: int, length: int, before: list[int], packed_: bool) -> None:
    qkv, cos, sin = normal(2, new, 64), normal(9, 4), normal(9, 4)
    q, k, v = heads(qkv[..., :32], 4), heads(qkv[..., 32:48], 2), heads(qkv[..., 48:], 2)
    at = np.array(before)[:, None] + np.arange(new)
    if rotary:
        q, k = (turned(x, cos[at][:, None], sin[at][:, None]) for x in (q, k))
    keys = length or new
    (past_k, all_k), (past_v, all_v) = (cached((2, 2, keys, 8), before, x) for x in (k, v))
    seen = np.arange(keys) <= at[:, None, :, None]
    seen &= np.arange(keys) > at[:, None, :, None] - 3
    past = [past_k, past_v] if length else [None, None]
    lengths, total = np.array(before, np.int32) + new - 1, np.int32(max(before) + new)
    parts = [qkv, None, None] if packed_ else [qkv[..., :32], qkv[..., 32:48], qkv[..., 48:]]
    inputs = [*parts, *past, lengths, total, *([cos, sin] if rotary else [])]
    got = ran(
        "GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2, do_rotary=rotary, local_window_size=3
    )
    close(got[0], attention(q, all_k, all_v, np.where(seen, 0, -np.inf)), 1e-4)
    close(got[1], all_k)
    close(got[2], all_v)


def test_group_query_attention_with_a_growing_cache() -> None:
    q, k, v, past = normal(1, 1, 32), normal(1, 1, 16), normal(1, 1, 16), normal(1, 2, 5, 8)
    own = [np.concatenate([past, heads(x, 2)], 2) for x in (k, v)]
    inputs = [q, k, v, past, past, np.array([5], np.int32), np.int32(6)]
    got = ran("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2, softcap=2.0)
    close(got[1], own[0])
    scores = heads(q, 4) @ np.repeat(own[0], 2, 1).swapaxes(2, 3) / sqrt(8)
    close(got[0], joined(softmax(np.tanh(scores / 2) * 2) @ np.repeat(own[1], 2, 1)), 1e-4)


def test_group_query_attention_with_a_sink() -> None:
    q, k, v, sink = normal(1, 3, 16), normal(1, 3, 16), normal(1, 3, 16), normal(2)
    lengths, total = np.array([2], np.int32), np.int32(3)
    inputs = [q, k, v, None, None, lengths, total, None, None, None, None, sink]
    own = [heads(x, 2) for x in (q, k, v)]
    scores = np.concatenate(
        [
            own[0] @ own[1].swapaxes(2, 3) / sqrt(8) + later(3, 3),
            np.broadcast_to(sink[None, :, None, None], (1, 2, 3, 1)),
        ],
        -1,
    )
    got = ran("GroupQueryAttention", inputs, num_heads=2, kv_num_heads=2)
    close(got[0], joined(softmax(scores)[..., :-1] @ own[2]), 1e-4)


def test_quantised_caches_are_refused() -> None:
    q = normal(1, 1, 8)
    past = whole(np.int8, 1, 2, 5, 4)
    scale = np.ones(1, np.float32)
    inputs = [q, q, q, past, past, np.array([5], np.int32), np.int32(6), *[None] * 5, scale, scale]
    with pytest.raises(OnnxError, match="quantised caches"):
        ran("GroupQueryAttention", inputs, num_heads=2, kv_num_heads=2)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats(dtype: Any) -> None:
    x, scale = normal(2, 3, 8, dtype=dtype), normal(8, dtype=dtype)
    (got,) = ran("SkipSimplifiedLayerNormalization", [x, x, scale])
    assert got.dtype == dtype
    q = normal(1, 3, 8, dtype=dtype)
    (got,) = ran("MultiHeadAttention", [q, q, q], num_heads=2)
    own = heads(q.astype(np.float32), 2)
    assert got.dtype == dtype
    close(got, attention(own, own, own), 3e-2)
