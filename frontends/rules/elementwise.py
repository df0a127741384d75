"""Scalar functions."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from ...dialects.dtypes import dtype_name, element_type, is_complex, is_float, itemsize, shape_in, tensor
from ...dialects.elementwise import FUNCTIONS, PARTS, function_named
from ...dialects.graph import BroadcastOp, ConstantOp, IotaOp, ReshapeOp, SliceOp
from ...dialects.graph.interface import element_of, shape_of
from .. import bindings
from ..bindings import Op
from ..walk import Rule, Walk
from .base import Results, Types, Values, converted
from .precision import reduce_precision

NAMES = {f.stablehlo: f.name for f in (*FUNCTIONS.values(), *PARTS.values()) if f.stablehlo}
"""Our functions by the ops of StableHLO that mean them, without the dialect, and by `custom_call @target`."""

_BOOLEAN = element_type("i1")
_ON_BOOLEANS = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "not", "convert"})


def same_shape(name: str) -> Rule:
    """The rule of an op that is graph.<name> on operands of one shape."""
    function = function_named(name)
    called = " @" in (function.stablehlo or "")

    def rule(walk: Walk, op: Op, args: Values, types: Types) -> Results:
        if element_of(args[0]) == _BOOLEAN and name not in _ON_BOOLEANS:
            return None
        if called and not function.defined_on(dtype_name(element_of(args[-1]))):
            return None  # of its own ops StableHLO has seen to that
        return [walk.elementwise(name, args, types[0])]

    return rule


def _convert(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """Of any element types: a constant is converted here, whatever the device can do."""
    if args[0].type == types[0]:
        return args
    owner = args[0].owner
    folded = (
        converted(owner.value.data, dtype_name(types[0].element_type))
        if isinstance(owner, ConstantOp)
        else None
    )
    if folded is not None:
        return [walk.constant(folded)]
    possible = walk.movable(args, types) and not (
        is_complex(element_of(args[0])) and types[0].element_type == _BOOLEAN
    )
    return [walk.elementwise("convert", args, types[0])] if possible else None


def _part(name: str) -> Rule:
    """Of complex numbers; a real one is its own real part, and has no other."""

    def rule(walk: Walk, op: Op, args: Values, types: Types) -> Results:
        if is_complex(element_of(args[0])):
            return [walk.elementwise(name, args, types[0])]
        return (
            args if name == "real" else [walk.fill(walk.scalar(0, types[0].element_type), shape_of(args[0]))]
        )

    return rule


def _bitcast(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """Between types of one width; an element of another width is split into, or joined from, integers along the last
    dimension, the lowest bits first."""
    x, out = args[0], types[0]
    if x.type == out:
        return args
    if _BOOLEAN in (element_of(x), out.element_type):
        return None
    source, target = itemsize(element_of(x)), itemsize(out.element_type)
    if source > target:
        x = _split(walk, _as_bits(walk, x), source // target)
    elif source < target:
        x = _joined(walk, _as_bits(walk, x), target // source)
    return [x if x.type == out else walk.elementwise("bitcast", [x], out)]


def _unsigned(width: int) -> Attribute:
    """The unsigned integers of so many bytes."""
    return element_type(f"ui{8 * width}")


def _as_bits(walk: Walk, x: SSAValue) -> SSAValue:
    bits = tensor(shape_of(x), _unsigned(itemsize(element_of(x))))
    return x if x.type == bits else walk.elementwise("bitcast", [x], bits)


def _split(walk: Walk, x: SSAValue, parts: int) -> SSAValue:
    """Unsigned integers as `parts` narrower ones each, along a new last dimension."""
    shape, element = shape_of(x), element_of(x)
    out, width = (*shape, parts), itemsize(element) // parts
    (wide,) = walk.emit(BroadcastOp, [x], [tensor(out, element)], dims=range(len(shape)))
    (place,) = walk.emit(IotaOp, [], [tensor(out, element)], dim=len(shape))
    each = walk.fill(walk.scalar(8 * width, element), out)
    shift = walk.elementwise("mul", [place, each], place.type)
    moved = walk.elementwise("shr_logical", [wide, shift], wide.type)
    return walk.elementwise("convert", [moved], tensor(out, _unsigned(width)))


def _joined(walk: Walk, x: SSAValue, parts: int) -> SSAValue:
    """The inverse of `_split`: the last dimension, of `parts`, becomes one wider integer."""
    *shape, _ = shape_of(x)
    width = itemsize(element_of(x))
    element, zeros, ones = _unsigned(width * parts), [0] * len(shape), [1] * (len(shape) + 1)
    total: SSAValue | None = None
    for i in range(parts):
        kind = tensor([*shape, 1], element_of(x))
        (part,) = walk.emit(SliceOp, [x], [kind], starts=[*zeros, i], limits=[*shape, i + 1], strides=ones)
        (part,) = walk.emit(ReshapeOp, [part], [tensor(shape, element_of(x))])
        part = walk.elementwise("convert", [part], tensor(shape, element))
        if i:
            by = walk.fill(walk.scalar(8 * width * i, element), shape)
            part = walk.elementwise("shl", [part, by], part.type)
        total = part if total is None else walk.elementwise("or", [total, part], part.type)
    assert total is not None
    return total


def _compare(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    if bindings.compare_type(op) == "TOTALORDER" and is_float(element_of(args[0])):
        args = [ordered(walk, a) for a in args]
    name = bindings.direction(op).lower()
    if is_complex(element_of(args[0])) and not FUNCTIONS[name].complex_flops:
        return None  # complex numbers have no order, but XLA gives them one
    return [walk.elementwise(name, args, types[0])]


def ordered(walk: Walk, x: SSAValue) -> SSAValue:
    """Signed integers in the total order of the floats x (IEEE 754-2019, 5.10): its bits, those behind a minus sign
    flipped."""
    kind = tensor(shape_of(x), element_type(f"i{8 * itemsize(element_of(x))}"))
    bits = walk.elementwise("bitcast", [x], kind)
    below, rest = (
        walk.fill(walk.scalar(v, kind.element_type), shape_of(x))
        for v in (0, 2 ** (8 * itemsize(element_of(x)) - 1) - 1)
    )
    negative = walk.elementwise("lt", [bits, below], tensor(shape_of(x), _BOOLEAN))
    return walk.elementwise("select", [negative, walk.elementwise("xor", [bits, rest], kind), bits], kind)


def _select(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    predicate, *values = args
    return [walk.elementwise("select", [walk.fill(predicate, shape_of(values[0])), *values], types[0])]


def _clamp(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    shape = shape_in(types[0])
    return [walk.elementwise("clamp", [walk.fill(a, shape) for a in args], types[0])]


def _square(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return [walk.elementwise("mul", [args[0], args[0]], types[0])]


def _is_infinite(sign: float | None) -> Rule:
    def rule(walk: Walk, op: Op, args: Values, types: Types) -> Results:
        x = args[0] if sign else walk.elementwise("abs", args, args[0].type)
        infinity = walk.fill(walk.scalar(sign or float("inf"), element_of(x)), shape_of(x))
        return [walk.elementwise("eq", [x, infinity], types[0])]

    return rule


_SPECIAL: dict[str, Rule] = {
    "real": _part("real"),
    "imag": _part("imag"),
    "bitcast_convert": _bitcast,
    "convert": _convert,
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "square": _square,
    "reduce_precision": reduce_precision,
    "is_inf": _is_infinite(None),
    "is_pos_inf": _is_infinite(float("inf")),
    "is_neg_inf": _is_infinite(float("-inf")),
}
FUNCTION_RULES: dict[str, Rule] = {
    **{theirs: same_shape(ours) for theirs, ours in NAMES.items() if ours in FUNCTIONS},
    **_SPECIAL,
}
"""Rules by function name, without the dialect; StableHLO and CHLO share them."""

COMPLEX_RULES: dict[str, Rule] = {
    **{theirs: same_shape(n) for theirs, n in NAMES.items() if n in FUNCTIONS and FUNCTIONS[n].complex_flops},
    **{name: _SPECIAL[name] for name in ("compare", "select", "real", "imag")},
    "complex": same_shape("complex"),
}
"""Rules of functions of complex numbers, or that give some, by name."""

ON_COMPLEX: dict[str, Rule] = {f"stablehlo.{name}": rule for name, rule in COMPLEX_RULES.items()}
"""Ops on complex numbers, and element types of the device."""

RULES: dict[str, Rule] = {
    f"{dialect}.{name}": rule for dialect in ("stablehlo", "chlo") for name, rule in FUNCTION_RULES.items()
}
"""Ops on element types of the device."""

STRUCTURAL: dict[str, Rule] = {"stablehlo.convert": _convert}
"""Ops on any element types."""
