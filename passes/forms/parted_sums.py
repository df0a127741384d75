"""Dimensions in two: parts of some places, and the places in a part. Products sum over such where an operand has them.

Before:  %x = graph.reshape %t : [m, k / 16, 16] -> [m, k]     %y = graph.contract %x, %w
After:   %p = graph.reshape %x : [m, k] -> [m, k / 16, 16]     %y = graph.contract %p, %v, where %v is %w parted alike

Loads see through both reshapes of %x, as no index carries over from the place in a part into the number of the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialects.base import Expr, ints, to_ints
from ...dialects.dtypes import PAIR
from ...dialects.graph import ContractOp, ReshapeOp
from ...dialects.graph.interface import element_of, shape_of
from .access import parted, rearranges, resolve
from .gathered_operands import gathers_of
from .nests import Nest, nest_of_contract
from .sparse_products import expansion_of
from .tensor_builder import BlockBuilder, TensorBuilder

Side = Literal["lhs", "rhs"]
SIDES: tuple[Side, ...] = get_args(Side)
"""The operands of a product, in order."""


def parted_shape(shape: Sequence[int], dim: int, inner: int) -> list[int]:
    """A shape with one of its dimensions in two."""
    return [*shape[:dim], shape[dim] // inner, inner, *shape[dim + 1 :]]


def part_dim(build: TensorBuilder, value: SSAValue, dim: int, inner: int) -> SSAValue:
    """A tensor with one of its dimensions in two; what it was before, where that is how it was made."""
    shape = parted_shape(shape_of(value), dim, inner)
    if isinstance(value.owner, ReshapeOp) and list(shape_of(value.owner.x)) == shape:
        return value.owner.x
    return build.reshape(value, shape)


def parted_dims(dims: Sequence[int], dim: int) -> list[int]:
    """Dimensions by their numbers once dimension `dim` is in two: both, where it is one of them."""
    return [d for each in dims for d in ((each, each + 1) if each == dim else (each + (each > dim),))]


def part_sums(product: ContractOp, number: int, inner: int) -> None:
    """Has a product sum over one of its summed dimensions in two. In place, as the result is the same."""
    dims = to_ints(product.lhs_contract)[number], to_ints(product.rhs_contract)[number]
    for side, dim in zip(SIDES, dims, strict=True):
        part_side(product, side, dim, inner)


def part_side(product: ContractOp, side: Side, dim: int, inner: int) -> None:
    """Has a product read an operand with a dimension in two. Where that is none of those summed over, the result has to
    have it in two as well."""
    build = BlockBuilder(Block(), product.location)
    for over in (f"{side}_batch", f"{side}_contract"):
        setattr(product, over, ints(parted_dims(to_ints(getattr(product, over)), dim)))
    place = SIDES.index(side)
    product.operands[place] = part_dim(build, product.operands[place], dim, inner)
    Rewriter.inline_block(build.block, InsertPoint.before(product))


class _Reading(NamedTuple):
    """The loops of a product, and where they read each dimension of a tensor."""

    nest: Nest
    position: Sequence[Expr[int]]

    def to_part(self, dim: int, size: int, inner: int) -> int | None:
        """Which of its summed dimensions a product has to part so that it reads dimension `dim` of the tensor, of this
        size, in parts of `inner`. -1 for none, as it sums over such already; None where no parting helps."""
        at = self.position[dim]
        if any(self.nest.roles[a] != "k" for a in at.variables):
            return None
        if parted(at, [size // inner, inner], dict(enumerate(self.nest.extents))) is not None:
            return -1
        if at.constant or len(at.terms) != 1:
            return None
        ((axis, step),) = at.terms
        if step != 1 or self.nest.extents[axis] != size:
            return None
        return [a for a, role in self.nest.roles.items() if role == "k"].index(axis)


def reads_in_parts(value: SSAValue, dim: int, inner: int) -> bool:
    """Whether products alone read a tensor, through layout ops that loads see through, and each of them sums over
    dimension `dim`, so that it may lie there in parts of `inner`."""
    size, products = shape_of(value)[dim], _products(value)
    if not products or size % inner:
        return False
    for product in products:
        if expansion_of(product) is not None or gathers_of(product) or element_of(product.lhs) == PAIR:
            return False
        readings = _readings(value, product)
        if not readings or any(r.to_part(dim, size, inner) is None for r in readings):
            return False
    return True


def part_readers(value: SSAValue, dim: int, inner: int) -> None:
    """Has the products that read a tensor sum over its dimension `dim` in parts of `inner`, as `reads_in_parts` says
    that they can."""
    size = shape_of(value)[dim]
    for product in _products(value) or ():
        for side in range(len(_readings(value, product))):
            # anew for each side: what the left one needs may have parted the right one alike
            number = _readings(value, product)[side].to_part(dim, size, inner)
            assert number is not None
            if number >= 0:
                part_sums(product, number, inner)


def _products(value: SSAValue) -> list[ContractOp] | None:
    """The products that read a tensor as operands, through layout ops; None where something else reads it, too."""
    found: dict[ContractOp, None] = {}
    for use in value.uses:
        op = use.operation
        if isinstance(op, ContractOp):
            found[op] = None
        elif rearranges(op) and (further := _products(op.results[0])) is not None:
            found.update(dict.fromkeys(further))
        else:
            return None
    return list(found)


def _readings(value: SSAValue, product: ContractOp) -> list[_Reading]:
    """How a product reads a tensor, as its left side, its right side, or both; none where no load sees through what
    stands between them."""
    nest = nest_of_contract(product)
    sides = ((product.lhs, nest.lhs), (product.rhs, nest.rhs))
    loads = [resolve(side, at, nest.extents, lambda v: v is value) for side, at in sides]
    return [_Reading(nest, load.position) for load in loads if load.base is value and load.fill is None]
