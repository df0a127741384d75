"""Orders in which an exact search tries buffers of one offset.

Each is a word of letters, the first being the most significant, the largest first: T bytes left to place in the fullest
section of a buffer, W its time, A its size times its time, C its number of sections (after Moffitt's MiniMalloc, 2023).
"""

from __future__ import annotations

import numpy as np

from .exact import Ranking
from .problem import PackingProblem

WORDS = ("TWA", "TCA", "CTA", "TAW")
"""Rankings that solve the eleven problems of MiniMalloc; no one of them does alone."""

SPREAD = 0.3
"""Deviation of the logarithm of random factors, by which each buffer looks larger than it is."""


def rankings(problem: PackingProblem, number: int) -> list[Ranking]:
    """The rankings of a round: of all words, and of one with random factors, others in each round."""
    factors = np.exp(SPREAD * np.random.default_rng(number).standard_normal(len(problem.buffers)))
    ones = np.ones(len(problem.buffers))
    mixed = ranking(problem, WORDS[number % len(WORDS)], factors)
    return [*(ranking(problem, word, ones) for word in WORDS), mixed]


def ranking(problem: PackingProblem, word: str, factors: np.ndarray) -> Ranking:
    """The ranking of a word, each buffer's numbers times its factor: f64 [n]."""
    time = (problem.ends - problem.starts) * factors
    fixed = {"W": time, "A": time * problem.sizes, "C": (problem.last - problem.first + 1) * factors}

    def ranked(left: np.ndarray, total: np.ndarray) -> np.ndarray:
        keys = [
            -(_fullest(problem, left, total) * factors[left] if k == "T" else fixed[k][left]) for k in word
        ]
        return left[np.lexsort(keys[::-1])]

    return ranked


def _fullest(problem: PackingProblem, left: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The largest number of bytes left to place in a section of each buffer: i64 [k]."""
    spans = np.stack([problem.first[left], problem.last[left] + 1], 1).ravel()
    return np.maximum.reduceat(np.append(total, 0), spans)[::2]
