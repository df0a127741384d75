"""Tensors that kernels read or store turned: with their dimensions in another order in memory.

A product on the cube loads whole lines of its operands. Where what it sums over lies side by side in memory, a step may
have any number of columns; where the columns lie side by side, it has whole lines of them, and loads more for as many
sums. Which one is shorter, the bound of the product says. Here is what that takes: the orders that a product's operand
may have, and fusions that read an input, or store a result, in another order.

Before:  ^bb0(%x, %w: tensor<4096x8192xf16>):  %y = graph.contract %x, %w
After:   ^bb0(%x, %t: tensor<8192x4096xf16>):  %w = graph.transpose %t {perm = [1, 0]} ; %y = graph.contract %x, %w
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import LocationAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import Rewriter

from ...dialects.base import ints, text, to_ints
from ...dialects.dtypes import PAIR, size, tensor
from ...dialects.graph import (
    BroadcastOp,
    ContractOp,
    ElementwiseOp,
    FusionOp,
    ReduceOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
    YieldOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ..access import resolve
from .attention_parts import is_chained
from .axes import behind_transposes, is_member
from .contraction_axes import nest_of_contract, product_in

Perm = tuple[int, ...]
"""For each dimension of a turned tensor, that of the tensor."""

READERS = (
    BroadcastOp,
    ContractOp,
    ElementwiseOp,
    ReduceOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)
"""Ops of a fusion that read an input through layout ops, or are such: others read dense tensors."""


def inverse(perm: Sequence[int]) -> Perm:
    """What undoes a permutation."""
    return tuple(perm.index(d) for d in range(len(perm)))


def turned_type(kind: Attribute, perm: Sequence[int]) -> TensorType:
    """The type of a tensor with its dimensions in another order."""
    assert isinstance(kind, TensorType)
    shape = kind.get_shape()
    return tensor([shape[p] for p in perm], kind.get_element_type())


def transpose(value: SSAValue, perm: Sequence[int], location: LocationAttr | None) -> TransposeOp:
    """A value with its dimensions in another order, in no block yet."""
    return TransposeOp.create(
        operands=[value],
        result_types=[turned_type(value.type, perm)],
        properties={"perm": ints(perm)},
        location=location,
    )


def multiplied(fusion: FusionOp) -> ContractOp | None:
    """The matrix product of a fusion; None where there is none, or the fusion has several."""
    product = None if is_chained(fusion) else product_in(fusion)
    return product if isinstance(product, ContractOp) else None


def reads_turned(fusion: FusionOp, number: int) -> bool:
    """Whether a fusion may read an input in another order: it is a matrix product, or a kernel of vector cores that
    computes, and only ops of it that see through layout ops read the input."""
    if fusion.on_host or (multiplied(fusion) is None and text(fusion.kind) != "vector"):
        return False
    argument = fusion.body.block.args[number]
    return all(isinstance(use.operation, READERS) for use in argument.uses)


def orders(fusion: FusionOp, last: str = "k") -> Iterator[tuple[int, Perm]]:
    """For each operand of a fusion's matrix product that lies in memory in another order than wished: the number of the
    input that it is, and the order. last: what is to lie side by side, the axes that are summed over ("k"), or those of
    the result ("free"). Axes of the batch come first. An operand of which a dimension has axes of several kinds, or
    that is padded, expanded or gathered by the product, has no other order."""
    product = multiplied(fusion)
    if product is None:
        return
    nest = nest_of_contract(product)
    extents = dict(enumerate(nest.extents))
    ranks = {"b": 0, "m": 1, "n": 1, "k": 2} if last == "k" else {"b": 0, "k": 1, "m": 2, "n": 2}
    for value, indices in ((product.lhs, nest.lhs), (product.rhs, nest.rhs)):
        load = resolve(value, indices, extents, lambda v: isinstance(v, BlockArgument))
        base = load.base
        if not isinstance(base, BlockArgument) or load.fill is not None or element_of(base) == PAIR:
            continue
        found = [{ranks[nest.roles[a]] for a in at.variables if extents[a] != 1} for at in load.position]
        if any(len(kinds) > 1 for kinds in found) or not reads_turned(fusion, base.index):
            continue
        wide = [d for d, kinds in enumerate(found) if kinds]
        wished = sorted(wide, key=lambda d: min(found[d]))
        if wished != wide:
            yield base.index, (*(d for d in range(len(found)) if d not in wide), *wished)


def read_turned(fusion: FusionOp, number: int, value: SSAValue, perm: Sequence[int]) -> None:
    """Has a fusion read `value`, which is its input `number` turned, in the place of that."""
    block = fusion.body.block
    argument = Rewriter.replace_value_with_new_type(
        block.args[number], turned_type(block.args[number].type, perm)
    )
    back = transpose(argument, inverse(perm), fusion.location)
    first = block.first_op
    assert first is not None
    block.insert_op_before(back, first)
    argument.replace_uses_with_if(back.result, lambda use: use.operation is not back)
    fusion.operands[number] = value


def stores_turned(value: SSAValue, machine: Machine) -> bool:
    """Whether a value is what a kernel computes, on vector cores or behind a matrix product, so that it may store it in
    another order."""
    fusion = value.owner
    if not isinstance(fusion, FusionOp) or fusion.on_host or fusion.schedule is not None or machine.fused:
        return False
    if multiplied(fusion) is None and text(fusion.kind) != "vector":
        return False
    assert isinstance(value, OpResult)
    return is_member(behind_transposes(fusion.yielded(0).values[value.index])[0])


def store_turned(value: OpResult, perm: Sequence[int]) -> SSAValue:
    """Has a fusion give its result `value` turned; that in the place of it. Its users have to be told."""
    fusion = value.owner
    assert isinstance(fusion, FusionOp)
    last = fusion.yielded(0)
    turned = transpose(last.values[value.index], perm, fusion.location)
    fusion.body.block.insert_op_before(turned, last)
    last.operands[value.index] = turned.result
    return Rewriter.replace_value_with_new_type(value, turned_type(value.type, perm))


def turning(value: SSAValue, perm: Sequence[int]) -> FusionOp:
    """A kernel that turns a tensor, in no block."""
    kind = turned_type(value.type, perm)
    body = Block(arg_types=[value.type])
    location = value.owner.location if isinstance(value.owner, Operation) else None
    turned = transpose(body.args[0], perm, location)
    body.add_ops([turned, YieldOp.create(operands=[turned.result])])
    return FusionOp.create(
        operands=[value],
        result_types=[kind],
        properties={"kind": StringAttr("move"), "domain": ints(kind.get_shape())},
        regions=[Region(body)],
        location=location,
    )


def copy_of(
    fusion: FusionOp, inputs: Mapping[int, Perm], stored: Mapping[int, Perm] | None = None
) -> FusionOp:
    """A fusion that reads some inputs turned and stores some results turned, and takes what stands for its inputs: it
    is to be judged, and nothing is made of it."""
    outside = Block(arg_types=[v.type for v in fusion.inputs])
    copied = fusion.clone(dict(zip(fusion.inputs, outside.args, strict=True)))
    for number, perm in inputs.items():
        kind = turned_type(fusion.inputs[number].type, perm)
        read_turned(copied, number, outside.insert_arg(kind, len(outside.args)), perm)
    for number, perm in (stored or {}).items():
        store_turned(copied.results[number], perm)
    return copied


def macs(product: ContractOp) -> int:
    """Multiplications of a product."""
    summed = [shape_of(product.lhs)[d] for d in to_ints(product.lhs_contract)]
    return size(shape_of(product.result)) * size(summed)
