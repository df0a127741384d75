"""Ops that read, write and select elements: negative indices, duplicates, older opsets, results sized by data."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_models import check, model_of, outputs
from tiering import sampled

import tilewright as tw
from tilewright.frontends.onnx import OnnxFunction, read_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5)).astype("f4")


def same(got: Any, want: Any) -> None:
    """The same shape, dtype and values."""
    want = np.asarray(want)
    assert (got.shape, np.dtype(got.dtype)) == (want.shape, want.dtype)
    np.testing.assert_array_equal(np.asarray(got), want)


def eager(model: onnx.ModelProto, *arrays: Any) -> list[Any]:
    """The outputs on arrays, where results have as many elements as there are."""
    with jax.disable_jit(), jax.enable_x64(True):
        return jax.tree.leaves(OnnxFunction(read_model(model))(*arrays))


def check_open(model: onnx.ModelProto, arrays: list[np.ndarray], shapes: list[str]) -> None:
    """A model with symbolic sizes gives what it does without."""
    fn = OnnxFunction(read_model(model))
    scope = jax.export.SymbolicScope()
    sizes = [jax.export.symbolic_shape(s, scope=scope) for s in shapes]
    with jax.enable_x64(True):
        specs = [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(sizes, arrays, strict=True)]
        made = jax.export.export(jax.jit(fn))(*specs)
        for a, b in zip(jax.tree.leaves(made.call(*arrays)), jax.tree.leaves(fn(*arrays)), strict=True):
            same(a, b)


# -- indices -----------------------------------------------------------------------------------------------


@sampled(2)
@pytest.mark.parametrize("dtype", ["f4", "f2", "i8", "u1", "?", ml_dtypes.bfloat16])
def test_gather_elements(dtype: Any) -> None:
    x = RNG.integers(0, 2, (3, 4, 5)).astype(dtype)
    for axis, kind in ((0, "i4"), (1, "i8"), (-1, "i8")):
        indices = RNG.integers(-x.shape[axis], x.shape[axis], (2, 3, 4)).astype(kind)
        own = list(np.ogrid[:2, :3, :4])
        own[axis] = indices
        for opset, constants in ((11, ()), (13, (1,))):
            model = model_of("GatherElements", [x, indices], opset=opset, axis=axis, constants=constants)
            same(outputs(model, x, *([] if constants else [indices]))[0], x[tuple(own)])


def test_gathers_of_nothing() -> None:
    none = np.zeros((0, 4, 5), "i8")
    same(outputs(model_of("GatherElements", [X, none]), X, none)[0], np.zeros((0, 4, 5), "f4"))
    none = np.zeros((0, 2), "i8")
    same(outputs(model_of("GatherND", [X, none]), X, none)[0], np.zeros((0, 5), "f4"))


@pytest.mark.parametrize(("batches", "k"), [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2)])
def test_gather_nd(batches: int, k: int) -> None:
    x = RNG.normal(size=(2, 3, 4, 5)).astype("f4")
    shape = (*x.shape[:batches], 6, k)
    sizes = np.array(x.shape[batches : batches + k])
    indices = RNG.integers(-sizes, sizes, shape)
    own = [i.reshape(i.shape) for i in np.ogrid[tuple(slice(n) for n in shape[:-1])][:batches]]
    want = x[(*own, *np.moveaxis(indices, -1, 0))]
    model = model_of("GatherND", [x, indices], opset=12, batch_dims=batches)
    same(outputs(model, x, indices)[0], want)


@sampled(5)
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1"])
def test_scatters_with_negative_indices_and_duplicates(dtype: str, reduction: str) -> None:
    x, updates = (RNG.integers(1, 4, (3, 4, 5)).astype(dtype) for _ in range(2))
    for axis in (0, -1):
        n = x.shape[axis]
        order = np.argsort(RNG.normal(size=x.shape), axis)
        indices = (
            order - n * RNG.integers(0, 2, x.shape) if reduction == "none" else RNG.integers(-n, n, x.shape)
        )
        part = tuple(slice(s) for s in (2, 4, 3))
        check(
            model_of(
                "ScatterElements", [x, indices[part], updates[part]], opset=18, axis=axis, reduction=reduction
            ),
            x,
            indices[part],
            updates[part],
        )
    pairs = np.array(
        [[0, 1], [-1, 3], [1, -4], [2, 3]] if reduction != "none" else [[0, 1], [-1, 3], [1, -4]]
    )
    for rows in (pairs[:, None], pairs):
        u = RNG.integers(1, 4, (*rows.shape[:-1], 5)).astype(dtype)
        check(model_of("ScatterND", [x, rows, u], opset=18, reduction=reduction), x, rows, u)


def test_scatters_of_older_opsets_and_of_bools() -> None:
    indices, updates = np.array([[[0, -1, 2, 1, 0]]]), np.full((1, 1, 5), 9, "f4")
    want = X.copy()
    want[indices[0, 0], 0, np.arange(5)] = 9
    for op, opset in (("Scatter", 9), ("ScatterElements", 11), ("ScatterElements", 13)):
        same(outputs(model_of(op, [X, indices, updates], opset=opset), X, indices, updates)[0], want)
    bools, u = np.array([True, False, True, False]), np.array([False, True, True, False])
    at = np.array([0, 1, 2, 3])
    for reduction, function in (("add", np.logical_or), ("mul", np.logical_and)):
        model = model_of("ScatterElements", [bools, at, u], opset=18, reduction=reduction)
        same(outputs(model, bools, at, u)[0], function(bools, u))
    none = np.zeros((0, 1), "i8")
    same(outputs(model_of("ScatterND", [X, none, X[:0]]), X, none, X[:0])[0], X)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("batch", [1, 3])
def test_tensor_scatter(batch: int, mode: str) -> None:
    for dtype, axis, length in (("f4", -2, 3), ("f2", 1, 1), ("i1", -1, 4), ("f4", 2, 0)):
        cache = RNG.integers(0, 9, (batch, 4, 5, 6)).astype(dtype)
        update = RNG.integers(10, 20, cache.shape).astype(dtype).take(range(length), axis)
        n = cache.shape[axis]
        begin = RNG.integers(0, n if mode == "circular" else n - length + 1, batch)
        for inputs in ([cache, update, begin], [cache, update]):
            want = np.moveaxis(cache.copy(), axis, 1)
            for b in range(batch):
                first = begin[b] if len(inputs) == 3 else 0
                want[b, (first + np.arange(length)) % n] = np.moveaxis(update, axis, 1)[b]
            model = model_of("TensorScatter", inputs, opset=24, axis=axis, mode=mode)
            same(outputs(model, *inputs)[0], np.moveaxis(want, 1, axis))


@pytest.mark.parametrize("dtype", ["i8", "i4", "u1", "f4", "f2"])
def test_one_hot(dtype: str) -> None:
    signed = np.dtype(dtype).kind != "u"
    indices = np.array([[0, 3, 7], [9, -1, -7] if signed else [9, 250, 6]]).astype(dtype)
    whole = indices.astype("i8")
    for axis, values in ((-1, [2, 5]), (0, [True, False]), (1, [0.5, 1.5]), (-2, [0, 1])):
        given = np.array(values)
        want = np.where(np.where(whole < 0, whole + 7, whole)[..., None] == np.arange(7), given[1], given[0])
        for depth in (np.array(7), np.array([7], "f4")):
            model = model_of("OneHot", [indices, depth, given], opset=11, axis=axis)
            same(outputs(model, indices, depth, given)[0], np.moveaxis(want, -1, axis))
    large = np.array([0, 299])
    model = model_of("OneHot", [large.astype("u2"), np.array(300), np.array([0, 1], "f4")], opset=11)
    same(
        outputs(model, large.astype("u2"), np.array(300), np.array([0, 1], "f4"))[0],
        np.eye(300, dtype="f4")[large],
    )


def test_open_sizes() -> None:
    at = RNG.integers(0, 3, (3, 4, 5))
    check_open(model_of("GatherElements", [X, at]), [X, at], ["a, b, 5", "a, b, 5"])
    check_open(model_of("ScatterElements", [X, at, X], reduction="max"), [X, at, X], ["a, b, 5"] * 3)
    pairs = np.array([[0, 1], [2, -1]])
    check_open(model_of("GatherND", [X, pairs]), [X, pairs], ["a, b, c", "k, 2"])
    check_open(model_of("GatherND", [X, at[..., :1]], batch_dims=1), [X, at[..., :1]], ["a, b, c", "a, d, 1"])
    check_open(model_of("ScatterND", [X, pairs, X[0, :2]]), [X, pairs, X[0, :2]], ["a, b, c", "k, 2", "k, c"])
    cache, begin = np.zeros((3, 9, 5), "f4"), np.array([1, 2, 3])
    for mode in ("linear", "circular"):
        model = model_of("TensorScatter", [cache, X, begin], opset=24, mode=mode)
        check_open(model, [cache, X, begin], ["a, 9, c", "a, 4, c", "a"])
    hot = [np.array(7), np.array([0.0, 1.0])]
    check_open(model_of("OneHot", [begin, *hot], constants=[1]), [begin, hot[1]], ["n", "2"])
    check_open(model_of("TopK", [X, np.array([2])], 2, constants=[1], axis=-1), [X], ["a, b, 5"])


# -- selection ---------------------------------------------------------------------------------------------


def top(x: np.ndarray, k: int, axis: int, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """The first k of an order in which equal elements keep theirs."""
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    order = np.argsort(-ranks if largest else ranks, axis, kind="stable").take(range(k), axis)
    return np.take_along_axis(x, order, axis), order


@sampled(2)
@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i4", "i8", "u4", "u8", "i1"])
def test_top_k(dtype: str) -> None:
    x = RNG.integers(0, 5, (3, 4, 7)).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        x[0, 0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    opset = 24 if dtype == "i1" else 11
    for k, axis, largest in ((3, -1, 1), (3, -1, 0), (4, 1, 0), (1, 0, 1), (0, 2, 1), (0, 2, 0)):
        model = model_of("TopK", [x, np.array([k])], 2, opset, constants=[1], axis=axis, largest=largest)
        for a, b in zip(outputs(model, x), top(x, k, axis, largest), strict=True):
            same(a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_zeros_and_nans(dtype: Any, largest: int) -> None:
    """Zeros of both signs are equal, and NaNs of both signs are equal and above infinity."""
    x = np.array([0.0, -0.0, np.nan, 1, -np.nan, -0.0, 0.0, np.inf, np.nan, -np.inf], dtype)
    down = [2, 4, 8, 7, 3, 0, 1, 5, 6, 9]
    order = down if largest else [9, 0, 1, 5, 6, 3, 7, 2, 4, 8]
    for k in (10, 6, 3, 1):
        model = model_of("TopK", [x, np.array([k])], 2, 24, constants=[1], largest=largest)
        values, places = outputs(model, x)
        same(places, np.array(order[:k]))
        np.testing.assert_array_equal(np.asarray(values).astype("f8"), x[order[:k]].astype("f8"))
        same(np.signbit(np.asarray(values)), np.signbit(x[order[:k]]))


def test_top_k_of_older_opsets_and_unsorted() -> None:
    k = np.array([2])
    for model, arrays in (
        (model_of("TopK", [X], 2, 9, k=2), [X]),
        (model_of("TopK", [X, k], 2, 10), [X, k]),
        (model_of("TopK", [X, k], 2, 11, sorted=0), [X, k]),
    ):
        for a, b in zip(outputs(model, *arrays), top(X, 2, -1, 1), strict=True):
            same(a, b)


SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (0,), (3, 5), (2, 0, 3), (2, 3, 1, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_non_zero(shape: tuple[int, ...]) -> None:
    for dtype in ("f4", "i8", "?"):
        x = np.asarray(RNG.integers(0, 2, shape)).astype(dtype)
        want = np.stack(np.nonzero(x)) if shape else np.zeros((0, int(x != 0)), "i8")
        model = model_of("NonZero", [x], opset=13)
        same(eager(model, x)[0], want)
        bound = x.size
        assert outputs(model, x)[0].shape == (len(shape), bound)
        same(outputs(model_of("NonZero", [x], opset=9, constants=[0]))[0], want)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis: int | None) -> None:
    x = RNG.integers(0, 9, (3, 4, 5)).astype("i4")
    n = x.size if axis is None else x.shape[axis]
    options = {} if axis is None else {"axis": axis}
    for length in (n, n - 2, 1, 0):
        condition = RNG.integers(0, 2, length).astype(bool)
        want = np.compress(condition, x, axis)
        same(eager(model_of("Compress", [x, condition], opset=11, **options), x, condition)[0], want)
        known = model_of("Compress", [x, condition], opset=11, constants=[1], **options)
        same(outputs(known, x)[0], want)


def uniques(x: np.ndarray, axis: int | None, ordered: bool) -> list[np.ndarray]:
    """The four outputs, by numpy."""
    y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not ordered:
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
        y = y.take(order, axis or 0)
    return [y, *(v.astype("i8") for v in (first, inverse, counts))]


@settings(deadline=None, max_examples=8)
@given(
    st.sampled_from([(1,), (7,), (13,), (3, 5), (5, 2, 2), (4, 1)]),
    st.sampled_from([None, 0, -1]),
    st.booleans(),
    st.sampled_from(["f4", "i8", "u1", "?"]),
    st.integers(0, 2**32 - 1),
)
def test_unique(shape: tuple[int, ...], axis: int | None, ordered: bool, dtype: str, seed: int) -> None:
    """Compiled, where the results have the shapes of their bounds."""
    x = np.random.default_rng(seed).integers(0, 3, shape).astype(dtype)
    options = {} if axis is None else {"axis": axis}
    model = model_of("Unique", [x], 4, 11, sorted=int(ordered), **options)
    y, first, inverse, counts = outputs(model, x)
    wants = uniques(x, axis, ordered)
    n = len(wants[1])
    same(y.take(np.arange(n), axis or 0), wants[0])
    for got, want in zip((first[:n], inverse, counts[:n]), wants[1:], strict=True):
        same(got, want)


@pytest.mark.parametrize(("axis", "ordered"), [(None, 1), (None, 0), (1, 1), (-1, 0)])
def test_unique_on_arrays(axis: int | None, ordered: int) -> None:
    x = RNG.integers(0, 2, (2, 7)).astype("f4")
    options = {} if axis is None else {"axis": axis}
    model = model_of("Unique", [x], 4, 11, sorted=ordered, **options)
    for got, want in zip(eager(model, x), uniques(x, axis, bool(ordered)), strict=True):
        same(got, want)


def test_unique_of_nothing_and_of_nan() -> None:
    empty = np.zeros((0,), "f4")
    for got, dtype in zip(
        eager(model_of("Unique", [empty], 4), empty), ("f4", "i8", "i8", "i8"), strict=True
    ):
        same(got, np.zeros(0, dtype))
    x = np.array([np.nan, 1, np.nan, 0, -0.0], "f4")
    y, first, inverse, counts = eager(model_of("Unique", [x], 4), x)
    np.testing.assert_array_equal(y, [0, 1, np.nan])
    same(first, np.array([3, 1, 0]))
    same(inverse, np.array([2, 1, 2, 0, 0]))
    same(counts, np.array([2, 1, 2]))


def test_results_sized_by_data_are_cut_by_programs() -> None:
    x = np.array([[3, 0, 1], [1, 3, 0]], "i4")
    mask = np.array([False, True, True])
    for model, arrays in (
        (model_of("NonZero", [x]), [x]),
        (model_of("Compress", [x, mask], axis=1), [x, mask]),
        (model_of("Unique", [x], 4), [x]),
        (model_of("Unique", [x], 4, sorted=0, axis=1), [x]),
    ):
        got = jax.tree.leaves(tw.compile(model, *arrays)(*arrays))
        for a, b in zip(got, eager(model, *arrays), strict=True):
            np.testing.assert_array_equal(a, b)


def test_rows_where_something_is_not_zero() -> None:
    """What follows a result that is sized by data is sized so, too."""
    nodes = [
        helper.make_node("NonZero", ["m"], ["at"]),
        helper.make_node("Transpose", ["at"], ["pairs"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "pairs"], ["y"]),
    ]
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]], "i4")
    types = [
        helper.make_tensor_value_info("m", TensorProto.INT32, mask.shape),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph, opsets = helper.make_graph(nodes, "g", types, [y]), [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    np.testing.assert_array_equal(tw.compile(model, mask, X)(mask, X), X[np.nonzero(mask)])


@pytest.mark.parametrize(
    ("indices", "slices"),
    [
        (0, True),
        (-1, True),
        ([2], True),
        ([[0], [2]], True),
        ([1, 2, 3], True),
        ([0, 0], False),
        ([2, 1], False),
        ([0, 1, 3], False),
    ],
)
@pytest.mark.parametrize("axis", [0, -1])
def test_gather_at_known_places_is_a_slice(indices: Any, slices: bool, axis: int) -> None:
    """As exporters write `x[0]`."""
    x, at = RNG.normal(size=(4, 3, 4)).astype("f4"), np.asarray(indices)
    model = model_of("Gather", [x, at], constants=[1], axis=axis)
    same(outputs(model, x)[0], np.take(x, at, axis))
    made = jax.make_jaxpr(OnnxFunction(read_model(model)))(x)
    assert any(e.primitive.name == "gather" or "gather" in str(e) for e in made.eqns) != slices
