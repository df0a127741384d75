"""Reductions and the softmax family: older opsets, odd shapes, other dtypes."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_cases import Cases, near
from onnx_models import model_of, outputs

from tilewright.frontends.onnx import OnnxFunction, read_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 1, 7)).astype("f4")
IMAGE = RNG.normal(size=(2, 6, 5, 3)).astype("f4")
REDUCTIONS = (
    "ReduceSum ReduceProd ReduceMax ReduceMin ReduceMean ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp"
).split()
BF16 = ml_dtypes.bfloat16


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
    for dtype, tolerance in (("f4", 1e-5), ("f2", 2e-3), ("f8", 1e-9), (BF16, 2e-2)):
        x = RNG.integers(-4, 5, (2, 3, 5)).astype(dtype)
        for axis in (0, -1):
            model = model_of(op, [x], opset=13, axis=axis)
            cases.add(model, [x], softmax(op, x, (axis,)).astype(dtype), tolerance, tolerance)
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
