"""Sizes that data decides, as ONNX models compute with them: what counts is counted, not the bound of it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_models import parsed

import tilewright as tw
from tilewright.passes.templates import NoTemplate

NUMBERS = (
    "i0 = Constant<value_int = 0>() i1 = Constant<value_int = 1>() last = Constant<value_int = -1>() "
    "row = Constant<value_ints = [0]>() two = Constant<value_ints = [2]>() back = Constant<value_ints = [-1]>() "
    "twice = Constant<value_ints = [-2]>() none = Constant<value_float = 0.0>() three = Constant<value_int = 3>() "
    "far = Constant<value_ints = [9223372036854775807]>() low = Constant<value_ints = [-9223372036854775807]>() "
    "true = Constant<value = bool {1}>() second = Constant<value_ints = [1]>() "
)
CHOSEN = "flat = Reshape(x, back) c = Greater(flat, none) v = Compress(flat, c) n = Size(v) s = Shape(v) "
PLACES = "nz = NonZero(x) "
BRANCH = "{ p = Neg(x) }, else_branch = b() => (float[2, 3] q) { q = Identity(x) }>"

ARRAYS = {
    "some": np.array([[0, 1, 0], [-1, 3, 2]], "f4"),
    "one": np.array([[0, 0, 0], [0, 5, 0]], "f4"),
    "all": np.array([[1, 2, 3], [3, 5, 4]], "f4"),
    "none": np.zeros((2, 3), "f4"),
}

CASES = {
    "Shape of NonZero": ("int64[2] y", PLACES + "y = Shape(nz)"),
    "Size of NonZero": ("int64 y", PLACES + "y = Size(nz)"),
    "Shape of Compress": ("int64[1] y", CHOSEN + "y = Shape(v)"),
    "Range": ("int64[m] y", CHOSEN + "y = Range(i0, n, i1)"),
    "Range downwards": ("int64[m] y", CHOSEN + "e = Sub(n, i1) y = Range(e, last, last)"),
    "Slice from the end": ("float[m] y", CHOSEN + "y = Slice(v, twice, far, row)"),
    "Slice before the end": ("float[m] y", CHOSEN + "y = Slice(v, row, back, row)"),
    "Slice from the begin": ("float[m] y", CHOSEN + "y = Slice(v, row, two, row)"),
    "Slice of every second": ("float[m] y", CHOSEN + "y = Slice(v, second, far, row, two)"),
    "Slice backwards": ("float[m] y", CHOSEN + "y = Slice(v, back, low, row, back)"),
    "number": ("float[2, 3] y", CHOSEN + "f = Cast<to = 1>(n) y = Mul(x, f)"),
    "int32": ("int32 y", CHOSEN + "y = Cast<to = 6>(n)"),
    "If": (
        "float[2, 3] y",
        CHOSEN + "e = Equal(n, i0) y = If(e)<then_branch = a() => (float[2, 3] p) " + BRANCH,
    ),
    "Where": ("float[2, 3] y", CHOSEN + "e = Greater(n, i1) m = Neg(x) y = Where(e, x, m)"),
    "ConstantOfShape": ("float[m] y", CHOSEN + "y = ConstantOfShape(s)"),
    "Expand": ("float[m] y", CHOSEN + "t = Constant<value_float = 2.0>() y = Expand(t, s)"),
    "GatherND": ("float[m] y", PLACES + "t = Transpose(nz) y = GatherND(x, t)"),
    "Reshape": ("int64[m] y", PLACES + "t = Transpose(nz) y = Reshape(t, back)"),
    "Unsqueeze": ("int64[2] y", CHOSEN + "u = Unsqueeze(v, i1) y = Shape(u)"),
    "Concat": ("int64[1] y", CHOSEN + "u = Concat<axis = 0>(v, flat) y = Shape(u)"),
    "one mask twice": ("float[m] y", CHOSEN + "a = Neg(flat) w = Compress(a, c) y = Add(v, w)"),
    "masks after another": (
        "int64[1] y",
        CHOSEN + "o = Constant<value_float = 1.5>() d = Greater(v, o) w = Compress(v, d) y = Shape(w)",
    ),
    "Softmax": ("float[m] y", CHOSEN + "y = Softmax<axis = 0>(v)"),
    "CumSum": ("float[m] y", CHOSEN + "y = CumSum(v, i0)"),
    "TopK": ("float[m] y", CHOSEN + "k = Min(s, two) y, i = TopK(v, k)"),
    "TopK of all": ("float[m] y", CHOSEN + "y, i = TopK(v, s)"),
    "Pad": ("float[m] y", CHOSEN + "p = Constant<value_ints = [1, 2]>() y = Pad(v, p)"),
    "Unique": ("int64[1] y", "flat = Reshape(x, back) u, i, w, k = Unique(flat) y = Shape(u)"),
    "Loop of as many trips": (
        "float[2, 3] y",
        CHOSEN + "y = Loop(n, true, x)<body = l(int64 i, bool ci, float[2, 3] a) => (bool co, float[2, 3] r) "
        "{ co = Identity(ci) r = Add(a, a) }>",
    ),
    "result of If": (
        "int64[1] y",
        CHOSEN
        + "t = ReduceSum<keepdims = 0>(x) e = Greater(t, none) w = If(e)<then_branch = a() => (float[k] p) "
        "{ p = Neg(v) }, else_branch = b() => (float[k] q) { q = Identity(v) }> y = Shape(w)",
    ),
}
"""Results and nodes of models of x f32[2, 3]."""

OF_SOME = {
    "ReduceMean": ("float y", CHOSEN + "y = ReduceMean<keepdims = 0>(v)"),
    "ReduceMean of integers": ("int64[2, 1] y", PLACES + "y = ReduceMean<keepdims = 1>(nz, second)"),
    "mean by its definition": (
        "float y",
        CHOSEN + "f = Cast<to = 1>(n) t = ReduceSum<keepdims = 0>(v) y = Div(t, f)",
    ),
    "Gather of the last": ("float y", CHOSEN + "y = Gather(v, last)"),
    "GatherElements of the last": ("float[1] y", CHOSEN + "y = GatherElements(v, back)"),
    "last ArgMax": ("int64 y", CHOSEN + "y = ArgMax<axis = 0, keepdims = 0, select_last_index = 1>(v)"),
    "last ArgMin": ("int64[2, 1] y", PLACES + "y = ArgMin<axis = 1, select_last_index = 1>(nz)"),
    "ArgMax": ("int64 y", CHOSEN + "y = ArgMax<axis = 0, keepdims = 0>(v)"),
    "Concat": ("float y", CHOSEN + "u = Concat<axis = 0>(v, v) y = ReduceMean<keepdims = 0>(u)"),
    "variance": (
        "float y",
        CHOSEN
        + "a = ReduceMean<keepdims = 1>(v) d = Sub(v, a) e = Mul(d, d) y = ReduceMean<keepdims = 0>(e)",
    ),
    "LayerNormalization": (
        "float[m] y",
        CHOSEN + "o = Constant<value_float = 1.0>() w = Expand(o, s) y = LayerNormalization<axis = 0>(v, w)",
    ),
    "carried by a Loop": (
        "float[m] y",
        CHOSEN + "y = Loop(three, true, v)<body = l(int64 i, bool ci, float[k] a) => (bool co, float[k] r) "
        "{ co = Identity(ci) o = ReduceMean<keepdims = 1>(a) r = Add(a, o) }>",
    ),
}
"""The same, which are defined where an element counts at least."""


def check(result: str, nodes: str, names: list[str]) -> None:
    model = parsed(f"g (float[2, 3] x) => ({result}) {{ {NUMBERS}{nodes} }}")
    program, evaluator = tw.compile(model), ReferenceEvaluator(model)
    for name in names:
        want = np.asarray(evaluator.run(None, {"x": ARRAYS[name]})[0])
        got = np.asarray(program(ARRAYS[name]))
        assert (got.shape, got.dtype) == (want.shape, want.dtype), name
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_what_counts(case: str) -> None:
    check(*CASES[case], list(ARRAYS))


@pytest.mark.parametrize("case", OF_SOME)
def test_what_counts_of_some(case: str) -> None:
    check(*OF_SOME[case], ["some", "one", "all"])


def test_what_counts_of_an_open_length() -> None:
    nodes = CHOSEN + "y = ReduceMean<keepdims = 0>(v) e = Sub(n, i1) r = Range(e, last, last)"
    model = parsed(f"g (float[length, 3] x) => (float y, int64[m] r) {{ {NUMBERS}{nodes} }}")
    program, evaluator = tw.compile(model), ReferenceEvaluator(model)
    for length in (2, 5, 7, 16):
        x = np.arange(3 * length, dtype="f4").reshape(length, 3) - length
        wanted: Any = evaluator.run(None, {"x": x})
        for got, want in zip(program(x), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)
    assert isinstance(program, tw.DynamicProgram)
    assert not [v for v in program.ranges.values() if isinstance(v, NoTemplate)]


def test_what_data_cannot_decide_is_said() -> None:
    scan = "y = Scan<num_scan_inputs = 1, body = l(float e) => (float o) { o = Neg(e) }>(v)"
    model = parsed(f"g (float[2, 3] x) => (float[m] y) {{ {NUMBERS}{CHOSEN}{scan} }}")
    message = r"g: Scan 'y' \(float32\[6\]\) is not supported: data decides a size of what it goes over"
    with pytest.raises(tw.CompileError, match=message):
        tw.compile(model)


def test_the_derivative_of_a_mean_of_what_counts() -> None:
    result, nodes = OF_SOME["ReduceMean"]
    fn = tw.onnx_function(parsed(f"g (float[2, 3] x) => ({result}) {{ {NUMBERS}{nodes} }}"))
    for x in map(ARRAYS.__getitem__, ("some", "one", "all")):
        got = np.asarray(tw.compile(jax.grad(fn), x)(x))
        np.testing.assert_allclose(got, (x > 0) / np.count_nonzero(x > 0), rtol=1e-6)
