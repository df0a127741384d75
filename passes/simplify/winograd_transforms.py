"""The matrices of Winograd's short convolutions, exactly, and how far they magnify rounding.

F(m, 3) gives m neighbouring places of a correlation with 3 weights from n = m + 2 products:

    y = A^T [ (G g) * (B^T d) ]        y_i = sum over k of d_{i+k} g_k

The matrices follow from n - 1 points by the Toom-Cook scheme, the n-th point being infinity (S. Winograd, *Arithmetic
Complexity of Computations*, SIAM 1980; Barabasz, Anderson, Soodhalter and Gregg, *Error Analysis and Improving the
Accuracy of Winograd Convolution for Deep Neural Networks*, ACM TOMS 46(4), 2020, section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Matrix = tuple[tuple[Fraction, ...], ...]

TAPS = 3
"""Positions of the window along a dimension."""

POINTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(1, 2), Fraction(-1, 2), Fraction(3, 2), Fraction(-3, 2)),
}
"""The finite points for m places. Those of 4 come in pairs of both signs, which share sums, and magnify errors a third
as much as 0, 1, -1, 2, -2 do (`magnification` in two dimensions: 761 and 2,304)."""


@dataclass(frozen=True)
class Transforms:
    """The matrices of F(m, 3): `output` A^T [m, n], `weights` G [n, 3], `input` B^T [n, n]."""

    places: int
    output: Matrix
    weights: Matrix
    input: Matrix

    @property
    def products(self) -> int:
        """Products for `places` results: n = m + 2."""
        return len(self.input)

    def magnification(self, dims: int) -> float:
        """The largest element of |A^T| ((|G| 1) * (|B^T| 1)), to the power of `dims`: the sum of magnitudes behind a
        result where all inputs and weights are 1. Of a direct convolution it is 3 to that power."""
        inner = [_size(g) * _size(b) for g, b in zip(self.weights, self.input, strict=True)]
        rows = [sum(abs(a) * x for a, x in zip(row, inner, strict=True)) for row in self.output]
        return float(max(rows)) ** dims

    def roundings(self, dims: int) -> int:
        """How often a term is rounded in the transforms of a tile, at most: along each dimension once for each term of
        its sum, in all three transforms, and once for a factor of the weights that is no binary number."""
        most = [max(sum(c != 0 for c in row) for row in m) for m in (self.input, self.weights, self.output)]
        return dims * (sum(most) + 1)


def _size(row: Sequence[Fraction]) -> Fraction:
    return sum(map(abs, row), Fraction(0))


def _monic(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of x - root, the constant first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [s - root * c for s, c in zip(shifted, [*found, Fraction(0)], strict=True)]
    return found


@cache
def transforms(places: int) -> Transforms:
    """The matrices of F(places, 3)."""
    points = POINTS[places]
    finite = range(len(points))
    end = Fraction(1), Fraction(0)
    output = tuple(
        (*(p**i for p in points), end[0] if i == places - 1 else end[1]) for i in range(places)
    )
    weights, inputs = [], []
    for j in finite:
        others = [points[i] for i in finite if i != j]
        scale = Fraction(1)
        for other in others:
            scale *= points[j] - other
        weights.append(tuple(points[j] ** k / scale for k in range(TAPS)))
        inputs.append((*_monic(others), Fraction(0)))
    weights.append(tuple(Fraction(int(k == TAPS - 1)) for k in range(TAPS)))
    inputs.append(tuple(_monic(points)))
    return Transforms(places, output, tuple(weights), tuple(inputs))
