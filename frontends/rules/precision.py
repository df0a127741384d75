"""Rounding to formats of fewer bits: reduce_precision, on the bits of its operand."""

from __future__ import annotations

import ml_dtypes
from xdsl.ir import SSAValue

from ...dialects.dtypes import element_type, itemsize, numpy_dtype, tensor
from ...dialects.graph.interface import element_of, shape_of
from .. import bindings
from ..bindings import Op
from ..walk import Walk
from .base import Results, Types, Values


def reduce_precision(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """Nearest even in the mantissa, carries into the exponent included; what the exponents do not reach becomes
    infinite or a zero of its sign, subnormal numbers of the narrower format included; NaN stays NaN. As in XLA."""
    (x,) = args
    info = ml_dtypes.finfo(numpy_dtype(element_of(x)))
    exponent, mantissa = (
        bindings.int_attribute(op, "exponent_bits"),
        bindings.int_attribute(op, "mantissa_bits"),
    )
    if exponent >= info.nexp and mantissa >= info.nmant:
        return args
    bits = _Bits(walk, x)
    rounded = bits.x
    if mantissa < info.nmant:
        cut = info.nmant - mantissa
        odd = bits.apply("and", bits.shifted(rounded, cut), 1)
        rounded = bits.apply("add", bits.apply("add", rounded, odd), (1 << (cut - 1)) - 1)
        rounded = bits.apply("and", rounded, -1 << cut)
    if exponent < info.nexp:
        sign, exponents = 1 << (info.nexp + info.nmant), ((1 << info.nexp) - 1) << info.nmant
        bias, reach = (1 << (info.nexp - 1)) - 1, (1 << (exponent - 1)) - 1
        found = bits.apply("and", rounded, exponents)
        zero = bits.apply("and", rounded, sign)
        infinite = bits.apply("or", zero, exponents)
        over = bits.compare("gt", found, (bias + reach) << info.nmant)
        under = bits.compare("le", found, (bias - reach) << info.nmant)
        rounded = bits.select(over, infinite, rounded)
        rounded = bits.select(under, zero, rounded)
    out = walk.elementwise("bitcast", [rounded], types[0])
    number = walk.elementwise("eq", [x, x], tensor(shape_of(x), element_type("i1")))
    return [walk.elementwise("select", [number, out, x], types[0])]


class _Bits:
    """Arithmetic on the bits of floats, as unsigned integers."""

    def __init__(self, walk: Walk, x: SSAValue) -> None:
        self.walk, self.shape = walk, shape_of(x)
        self.width = 8 * itemsize(element_of(x))
        self.element = element_type(f"ui{self.width}")
        self.type = tensor(self.shape, self.element)
        self.x = walk.elementwise("bitcast", [x], self.type)

    def number(self, value: int) -> SSAValue:
        """An integer, modulo the width, everywhere."""
        return self.walk.fill(self.walk.scalar(value % (1 << self.width), self.element), self.shape)

    def apply(self, name: str, a: SSAValue, b: SSAValue | int) -> SSAValue:
        """A function of two operands."""
        return self.walk.elementwise(name, [a, self.number(b) if isinstance(b, int) else b], self.type)

    def shifted(self, a: SSAValue, by: int) -> SSAValue:
        """`a` without its lowest bits."""
        return self.apply("shr_logical", a, by)

    def compare(self, name: str, a: SSAValue, b: int) -> SSAValue:
        """A comparison with a number."""
        result = tensor(self.shape, element_type("i1"))
        return self.walk.elementwise(name, [a, self.number(b)], result)

    def select(self, which: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """`a` where `which` holds, else `b`."""
        return self.walk.elementwise("select", [which, a, b], self.type)
