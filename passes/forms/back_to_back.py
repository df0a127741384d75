"""Chained products of which the second one takes what the fixpipe makes of the first one's results: the cube goes from
one to the other by itself, and its vector cores have no part in it (passes/lower/chains/back_to_back.py)."""

from __future__ import annotations

import math

from xdsl.ir import Operation

from ...dialects.base import to_ints
from ...dialects.dtypes import dtype_name
from ...dialects.graph import ELEMENTWISE, ContractOp, ElementwiseOp, ReduceOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from ...machine import Machine
from .access import splat_of
from .chained import LEAST_KEYS, PLAIN_LAYOUT, Chained, made_by

HALVES = ("f16", "bf16")

MOST_WIDE, MOST_SHARED = 512, 2048
"""Most columns of a result, and most elements that are summed up for what is between, where the cube hands that on by
itself: the sums of a tile of rows stay in l0c, and what they begin with in l1."""


def stays_on_cube(at: Chained, machine: Machine) -> bool:
    """Whether the fixpipe does all that is between two products: a relu, and one rounding. The cube core then takes the
    first one's results from l0c to l1 and goes on, and its vector cores have no part in it."""
    between = [op for op in at.members if op not in (*at.first, at.product) and op not in at.generated]
    weighed = dtype_name(element_of(at.product.operands[at.weights]))
    kinds = {dtype_name(element_of(v)) for op in between for v in (op.operands[0], op.results[0])}
    return (
        type(at) is Chained
        and len(at.first) == 1
        and len(to_ints(at.scores.lhs_contract)) == 1
        and not at.groups
        and all(isinstance(op, ELEMENTWISE["convert"]) or is_relu(op) for op in between)
        and kinds | {dtype_name(element_of(at.scores.result))} <= {"f32", weighed}
        and ("l0c", "l1") in machine.moves
        and weighed in HALVES
        and not any_open(at.domain)
        and at.domain[at.keys] % LEAST_KEYS == 0
        and at.domain[-1] <= MOST_WIDE
        and all(shape_of(at.scores.lhs)[d] <= MOST_SHARED for d in to_ints(at.scores.lhs_contract))
        and not epilogue_behind(at.product)
    )


def is_relu(op: Operation) -> bool:
    """Whether an op makes negative numbers 0."""
    if not isinstance(op, ELEMENTWISE["max"]):
        return False
    known = [n for v in op.operands if (n := splat_of(v)) is not None]
    return len(known) == 1 and known[0] == 0 and math.copysign(1, known[0]) > 0


def epilogue_behind(product: ContractOp) -> bool:
    """Whether elementwise ops or reductions that read the result are part of no other product's kernel: then a product
    of its own does them on the way out, and one kernel for two products does not."""
    readers = [use.operation for use in product.result.uses]
    while readers:
        op = readers.pop()
        if isinstance(op, PLAIN_LAYOUT):
            readers += [use.operation for use in op.results[0].uses]
        elif isinstance(op, ElementwiseOp | ReduceOp):
            others = [made_by(v) for v in op.operands]
            if not any(isinstance(o, ContractOp) and o is not product for o in others):
                return True
    return False
