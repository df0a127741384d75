"""Formulas of complex functions on pairs of real numbers: those of XLA on the CPU, special values included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import SSAValue

from ...dialects.dtypes import element_type, tensor
from ...dialects.graph import ELEMENTWISE
from ...dialects.graph.interface import element_of, shape_of

if TYPE_CHECKING:
    from .simplify import Rewriter

BOOLEAN = element_type("i1")
INFINITY = float("inf")


@dataclass(frozen=True)
class Pair:
    """The real and the imaginary part of a value."""

    re: SSAValue
    im: SSAValue


class Parts:
    """Arithmetic on real tensors of one shape."""

    def __init__(self, rewriter: Rewriter):
        self.rewriter = rewriter

    def apply(self, name: str, *operands: SSAValue) -> SSAValue:
        """A function of the table; comparisons give i1."""
        last = operands[-1]
        function = ELEMENTWISE[name].FUNCTION
        element = BOOLEAN if function.result == "i1" else element_of(last)
        return self.rewriter.add(ELEMENTWISE[name], operands, tensor(shape_of(last), element))

    def number(self, value: float, like: SSAValue) -> SSAValue:
        """A number in each place of another tensor."""
        return self.rewriter.constant(value, shape_of(like), element_of(like))

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.apply("add", a, b)

    def sub(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.apply("sub", a, b)

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.apply("mul", a, b)

    def div(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.apply("div", a, b)

    def both(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.apply("and", a, b)

    def either(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.apply("or", a, b)

    def select(self, which: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.apply("select", which, a, b)

    def is_(self, a: SSAValue, value: float) -> SSAValue:
        """Where a is a number."""
        return self.apply("eq", a, self.number(value, a))

    def is_nan(self, a: SSAValue) -> SSAValue:
        return self.apply("ne", a, a)

    def signed(self, magnitude: SSAValue, sign: SSAValue) -> SSAValue:
        """A magnitude with the sign of another number, of 0 and NaN too."""
        bits = element_type("i32")

        def taken(x: SSAValue) -> SSAValue:
            return self.rewriter.add(ELEMENTWISE["bitcast"], [x], tensor(shape_of(x), bits))

        top = self.rewriter.constant(np.iinfo(np.int32).min, shape_of(sign), bits)
        joined = self.either(taken(magnitude), self.both(taken(sign), top))
        return self.rewriter.add(ELEMENTWISE["bitcast"], [joined], sign.type)


Formula = Callable[..., Any]


def partwise(name: str) -> Formula:
    """A function of each part by itself."""

    def formula(p: Parts, *operands: Pair) -> Pair:
        return Pair(p.apply(name, *(z.re for z in operands)), p.apply(name, *(z.im for z in operands)))

    return formula


def multiply(p: Parts, x: Pair, y: Pair) -> Pair:
    """(ac - bd) + i (ad + bc)."""
    return Pair(p.sub(p.mul(x.re, y.re), p.mul(x.im, y.im)), p.add(p.mul(x.re, y.im), p.mul(x.im, y.re)))


def divide(p: Parts, x: Pair, y: Pair) -> Pair:
    """Smith's algorithm (Communications of the ACM 5(8), 1962), which scales by the larger part of the divisor; where
    both parts come out as NaN, what annex G.5.1 of ISO C has for infinities and zeros."""
    (a, b), (c, d) = (x.re, x.im), (y.re, y.im)
    wide = p.apply("ge", p.apply("abs", c), p.apply("abs", d))
    ratio = p.select(wide, p.div(d, c), p.div(c, d))
    scale = p.select(wide, p.add(c, p.mul(d, ratio)), p.add(d, p.mul(c, ratio)))
    above = p.select(wide, p.add(a, p.mul(b, ratio)), p.add(p.mul(a, ratio), b))
    below = p.select(wide, p.sub(b, p.mul(a, ratio)), p.sub(p.mul(b, ratio), a))
    re, im = p.div(above, scale), p.div(below, scale)
    lost = p.both(p.is_nan(re), p.is_nan(im))

    def infinite(z: Pair) -> SSAValue:
        return p.either(*(p.is_(p.apply("abs", half), INFINITY) for half in (z.re, z.im)))

    def finite(z: Pair) -> SSAValue:
        return p.both(p.apply("is_finite", z.re), p.apply("is_finite", z.im))

    def boxed(half: SSAValue) -> SSAValue:
        one, zero = p.number(1, half), p.number(0, half)
        return p.signed(p.select(p.is_(p.apply("abs", half), INFINITY), one, zero), half)

    def case(where: SSAValue, times: float, u: Pair, v: Pair, otherwise: Pair) -> Pair:
        factor = p.number(times, a)
        real = p.mul(factor, p.add(p.mul(u.re, v.re), p.mul(u.im, v.im)))
        imaginary = p.mul(factor, p.sub(p.mul(u.im, v.re), p.mul(u.re, v.im)))
        return Pair(p.select(where, real, otherwise.re), p.select(where, imaginary, otherwise.im))

    small = case(p.both(finite(x), infinite(y)), 0.0, x, Pair(boxed(c), boxed(d)), Pair(re, im))
    large = case(p.both(infinite(x), finite(y)), INFINITY, Pair(boxed(a), boxed(b)), y, small)
    zero = p.both(p.is_(c, 0), p.is_(d, 0))
    some = p.either(p.apply("eq", a, a), p.apply("eq", b, b))
    unbounded, by_zero = p.signed(p.number(INFINITY, c), c), p.both(zero, some)
    found = Pair(
        p.select(by_zero, p.mul(unbounded, a), large.re), p.select(by_zero, p.mul(unbounded, b), large.im)
    )
    return Pair(p.select(lost, found.re, re), p.select(lost, found.im, im))


def magnitude(p: Parts, z: Pair) -> SSAValue:
    """The larger part times sqrt(1 + ratio ^ 2), which neither overflows nor underflows on the way."""
    a, b = p.apply("abs", z.re), p.apply("abs", z.im)
    high, low = p.apply("max", a, b), p.apply("min", a, b)
    ratio = p.div(low, high)
    length = p.mul(high, p.apply("sqrt", p.add(p.number(1, high), p.mul(ratio, ratio))))
    # 0 / 0 and infinity / infinity have no ratio
    alone = p.either(p.is_(high, 0), p.is_(high, INFINITY))
    return p.select(alone, high, length)


def sign(p: Parts, z: Pair) -> Pair:
    """z / |z|, and 0 as it is."""
    length = magnitude(p, z)
    zero = p.is_(length, 0)
    return Pair(*(p.select(zero, half, p.div(half, length)) for half in (z.re, z.im)))


def _hyperbolic(p: Parts, y: SSAValue) -> Pair:
    """cosh y and sinh y; the latter by expm1 near 0, where its exponentials would cancel."""
    half, up, down = p.number(0.5, y), p.apply("exp", y), p.apply("exp", p.apply("neg", y))
    near = p.apply("lt", p.apply("abs", y), p.number(1, y))
    exact = p.sub(p.apply("expm1", y), p.apply("expm1", p.apply("neg", y)))
    return Pair(p.mul(p.add(up, down), half), p.mul(p.select(near, exact, p.sub(up, down)), half))


def sine(p: Parts, z: Pair) -> Pair:
    """sin a cosh b + i cos a sinh b; where a is 0, so is the real part, infinite or NaN as b may be."""
    h = _hyperbolic(p, z.im)
    re = p.select(p.is_(z.re, 0), z.re, p.mul(p.apply("sin", z.re), h.re))
    return Pair(re, p.mul(p.apply("cos", z.re), h.im))


def cosine(p: Parts, z: Pair) -> Pair:
    """cos a cosh b - i sin a sinh b; where a is 0, so is the imaginary part, infinite or NaN as b may be."""
    h = _hyperbolic(p, z.im)
    im = p.apply("neg", p.mul(p.apply("sin", z.re), h.im))
    return Pair(p.mul(p.apply("cos", z.re), h.re), p.select(p.is_(z.re, 0), p.number(0, z.re), im))


def select(p: Parts, which: SSAValue, a: Pair, b: Pair) -> Pair:
    """Both parts of one operand."""
    return Pair(p.select(which, a.re, b.re), p.select(which, a.im, b.im))


FORMULAS: dict[str, Formula] = {
    **{name: partwise(name) for name in ("add", "sub", "neg")},
    "mul": multiply,
    "div": divide,
    "abs": magnitude,
    "sign": sign,
    "sin": sine,
    "cos": cosine,
    "select": select,
    "eq": lambda p, x, y: p.both(p.apply("eq", x.re, y.re), p.apply("eq", x.im, y.im)),
    "ne": lambda p, x, y: p.either(p.apply("ne", x.re, y.re), p.apply("ne", x.im, y.im)),
}
"""By function, on pairs; those that give one real number give no pair."""
