"""ONNX's quantised ops: values as its evaluator has them, and products on the cube."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import check, model_of, outputs
from tiering import sampled

import tilewright as tw
from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import OnnxError

RNG = np.random.default_rng(0)
INTEGERS = [
    np.uint8,
    np.int8,
    np.uint16,
    np.int16,
    ml_dtypes.int4,
    ml_dtypes.uint4,
    ml_dtypes.int2,
    ml_dtypes.uint2,
]
EIGHTS = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
]


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def stored(dtype: Any, *shape: int) -> np.ndarray:
    info = ml_dtypes.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def scales(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.uniform(0.05, 0.1, shape).astype(dtype)


def number_of(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


# -- QuantizeLinear and DequantizeLinear -------------------------------------------------------------------


@sampled(2)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, ml_dtypes.int4])
@pytest.mark.parametrize(("shape", "scale", "attributes"), [
    ((3, 5), (), {}),
    ((3, 5), (1,), {}),
    ((2, 3, 4), (3,), {}),
    ((2, 3, 4), (4,), {"axis": -1}),
    ((7,), (), {}),
    ((), (), {}),
    ((0, 3), (3,), {"axis": 1}),
    ((2, 7, 3), (2, 3, 3), {"axis": 1, "block_size": 3}),
    ((2, 8), (2, 2), {"axis": -1, "block_size": 4}),
])  # fmt: skip
def test_integers(
    dtype: Any, shape: tuple[int, ...], scale: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    s, zero = scales(*scale), stored(dtype, *scale)
    x = normal(*shape) * 4
    check(model_of("QuantizeLinear", [x, s, zero], **attributes), x, s, zero)
    q = stored(dtype, *shape)
    check(model_of("DequantizeLinear", [q, s, zero], **attributes), q, s, zero)
    check(model_of("DequantizeLinear", [q, s, zero], constants=(0, 1, 2), **attributes))
    check(model_of("DequantizeLinear", [q, s], constants=(1,), **attributes), q)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_types(dtype: Any) -> None:
    x, s, zero, q = normal(3, 5) * 4, scales(5), stored(dtype, 5), stored(dtype, 3, 5)
    check(model_of("QuantizeLinear", [x, s, zero]), x, s, zero)
    check(model_of("DequantizeLinear", [q, s, zero]), q, s, zero)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25])
def test_opsets(opset: int) -> None:
    x, s, zero = normal(3, 4) * 3, np.float32(0.05), np.uint8(7)
    check(model_of("QuantizeLinear", [x, s, zero], opset=opset), x, s, zero)
    check(model_of("QuantizeLinear", [x, s], opset=opset), x, s)
    q = stored(np.uint8, 3, 4)
    (got,) = outputs(model_of("DequantizeLinear", [q, s, zero], opset=opset), q, s, zero)
    np.testing.assert_array_equal(got, (q.astype(np.float32) - 7) * s)


@pytest.mark.parametrize("dtype", EIGHTS)
@pytest.mark.parametrize("saturate", [0, 1])
def test_floats_of_8_bits(dtype: Any, saturate: int) -> None:
    x = np.array([0.0, 1.0, -2.5, 1e-3, 447.0, 470.0, 1e6, -1e6, np.nan, np.inf], np.float32)
    s, zero = np.float32(1), np.zeros((), dtype)
    model = model_of("QuantizeLinear", [x, s, zero], saturate=saturate)
    want = onnx.reference.ReferenceEvaluator(model).run(None, {"x0": x, "x1": s, "x2": zero})[0]
    np.testing.assert_array_equal(
        np.asarray(outputs(model, x, s, zero)[0]).astype(np.float32), np.asarray(want).astype(np.float32)
    )
    q = normal(5).astype(dtype)
    check(model_of("DequantizeLinear", [q, s]), q, s)


@pytest.mark.parametrize("dtype", [*INTEGERS, *EIGHTS, ml_dtypes.float4_e2m1fn])
def test_the_output_type_is_an_attribute(dtype: Any) -> None:
    x, s = normal(4, 3), np.float32(0.5)
    check(model_of("QuantizeLinear", [x, s], output_dtype=number_of(dtype)), x, s)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_narrow_floats(kind: Any, dtype: Any) -> None:
    x, s, zero = (normal(6, 5) * 2).astype(kind), kind(0.0625), stored(dtype)
    check(model_of("QuantizeLinear", [x, np.asarray(s), zero]), x, np.asarray(s), zero)
    q = stored(dtype, 6, 5)
    check(model_of("DequantizeLinear", [q, np.asarray(s), zero]), q, np.asarray(s), zero, rtol=1e-2)


def test_precision_and_types() -> None:
    x, s = normal(6, 5, dtype=np.float16), np.float32(0.125)
    precision = TensorProto.FLOAT16
    check(model_of("QuantizeLinear", [x, s], precision=precision), x, s)
    whole = stored(np.int32, 9) // 2**20
    check(model_of("QuantizeLinear", [whole, np.float32(16)]), whole, np.float32(16))
    check(model_of("DequantizeLinear", [whole, np.float32(0.1)]), whole, np.float32(0.1))
    q = stored(np.int8, 4, 4)
    model = model_of("DequantizeLinear", [q, np.float32(0.25)], output_dtype=TensorProto.FLOAT16)
    check(model, q, np.float32(0.25))


def test_what_is_outside_saturates() -> None:
    x = np.array([np.inf, -np.inf, 1e30, -1e30], np.float32)
    model = model_of("QuantizeLinear", [x, np.float32(1), np.int8(1)])
    assert outputs(model, x, np.float32(1), np.int8(1))[0].tolist() == [127, -128, 127, -128]


def test_float6_is_refused() -> None:
    x, s = normal(3), np.float32(1)
    number = number_of(ml_dtypes.float6_e2m3fn)
    with pytest.raises(OnnxError, match="no device has float6"):
        outputs(model_of("QuantizeLinear", [x, s], output_dtype=number), x, s)


@pytest.mark.parametrize(
    "x", [normal(3, 4), np.abs(normal(5)), -np.abs(normal(5)), np.full((2, 2), 3, np.float32)]
)
def test_dynamic(x: np.ndarray) -> None:
    check(model_of("DynamicQuantizeLinear", [x], outputs=3), x)


def test_dynamic_of_zeros() -> None:
    y, _, zero = outputs(model_of("DynamicQuantizeLinear", [normal(3)], outputs=3), np.zeros(3, np.float32))
    assert not y.any() and not zero


# -- products ----------------------------------------------------------------------------------------------


def by_hand(total: np.ndarray, factor: Any, zero: Any) -> np.ndarray:
    """Sums as what is stored for them: rounded to even before the zero point is added."""
    info = np.iinfo(zero.dtype)
    y = np.rint(total.astype(np.float32) * np.float32(factor)) + zero.astype(np.float32)
    return np.clip(y, info.min, info.max).astype(zero.dtype)


@sampled(2)
@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize(("a", "b", "sa", "sb"), [
    ((3, 8), (8, 5), (), ()),
    ((3, 8), (8, 5), (3,), (5,)),
    ((2, 3, 8), (2, 8, 5), (2, 3, 1), (2, 1, 5)),
    ((2, 3, 8), (8, 1), (1,), (1,)),
    ((8,), (8, 5), (), ()),
    ((3, 8), (8,), (), ()),
    ((3, 0), (0, 5), (), ()),
])  # fmt: skip
def test_qlinear_matmul(left: Any, right: Any, a: Any, b: Any, sa: Any, sb: Any) -> None:
    x, w = stored(left, *a), stored(right, *b)
    points = stored(left, *sa), stored(right, *sb)
    given = [x, scales(*sa), points[0], w, scales(*sb), points[1], np.float32(0.8), np.asarray(left(9))]
    za, s = (t[:, None] if t.ndim == 1 and t.size > 1 else t for t in (points[0].astype(np.int64), given[1]))
    total = (x.astype(np.int64) - za) @ (w.astype(np.int64) - points[1].astype(np.int64))
    want = by_hand(total, s * given[4] / given[6], given[7])
    (got,) = outputs(model_of("QLinearMatMul", given), *given)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert (
        np.abs(np.asarray(got).astype(int) - want.astype(int)).max(initial=0) <= 1
    )  # a factor rounded otherwise
    assert (np.asarray(got) == want).mean() > 0.9 or not want.size


def test_qlinear_matmul_of_floats() -> None:
    x, w = normal(4, 6).astype(ml_dtypes.float8_e4m3fn), normal(6, 3).astype(ml_dtypes.float8_e4m3fn)
    zero = np.zeros((), x.dtype)
    given = [x, np.float32(0.5), zero, w, np.float32(0.5), zero, np.float32(0.25), zero]
    want = (x.astype(np.float32) @ w.astype(np.float32)).astype(x.dtype)
    np.testing.assert_array_equal(outputs(model_of("QLinearMatMul", given), *given)[0], want)


@sampled(3)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize("attributes", [
    {},
    {"pads": [1, 0, 2, 1], "strides": [2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"group": 2, "pads": [1, 1, 1, 1]},
    {"dilations": [2, 1]},
])  # fmt: skip
def test_qlinear_conv(per_channel: bool, left: Any, right: Any, attributes: dict[str, Any]) -> None:
    x, w = stored(left, 2, 4, 7, 6), stored(right, 6, 4 // attributes.get("group", 1), 3, 2)
    some = (6,) if per_channel else ()
    given = [x, np.float32(0.02), left(5), w, scales(*some), stored(right, *some), np.float32(3), left(3)]
    given = [*map(np.asarray, given), RNG.integers(-999, 999, 6).astype(np.int32)]
    numbers = [t.astype(np.float64) for t in (x, w)]
    zero = given[5].astype(np.float64)
    shifted = [numbers[0] - 5, numbers[1] - (zero.reshape(-1, 1, 1, 1) if per_channel else zero)]
    plain = model_of("Conv", [*shifted, given[8].astype(np.float64)], **attributes)
    names = {f"x{i}": v for i, v in enumerate([*shifted, given[8].astype(np.float64)])}
    total = onnx.reference.ReferenceEvaluator(plain).run(None, names)[0]
    factor = (
        (given[1] * given[4] / given[6]).reshape(-1, 1, 1) if per_channel else given[1] * given[4] / given[6]
    )
    want = by_hand(np.asarray(total), factor, given[7])
    (got,) = outputs(model_of("QLinearConv", given, **attributes), *given)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert np.abs(np.asarray(got).astype(int) - want.astype(int)).max() <= 1
    assert (np.asarray(got) == want).mean() > 0.95


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_what_known_weights_add_is_a_constant(dtype: Any) -> None:
    scale, zero = np.asarray(np.float32(0.05)), np.asarray(dtype(3))
    image, kernel, matrix = stored(dtype, 2, 3, 5, 5), stored(dtype, 4, 3, 2, 2), stored(dtype, 5, 6)
    for op, x, w in (("QLinearConv", image, kernel), ("QLinearMatMul", image, matrix)):
        model = model_of(op, [x, scale, zero, w, scale, zero, scale, zero], constants=range(1, 8))
        fn = OnnxFunction(read_model(model))
        sums = [e for e in jax.make_jaxpr(fn)(x).eqns if e.primitive.name == "reduce_sum"]
        assert all(e.invars[0].aval.shape[:2] == (2, 3) for e in sums), op  # of what is computed alone
        check(model, x)


# -- what the compiler makes of them -----------------------------------------------------------------------


def qdq_layer(per_axis: bool, zero: int) -> onnx.ModelProto:
    """A dense layer between QuantizeLinear and DequantizeLinear nodes, as quantisers write it."""
    node = helper.make_node
    some = (12,) if per_axis else ()
    initializers = {
        "xs": np.float32(0.04), "xz": np.int8(zero), "w": stored(np.int8, 30, 12), "ws": scales(*some),
        "wz": np.zeros(some, np.int8), "ys": np.float32(2.5), "yz": np.int8(-5),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
        node("MatMul", ["xd", "wd"], ["m"]),
        node("Relu", ["m"], ["r"]),
        node("QuantizeLinear", ["r", "ys", "yz"], ["q"]),
        node("DequantizeLinear", ["q", "ys", "yz"], ["y"]),
    ]
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [9, k]) for n, k in (("x", 30), ("y", 12))]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in initializers.items()]
    graph = helper.make_graph(nodes, "qdq", types[:1], types[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("as_arguments", [False, True])
def test_a_quantised_layer_is_a_product_of_bytes(per_axis: bool, zero: int, as_arguments: bool) -> None:
    fn = OnnxFunction(read_model(qdq_layer(per_axis, zero)), weights_as_arguments=as_arguments)
    x = normal(9, 30)
    program = tw.compile(fn, x)
    products = [op for op in program.module("graph").walk() if op.name == "graph.contract"]
    assert [str(op.results[0].type) for op in products] == ["tensor<9x12xi32>"]
    (want,) = onnx.reference.ReferenceEvaluator(fn.model.proto).run(None, {"x": x})
    np.testing.assert_allclose(program(x), want, atol=2.6)  # one step, where sums are scaled in another order
    assert (np.abs(np.asarray(program(x)) - want) < 1e-6).mean() > 0.95


def test_a_qlinear_product_is_one_of_bytes() -> None:
    x, w = stored(np.uint8, 9, 30), stored(np.int8, 30, 12)
    given = [
        x,
        np.float32(0.1),
        np.uint8(7),
        w,
        scales(12),
        np.zeros(12, np.int8),
        np.float32(9),
        np.uint8(3),
    ]
    fn = OnnxFunction(read_model(model_of("QLinearMatMul", given, constants=range(1, 8))))
    program = tw.compile(fn, x)
    products = [op for op in program.module("graph").walk() if op.name == "graph.contract"]
    assert [str(v.type) for v in products[0].operands] == ["tensor<9x30xi8>", "tensor<30x12xi8>"]
    np.testing.assert_array_equal(program(x), outputs(fn.model.proto, x)[0])


def test_a_quantised_convolution_is_one_of_bytes() -> None:
    node = helper.make_node
    initializers = {
        "xs": np.float32(0.05), "xz": np.uint8(120), "w": stored(np.int8, 8, 4, 3, 3), "ws": scales(8),
        "wz": np.zeros(8, np.int8), "b": stored(np.int32, 8) // 2**22, "bs": scales(8),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0),
        node("Conv", ["xd", "wd", "bd"], ["y"], pads=[1] * 4),
    ]
    types = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, c, 5, 5]) for n, c in (("x", 4), ("y", 8))
    ]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in initializers.items()]
    graph = helper.make_graph(nodes, "qdq", types[:1], types[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = normal(2, 4, 5, 5)
    program = tw.compile(OnnxFunction(read_model(model)), x)
    products = [op for op in program.module("graph").walk() if op.name == "graph.conv"]
    assert [str(op.results[0].type) for op in products] == ["tensor<2x8x5x5xi32>"]
    (want,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(program(x), want, rtol=1e-4, atol=1e-2)
