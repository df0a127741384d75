"""Scalar functions."""

from __future__ import annotations

from xdsl.ir import SSAValue

from ...dialects.dtypes import dtype_name, element_type, is_float, itemsize, same_width, tensor
from ...dialects.elementwise import FUNCTIONS
from ...dialects.graph import ConstantOp
from ...dialects.graph.ops import element_of, shape_of
from .. import bindings
from ..bindings import Op
from ..walk import Rule, Walk
from .base import Results, Types, Values, converted

NAMES = {
    "negate": "neg",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "log_plus_one": "log1p",
    "sine": "sin",
    "cosine": "cos",
    "round_nearest_even": "round_even",
    "round_nearest_afz": "round_away",
    "count_leading_zeros": "clz",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "maximum": "max",
    "minimum": "min",
    "power": "pow",
    "remainder": "rem",
    "shift_left": "shl",
    "shift_right_logical": "shr_logical",
    "shift_right_arithmetic": "shr_arithmetic",
}
"""StableHLO's names of functions where ours differ."""

_BOOLEAN = element_type("i1")
_ON_BOOLEANS = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "not", "convert"})


def same_shape(name: str) -> Rule:
    """The rule of an op that is graph.<name> on operands of one shape."""

    def rule(walk: Walk, op: Op, args: Values, types: Types) -> Results:
        if element_of(args[0]) == _BOOLEAN and name not in _ON_BOOLEANS:
            return None
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
    return [walk.elementwise("convert", args, types[0])] if walk.native(args, types) else None


def _bitcast(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """Between types of one width; others split or join elements, which the vector unit does not."""
    if args[0].type == types[0]:
        return args
    try:
        same_width(element_of(args[0]), types[0].element_type)
    except ValueError:
        return None
    return [walk.elementwise("bitcast", args, types[0])]


def _compare(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    if bindings.compare_type(op) == "TOTALORDER" and is_float(element_of(args[0])):
        args = [ordered(walk, a) for a in args]
    return [walk.elementwise(bindings.direction(op).lower(), args, types[0])]


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
    shape = types[0].get_shape()
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
    "bitcast_convert": _bitcast,
    "convert": _convert,
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "square": _square,
    "is_inf": _is_infinite(None),
    "is_pos_inf": _is_infinite(float("inf")),
    "is_neg_inf": _is_infinite(float("-inf")),
}
_THEIR_NAMES = {ours: theirs for theirs, ours in NAMES.items()}
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})

FUNCTION_RULES: dict[str, Rule] = {
    **{_THEIR_NAMES.get(name, name): same_shape(name) for name in FUNCTIONS if name not in _COMPARISONS},
    **_SPECIAL,
}
"""Rules by function name, without the dialect; StableHLO and CHLO share them."""

RULES: dict[str, Rule] = {
    f"{dialect}.{name}": rule for dialect in ("stablehlo", "chlo") for name, rule in FUNCTION_RULES.items()
}
"""Ops on element types of the device."""

STRUCTURAL: dict[str, Rule] = {"stablehlo.convert": _convert}
"""Ops on any element types."""
