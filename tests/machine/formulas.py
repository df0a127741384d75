"""The formulas behind `[vector.expansions]`: what their instructions compute, with the coefficients that machine files
do not need, in the arithmetic of a vector unit.

The coefficients are minimax fits of our own (iterated weighted least squares of rational functions over the range that
the clamp leaves, in f64, rounded to the dtype).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Number = Array | float


@dataclass
class Lanes:
    """A vector unit of one dtype: each instruction rounds once, also `fma` and `exp`, and is noted."""

    dtype: str
    instructions: list[str] = field(default_factory=list)

    def _done(self, name: str, value: Any) -> Array:
        self.instructions.append(name)
        return np.asarray(value).astype(self.dtype)

    def _wide(self, x: Number) -> Array:
        """What an operand holds; constants are rounded to the dtype."""
        return np.asarray(x, self.dtype).astype("f8")

    def abs(self, x: Array) -> Array:
        return self._done("abs", np.abs(x))

    def min(self, x: Array, y: Number) -> Array:
        return self._done("min", np.minimum(x, self._wide(y)))

    def max(self, x: Array, y: Number) -> Array:
        return self._done("max", np.maximum(x, self._wide(y)))

    def neg(self, x: Array) -> Array:
        return self._done("neg", -x)

    def add(self, x: Array, y: Number) -> Array:
        return self._done("add", self._wide(x) + self._wide(y))

    def sub(self, x: Number, y: Number) -> Array:
        return self._done("sub", self._wide(x) - self._wide(y))

    def mul(self, x: Array, y: Number) -> Array:
        return self._done("mul", self._wide(x) * self._wide(y))

    def div(self, x: Number, y: Array) -> Array:
        return self._done("div", self._wide(x) / self._wide(y))

    def exp(self, x: Array) -> Array:
        return self._done("exp", np.exp(self._wide(x)))

    def fma(self, x: Array, y: Array, z: Number) -> Array:
        """x * y + z. In f64 the product of two f32 is exact."""
        return self._done("fma", self._wide(x) * self._wide(y) + self._wide(z))

    def below_zero(self, x: Array, where: Array, otherwise: Array) -> Array:
        self.instructions.append("lt")
        return self._done("select", np.where(x < 0, where, otherwise))

    def polynomial(self, x: Array, coefficients: Sequence[float]) -> Array:
        """By Horner's rule. coefficients: from that of x^0 on."""
        *rest, second, first = coefficients
        value = self.add(x if first == 1.0 else self.mul(x, first), second)
        for coefficient in reversed(rest):
            value = self.fma(value, x, coefficient)
        return value


ERF = {
    "f4": (
        3.92,
        (29622.5, 4998.5400390625, 1384.765625, 98.85355377197266, 7.478786468505859, 0.0538201779127121),
        (26252.2578125, 13180.5771484375, 2995.597412109375, 392.9708557128906, 30.518651962280273, 1.0),
    ),
    "f2": (2.4, (7.265625, 2.52734375, 0.1552734375), (6.44140625, 4.3671875, 1.0)),
}
"""The end of the range, and the coefficients of x P(x^2) / Q(x^2)."""

ERFC = (
    10.06,
    (5.830304145812988, 5.975985050201416, 2.7932043075561523, 0.5641254782676697),
    (5.830306053161621, 12.554622650146484, 11.1310453414917, 4.947544574737549, 1.0),
)
"""The same of P(x) / Q(x), which exp(-x^2) is multiplied by."""


def erf(on: Lanes, x: Array) -> Array:
    end, over, under = ERF[on.dtype]
    x = on.max(on.min(x, end), -end)
    square = on.mul(x, x)
    numerator = on.mul(on.polynomial(square, over), x)
    return on.div(numerator, on.polynomial(square, under))


def erfc(on: Lanes, x: Array) -> Array:
    end, over, under = ERFC
    magnitude = on.min(on.abs(x), end)
    scaled = on.div(on.polynomial(magnitude, over), on.polynomial(magnitude, under))
    less = on.mul(on.mul(magnitude, magnitude), -1.0)
    lost = on.fma(magnitude, magnitude, less)
    value = on.mul(scaled, on.exp(less))
    value = on.sub(value, on.mul(value, lost))
    return on.below_zero(x, on.sub(2.0, value), value)


def logistic(on: Lanes, x: Array) -> Array:
    return on.div(1.0, on.add(on.exp(on.neg(x)), 1.0))


def tanh(on: Lanes, x: Array) -> Array:
    """As the vendor's library. Near 0 its terms cancel: the error is one of 1, not of the result."""
    twice = on.exp(on.mul(on.min(on.max(x, -8.8), 8.8), 2.0))
    return on.div(on.sub(twice, 1.0), on.add(twice, 1.0))


FORMULAS: dict[str, Callable[[Lanes, Array], Array]] = {
    "erf": erf,
    "erfc": erfc,
    "logistic": logistic,
    "tanh": tanh,
}
