"""What the stored kernels compute, in NumPy: a launch, inputs and results of each whose meaning is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf

import ml_dtypes
import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Reference:
    """A launch as text, the inputs in the kernel's order, what it makes of them, how far it may be off (of the largest
    number), and the chip."""

    launch: str
    inputs: Callable[[np.random.Generator], Sequence[Array]]
    results: Callable[..., Sequence[Array]]
    off: float = 1e-5
    target: str = "ascend-910b1"


def _floats(
    *shapes: tuple[int, ...], dtype: str = "float32", low: float = -2.0
) -> Callable[..., Sequence[Array]]:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return lambda rng: [rng.uniform(low, 2, s).astype(kind) for s in shapes]


def _f32(x: Array) -> Array:
    return x.astype(np.float32)


def _like(results: Sequence[Array], x: Array) -> Sequence[Array]:
    return [r.astype(x.dtype) for r in results]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(x, -80, 80)))


def _softmax(x: Array) -> Array:
    e = np.exp(_f32(x) - _f32(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _norm(x: Array) -> Array:
    d = _f32(x) - _f32(x).mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)


def _rms(x: Array) -> Array:
    return _f32(x) / np.sqrt((_f32(x) ** 2).mean(-1, keepdims=True) + 1e-5)


def _adam(p: Array, g: Array, m: Array, v: Array) -> Sequence[Array]:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return [p - 0.01 * m / (np.sqrt(v) + 1e-8), m, v]


def _rope(x: Array, c: Array, s: Array) -> Sequence[Array]:
    a, b = x[:, 0::2], x[:, 1::2]
    return [np.stack([a * c - b * s, b * c + a * s], -1).reshape(x.shape)]


def _product(a: Array, b: Array) -> Array:
    return _f32(a) @ _f32(b)


def _gelu(x: Array) -> Array:
    z = 0.7978845608 * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(z))


def _attention(q: Array, k: Array, v: Array) -> Sequence[Array]:
    scores = 0.125 * _f32(q) @ _f32(k).transpose(0, 2, 1)
    return _like([_softmax(scores) @ _f32(v)], q)


def _mlp(x: Array, w1: Array, w2: Array) -> Sequence[Array]:
    h = _product(x, w1)
    h = (h * _sigmoid(h)).astype(x.dtype)
    return _like([_product(h, w2)], x)


def _scattered(x: Array, rows: Array, old: Array) -> Sequence[Array]:
    new = old.copy()
    new[rows] = x
    return [new]


F16 = {"dtype": "float16"}
A5 = "ascend-950pr"
REFERENCES: dict[str, Reference] = {
    "add_f32": Reference("grid=(5,), 20000", _floats((20000,), (20000,)), lambda x, y: [x + y]),
    "add_f16": Reference("grid=(3,), 20000", _floats((20000,), (20000,), **F16), lambda x, y: [x + y], 1e-3),
    "add_f32_nomask": Reference("grid=(4,)", _floats((16384,), (16384,)), lambda x, y: [x + y]),
    "add_f32_odd": Reference("grid=(3,), 2999", _floats((2999,), (2999,)), lambda x, y: [x + y]),
    "add_i32": Reference(
        "grid=(3,), 10001",
        lambda rng: list(rng.integers(-1000, 1000, (2, 10001)).astype(np.int32)),
        lambda x, y: [x + y],
        0,
    ),
    "mul_persistent_f32": Reference("grid=(3,), 15000", _floats((15000,), (15000,)), lambda x, y: [x * y]),
    "atomic_add_f32": Reference("grid=(2,)", _floats((2048,), (1024,)), lambda x, y: [y + x[:1024] + x[1024:]], 0),
    "gelu_tanh_f32": Reference("grid=(2,), 6000", _floats((6000,)), lambda x: [_gelu(x)]),
    "silu_bf16": Reference(
        "grid=(2,), 7000",
        _floats((7000,), dtype="bfloat16"),
        lambda x: _like([_f32(x) * _sigmoid(_f32(x))], x),
        0.01,
    ),
    "swiglu_f16": Reference(
        "grid=(2,), 7000",
        _floats((7000,), (7000,), **F16),
        lambda x, g: _like([_f32(x) * _sigmoid(_f32(x)) * _f32(g)], x),
        2e-3,
    ),
    "swiglu_bf16": Reference(
        "grid=(2,), 7000",
        _floats((7000,), (7000,), dtype="bfloat16"),
        lambda x, g: _like([_f32(x) * _sigmoid(_f32(x)) * _f32(g)], x),
        0.01,
    ),
    "adam_f32": Reference(
        "grid=(2,), 3000, 0.01", _floats((3000,), (3000,), (3000,), (3000,), low=0.1), _adam
    ),
    "cast_f32_bf16": Reference(
        "grid=(2,), 5000", _floats((5000,)), lambda x: [x.astype(ml_dtypes.bfloat16)], 0
    ),
    "fits_ub_f32": Reference("grid=(2,)", _floats((32768,), (32768,)), lambda x, y: [np.exp(x + y)]),
    "softmax_f32": Reference("grid=(3,), 1000", _floats((3, 1000)), lambda x: [_softmax(x)]),
    "softmax_f16_odd": Reference(
        "grid=(3,), 1999", _floats((3, 1999), **F16), lambda x: _like([_softmax(x)], x), 2e-3
    ),
    "layernorm_f16": Reference(
        "grid=(3,), 1e-5",
        _floats((3, 1024), (1024,), (1024,), **F16),
        lambda x, g, b: _like([_norm(x) * _f32(g) + _f32(b)], x),
        2e-3,
    ),
    "layernorm_256x1024_f32": Reference(
        "grid=(2,)", _floats((32, 1024), (1024,), (1024,)), lambda x, g, b: [_norm(x) * g + b]
    ),
    "rmsnorm_f16": Reference(
        "grid=(3,), 1e-5",
        _floats((3, 4096), (4096,), **F16),
        lambda x, g: _like([_rms(x) * _f32(g)], x),
        2e-3,
    ),
    "add_rmsnorm_f16": Reference(
        "grid=(3,), 1e-5",
        _floats((3, 4096), (3, 4096), (4096,), **F16),
        lambda x, y, g: _like([_rms(_f32(x) + _f32(y)) * _f32(g), _f32(x) + _f32(y)], x),
        2e-3,
    ),
    "rope_interleaved_f32": Reference("grid=(4,)", _floats((4, 128), (4, 64), (4, 64)), _rope),
    "reduce_sum_f32": Reference("grid=(3,)", _floats((48, 512)), lambda x: [x.sum(1)]),
    "reduce_max_axis0_f32": Reference("grid=(32,)", _floats((64, 4096)), lambda x: [x.max(0)]),
    "cumsum_axis0_f32": Reference("grid=(8,)", _floats((32, 1024)), lambda x: [np.cumsum(x, 0)]),
    "transpose_f32": Reference("grid=(2,2), 100, 90", _floats((100, 90)), lambda x: [x.T]),
    "transpose_f16": Reference("grid=(2,2), 100, 90", _floats((100, 90), **F16), lambda x: [x.T], 0),
    "outer_f32": Reference("grid=(1,)", _floats((32,), (256,)), lambda x, y: [x[:, None] * y[None, :]]),
    "gemv_f16": Reference(
        "grid=(4,)",
        _floats((1024,), (32, 1024), **F16),
        lambda x, w: _like([_product(w, x[:, None])[:, 0]], x),
        2e-3,
    ),
    "matmul_512_f16": Reference(
        "grid=(4,2)", _floats((512, 512), (512, 512), **F16), lambda a, b: _like([_product(a, b)], a), 2e-3
    ),
    "matmul_i8": Reference(
        "grid=(2,2), 256, 256, 256",
        lambda rng: list(rng.integers(-100, 100, (2, 256, 256)).astype(np.int8)),
        lambda a, b: [a.astype(np.int32) @ b.astype(np.int32)],
        0,
    ),
    "batched_matmul_f16": Reference(
        "grid=(2,1,2), 256, 128, 256",
        _floats((2, 256, 256), (2, 256, 128), **F16),
        lambda a, b: _like([_f32(a) @ _f32(b)], a),
        2e-3,
    ),
    "dot_one_tile_f16": Reference(
        "grid=(1,)", _floats((64, 64), (64, 64), **F16), lambda a, b: [_product(a, b)], 2e-3
    ),
    "matmul_relu_f16": Reference(
        "grid=(2,2), 256, 256, 256",
        _floats((256, 256), (256, 256), **F16),
        lambda a, b: _like([np.maximum(_product(a, b), 0)], a),
        2e-3,
    ),
    "attention_f16": Reference(
        "grid=(2,2), 0.125, 128", _floats((2, 128, 64), (2, 128, 64), (2, 128, 64), **F16), _attention, 4e-3
    ),
    "fused_mlp_f16": Reference(
        "grid=(2,), 256",
        lambda rng: [(rng.uniform(-1, 1, s) / 4).astype("f2") for s in ((128, 128), (128, 256), (256, 128))],
        _mlp,
        4e-3,
    ),
    "matmul_bias_gelu_f16": Reference(
        "grid=(2,2), 128, 256, 256",
        _floats((128, 256), (256, 256), (256,), **F16),
        lambda a, b, d: _like([(x := _product(a, b) + _f32(d)) * _sigmoid(1.702 * x)], a),
        4e-3,
    ),
    "cross_entropy_f32": Reference(
        "grid=(3,)",
        lambda rng: [rng.uniform(-2, 2, (3, 4096)).astype("f4"), np.array([5, 4095, 0], "i4")],
        lambda x, t: [np.log(np.exp(x).sum(-1)) - x[np.arange(3), t]],
    ),
    "scatter_rows_f16": Reference(
        "grid=(3,), arg5=7168, scattered",
        lambda rng: [rng.uniform(-2, 2, (3, 1024)).astype("f2"), np.array([6, 0, 3], "i4"), np.ones((7, 1024), "f2")],
        _scattered,
        0,
    ),
    # What HFusion makes of a graph: sizes are given by the names of tensors, and the host's function is followed.
    "hf_add_f32_dyn": Reference(
        "arg0=50, arg1=51200, arg2=51200, arg3=51200",
        _floats((51200,), (51200,)),
        lambda x, y: [x + y],
    ),
    "hf_relu_f16_dyn": Reference(
        "arg0=50, arg1=51200, arg2=51200",
        _floats((51200,), **F16),
        lambda x: [np.maximum(x, 0)],
        0,
    ),
    "hf_cast_f32_f16_dyn": Reference(
        "arg0=50, arg1=51200, arg2=51200",
        _floats((51200,)),
        lambda x: [x.astype("f2")],
        0,
    ),
    "hf_reduce_sum_f32_dyn_nomb": Reference(
        "arg0=100, arg1=100", _floats((100, 1024)), lambda x: [x.sum(-1)]
    ),
    "hf_softmax_f32_dyn": Reference("arg0=100, arg1=100", _floats((100, 1024)), lambda x: [_softmax(x)]),
    # Those of the 950, with vector functions.
    "a5_add_f32": Reference("grid=(3,), 10000", _floats((10000,), (10000,)), lambda x, y: [x + y], target=A5),
    "a5_cast_f32_f16": Reference(
        "grid=(3,), 10000", _floats((10000,)), lambda x: [x.astype("f2")], 0, target=A5
    ),
    "a5_gelu_erf_f32": Reference(
        "grid=(3,), 5000",
        _floats((5000,)),
        lambda x: [x * (1 + np.vectorize(erf)(x / 2**0.5)) / 2],
        target=A5,
    ),
    "a5_swiglu_f16": Reference(
        "grid=(3,), 10000",
        _floats((10000,), (10000,), **F16),
        lambda x, y: _like([_f32(x) * _sigmoid(_f32(x)) * _f32(y)], x),
        1e-3,
        target=A5,
    ),
    "a5_softmax_f32": Reference("grid=(3,), 1000", _floats((3, 1000)), lambda x: [_softmax(x)], target=A5),
    "a5_reduce_sum_f32": Reference("grid=(3,)", _floats((48, 512)), lambda x: [x.sum(1)], target=A5),
    "a5_cumsum_f32": Reference("grid=(4,)", _floats((32, 256)), lambda x: [np.cumsum(x, 1)], target=A5),
    "a5_sort_f32": Reference("grid=(3,)", _floats((3, 128)), lambda x: [np.sort(x, 1)], 0, target=A5),
    "a5_transpose_f16": Reference(
        "grid=(2,2), 100, 90", _floats((100, 90), **F16), lambda x: [x.T], 0, target=A5
    ),
}
