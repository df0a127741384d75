"""Max-plus algebra on integer cycles: (A x)[i] = max over j of A[i, j] + x[j].

Every time of a core is a maximum of earlier times plus a constant, so one pass through a loop body is a
max-plus matrix over the times it starts with, and n passes are its n-th power: exact, whatever the schedule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.int64]

NEVER = -(1 << 60)
"""Stands for minus infinity: 'does not depend on'. Real times stay far above it."""


def identity_matrix(size: int) -> Matrix:
    """The matrix that changes nothing."""
    matrix = np.full((size, size), NEVER, dtype=np.int64)
    np.fill_diagonal(matrix, 0)
    return matrix


def matrix_product(left: Matrix, right: Matrix) -> Matrix:
    """`left` after `right`; `right` may be a vector."""
    if right.ndim == 1:
        return np.maximum((left + right).max(axis=1), NEVER)
    return np.maximum((left[:, :, None] + right[None, :, :]).max(axis=1), NEVER)


def matrix_power(matrix: Matrix, exponent: int) -> Matrix:
    """`matrix` applied `exponent` times."""
    result = identity_matrix(len(matrix))
    while exponent:
        if exponent & 1:
            result = matrix_product(matrix, result)
        exponent >>= 1
        if exponent:
            matrix = matrix_product(matrix, matrix)
    return result
