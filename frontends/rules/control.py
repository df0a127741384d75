"""Control flow, calls, and ops that change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Region, SSAValue

from ...dialects.base import integer_attr
from ...dialects.dtypes import dtype_name, element_type, tensor
from ...dialects.graph import CaseOp, ReduceOp, WhileOp
from ...dialects.graph.interface import element_of, shape_of
from .. import bindings
from ..bindings import Op
from ..errors import FrontendError
from ..known import count_trips
from ..walk import Rule, Walk
from .base import Results, Types, Values
from .elementwise import FUNCTION_RULES

_I32 = element_type("i32")

IDENTITIES = frozenset(
    {
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "LayoutConstraint",
        "annotate_device_placement",
        "xla.sdy.FuncResultSharding",
    }
)
"""Custom calls that only say where or how data lies."""

_OF_THE_HOST = (
    "lapack_",
    "mhlo.",
    "chlo.",
    "stablehlo.",
    "xla.",
    "__",
    "TopK",
    "ApproxTopK",
    "SliceToDynamic",
    "PadToStatic",
)
"""How the names of custom calls begin that XLA has without a registration, or gets when JAX is imported."""


def _same(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return args


def _call(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return walk.call(bindings.string(op, "callee"), args)


def _function(name: str, walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """`mhlo.erf`, `chlo.tan`: exporters wrap functions that StableHLO lacks and the graph level may have."""
    dialect, _, function = name.rpartition(".")
    rule = FUNCTION_RULES.get(function) if dialect in ("mhlo", "chlo") else None
    return rule(walk, op, args, types) if rule and walk.native(args, types) else None


def _composite(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    made = _function(bindings.string(op, "name"), walk, op, args, types)
    return walk.call(bindings.string(op, "decomposition"), args) if made is None else made


def _custom_call(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    target = bindings.string(op, "call_target_name")
    of_python = "python" in target and "callback" in target
    asked_for = of_python and bindings.primitive(op) == "io_callback"
    if (not types and not asked_for) or (target in IDENTITIES and [a.type for a in args] == types):
        return args if types else []  # without results it can only be for effect, such as jax.debug.print
    if of_python:
        if bindings.has_side_effect(op):
            raise FrontendError(
                f"{walk.named()} has effects in Python, which a compiled program keeps no order of: "
                "use jax.pure_callback, or do it outside"
            )
        if not bindings.calls_numbered(op):
            raise FrontendError(
                f"{walk.named()} calls a Python function, which StableHLO alone does not hold"
            )
        return None
    if walk.knows_call(target):
        return walk.custom_call(target, op, args, types)
    if target == "check.eq":
        return _all_equal(walk, args, types)
    if not target.startswith(_OF_THE_HOST) and target not in bindings.host_targets():
        raise FrontendError(f"{walk.named()} calls '{target}', which neither the device nor the host has")
    return _function(target, walk, op, args, types)


def _all_equal(walk: Walk, args: Values, types: Types) -> Results:
    """StableHLO's own assertion, as a value: whether two tensors (of types of the device) are equal."""
    if not walk.native(args, types):
        raise FrontendError(f"{walk.named()} compares tensors of {dtype_name(element_of(args[0]))}")
    shape = shape_of(args[0])
    equal = walk.elementwise("eq", args, tensor(shape, types[0].element_type))
    return walk.emit(ReduceOp, [equal], types, kind="and", dims=range(len(shape))) if shape else [equal]


def _while(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    condition, body = (walk.region(region, types) for region in op.regions)
    loop = walk.emit_control(WhileOp, args, types, [condition, body])
    counted = count_trips(loop, walk.number)
    if counted is not None:
        loop.counter, loop.trip_count = map(integer_attr, counted)
    return loop.results


def _branches(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return branched(walk, op.operation.name, args, types, [walk.region(r, []) for r in op.regions])


def branched(
    walk: Walk, name: str, args: Values, types: Sequence[Attribute], regions: Sequence[Region]
) -> Sequence[SSAValue]:
    """A choice of one of several regions, which a `case` or an `if` makes."""
    if name == "stablehlo.if":
        args, regions = [walk.elementwise("convert", args, tensor([], _I32))], regions[::-1]
    return walk.emit_control(CaseOp, args, types, regions).results


BRANCHES = frozenset({"stablehlo.case", "stablehlo.if"})
"""Ops that choose one of their regions."""


RULES: dict[str, Rule] = {
    "func.call": _call,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.optimization_barrier": _same,
    "sdy.sharding_constraint": _same,
    "stablehlo.while": _while,
    **dict.fromkeys(sorted(BRANCHES), _branches),
}
