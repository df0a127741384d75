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
COUNTED = "c = Greater(x, none) ci = Cast<to = 7>(c) k = ReduceMax<keepdims = 0>(ci) one = Unsqueeze(k, row) "
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
    "Flatten of the inner dimension": ("int64[m] y", PLACES + "y = Reshape(nz, back)"),
    "Reshape by a size of its own": (
        "float[m, 2] y",
        CHOSEN + "d = Concat<axis = 0>(v, v) u = Unsqueeze(n, row) t = Concat<axis = 0>(two, u) "
        "w = Reshape<allowzero = 1>(d, t) y = Transpose(w)",
    ),
    "Tile": ("float[m] y", CHOSEN + "y = Tile(v, two)"),
    "Pad to a number": (
        "float[7] y",
        CHOSEN + "seven = Constant<value_int = 7>() d = Sub(seven, n) u = Unsqueeze(d, row) "
        "p = Concat<axis = 0>(row, u) w = Pad(v, p) r = Constant<value_ints = [7]>() y = Reshape(w, r)",
    ),
    "Pad before": ("float[m] y", CHOSEN + "p = Concat<axis = 0>(s, row) y = Pad(v, p)"),
    "Split": (
        "float[m] y",
        CHOSEN + "h = Div(n, three) r = Sub(n, h) u = Unsqueeze(h, row) w = Unsqueeze(r, row) "
        "t = Concat<axis = 0>(u, w) a, y = Split(v, t)",
    ),
    "Slice by a number": ("float[m, 3] y", COUNTED + "y = Slice(x, row, one, row)"),
    "Slice from a number on": ("float[2, m] y", COUNTED + "y = Slice(x, one, far, second)"),
    "Slice back from a number": ("float[2, m] y", COUNTED + "y = Slice(x, one, low, second, back)"),
    "Range of a number": ("int64[m] y", COUNTED + "y = Range(i0, k, i1)"),
    "Range from a number": ("int64[m] y", COUNTED + "y = Range(k, three, i1)"),
    "ConstantOfShape of a number": ("float[m] y", COUNTED + "y = ConstantOfShape(one)"),
    "Expand to a number": (
        "float[m, 3] y",
        COUNTED + "a = Slice(x, row, second, row) "
        "t = Constant<value_ints = [3]>() u = Concat<axis = 0>(one, t) y = Expand(a, u)",
    ),
    "Tile by a number": ("float[m] y", COUNTED + "flat = Reshape(x, back) y = Tile(flat, one)"),
    "TopK of a number": ("float[2, m] y", COUNTED + "y, i = TopK(x, one)"),
    "Pad by a number": (
        "float[2, m] y",
        COUNTED + "p = Concat<axis = 0>(row, row, row, one) y = Pad(x, p)",
    ),
    "Scan of rows whose length data decides": (
        "float[m] y",
        PLACES + "f = Cast<to = 1>(nz) z = ReduceSum<keepdims = 0>(f, row) a = Sub(z, z) "
        "y = Scan<num_scan_inputs = 1, body = l(float[k] a, float[k] e) => (float[k] t) { t = Add(a, e) }>(a, f)",
    ),
    "branches of other sizes": (
        "float[m] y",
        CHOSEN + "e = Greater(n, i1) y = If(e)<then_branch = a() => (float[k] p) { p = Neg(v) }, "
        "else_branch = b() => (float[l] q) { q = Abs(flat) }>",
    ),
    "branches of sizes that are known": (
        "float[m] y",
        "flat = Reshape(x, back) t = ReduceSum<keepdims = 0>(x) e = Greater(t, none) "
        "y = If(e)<then_branch = a() => (float[k] p) { p = Slice(flat, row, two) }, "
        "else_branch = b() => (float[l] q) { q = Abs(flat) }>",
    ),
    "ScatterElements": (
        "float[m] y",
        CHOSEN + "o = Shape(v) e = ConstantOfShape<value = int64[1] {0}>(o) "
        'y = ScatterElements<reduction = "add">(flat, e, v)',
    ),
    "ScatterElements into what counts": (
        "int64[m, 2] y",
        PLACES + 't = Transpose(nz) e = Sub(t, t) y = ScatterElements<axis = 1, reduction = "max">(t, e, t)',
    ),
    "conditions for what is longer": (
        "float[m] y",
        CHOSEN + "w = Concat<axis = 0>(flat, v) d = Greater(v, none) y = Compress(w, d)",
    ),
    "Gather from none by none": (
        "int64[3, m] y",
        PLACES + "t = Slice(nz, row, second, row) z = Sub(t, t) u = Gather<axis = 1>(nz, z) w = Shape(u) "
        "r = Constant<value_ints = [3, 1]>() v = Unsqueeze(w, second) y = Expand(v, r)",
    ),
    "sizes of narrow integers": (
        "int64 y",
        PLACES + "i = Cast<to = 6>(nz) s = Shape(i) y = Gather(s, i1)",
    ),
    "one of the first": (
        "int64[1, m] y",
        PLACES + "r = ReduceMax<keepdims = 0>(nz, row) f = Slice(r, row, second) s = Shape(f) "
        "k = Min(s, two) v, i = TopK(f, k) y = Unsqueeze(i, row)",
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
    "Scan": (
        "float y, float[m] z",
        CHOSEN + "y, z = Scan<num_scan_inputs = 1, body = l(float a, float e) => (float t, float o) "
        "{ t = Add(a, e) o = Neg(t) }>(none, v)",
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
        wanted: Any = evaluator.run(None, {"x": ARRAYS[name]})
        made = program(ARRAYS[name])
        for got, want in zip(
            made if isinstance(made, tuple) else (made,), map(np.asarray, wanted), strict=True
        ):
            got = np.asarray(got)
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


def test_what_is_collected_as_often_as_a_number() -> None:
    body = "body = l(int64 i, bool ci) => (bool co, float[2, 3] r) { co = Identity(ci) r = Neg(x) }"
    nodes = f"{COUNTED} t = Add(k, i1) y = Loop<{body}>(t, true)"
    program = tw.compile(parsed(f"g (float[2, 3] x) => (float[m, 2, 3] y) {{ {NUMBERS}{nodes} }}"))
    for x in ARRAYS.values():
        np.testing.assert_array_equal(np.asarray(program(x)), np.stack([-x] * (1 + (x > 0).any())))


def test_a_scan_backwards() -> None:
    body = "body = l(float a, float e) => (float t, float o) { h = Mul(a, a) t = Add(h, e) o = Neg(t) }"
    ways = "num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1]"
    text = f"g (float[2, 3] x) => (float[m] z) {{ {NUMBERS}{CHOSEN} y, z = Scan<{ways}, {body}>(none, v) }}"
    program = tw.compile(parsed(text))
    for x in ARRAYS.values():
        total, want = 0.0, list[float]()
        for e in x[x > 0][::-1]:
            total = total * total + e
            want.insert(0, -total)
        np.testing.assert_allclose(np.asarray(program(x)), np.array(want, "f4"), rtol=1e-5)


def test_what_data_cannot_decide_is_said() -> None:
    nodes = "q = SplitToSequence(v) y = ConcatFromSequence<axis = 0>(q)"
    model = parsed(f"g (float[2, 3] x) => (float[m] y) {{ {NUMBERS}{CHOSEN}{nodes} }}")
    message = r"g: SplitToSequence 'q' \(float32\[6\]\) is not supported: dimension 0 is open, .*, and its size decides"
    with pytest.raises(tw.CompileError, match=message):
        tw.compile(model)


def test_a_number_without_a_bound_is_said() -> None:
    model = parsed(f"g (int64 k) => (int64[m] y) {{ {NUMBERS} y = Range(i0, k, i1) }}")
    with pytest.raises(tw.CompileError, match="decides shapes by the value of k: give its value"):
        tw.compile(model)


def test_the_derivative_of_a_mean_of_what_counts() -> None:
    result, nodes = OF_SOME["ReduceMean"]
    fn = tw.onnx_function(parsed(f"g (float[2, 3] x) => ({result}) {{ {NUMBERS}{nodes} }}"))
    for x in map(ARRAYS.__getitem__, ("some", "one", "all")):
        got = np.asarray(tw.compile(jax.grad(fn), x)(x))
        np.testing.assert_allclose(got, (x > 0) / np.count_nonzero(x > 0), rtol=1e-6)
