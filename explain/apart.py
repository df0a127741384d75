"""Why kernels that hand on a value are not one, launches that follow each other are not one, attention is not one
kernel, operands get another layout or not, and sums are cut or not: what the passes answered, by the names of kernels.

Each is {"kind": "not fused" | "not recomputed" | "not attention" | "not chained" | "not joined" | "transposed" | "not
transposed"
| "padded" | "not padded" | "cut" | "not cut", "from": kernel, "to": kernel,
"value": str, "bytes": int, "times": int, "why": str, "source": "file:line" or null}: the kernel that makes the value or
is launched before, the one that reads it or is launched then (both the kernel at its end, where it is about two
products, or that of the product whose operands or sums it is about); the type and the size of the value, "" and 0 where
it is about none; how often the program says it of these two; and where the second comes from.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import Operation

from ..dialects import tile
from ..dialects.dtypes import itemsize, size
from ..dialects.graph.interface import element_of, shape_of
from ..dialects.npu import structure
from .levels import LevelDecision, LevelView, launched_kernels

Json = dict[str, Any]


def kernels_apart(views: list[LevelView]) -> list[Json]:
    """What the passes said of a program with these levels, equal sentences about the same kernels once, those about
    most bytes first. What is about ops that became no kernel is left out."""
    launched = launched_kernels(views[0], views)
    found: dict[tuple[str, str, str, str, str], Json] = {}
    for view in views:
        for decision in view.decisions:
            row = _row(view, decision, launched)
            if row is None:
                continue
            key = row["kind"], row["from"], row["to"], row["value"], row["why"]
            if key in found:
                found[key]["times"] += 1
            else:
                found[key] = row
    return sorted(found.values(), key=lambda row: -row["bytes"] * row["times"])


def _row(view: LevelView, decision: LevelDecision, launched: dict[Operation, list[str]]) -> Json | None:
    ops = [view.ops[i] for i in decision.ops]
    names = [_kernels(op, launched) for op in ops]
    if not all(names):
        return None
    value, bytes_ = "", 0
    between = decision.kind in ("not fused", "not recomputed")
    if between:
        result = ops[0].results[decision.result]
        value, bytes_ = str(result.type), size(shape_of(result)) * itemsize(element_of(result))
        first, second = names[0][-1], names[1][0]
    else:  # a launch and the one before it, or a product alone
        first, second = names[-1][0], names[0][0]
    place = view.places[decision.ops[1 if between else 0]]
    return {
        "kind": decision.kind,
        "from": first,
        "to": second,
        "value": value,
        "bytes": bytes_,
        "times": 1,
        "why": decision.why,
        "source": None if place is None else str(place),
    }


def _kernels(op: Operation, launched: dict[Operation, list[str]]) -> list[str]:
    """The kernels that an op, or what it is in, became; those that a launch names."""
    if isinstance(op, structure.LaunchOp | tile.LaunchOp):
        return [op.callee.root_reference.data]
    at: Operation | None = op
    while at is not None and at not in launched:
        at = at.parent_op()
    return [] if at is None else launched[at]
