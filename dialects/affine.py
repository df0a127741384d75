"""Plain numbers: linear expressions of a kernel's index variables, which are numbered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Range = tuple[int, int]
"""Least and greatest value, both included."""

Terms = tuple[tuple[int, int], ...]
"""(variable, coefficient), ordered, no coefficient zero."""


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant + sum(coefficient * variable)`."""

    constant: int
    terms: Terms = ()

    @staticmethod
    def combine(constant: int, parts: Iterable[tuple[int, Affine]]) -> Affine:
        """`constant + sum(factor * affine)`."""
        total: dict[int, int] = {}
        for factor, affine in parts:
            if factor:
                constant += factor * affine.constant
                for variable, coefficient in affine.terms:
                    total[variable] = total.get(variable, 0) + factor * coefficient
        return Affine(constant, tuple(sorted((v, c) for v, c in total.items() if c)))

    def at(self, env: Sequence[int]) -> int:
        """The value in an environment: the value of each variable."""
        value = self.constant
        for variable, coefficient in self.terms:
            value += coefficient * env[variable]
        return value

    def span(self, ranges: Sequence[Range]) -> Range:
        """Least and greatest value where each variable stays in its range."""
        low = high = self.constant
        for variable, coefficient in self.terms:
            ends = [coefficient * end for end in ranges[variable]]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def reach(self, counts: Sequence[int]) -> Range:
        """Least and greatest value where variable v takes the values 0 to `counts[v]` - 1."""
        low = high = self.constant
        for variable, coefficient in self.terms:
            far = coefficient * (counts[variable] - 1)
            low, high = low + min(far, 0), high + max(far, 0)
        return low, high

    def without(self, variables: set[int]) -> Affine:
        """The same with the terms of `variables` left out."""
        return Affine(self.constant, tuple(t for t in self.terms if t[0] not in variables))

    def only(self, variables: set[int]) -> Affine:
        """The terms of `variables`, without the constant."""
        return Affine(0, tuple(t for t in self.terms if t[0] in variables))
