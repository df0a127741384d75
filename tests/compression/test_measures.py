"""Metrics at their edges."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compression.measures import cosine, sqnr

ZERO, ONE = np.zeros(4, np.float32), np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("reference", "outputs", "angle", "decibels"),
    [
        (ONE, ONE, 1.0, np.inf),
        (ONE, -ONE, -1.0, -6.0206),
        (ONE, ZERO, 0.0, 0.0),
        (ZERO, ONE, 0.0, -np.inf),
        (ZERO, ZERO, 1.0, np.inf),
    ],
)
def test_outputs_that_are_all_zero(
    reference: np.ndarray, outputs: np.ndarray, angle: float, decibels: float
) -> None:
    assert cosine([reference], [outputs]) == pytest.approx(angle)
    assert sqnr([reference], [outputs]) == pytest.approx(decibels, abs=1e-4)
