"""Fusions that store a result in fractals: what a kernel hands on to a product need not lie in rows.

A matrix in fractals has its columns in groups of 32 bytes, and each group lies with all its rows one below the other,
as a core's l1 has it (NZ): any number of rows, and of groups, are long runs. A product reads one where it sums over
the columns (passes/forms/parted_sums.py). A kernel stores one where the columns are an axis of its domain: that becomes
two, the groups and the columns of each.

Before:  %y = graph.contract %x, %w {axes = [0, 1]}                  domain = [m, n], yields %y : [m, n]
After:   %v = graph.reshape %w : [k, n] -> [k, n / 16, 16]           domain = [m, n / 16, 16]
         %y = graph.contract %x, %v {axes = [0, 1, 2]}               yields %y, transposed : [n / 16, m, 16]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ....dialects.base import Expr, ints, to_ints
from ....dialects.dtypes import dtype_name, tensor
from ....dialects.graph import ContractOp, ElementwiseOp, FusionOp, ReduceOp, ReshapeOp
from ....dialects.graph.control import AXES, axes_of
from ....dialects.graph.interface import element_of, shape_of
from ....machine import Machine
from ...forms.access import is_layout, resolve, splat_of
from ...forms.gathered_operands import gathers_of
from ...forms.parted_sums import part_dim, part_side, parted_dims, parted_shape
from ...forms.sparse_products import expansion_of
from ...forms.tensor_builder import BlockBuilder
from ...rewriting import erase_dead
from ..axes import behind_transposes, is_base, is_member, reduced_dims


def fractal_columns(value: SSAValue, machine: Machine) -> int:
    """Columns of a fractal of a tensor's elements; 0 where the cube takes no such elements."""
    return machine.cube_k0.get(dtype_name(element_of(value)), 0)


class _Columns(NamedTuple):
    """Where the columns of a fusion's result are: in what an op of its domain gives, `dim`, which is an axis. dims: for
    each dimension of that, the dimension of the result. axis: the one that has to be in two; None where it is, and the
    result is merged of `dim` and the next one."""

    op: Operation
    dim: int
    dims: Sequence[int]
    axis: int | None


def _columns(result: OpResult, dim: int, inner: int) -> _Columns | None:
    """The columns of a result, which are its dimension `dim`; None where they are no axis of the fusion's domain."""
    fusion = result.owner
    assert isinstance(fusion, FusionOp)
    # in the place of strides the numbers of the dimensions
    value, dims = behind_transposes(fusion.yielded(0).values[result.index], range(len(shape_of(result))))
    at = [*dims].index(dim)
    if isinstance(value.owner, ReshapeOp) and is_member(value.owner.x):
        made, whole = value.owner.x.owner, parted_shape(shape_of(value), at, inner)
        assert isinstance(made, Operation)
        return _Columns(made, at, dims, None) if [*shape_of(value.owner.x)] == whole else None
    if not is_member(value):
        return None
    op = value.owner
    assert isinstance(op, Operation)
    axes = axes_of(op)
    assert axes is not None
    kept = [a for d, a in enumerate(axes) if d not in reduced_dims(op)]
    return _Columns(op, at, dims, kept[at]) if kept[at] >= 0 else None


def stores_in_fractals(result: OpResult, dim: int, inner: int) -> bool:
    """Whether a fusion may store a result in fractals of `inner` columns, which are its dimension `dim`: they are an
    axis that no op of the fusion has to have whole."""
    columns = _columns(result, dim, inner) if shape_of(result)[dim] % inner == 0 else None
    if columns is None or columns.axis is None:
        return columns is not None
    fusion = result.owner
    assert isinstance(fusion, FusionOp)
    return all(_may_part(op, columns.axis, inner, fusion) for op in fusion.body.block.ops)


def store_in_fractals(result: OpResult, perm: Sequence[int], inner: int) -> None:
    """Has a fusion yield a result with its dimensions in this order, and the last two, rows and columns, in fractals.
    The type of the result, and its users, are to be told."""
    fusion = result.owner
    assert isinstance(fusion, FusionOp)
    columns = _columns(result, perm[-1], inner)
    assert columns is not None
    if columns.axis is not None:
        part_axis(fusion, columns.axis, inner)
    at = {d: i + (i > columns.dim) for i, d in enumerate(columns.dims)}
    *batch, rows = (at[d] for d in perm[:-1])
    build = BlockBuilder(Block(), fusion.location)
    last = fusion.yielded(0)
    order = [*batch, columns.dim, rows, columns.dim + 1]
    last.operands[result.index] = build.transpose(columns.op.results[0], order)
    Rewriter.inline_block(build.block, InsertPoint.before(last))
    erase_dead(fusion.body.block)


def _may_part(op: Operation, axis: int, inner: int, fusion: FusionOp) -> bool:
    """Whether an op of a fusion may have this axis in two, if it has it: groups of `inner` places, and these."""
    axes = axes_of(op) or ()
    if axis not in axes:
        return True
    if isinstance(op, ContractOp):
        plain = expansion_of(op) is None and not gathers_of(op)
        return plain and axes.index(axis) >= len(to_ints(op.lhs_batch))
    return isinstance(op, ElementwiseOp | ReduceOp) and _loads_in_two(op, axis, inner, to_ints(fusion.domain))


def _loads_in_two(op: Operation, axis: int, inner: int, domain: Sequence[int]) -> bool:
    """Whether all that an op of a domain takes can be loaded where one of its axes is in two: a pad, or a reshape to
    other dimensions, may be no single box then."""
    axes, groups = axes_of(op), len(domain)
    assert axes is not None
    extents = {**dict(enumerate(domain)), groups: domain[axis] // inner, axis: inner}
    named = {a: Expr.of(a) for a in axes} | {-1: Expr(), axis: Expr(0, {groups: inner, axis: 1})}
    taken = [v for v in op.operands if splat_of(v) is None]
    loads = [resolve(v, [named[a] for a in axes], extents, is_base) for v in taken]
    return not any(is_layout(load.base.owner) and not is_member(load.base) for load in loads)


def part_axis(fusion: FusionOp, axis: int, inner: int) -> None:
    """Has a fusion walk an axis of its domain in two: groups of `inner` places, and the places of a group."""
    fusion.domain = ints(parted_shape(to_ints(fusion.domain), axis, inner))
    for op in list(fusion.body.block.ops):
        if (axes := axes_of(op)) is not None:
            op.attributes[AXES] = ints(parted_dims(axes, axis))
            if axis in axes:
                _part_member(op, axes.index(axis), inner)


def _part_member(op: Operation, dim: int, inner: int) -> None:
    """Has an op of a fusion take a dimension of its domain in two; what reads its result gets it merged again."""
    if isinstance(op, ContractOp):
        batch, (rows, columns) = len(to_ints(op.lhs_batch)), op.free_dims()
        left = dim < batch + len(rows)
        part_side(op, "lhs" if left else "rhs", [*rows, *columns][dim - batch], inner)
    else:
        before = BlockBuilder(Block(), op.location)
        op.operands = [part_dim(before, v, dim, inner) for v in op.operands]
        Rewriter.inline_block(before.block, InsertPoint.before(op))
    if isinstance(op, ReduceOp):
        over = to_ints(op.dims)
        op.dims = ints(parted_dims(over, dim))
        if dim in over:
            return
        dim -= sum(d < dim for d in over)
    shape = shape_of(op.results[0])
    kind = tensor(parted_shape(shape, dim, inner), element_of(op.results[0]))
    made = Rewriter.replace_value_with_new_type(op.results[0], kind)
    behind = BlockBuilder(Block(), op.location)
    merged = behind.reshape(made, shape)
    made.replace_uses_with_if(merged, lambda use: use.operation is not merged.owner)
    Rewriter.inline_block(behind.block, InsertPoint.after(op))
