"""How good a smaller program is: against the original's numbers, or by what is known of the right answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..api.signature import CompileError
from ..verification.agreement import cosine, decibels, sqnr

Metric = Callable[[Any, Any], float]
"""A number of a batch's outputs and its labels: the higher the better."""


def accuracy(logits: Any, labels: Any) -> float:
    """The percentage of the largest logits, along the last dimension, that are at the label."""
    return 100 * float((np.asarray(logits).argmax(-1) == np.asarray(labels)).mean())


def perplexity(logits: Any, labels: Any) -> float:
    """exp of the mean cross entropy of labels, with the sign turned, so that higher is better."""
    x = np.asarray(logits, np.float64)
    x = x - x.max(-1, keepdims=True)
    log_probabilities = x - np.log(np.exp(x).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probabilities, np.asarray(labels)[..., None], -1)
    return -float(np.exp(-chosen.mean()))


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
    if labels is None:
        raise CompileError("the metric needs labels: one array for each batch")
    if len(labels) != len(references):
        raise CompileError(f"there are {len(references)} batches and labels of {len(labels)}")
    sizes = [np.asarray(y).size for y in labels]

    def score(outputs: Sequence[Sequence[Any]]) -> float:
        scores = [found(unflatten(batch), y) for batch, y in zip(outputs, labels, strict=True)]
        return float(np.average(scores, weights=sizes))

    return score
