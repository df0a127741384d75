"""What holds of sizes for all values within the bounds of their symbols: which is larger, and what divides them.

`bounds` of sizes.py takes each term for itself, so it does not see that `2*s` is at most `3*s`. Here a difference is
bounded by a polynomial in the symbols (a quotient that is rounded down by the exact one, and that less a fraction), and
the polynomial by its Bernstein coefficients over the box of the symbols' bounds, of which the smallest is no larger
than any of its values (G. T. Cargo and O. Shisha, *The Bernstein Form of a Polynomial*, 1966). Where there are few
sizes, as in most ranges of one symbol, all are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import comb, gcd, prod

from .affine import Expr, Symbol
from .sizes import Derived, Size, SizeError, Sizes, bounds, ceildiv, evaluate, floordiv, maximum, symbols_of

Monomial = tuple[Symbol, ...]
"""A product of symbols, in their order; one for each power."""

Polynomial = Mapping[Monomial, Fraction]

KEPT = 1 << 14
"""Answers that are kept: programs ask the same of many tensors."""

FEW_SIZES = 128
"""Sizes at each of which a difference is evaluated, where bounds do not decide about it."""

MOST_ALTERNATIVES = 64
"""Alternatives of a size that are written out."""


def at_most(a: Size, b: Size) -> bool:
    """Whether one size is at most another for all values of the symbols. False also where that is not known."""
    gap = b - a
    if not gap.terms:
        return gap.constant >= 0
    if _never_negative(gap):
        return True
    whole, a, b = gcd(*(c for _, c in b.terms)), a - b.constant, b - b.constant
    for step in sorted({gcd(whole, c) for _, c in a.terms})[1:]:
        a = aligned(a, step)  # b is a multiple of it
        if _never_negative(b - a):
            return True
    return False


@lru_cache(KEPT)
def _never_negative(gap: Size) -> bool:
    low, _ = bounds(gap)
    if low is not None and low >= 0:
        return True
    if any(_is_negative(gap, ends) for ends in _ends(gap)):
        return False
    gap = _canonical(gap)
    if not gap.terms:
        return gap.constant >= 0
    below = _bounding(gap, True)
    least = None if below is None else _least(below)
    step = gcd(gap.constant, *(c for _, c in gap.terms))  # it is a multiple of this
    return (least is not None and least > -step) or _nowhere_negative(gap)


def _nowhere_negative(size: Size) -> bool:
    """Whether a size is 0 or more at each of all sizes, where these are few."""
    symbols = symbols_of(size)
    ranges = [range(s.lower, s.upper + 1) for s in symbols if s.upper is not None]
    if len(ranges) < len(symbols) or prod(map(len, ranges)) > FEW_SIZES:
        return False
    names = [s.name for s in symbols]
    try:
        return all(evaluate(size, dict(zip(names, each, strict=True))) >= 0 for each in product(*ranges))
    except SizeError:
        return False


def _ends(size: Size) -> list[Sizes]:
    """The least values of the symbols in a size, and the largest ones where all have some."""
    symbols = symbols_of(size)
    least = {s.name: s.lower for s in symbols}
    most = {s.name: s.upper for s in symbols if s.upper is not None}
    return [least, most] if len(most) == len(symbols) else [least]


def _is_negative(size: Size, at: Sizes) -> bool:
    """Whether a size is known to be negative at some sizes: one that divides by zero there is not."""
    try:
        return evaluate(size, at) < 0
    except SizeError:
        return False


def _canonical(size: Size) -> Size:
    """The same size, in which one quotient has one form: `t + ceildiv(t, 2)` and `ceildiv(3*t, 2)` are both
    `2*t - floordiv(t, 2)`."""
    parts: list[tuple[int, Size]] = []
    for variable, factor in size.terms:
        part: Size = Expr.of(variable)
        if isinstance(variable, Derived) and variable.kind == "floordiv" and not variable.args[1].terms:
            inner, n = _canonical(variable.args[0]), variable.args[1].constant
            whole = Expr(inner.constant // n, {v: c // n for v, c in inner.terms})
            part = whole + floordiv(inner - whole * n, Expr(n))
        parts.append((factor, part))
    return Expr.combine(size.constant, parts)


def divides(n: int, size: Size) -> bool:
    """Whether a size is a multiple of `n` for all values of the symbols. False also where that is not known."""
    if size.constant % n:
        return False
    return all(_divides(n, variable, factor) for variable, factor in size.terms)


def _divides(n: int, variable: Symbol | Derived, factor: int) -> bool:
    left = n // gcd(n, factor)
    if left == 1:
        return True
    if isinstance(variable, Symbol) or variable.kind in ("floordiv", "mod"):
        return False
    ways = [divides(left, a) for a in variable.args]
    return any(ways) if variable.kind == "mul" else all(ways)


@lru_cache(KEPT)
def alternatives(size: Size) -> tuple[Size, ...]:
    """Sizes without a maximum at the top, the largest of which a size is: `8*s + max(a, b)` is `8*s + a` or `8*s + b`.

    A size with more than MOST_ALTERNATIVES is its only one.
    """
    found: list[Size] = [Expr(size.constant)]
    for variable, factor in size.terms:
        ways: Sequence[Size] = (Expr.of(variable),)
        if isinstance(variable, Derived) and variable.kind == "max" and factor > 0:
            ways = [way for a in variable.args for way in alternatives(a)]
        if len(found) * len(ways) > MOST_ALTERNATIVES:
            return (size,)
        found = [known + way * factor for known in found for way in ways]
    return tuple(dict.fromkeys(found))


def largest(*sizes: Size) -> Size:
    """The largest of sizes, without those that are at most another at all values."""
    kept: list[Size] = []
    for size in dict.fromkeys(sizes):
        if not any(at_most(size, other) for other in kept):
            kept = [*(other for other in kept if not at_most(other, size)), size]
    return maximum(*kept)


def aligned(size: Size, align: int) -> Size:
    """The least multiple of `align` that is no smaller than a size."""
    return ceildiv(size, Expr(align)) * align


# -- polynomials -------------------------------------------------------------------------------------------


def _bounding(size: Size, below: bool) -> Polynomial | None:
    """A polynomial that is nowhere larger (`below`) or smaller than a size; None where there is none."""
    total: dict[Monomial, Fraction] = {(): Fraction(size.constant)}
    for variable, factor in size.terms:
        part = _bounding_variable(variable, below == (factor > 0))
        if part is None:
            return None
        for monomial, coefficient in part.items():
            total[monomial] = total.get(monomial, Fraction(0)) + factor * coefficient
    return total


def _bounding_variable(variable: Symbol | Derived, below: bool) -> Polynomial | None:
    if isinstance(variable, Symbol):
        return {(variable,): Fraction(1)}
    if variable.kind == "mul":
        parts = [_bounding(a, below) for a in variable.args]
        found: Polynomial = {(): Fraction(1)}
        for part, factor in zip(parts, variable.args, strict=True):
            low, least = bounds(factor)[0], None if part is None else _least(part)
            if part is None or low is None or low < 0 or least is None or least < 0:
                return _constant(variable, below)
            found = _product(found, part)
        return found
    if variable.kind == "floordiv" and not variable.args[1].terms and variable.args[1].constant > 0:
        n, exact = variable.args[1].constant, _bounding(variable.args[0], below)
        if exact is None:
            return None
        lost = Fraction(n - 1, n) if below else Fraction(0)
        quotient = {m: c / n for m, c in exact.items()}
        return {**quotient, (): quotient.get((), Fraction(0)) - lost}
    return _constant(variable, below)


def _constant(variable: Derived, below: bool) -> Polynomial | None:
    low, high = bounds(Expr.of(variable))
    end = low if below else high
    return None if end is None else {(): Fraction(end)}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    found: dict[Monomial, Fraction] = {}
    for (m, c), (n, d) in product(a.items(), b.items()):
        both = tuple(sorted((*m, *n), key=Symbol.place))
        found[both] = found.get(both, Fraction(0)) + c * d
    return found


def _least(polynomial: Polynomial) -> Fraction | None:
    """A number that no value of a polynomial within the bounds of its symbols is below; None where none is known."""
    symbols = sorted({s for m, c in polynomial.items() if c for s in m}, key=Symbol.place)
    degrees = [max(m.count(s) for m, c in polynomial.items() if c) for s in symbols]
    powers: dict[tuple[int, ...], Fraction] = {}
    for monomial, coefficient in polynomial.items():
        powers_of = tuple(monomial.count(s) for s in symbols)
        if coefficient:
            powers[powers_of] = powers.get(powers_of, Fraction(0)) + coefficient
    for axis, symbol in enumerate(symbols):
        powers = _over_unit(powers, axis, symbol)
        if symbol.upper is not None:
            powers = _bernstein(powers, axis, degrees[axis])
    open_ended = [axis for axis, s in enumerate(symbols) if s.upper is None]
    if any(c < 0 and any(at[axis] for axis in open_ended) for at, c in powers.items()):
        return None
    every = product(*(range(1) if axis in open_ended else range(n + 1) for axis, n in enumerate(degrees)))
    return min((powers.get(at, Fraction(0)) for at in every), default=Fraction(0))


Powers = dict[tuple[int, ...], Fraction]
"""Coefficients by the power of each symbol."""


def _over_unit(powers: Powers, axis: int, symbol: Symbol) -> Powers:
    """The polynomial in x, where a symbol is its lower bound plus x times its width, or plus x where it has no upper
    bound."""
    width = 1 if symbol.upper is None else symbol.upper - symbol.lower
    found: Powers = {}
    for at, coefficient in powers.items():
        n = at[axis]
        for k in range(n + 1):
            to = (*at[:axis], k, *at[axis + 1 :])
            part = coefficient * comb(n, k) * symbol.lower ** (n - k) * width**k
            found[to] = found.get(to, Fraction(0)) + part
    return found


def _bernstein(powers: Powers, axis: int, degree: int) -> Powers:
    """Coefficients in the Bernstein basis along one axis, over [0, 1]."""
    found: Powers = {}
    for at, coefficient in powers.items():
        k = at[axis]
        for j in range(k, degree + 1):
            to = (*at[:axis], j, *at[axis + 1 :])
            found[to] = found.get(to, Fraction(0)) + coefficient * Fraction(comb(j, k), comb(degree, k))
    return found
