"""Random layers for the tests of quantisation methods: inputs whose channels are correlated and of unequal strength."""

from __future__ import annotations

import numpy as np

DTYPES = ("float32", "float16", "bfloat16")


def layer(m: int, k: int, n: int, seed: int, skew: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [m, k] and a weight [k, n], f32. A few directions are shared by all channels; `skew` is the deviation of
    the logarithm of their strengths."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(m, max(1, k // 8))) @ rng.normal(size=(max(1, k // 8), k))
    x = (rng.normal(size=(m, k)) + 0.7 * shared) * np.exp(rng.normal(0, skew, k))
    return x.astype(np.float32), rng.normal(0, 1 / np.sqrt(k), (k, n)).astype(np.float32)


def output_loss(x: np.ndarray, w: np.ndarray, found: np.ndarray) -> float:
    """|X w - X found|^2, in f64."""
    return float((((x.astype(np.float64)) @ (w.astype(np.float64) - found)) ** 2).sum())
