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
from tiers import examples, sampled

import tilewright as tw

DTYPES = ("float32", "bfloat16", "int32", "int8", "bool")
"""Element types that the vector unit has."""


@cache
def program_of(fn: Callable[..., Any], *types: tuple[tuple[int, ...], str]) -> tw.Program:
    return tw.compile(fn, *(jax.ShapeDtypeStruct(*t) for t in types))


def outputs(fn: Callable[..., Any], *args: Any) -> Any:
    """What a program gives; both memories agree bit for bit, and nothing runs on the host."""
    program = program_of(fn, *((np.shape(a), np.asarray(a).dtype.name) for a in args))
    assert not [op for op in program.module("graph").walk() if op.name == "graph.host"]
    flat = program.flatten(args)
    typed, raw = (program.unflatten(program.executable(memory)(*flat)) for memory in ("typed", "bytes"))
    for a, b in zip(jax.tree.leaves(typed), jax.tree.leaves(raw), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return typed


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


@sampled(2)
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
@given(st.lists(st.sampled_from([0.0, -1.5, 2.0, float("nan"), float("inf"), -float("inf")]), min_size=1, max_size=30))
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
@given(st.lists(st.integers(0, 8), min_size=12, max_size=60), st.lists(st.integers(0, 9), min_size=1, max_size=12))
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
        jax.lax.conv_general_dilated(y.T[None], w[:, :4, None].repeat(3, 2), (2,), [(1, 1)], dimension_numbers=dims),
    )


@pytest.mark.parametrize("fn", [_reduced, _moved, _products, _windows])
@pytest.mark.parametrize("n", [1, 4, 11])
def test_what_follows_sees_what_counts(fn: Callable[..., Any], n: int) -> None:
    """What does not count is NaN. On arrays `tw.bounded` cuts, so that the function itself says what is right."""
    x = np.random.default_rng(n).standard_normal((11, 4)).astype(np.float32)
    x[n:] = np.nan
    w = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    equal(outputs(fn, x, np.int32(n), w), fn(x, n, w), 1e-4)


@pytest.mark.parametrize(("n", "count"), [(-3, 0), (0, 0), (4, 4), (5, 5), (99, 5), (2**31 - 1, 5), (-(2**31), 0)])
def test_a_size_is_clamped(n: int, count: int) -> None:
    x = np.arange(5, dtype=np.float32)
    equal(outputs(tw.bounded, x, np.int32(n)), x[:count])
    equal(tw.bounded(x, n), x[:count])
