"""Formulas of complex functions on pairs of real numbers, with the special values of XLA on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from ...dialects.dtypes import element_type, tensor
from ...dialects.graph import ELEMENTWISE
from ...dialects.graph.interface import element_of, shape_of
from ..forms.tensor_builder import TensorBuilder

BOOLEAN = element_type("i1")
INFINITY = float("inf")


@dataclass(frozen=True)
class Pair:
    """The real and the imaginary part of a value."""

    re: SSAValue
    im: SSAValue


class Parts:
    """Arithmetic on real tensors of one shape."""

    def __init__(self, rewriter: TensorBuilder):
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


def _infinite(p: Parts, z: Pair) -> SSAValue:
    """Where a part is infinite."""
    return p.either(*(p.is_(p.apply("abs", half), INFINITY) for half in (z.re, z.im)))


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

    small = case(p.both(finite(x), _infinite(p, y)), 0.0, x, Pair(boxed(c), boxed(d)), Pair(re, im))
    large = case(p.both(_infinite(p, x), finite(y)), INFINITY, Pair(boxed(a), boxed(b)), y, small)
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


def hyperbolic_tangent(p: Parts, z: Pair) -> Pair:
    """tanh z = (sinh a cosh a + i sin b cos b) / (sinh^2 a + cos^2 b): a sum of squares, which cancels nowhere (after
    Kahan, Branch Cuts for Complex Elementary Functions, 1987, section 7). From |a| = 20 on, the first part is 1 in f32,
    and the second 4 sin b cos b exp(-2 |a|)."""
    a, b = z.re, z.im
    size, one = p.apply("abs", a), p.number(1, a)
    far = p.apply("ge", size, p.number(20, a))
    h = _hyperbolic(p, p.select(far, one, a))
    sin, cos = p.apply("sin", b), p.apply("cos", b)
    turned = p.mul(sin, cos)
    below = p.add(p.mul(h.im, h.im), p.mul(cos, cos))
    shrunk = p.apply("exp", p.apply("neg", size))
    re = p.select(far, p.signed(one, a), p.div(p.mul(h.im, h.re), below))
    im = p.select(far, p.mul(p.mul(p.mul(p.number(4, b), turned), shrunk), shrunk), p.div(turned, below))
    # with an angle that is infinite or NaN there is a limit at infinity only; a number stays a number's
    lost, infinite = p.is_nan(turned), p.is_(size, INFINITY)
    re = p.select(p.both(lost, p.apply("ne", size, p.number(INFINITY, a))), p.number(float("nan"), a), re)
    zero = p.number(0, b)
    return Pair(re, p.select(p.is_(b, 0), b, p.select(p.both(lost, infinite), zero, im)))


def tangent(p: Parts, z: Pair) -> Pair:
    """tan z = -i tanh(i z), and tanh is odd in each part's sign: the parts change places."""
    turned = hyperbolic_tangent(p, Pair(z.im, z.re))
    return Pair(turned.im, turned.re)


def inverse_root(p: Parts, z: Pair) -> Pair:
    """conj(sqrt z) / |z| with both parts scaled by the larger one, m, so that nothing overflows: sqrt z is sqrt m times
    u + iv, u = sqrt((h + |a|) / 2), v = |b| / 2u, or v + iu left of the imaginary axis (Kahan, as above)."""
    a, b = z.re, z.im
    m = p.apply("max", p.apply("abs", a), p.apply("abs", b))
    x, y = (p.div(p.apply("abs", half), m) for half in (a, b))
    h = p.apply("sqrt", p.add(p.mul(x, x), p.mul(y, y)))
    half = p.number(0.5, a)
    u = p.apply("sqrt", p.mul(p.add(h, x), half))
    v = p.div(p.mul(y, half), u)
    scale = p.mul(h, p.apply("sqrt", m))
    left = p.apply("lt", a, p.number(0, a))
    low, minus = p.div(v, scale), p.apply("neg", b)
    high = p.div(u, scale)
    re, im = p.select(left, low, high), p.signed(p.select(left, high, low), minus)
    none, infinite = p.is_(m, 0), _infinite(p, z)
    zero, nan = p.number(0, a), p.number(float("nan"), a)
    re = p.select(none, p.number(INFINITY, a), p.select(infinite, zero, re))
    return Pair(
        re, p.select(none, nan, p.select(infinite, p.signed(zero, minus), p.select(p.is_nan(re), nan, im)))
    )


def exponential_minus_one(p: Parts, z: Pair) -> Pair:
    """expm1(a) cos b - 2 sin^2(b / 2) + i exp(a) sin b: no exponential near 1 has 1 taken from it."""
    half = p.apply("sin", p.mul(z.im, p.number(0.5, z.im)))
    bent = p.mul(p.number(2, half), p.mul(half, half))
    re = p.sub(p.mul(p.apply("expm1", z.re), p.apply("cos", z.im)), bent)
    im = p.mul(p.apply("exp", z.re), p.apply("sin", z.im))
    return Pair(re, p.select(p.is_(z.im, 0), z.im, im))


def logistic(p: Parts, z: Pair) -> Pair:
    """1 / (1 + exp(-z))."""
    size, minus = p.apply("exp", p.apply("neg", z.re)), p.apply("neg", z.im)
    one, zero = p.number(1, z.re), p.number(0, z.re)
    turned = p.select(p.is_(minus, 0), minus, p.mul(size, p.apply("sin", minus)))
    return divide(p, Pair(one, zero), Pair(p.add(one, p.mul(size, p.apply("cos", minus))), turned))


def _polar(p: Parts, size: SSAValue, angle: SSAValue) -> Pair:
    return Pair(p.mul(size, p.apply("cos", angle)), p.mul(size, p.apply("sin", angle)))


def cube_root(p: Parts, z: Pair) -> Pair:
    """cbrt|z| and a third of the angle."""
    length = p.apply("cbrt", magnitude(p, z))
    third = p.mul(p.apply("atan2", z.im, z.re), p.number(1 / 3, z.re))
    found, zero = _polar(p, length, third), p.is_(length, 0)
    return Pair(*(p.select(zero, length, half) for half in (found.re, found.im)))


def power(p: Parts, z: Pair, w: Pair) -> Pair:
    """|z|^c exp(-d t) with the angle c t + d log|z|, t that of z. 1 to anything and anything to 0 is 1, 0 to a positive
    number 0 (Kahan, as above, section 10); infinity to a real number is real."""
    length, t = magnitude(p, z), p.apply("atan2", z.im, z.re)
    size = p.mul(p.apply("pow", length, w.re), p.apply("exp", p.apply("neg", p.mul(w.im, t))))
    angle = p.add(p.mul(w.re, t), p.mul(w.im, p.apply("log", length)))
    found = _polar(p, size, angle)
    one, zero = p.number(1, t), p.number(0, t)
    level, plain = p.is_(z.im, 0), p.is_(w.im, 0)
    to_zero, of_one = p.both(p.is_(w.re, 0), plain), p.both(p.is_(z.re, 1), level)
    endless = p.both(p.both(level, p.is_(z.re, INFINITY)), p.both(plain, p.apply("eq", w.re, w.re)))
    none = p.both(p.both(p.is_(length, 0), plain), p.apply("ge", w.re, zero))
    re = p.select(none, zero, p.select(endless, size, found.re))
    unit, bare = p.either(to_zero, of_one), p.either(none, endless)
    return Pair(p.select(unit, one, re), p.select(p.either(unit, bare), zero, found.im))


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
    "tanh": hyperbolic_tangent,
    "tan": tangent,
    "rsqrt": inverse_root,
    "expm1": exponential_minus_one,
    "logistic": logistic,
    "cbrt": cube_root,
    "pow": power,
    "select": select,
    "eq": lambda p, x, y: p.both(p.apply("eq", x.re, y.re), p.apply("eq", x.im, y.im)),
    "ne": lambda p, x, y: p.either(p.apply("ne", x.re, y.re), p.apply("ne", x.im, y.im)),
}
"""By function, on pairs; those that give one real number give no pair."""
