"""Classical models, and counts of n-grams."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import check, model_of, outputs
from tiering import sampled

from tilewright.frontends.onnx.errors import OnnxError

ML = "ai.onnx.ml"


def normal(size: Any) -> np.ndarray:
    """Numbers that are the same in each run."""
    return np.random.default_rng(3).normal(size=size)


X = normal((7, 5)).astype(np.float32)


def ml(op: str, *inputs: Any, outputs: int = 1, version: int = 1, **attributes: Any) -> onnx.ModelProto:
    return model_of(op, inputs, outputs, opset=21, domain=ML, domain_version=version, **attributes)


def same(model: onnx.ModelProto, want: Any, *arrays: Any, rtol: float = 1e-5) -> None:
    """Compares with values that are known."""
    onnx_models.same(model, want, *arrays, rtol=rtol, atol=rtol)


# -- features ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [[[0, 2]], [1], [[4], [4], [0]]])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((5,), np.float32), ((7, 5), np.int64), ((2, 3, 5), np.float64)]
)
def test_array_feature_extractor(places: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    check(ml("ArrayFeatureExtractor", x, np.array(places)), x, np.array(places))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_binarizer(dtype: Any) -> None:
    x = (X * 3).astype(dtype)
    check(ml("Binarizer", x, threshold=1.0), x)
    check(ml("Binarizer", x), x)


@pytest.mark.parametrize(("size", "dtype"), [(1, np.float32), (5, np.float64), (5, np.int64)])
def test_scaler(size: int, dtype: Any) -> None:
    x, offset, scale = (X * 3).astype(dtype), [0.5 * k for k in range(size)], [2.0 + k for k in range(size)]
    want = ((x - np.array(offset)) * np.array(scale)).astype(np.float32)
    same(ml("Scaler", x, offset=offset, scale=scale), want, x)


@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
@pytest.mark.parametrize("shape", [(7, 5), (1, 5), (5,)])
def test_normalizer(norm: str, shape: tuple[int, ...]) -> None:
    x = np.resize(X, shape)
    x = np.where(np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1)) == 6, 0, x).astype(np.float32)
    size = {"L1": abs(x).sum(-1), "L2": np.sqrt((x * x).sum(-1)), "MAX": x.max(-1)}[norm][..., None]
    same(ml("Normalizer", x, norm=norm), np.where(size == 0, x, x / np.where(size == 0, 1, size)), x)


@pytest.mark.parametrize("values", [[9.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
@pytest.mark.parametrize("replaced", [np.nan, 0.0])
def test_imputer(values: list[float], replaced: float) -> None:
    x = np.where(abs(X) < 0.4, replaced, X).astype(np.float32)
    check(ml("Imputer", x, imputed_value_floats=values, replaced_value_float=replaced), x)


def test_imputer_of_integers() -> None:
    x = np.array([[1, -1], [-1, 4]])
    check(ml("Imputer", x, imputed_value_int64s=[7, 8], replaced_value_int64=-1), x)


def test_feature_vectorizer() -> None:
    parts = [X, X[:, :1] * 2, X[:, :3] + 1]
    model = ml("FeatureVectorizer", *parts, inputdimensions=[5, 1, 3])
    same(model, np.concatenate(parts, 1), *parts)
    whole = [np.array([1, 2]), np.array([3])]
    same(
        ml("FeatureVectorizer", *whole, inputdimensions=[3, 1]), np.array([[1, 2, 0, 3]], np.float32), *whole
    )


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_one_hot_encoder(dtype: Any, shape: tuple[int, ...]) -> None:
    x = np.array([3, 1, 4, 1, 5, 9]).reshape(shape).astype(dtype)
    check(ml("OneHotEncoder", x, cats_int64s=[1, 4, 9, 7], zeros=1), x)


@pytest.mark.parametrize("many", [False, True])
def test_label_encoder(many: bool) -> None:
    keys = list(range(0, 900, 3)) if many else [4, 1, 9]
    values = [0.5 * k for k in keys]
    x = np.array([[4, 9, 1], [0, 8, 33]])
    check(ml("LabelEncoder", x, version=4, keys_int64s=keys, values_floats=values, default_float=-2.0), x)
    check(ml("LabelEncoder", x, version=2, keys_int64s=keys, values_int64s=keys[::-1]), x)


def test_label_encoder_of_floats() -> None:
    x = np.array([1.5, np.nan, 2.5, 0.0], np.float32)
    given = {"keys_floats": [np.nan, 2.5, 1.5, 2.5], "values_int64s": [7, 5, 3, 6]}
    same(ml("LabelEncoder", x, version=4, **given), np.array([3, 7, 6, -1]), x)


def test_label_encoder_of_tensors() -> None:
    def tensor(values: Any, dtype: Any) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(np.array(values, dtype))

    x = np.array([1, 2, 3], np.int16)
    given = {
        "keys_tensor": tensor([3, 1], np.int16),
        "values_tensor": tensor([0.25, 4], np.float64),
        "default_tensor": tensor([9], np.float64),
    }
    same(ml("LabelEncoder", x, version=4, **given), np.array([4, 9, 0.25]), x)


def test_text_is_refused() -> None:
    x = np.array([1, 2])
    with pytest.raises(OnnxError, match="its values_strings are text, which has no place on a device"):
        outputs(ml("LabelEncoder", x, version=4, keys_int64s=[1], values_strings=["a"]), x)
    with pytest.raises(OnnxError, match="its classlabels_strings are text"):
        outputs(
            ml("LinearClassifier", X, outputs=2, coefficients=[1.0] * 10, classlabels_strings=["a", "b"]), X
        )


# -- linear models and support vectors ---------------------------------------------------------------------

TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


@pytest.mark.parametrize(("targets", "dtype"), [(1, np.float32), (3, np.float64), (3, np.int64)])
def test_linear_regressor(targets: int, dtype: Any) -> None:
    w, b = normal((targets, 5)), normal(targets)
    given = {"targets": targets, "coefficients": w.reshape(-1).tolist(), "intercepts": b.tolist()}
    x = (X * 4).astype(dtype)
    same(ml("LinearRegressor", x, **given), (x @ w.T + b).astype(np.float32), x, rtol=1e-4)


@pytest.mark.parametrize("transform", [*TRANSFORMS, "PROBIT"])
@pytest.mark.parametrize(("rows", "labels"), [(3, [4, -1, 7]), (2, [0, 1]), (1, [5, 6]), (1, [3])])
def test_linear_classifier(transform: str, rows: int, labels: list[int]) -> None:
    scale = 0.02 if transform == "PROBIT" else 1  # it takes probabilities
    model = ml(
        "LinearClassifier",
        X,
        outputs=2,
        coefficients=(normal(rows * 5) * scale).tolist(),
        intercepts=[0.4] * rows,
        classlabels_ints=labels,
        post_transform=transform,
    )
    if transform == "PROBIT" and len(labels) > rows:
        return  # its scores are no probabilities
    check(model, X, rtol=1e-3, atol=1e-4)


KERNELS = {"LINEAR": [0.0] * 3, "POLY": [0.5, 1.0, 3.0], "RBF": [0.3, 0.0, 0.0], "SIGMOID": [0.2, 0.1, 0.0]}


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    given = {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "coefficients": normal(4).tolist(),
        "support_vectors": normal(20).tolist(),
        "n_supports": 4,
        "rho": [0.3],
        "one_class": one_class,
    }
    check(ml("SVMRegressor", X, **given), X, rtol=1e-3, atol=1e-4)


def test_svm_regressor_that_is_linear() -> None:
    check(ml("SVMRegressor", X, coefficients=normal(5).tolist(), rho=[0.3]), X, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize(
    ("counts", "transform"), [*(([3, 2], t) for t in TRANSFORMS), ([3, 2, 4], "SOFTMAX")]
)
def test_svm_classifier(kernel: str, counts: list[int], transform: str) -> None:
    total, classes = sum(counts), len(counts)
    given = {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "coefficients": normal(total * (classes - 1)).tolist(),
        "support_vectors": normal(total * 5).tolist(),
        "vectors_per_class": counts,
        "rho": normal(classes * (classes - 1) // 2).tolist(),
        "classlabels_ints": [4, 2, 9][:classes],
        "post_transform": transform,
    }
    check(ml("SVMClassifier", X, outputs=2, **given), X, rtol=1e-3, atol=1e-3)


# -- trees -------------------------------------------------------------------------------------------------


def grown(
    depth: int, trees: int, modes: list[str], votes: str, targets: int, seed: int = 0
) -> dict[str, Any]:
    """Attributes of an ensemble of random trees."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {
        f"nodes_{k}": []
        for k in "treeids nodeids featureids modes values truenodeids falsenodeids missing_value_tracks_true".split()
    }
    made |= {f"{votes}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree: int, level: int) -> int:
        number = made["nodes_treeids"].count(tree)
        leaf = level == depth or (level > 0 and rng.random() < 0.3)
        row = {
            "treeids": tree,
            "nodeids": number,
            "featureids": int(rng.integers(5)),
            "modes": "LEAF" if leaf else str(rng.choice(modes)),
            "values": float(np.float32(rng.normal() * 0.7)),
            "truenodeids": 0,
            "falsenodeids": 0,
            "missing_value_tracks_true": int(rng.integers(2)),
        }
        for k, v in row.items():
            made[f"nodes_{k}"].append(v)
        place = len(made["nodes_treeids"]) - 1
        if leaf:
            for target in range(targets):
                row = {"treeids": tree, "nodeids": number, "ids": target, "weights": float(rng.normal())}
                for k, v in row.items():
                    made[f"{votes}_{k}"].append(v)
            return number
        made["nodes_truenodeids"][place] = grow(tree, level + 1)
        made["nodes_falsenodeids"][place] = grow(tree, level + 1)
        return number

    for tree in range(trees):
        grow(tree, 0)
    return made


def summed(model: dict[str, Any], votes: str, x: np.ndarray, targets: int) -> list[list[list[float]]]:
    """For each example and target the weights that its leaves vote with."""
    compare = {
        "LEQ": "__le__",
        "LT": "__lt__",
        "GTE": "__ge__",
        "GT": "__gt__",
        "EQ": "__eq__",
        "NEQ": "__ne__",
    }
    names = list(zip(model["nodes_treeids"], model["nodes_nodeids"], strict=True))
    made = []
    for row in x:
        found: list[list[float]] = [[] for _ in range(targets)]
        for tree in sorted(set(model["nodes_treeids"])):
            i = names.index((tree, 0))
            while model["nodes_modes"][i] != "LEAF":
                value, split = row[model["nodes_featureids"][i]], model["nodes_values"][i]
                holds = getattr(float(value), compare[model["nodes_modes"][i][7:]])(split)
                if np.isnan(value):
                    holds = model["nodes_missing_value_tracks_true"][i]
                i = names.index((tree, model["nodes_truenodeids" if holds else "nodes_falsenodeids"][i]))
            for t, n, target, w in zip(
                *(model[f"{votes}_{k}"] for k in ("treeids", "nodeids", "ids", "weights")), strict=True
            ):
                if (t, n) == names[i]:
                    found[target].append(w)
        made.append(found)
    return made


BRANCHES = [f"BRANCH_{m}" for m in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]
AGGREGATES: dict[str, Any] = {"SUM": np.sum, "MIN": np.min, "MAX": np.max}
HOLES = np.where(abs(X) < 0.2, np.nan, X).astype(np.float32)


@pytest.mark.parametrize(("depth", "modes"), [(0, BRANCHES), (1, BRANCHES[:1]), (3, BRANCHES), (7, BRANCHES)])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_ensemble_regressor(depth: int, modes: list[str], how: str) -> None:
    model = grown(depth, 3, modes, "target", 2, depth)
    found = np.array(
        [[AGGREGATES.get(how, np.sum)(t) for t in row] for row in summed(model, "target", HOLES, 2)]
    )
    want = (found / 3 if how == "AVERAGE" else found) + [0.5, -1.0]
    given = {"n_targets": 2, "aggregate_function": how, "base_values": [0.5, -1.0], **model}
    same(ml("TreeEnsembleRegressor", HOLES, version=3, **given), want.astype(np.float32), HOLES, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_tree_ensemble_regressor_of_other_types(dtype: Any) -> None:
    model, x = grown(4, 2, BRANCHES[:2], "target", 1), (X * 3).astype(dtype)
    want = np.array(summed(model, "target", x, 1)).sum(-1).astype(np.float32)
    same(ml("TreeEnsembleRegressor", x, version=3, n_targets=1, **model), want, x, rtol=1e-4)


@sampled(2)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_tree_ensemble_classifier(transform: str, classes: int) -> None:
    labels = [[1], [5, 6], [2, 9, 4]][classes - 1]
    model = grown(4, 3, BRANCHES[:1], "class", classes)
    found = np.array(summed(model, "class", X, classes)).sum(-1)
    if classes == 1:
        first = 1 - found if transform == "NONE" else -found
        found = np.concatenate([first, found], 1)
    powers = np.exp(found)
    scores = {"LOGISTIC": 1 / (1 + np.exp(-found)), "NONE": found}.get(
        transform, powers / powers.sum(1, keepdims=True)
    )
    names = np.array([0, 1] if classes == 1 else labels)
    want = names[scores.argmax(1)], scores.astype(np.float32)
    given = {"classlabels_int64s": labels, "post_transform": transform, **model}
    same(ml("TreeEnsembleClassifier", X, outputs=2, version=3, **given), want, X, rtol=1e-4)


def test_tree_ensemble_classifier_of_two_classes_with_votes_for_one() -> None:
    model = grown(4, 3, BRANCHES[:1], "class", 1)
    given = {"classlabels_int64s": [3, 8], "post_transform": "LOGISTIC", **model}
    check(ml("TreeEnsembleClassifier", X, outputs=2, version=3, **given), X, rtol=1e-4)


@pytest.mark.parametrize("how", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_tree_ensemble(how: int, dtype: Any) -> None:
    def tensor(values: Any, kind: Any = dtype) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(np.array(values, kind))

    given = {
        "n_targets": 2,
        "aggregate_function": how,
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 1, 4],
        "nodes_modes": tensor([0, 6, 3], np.uint8),
        "nodes_splits": tensor([0.5, 0, -0.25]),
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 4],
        "nodes_falseleafs": [1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 0],
        "leaf_weights": tensor([1.5, -2, 3, 0.25, 8]),
        "membership_values": tensor([1, -2, 4, np.nan]),
    }
    x = np.round(X * 2).astype(dtype)
    check(ml("TreeEnsemble", x, version=5, **given), x)


@pytest.mark.parametrize("transform", [1, 2])
def test_tree_ensemble_transforms(transform: int) -> None:
    def tensor(values: Any, kind: Any = np.float32) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(np.array(values, kind))

    given = {
        "n_targets": 2,
        "post_transform": transform,
        "tree_roots": [0],
        "nodes_featureids": [1],
        "nodes_modes": tensor([1], np.uint8),
        "nodes_splits": tensor([0.1]),
        "nodes_truenodeids": [0],
        "nodes_trueleafs": [1],
        "nodes_falsenodeids": [1],
        "nodes_falseleafs": [1],
        "leaf_targetids": [0, 1],
        "leaf_weights": tensor([1.5, -2]),
    }
    scores = np.where(X[:, 1:2] < 0.1, [[1.5, 0]], [[0, -2]])
    powers = np.exp(scores)
    want = powers / powers.sum(1, keepdims=True) if transform == 1 else 1 / (1 + 1 / powers)
    same(ml("TreeEnsemble", X, version=5, **given), want.astype(np.float32), X)


# -- n-grams -----------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1 << 16),
    shape=st.sampled_from([(1,), (9,), (2, 6), (3, 1), (1, 12)]),
    skips=st.integers(0, 3),
    lengths=st.sampled_from([(1, 1), (1, 2), (2, 2), (1, 3), (2, 3)]),
    mode=st.sampled_from(["TF", "IDF", "TFIDF"]),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_tfidf(
    seed: int, shape: tuple[int, ...], skips: int, lengths: tuple[int, int], mode: str, dtype: Any
) -> None:
    rng = np.random.default_rng(seed)
    singles = rng.permutation(4)[:3].tolist()
    pairs = list(itertools.product(range(4), repeat=2))
    triples = list(itertools.product(range(3), repeat=3))
    pairs = [pairs[i] for i in rng.permutation(len(pairs))[:5]]
    triples = [triples[i] for i in rng.permutation(len(triples))[:4]]
    pool = [*singles, *itertools.chain(*pairs), *itertools.chain(*triples)]
    x = rng.integers(0, 4, shape).astype(dtype)
    model = model_of(
        "TfIdfVectorizer",
        [x],
        mode=mode,
        min_gram_length=lengths[0],
        max_gram_length=lengths[1],
        max_skip_count=skips,
        ngram_counts=[0, 3, 13],
        ngram_indexes=rng.permutation(12).tolist(),
        weights=rng.random(12).tolist(),
        pool_int64s=[int(n) for n in pool],
        opset=21,
    )
    check(model, x)


def test_tfidf_of_text_is_refused() -> None:
    x = np.array([1, 2])
    given = {
        "min_gram_length": 1,
        "max_gram_length": 1,
        "max_skip_count": 0,
        "ngram_counts": [0],
        "mode": "TF",
    }
    with pytest.raises(OnnxError, match="its pool_strings are text"):
        outputs(model_of("TfIdfVectorizer", [x], opset=21, pool_strings=["a"], ngram_indexes=[0], **given), x)
