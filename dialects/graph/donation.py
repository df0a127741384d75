"""Donated arguments: the caller gives up the tensor, so that the program may use its memory for anything.

An argument of @main says so with the attribute `graph.donated`, at every level:

    func.func @main(%cache: tensor<8x512xf16> {graph.donated}, %x: tensor<512xf16>) -> tensor<8x512xf16>
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import VerifyException

from ..base import text

DONATED = "graph.donated"


def donated(func: FuncOp) -> tuple[bool, ...]:
    """For each argument of a function, whether it is donated."""
    if func.arg_attrs is None:
        return (False,) * len(func.function_type.inputs)
    return tuple(DONATED in attrs.data for attrs in func.arg_attrs)


def donate(func: FuncOp, flags: Sequence[bool]) -> None:
    """Donates the arguments whose flag is true, besides those that are already; the last ones may have no flags."""
    if not any(flags):
        return
    count = len(func.function_type.inputs)
    known = func.arg_attrs.data if func.arg_attrs is not None else [DictionaryAttr({})] * count
    flags = [*flags, *[False] * (count - len(flags))]
    func.arg_attrs = ArrayAttr(
        [
            DictionaryAttr({**attrs.data, DONATED: UnitAttr()}) if flag else attrs
            for attrs, flag in zip(known, flags, strict=True)
        ]
    )


def keep_all(func: FuncOp) -> None:
    """Donates no argument any more."""
    if func.arg_attrs is not None:
        kept = [{k: v for k, v in attrs.data.items() if k != DONATED} for attrs in func.arg_attrs]
        func.arg_attrs = ArrayAttr([DictionaryAttr(attrs) for attrs in kept])


def verify_donation(func: FuncOp) -> None:
    """Only @main has donated arguments, and the attribute has no value. Raises VerifyException."""
    for i, attrs in enumerate(func.arg_attrs or ()):
        if DONATED not in attrs.data:
            continue
        if not isinstance(attrs.data[DONATED], UnitAttr):
            raise VerifyException(f"argument {i} of @{text(func.sym_name)}: {DONATED} takes no value")
        if text(func.sym_name) != "main":
            raise VerifyException(
                f"argument {i} of @{text(func.sym_name)} is donated; only the arguments of @main can be"
            )
