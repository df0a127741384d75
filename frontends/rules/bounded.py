"""Dimensions of which only the first elements count: their sizes, and what rewrites ops along them."""

from __future__ import annotations

from ...dialects.graph import GraphOp
from .. import bindings
from ..bindings import Op
from ..extents import Rewrite
from ..walk import Rule, Walk
from .base import Results, Types, Values
from .movement import as_index


def _set_size(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return [walk.extents.mark(args[0], as_index(walk, args[1]), bindings.int_attribute(op, "dimension"))]


def _get_size(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    return [walk.extents.size(args[0], bindings.int_attribute(op, "dimension"))]


REWRITES: dict[type[GraphOp], Rewrite] = {}

STRUCTURAL: dict[str, Rule] = {
    "stablehlo.set_dimension_size": _set_size,
    "stablehlo.get_dimension_size": _get_size,
}
"""Of any element types."""
