"""Convolutions and pools, compared with sums over windows that are written out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export
from onnx_models import check, model_of, outputs

from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import OnnxError

RNG = np.random.default_rng(0)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def padding(sizes: Sequence[int], kernel: Sequence[int], a: dict[str, Any]) -> list[tuple[int, int, int]]:
    """For each dimension: what is before it and behind it, and the number of windows, from what ONNX says of them."""
    rank, made = len(sizes), []
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    pads = a.get("pads", [0] * 2 * rank)
    for i, n in enumerate(sizes):
        wide, step, mode = (kernel[i] - 1) * dilations[i] + 1, strides[i], a.get("auto_pad", "NOTSET")
        if mode.startswith("SAME"):
            count = -(-n // step)
            total = max((count - 1) * step + wide - n, 0)
            low = total // 2 if mode == "SAME_UPPER" else total - total // 2
            made.append((low, total - low, count))
            continue
        low, high = (pads[i], pads[rank + i]) if mode == "NOTSET" else (0, 0)
        room = n + low + high - wide
        count = room // step + 1
        if a.get("ceil_mode", 0) and mode == "NOTSET":
            count = -(-room // step) + 1
            count -= (count - 1) * step >= n + low
        made.append((low, high, count))
    return made


def windows(
    x: np.ndarray, kernel: Sequence[int], a: dict[str, Any], outside: float, beyond: float
) -> np.ndarray:
    """[n, c, *counts, *kernel]: the elements of each window; `outside` in the padding, `beyond` behind it."""
    rank = len(kernel)
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    sides = padding(x.shape[2:], kernel, a)
    out = np.empty((*x.shape[:2], *(c for _, _, c in sides), *kernel), np.float64)
    for o in itertools.product(*(range(c) for _, _, c in sides)):
        for k in itertools.product(*map(range, kernel)):
            at = [o[i] * strides[i] + k[i] * dilations[i] - sides[i][0] for i in range(rank)]
            ends = [(n, n + side[1]) for n, side in zip(x.shape[2:], sides, strict=True)]
            if all(0 <= p < n for p, (n, _) in zip(at, ends, strict=True)):
                value: Any = x[(..., *at)]
            else:
                value = outside if all(p < e for p, (_, e) in zip(at, ends, strict=True)) else beyond
            out[(slice(None), slice(None), *o, *k)] = value
    return out


def convolved(x: np.ndarray, w: np.ndarray, a: dict[str, Any], outside: float = 0.0) -> np.ndarray:
    groups, rank = a.get("group", 1), x.ndim - 2
    parts = windows(x, w.shape[2:], a, outside, 0.0)
    parts = parts.reshape(x.shape[0], groups, -1, *parts.shape[2:])
    kernels = w.reshape(groups, -1, *w.shape[1:])
    taps = "xyz"[:rank]
    made = np.einsum(f"ngcuvt{taps},gmc{taps}->ngmuvt" if rank == 3 else
                     f"ngcuv{taps},gmc{taps}->ngmuv" if rank == 2 else
                     f"ngcu{taps},gmc{taps}->ngmu", parts, kernels)  # fmt: skip
    return made.reshape(x.shape[0], -1, *made.shape[3:])


def same(got: Any, want: np.ndarray, dtype: Any, tolerance: float = 2e-5) -> None:
    assert (got.shape, np.dtype(got.dtype)) == (want.shape, np.dtype(dtype))
    np.testing.assert_allclose(
        np.asarray(got).astype(np.float64), want.astype(np.float64), tolerance, tolerance
    )


@st.composite
def attributes(draw: Any, ceil: bool = False) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Sizes, a kernel that fits, and attributes."""
    rank = draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    dilations = [draw(st.integers(1, 2)) for _ in range(rank)]
    sizes = tuple((k - 1) * d + 1 + draw(st.integers(0, 4)) for k, d in zip(kernel, dilations, strict=True))
    made: dict[str, Any] = {"dilations": dilations, "strides": [draw(st.integers(1, 3)) for _ in range(rank)]}
    mode = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if mode == "NOTSET":
        made["pads"] = [draw(st.integers(0, kernel[i % rank] // 2)) for i in range(2 * rank)]
        if ceil:
            made["ceil_mode"] = draw(st.integers(0, 1))
    else:
        made["auto_pad"] = mode
    return sizes, kernel, made


# -- convolutions ------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, derandomize=True)
@given(attributes(), st.sampled_from([(1, 3, 2), (2, 4, 6), (3, 3, 3)]))
def test_a_convolution_is_a_sum_over_windows(case: Any, channels: tuple[int, int, int]) -> None:
    (sizes, kernel, a), (groups, c, m) = case, channels
    x, w, b = floats(2, c, *sizes), floats(m, c // groups, *kernel), floats(m)
    a = {**a, "group": groups}
    (got,) = outputs(model_of("Conv", [x, w, b], kernel_shape=list(kernel), **a), x, w, b)
    same(got, convolved(x, w, a) + b.reshape(1, -1, *[1] * len(sizes)), np.float32)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-12), (np.float16, 2e-2), (ml_dtypes.bfloat16, 2e-1)]
)
def test_convolutions_in_three_dimensions_and_other_types(dtype: Any, tolerance: float) -> None:
    x, w = floats(1, 2, 3, 4, 5, dtype=dtype), floats(3, 2, 1, 2, 3, dtype=dtype)
    (got,) = outputs(model_of("Conv", [x, w], opset=22), x, w)
    same(got, convolved(x.astype(np.float64), w.astype(np.float64), {}), dtype, tolerance)


def test_a_convolution_of_no_images() -> None:
    x, w = floats(0, 2, 5, 5), floats(3, 2, 3, 3)
    assert outputs(model_of("Conv", [x, w]), x, w)[0].shape == (0, 3, 3, 3)


def test_a_kernel_of_another_rank_is_refused() -> None:
    x, w = floats(1, 2, 5, 5), floats(3, 2, 3)
    model = model_of("Conv", [floats(1, 2, 5), w])
    fn = OnnxFunction(read_model(model))
    with pytest.raises(OnnxError, match="weights of 3 dimensions have no place in an operand of 4"):
        jax.eval_shape(fn, x, w)


@pytest.mark.parametrize("kinds", list(itertools.product([np.int8, np.uint8], repeat=2)))
@pytest.mark.parametrize("constants", [(), (1, 2, 3)])
def test_a_convolution_of_bytes_less_their_zero_points(kinds: Any, constants: tuple[int, ...]) -> None:
    one, two = kinds
    x = RNG.integers(np.iinfo(one).min, np.iinfo(one).max, (1, 4, 5, 4)).astype(one)
    w = RNG.integers(np.iinfo(two).min, np.iinfo(two).max, (4, 2, 3, 2)).astype(two)
    zero, zeros = np.asarray(7, one), RNG.integers(0, 99, 4).astype(two)
    a = {"group": 2, "pads": [1, 0, 2, 1]}
    inputs = [x, w, zero, zeros]
    given = [v for i, v in enumerate(inputs) if i not in constants]
    (got,) = outputs(model_of("ConvInteger", inputs, constants=constants, **a), *given)
    wide = w.astype(int) - zeros.astype(int)[:, None, None, None]
    same(got, convolved(x.astype(int) - 7, wide, a), np.int32, 0)


def scattered(x: np.ndarray, w: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    """A transposed convolution with no padding: each element adds a kernel to the result."""
    rank, groups = x.ndim - 2, a.get("group", 1)
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    sizes = [
        (n - 1) * s + (k - 1) * d + 1
        for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
    ]
    out = np.zeros((x.shape[0], groups, w.shape[1], *sizes))
    parts = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    kernels = w.reshape(groups, -1, *w.shape[1:])
    for at in itertools.product(*map(range, x.shape[2:])):
        for k in itertools.product(*map(range, w.shape[2:])):
            place = tuple(at[i] * strides[i] + k[i] * dilations[i] for i in range(rank))
            out[(..., *place)] += np.einsum("ngc,gcm->ngm", parts[(..., *at)], kernels[(..., *k)])
    return out.reshape(x.shape[0], -1, *sizes)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("a", "cut", "more"),
    [
        ({}, (0, 0), (0, 0)),
        ({"strides": [2, 3], "output_padding": [1, 2], "pads": [1, 0, 0, 2]}, (1, 0), (1 - 0, 2 - 2)),
        ({"dilations": [2, 1], "strides": [1, 2], "pads": [2, 1, 2, 1]}, (2, 1), (-2, -1)),
        ({"pads": [3, 3, 0, 0]}, (3, 3), (0, 0)),  # more than the kernel reaches
        ({"strides": [2, 2], "auto_pad": "VALID"}, (0, 0), (0, 0)),
    ],
)
def test_a_transposed_convolution_adds_up_kernels(a: Any, cut: Any, more: Any, group: int) -> None:
    x, w, b = floats(2, 4, 4, 5), floats(4, 3, 3, 2), floats(3 * group)
    whole = scattered(x, w, {**a, "group": group})
    whole = np.pad(whole, [(0, 0), (0, 0), (0, max(more[0], 0)), (0, max(more[1], 0))])
    ends = [n + min(m, 0) for n, m in zip(whole.shape[2:], more, strict=True)]
    want = whole[:, :, cut[0] : ends[0], cut[1] : ends[1]] + b[:, None, None]
    (got,) = outputs(model_of("ConvTranspose", [x, w, b], group=group, **a), x, w, b)
    same(got, want, np.float32)


@pytest.mark.parametrize(("mode", "first"), [("SAME_UPPER", 0), ("SAME_LOWER", 1), ("NOTSET", 1)])
def test_the_size_of_a_transposed_convolution(mode: str, first: int) -> None:
    """What is too much is cut from both sides, the odd element first or last; what is missing is 0 at the end."""
    x, w = floats(1, 1, 4), floats(1, 1, 3)
    whole = scattered(x, w, {"strides": [2]})  # [9]
    a = {"strides": [2], "auto_pad": mode}
    (got,) = outputs(model_of("ConvTranspose", [x, w], output_shape=[8], **a), x, w)
    same(got, whole[..., first : first + 8], np.float32)
    if mode != "NOTSET":
        (got,) = outputs(model_of("ConvTranspose", [x, w], **a), x, w)
        same(got, whole[..., first : first + 8], np.float32)
    (got,) = outputs(model_of("ConvTranspose", [x, w], output_shape=[11], **a), x, w)
    same(got, np.pad(whole, [(0, 0), (0, 0), (0, 2)]), np.float32)


def test_a_deformed_convolution_without_offsets_is_a_convolution() -> None:
    for rank, group, parts in ((1, 1, 1), (2, 2, 1), (3, 1, 2)):
        x, w = floats(2, 4, *[5] * rank), floats(2, 4 // group, *[2] * rank)
        a = {"strides": [2] * rank, "pads": [1] * 2 * rank, "dilations": [2] * rank, "group": group}
        want = convolved(x, w, a)
        offset = np.zeros((2, parts * 2**rank * rank, *want.shape[2:]), np.float32)
        mask = np.full((2, parts * 2**rank, *want.shape[2:]), 2, np.float32)
        model = model_of("DeformConv", [x, w, offset, None, mask], offset_group=parts, **a)
        same(outputs(model, x, w, offset, mask)[0], 2 * want, np.float32)


def test_a_deformed_convolution() -> None:
    x, w, b = floats(1, 4, 4, 5), floats(2, 2, 2, 3), floats(2)
    offset, mask = floats(1, 2 * 2 * 6, 5, 3) * 2, floats(1, 2 * 6, 5, 3)
    a = {"pads": [1, 0, 1, 0], "group": 2, "offset_group": 2}
    model = model_of("DeformConv", [x, w, offset, b, mask], **a)
    check(model, x, w, offset, b, mask, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.complex64, bool])
def test_blocks_are_added_where_they_overlap(dtype: Any) -> None:
    """Back from columns of ones counts the windows that an element is in."""
    a = {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]}
    image, kernel = (5, 6), (3, 2)
    counts = [c for _, _, c in padding(image, kernel, a)]
    x = (RNG.integers(0, 3, (2, 3 * 6, int(np.prod(counts))))).astype(dtype)
    parts = x.reshape(2, 3, *kernel, *counts)
    want = np.zeros((2, 3, *image), dtype)
    for k in itertools.product(*map(range, kernel)):
        for o in itertools.product(*map(range, counts)):
            y, z = o[0] * 2 + k[0] - 1, o[1] + 2 * k[1]
            if 0 <= y < image[0] and 0 <= z < image[1]:
                want[:, :, y, z] += parts[:, :, k[0], k[1], o[0], o[1]]
    inputs = [x, np.array(image), np.array(kernel)]
    (got,) = outputs(model_of("Col2Im", inputs, constants=(1, 2), **a), x)
    assert np.array_equal(got, want) and got.dtype == want.dtype


def test_columns_of_infinite_numbers() -> None:
    x = np.zeros((1, 4, 4), np.float32)
    x[0, 0, 0] = np.inf
    inputs = [x, np.array([3, 3]), np.array([2, 2])]
    (got,) = outputs(model_of("Col2Im", inputs, constants=(1, 2)), x)
    assert np.isinf(got[0, 0, 0, 0]) and np.isfinite(np.asarray(got).reshape(-1)[1:]).all()


# -- pools -------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, derandomize=True)
@given(attributes(ceil=True), st.integers(0, 1))
def test_the_places_of_maxima(case: Any, storage_order: int) -> None:
    sizes, kernel, a = case
    x = RNG.integers(-3, 4, (2, 3, *sizes)).astype(np.float32)  # many equal ones: the first counts
    model = model_of("MaxPool", [x], 2, kernel_shape=list(kernel), storage_order=storage_order, **a)
    values, places = outputs(model, x)
    parts = windows(x, kernel, a, -np.inf, -np.inf)
    axes = tuple(range(-len(kernel), 0))
    same(values, parts.max(axes), np.float32, 0)
    order = "F" if storage_order else "C"
    own = np.arange(int(np.prod(sizes))).reshape(sizes, order=order)
    base = np.arange(6).reshape(2, 3, *[1] * len(sizes)) * own.size
    numbers = windows(np.broadcast_to(own, x.shape).astype(np.float64), kernel, a, np.inf, np.inf)
    best = np.where(parts == parts.max(axes, keepdims=True), numbers, np.inf)
    want = best.min(axes) if not storage_order else _first_in_order(parts, numbers, len(kernel))
    same(places, want + base, np.int64, 0)


def _first_in_order(parts: np.ndarray, numbers: np.ndarray, rank: int) -> np.ndarray:
    """Of equal maxima the one with the least number."""
    axes = tuple(range(-rank, 0))
    return np.where(parts == parts.max(axes, keepdims=True), numbers, np.inf).min(axes)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(attributes(ceil=True), st.integers(0, 1))
def test_means_of_windows(case: Any, count_include_pad: int) -> None:
    sizes, kernel, a = case
    x = floats(2, 3, *sizes)
    attrs = {**a, "count_include_pad": count_include_pad}
    (got,) = outputs(model_of("AveragePool", [x], kernel_shape=list(kernel), **attrs), x)
    parts = windows(x, kernel, a, 0 if count_include_pad else np.nan, np.nan)
    same(got, np.nanmean(parts, axis=tuple(range(-len(kernel), 0))), np.float32)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_the_places_of_nans(dtype: str) -> None:
    """The largest of a window with NaNs is the first of them, whatever is around it."""
    x = np.array([[[1, np.nan, 3, -np.nan, np.nan, -np.inf, -np.inf, 2, np.nan]]], dtype)
    model = model_of("MaxPool", [x], 2, kernel_shape=[2], strides=[1])
    values, places = outputs(model, x)
    np.testing.assert_array_equal(places, [[[1, 1, 3, 3, 4, 5, 7, 8]]])
    np.testing.assert_array_equal(np.asarray(values), np.take(x, np.asarray(places)))


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(
    "a", [{"pads": [1, 0, 1, 1]}, {"ceil_mode": 1, "strides": [2, 2], "dilations": [1, 2]}]
)
def test_norms_of_windows(p: int, a: Any) -> None:
    x = floats(1, 2, 6, 7)
    (got,) = outputs(model_of("LpPool", [x], kernel_shape=[3, 2], p=p, **a), x)
    parts = windows(x, (3, 2), a, 0, 0)
    same(got, (np.abs(parts) ** p).sum((-1, -2)) ** (1 / p), np.float32)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16, np.float64, ml_dtypes.bfloat16])
def test_the_types_of_maxima(dtype: Any) -> None:
    x = RNG.integers(0, 100, (1, 2, 4, 4, 3)).astype(dtype)
    (got,) = outputs(model_of("MaxPool", [x], kernel_shape=[2, 2, 2], pads=[1] * 6), x)
    parts = windows(x.astype(np.float64), (2, 2, 2), {"pads": [1] * 6}, -np.inf, -np.inf)
    same(got, parts.max((-1, -2, -3)), dtype, 0)


@pytest.mark.parametrize("opset", [7, 28])
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 2, 3, 4), (1, 1, 2, 3, 4)])
def test_pools_over_all_of_an_image(shape: tuple[int, ...], opset: int) -> None:
    x, axes = floats(*shape), tuple(range(2, len(shape)))
    for op, want in (
        ("GlobalAveragePool", x.mean(axes, keepdims=True)),
        ("GlobalMaxPool", x.max(axes, keepdims=True)),
        ("GlobalLpPool", np.sqrt((x * x).sum(axes, keepdims=True))),
    ):
        same(outputs(model_of(op, [x], opset=opset), x)[0], want, np.float32)


def test_sums_of_narrow_floats_do_not_stall() -> None:
    x = np.full((1, 1, 64, 64), 1.0, np.float16)
    assert float(outputs(model_of("GlobalAveragePool", [x]), x)[0][0, 0, 0, 0]) == 1
    (got,) = outputs(model_of("AveragePool", [x], kernel_shape=[64, 64]), x)
    assert float(got[0, 0, 0, 0]) == 1


def test_back_from_a_pool() -> None:
    x = RNG.permutation(2 * 3 * 6 * 4).reshape(2, 3, 6, 4).astype(np.float32)
    a = {"kernel_shape": [2, 2], "strides": [2, 2]}
    values, places = outputs(model_of("MaxPool", [x], 2, **a), x)
    values, places = np.asarray(values), np.asarray(places)
    (got,) = outputs(model_of("MaxUnpool", [values, places], **a), values, places)
    want = np.where(np.isin(np.arange(x.size), places.reshape(-1)).reshape(x.shape), x, 0)
    same(got, want, np.float32, 0)
    shape = np.array([2, 3, 7, 5])
    (got,) = outputs(model_of("MaxUnpool", [values, places, shape], constants=(2,), **a), values, places)
    same(got, np.pad(want, [(0, 0), (0, 0), (0, 1), (0, 1)]), np.float32, 0)


def test_maxima_of_regions() -> None:
    x = floats(2, 3, 8, 6)
    rois = np.array([[0, 0, 0, 5, 7], [1, 1, 2, 4, 4], [1, 5, 5, 2, 2], [0, 40, 40, 50, 50]], np.float32)
    model = model_of("MaxRoiPool", [x, rois], pooled_shape=[3, 2], spatial_scale=0.75)
    want = np.zeros((4, 3, 3, 2), np.float32)
    for r, (b, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (int(np.floor(c * 0.75 + 0.5)) for c in corners)
        h, w = max(y2 - y1 + 1, 1) / 3, max(x2 - x1 + 1, 1) / 2
        for i, j in itertools.product(range(3), range(2)):
            rows = slice(min(int(np.floor(i * h)) + y1, 8), min(int(np.ceil((i + 1) * h)) + y1, 8))
            columns = slice(min(int(np.floor(j * w)) + x1, 6), min(int(np.ceil((j + 1) * w)) + x1, 6))
            cell = x[int(b), :, rows, columns]
            if cell.size:
                want[r, :, i, j] = cell.max((1, 2))
    same(outputs(model, x, rois)[0], want, np.float32, 0)


# -- sizes that are open -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "a", "kernel"),
    [
        ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (3, 3)),
        ("Conv", {"auto_pad": "SAME_LOWER", "strides": [3, 3]}, (1, 2)),
        ("ConvTranspose", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (3, 3)),
        ("MaxPool", {"ceil_mode": 1, "strides": [2, 2], "kernel_shape": [3, 3]}, None),
        ("AveragePool", {"ceil_mode": 1, "strides": [2, 2], "pads": [1] * 4, "kernel_shape": [3, 3]}, None),
    ],
)
def test_open_sizes(op: str, a: Any, kernel: Any) -> None:
    x = floats(2, 3, 7, 9)
    inputs = [x] if kernel is None else [x, floats(3, 3, *kernel)]
    model = model_of(op, inputs, constants=(1,), **a)
    fn = OnnxFunction(read_model(model))
    n, h, w = export.symbolic_shape("n, h, w", constraints=["h >= 5", "w >= 5"])
    with jax.enable_x64(True):
        exported = export.export(jax.jit(fn))(jax.ShapeDtypeStruct((n, 3, h, w), np.float32))
        got = exported.call(x)
    same(got, np.asarray(outputs(model, x)[0]), np.float32)
