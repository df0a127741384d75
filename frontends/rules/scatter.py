"""Scatter: any dimension numbers become rows of a matrix and their numbers.

Dimensions that an update covers whole are its columns; positions along the others, row by row, number the rows. An
update that does not fit where its start says gets number -1, and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from xdsl.ir import BlockArgument, SSAValue

from ...dialects.dtypes import dtype_name, element_type, shape_in, tensor
from ...dialects.elementwise import REDUCTION_FUNCTION, SCATTERS
from ...dialects.graph import (
    BroadcastOp,
    ElementwiseOp,
    GatherOp,
    IotaOp,
    ReshapeOp,
    ScatterOp,
    SliceOp,
    TransposeOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import row_strides
from .. import bindings
from ..bindings import Op
from ..walk import BOOLEAN, Rule, Walk
from .base import Results, Types, Values
from .bodies import arguments_of, on_tensors, plain_body
from .movement import as_index
from .reductions import body_trees, kind_of, linear

_I32 = element_type("i32")


def _scatter(walk: Walk, op: Op, args: Values, types: Types) -> Results:
    n = len(types)
    if not walk.movable([*args[:n], *args[n + 1 :]], types):
        return None
    kinds = _kinds(walk, op, types)
    change = None if kinds is not None else _change(walk, op, args[n + 1 :], types)
    if change is not None:
        kinds = change.kinds
    if kinds is None or any(
        k != "set" and t.element_type == BOOLEAN for k, t in zip(kinds, types, strict=True)
    ):
        return None
    numbers = bindings.scatter_dimensions(op)
    window, shape = numbers["update_window_dims"], list(shape_in(types[0]))
    fixed = {*numbers["inserted_window_dims"], *numbers["input_batching_dims"]}
    moved = [d for d in range(len(shape)) if d not in fixed]
    sizes = [1] * len(shape)
    for d, u in zip(moved, window, strict=True):
        sizes[d] = shape_of(args[n + 1])[u]
    named = numbers["scattered_dims_to_operand_dims"]
    columns = [d for d in moved if sizes[d] == shape[d] and d not in named]
    rows = [d for d in range(len(shape)) if d not in columns]
    extent = [shape[d] for d in rows]
    if math.prod(extent) > np.iinfo(np.int32).max:
        return None
    if math.prod(shape_of(args[n + 1])) == 0 or math.prod(shape) == 0:
        return args[:n]
    where, batch_dims = args[n], [u for u in range(len(shape_of(args[n + 1]))) if u not in window]
    batching = sorted(numbers["input_batching_dims"])
    groups = None
    leading = [d for k, d in enumerate(batching) if rows[: k + 1] == batching[: k + 1]]
    if leading:
        groups = math.prod(shape[d] for d in leading)
        where, numbers, batch_dims = _batches_first(walk, where, numbers, batch_dims)
    index = _numbers(walk, numbers, where, rows, shape, sizes)
    width = math.prod(shape[d] for d in columns)
    count = shape_of(index)[0]
    matrices, updates = [], []
    for x, update in zip(args[:n], args[n + 1 :], strict=True):
        order = [*batch_dims]
        order += [window[moved.index(d)] for part in (rows, columns) for d in part if d in moved]
        updates.append(_reshaped(walk, _transposed(walk, update, order), [count, width]))
        matrices.append(_reshaped(walk, _transposed(walk, x, [*rows, *columns]), [math.prod(extent), width]))
    if change is not None:
        updates = change.apply([*(_rows(walk, m, index) for m in matrices), *updates])
    results, perm = [], [*rows, *columns]
    for matrix, update, kind in zip(matrices, updates, kinds, strict=True):
        told = {} if groups is None else {"groups": groups}
        (made,) = walk.emit(ScatterOp, [matrix, index, update], [matrix.type], kind=kind, **told)
        made = _reshaped(walk, made, [shape[d] for d in perm])
        results.append(_transposed(walk, made, [perm.index(d) for d in range(len(perm))]))
    return results


def _batches_first(
    walk: Walk, indices: SSAValue, numbers: dict[str, list[int]], batch_dims: list[int]
) -> tuple[SSAValue, dict[str, list[int]], list[int]]:
    """Indices, dimension numbers and the dimensions of updates that go with them, in an order in which batches of the
    operand come first, as they do there: so each batch of updates is one run, as its rows are."""
    along, rank = numbers["index_vector_dim"][0], len(shape_of(indices))
    pairs = sorted(
        zip(numbers["input_batching_dims"], numbers["scatter_indices_batching_dims"], strict=True)
    )
    first = [i for _, i in pairs]
    order = [*first, *(d for d in range(rank) if d not in first)]
    kept = [d for d in range(rank) if d != along]
    numbers = {
        **numbers,
        "input_batching_dims": [d for d, _ in pairs],
        "scatter_indices_batching_dims": list(range(len(first))),
        "index_vector_dim": [order.index(along) if along < rank else along],
    }
    return (
        _transposed(walk, indices, order),
        numbers,
        [batch_dims[kept.index(d)] for d in order if d != along],
    )


def _kinds(walk: Walk, op: Op, types: Types) -> list[str] | None:
    """What the body does with each operand and its update; None for a body that is no kind of
    graph.scatter."""
    trees = body_trees(walk, op.regions[0], types)
    found = [
        "set" if tree == len(types) + i else kind_of(tree, i, len(types))
        for i, tree in enumerate(trees or ())
    ]
    kinds = [k for k in found if k in SCATTERS]
    return kinds if kinds and len(kinds) == len(found) and linear(kinds, types) else None


@dataclass(frozen=True)
class _Change:
    """What is scattered, by `kinds`, in place of updates: `apply` makes it of the rows there are and the updates."""

    kinds: list[str]
    apply: Callable[[Values], Values]


def _change(walk: Walk, op: Op, updates: Values, types: Types) -> _Change | None:
    """A body that combines an element with a function of its update; where no two updates meet, any function."""
    elements = [t.element_type for t in types]
    found = plain_body(walk, op.regions[0], [*elements, *elements])
    if found is None:
        return None
    body, results = found
    n = len(types)

    def apply(values: Values, operands: Values) -> Values:
        known: dict[SSAValue, SSAValue] = dict(zip(body.args, operands, strict=True))
        return on_tensors(walk, values, known, shape_of(operands[0]))

    parts = [_of_update(value, i, n) for i, value in enumerate(results)]
    known = [p for p in parts if p is not None]
    if len(known) == n and linear([kind for kind, _, _ in known], types):
        kinds = [kind for kind, _, _ in known]

        def changed(operands: Values) -> Values:
            made = apply([value for _, value, _ in known], operands)
            return [
                walk.elementwise("neg", [v], v.type) if negated else v
                for v, (_, _, negated) in zip(made, known, strict=True)
            ]

        return _Change(kinds, changed)
    alone = math.prod(shape_of(updates[0])) == 1
    if not (bindings.int_attribute(op, "unique_indices") or alone):
        return None
    return _Change(["set"] * n, lambda operands: apply(results, operands))


def _of_update(value: SSAValue, i: int, n: int) -> tuple[str, SSAValue, bool] | None:
    """(kind, what element i is combined with, whether negated) of an expression that depends on the updates
    alone; None for any other."""
    op = value.owner
    if not isinstance(op, ElementwiseOp) or len(op.operands) != 2:
        return None
    name = op.FUNCTION.name
    negated = name == "sub" and dtype_name(element_of(value))[0] != "u"
    kind = "sum" if negated else next((k for k, f in REDUCTION_FUNCTION.items() if f == name), None)
    if kind not in SCATTERS:
        return None
    pairs = [tuple(op.operands)] if negated else [tuple(op.operands), tuple(reversed(op.operands))]
    for element, other in pairs:
        if (
            isinstance(element, BlockArgument)
            and element.index == i
            and arguments_of(other) <= {*range(n, 2 * n)}
        ):
            return kind, other, negated
    return None


def _rows(walk: Walk, matrix: SSAValue, index: SSAValue) -> SSAValue:
    """The rows of a matrix that numbers, clamped to it, name."""
    width = shape_of(matrix)[1]
    out = tensor([*shape_of(index), width], element_of(matrix))
    return walk.emit(
        GatherOp,
        [matrix, index],
        [out],
        offset_dims=[1],
        collapsed_dims=[0],
        x_batch=(),
        indices_batch=(),
        start_map=[0],
        index_dim=1,
        slice_sizes=[1, width],
    )[0]


def _numbers(
    walk: Walk,
    numbers: dict[str, list[int]],
    indices: SSAValue,
    rows: list[int],
    shape: list[int],
    sizes: list[int],
) -> SSAValue:
    """The row, i32 [n], that each part of each update goes to: over the positions in `indices`, then those of a window
    along `rows`."""
    along = numbers["index_vector_dim"][0]
    batch = [s for d, s in enumerate(shape_of(indices)) if d != along]
    domain = [*batch, *(sizes[d] for d in rows)]
    kind, strides = tensor(domain, _I32), row_strides([shape[d] for d in rows])

    def constant(value: int) -> SSAValue:
        return walk.fill(walk.scalar(value, _I32), domain)

    def combine(name: str, a: SSAValue, b: SSAValue) -> SSAValue:
        return walk.elementwise(name, [a, b], a.type)

    total, inside = constant(0), None
    for k, d in enumerate(numbers["scattered_dims_to_operand_dims"]):
        start = _spread(walk, _component(walk, indices, along, k, batch), domain)
        highest = shape[d] - sizes[d]
        for test, bound in (("ge", 0), ("le", highest)):
            here = walk.elementwise(test, [start, constant(bound)], tensor(domain, BOOLEAN))
            inside = here if inside is None else combine("and", inside, here)
        start = combine("min", combine("max", start, constant(0)), constant(highest))
        total = combine("add", total, combine("mul", start, constant(strides[rows.index(d)])))
    kept = [d for d in range(len(shape_of(indices))) if d != along]
    steps = {
        kept.index(i): strides[rows.index(d)]
        for d, i in zip(numbers["input_batching_dims"], numbers["scatter_indices_batching_dims"], strict=True)
    }
    steps |= {len(batch) + i: strides[i] for i, d in enumerate(rows) if sizes[d] > 1}
    for dim, step in steps.items():
        (at,) = walk.emit(IotaOp, [], [kind], dim=dim)
        total = combine("add", total, combine("mul", at, constant(step)))
    if inside is not None:
        total = walk.elementwise("select", [inside, total, constant(-1)], kind)
    return _reshaped(walk, total, [math.prod(domain)])


def _component(walk: Walk, indices: SSAValue, along: int, k: int, batch: list[int]) -> SSAValue:
    """Number k of each index vector, i32, in the shape of the positions."""
    shape = shape_of(indices)
    if along < len(shape):
        starts = [k if d == along else 0 for d in range(len(shape))]
        limits = [k + 1 if d == along else s for d, s in enumerate(shape)]
        one = tensor([b - a for a, b in zip(starts, limits, strict=True)], element_of(indices))
        (indices,) = walk.emit(
            SliceOp, [indices], [one], starts=starts, limits=limits, strides=[1] * len(shape)
        )
    return as_index(walk, _reshaped(walk, indices, batch))


def _spread(walk: Walk, x: SSAValue, domain: list[int]) -> SSAValue:
    """x over the first dimensions of `domain`."""
    rank = len(shape_of(x))
    if rank == len(domain):
        return x
    return walk.emit(BroadcastOp, [x], [tensor(domain, element_of(x))], dims=range(rank))[0]


def _reshaped(walk: Walk, x: SSAValue, shape: list[int]) -> SSAValue:
    if list(shape_of(x)) == list(shape):
        return x
    return walk.emit(ReshapeOp, [x], [tensor(shape, element_of(x))])[0]


def _transposed(walk: Walk, x: SSAValue, perm: list[int]) -> SSAValue:
    if perm == list(range(len(perm))):
        return x
    shape = shape_of(x)
    return walk.emit(TransposeOp, [x], [tensor([shape[p] for p in perm], element_of(x))], perm=perm)[0]


STRUCTURAL: dict[str, Rule] = {"stablehlo.scatter": _scatter}
"""The indices may be of any integer type."""
