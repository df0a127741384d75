"""Models that compute with their sizes: at each size as ONNX's evaluator, whether open sizes decide it or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_models import parsed
from size_models import SIZES, differences, random_model

import tilewright as tw
from tilewright.passes.templates import NoTemplate

I0 = "i0 = Constant<value_int = 0>() "
ROW = "row = Constant<value_ints = [0]>() "
LENGTH = f"{I0}{ROW}sizes = Shape(x) n = Gather(sizes, i0) "


def values(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 7 - 3).reshape(shape).astype("f4")


def check(text: str, calls: Sequence[Mapping[str, np.ndarray]], lowered: int | None = None) -> Any:
    """A model in ONNX's text form, compiled once, gives what ONNX's evaluator gives. lowered: how many ranges of sizes
    have a version. Returns the program."""
    model = parsed(text)
    program, evaluator = tw.compile(model), ReferenceEvaluator(model)
    for arrays in calls:
        wanted: Any = evaluator.run(None, dict(arrays))
        got = program(**arrays)
        for a, b in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
            b = np.asarray(b)
            assert (a.shape, np.dtype(a.dtype)) == (b.shape, b.dtype)
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-6)
    if lowered is not None:
        assert isinstance(program, tw.DynamicProgram)
        assert sum(not isinstance(v, NoTemplate) for v in program.ranges.values()) == lowered
    return program


def lengths(*shape: int, sizes: Sequence[int] = SIZES) -> list[dict[str, np.ndarray]]:
    return [{"x": values(n, *shape)} for n in sizes]


@pytest.mark.parametrize("seed", [1, 2, 3, 5, 8, 11, 16, 22])
def test_random_models(seed: int) -> None:
    triples = [(5, 2, 7), (7, 7, 7), (0, 1, 2), (16, 5, 1)]
    assert differences(random_model(seed), triples) == []


def test_a_size_that_is_known_beside_open_ones_is_a_number() -> None:
    text = f"""g (float[n, 4, 6] x) => (float[n, 24] y, int64[4] r) {{ {LENGTH}
        i1 = Constant<value_int = 1>() six = Constant<value_int = 6>()
        a = Gather(sizes, i1) p = Mul(a, six) nu = Unsqueeze(n, row) pu = Unsqueeze(p, row)
        t = Concat<axis = 0>(nu, pu) y = Reshape(x, t) r = Range(i0, a, i1) }}"""
    check(text, lengths(4, 6), lowered=2)


def test_sizes_keep_their_type() -> None:
    text = f"""g (float[n] x) => (int32[m] y, int32 z) {{ {LENGTH}
        a = Cast<to = 6>(i0) b = Cast<to = 6>(n) one = Constant<value = int32 {{1}}>() y = Range(a, b, one)
        z = Mul(b, b) }}"""
    check(text, lengths())


def test_an_equality_in_a_mask_is_computed() -> None:
    text = f"""g (float[n, k] x) => (float[n, k] y) {{ {LENGTH} i1 = Constant<value_int = 1>()
        k = Gather(sizes, i1) same = Equal(n, k) factor = Cast<to = 1>(same) y = Mul(x, factor) }}"""
    check(text, [{"x": values(n, k) + 9} for n, k in [(3, 4), (3, 3), (7, 7), (5, 7), (0, 0), (1, 1)]])


IF = (
    "If(c)<then_branch = a() => (float[n] p) { p = Neg(x) }, "
    "else_branch = b() => (float[n] q) { q = Identity(x) }>"
)


@pytest.mark.parametrize(
    ("op", "limit", "lowered"),
    [("Equal", 7, 1), ("Greater", 4, 2), ("Greater", 5, 1), ("LessOrEqual", 5, 1), ("Less", 16, 1)],
)
def test_a_branch_is_chosen_by_range_or_by_size(op: str, limit: int, lowered: int) -> None:
    text = f"""g (float[n] x) => (float[n] y) {{ {LENGTH}
        limit = Constant<value_int = {limit}>() c = {op}(n, limit) y = {IF} }}"""
    check(text, lengths(sizes=(0, 1, 5, 7, 8, 16)), lowered)


@pytest.mark.parametrize(
    "text",
    [
        "seven = Constant<value_ints = [7]>() two = Constant<value_ints = [2]>() "
        "c = Equal(sizes, seven) s = Where(c, two, sizes) y = ConstantOfShape(s)",
        "four = Constant<value_ints = [4]>() k = Min(sizes, four) y, i = TopK(x, k)",
        "eight = Constant<value_int = 8>() r = Mod(n, eight) d = Sub(eight, r) p = Mod(d, eight) "
        "pu = Unsqueeze(p, row) pads = Concat<axis = 0>(row, pu) y = Pad(x, pads)",
        "half = Constant<value_float = 0.5>() f = Cast<to = 1>(sizes) p = Mul(f, half) q = Ceil(p) "
        "s = Cast<to = 7>(q) y = ConstantOfShape(s)",
        "ten = Constant<value_int = 10>() three = Constant<value_int = 3>() d = Sub(n, ten) q = Div(d, three) "
        "r = Mod<fmod = 1>(d, three) s = Mod(d, three) f = Cast<to = 1>(q) g = Cast<to = 1>(r) h = Cast<to = 1>(s) "
        "a = Add(x, f) b = Mul(a, g) y = Add(b, h)",
        "three = Constant<value_float = 3.0>() e = Expand(three, sizes) y = Add(e, e)",
        "two = Constant<value_int = 2>() r = Mod(n, two) ru = Unsqueeze(r, row) tu = Unsqueeze(two, row) "
        "c = Constant<value_floats = [1.0, 2.0]>() s = Concat<axis = 0>(ru, tu) y = Expand(c, s)",
    ],
)
def test_what_open_sizes_do_not_decide_is_decided_by_size(text: str) -> None:
    check(f"g (float[n] x) => (float[] y) {{ {LENGTH} {text} }}", lengths())


@pytest.mark.parametrize("step", [-1, -2, -3, 2, 3])
def test_ranges_over_open_lengths(step: int) -> None:
    text = f"""g (float[n, 3] x) => (int64[m] y) {{ {LENGTH} one = Constant<value_int = 1>()
        minus = Constant<value_int = -1>() step = Constant<value_int = {step}>() last = Sub(n, one)
        y = Range({"last, minus" if step < 0 else "minus, last"}, step) }}"""
    check(text, lengths(3))


def test_names_that_stand_for_one_size() -> None:
    text = "g (float[n, 3] x, float[m, 3] y) => (float[p, 3] z) { z = Add(x, y) }"
    calls = [{"x": values(n, 3), "y": values(n, 3)} for n in SIZES]
    program = check(text, [*calls, {"x": values(2, 3), "y": values(1, 3)}], lowered=2)
    assert "traced by size, as g: Add 'z' (float32[n,3], float32[m,3]) " in repr(program)
    with pytest.raises(
        tw.CompileError, match=r"g: Add 'z' \(float32\[2,3\], float32\[5,3\]\) cannot be converted"
    ):
        program(x=values(2, 3), y=values(5, 3))


def test_all_names_that_stand_for_one_size_have_one_version() -> None:
    text = (
        "g (float[n, 3] x, float[m, 3] y, float[k, 3] z) => (float[p, 3] v) { a = Add(x, y) v = Mul(a, z) }"
    )
    calls = [{"x": values(n, 3), "y": values(n, 3), "z": values(n, 3)} for n in (5, 7, 6)]
    check(text, calls, lowered=1)


RELATED = {
    "LSTM": (
        "float[a, b, c] x, float[d, e, f] w, float[g, h, i] r, float[j, k] bias",
        "y, last, cell = LSTM<hidden_size = 2>(x, w, r, bias)",
        [(3, 2, 4), (1, 8, 4), (1, 8, 2), (1, 16)],
    ),
    "GRU of both directions": (
        "float[a, b, c] x, float[d, e, f] w, float[g, h, i] r",
        'y, last = GRU<hidden_size = 2, direction = "bidirectional">(x, w, r)',
        [(3, 2, 4), (2, 6, 4), (2, 6, 2)],
    ),
    "NonMaxSuppression": (
        "float[a, b, c] x, float[d, e, f] w",
        "one = Constant<value_ints = [1]>() half = Constant<value_floats = [0.5]>() "
        "q = NonMaxSuppression(x, w, one, half, half) y = Cast<to = 1>(q)",
        [(1, 3, 4), (1, 2, 3)],
    ),
    "MatMul": ("float[a, b] x, float[c, d] w", "y = MatMul(x, w)", [(3, 4), (4, 2)]),
    "heads": (
        "float[a, b, c] x, float[d, e, f] w",
        "s = Constant<value_ints = [0, 0, 2, -1]>() p = Reshape(x, s) q = Reshape(w, s) y = Mul(p, q)",
        [(2, 3, 8), (2, 3, 8)],
    ),
    "an initialiser": (
        "float[a, b] x",
        "w = Constant<value = float[2, 3] {1, 2, 3, 4, 5, 6}>() v = MatMul(x, w) y = Add(v, x)",
        [(3, 2)],
    ),
}
"""Inputs, nodes and sizes of models each of whose dimensions is open."""


@pytest.mark.parametrize("case", [c for c in RELATED if c != "an initialiser"])
def test_dimensions_that_are_all_open(case: str) -> None:
    inputs, nodes, shapes = RELATED[case]
    names = [one.split()[-1] for one in inputs.split(", float")]
    arrays = {n: np.abs(values(*shape)) / 4 for n, shape in zip(names, shapes, strict=True)}
    check(f"g ({inputs}) => (float[] y) {{ {nodes} }}", [arrays])


def test_dimensions_that_are_never_right() -> None:
    inputs, nodes, _ = RELATED["an initialiser"]
    with pytest.raises(tw.CompileError, match="MatMul 'v'"):
        tw.compile(parsed(f"g ({inputs}) => (float[] y) {{ {nodes} }}"))


def test_a_cache_may_be_empty() -> None:
    text = """g (float[b, p, 4] cache, float[b, s, 4] x, float[b, t] mask) => (float[b, t, 4] present) {
        c = Concat<axis = 1>(cache, x) two = Constant<value_ints = [2]>() m = Unsqueeze(mask, two)
        present = Mul(c, m) }"""
    sizes = [(0, 3), (5, 1), (7, 7), (0, 0)]
    check(
        text, [{"cache": values(2, p, 4), "x": values(2, s, 4), "mask": values(2, p + s)} for p, s in sizes]
    )


def test_what_is_wrong_at_all_sizes_is_said_at_once() -> None:
    model = parsed("g (float[n, 3] x, float[m, 4] y) => (float[n, 4] z) { z = Add(x, y) }")
    with pytest.raises(tw.CompileError, match="cannot be converted: add got incompatible shapes"):
        tw.compile(model)


def test_who_decides_a_shape_is_named() -> None:
    text = """g (float[4] x, int64 a) => (float[m] y) {
        one = Constant<value_ints = [1]>() b = Reshape(a, one) y = Expand(x, b) }"""
    message = (
        "decides shapes by the value of b, which follows from a: give the value of a, as an example input"
    )
    with pytest.raises(tw.CompileError, match=message):
        tw.compile(parsed(text))
