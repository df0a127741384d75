"""Reductions, the softmax family, contractions, and normalisation: older opsets, odd shapes, other dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model_of, outputs

from tilewright.frontends.onnx import OnnxFunction, OnnxModel, read_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 1, 7)).astype("f4")
IMAGE = RNG.normal(size=(2, 6, 5, 3)).astype("f4")
REDUCTIONS = (
    "ReduceSum ReduceProd ReduceMax ReduceMin ReduceMean ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp"
).split()
BF16 = ml_dtypes.bfloat16


def near(got: Any, want: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The same shape and dtype, and values within a tolerance."""
    want = np.asarray(want)
    assert (got.shape, np.dtype(got.dtype)) == (want.shape, want.dtype)
    np.testing.assert_allclose(np.asarray(got).astype("f8"), want.astype("f8"), rtol=rtol, atol=atol)


class Cases:
    """Models with what they give, which are compiled as one."""

    def __init__(self) -> None:
        self.models: list[onnx.ModelProto | OnnxModel] = []
        self.arrays: list[Sequence[Any]] = []
        self.wanted: list[tuple[Any, float, float]] = []

    def add(
        self, model: onnx.ModelProto, arrays: Sequence[Any], want: Any, rtol: float = 1e-5, atol: float = 1e-6
    ) -> None:
        """A case. want: the output, or a tuple of outputs."""
        self.models.append(typed(model) if isinstance(model, onnx.ModelProto) else model)
        self.arrays.append(arrays)
        self.wanted.append((want, rtol, atol))

    def check(self) -> None:
        functions = [OnnxFunction(m if isinstance(m, OnnxModel) else read_model(m)) for m in self.models]

        def run(given: list[Sequence[Any]]) -> list[Any]:
            return [f(*xs) for f, xs in zip(functions, given, strict=True)]

        with jax.enable_x64(True):
            got = jax.jit(run)(self.arrays)
        for value, (want, rtol, atol) in zip(got, self.wanted, strict=True):
            for a, b in zip(jax.tree.leaves(value), want if isinstance(want, tuple) else [want], strict=True):
                near(a, b, rtol, atol)


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose outputs have types, where ONNX infers none."""
    for output in model.graph.output:
        if output.type.WhichOneof("value") is None:
            output.type.tensor_type.elem_type = TensorProto.FLOAT
    return model


# -- reductions --------------------------------------------------------------------------------------------


def reduced(op: str, x: Any, axes: Any, keepdims: bool) -> np.ndarray:
    """What a reduction is, in f64."""
    h, how = x.astype("f8"), {"axis": axes, "keepdims": keepdims}
    if op == "ReduceLogSumExp":
        return np.log(np.sum(np.exp(h), **how))
    h = {"ReduceL1": np.abs, "ReduceL2": np.square, "ReduceSumSquare": np.square}.get(op, np.asarray)(h)
    name = {"ReduceProd": "prod", "ReduceMax": "max", "ReduceMin": "min", "ReduceMean": "mean"}.get(op, "sum")
    y = getattr(np, name)(h, **how)
    return {"ReduceL2": np.sqrt, "ReduceLogSum": np.log}.get(op, np.asarray)(y)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_of_each_type(op: str) -> None:
    cases = Cases()
    for i, dtype in enumerate(("f2", "f4", "f8", "i4", "i8", "u4", "u8", BF16)):
        x = RNG.uniform(1, 1.6 if op == "ReduceProd" else 4, (3, 1, 7)).astype(dtype)
        rtol = {2: 1e-3, 4: 1e-5, 8: 1e-9}[np.dtype(dtype).itemsize] if dtype != BF16 else 2**-8
        axes, keepdims = ([0, 2], 1) if i % 2 else ([-1], 0)
        model = model_of(op, [x, np.array(axes)], opset=18, constants=[1], keepdims=keepdims)
        want = reduced(op, x, tuple(axes), bool(keepdims)).astype(dtype)
        cases.add(model, [x], want, 0 if want.dtype.kind in "iu" else rtol, 0)
    cases.check()


@pytest.mark.parametrize("op", REDUCTIONS)
def test_axes_as_an_attribute(op: str) -> None:
    x, cases = np.abs(X) + 1, Cases()
    for opset in (7, 11, 12, 13):
        cases.add(model_of(op, [x], opset=opset), [x], reduced(op, x, None, True).astype("f4"))
        if op == "ReduceSum" and opset >= 13:
            continue
        for axes in ([1], [0, 2], [-1, 0] if opset >= 11 else [2, 0]):
            model = model_of(op, [x], opset=opset, axes=axes, keepdims=0)
            cases.add(model, [x], reduced(op, x, tuple(axes), False).astype("f4"))
    cases.check()


@pytest.mark.parametrize("op", REDUCTIONS)
def test_no_axes(op: str) -> None:
    x, none, cases = np.abs(X) + 1, np.zeros(0, "i8"), Cases()
    for inputs in ([x], [x, none]):
        for noop, axes in ((0, None), (1, ())):
            model = model_of(op, inputs, opset=18, constants=[1], noop_with_empty_axes=noop)
            cases.add(model, [x], reduced(op, x, axes, True).astype("f4"))
    cases.check()


@pytest.mark.parametrize("op", REDUCTIONS)
def test_numbers_and_no_elements(op: str) -> None:
    one, cases = np.float32(2.5), Cases()
    cases.add(model_of(op, [one], opset=18), [one], reduced(op, one, None, False).astype("f4"))
    empty, axes = np.zeros((2, 0, 3), "f4"), np.array([1])
    infinity = {
        "ReduceMax": -np.inf,
        "ReduceMin": np.inf,
        "ReduceLogSum": -np.inf,
        "ReduceLogSumExp": -np.inf,
    }
    want = {"ReduceProd": 1, "ReduceMean": np.nan, **infinity}.get(op, 0)
    cases.add(model_of(op, [empty, axes], opset=18, constants=[1]), [empty], np.full((2, 1, 3), want, "f4"))
    rows = model_of(op, [empty, np.array([0])], opset=18, constants=[1])
    cases.add(rows, [empty], np.zeros((1, 0, 3), "f4"))
    cases.check()


def test_extremes_of_integers_and_bools() -> None:
    empty, cases, first = np.zeros((0, 3), "i4"), Cases(), np.array([0])
    cases.add(model_of("ReduceMax", [empty, first], constants=[1]), [empty], np.full((1, 3), -(2**31), "i4"))
    cases.add(model_of("ReduceMin", [empty, first], constants=[1]), [empty], np.full((1, 3), 2**31 - 1, "i4"))
    bools = np.array([[True, False, False], [True, True, False]])
    cases.add(model_of("ReduceMax", [bools, first], constants=[1]), [bools], bools.any(0, keepdims=True))
    cases.add(model_of("ReduceMin", [bools, first], constants=[1]), [bools], bools.all(0, keepdims=True))
    for dtype in ("i1", "u1"):
        x = RNG.integers(0, 100, (5, 3)).astype(dtype)
        cases.add(model_of("ReduceMax", [x], keepdims=0), [x], x.max())
    cases.check()


def test_large_sums_of_f16_and_exponentials() -> None:
    x, cases = np.full((1, 300), 200, "f2"), Cases()
    logs = ("ReduceLogSum", np.log(60000)), ("ReduceLogSumExp", 200 + np.log(300))
    for op, want in (("ReduceL2", 200 * np.sqrt(300)), ("ReduceMean", 200), *logs):
        cases.add(model_of(op, [x]), [x], np.full((1, 1), want).astype("f2"), 1e-3)
    low = np.full((2, 3), -np.inf, "f4")
    cases.add(model_of("ReduceLogSumExp", [low]), [low], np.full((1, 1), -np.inf, "f4"))
    cases.check()


def test_means_of_integers_are_cut_off() -> None:
    x = np.array([[-3, -4], [7, 8]], "i4")
    model = model_of("ReduceMean", [x, np.array([1])], opset=18, constants=[1], keepdims=0)
    near(outputs(model, x)[0], np.array([-3, 7], "i4"))


def test_sizes_that_are_reduced_stay_known() -> None:
    """The product of an open shape is a shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ReduceProd", ["s"], ["n"], keepdims=1),
        helper.make_node("Reshape", ["x", "n"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph, opsets = helper.make_graph(nodes, "g", [x], [y]), [helper.make_opsetid("", 18)]
    fn = OnnxFunction(read_model(helper.make_model(graph, opset_imports=opsets, ir_version=10)))
    (n,) = jax.export.symbolic_shape("n")
    with jax.enable_x64(True):
        made = jax.export.export(jax.jit(fn))(jax.ShapeDtypeStruct((n, 3), np.float32))
    assert str(made.out_avals[0].shape) == "(3*n,)"


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_indices_of_extremes(op: str) -> None:
    cases = Cases()

    def add(x: np.ndarray, opset: int, **attributes: Any) -> None:
        model = model_of(op, [x], opset=opset, **attributes)
        cases.add(model, [x], ReferenceEvaluator(model).run(None, {"x0": x})[0], 0, 0)

    for dtype in ("f4", "f2", "i4", "u1", "i8"):
        x = RNG.integers(0, 3, (4, 5, 3)).astype(dtype)
        for axis, last, opset in ((0, 0, 12), (1, 1, 13), (-1, 1, 28), (-1, 0, 28)):
            add(x, opset, axis=axis, keepdims=int(axis == 1), select_last_index=last)
    add(X, 7)
    add(np.ones(1, "f4"), 11, axis=-1)
    cases.check()


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
def test_cumulative(op: str, exclusive: int, reverse: int) -> None:
    cases, options = Cases(), {"exclusive": exclusive, "reverse": reverse}
    opset = 28 if op == "CumProd" else 14
    for i, dtype in enumerate(("f4", "f8", "i4", "u4", "f2")):
        x, axis = RNG.integers(1, 3, (3, 7, 1)).astype(dtype), i % 4 - 1
        model = model_of(op, [x, np.array(axis)], opset=opset, constants=[1], **options)
        cases.add(model, [x], cumulated(op, x, axis, exclusive, reverse).astype(dtype))
    empty = np.zeros((2, 0), "f4")
    cases.add(model_of(op, [empty, np.array(1)], opset=opset, constants=[1], **options), [empty], empty)
    cases.check()


def cumulated(op: str, x: np.ndarray, axis: int, exclusive: int, reverse: int) -> np.ndarray:
    rows = np.moveaxis(x.astype("f8"), axis, -1)
    rows = rows[..., ::-1] if reverse else rows
    if exclusive:
        one = np.full_like(rows[..., :1], op == "CumProd")
        rows = np.concatenate([one, rows[..., :-1]], -1)
    made = np.cumsum(rows, -1) if op == "CumSum" else np.cumprod(rows, -1)
    return np.moveaxis(made[..., ::-1] if reverse else made, -1, axis)


# -- softmax -----------------------------------------------------------------------------------------------


def softmax(op: str, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    h = x.astype("f8")
    if op == "Hardmax":
        flat = h.reshape(*h.shape[: axes[0]], -1) if len(axes) > 1 else np.moveaxis(h, axes[0], -1)
        hard = np.eye(flat.shape[-1])[flat.argmax(-1)]
        return hard.reshape(h.shape) if len(axes) > 1 else np.moveaxis(hard, -1, axes[0])
    apart = h - h.max(axes, keepdims=True)
    logs = apart - np.log(np.exp(apart).sum(axes, keepdims=True))
    return logs if op == "LogSoftmax" else np.exp(logs)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax(op: str) -> None:
    cases = Cases()
    for dtype, near in (("f4", 1e-5), ("f2", 2e-3), ("f8", 1e-9), (BF16, 2e-2)):
        x = RNG.integers(-4, 5, (2, 3, 5)).astype(dtype)
        for axis in (0, -1):
            model = model_of(op, [x], opset=13, axis=axis)
            cases.add(model, [x], softmax(op, x, (axis,)).astype(dtype), near, near)
    x = IMAGE[0]
    for opset, axis in ((7, 0), (7, 1), (11, -1), (11, 2), (11, -2)):
        axes = tuple(range(axis % 3, 3))
        cases.add(model_of(op, [x], opset=opset, axis=axis), [x], softmax(op, x, axes).astype("f4"))
    cases.add(model_of(op, [X], opset=11), [X], softmax(op, X, (1, 2)).astype("f4"))
    cases.add(model_of(op, [X], opset=13), [X], softmax(op, X, (2,)).astype("f4"))
    large = np.array([[1e4, -1e4, 1e4]], "f4")
    cases.add(model_of(op, [large]), [large], softmax(op, large, (1,)).astype("f4"))
    empty = np.zeros((0, 3), "f4")
    cases.add(model_of(op, [empty]), [empty], empty)
    cases.check()


# -- contractions ------------------------------------------------------------------------------------------


PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((7,), (7,)),
    ((3, 7), (7,)),
    ((7,), (7, 5)),
    ((2, 3, 7), (7, 5)),
    ((2, 1, 3, 7), (4, 7, 1)),
    ((0, 7), (7, 2)),
    ((3, 0), (0, 2)),
]


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "u4", "i8", BF16])
def test_matmul(dtype: Any) -> None:
    cases = Cases()
    for a, b in PRODUCTS:
        x, y = (RNG.integers(0, 5, s).astype(dtype) for s in (a, b))
        want = np.asarray(x.astype("f8") @ y.astype("f8")).astype(dtype)
        cases.add(model_of("MatMul", [x, y]), [x, y], want, 1e-2)
    cases.check()


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "u8", BF16])
def test_gemm(dtype: Any) -> None:
    cases = Cases()
    for i, shape in enumerate(((), (1,), (7,), (3, 1), (1, 7), (3, 7))):
        left, right = i % 2, i // 2 % 2
        a = RNG.integers(0, 4, (5, 3) if left else (3, 5)).astype(dtype)
        b = RNG.integers(0, 4, (7, 5) if right else (5, 7)).astype(dtype)
        c = RNG.integers(0, 4, shape).astype(dtype)
        product = (a.T if left else a).astype("f8") @ (b.T if right else b).astype("f8")
        sides = {"transA": left, "transB": right}
        want = (2 * product + 3 * c.astype("f8")).astype(dtype)
        cases.add(model_of("Gemm", [a, b, c], **sides, alpha=2.0, beta=3.0), [a, b, c], want, 1e-2)
        cases.add(model_of("Gemm", [a, b], **sides), [a, b], product.astype(dtype), 1e-2)
    cases.check()


def test_gemm_scales_nothing_where_alpha_and_beta_are_one() -> None:
    a = np.ones((2, 3), "f4")
    inputs = [a, a.T, np.ones(2, "f4")]
    with jax.enable_x64(True):
        text = str(jax.make_jaxpr(OnnxFunction(read_model(model_of("Gemm", inputs))))(*inputs))
    assert " mul " not in text
    assert "transpose[" not in text
    half = model_of("Gemm", [np.full((1, 1), 3, "i4")] * 3, alpha=0.5, beta=0.5)
    near(outputs(half, *[np.full((1, 1), 3, "i4")] * 3)[0], np.array([[5]], "i4"))


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 5), (5, 2)]),
    ("ij , jk", [(3, 5), (5, 2)]),
    ("bij,bjk", [(2, 3, 5), (2, 5, 2)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 5), (4, 5, 2)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("ij->ji", [(3, 5)]),
    ("i,j->ij", [(3,), (5,)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("Ab,bC", [(3, 5), (5, 2)]),
    ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
    ("i->", [(0,)]),
    ("...->...", [(2, 3)]),
]


def test_einsum() -> None:
    cases = Cases()
    for equation, shapes in EQUATIONS:
        for dtype in ("f4", "i4", "f2"):
            xs = [RNG.integers(0, 4, s).astype(dtype) for s in shapes]
            want = np.asarray(np.einsum(equation, *[x.astype("f8") for x in xs])).astype(dtype)
            cases.add(model_of("Einsum", xs, equation=equation), xs, want, 1e-2)
    cases.check()


BYTES = st.sampled_from(["i1", "u1"])
ZEROS = st.sampled_from(["", "one", "each"])


@settings(deadline=None, max_examples=10)
@given(BYTES, BYTES, ZEROS, ZEROS, st.integers(0, 2**32 - 1))
def test_products_of_bytes(a_type: str, b_type: str, a_zero: str, b_zero: str, seed: int) -> None:
    rng, cases = np.random.default_rng(seed), Cases()

    def draw(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)

    a, b = draw(a_type, (3, 17)), draw(b_type, (17, 5))
    kinds = (a_type, a_zero, 3), (b_type, b_zero, 5)
    zeros = [draw(t, {"one": (), "each": (n,)}[z]) if z else None for t, z, n in kinds]
    za, zb = (np.int64(0) if z is None else z.astype("i8") for z in zeros)
    want = ((a.astype("i8") - za.reshape(-1, 1)) @ (b.astype("i8") - zb)).astype("i4")
    inputs = [a, b, *zeros]
    for constants in ((), (1, 2, 3)):
        left = [x for i, x in enumerate(inputs) if x is not None and i not in constants]
        cases.add(model_of("MatMulInteger", inputs, opset=10, constants=constants), left, want, 0, 0)
    cases.check()


def test_products_of_bytes_are_products_of_i8() -> None:
    cases, b = Cases(), np.ones((8, 3), "i1")
    for a_type in ("i1", "u1"):
        a = np.ones((2, 4, 8), a_type)
        model = model_of("MatMulInteger", [a, b], opset=10)
        with jax.enable_x64(True):
            text = str(jax.make_jaxpr(OnnxFunction(read_model(model)))(a, b))
        assert "preferred_element_type=int32" in text
        assert "i16" not in text
        cases.add(model, [a, b], np.full((2, 4, 3), 8, "i4"))
    v, a, rows = np.arange(8, dtype="u1"), np.ones((2, 4, 8), "u1"), np.ones((2, 4, 1), "u1")
    cases.add(model_of("MatMulInteger", [v, b], opset=10), [v, b], np.full(3, 28, "i4"))
    cases.add(model_of("MatMulInteger", [v, v], opset=10), [v, v], np.int32(140))
    cases.add(model_of("MatMulInteger", [a, b, rows], opset=10), [a, b, rows], np.zeros((2, 4, 3), "i4"))
    cases.check()


def test_determinants() -> None:
    cases = Cases()
    for n in (0, 1, 2, 3, 5):
        for dtype, tolerance in (("f4", 1e-4), ("f8", 1e-9), ("f2", 1e-2)):
            for batch in ((), (2, 3)):
                x = RNG.normal(size=(*batch, n, n)).astype(dtype)
                want = np.linalg.det(x.astype("f8")).astype(dtype)
                cases.add(model_of("Det", [x]), [x], want, tolerance, tolerance)
    cases.check()


# -- normalisation -----------------------------------------------------------------------------------------


def channels(p: np.ndarray, rank: int) -> np.ndarray:
    return p.astype("f8").reshape(-1, *[1] * (rank - 2))


@pytest.mark.parametrize("opset", [7, 9, 14, 15, 28])
def test_batch_normalization(opset: int) -> None:
    cases = Cases()
    for shape in ((2, 6), (2, 6, 5, 3), (1, 6, 1), (0, 6, 2)):
        x = RNG.normal(size=shape).astype("f4")
        scale, bias, mean = (RNG.normal(size=6).astype("f4") for _ in range(3))
        variance = RNG.uniform(0.1, 2, 6).astype("f4")
        inputs = [x, scale, bias, mean, variance]
        s, b, m, v = (channels(p, x.ndim) for p in inputs[1:])
        want = (x - m) / np.sqrt(v + 1e-3) * s + b
        model = model_of("BatchNormalization", inputs, opset=opset, epsilon=1e-3)
        cases.add(model, inputs, want.astype("f4"), 1e-5, 1e-5)
        if not x.size:
            continue
        axes = tuple(i for i in range(x.ndim) if i != 1)
        own, spread = x.astype("f8").mean(axes, keepdims=True), x.astype("f8").var(axes, keepdims=True)
        y = (x - own) / np.sqrt(spread + 1e-5) * s + b
        own, spread = own.reshape(-1), spread.reshape(-1)
        wants = [y, mean * 0.7 + own * 0.3, variance * 0.7 + spread * 0.3]
        wants += [own, spread] if opset < 14 else []
        trains = {"training_mode": 1} if opset >= 14 else {}
        model = model_of("BatchNormalization", inputs, len(wants), opset, momentum=0.7, **trains)
        cases.add(model, inputs, tuple(w.astype("f4") for w in wants), 1e-3, 1e-4)
    cases.check()


def test_batch_normalization_of_features_and_of_other_types() -> None:
    op, cases = "BatchNormalization", Cases()
    x = RNG.normal(size=(4, 2, 3)).astype("f4")
    ps = [RNG.uniform(0.5, 2, (2, 3)).astype("f4") for _ in range(4)]
    want = (x - ps[2]) / np.sqrt(ps[3] + 1e-5) * ps[0] + ps[1]
    cases.add(model_of(op, [x, *ps], opset=7, spatial=0), [x, *ps], want)
    column = [np.array([v], "f4") for v in (2, 1, 0.5, 4)]
    flat = RNG.normal(size=5).astype("f4")
    want = (flat - 0.5) / np.sqrt(np.float32(4 + 1e-5)) * 2 + 1
    cases.add(model_of(op, [flat, *column]), [flat, *column], want)
    for dtype, tolerance in (("f2", 2e-3), (BF16, 2e-2), ("f8", 1e-7)):
        h = IMAGE.astype(dtype)
        qs = [RNG.uniform(0.5, 2, 6).astype("f4" if dtype != "f8" else "f8") for _ in range(4)]
        s, b, m, v = (channels(q, 4) for q in qs)
        want = (h.astype("f8") - m) / np.sqrt(v + 1e-5) * s + b
        cases.add(model_of(op, [h, *qs]), [h, *qs], want.astype(dtype), tolerance, tolerance)
    cases.check()


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", BF16])
def test_instance_and_group_normalization(dtype: Any) -> None:
    cases, tolerance = Cases(), {"f4": 1e-4, "f2": 4e-3, "f8": 1e-6}.get(dtype, 4e-2)
    x = IMAGE.astype(dtype)
    scale, bias = (RNG.normal(size=6).astype(dtype) for _ in range(2))
    for groups in (6, 3, 1):
        cells = x.astype("f8").reshape(2, groups, -1)
        y = (cells - cells.mean(-1, keepdims=True)) / np.sqrt(cells.var(-1, keepdims=True) + 1e-5)
        each = (y.reshape(x.shape) * channels(scale, 4) + channels(bias, 4)).astype(dtype)
        s, b = scale[:groups], bias[:groups]
        grouped = (y * channels(s, 3) + channels(b, 3)).reshape(x.shape).astype(dtype)
        for opset, p, q, want in ((18, s, b, grouped), (21, scale, bias, each)):
            model = typed(model_of("GroupNormalization", [x, p, q], opset=opset, num_groups=groups))
            if opset == 18:  # the checker refuses it, since opset 21 has another meaning
                model = OnnxModel(model, "model", Path(), {"": 18})
            cases.add(model, [x, p, q], want, tolerance, tolerance)
            if groups == 6:
                model = model_of("InstanceNormalization", [x, scale, bias], opset=7 if opset == 18 else 22)
                cases.add(model, [x, scale, bias], each, tolerance, tolerance)
    cases.check()


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", BF16])
def test_layer_and_rms_normalization(dtype: Any) -> None:
    x, cases = IMAGE.astype(dtype), Cases()
    h, tolerance = x.astype("f8"), {"f4": 1e-4, "f2": 1e-2, "f8": 1e-4}.get(dtype, 6e-2)
    for axis in (-1, 1, -3, 0):
        axes, given = tuple(range(axis % 4, 4)), {"axis": axis, "epsilon": 1e-2}
        scale, bias = (RNG.normal(size=x.shape[axis:]).astype(dtype) for _ in range(2))
        mean, variance = h.mean(axes, keepdims=True), h.var(axes, keepdims=True)
        y = (h - mean) / np.sqrt(variance + 1e-2) * scale.astype("f8")
        for stash, kind in ((1, np.float32), (16, BF16)):
            near = tolerance if stash == 1 else 6e-2
            wants = (y + bias.astype("f8")).astype(dtype), mean.astype(kind), (variance + 1e-2) ** -0.5
            inputs = [x, scale, bias]
            model = model_of("LayerNormalization", inputs, 3, 17, stash_type=stash, **given)
            cases.add(model, inputs, (*wants[:2], wants[2].astype(kind)), near, near)
        model = model_of("LayerNormalization", [x, scale], opset=17, **given)
        cases.add(model, [x, scale], y.astype(dtype), tolerance, tolerance)
        for kind in (dtype, "f4"):
            own = scale.astype(kind)
            rms = h / np.sqrt((h * h).mean(axes, keepdims=True) + 1e-2) * own.astype("f8")
            model = model_of("RMSNormalization", [x, own], opset=23, **given)
            cases.add(model, [x, own], rms.astype(kind), tolerance, tolerance)
    cases.check()


def test_mean_variance_normalization() -> None:
    h, cases, op = IMAGE.astype("f8"), Cases(), "MeanVarianceNormalization"
    for opset in (9, 13):
        for axes in ((0, 2, 3), (0, 1, 2, 3), (1,)):
            axes_given = {} if axes == (0, 2, 3) else {"axes": list(axes)}
            want = (h - h.mean(axes, keepdims=True)) / h.std(axes, keepdims=True)
            cases.add(
                model_of(op, [IMAGE], opset=opset, **axes_given), [IMAGE], want.astype("f4"), 1e-4, 1e-4
            )
    far = np.full((2, 1, 3, 3), 1e4, "f4") + RNG.normal(size=(2, 1, 3, 3)).astype("f4")
    apart = far.astype("f8") - far.astype("f8").mean()
    cases.add(model_of(op, [far], opset=13), [far], (apart / apart.std()).astype("f4"), 1e-2, 1e-2)
    cases.check()


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p: int) -> None:
    cases = Cases()
    for dtype, opset, tolerance in (("f4", 7, 1e-5), ("f4", 22, 1e-5), ("f2", 22, 2e-3), ("f8", 22, 1e-9)):
        x = IMAGE.astype(dtype)
        x[0, :, 0] = 0
        for axis in (-1, 1, 0):
            norm = np.linalg.norm(x.astype("f8"), p, axis, keepdims=True)
            want = np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(dtype)
            cases.add(
                model_of("LpNormalization", [x], opset=opset, p=p, axis=axis), [x], want, tolerance, tolerance
            )
    cases.check()


def test_lrn() -> None:
    cases = Cases()
    for size in (1, 2, 3, 4, 5, 9):
        for x in (IMAGE, IMAGE[..., 0], IMAGE[0, :, :1, 0].T, IMAGE.astype("f2")):
            h = x.astype("f8")
            spans = [slice(max(0, c - (size - 1) // 2), c + size // 2 + 1) for c in range(h.shape[1])]
            sums = np.stack([(h[:, s] ** 2).sum(1) for s in spans], 1)
            want = (h / (2 + 0.5 / size * sums) ** 0.6).astype(x.dtype)
            model = model_of("LRN", [x], opset=13, size=size, alpha=0.5, beta=0.6, bias=2.0)
            cases.add(model, [x], want, 1e-5 if x.dtype == np.float32 else 2e-3)
    cases.check()


def test_dropout_infers() -> None:
    cases = Cases()
    for opset in (7, 10, 12, 13, 22):
        mask = np.ones(X.shape, "f4" if opset < 10 else bool)
        cases.add(model_of("Dropout", [X], 2, opset), [X], (X, mask))
    cases.check()


def trained(x: np.ndarray, ratio: float, trains: bool = True, **attributes: Any) -> list[Any]:
    """The output and the mask of a dropout."""
    inputs = [x, np.float32(ratio), np.array(trains)]
    return outputs(model_of("Dropout", inputs, 2, 13, constants=[1, 2], **attributes), x)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_dropout_trains(dtype: str) -> None:
    x = np.ones((100, 100), dtype)
    y, mask = trained(x, 0.25)
    near(y, np.where(mask, 4 / 3, 0).astype(dtype))
    assert 0.72 < np.mean(mask) < 0.78
    near(trained(x, 0)[0], x)
    near(trained(x, 0.5, False)[0], x)
    same = [np.asarray(trained(x, 0.5, seed=s)[1]) for s in (3, 3, 4)]
    np.testing.assert_array_equal(same[0], same[1])
    assert (same[0] != same[2]).any()


# -- open sizes --------------------------------------------------------------------------------------------


def check_open(model: onnx.ModelProto, arrays: list[np.ndarray], shapes: list[str]) -> None:
    """A model with symbolic sizes gives what it does without."""
    fn = OnnxFunction(read_model(typed(model)))
    scope = jax.export.SymbolicScope()
    sizes = [jax.export.symbolic_shape(s, scope=scope) for s in shapes]
    with jax.enable_x64(True):
        given = [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(sizes, arrays, strict=True)]
        made = jax.export.export(jax.jit(fn))(*given)
        got, want = jax.tree.leaves(made.call(*arrays)), jax.tree.leaves(jax.jit(fn)(*arrays))
    for a, b in zip(got, want, strict=True):
        near(a, b)


ONE_OPERAND: list[tuple[str, dict[str, Any], int]] = [
    *((op, {}, 18) for op in REDUCTIONS),
    ("ReduceMean", {"axes": [0]}, 13),
    ("ArgMax", {"axis": 0, "select_last_index": 1}, 13),
    ("Softmax", {"axis": 1}, 11),
    ("LogSoftmax", {}, 13),
    ("Hardmax", {"axis": 1}, 11),
    ("LRN", {"size": 3}, 13),
    ("LpNormalization", {"axis": 0}, 22),
    ("MeanVarianceNormalization", {}, 13),
    ("Dropout", {}, 13),
]


@pytest.mark.parametrize(("op", "attributes", "opset"), ONE_OPERAND)
def test_open_sizes(op: str, attributes: dict[str, Any], opset: int) -> None:
    x = np.abs(IMAGE) + 1
    check_open(model_of(op, [x], opset=opset, **attributes), [x], ["n, c, h, 3"])


def test_open_sizes_of_several_operands() -> None:
    a, b, m, p = np.ones((3, 4), "u1"), np.ones((4, 5), "i1"), IMAGE[0, 0], np.ones(6, "f4")
    zeros = [np.array(3, "u1"), np.array(2, "i1")]
    check_open(
        model_of("MatMulInteger", [a, b, *zeros], opset=10, constants=[2, 3]), [a, b], ["n, k", "k, 5"]
    )
    check_open(model_of("Gemm", [m, m], transB=1), [m, m], ["n, k", "5, k"])
    check_open(model_of("Einsum", [m, m], equation="ij,kj->ik"), [m, m], ["n, k", "5, k"])
    layer = model_of("LayerNormalization", [IMAGE, IMAGE[0, 0, 0]], opset=17)
    check_open(layer, [IMAGE, IMAGE[0, 0, 0]], ["n, 6, k, 3", "3"])
    group = model_of("GroupNormalization", [IMAGE, p, p], num_groups=2)
    check_open(group, [IMAGE, p, p], ["n, 6, k, 3", "6", "6"])
    batch = model_of("BatchNormalization", [IMAGE, p, p, p, p])
    check_open(batch, [IMAGE, p, p, p, p], ["n, 6, k, 3", *["6"] * 4])
