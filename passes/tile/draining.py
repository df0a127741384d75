"""Sums that are scaled on their way out of the cube: what the fixpipe does in the place of an epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from ...dialects.dtypes import dtype_name, limits
from ...dialects.graph import ELEMENTWISE, FusionOp
from ...dialects.graph.interface import element_of
from ...machine import Machine
from ..access import splat_of


@dataclass(frozen=True)
class ScaledDrain:
    """i32 sums times `factor`, and, where integers are stored, rounded to even, plus `zero`, saturated."""

    factor: float
    zero: int


def scaled_drain(fusion: FusionOp, sums: SSAValue, machine: Machine) -> ScaledDrain | None:
    """What the fixpipe does to the sums of a fusion that has nothing else behind its product; None where it cannot."""
    yielded = fusion.body.block.last_op
    assert yielded is not None
    if len(yielded.operands) != 1 or dtype_name(element_of(sums)) != "i32":
        return None
    end = yielded.operands[0]
    dtype = dtype_name(element_of(end))
    scaled = _only_user(_only_user(sums, "convert"), "mul")
    if scaled is None or dtype_name(element_of(scaled.results[0])) != "f32":
        return None
    factor = _number(scaled)
    if dtype in ("i8", "ui8"):
        rounded = _only_user(scaled.results[0], "round_even")
        moved = None if rounded is None else _only_user(rounded.results[0], "add")
        zero = _number(moved) if moved is not None else 0
        clamped = None if rounded is None else _only_user((moved or rounded).results[0], "clamp")
        if clamped is None or (splat_of(clamped.operands[0]), splat_of(clamped.operands[2])) != limits(dtype):
            return None
        last = _only_user(clamped.results[0], "convert")
    else:
        zero, last = 0, _only_user(scaled.results[0], "convert")
    if last is None or last.results[0] is not end or factor is None or zero is None or zero != int(zero):
        return None
    if machine.scales_drains("i32", dtype, factor, int(zero)) is not None:
        return None
    return ScaledDrain(float(factor), int(zero))


def _only_user(made: SSAValue | Operation | None, function: str) -> Operation | None:
    """The op that computes a function of a value, where nothing else uses the value."""
    if made is None:
        return None
    value = made if isinstance(made, SSAValue) else made.results[0]
    user = value.get_user_of_unique_use()
    return user if isinstance(user, ELEMENTWISE[function]) else None


def _number(op: Operation) -> float | None:
    """The operand of an op of two that is one known number."""
    return next((n for v in op.operands if (n := splat_of(v)) is not None), None)
