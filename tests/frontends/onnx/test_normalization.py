"""Normalisation and dropout: older opsets, odd shapes, other dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx_cases import Cases, near
from onnx_models import model_of, outputs

from tilewright.frontends.onnx import OnnxModel

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 1, 7)).astype("f4")
IMAGE = RNG.normal(size=(2, 6, 5, 3)).astype("f4")
BF16 = ml_dtypes.bfloat16


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
            model = model_of("GroupNormalization", [x, p, q], opset=opset, num_groups=groups)
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
            model.graph.output[0].ClearField("type")  # inferred as that of x; ONNX's text says that of the scale
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
