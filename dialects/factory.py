"""Makes the elementwise op classes of a level from the table in `elementwise.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from .base import FormattedOp
from .elementwise import FUNCTIONS, Function, formula

_OPERANDS = {1: ("x",), 2: ("lhs", "rhs"), 3: ("first", "second", "third")}


def make_elementwise(
    level: str,
    base: type[FormattedOp],
    module: str,
    value: type[Attribute],
    functions: Mapping[str, Function] = FUNCTIONS,
) -> dict[str, type[Any]]:
    """`{function name: op class}` for ops `level.<name>` on values of type `value`, deriving from `base`."""
    return {f.name: _make(level, f, base, module, value) for f in functions.values()}


def _make(
    level: str, function: Function, base: type[FormattedOp], module: str, value: type[Attribute]
) -> type[Any]:
    body: dict[str, Any] = {
        "__module__": module,
        "__doc__": f"`{function.name}` of each element: {formula(function.name)}.",
        "name": f"{level}.{function.name}",
        "result": result_def(value),
        "traits": traits_def(Pure()),
    }
    for name in _OPERANDS[function.arity]:
        body[name] = operand_def(value)
    title = "".join(part.capitalize() for part in function.name.split("_"))
    made: type[Any] = irdl_op_definition(type(f"{title}Op", (base,), body))
    made.FUNCTION = function
    return made
