"""How good a smaller program is: against the original's numbers, or by what is known of the right answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..api.arguments.signature import CompileError
from ..verification.agreement import cosine, decibels, sqnr

Metric = Callable[[Any, Any], float]
"""A number of a batch's outputs and its labels: the higher the better."""


def accuracy(logits: Any, labels: Any) -> float:
    """The percentage of the largest logits, along the last dimension, that are at the label."""
    x, y = _labelled(logits, labels)
    return 100 * float((x.argmax(-1) == y).mean())


def perplexity(logits: Any, labels: Any) -> float:
    """exp of the mean cross entropy of labels, with the sign turned, so that higher is better."""
    x, y = _labelled(logits, labels)
    x = x - x.max(-1, keepdims=True)
    log_probabilities = x - np.log(np.exp(x).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probabilities, y[..., None], -1)
    return -float(np.exp(-chosen.mean()))


def _labelled(logits: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays: logits in f64. Raises CompileError unless there is one number of a class for each row of them."""
    if isinstance(logits, list | tuple | dict):
        raise CompileError("the metric takes one array of logits, and the program gives several results")
    x, y = np.asarray(logits, np.float64), np.asarray(labels)
    if not x.ndim or y.shape != x.shape[:-1] or not y.size:
        raise CompileError(
            f"the metric takes labels of the shape {list(x.shape[:-1])} for results of {list(x.shape)}, not "
            f"{list(y.shape)}"
        )
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= x.shape[-1]:
        raise CompileError(f"the metric takes labels that are whole numbers from 0 to {x.shape[-1] - 1}")
    return x, y


METRICS: dict[str, Metric] = {"accuracy": accuracy, "perplexity": perplexity}
"""Those that need labels. `sqnr` and `cosine` compare with the original instead."""

COMPARED = {"sqnr": sqnr, "cosine": cosine}

__all__ = [
    "COMPARED",
    "METRICS",
    "Metric",
    "accuracy",
    "cosine",
    "decibels",
    "metric_name",
    "perplexity",
    "scorer",
    "sqnr",
]


def metric_name(metric: str | Metric) -> str:
    """What tables call a metric."""
    return metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")


def scorer(
    metric: str | Metric,
    references: Sequence[Sequence[Any]],
    labels: Sequence[Any] | None,
    unflatten: Callable[..., Any],
) -> Callable[[Sequence[Sequence[Any]]], float]:
    """What gives a number, the higher the better, to the flat outputs of all batches. Raises CompileError for a metric
    that there is not, and for one that needs labels where there are none."""
    if isinstance(metric, str) and metric in COMPARED:
        compare = COMPARED[metric]
        return lambda outputs: compare(
            [a for batch in references for a in batch], [a for batch in outputs for a in batch]
        )
    found = METRICS.get(metric) if isinstance(metric, str) else metric
    if found is None:
        raise CompileError(
            f"there is no metric {metric!r}; there are {', '.join((*COMPARED, *METRICS))}, or a function"
        )
    name = metric_name(metric)
    try:
        inspect.signature(found).bind(None, None)
    except (TypeError, ValueError):
        raise CompileError(f"the metric {name} must be a function of results and labels") from None
    if labels is None:
        raise CompileError("the metric needs labels: one array for each batch")
    if len(labels) != len(references):
        raise CompileError(f"there are {len(references)} batches and labels of {len(labels)}")
    sizes = [np.asarray(y).size for y in labels]
    if not all(sizes):
        raise CompileError(f"the labels of batch {sizes.index(0)} are empty")

    def value(batch: int, outputs: Any) -> float:
        made = found(outputs, labels[batch])
        if isinstance(made, str | bytes) or np.ndim(made) or not np.isreal(made) or np.isnan(float(made)):
            raise CompileError(f"the metric {name} gives {made!r} for batch {batch}; it must give a number")
        return float(made)

    def score(outputs: Sequence[Sequence[Any]]) -> float:
        scores = [value(n, unflatten(batch)) for n, batch in enumerate(outputs)]
        return float(np.average(scores, weights=sizes))

    return score
