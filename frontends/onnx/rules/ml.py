"""Classical models on numbers (the domain ai.onnx.ml), and counts of n-grams. Text has no place on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import dtype_of, is_float

ML = "ai.onnx.ml"


def as_floats(x: Any) -> Any:
    """What models compute with: f64 for that, f32 for all else."""
    return x.astype(np.float64 if x.dtype == np.float64 else np.float32)


def no_text(node: Node, *names: str) -> None:
    """Raises Unsupported where an attribute is text."""
    found = next((n for n in names if node.get(n)), None)
    if found is not None:
        raise node.unsupported(f"its {found} are text, which has no place on a device")


def transformed(node: Node, scores: Any, kind: str) -> Any:
    """Scores after a transform along the last axis."""
    import jax
    import jax.numpy as jnp

    if kind == "NONE":
        return scores
    if kind == "SOFTMAX":
        return jax.nn.softmax(scores, axis=-1)
    if kind == "LOGISTIC":
        return jax.nn.sigmoid(scores)
    if kind == "PROBIT":
        return _probit(scores)
    if kind != "SOFTMAX_ZERO":
        raise node.unsupported(f"{kind} is no transform of scores")
    most = scores.max(axis=-1, keepdims=True)
    near = jnp.abs(scores) <= 1e-7  # scores of zero stay zero
    powers = jnp.where(near, scores * jnp.exp(-most), jnp.exp(scores - most))
    total = powers.sum(axis=-1, keepdims=True)
    return jnp.where(total == 0, 0.5, powers / jnp.where(total == 0, 1, total)).astype(scores.dtype)


def _probit(x: Any) -> Any:
    """Winitzki's approximation of sqrt(2) erfinv(2 x - 1), which other implementations compute."""
    import jax.numpy as jnp

    y = 2 * x - 1
    inside = (1 - y) * (1 + y)
    log = jnp.log(jnp.where(inside == 0, 1, inside))
    half = 2 / (np.pi * 0.147) + 0.5 * log
    root = jnp.sqrt(-half + jnp.sqrt(half * half - log / 0.147))
    return jnp.where(inside == 0, 0, 1.41421356 * jnp.where(y < 0, -root, root)).astype(x.dtype)


# -- features ----------------------------------------------------------------------------------------------


@rule("ArrayFeatureExtractor", domain=ML)
def _array_feature_extractor(node: Node, x: Any, places: Any) -> Any:
    import jax.numpy as jnp

    found = jnp.take(x, places.reshape(-1), axis=-1)
    return found[None] if x.ndim == 1 else found


@rule("Binarizer", domain=ML)
def _binarizer(node: Node, x: Any) -> Any:
    return (x > node.get("threshold", 0.0)).astype(x.dtype)


@rule("Scaler", domain=ML)
def _scaler(node: Node, x: Any) -> Any:
    x = as_floats(x)
    offset, scale = (np.asarray(node.get(n, [d]), x.dtype) for n, d in (("offset", 0.0), ("scale", 1.0)))
    return ((x - offset) * scale).astype(np.float32)


@rule("Normalizer", domain=ML)
def _normalizer(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    x, norm = as_floats(x), node.get("norm", "MAX")
    if norm == "MAX":
        size = x.max(axis=-1, keepdims=True)
    elif norm == "L1":
        size = jnp.abs(x).sum(axis=-1, keepdims=True)
    else:
        size = jnp.sqrt((x * x).sum(axis=-1, keepdims=True))
    return jnp.where(size == 0, x, x / jnp.where(size == 0, 1, size)).astype(np.float32)


@rule("Imputer", domain=ML)
def _imputer(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    if is_float(x):
        values, replaced = node.get("imputed_value_floats"), node.get("replaced_value_float", 0.0)
    else:
        values, replaced = node.get("imputed_value_int64s"), node.get("replaced_value_int64", 0)
    if not values:
        raise node.unsupported(f"it has no values for elements of {dtype_of(x)}")
    wrong = jnp.isnan(x) if np.isnan(replaced) else x == np.asarray(replaced, x.dtype)
    return jnp.where(wrong, np.asarray(values, x.dtype), x)


@rule("FeatureVectorizer", domain=ML)
def _feature_vectorizer(node: Node, *parts: Any) -> Any:
    import jax.numpy as jnp

    made = []
    for x, n in zip(parts, node.get("inputdimensions", [None] * len(parts)), strict=True):
        x = (x[None] if x.ndim == 1 else x.reshape(x.shape[0], -1)).astype(np.float32)
        if n is not None:
            x = x[:, :n]
            x = jnp.pad(x, ((0, 0), (0, n - x.shape[1])))
        made.append(x)
    return jnp.concatenate(made, axis=1)


@rule("OneHotEncoder", domain=ML)
def _one_hot_encoder(node: Node, x: Any) -> Any:
    no_text(node, "cats_strings")
    categories = np.asarray(node.get("cats_int64s"), np.int64)
    return (x.astype(np.int64)[..., None] == categories).astype(np.float32)


@rule("LabelEncoder", domain=ML)
def _label_encoder(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    no_text(node, "keys_strings", "values_strings", "classes_strings")
    found = {}
    for side in ("keys", "values"):
        kinds = {"tensor": None, "int64s": np.int64, "floats": np.float32}
        kind = next((k for k in kinds if f"{side}_{k}" in node.attributes), None)
        if kind is None:
            raise node.unsupported(f"it has no {side}")
        found[side] = np.asarray(node.get(f"{side}_{kind}"), kinds[kind]).reshape(-1)
        if found[side].dtype.kind in "OUS":
            raise node.unsupported(f"its {side} are text, which has no place on a device")
    keys, values = found["keys"], found["values"]
    default = node.get("default_int64", -1) if values.dtype.kind in "iu" else node.get("default_float", -0.0)
    if "values_tensor" in node.attributes:
        default = np.asarray(node.get("default_tensor", default)).reshape(-1)[0]
    _, last = np.unique(keys[::-1], return_index=True)  # of keys that are repeated the last counts
    order = len(keys) - 1 - last
    keys, values = keys[order], np.append(values[order], np.asarray(default, values.dtype))
    few = len(keys) <= 256
    place = jnp.searchsorted(keys, x.astype(keys.dtype), method="compare_all" if few else "scan")
    key = jnp.asarray(keys)[jnp.minimum(place, len(keys) - 1)]
    same = key == x
    if keys.dtype.kind == "f" and np.isnan(keys[-1:]).any():
        same = same | (jnp.isnan(key) & jnp.isnan(x))
    return jnp.asarray(values)[jnp.where(same, place, len(keys))]


# -- linear models and support vectors ---------------------------------------------------------------------


@rule("LinearRegressor", domain=ML)
def _linear_regressor(node: Node, x: Any) -> Any:
    scores = _linear(node, as_floats(x), node.get("targets", 1))
    return transformed(node, scores, node.get("post_transform", "NONE")).astype(np.float32)


def _linear(node: Node, x: Any, count: int) -> Any:
    coefficients = np.asarray(node.get("coefficients"), x.dtype).reshape(count, -1)
    scores = x @ coefficients.T
    intercepts = node.get("intercepts")
    return scores + np.asarray(intercepts, x.dtype) if intercepts else scores


@rule("LinearClassifier", domain=ML)
def _linear_classifier(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    x = as_floats(x[None] if x.ndim == 1 else x)
    count = len(node.get("coefficients")) // x.shape[1]
    scores, kind = _linear(node, x, count), node.get("post_transform", "NONE")
    if count == 1 and len(labels) == 2:
        scores = jnp.concatenate([-scores, scores], axis=1)
    scores = transformed(node, scores, kind)
    if scores.shape[1] > 1:
        return labelled(labels, jnp.argmax(scores, axis=1)), scores.astype(np.float32)
    found = scores[:, 0] >= (0 if kind == "NONE" else 0.5)
    return jnp.where(found, labels[0] if len(labels) else 1, 0).astype(np.int64), scores.astype(np.float32)


def labels_of(node: Node, numbers: str, text: str) -> np.ndarray:
    """The labels of classes. Raises Unsupported where they are text."""
    no_text(node, text)
    return np.asarray(node.get(numbers, ()), np.int64)


def labelled(labels: np.ndarray, places: Any) -> Any:
    """The labels of classes by number."""
    import jax.numpy as jnp

    return jnp.asarray(labels)[places] if len(labels) else places.astype(np.int64)


def _kernel(node: Node, x: Any, vectors: np.ndarray, kind: str) -> Any:
    """What examples have in common with support vectors."""
    import jax.numpy as jnp

    gamma, shift, degree = (*node.get("kernel_params", []), 0.0, 0.0, 0.0)[:3]
    product = x @ vectors.T
    if kind == "LINEAR":
        return product
    if kind == "POLY":
        return (product * gamma + shift) ** int(degree)
    if kind == "SIGMOID":
        return jnp.tanh(product * gamma + shift)
    if kind == "RBF":
        far = ((x[:, None, :] - vectors) ** 2).sum(axis=-1)
        return jnp.exp(-gamma * far)
    raise node.unsupported(f"{kind} is no kernel")


@rule("SVMRegressor", domain=ML)
def _svm_regressor(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    x, count = as_floats(x), node.get("n_supports", 0)
    coefficients = np.asarray(node.get("coefficients"), x.dtype)
    if count:
        vectors = np.asarray(node.get("support_vectors"), x.dtype).reshape(count, -1)
        shared = _kernel(node, x, vectors, node.get("kernel_type", "LINEAR"))
        scores = shared @ coefficients[:, None]
    else:
        scores = x @ coefficients[:, None]
    scores = scores + np.asarray(node.get("rho"), x.dtype)[0]
    if node.get("one_class", 0):
        scores = jnp.where(scores > 0, 1, -1)
    return transformed(node, scores.astype(np.float32), node.get("post_transform", "NONE"))


@rule("SVMClassifier", domain=ML)
def _svm_classifier(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    if node.get("prob_a"):
        raise node.unsupported(
            "it gives probabilities, which are found by iteration: give its scores instead"
        )
    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    x, classes = as_floats(x), max(len(labels), 1)
    rho, counts = np.asarray(node.get("rho"), x.dtype), node.get("vectors_per_class", [])
    kind = node.get("post_transform", "NONE")
    if not sum(counts):
        coefficients = np.asarray(node.get("coefficients"), x.dtype).reshape(classes, -1)
        scores = x @ coefficients.T + rho[0]
        votes, most = scores, scores.max(axis=1)
    else:
        scores, votes = _pairwise(node, x, counts, classes, rho)
        most = votes.max(axis=1)
    place = jnp.argmax(votes, axis=1)
    if len(rho) == 1 and len(labels) != 2:
        found = (most > 0).astype(np.int64)
    else:
        if len(rho) == 1 and min(node.get("coefficients")) >= 0:  # as other implementations have it
            place = jnp.where(most >= 0.5, 1, place)
        found = labelled(labels, place)
    both = scores.shape[1] == 1 and kind != "PROBIT"
    if both and len(rho) == 1 and len(labels) == 2:
        scores = jnp.concatenate([-scores, scores], axis=1)
    elif both:
        return found, scores.astype(np.float32)
    return found, transformed(node, scores, kind).astype(np.float32)


def _pairwise(node: Node, x: Any, counts: Sequence[int], classes: int, rho: np.ndarray) -> tuple[Any, Any]:
    """For each pair of classes the score of the first, and for each class how many it wins."""
    total = sum(counts)
    vectors = np.asarray(node.get("support_vectors"), x.dtype).reshape(total, -1)
    coefficients = np.asarray(node.get("coefficients"), x.dtype).reshape(-1, total)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    of_pairs = np.zeros((total, len(pairs)), x.dtype)
    starts = np.cumsum([0, *counts])
    for k, (i, j) in enumerate(pairs):
        first, second = (slice(starts[c], starts[c + 1]) for c in (i, j))
        of_pairs[first, k], of_pairs[second, k] = coefficients[j - 1, first], coefficients[i, second]
    scores = _kernel(node, x, vectors, node.get("kernel_type", "LINEAR")) @ of_pairs + rho[: len(pairs)]
    wins, losses = (
        np.array([[pair[side] == c for c in range(classes)] for pair in pairs], x.dtype) for side in (0, 1)
    )
    won = (scores > 0).astype(x.dtype)
    return scores, won @ wins + (1 - won) @ losses


# -- n-grams -----------------------------------------------------------------------------------------------


@rule("TfIdfVectorizer")
def _tfidf_vectorizer(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    no_text(node, "pool_strings")
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    size = max(node.get("ngram_indexes")) + 1
    counts = jnp.zeros((rows.shape[0], size), np.int64)
    for n, grams in _ngrams(node).items():
        places = np.array(list(grams.values()), np.int64)
        found = _counted(rows, np.array(list(grams), np.int64), n, node.get("max_skip_count", 0))
        counts = counts.at[:, places].add(found)
    mode, weights = node.get("mode"), node.get("weights")
    counts = jnp.minimum(counts, 1) if mode == "IDF" else counts
    made = counts.astype(np.float32)
    if weights and mode != "TF":
        made = made * np.asarray(weights, np.float32)[:size]  # by places of the output, as others do it
    return made if x.ndim == 2 else made[0]


def _ngrams(node: Node) -> dict[int, dict[tuple[int, ...], int]]:
    """By length: n-grams and where they are counted."""
    pool, starts, places = node.get("pool_int64s"), node.get("ngram_counts"), node.get("ngram_indexes")
    made: dict[int, dict[tuple[int, ...], int]] = {}
    k = 0
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for i in range(begin, end - n + 1, n):
            if node.get("min_gram_length", 1) <= n <= node.get("max_gram_length", n):
                made.setdefault(n, {})[tuple(pool[i : i + n])] = places[k]
            k += 1
    return made


def _counted(rows: Any, grams: np.ndarray, n: int, skips: int) -> Any:
    """How often each row has each n-gram, with up to so many elements skipped between its own."""
    import jax.numpy as jnp

    size = rows.shape[1]
    total: Any = 0
    for step in range(1, 2 if n == 1 else skips + 2):
        far = step * (n - 1)
        padded = jnp.pad(rows, ((0, 0), (0, far)))
        same = (jnp.arange(size) < size - far)[None, :, None]
        for j in range(n):
            same = same & (padded[:, step * j : step * j + size, None] == grams[:, j])
        total = total + same.sum(axis=1, dtype=np.int64)
    return total
