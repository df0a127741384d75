"""Losses, drawn numbers and steps of optimisers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from onnx_models import check, model_of, outputs, same
from tiering import sampled

from tilewright.frontends.onnx.errors import OnnxError

TRAINING = "ai.onnx.preview.training"

X = np.random.default_rng(3).normal(size=(7, 5)).astype(np.float32)


# -- losses ------------------------------------------------------------------------------------------------


@sampled(2)
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(("opset", "rest"), [(12, ()), (22, (2, 1))])
@pytest.mark.parametrize("ignored", [None, -5])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(
    op: str, opset: int, reduction: str, rest: tuple[int, ...], ignored: int | None, weighted: bool
) -> None:
    rng = np.random.default_rng(len(rest))
    x = rng.normal(size=(4, 6, *rest)).astype(np.float32)
    labels = rng.integers(0, 6, (4, *rest)).astype(np.int32 if opset == 12 else np.int64)
    if ignored is not None:
        labels.reshape(-1)[1] = ignored
    inputs = [x, labels, rng.random(6).astype(np.float32)] if weighted else [x, labels]
    attributes = (
        {"reduction": reduction} if ignored is None else {"reduction": reduction, "ignore_index": ignored}
    )
    model = model_of(op, inputs, 2 if op[0] == "S" else 1, opset=opset, **attributes)
    check(model, *inputs, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_losses_of_other_types(dtype: Any) -> None:
    x, labels = X.astype(dtype), np.arange(7) % 5
    (got,) = outputs(model_of("SoftmaxCrossEntropyLoss", [x, labels], opset=21), x, labels)
    logs = X - np.log(np.exp(X.astype(np.float64)).sum(1, keepdims=True))
    assert got.dtype == dtype
    np.testing.assert_allclose(float(got), -logs[np.arange(7), labels].mean(), rtol=2e-2)


# -- drawn numbers -----------------------------------------------------------------------------------------

FLOATS = [(np.float16, False), (ml_dtypes.bfloat16, True), (np.float32, True), (np.float64, False)]


def drawn(op: str, like: Any, dtype: Any, **attributes: Any) -> np.ndarray:
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [] if like is None else [like]
    (got,) = outputs(model_of(op, inputs, opset=22, dtype=number, **attributes), *inputs)
    assert got.dtype == dtype
    return np.asarray(got).astype(np.float64)


@pytest.mark.parametrize(("dtype", "like"), FLOATS)
def test_uniform(dtype: Any, like: bool) -> None:
    given = {"low": -1.0, "high": 3.0}
    if like:
        got = drawn("RandomUniformLike", np.zeros((60, 70), np.int32), dtype, **given)
    else:
        got = drawn("RandomUniform", None, dtype, shape=[60, 70], **given)
    assert got.shape == (60, 70)
    assert got.min() >= -1 and got.max() <= 3
    assert abs(got.mean() - 1) < 0.1 and abs(got.std() - 4 / 12**0.5) < 0.1


@pytest.mark.parametrize(("dtype", "like"), FLOATS)
def test_normal(dtype: Any, like: bool) -> None:
    given = {"mean": 2.0, "scale": 0.5}
    if like:
        got = drawn("RandomNormalLike", np.zeros((60, 70), np.float32), dtype, **given)
    else:
        got = drawn("RandomNormal", None, dtype, shape=[60, 70], **given)
    assert got.shape == (60, 70)
    assert abs(got.mean() - 2) < 0.05 and abs(got.std() - 0.5) < 0.05


def test_seeds() -> None:
    def draw(**attributes: Any) -> np.ndarray:
        return drawn("RandomNormal", None, np.float32, shape=[8], **attributes)

    np.testing.assert_array_equal(draw(seed=2.5), draw(seed=2.5))
    assert (draw(seed=2.5) != draw(seed=2.0)).all()
    nodes = [onnx.helper.make_node("RandomNormal", [], [n], shape=[8]) for n in "ab"]
    results = [onnx.helper.make_tensor_value_info(n, TensorProto.FLOAT, [8]) for n in "ab"]
    graph = onnx.helper.make_graph(nodes, "two", [], results)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    a, b = outputs(made)
    assert (np.asarray(a) != np.asarray(b)).all()


def test_numbers_like_integers_are_refused() -> None:
    x = np.zeros(3, np.int32)
    with pytest.raises(OnnxError, match="the numbers it draws are floats, and it is to give int32"):
        outputs(model_of("RandomNormalLike", [x], opset=22, dtype=int(TensorProto.INT32)), x)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_, np.float16])
def test_bernoulli(dtype: Any) -> None:
    chance = np.resize(np.array([0, 0.25, 1], np.float32), (3000, 3))
    got = drawn("Bernoulli", chance, dtype, seed=1.0)
    assert set(np.unique(got)) == {0, 1}
    np.testing.assert_allclose(got.mean(0), [0, 0.25, 1], atol=0.03)


@pytest.mark.parametrize(("kind", "dtype"), [(np.float16, np.int32), (np.float64, np.int64)])
def test_multinomial(kind: Any, dtype: Any) -> None:
    chances = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-7]])
    got = drawn("Multinomial", np.log(chances).astype(kind), dtype, sample_size=4000)
    assert got.shape == (2, 4000)
    np.testing.assert_allclose([[(row == k).mean() for k in range(3)] for row in got], chances, atol=0.03)


# -- steps of optimisers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "kinds", "attributes"),
    [
        ("Momentum", 3, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.5, "mode": "standard"}),
        ("Momentum", 3, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.5, "mode": "nesterov"}),
        ("Adagrad", 3, {"norm_coefficient": 0.1, "decay_factor": 0.2, "epsilon": 1e-5}),
        ("Adam", 4, {"norm_coefficient": 0.1, "norm_coefficient_post": 0.02, "epsilon": 1e-5}),
        ("Adam", 4, {"alpha": 0.7, "beta": 0.99}),
    ],
)
@pytest.mark.parametrize("count", [0, 40])
@pytest.mark.parametrize(("tensors", "dtype"), [(1, np.float32), (2, np.float64)])
def test_optimisers(
    op: str, kinds: int, attributes: dict[str, Any], count: int, tensors: int, dtype: Any
) -> None:
    rng = np.random.default_rng(count)
    arrays = [(rng.random((2, 3 + i)) + 0.1).astype(dtype) for _ in range(kinds) for i in range(tensors)]
    given = [np.asarray(0.1, dtype), np.asarray(count), *arrays]
    model = model_of(op, given, tensors * (kinds - 1), opset=21, domain=TRAINING, **attributes)
    names = [v.name for v in model.graph.input]
    if tensors == 1:
        want = ReferenceEvaluator(model).run(None, dict(zip(names, given, strict=True)))
    else:  # each of them by itself
        alone = [[given[0], given[1], *arrays[i::tensors]] for i in range(tensors)]
        models = [model_of(op, a, kinds - 1, opset=21, domain=TRAINING, **attributes) for a in alone]
        each = [
            ReferenceEvaluator(m).run(None, dict(zip([v.name for v in m.graph.input], a, strict=True)))
            for m, a in zip(models, alone, strict=True)
        ]
        want = [v for kind in zip(*each, strict=True) for v in kind]
    same(model, tuple(np.asarray(w).astype(dtype) for w in want), *given, atol=1e-5)


def test_gradient_is_refused() -> None:
    x = np.ones(3, np.float32)
    model = model_of("Gradient", [x], opset=21, domain=TRAINING, xs=["x0"], y="x0")
    with pytest.raises(OnnxError, match="take that of the whole function instead"):
        outputs(model, x)
