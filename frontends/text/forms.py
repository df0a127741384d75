"""How numbers, annotations and the ops that have a form of their own are written in `.tw`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Protocol

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import dtype_name, element_type, is_float, numpy_dtype
from ...dialects.graph import (
    BroadcastOp,
    ConcatOp,
    ContractOp,
    DequantizeOp,
    IotaOp,
    PadOp,
    ReduceOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.attributes import Literal
from ...dialects.graph.interface import element_of, shape_of
from .builder import BOOLEAN, I32
from .indexing import Range, slice_bounds
from .library import REDUCTION_NAMES

SMALL = 64
"""Up to this many elements a constant is written as numbers."""


class PrinterNames(Protocol):
    """What the forms need of the printer."""

    def name(self, value: SSAValue) -> str:
        """How a value is written where it is used."""
        ...


def bare(expression: str) -> str:
    """Without the parentheses around all of it."""
    if not (expression.startswith("(") and expression.endswith(")")):
        return expression
    depth = 0
    for i, c in enumerate(expression):
        depth += (c == "(") - (c == ")")
        if depth == 0 and i < len(expression) - 1:
            return expression
    return expression[1:-1]


# -- constants -----------------------------------------------------------------------------------------------


def number_text(value: float | int | bool | None, element: Attribute) -> str | None:
    """A number as it is written beside a tensor of its element type; None where that would not give its bits."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if value != value:
        return None
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    shown = repr(float(value))
    if "e" in shown and "." not in shown.split("e")[0]:
        shown = shown.replace("e", ".0e")
    return shown


def constant(literal: Literal) -> str:
    """A constant: numbers where it has few, else its bytes in base64."""
    array = literal.array()
    element = element_type(literal.dtype)
    if 0 < array.size <= SMALL:
        values = array.astype(np.float64 if literal.dtype[0] in "fb" else array.dtype)
        words = [number_text(v, element) for v in values.reshape(-1).tolist()]
        if None not in words:
            shown = str(np.array(words, object).reshape(array.shape).tolist()).replace("'", "")
            return f"{f'({shown})' if shown[0] == '-' else shown} as {literal.dtype}"
    data = base64.b64encode(literal.buffer).decode()
    splat = (
        ", splat=true" if literal.splat and len(literal.data) == numpy_dtype(literal.dtype).itemsize else ""
    )
    return f'graph.constant(data="{data}", shape={list(literal.shape)}, type={literal.dtype}{splat})'


def annotation(op: DequantizeOp) -> str | None:
    """How a value is quantized, as it is written behind its type; None where the language has no form of it."""
    q = op.kind.data
    if q.scales is None or q.zeros is None or q.narrowed or len(q.blocks) > 1 or any(n != 1 for _, n in q.blocks):
        return None
    words = []
    for key, values in (("scale", q.scales), ("zero", q.zeros)):
        alone = not q.blocks or (key == "zero" and len(set(values)) == 1)
        if key == "scale" or any(values):
            words.append(f"{key}={values[0] if alone else list(values)}")
    if q.blocks:
        words.append(f"axis={q.blocks[0][0]}")
    return f" quant {q.storage}({', '.join(words)})"


# -- ops with a form of their own ----------------------------------------------------------------------------


def _reshape(p: PrinterNames, op: ReshapeOp) -> str | None:
    if shape_of(op.x) == shape_of(op.result):
        return None
    return f"reshape({bare(p.name(op.x))}, shape={list(shape_of(op.result))})"


def _transpose(p: PrinterNames, op: TransposeOp) -> str | None:
    perm = list(to_ints(op.perm))
    return None if perm == list(range(len(perm))) else f"transpose({bare(p.name(op.x))}, perm={perm})"


def _broadcast(p: PrinterNames, op: BroadcastOp) -> str | None:
    source, shape, dims = shape_of(op.x), shape_of(op.result), list(to_ints(op.dims))
    grown = [d for d in range(len(shape)) if d not in dims]
    if grown and sorted(dims) == dims and source and all(shape[d] == 1 for d in grown):
        if all(shape[d] == n for d, n in zip(dims, source, strict=True)):
            return f"{p.name(op.x)}[{', '.join('new' if d in grown else ':' for d in range(len(shape)))}]"
    if not source:
        return f"broadcast({bare(p.name(op.x))}, shape={list(shape)})" if shape else None
    return None


def _slice(p: PrinterNames, op: SliceOp) -> str | None:
    words = []
    for start, limit, step, n in zip(
        to_ints(op.starts), to_ints(op.limits), to_ints(op.strides), shape_of(op.x), strict=True
    ):
        if slice_bounds(Range(start, limit, step), n) != (start, limit, step, False):
            return None
        shown = f"{start or ''}:{limit if limit != n else ''}"
        words.append(shown + (f":{step}" if step != 1 else ""))
    whole = shape_of(op.x) == shape_of(op.result)
    return None if whole or not words else f"{p.name(op.x)}[{', '.join(words)}]"


def _concat(p: PrinterNames, op: ConcatOp) -> str:
    return f"concat({', '.join(bare(p.name(v)) for v in op.parts)}, axis={integer(op.dim)})"


def _pad(p: PrinterNames, op: PadOp) -> str:
    sides = ", ".join(f"{k}={list(to_ints(v))}" for k, v in (("low", op.low), ("high", op.high)))
    between = f", interior={list(to_ints(op.interior))}" if any(to_ints(op.interior)) else ""
    return f"pad({bare(p.name(op.x))}, {bare(p.name(op.value))}, {sides}{between})"


def _reduce(p: PrinterNames, op: ReduceOp) -> str | None:
    kind, element, dims = text(op.kind), element_of(op.x), list(to_ints(op.dims))
    wide = kind in ("sum", "prod") and dtype_name(element) in ("f16", "bf16")
    fits = is_float(element) or kind in ("and", "or") or element != BOOLEAN
    if wide or not fits or (is_float(element) and kind in ("and", "or")) or dims != sorted(dims) or not dims:
        return None
    if element == BOOLEAN and kind not in ("and", "or"):
        return None
    return f"{REDUCTION_NAMES[kind]}({bare(p.name(op.x))}, axis={dims if len(dims) > 1 else dims[0]})"


def _iota(p: PrinterNames, op: IotaOp) -> str:
    kind = f", type={dtype_name(element_of(op.result))}" if element_of(op.result) != I32 else ""
    return f"iota(shape={list(shape_of(op.result))}, axis={integer(op.dim)}{kind})"


def _contract(p: PrinterNames, op: ContractOp) -> str | None:
    a, b = len(shape_of(op.lhs)), len(shape_of(op.rhs))
    found = [list(to_ints(v)) for v in (op.lhs_batch, op.rhs_batch, op.lhs_contract, op.rhs_contract)]
    same = element_of(op.lhs) == element_of(op.rhs) == element_of(op.result)
    batch = list(range(a - 2)) if a > 2 and a == b else []
    expected = [batch, batch, [a - 1], [max(b - 2, 0)]]
    if not same or element_of(op.lhs) == BOOLEAN or a < 1 or b < 1 or found != expected:
        return None
    if b > 2 and (a != b or shape_of(op.lhs)[:-2] != shape_of(op.rhs)[:-2]):
        return None
    return f"{p.name(op.lhs)} @ {p.name(op.rhs)}"


FORMS: dict[type[Operation], Callable[..., str | None]] = {
    BroadcastOp: _broadcast,
    ConcatOp: _concat,
    ContractOp: _contract,
    IotaOp: _iota,
    PadOp: _pad,
    ReduceOp: _reduce,
    ReshapeOp: _reshape,
    SliceOp: _slice,
    TransposeOp: _transpose,
}
"""The form of an op over the names of its operands; None where only `graph.<op>(...)` says all of it."""
