"""Results whose sizes depend on data: equal to numpy and JAX, at all sizes there are, in both memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import outputs as in_memories
from tiering import examples, sampled

import tilewright as tw
from tilewright.passes.templates import NoTemplate

DTYPES = ("float32", "bfloat16", "int32", "int8", "bool")
"""Element types that the vector unit has."""


@cache
def program_of(fn: Callable[..., Any], *types: tuple[tuple[int, ...], str]) -> tw.Program:
    return tw.compile(fn, *(jax.ShapeDtypeStruct(*t) for t in types))


def outputs(fn: Callable[..., Any], *args: Any) -> Any:
    """What a program gives; both memories agree bit for bit, and nothing runs on the host."""
    program = program_of(fn, *((np.shape(a), np.asarray(a).dtype.name) for a in args))
    assert not [op for op in program.module("graph").walk() if op.name == "graph.host"]
    return program.unflatten(in_memories(program, program.flatten(args)))


def equal(got: Any, want: Any, tolerance: float = 0) -> None:
    """The same shapes and dtypes, and the same numbers within a tolerance of the largest."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        x, y = np.asarray(a), np.asarray(b)
        assert x.shape == y.shape and x.dtype == y.dtype
        if tolerance:
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(x.astype(np.float64), y.astype(np.float64))


def array(dtype: str, values: Sequence[int], shape: tuple[int, ...]) -> np.ndarray:
    return np.resize(np.asarray(values), shape).astype(jnp.dtype(dtype))


few = st.lists(st.integers(0, 3), min_size=1, max_size=40)
"""Numbers of which many are equal, and some or all zero."""


# -- functions -----------------------------------------------------------------------------------------------


@examples(24)
@given(few, st.sampled_from([(13,), (3, 1, 4)]))
def test_nonzero_is_that_of_numpy(values: list[int], shape: tuple[int, ...]) -> None:
    x = array("float32", values, shape)
    want = tuple(a.astype(np.int32) for a in np.nonzero(x))
    equal(outputs(tw.nonzero, x), want)
    equal(tw.nonzero(x), want)


@sampled(6)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    x = array(dtype, [0, 3, 0, 1, 3, 0, 0, 2], (17,))
    mask = array("bool", [0, 1, 1, 0, 0], (17,))
    equal(outputs(tw.nonzero, x)[0], np.nonzero(x)[0].astype(np.int32))
    equal(outputs(tw.compress, mask, x), x[mask])
    equal(outputs(tw.unique, x), np.unique(x.astype(np.float32)).astype(x.dtype))


@pytest.mark.parametrize("size", [0, 1])
def test_none_and_one(size: int) -> None:
    for value in (0, 1):
        x = np.full(size, value, np.float32)
        equal(outputs(tw.nonzero, x)[0], np.nonzero(x)[0].astype(np.int32))
        equal(outputs(tw.compress, x != 0, x), x[x != 0])
        equal(outputs(tw.unique, x), np.unique(x))


def _columns(mask: Any, x: Any) -> Any:
    return tw.compress(mask, x, -1)


@examples(24)
@given(few, st.sampled_from([0, 1, 2]))
def test_masks_select_as_numpy_does(values: list[int], kind: int) -> None:
    x = np.arange(6 * 9, dtype=np.float32).reshape(6, 9)
    mask = array("bool", values, [(6,), (6, 9), (9,)][kind])
    fn = _columns if kind == 2 else tw.compress
    want = x[:, mask] if kind == 2 else x[mask]
    equal(outputs(fn, mask, x), want)
    equal(fn(mask, x), want)


@examples(16)
@given(
    st.lists(
        st.sampled_from([0.0, -1.5, 2.0, float("nan"), float("inf"), -float("inf")]), min_size=1, max_size=30
    )
)
def test_unique_is_that_of_numpy(values: list[float]) -> None:
    x = np.resize(np.asarray(values, np.float32), (31,))
    equal(outputs(tw.unique, x), np.unique(x))
    equal(tw.unique(x), np.unique(x))


def suppressed(boxes: np.ndarray, scores: np.ndarray, iou: float, least: float, most: int) -> np.ndarray:
    """Non-maximum suppression, one box after the other."""
    kept: list[int] = []
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    for i in np.argsort(-scores, kind="stable"):
        if scores[i] <= least or len(kept) == most:
            break
        for k in kept:
            sides = np.maximum(np.minimum(high[i], high[k]) - np.maximum(low[i], low[k]), 0)
            common = sides.prod()
            if common > iou * ((high[i] - low[i]).prod() + (high[k] - low[k]).prod() - common):
                break
        else:
            kept.append(int(i))
    return np.asarray(kept, np.int32)


def _detect(boxes: Any, scores: Any) -> Any:
    return tw.nms(boxes, scores, 0.25, 2.0, 6)


@examples(24)
@given(
    st.lists(st.integers(0, 8), min_size=12, max_size=60),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
)
def test_nms_keeps_what_the_definition_keeps(corners: list[int], scores: list[int]) -> None:
    boxes, ranked = array("float32", corners, (12, 4)), array("float32", scores, (12,))
    want = suppressed(boxes, ranked, 0.25, 2.0, 6)
    equal(outputs(_detect, boxes, ranked), want)
    equal(_detect(boxes, ranked), want)


# -- what follows inside of the program ----------------------------------------------------------------------


def _reduced(x: Any, n: Any, w: Any) -> Any:
    y = tw.bounded(x, n)
    return jnp.sum(y, 0), jnp.max(y, 0), jnp.prod(y[:, 0]), jnp.argmin(y[:, 1]), jnp.any(y > 2.5, 0)


def _moved(x: Any, n: Any, w: Any) -> Any:
    y = tw.bounded(x, n)
    pad = jnp.pad(y, ((2, 1), (0, 0)), constant_values=7)
    joined = jnp.concatenate([w[:, :4], y], 0)
    rows = jnp.take(w[0], tw.bounded(jnp.arange(11) % 5, n))
    return y.T, y[None] * 2, y[1:9:2], pad, y.reshape(-1), joined, rows, jnp.sort(y, 1), y[:, ::-1]


def _products(x: Any, n: Any, w: Any) -> Any:
    y = tw.bounded(x, n)
    return y @ w, y.T @ y[:, :2], y @ y.T, jax.nn.softmax(y.T), y[:, None] * y[None]


def _windows(x: Any, n: Any, w: Any) -> Any:
    y = tw.bounded(x, n)
    dims = ("NCH", "OIH", "NCH")
    return (
        jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (3, 1), (2, 1), "VALID"),
        jax.lax.reduce_window(y, 0.0, jax.lax.add, (2, 1), (1, 1), [(0, 1), (0, 0)]),
        jnp.cumsum(y, 0),
        jax.lax.cumsum(y, 0, reverse=True),
        jax.lax.conv_general_dilated(
            y.T[None], w[:, :4, None].repeat(3, 2), (2,), [(1, 1)], dimension_numbers=dims
        ),
    )


def _ordered(x: Any, n: Any, w: Any) -> Any:
    y = tw.bounded(x, n)
    return (
        jnp.sort(y, 0),
        jnp.sort(y, 0, descending=True),
        jnp.argsort(y[:, 0]),
        jax.lax.sort([jnp.round(y), y], dimension=0, num_keys=2),
        y[::-1],
        jnp.concatenate([y, w[:2, :4], tw.bounded(x * 2, n - 1)]),
    )


def _read(x: Any, n: Any, w: Any) -> Any:
    y, last = tw.bounded(x, n), jnp.int32(10)
    return (
        y[jnp.asarray([0, 0, 0])],
        jax.lax.dynamic_slice(y, (last, 0), (1, 4)),
        jax.lax.dynamic_update_slice(y, w[:1, :4], (last, 0)),
        y.at[:, 0].set(y[:, 1] * 2),
        jnp.zeros((3, 4)).at[tw.bounded(jnp.arange(11) % 3, n)].add(y),
    )


def _controlled(x: Any, n: Any, w: Any) -> Any:
    y = tw.bounded(x, n)
    total = jax.lax.fori_loop(0, 3, lambda i, s: s + i * jnp.sum(y, 0), jnp.zeros(4))
    doubled = jax.lax.while_loop(lambda s: jnp.max(jnp.abs(s)) < 50, lambda s: s * 2, y)
    chosen = jax.lax.cond(n > 3, lambda v: v + 1, lambda v: tw.bounded(v, 0), y)
    shrunk = jax.lax.fori_loop(0, 2, lambda i, v: tw.bounded(v * 2, n - i), x)
    return total, doubled, chosen, shrunk


@sampled(6)
@pytest.mark.parametrize("fn", [_reduced, _moved, _products, _windows, _ordered, _read, _controlled])
@pytest.mark.parametrize("n", [1, 4, 11])
def test_what_follows_sees_what_counts(fn: Callable[..., Any], n: int) -> None:
    """What does not count is NaN. On arrays `tw.bounded` cuts, so that the function itself says what is right."""
    x = np.random.default_rng(n).standard_normal((11, 4)).astype(np.float32)
    x[n:] = np.nan
    w = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    with jax.disable_jit():
        want = fn(x, n, w)
    equal(outputs(fn, x, np.int32(n), w), want, 1e-4)


def _twice(x: Any, n: Any, m: Any) -> Any:
    y = tw.bounded(x, n)
    return tw.bounded(y, m), jnp.sum(tw.bounded(y, x.shape[0]))


@pytest.mark.parametrize(("n", "m"), [(2, 4), (4, 2), (5, 5)])
def test_what_does_not_count_never_does_again(n: int, m: int) -> None:
    x = np.arange(5, dtype=np.float32)
    equal(outputs(_twice, x, np.int32(n), np.int32(m)), (jnp.asarray(x[: min(n, m)]), jnp.sum(x[:n])))


def _looked_up(x: Any, boxes: Any, scores: Any) -> Any:
    kept = tw.nms(boxes, scores, 0.25, 2.0, 6)
    first = tw.compress(scores > 3, boxes)
    return (
        x[tw.nonzero(x > 0)],
        boxes[kept],
        jnp.sum(scores[kept]),
        jnp.mean(first[:, 0] * 0 + 1),
        first.T @ first,
    )


def test_results_are_coordinates_of_what_follows() -> None:
    rng = np.random.default_rng(3)
    x, boxes = rng.integers(-1, 2, (5, 7)).astype(np.float32), rng.integers(0, 8, (12, 4)).astype(np.float32)
    scores = rng.integers(0, 9, 12).astype(np.float32)
    found, rows, total, mean, product = outputs(_looked_up, x, boxes, scores)
    kept, first = suppressed(boxes, scores, 0.25, 2.0, 6), boxes[scores > 3]
    equal((found, rows, product), (x[x > 0], boxes[kept], first.T @ first), 1e-5)
    assert total == scores[kept].sum() and mean == pytest.approx(len(first) / 12)  # JAX divides by the bound


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (lambda x, n: jnp.fft.fft(tw.bounded(x, n)), "stablehlo.fft"),
    (lambda x, n: jax.lax.pad(tw.bounded(x, n), 0.0, [(0, 0, 1)]), "stablehlo.pad"),
    (lambda x, n: tw.bounded(x, n).reshape(3, 4), "stablehlo.reshape"),
    (lambda x, n: jax.lax.reduce(tw.bounded(x, n), 1.0, lambda a, b: a * b + a, (0,)), "stablehlo.reduce"),
]


@pytest.mark.parametrize(("fn", "op"), REFUSED, ids=[op for _, op in REFUSED])
def test_what_would_mix_what_counts_with_the_rest_is_refused(fn: Callable[..., Any], op: str) -> None:
    with pytest.raises(
        tw.CompileError, match=rf"^'{op}' \(.*test_bounded.py:\d+\) takes a tensor whose dimension 0 is"
    ):
        tw.compile(fn, np.zeros(12, np.float32), np.int32(3))


def test_each_example_has_no_size_of_its_own() -> None:
    x, n = np.zeros((3, 5), np.float32), np.arange(3, dtype=np.int32)
    assert jax.vmap(tw.bounded)(x, n).shape == x.shape
    with pytest.raises(tw.CompileError, match=r"under jax.vmap each example would have a size of its own"):
        tw.compile(jax.vmap(tw.bounded), x, n)
    rows = tw.compile(jax.vmap(tw.bounded, in_axes=(0, None)), x, np.int32(2))
    assert rows.output_types == ("f32[3, <=5]",) and rows(x, np.int32(2)).shape == (3, 2)
    shared = tw.compile(jax.vmap(lambda n: tw.bounded(x[0], 4) * n), n)
    assert shared.output_types == ("f32[3, <=5]",)


def test_the_derivative_is_zero_by_what_does_not_count() -> None:
    def loss(x: Any, n: Any) -> Any:
        return jnp.sum(jnp.exp(tw.bounded(x, n)))

    x = np.arange(5, dtype=np.float32)
    want = np.where(np.arange(5) < 3, np.exp(x), 0)
    for gradient in (jax.jit(jax.grad(loss)), tw.compile(jax.grad(loss), x, np.int32(3))):
        np.testing.assert_allclose(gradient(x, np.int32(3)), want, rtol=1e-5)


# -- programs ------------------------------------------------------------------------------------------------


def test_a_program_says_what_is_bounded() -> None:
    program = program_of(_columns, ((9,), "bool"), ((6, 9), "float32"))
    assert program.output_types == ("f32[6, <=9]",)
    assert [(e.result, e.dim, e.by) for e in program.extents] == [(0, 1, 1)]
    for level in ("graph", "tile", "npu"):
        assert "graph.extents = array<i64: -1, 1>" in program.ir(level)


def test_verify_compares_what_counts() -> None:
    mask, x = array("bool", [1, 0, 1], (9,)), np.arange(9, dtype=np.float32)
    assert tw.verify(tw.compress, mask, x).ok
    assert tw.verify(
        _reduced, np.ones((11, 4), np.float32), np.int32(4), np.ones((4, 5), np.float32), quick=True
    ).ok
    assert not tw.verify(
        tw.compress, mask, x, quick=True, against=lambda mask, x: tw.compress(mask, x + 1)
    ).ok
    assert not tw.verify(tw.compress, mask, x, quick=True, against=lambda mask, x: tw.bounded(x[mask], 2)).ok


def _open(x: Any, mask: Any, boxes: Any, scores: Any) -> Any:
    y = tw.compress(mask, x)
    consumed = (jnp.sum(y, 0), y @ y.T, jax.nn.softmax(y.T), y[1:], y[::-1], jnp.concatenate([y, x]))
    return tw.nonzero(x), y, consumed, tw.nms(boxes, scores, 0.25, 2.0, 6)


def test_quantized_products_may_be_bounded() -> None:
    rng = np.random.default_rng(0)
    x, w, n = rng.standard_normal((9, 32)), rng.standard_normal((32, 4)), np.int32(3)
    args = x.astype(np.float32), w.astype(np.float32), n
    options = tw.Options(quantization="w8a8-dynamic")
    program = tw.compile(_product, *args, options=options)
    assert program(*args).shape == (3, 4)
    found = tw.verify(_product, *args, program=program, options=options, quick=True)
    assert found.ok and found.quantization is not None
    assert tw.fake_quant(_product, "w8a8-dynamic")(*args).shape == (9, 4)  # as in JAX: all of the bound


def _product(x: Any, w: Any, n: Any) -> Any:
    return tw.bounded(x @ w, n)


@sampled(3)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 6)])
def test_bounds_may_be_open(shape: tuple[int, int]) -> None:
    """Programs are lowered for ranges of sizes."""
    (n, _), rng = shape, np.random.default_rng(shape)
    args = (
        rng.integers(0, 3, shape).astype(np.float32),
        rng.random(n) < 0.7,
        rng.integers(0, 8, (n, 4)).astype(np.float32),
        rng.integers(0, 9, n).astype(np.float32),
    )
    with jax.disable_jit():
        want = _open(*args)
    program = open_program()
    equal(program(*args), want, 1e-4)
    assert not [v for v in program.ranges.values() if isinstance(v, NoTemplate)]


@cache
def open_program() -> tw.DynamicProgram:
    a, b = jax.export.symbolic_shape("a, b")
    types = (((a, b), "float32"), ((a,), "bool"), ((a, 4), "float32"), ((a,), "float32"))
    made = tw.compile(_open, *(jax.ShapeDtypeStruct(*t) for t in types))
    assert isinstance(made, tw.DynamicProgram)
    return made


def test_distinct_elements_of_an_open_dimension() -> None:
    (a,) = jax.export.symbolic_shape("a")
    program = tw.compile(tw.unique, jax.ShapeDtypeStruct((a,), "float32"))
    x = array("float32", [2, 0, 2, 5], (7,))
    equal(program(x), np.unique(x))


def test_an_export_with_open_dimensions_keeps_the_marks() -> None:
    """JAX itself does not find the shapes of this one: its refinement does not know composites."""
    (a,) = jax.export.symbolic_shape("a")
    exported = jax.export.export(jax.jit(tw.nonzero))(jax.ShapeDtypeStruct((a, 3), "float32"))
    x = array("float32", [0, 1, 1, 0, 2], (4, 3))
    equal(tw.compile(exported)(x), tuple(a.astype(np.int32) for a in np.nonzero(x)))


def test_sources_of_jax_keep_the_marks() -> None:
    x = array("float32", [0, 3, 1], (7,))
    for source in (
        jax.jit(tw.unique).lower(x),
        jax.jit(tw.unique).trace(x),
        jax.export.export(jax.jit(tw.unique))(x),
    ):
        equal(tw.compile(source)(x), np.unique(x))
    equal(tw.jit(tw.unique)(x), np.unique(x))


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: tw.bounded(np.zeros((2, 3)), 1, 2), "tw.bounded: axis 2 is none of an array of rank 2"),
    (lambda: tw.bounded(np.zeros(3), [1, 2]), r"tw.bounded: n must be one whole number, not int32\[2\]"),
    (lambda: tw.bounded(np.zeros(3), 1.5), r"tw.bounded: n must be one whole number, not float32\[\]"),
    (lambda: tw.nonzero(1.0), "tw.nonzero needs an array of rank 1 or more: a number has no coordinates"),
    (
        lambda: tw.compress([True], np.zeros(3)),
        r"tw.compress: a mask of bool\[1\] is not one for .* \[3\] from 0 on",
    ),
    (lambda: tw.compress([1, 0, 1], np.zeros(3)), r"tw.compress: a mask of int32\[3\] is not one"),
    (
        lambda: tw.nms(np.zeros((2, 3)), np.zeros(2), 0.5),
        r"tw.nms: boxes of \[2, 3\] with scores of \[2\]; it needs",
    ),
]


@pytest.mark.parametrize(("call", "said"), BAD)
def test_bad_arguments(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(tw.CompileError, match=said):
        call()


@pytest.mark.parametrize(
    ("n", "count"), [(-3, 0), (0, 0), (4, 4), (5, 5), (99, 5), (2**31 - 1, 5), (-(2**31), 0)]
)
def test_a_size_is_clamped(n: int, count: int) -> None:
    x = np.arange(5, dtype=np.float32)
    equal(outputs(tw.bounded, x, np.int32(n)), x[:count])
    equal(tw.bounded(x, n), x[:count])
