"""Losses of classes by number. Their bodies move all scores about; here the classes stay where they are, in axis 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..node import Node
from ..table import rule


@rule("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(node: Node, scores: Any, labels: Any, weights: Any = None) -> Any:
    import jax

    logs = jax.nn.log_softmax(scores, axis=1)
    return _loss(node, logs, labels, weights), logs


@rule("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(node: Node, logs: Any, labels: Any, weights: Any = None) -> Any:
    return _loss(node, logs, labels, weights)


def _loss(node: Node, logs: Any, labels: Any, weights: Any) -> Any:
    import jax.numpy as jnp

    ignored, reduction = node.get("ignore_index"), node.get("reduction", "mean")
    dtype, weight, counts = logs.dtype, None, None
    if ignored is not None:
        counts = labels != ignored
        labels, weight = jnp.where(counts, labels, 0), counts.astype(dtype)
    if weights is not None:
        own = jnp.take(weights, labels, axis=0)
        weight = own if weight is None else own * weight
    losses = -jnp.take_along_axis(logs, labels[:, None], axis=1).squeeze(1)
    if weight is not None:
        losses = jnp.where(
            weight == 0, np.zeros((), dtype), losses * weight
        )  # also where a score is infinite
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if weight is None else losses.sum() / weight.sum()
