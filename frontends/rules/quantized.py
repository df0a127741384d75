"""Rules for ops on quantized tensors that are graph ops on quantized numbers: what moves elements, products, and what
comes from or goes to other numbers."""

from __future__ import annotations

from ...dialects.graph import DequantizeOp, QuantizeOp, RequantizeOp, StorageOp
from ...dialects.quantized import quantized
from ..bindings import Op
from ..walk import Rule, Walk
from . import contractions, control, movement
from .base import Results, Types, Values


def _quantize(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    cls = QuantizeOp if quantized(args[0].type) is None else RequantizeOp
    return walk.emit(cls, args, types)


def _dequantize(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return walk.emit(DequantizeOp, args, types)


def _bitcast(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    """Quantized numbers as what is stored, or the other way round."""
    if args[0].type == types[0]:
        return args
    kinds = quantized(args[0].type), quantized(types[0])
    return walk.emit(StorageOp, args, types) if None in kinds else None


def _product(rule: Rule) -> Rule:
    """A product of two quantized tensors; of one and another tensor, that of the numbers."""

    def product(walk: Walk, op: Op, args: Values, types: Types) -> Results:
        both = None not in [quantized(a.type) for a in args]
        return (rule if both else walk.in_numbers(rule))(walk, op, args, types)

    return product


ON_QUANTIZED: dict[str, Rule] = {
    **control.RULES,
    **movement.RULES,
    **movement.STRUCTURAL,
    **{name: _product(rule) for name, rule in contractions.RULES.items()},
    "stablehlo.uniform_quantize": _quantize,
    "stablehlo.uniform_dequantize": _dequantize,
    "stablehlo.bitcast_convert": _bitcast,
}
