"""Images in other sizes, points of grids, regions, boxes, and transforms."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export
from onnx.reference import ReferenceEvaluator
from onnx_models import check, model_of, outputs
from tiering import sampled

from tilewright.frontends.onnx import OnnxFunction, read_model
from tilewright.frontends.onnx.errors import OnnxError

RNG = np.random.default_rng(0)
NOTHING = np.zeros(0, np.float32)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def eager(model: Any, *arrays: Any) -> np.ndarray:
    """What the function gives where nothing is traced, so that results have as many elements as there are."""
    fn = OnnxFunction(read_model(model))
    with jax.enable_x64(True), jax.disable_jit():
        return np.asarray(fn(*map(jax.numpy.asarray, arrays)))


def symbolic(model: Any, names: str, *arrays: np.ndarray) -> Any:
    """What the function gives that is traced with open sizes."""
    fn = OnnxFunction(read_model(model))
    scope = export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), a.dtype)
        for text, a in zip(names.split(";"), arrays, strict=True)
    ]
    with jax.enable_x64(True):
        return export.export(jax.jit(fn))(*specs).call(*arrays)


# -- other sizes -------------------------------------------------------------------------------------------

COORDINATES = ["half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


@st.composite
def resizes(draw: Any) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """An image, scales, and attributes."""
    x = floats(draw(st.integers(1, 2)), *(draw(st.integers(2, 7)) for _ in range(2)))
    scales = [1.0] + [draw(st.sampled_from([0.4, 0.5, 0.7, 1.0, 1.3, 2.0, 3.0])) for _ in range(2)]
    scales = [max(s, 1 / n + 1e-3) for s, n in zip(scales, x.shape, strict=True)]
    made: dict[str, Any] = {"coordinate_transformation_mode": draw(st.sampled_from(COORDINATES))}
    made["mode"] = draw(st.sampled_from(["linear", "cubic"]))
    made["antialias"] = draw(st.integers(0, 1))
    made["exclude_outside"] = draw(st.integers(0, 1)) if made["mode"] == "cubic" else 0
    made["cubic_coeff_a"] = draw(st.sampled_from([-0.5, -0.75]))
    return x, np.array(scales, np.float32), made


@settings(max_examples=40, deadline=None, derandomize=True)
@given(resizes())
def test_a_resize_by_scales(case: Any) -> None:
    x, scales, a = case
    inputs = [x, None, scales]
    model = model_of("Resize", inputs, constants=(2,), **a)
    want = ReferenceEvaluator(model).run(None, {"x0": x})[0]
    np.testing.assert_allclose(outputs(model, x)[0], want, 1e-4, 1e-4)


def place(kind: str, at: np.ndarray, n: int, to: int, scale: float) -> np.ndarray:
    """Where elements of the result are, as ONNX says it, in f64."""
    half = (at + 0.5) / scale - 0.5
    if kind == "half_pixel_symmetric":
        return half + n / 2 * (1 - to / (n * scale))
    if kind == "align_corners":
        return at * (n - 1) / (n * scale - 1) if n * scale != 1 else 0 * at
    return half if kind == "half_pixel" else at / scale


@sampled(2)
@pytest.mark.parametrize("kind", COORDINATES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("n", [2, 5, 7])
def test_the_nearest_elements(kind: str, rounding: str, n: int) -> None:
    """They are those of the evaluator, but where a place is no further from the border between two elements than f32
    is exact: a scale of 0.7 is one of 0.69999999, and the element of 0.7 is meant."""
    x = np.arange(n, dtype=np.float32)
    for number in (0.5, 0.7, 1.3, 2.0, 3.0, 0.4):
        scale = np.float32(max(number, 1 / n + 1e-3))
        a = {"coordinate_transformation_mode": kind, "nearest_mode": rounding}
        model = model_of("Resize", [x, None, np.array([scale])], constants=(2,), **a)
        want, (got,) = ReferenceEvaluator(model).run(None, {"x0": x})[0], outputs(model, x)
        assert got.shape == want.shape
        places, rounds = (
            place(kind, np.arange(len(want)), n, len(want), float(scale)),
            rounding[:5] == "round",
        )
        # a place that misses a whole number by an ulp is one where the evaluator finds the elements around it,
        # and is none where it finds their shares: it gives the element before
        whole = np.abs(places - np.round(places)) < 1e-6
        want = np.where(whole & rounds, np.clip(np.round(places), 0, n - 1), want)
        border = places - (0.5 if rounds else 0)
        tied = np.abs(border - np.round(border)) < 1e-6
        assert np.array_equal(np.where(tied, 0, got), np.where(tied, 0, want))
        assert np.all(np.abs(np.asarray(got) - want) <= tied)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_a_resize_to_sizes(mode: str, policy: str, antialias: int) -> None:
    x, sizes = floats(1, 2, 5, 7), np.array([3, 10])
    if mode == "nearest" and antialias:
        return
    a = {"axes": [3, 2], "keep_aspect_ratio_policy": policy, "mode": mode, "antialias": antialias}
    check(model_of("Resize", [x, None, None, sizes], constants=(3,), **a), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_the_types_of_a_resize(dtype: Any, mode: str) -> None:
    x = RNG.integers(0, 100, (1, 1, 4, 5)).astype(dtype)
    sizes = np.array([1, 1, 8, 3])
    model = model_of("Resize", [x, None, None, sizes], constants=(3,), mode=mode)
    check(model, x, rtol=1e-2, atol=1e-2)


def test_a_region_in_another_size() -> None:
    x, sizes = floats(1, 1, 6, 5), np.array([1, 1, 4, 8])
    roi = np.array([0, 0, 0.2, -0.3, 1, 1, 0.8, 1.2], np.float32)
    for mode, constants in itertools.product(["linear", "cubic"], [(1, 3), (3,)]):
        a = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5}
        model = model_of("Resize", [x, roi, None, sizes], constants=constants, **a)
        check(model, *([x] if 1 in constants else [x, roi]), rtol=1e-4, atol=1e-4)
    alone = np.array([1, 1, 1, 1])
    a = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    check(model_of("Resize", [x, roi, None, alone], constants=(1, 3), **a), x, rtol=1e-4, atol=1e-4)


def test_old_opsets() -> None:
    x, scales = floats(1, 1, 3, 4), np.array([1, 1, 2, 3], np.float32)
    want = x.repeat(2, 2).repeat(3, 3)
    for model in (
        model_of("Upsample", [x], opset=7, scales=[1.0, 1.0, 2.0, 3.0]),
        model_of("Upsample", [x, scales], opset=9, constants=(1,)),
        model_of("Resize", [x, scales], opset=10, constants=(1,)),
        model_of("Resize", [x, NOTHING, scales], opset=11, constants=(1, 2), nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric"),
        model_of("Resize", [x, NOTHING, NOTHING, np.array([1, 1, 6, 12])], opset=11, constants=(1, 2, 3)),
    ):  # fmt: skip
        assert np.array_equal(outputs(model, x)[0], want)
    line = np.arange(4, dtype=np.float32).reshape(1, 4)
    model = model_of("Upsample", [line], opset=7, scales=[1.0, 2.0], mode="linear")
    assert np.allclose(outputs(model, line)[0], [[0, 0.5, 1, 1.5, 2, 2.5, 3, 3]])
    down = np.array([1, 0.6], np.float32)
    model = model_of("Resize", [line, down], opset=10, constants=(1,))
    assert np.array_equal(outputs(model, line)[0], [[0, 2]])  # rounded up, as long as there was no attribute
    model = model_of("Resize", [line, NOTHING, np.array([1, 2], np.float32)], opset=11, constants=(1, 2),
                     coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor")  # fmt: skip
    assert np.array_equal(outputs(model, line)[0], [[0, 0, 1, 1, 2, 2, 3, 3]])
    alone = np.array([1, 1])
    model = model_of("Resize", [line, None, None, alone], constants=(3,), mode="cubic",
                     coordinate_transformation_mode="pytorch_half_pixel")  # fmt: skip
    assert np.array_equal(outputs(model, line)[0], [[0]])


def test_a_scale_that_f32_does_not_have() -> None:
    """A third is not one in f32: no element is missed for it."""
    x = np.arange(9, dtype=np.float32)
    a = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    model = model_of("Resize", [x, None, np.array([1 / 3], np.float32)], constants=(2,), **a)
    assert np.array_equal(outputs(model, x)[0], [0, 3, 6])


def test_a_whole_scale_needs_no_gather() -> None:
    x, scales = floats(1, 2, 4, 4), np.array([1, 1, 2, 2], np.float32)
    for factors in (scales, scales / 4, np.array([1, 1, 0.5, 0.5], np.float32)):
        model = model_of("Resize", [x, None, factors], constants=(2,))
        assert "gather" not in str(jax.make_jaxpr(OnnxFunction(read_model(model)))(x))


@sampled(2)
@pytest.mark.parametrize("a", [{}, {"mode": "linear"}, {"mode": "cubic"}, {"mode": "linear", "antialias": 1}])
@pytest.mark.parametrize("scale", [2.0, 1.5, 0.5])
def test_open_sizes_of_a_resize(a: Any, scale: float) -> None:
    x = floats(2, 3, 4, 6)
    model = model_of("Resize", [x, None, np.array([1, 1, scale, scale], np.float32)], constants=(2,), **a)
    got = symbolic(model, "n, 3, h, w", x)
    np.testing.assert_allclose(got, outputs(model, x)[0], 1e-4, 1e-4)


def test_what_a_resize_refuses() -> None:
    x = floats(1, 4)
    model = model_of("Resize", [x, None, np.array([1], np.float32)], constants=(2,), axes=[0, 1])
    with pytest.raises(OnnxError, match="needs a scale for each dimension"):
        outputs(model, x)


# -- points of grids ---------------------------------------------------------------------------------------


@sampled(3)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_points_of_a_grid(mode: str, padding_mode: str, align_corners: int) -> None:
    a = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    for sizes, out in (((4, 5), (3, 2)), ((3,), (7,)), ((2, 3, 4), (2, 2, 1))):
        x, grid = floats(2, 2, *sizes), floats(2, *out, len(sizes)) * 2
        check(model_of("GridSample", [x, grid], **a), x, grid, rtol=1e-3, atol=1e-4)


def test_other_points_of_a_grid() -> None:
    x, grid = floats(1, 1, 4, 4), floats(1, 3, 3, 2)
    old = model_of("GridSample", [x, grid], opset=16, mode="bicubic")
    new = model_of("GridSample", [x, grid], opset=22, mode="cubic")
    assert np.array_equal(outputs(old, x, grid)[0], outputs(new, x, grid)[0])
    for dtype in (np.int64, np.uint8, bool):
        image = RNG.integers(0, 2, (1, 2, 4, 4)).astype(dtype)
        check(model_of("GridSample", [image, grid], mode="nearest"), image, grid)
    pairs = (x + 2j * x).astype(np.complex64)
    (got,), (real,) = (outputs(model_of("GridSample", [v, grid]), v, grid) for v in (pairs, x))
    np.testing.assert_allclose(got, np.asarray(real) * (1 + 2j), 1e-5, 1e-5)
    none = floats(0, 1, 4, 4), floats(0, 3, 3, 2)
    assert outputs(model_of("GridSample", none), *none)[0].shape == (0, 1, 3, 3)
    halves = x.astype(np.float16), grid.astype(np.float16)
    (got,) = outputs(model_of("GridSample", halves), *halves)
    assert got.dtype == np.float16
    got = symbolic(model_of("GridSample", [x, grid]), "n, c, h, w; n, p, q, 2", x, grid)
    np.testing.assert_allclose(got, outputs(model_of("GridSample", [x, grid]), x, grid)[0], 1e-5, 1e-5)


# -- regions -----------------------------------------------------------------------------------------------


@sampled(2)
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_aligned_regions(mode: str, ratio: int, batch: int, coordinates: str) -> None:
    x = floats(batch, 2, 9, 7)
    rois = np.array(
        [[0, 0, 6, 8], [1, 2, 5, 5], [3, 3, 3, 3], [-4, -5, 15, 20], [30, 30, 40, 40]], np.float32
    )
    index = np.array([0, batch - 1, 0, batch - 1, 0])
    a = {"mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": coordinates}
    model = model_of("RoiAlign", [x, rois, index], output_height=3, output_width=2, spatial_scale=0.9, **a)
    check(model, x, rois, index, rtol=1e-3, atol=1e-4)


def test_regions_of_the_first_opset() -> None:
    x, rois, index = floats(1, 1, 6, 6), np.array([[1, 1, 4, 5]], np.float32), np.array([0])
    old = model_of("RoiAlign", [x, rois, index], opset=10, output_height=2, output_width=2)
    new = model_of("RoiAlign", [x, rois, index], output_height=2, output_width=2,
                   coordinate_transformation_mode="output_half_pixel")  # fmt: skip
    assert np.allclose(outputs(old, x, rois, index)[0], outputs(new, x, rois, index)[0])


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(1, 1, 9), (2, 3, 6), (1, 2, 1)]),
    st.integers(0, 1),
    st.booleans(),
)
def test_boxes_that_are_left(seed: int, dims: tuple[int, int, int], centred: int, known: bool) -> None:
    rng = np.random.default_rng(seed)
    batches, classes, n = dims
    boxes = rng.integers(0, 6, (batches, n, 4)).astype(np.float32)
    scores = rng.integers(0, 5, (batches, classes, n)).astype(np.float32) / 4  # many are equal
    rest = [np.array([3]), np.array([0.4], np.float32), np.array([0.2], np.float32)]
    inputs = [boxes, scores, *rest]
    model = model_of(
        "NonMaxSuppression", inputs, constants=(2, 3, 4) if known else (), center_point_box=centred
    )
    given = inputs[:2] if known else inputs
    names = [v.name for v in model.graph.input]
    (want,) = ReferenceEvaluator(model).run(None, dict(zip(names, given, strict=True)))
    got = eager(model, *given)
    assert got.dtype == np.int64 and np.array_equal(got, want)


def test_no_boxes_and_no_regions() -> None:
    three = [np.array([3]), np.array([0.4], np.float32)]
    for batches, n in ((1, 0), (0, 2), (2, 0)):
        given = [np.zeros((batches, n, 4), np.float32), np.zeros((batches, 2, n), np.float32)]
        model = model_of("NonMaxSuppression", [*given, *three], constants=(2, 3))
        assert eager(model, *given).shape == (0, 3)
        assert eager(model_of("NonMaxSuppression", [*given, *three]), *given, *three).shape == (0, 3)
    none = floats(1, 2, 4, 4), floats(0, 4), np.zeros(0, np.int64)
    for mode in ("avg", "max"):
        model = model_of("RoiAlign", none, mode=mode, output_height=3)
        assert outputs(model, *none)[0].shape == (0, 2, 3, 1)


def test_open_numbers_of_boxes() -> None:
    boxes = RNG.integers(0, 6, (1, 7, 4)).astype(np.float32)
    scores = RNG.random((1, 1, 7)).astype(np.float32)
    for most in (1 << 62, 3):
        rest = [np.array([most]), np.array([0.4], np.float32)]
        model = model_of("NonMaxSuppression", [boxes, scores, *rest], constants=(2, 3))
        fn = OnnxFunction(read_model(model))
        (n,) = export.symbolic_shape("n", constraints=["n >= 3"])
        specs = [jax.ShapeDtypeStruct(s, np.float32) for s in ((1, n, 4), (1, 1, n))]
        with jax.enable_x64(True):
            shape = jax.eval_shape(fn, *specs).shape
        assert str(shape[0]) == ("n" if most > 3 else "3")


def test_boxes_without_limits() -> None:
    boxes, scores = np.array([[[0, 0, 1, 1], [0, 0, 1, 1]]], np.float32), np.zeros((1, 1, 2), np.float32)
    assert eager(model_of("NonMaxSuppression", [boxes, scores]), boxes, scores).shape == (0, 3)
    far = np.array([1 << 62])
    model = model_of("NonMaxSuppression", [boxes, scores, far], constants=(2,))
    assert np.array_equal(eager(model, boxes, scores), [[0, 0, 0]])
    assert np.array_equal(eager(model_of("NonMaxSuppression", [boxes, scores, far]), boxes, scores, far),
                          [[0, 0, 0]])  # fmt: skip
    scores[:] = -np.inf  # which is a score like others where there is no threshold
    assert np.array_equal(eager(model, boxes, scores), [[0, 0, 0]])
    (got,) = outputs(
        model_of("NonMaxSuppression", [boxes, scores, np.array([1])], constants=(2,)), boxes, scores
    )
    assert got.shape == (1, 3)


# -- transforms --------------------------------------------------------------------------------------------


@sampled(2)
@pytest.mark.parametrize("n", [1, 2, 7, 12, 1500])
@pytest.mark.parametrize("more", [None, -1, 3])
@pytest.mark.parametrize("parts", [1, 2])
def test_transforms(n: int, more: int | None, parts: int) -> None:
    x = floats(2, n, parts)
    length = n if more is None else max(n + more, 1)
    whole = x[..., 0] if parts == 1 else x[..., 0] + 1j * x[..., 1]
    for inverse, half in itertools.product([0, 1], [0, 1]):
        given: Any = [x, None if more is None else np.array(length), np.array(1)]
        constants = (1, 2)
        if inverse and half:
            length = length if more is not None else 2 * (n - 1)
            if length < 1:
                continue
            want = np.fft.irfft(whole, length, 1)[..., None]
        else:
            made = (np.fft.ifft if inverse else np.fft.fft)(whole, length, 1)
            made = made[:, : length // 2 + 1] if half else made
            want = np.stack([made.real, made.imag], -1)
        model = model_of("DFT", given, constants=constants, inverse=inverse, onesided=half)
        (got,) = outputs(model, x)
        assert got.shape == want.shape and got.dtype == np.float32
        np.testing.assert_allclose(got, want, 1e-3, 1e-3)


def test_transforms_of_the_first_opset_and_other_types() -> None:
    x = floats(2, 3, 6, 1, dtype=np.float64)
    want = np.fft.fft(x[..., 0], axis=2)
    (got,) = outputs(model_of("DFT", [x], opset=17, axis=2), x)
    np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), 1e-12, 1e-12)
    (first,) = outputs(model_of("DFT", [x], opset=17), x)
    np.testing.assert_allclose(first[..., 0], np.fft.fft(x[..., 0], axis=1).real, 1e-12, 1e-12)
    halves = x.astype(np.float16)
    (got,) = outputs(model_of("DFT", [halves]), halves)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got[..., 0], want.real, 0.02, 0.02)
    one = x.astype(np.float32)
    got = symbolic(model_of("DFT", [one], onesided=1), "a, b, n, 1", one)
    np.testing.assert_allclose(got, outputs(model_of("DFT", [one], onesided=1), one)[0], 1e-4, 1e-4)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("window", [None, "known", "computed"])
@pytest.mark.parametrize("length", [5, 8, None])
def test_transforms_of_frames(onesided: int, parts: int, window: str | None, length: int | None) -> None:
    x, frame = floats(2, 30, parts), length or 30
    weights = None if window is None else np.hanning(frame).astype(np.float32)
    inputs: Any = [x, np.array(3), weights, None if length is None else np.array(length)]
    constants = (1, 3) if window == "computed" else (1, 2, 3)
    model = model_of("STFT", inputs, constants=constants, onesided=onesided)
    given = [x, weights] if window == "computed" else [x]
    check(model, *given, rtol=1e-3, atol=1e-4)


def test_transforms_of_long_frames() -> None:
    x = floats(1, 3000, 1)
    model = model_of("STFT", [x, np.array(500), None, np.array(2000)], constants=(1, 3))
    check(model, x, rtol=1e-3, atol=1e-2)


def mel_weights(bands: int, length: int, lowest: float, highest: float, **attributes: Any) -> onnx.ModelProto:
    edges = [np.array(lowest, np.float32), np.array(highest, np.float32)]
    given = [np.array(bands), np.array(length), np.array(8000), *edges]
    return model_of("MelWeightMatrix", given, constants=range(5), **attributes)


@pytest.mark.parametrize("dtype", [1, 11, 10])
def test_mel_weights(dtype: int) -> None:
    model = mel_weights(13, 64, 20, 3900, output_datatype=dtype)
    check(model, rtol=1e-3, atol=1e-3)


def test_mel_weights_of_bands_that_are_too_high() -> None:
    (got,) = outputs(mel_weights(4, 16, 0, 9000))
    assert got.shape == (9, 4) and np.isfinite(got).all() and float(got.max()) <= 1


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(op: str) -> None:
    for periodic in (0, 1):
        check(model_of(op, [np.array(9)], constants=(0,), periodic=periodic), rtol=1e-4, atol=1e-5)
