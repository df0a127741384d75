"""Makes HIVM ops from operands by name, in whatever order their classes declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, OptOperandDef, VarOperandDef, VarResultDef

OpT = TypeVar("OpT", bound=IRDLOperation)

Given = SSAValue | Sequence[SSAValue] | Attribute | bool | None


def made(kind: type[OpT], results: Sequence[Attribute] = (), /, **given: Given) -> OpT:
    """An op with operands and properties by their names; None and False: without."""
    definition = kind.get_irdl_definition()
    operands: list[Any] = []
    names = [name for name, _ in definition.operands]
    for name, of in definition.operands:
        value = given.get(name)
        several = isinstance(of, VarOperandDef | OptOperandDef)
        if not several:
            operands.append(value)
        elif value is None:
            operands.append([])
        else:
            operands.append([value] if isinstance(value, SSAValue) else value)
    kinds: list[Any] = []
    left = list(results)
    for _, of in definition.results:
        kinds.append(left if isinstance(of, VarResultDef) else left.pop(0))
    return kind.build(operands=operands, result_types=kinds, properties=_properties(given, names))


def _properties(given: Mapping[str, Given], operands: Sequence[str]) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for name, value in given.items():
        if name in operands or value is None or value is False:
            continue
        attr = UnitAttr() if value is True else value
        assert isinstance(attr, Attribute)
        found[name] = attr
    return found
