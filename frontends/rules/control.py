"""Control flow, calls, and ops that change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from ...dialects.base import integer_attr
from ...dialects.dtypes import dtype_name, element_type, tensor
from ...dialects.graph import ReduceOp
from ...dialects.graph.interface import element_of, shape_of
from .. import bindings
from ..bindings import Op
from ..errors import FrontendError
from ..known import count_trips
from ..walk import Rule, Walk
from .base import Results, Types, Values
from .bounded import as_bounded
from .elementwise import FUNCTION_RULES
from .movement import as_index
from .regions import branches, results_of, while_loop

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

ARGUMENT = "stablehlo.shape_refinement_operand_wrapper"
"""The custom call that stands behind an argument whose shape is refined, and which gives it its type."""

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
    if bindings.sets_size(op):
        return _marked(walk, op, args)
    made = _function(bindings.string(op, "name"), walk, op, args, types)
    return walk.call(bindings.string(op, "decomposition"), args) if made is None else made


def _marked(walk: Walk, op: Op, args: Values) -> Results:
    """What `tw.bounded` becomes."""
    return [walk.extents.mark(args[0], as_index(walk, args[1]), *bindings.mark_attributes(op))]


def _custom_call(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    target = bindings.string(op, "call_target_name")
    of_python = "python" in target and "callback" in target
    asked_for = of_python and bindings.primitive(op) == "io_callback"
    if (not types and not asked_for) or (target in IDENTITIES and [a.type for a in args] == types):
        return args if types else []  # without results it can only be for effect, such as jax.debug.print
    if bindings.sets_size(op):
        return _marked(walk, op, args)
    if target == ARGUMENT:
        return as_bounded(walk, op, args, types)
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
    loop, places = while_loop(walk, args, types, op.regions)
    counted = count_trips(loop, walk.number)
    if counted is not None:
        loop.counter, loop.trip_count = map(integer_attr, counted)
    return results_of(walk, loop, len(types), places)


def _branches(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    index, regions = chosen(walk, op.operation.name, args[0], list(op.regions))
    return branches(walk, index, types, regions)


def chosen(
    walk: Walk, name: str, which: SSAValue, regions: Sequence[Any]
) -> tuple[SSAValue, Sequence[Any]]:
    """The number of a region and the regions that it counts, of a `case` or an `if`."""
    if name == "stablehlo.if":
        return walk.elementwise("convert", [which], tensor([], _I32)), regions[::-1]
    return which, regions


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
