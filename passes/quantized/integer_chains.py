"""Products of stored numbers: i32 sums, to which a bias is added in i32, and one factor for each feature.

    x . w * s[n] + b[n]    is    (x . w + i[n]) * s[n]    with    i = round(b / s)

Where nothing but its quantization with a scale t is made of the result, it stays in integers:

    quantize(relu(...), t)    is    saturate(round(max((x . w + i[n]) * f[n], 0)))    with    f = s / t

A residual that is stored, or is another product, is added in units of t, in f16.

Products of 8-bit floats go the same way, with sums and a bias in f32, and without rounding to whole numbers.

s and f have 10 bits of mantissa, as what drains the cube's sums takes them (AscendC, Fixpipe: the lower 13 bits of the
parameters of VDEQF16 and VREQ8 are 0). Sums are exact, so that nothing else is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import UnitAttr, f16, f32, i32
from xdsl.ir import Operation, SSAValue

from ...dialects.base import to_ints
from ...dialects.dtypes import element_type, is_float, is_integer, limits, tensor
from ...dialects.graph import ELEMENTWISE, ContractOp, DequantizeOp, QuantizeOp, StorageOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.quantized import QuantizedFacts
from ..forms.access import splat_of
from .products_named import NamedProduct, feature_dims
from .quantized import StorageBuilder

PACKED = "graph.packed"
"""Attribute of ops whose results stay the same as long as the weights do, and are what is kept of them."""

MOST_BIAS = 2.0**30
"""What is added to sums has no larger magnitude."""

MOST_TIMES = 128
"""Residuals are added in a type that has numbers so many times larger than what is stored: what is larger still is
infinite there, and two of them no number."""

POSITIVE = 0x7FFFE000
"""The bits of a positive f32 but for the lower 13 of its mantissa: of a word, the fixpipe makes a factor of these, with
10 bits of mantissa."""


ui32, ui64 = element_type("ui32"), element_type("ui64")


@dataclass
class IntegerSums:
    """The sums of a product, in i32, or in f32 where 8-bit floats are multiplied, with its bias. scale: in f32, what
    one unit of the sums of each feature stands for; features: the dimensions along which it goes; result: the f32
    numbers that the sums stand for; drained: whether they leave the cube times factors."""

    total: SSAValue
    scale: SSAValue
    features: tuple[int, ...]
    result: SSAValue
    drained: bool


def keep(value: SSAValue) -> SSAValue:
    """Marks a value as one that is made once for the weights."""
    if isinstance(value.owner, Operation):
        value.owner.attributes[PACKED] = UnitAttr()
    return value


def short(build: StorageBuilder, x: SSAValue) -> SSAValue:
    """Positive f32 numbers without the lower 13 bits of their mantissa."""
    return _number(build, build.add(ELEMENTWISE["bitcast"], [x], tensor(shape_of(x), ui32)))


def _number(build: StorageBuilder, bits: SSAValue) -> SSAValue:
    shape = shape_of(bits)
    bits = build.elementwise("and", bits, build.constant(POSITIVE, shape, ui32))
    return build.add(ELEMENTWISE["bitcast"], [bits], tensor(shape, f32))


def factors(build: StorageBuilder, x: SSAValue, drained: bool) -> SSAValue:
    """Factors of features, kept as the machine takes them: where sums are `drained` with factors, as words of 64 bits
    whose lower half is an f32 of few bits."""
    x = short(build, x)
    if not drained:
        return keep(x)
    shape = shape_of(x)
    bits = build.add(ELEMENTWISE["bitcast"], [x], tensor(shape, ui32))
    words = keep(build.convert(bits, ui64))
    return _number(build, build.convert(words, ui32))


def sums_of_stored(build: StorageBuilder, product: NamedProduct, x: SSAValue, w: SSAValue) -> SSAValue:
    """The sums of the products of stored numbers x and w: in i32, or in f32 where they are 8-bit floats."""
    op = product.op
    operands = [x, w] if product.weight else [w, x]
    kind = f32 if is_float(element_of(x)) else i32
    return build.add(type(op), operands, tensor(shape_of(op.result), kind), **op.properties)


def integer_sums(
    build: StorageBuilder,
    product: NamedProduct,
    total: SSAValue,
    w: SSAValue,
    zero: int,
    scale: SSAValue,
    shift: SSAValue | None,
    drained: bool,
) -> IntegerSums:
    """What the sums of a product of stored numbers stand for, plus a shift; zero: the zero point of the input; w: the
    stored weights, in i8 or in an 8-bit float, as the product has them; scale, shift: f32, over the features of the
    result; drained: whether the cube's sums leave it times factors."""
    op, features = product.op, tuple(feature_dims(product))
    out = shape_of(op.result)
    bias = _bias(build, product, w, zero, scale, shift)
    if bias is not None:
        total = build.elementwise("add", total, build.broadcast(bias, out, features))
    factor = factors(build, scale, drained)
    result = build.elementwise("mul", build.convert(total, f32), build.broadcast(factor, out, features))
    return IntegerSums(total, scale, features, result, drained)


def _bias(
    build: StorageBuilder,
    product: NamedProduct,
    w: SSAValue,
    zero: int,
    scale: SSAValue,
    shift: SSAValue | None,
) -> SSAValue | None:
    """What is added to the sums of each feature, in their type: the shift, and what the zero point of the input has
    added."""
    found: SSAValue | None = None
    if shift is not None and is_float(element_of(w)):
        found = build.elementwise("div", shift, scale)
    elif shift is not None:
        units = build.elementwise("div", shift, scale)
        ends = [build.constant(end, shape_of(units), f32) for end in (-MOST_BIAS, MOST_BIAS)]
        units = build.elementwise("round_even", build.elementwise("clamp", ends[0], units, ends[1]))
        found = build.convert(units, i32)
    if zero:
        op = product.op
        assert isinstance(op, ContractOp)
        dims: Sequence[int] = sorted(to_ints(op.rhs_contract if product.weight else op.lhs_contract))
        added = build.reduce(build.convert(w, i32), "sum", dims)
        added = build.elementwise("mul", added, build.constant(-zero, shape_of(added), i32))
        found = added if found is None else build.elementwise("add", found, added)
    return None if found is None else keep(found)


def requantize(found: Sequence[IntegerSums]) -> None:
    """Replaces the quantization of results by integer arithmetic, where nothing else is made of them."""
    known = {sums.result: sums for sums in found}
    for sums in found:
        chain = _to_quantization(sums.result, known)
        if chain is None:
            continue
        op, relu, other = chain
        build = StorageBuilder(op)
        stored = (
            _requantized(build, op, sums, relu) if other is None else _residual(build, op, sums, relu, other)
        )
        op.result.replace_all_uses_with(build.add(StorageOp, [stored], op.result.type))


def _requantized(build: StorageBuilder, op: QuantizeOp, sums: IntegerSums, relu: bool) -> SSAValue:
    """Sums as another scale stores them. Negative ones become 0 behind the scaling, where a conversion to the stored
    type may do so as well."""
    facts, out = op.kind.data, shape_of(op.result)
    x = _in_units(build, sums, facts, sums.total)
    x = build.elementwise("max", x, build.constant(0, out, f32)) if relu else x
    zero = _only_zero(facts)
    return build.saturated(x, facts, build.constant(zero, out, f32) if zero else None)


def _residual(
    build: StorageBuilder, op: QuantizeOp, sums: IntegerSums, relu: bool, other: IntegerSums | DequantizeOp
) -> SSAValue:
    """Sums and what is added to them, both in units of the scale that stores the result: in f16, which has 11 bits for
    the 8 of it; in f32 where numbers are stored that f16 has not many times larger."""
    facts, out = op.kind.data, shape_of(op.result)
    work = f16 if MOST_TIMES * facts.range[1] < limits("f16")[1] else f32
    x = build.convert(_in_units(build, sums, facts, sums.total), work)
    if isinstance(other, IntegerSums):
        y = build.convert(_in_units(build, other, facts, other.total), work)
    else:
        source = other.kind.data
        stored = build.convert(build.add(StorageOp, [other.x], tensor(out, other.kind.storage)), work)
        zero = _only_zero(source)
        if zero:
            stored = build.elementwise("sub", stored, build.constant(zero, out, work))
        (factor,) = source.quotients(facts)
        y = build.elementwise("mul", stored, build.constant(factor, out, work))
    x = build.elementwise("add", x, y)
    if is_integer(facts.storage):
        x = build.elementwise("round_even", x)
    zero = _only_zero(facts)
    if zero:
        x = build.elementwise("add", x, build.constant(zero, out, work))
    low, high = facts.range
    ends = [build.constant(end, out, work) for end in (max(low, zero) if relu else low, high)]
    return build.convert(build.elementwise("clamp", ends[0], x, ends[1]), element_type(facts.storage))


def _in_units(build: StorageBuilder, sums: IntegerSums, facts: QuantizedFacts, total: SSAValue) -> SSAValue:
    """Sums as f32 numbers of units of a scale."""
    assert facts.scales is not None
    inverse = build.constant(float(np.float32(1 / facts.scales[0])), shape_of(sums.scale), f32)
    factor = factors(build, build.elementwise("mul", sums.scale, inverse), sums.drained)
    return build.elementwise(
        "mul", build.convert(total, f32), build.broadcast(factor, shape_of(total), sums.features)
    )


def _only_zero(facts: QuantizedFacts) -> int:
    assert facts.zeros is not None
    return facts.zeros[0]


def _to_quantization(
    value: SSAValue, known: Mapping[SSAValue, IntegerSums]
) -> tuple[QuantizeOp, bool, IntegerSums | DequantizeOp | None] | None:
    """The quantization of a value to one scale, behind the addition of another quantized value or not, and behind a
    relu or not; None where the value is used otherwise."""
    relu, other = False, None
    while (user := value.get_user_of_unique_use()) is not None:
        if isinstance(user, QuantizeOp):
            return (user, relu, other) if _is_plain(user.kind.data) else None
        if isinstance(user, ELEMENTWISE["max"]) and not relu:
            if 0 not in (splat_of(v) for v in user.operands if v is not value):
                return None
            relu = True
        elif isinstance(user, ELEMENTWISE["add"]) and not relu and other is None:
            added = next((v for v in user.operands if v is not value), value)
            while isinstance(added.owner, ELEMENTWISE["convert"]) and is_float(
                element_of(added.owner.operands[0])
            ):
                added = added.owner.operands[0]
            made = added.owner
            other = known.get(added)
            if other is None and isinstance(made, DequantizeOp) and _is_plain(made.kind.data):
                other = made
            if other is None or (isinstance(other, IntegerSums) and added is value):
                return None
        elif not (isinstance(user, ELEMENTWISE["convert"]) and is_float(element_of(user.results[0]))):
            return None
        value = user.results[0]
    return None


def _is_plain(facts: QuantizedFacts) -> bool:
    """Whether numbers are stored in i8, or in 8-bit floats, with one known scale."""
    narrow = facts.storage == "i8" or is_float(facts.storage)
    return narrow and facts.scales is not None and facts.zeros is not None and not facts.blocks
