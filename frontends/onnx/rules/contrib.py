"""Ops of the domain com.microsoft that optimised transformers use, from the meaning that ONNX Runtime documents.

Attention is in `contrib_attention.py`; ops on stored numbers that are not products are in `quantized.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....dialects.elementwise import value_of
from ..node import Node
from ..table import add_rules, rule
from ..values import is_known
from .contractions import integer_matmul, scaled_type, signed_bytes
from .normalization import over_rms
from .quantized import MICROSOFT, STANDARD_VERSION, dynamically_quantized, rows, standard


def _like_standard(op: str) -> Callable[..., Any]:
    def build(node: Node, *inputs: Any) -> Any:
        return standard(node, op, inputs[0], node.attributes, STANDARD_VERSION, *inputs[1:])

    return build


for _op in ("GatherND", "Gelu", "Trilu"):
    add_rules([_op], _like_standard(_op), MICROSOFT)


# -- activations -------------------------------------------------------------------------------------------


@rule("FastGelu", domain=MICROSOFT)
def _fast_gelu(node: Node, x: Any, bias: Any = None) -> Any:
    import jax

    return jax.nn.gelu(x if bias is None else x + bias, approximate=True)


@rule("BiasGelu", domain=MICROSOFT)
def _bias_gelu(node: Node, x: Any, bias: Any) -> Any:
    import jax

    return jax.nn.gelu(x + bias, approximate=False)


@rule("BiasSplitGelu", domain=MICROSOFT)
def _bias_split_gelu(node: Node, x: Any, bias: Any) -> Any:
    import jax

    x, half = x + bias, x.shape[-1] // 2
    return x[..., :half] * jax.nn.gelu(x[..., half:], approximate=False)


@rule("QuickGelu", domain=MICROSOFT)
def _quick_gelu(node: Node, x: Any) -> Any:
    return x * value_of("logistic")(x * np.asarray(node.get("alpha", 1.702), x.dtype))


@rule("BiasAdd", domain=MICROSOFT)
def _bias_add(node: Node, x: Any, bias: Any, skip: Any) -> Any:
    return x + bias + skip


ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Clip")
"""What FusedConv and FusedGemm compute of their sums."""


def _activated(node: Node, x: Any, **attributes: Any) -> Any:
    name = node.get("activation", "")
    if not name:
        return x
    if name not in ACTIVATIONS:
        raise node.unsupported(f"its activation is {name!r}")
    given = {k: v for k, v in attributes.items() if v is not None}
    return standard(node, name, x, given)


@rule("FusedConv", domain=MICROSOFT)
def _fused_conv(node: Node, x: Any, w: Any, bias: Any = None, added: Any = None) -> Any:
    made = standard(node, "Conv", x, node.attributes, STANDARD_VERSION, w, bias)
    made = made if added is None else made + added
    given = [*node.get("activation_params", []), None, None]
    names = ("min", "max") if node.get("activation", "") == "Clip" else ("alpha", "beta")
    return _activated(node, made, **dict(zip(names, given, strict=False)))


@rule("FusedGemm", domain=MICROSOFT)
def _fused_gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    names = {n: node.get(f"activation_{n}") for n in ("alpha", "beta")}
    return _activated(node, standard(node, "Gemm", a, node.attributes, STANDARD_VERSION, b, c), **names)


# -- products ----------------------------------------------------------------------------------------------


@rule("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def _fused_matmul(node: Node, a: Any, b: Any) -> Any:
    import jax.numpy as jnp

    def transposed(x: Any, side: str) -> Any:
        if x.ndim > 1 and node.get(f"transBatch{side}", 0):
            x = jnp.moveaxis(x, 0, -2)
        return jnp.swapaxes(x, -1, -2) if x.ndim > 1 and node.get(f"trans{side}", 0) else x

    alpha = node.get("alpha", 1.0)
    kind = scaled_type(a.dtype, alpha)
    made = jnp.matmul(transposed(a, "A"), transposed(b, "B"), preferred_element_type=kind)
    return (made if alpha == 1 else made * np.asarray(alpha, kind)).astype(a.dtype)


@rule("MatMulNBits", domain=MICROSOFT)
def _matmul_nbits(
    node: Node, a: Any, b: Any, scales: Any, zeros: Any = None, order: Any = None, bias: Any = None
) -> Any:
    import jax
    import jax.numpy as jnp

    features, length, block, bits = node.get("N"), node.get("K"), node.get("block_size"), node.get("bits", 4)
    if order is not None or node.get("weight_prepacked", 0) or bits not in (2, 4, 8):
        raise node.unsupported(
            "weights are of 2, 4 or 8 bits, neither packed for a device nor in the order of g_idx"
        )
    blocks, middle = -(-length // block), 1 << (bits - 1)
    given = node.inputs[1]
    stored = np.asarray(given) if is_known(given) else b
    whole = _unpacked(stored.reshape(features, blocks, -1), bits)
    w = _centred(whole, bits).astype(a.dtype)
    if zeros is not None:
        packed = zeros.dtype == np.uint8
        point = (
            _unpacked(zeros.reshape(features, -1), bits)[:, :blocks]
            if packed
            else zeros.reshape(features, blocks)
        )
        w = w - (point.astype(a.dtype) - np.asarray(middle, a.dtype))[:, :, None]
    w = w * scales.reshape(features, blocks, 1).astype(a.dtype)
    w = w.reshape(features, blocks * block)[:, :length]
    made = jax.lax.dot_general(a, w, (((a.ndim - 1,), (1,)), ((), ())))
    return made if bias is None else jnp.add(made, bias)


def _unpacked(x: Any, bits: int) -> Any:
    """Numbers of fewer bits than a byte, the first one in the lowest bits of each byte of the last dimension."""
    if bits == 8:
        return x
    import jax.numpy as jnp

    xp: Any = np if isinstance(x, np.ndarray) else jnp
    parts = [(x >> np.uint8(n)) & np.uint8((1 << bits) - 1) for n in range(0, 8, bits)]
    return xp.stack(parts, axis=-1).reshape(*x.shape[:-1], x.shape[-1] * len(parts))


def _centred(x: Any, bits: int) -> Any:
    """Unsigned numbers less the middle of their range, as signed ones."""
    import jax.numpy as jnp
    import ml_dtypes

    made = signed_bytes(x) if bits == 8 else x.astype(np.int8) - np.int8(1 << (bits - 1))
    return (
        jnp.asarray(made.astype(ml_dtypes.int4))
        if bits == 4 and isinstance(made, np.ndarray)
        else jnp.asarray(made)
    )


@rule("MatMulIntegerToFloat", domain=MICROSOFT)
def _matmul_integer_to_float(
    node: Node,
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero: Any = None,
    b_zero: Any = None,
    bias: Any = None,
) -> Any:
    total = integer_matmul(a, node.input(1), node.input(4), node.input(5))
    made = total.astype(np.float32) * (rows(a_scale, a.ndim).astype(np.float32) * b_scale.astype(np.float32))
    made = made.astype(a_scale.dtype)
    return made if bias is None else made + bias


@rule("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic_quantize_matmul(
    node: Node, a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None
) -> Any:
    stored, scale, zero = dynamically_quantized(node, a)
    total = integer_matmul(stored, node.input(1), zero, node.input(3))
    made = total.astype(np.float32) * (scale * b_scale)
    return made if bias is None else made + bias


# -- normalisation -----------------------------------------------------------------------------------------


def normalised(node: Node, x: Any, scale: Any, shift: Any, centred: bool, axis: int = -1) -> Any:
    """x less its mean, if `centred`, over the root of its mean square, times a scale, plus a shift; in f32 at least."""
    import jax.numpy as jnp

    dims = tuple(range(node.place(axis, x.ndim), x.ndim))
    wide = x.astype(jnp.promote_types(x.dtype, np.float32))
    if centred:
        wide = wide - jnp.mean(wide, dims, keepdims=True)
    epsilon = node.get("epsilon", 1e-12 if centred else 1e-5)
    made = over_rms(wide, dims, epsilon).astype(x.dtype) * scale
    return made if shift is None else made + shift


def _only(node: Node, *places: int) -> None:
    """Raises where an output is asked for that only training needs."""
    if any(len(node.outputs) > i and node.outputs[i] for i in places):
        raise node.unsupported("means and variances, which training needs, are not given")


@rule("SimplifiedLayerNormalization")
@rule("SimplifiedLayerNormalization", domain=MICROSOFT)
def _simplified_layer_normalization(node: Node, x: Any, scale: Any) -> Any:
    _only(node, 1)
    return normalised(node, x, scale, None, centred=False, axis=node.get("axis", -1))


@rule("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer_normalization(
    node: Node, x: Any, skip: Any, scale: Any, shift: Any = None, bias: Any = None
) -> Any:
    _only(node, 1, 2)
    x = x + skip if bias is None else x + skip + bias
    return normalised(node, x, scale, shift, centred=True), None, None, x


@rule("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_simplified_layer_normalization(node: Node, x: Any, skip: Any, scale: Any, bias: Any = None) -> Any:
    _only(node, 1, 2)
    x = x + skip if bias is None else x + skip + bias
    return (
        normalised(replace(node, attributes={"epsilon": 1e-12, **node.attributes}), x, scale, None, False),
        None,
        None,
        x,
    )


@rule("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_layer_normalization(
    node: Node,
    ids: Any,
    segments: Any,
    words: Any,
    places: Any,
    kinds: Any,
    scale: Any,
    shift: Any,
    mask: Any = None,
    positions: Any = None,
) -> Any:
    import jax.numpy as jnp

    def embedded(table: Any, index: Any) -> Any:
        return jnp.take(table, index, axis=0, mode="clip")

    total = embedded(words, ids) + (
        places[: ids.shape[1]] if positions is None else embedded(places, positions)
    )
    if segments is not None and kinds is not None:
        total = total + embedded(kinds, segments)
    count = jnp.zeros(ids.shape[:1], np.int32) if mask is None else jnp.sum(mask, 1, dtype=np.int32)
    return normalised(node, total, scale, shift, centred=True), count, total
