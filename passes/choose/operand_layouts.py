"""Tensors that kernels read or store in another layout: with their dimensions in another order in memory (transposed),
or with longer rows (padded).

A product on the cube loads whole lines of its operands. Where what it sums over lies side by side in memory, a step may
have any number of columns; where the columns lie side by side, it has whole lines of them, and loads more for as many
sums. Where rows do not begin at lines, each run of a load meets one line more. What takes least, the bound of the
product says. Here is what that takes: the layouts that a product's operand may have, and fusions that read an input, or
store a result, in another one.

Before:  ^bb0(%x, %w: tensor<4096x8192xf16>):  %y = graph.contract %x, %w
After:   ^bb0(%x, %t: tensor<8192x4096xf16>):  %w = graph.transpose %t {perm = [1, 0]} ; %y = graph.contract %x, %w
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ...dialects.base import integer_attr, ints, text, to_ints
from ...dialects.dtypes import PAIR, itemsize, shape_in, size, tensor
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
    WidenOp,
    YieldOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import any_open
from ...machine import Machine
from ...support.hints import in_layout
from ..alternatives import PITCH, TRANSPOSED
from ..forms.access import resolve
from ..forms.nests import nest_of_contract
from ..forms.tensor_builder import BlockBuilder, TensorBuilder
from ..lower.axes import behind_layout, is_member
from ..lower.chains.attention_parts import is_chained
from ..lower.cube.contraction_axes import product_in

Perm = tuple[int, ...]
"""For each dimension of a transposed tensor, that of the tensor."""


LayoutName = Literal["transposed", "padded"]


class Layout(NamedTuple):
    """How a tensor lies in memory: in another order of its dimensions, and in longer rows. row: elements from one row
    to the next, 0 for as many as a row has."""

    perm: Perm
    row: int = 0

    @property
    def kind(self) -> LayoutName:
        """What a tensor is called that has it."""
        return "transposed" if self._is_transposed else "padded"

    @property
    def _is_transposed(self) -> bool:
        return self.perm != (*range(len(self.perm)),)

    def name_of(self, tensor: SSAValue) -> str | None:
        """What a tensor is called in this layout: other ones of it have other names."""
        said = {"transposed": self._is_transposed, "padded": self.row}
        return in_layout(tensor.name_hint, "_".join(word for word, is_so in said.items() if is_so))

    @property
    def verb(self) -> str:
        """What is done to a tensor that gets it."""
        return {"padded": "to pad", "transposed": "to transpose"}[self.kind]


LAYOUTS: Mapping[LayoutName, str] = {"transposed": TRANSPOSED, "padded": PITCH}
"""The alternative that gives each."""


class LayoutKinds(NamedTuple):
    """Which layouts operands of products may have: another order (transposed), longer rows (padded)."""

    transposed: bool = True
    padded: bool = True

    @staticmethod
    def without(names: Collection[str]) -> LayoutKinds:
        """Those that stay where these alternatives are left out."""
        return LayoutKinds(*(name not in names for name in (TRANSPOSED, PITCH)))


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


def stored_type(kind: Attribute, layout: Layout) -> TensorType:
    """The type of a tensor as it lies in memory."""
    assert isinstance(kind, TensorType)
    shape = [kind.get_shape()[p] for p in layout.perm]
    return tensor([*shape[:-1], layout.row or shape[-1]], kind.get_element_type())


def to_memory(build: TensorBuilder, value: SSAValue, layout: Layout) -> SSAValue:
    """What lies in memory of a tensor; nothing defines what is behind its rows."""
    made = build.transpose(value, layout.perm)
    if layout.row:
        made = build.add(WidenOp, [made], stored_type(value.type, layout), row=integer_attr(layout.row))
    return made


def from_memory(build: TensorBuilder, value: SSAValue, layout: Layout, kind: Attribute) -> SSAValue:
    """What lies in memory as the tensor of this type that it is."""
    last = len(layout.perm) - 1
    dense = stored_type(kind, Layout(layout.perm)).get_shape()
    return build.transpose(build.part(value, last, 0, dense[last]), inverse(layout.perm))


def array_in_memory(array: np.ndarray, layout: Layout) -> np.ndarray:
    """What lies in memory of an array, zeros behind its rows."""
    made = array.transpose(layout.perm)
    room = max(layout.row - made.shape[-1], 0)
    return np.pad(made, [(0, 0)] * (made.ndim - 1) + [(0, room)])


def row_at_lines(kind: Attribute, perm: Perm, machine: Machine) -> int:
    """Elements from one row to the next with which each row begins where a line of memory does, for a tensor in this
    order; 0 where that is so already, or rows are shorter than a line."""
    assert isinstance(kind, TensorType)
    shape = shape_in(kind)
    if not perm or any_open(shape):
        return 0
    last, line = shape[perm[-1]], machine.gm_align // itemsize(kind.get_element_type())
    return -(-last // line) * line if last > line and last % line else 0


def multiplied(fusion: FusionOp) -> ContractOp | None:
    """The matrix product of a fusion; None where there is none, or the fusion has several."""
    product = None if is_chained(fusion) else product_in(fusion)
    return product if isinstance(product, ContractOp) else None


def may_read_in_layout(fusion: FusionOp, number: int) -> bool:
    """Whether a fusion may read an input in another layout: it is a matrix product, or a kernel of vector cores that
    computes, and only ops of it that see through layout ops read the input."""
    if fusion.on_host or (multiplied(fusion) is None and text(fusion.kind) != "vector"):
        return False
    argument = fusion.body.block.args[number]
    return all(isinstance(use.operation, READERS) for use in argument.uses)


def layouts(
    fusion: FusionOp, machine: Machine, kinds: LayoutKinds, last: str = "k"
) -> Iterator[tuple[int, Layout]]:
    """For each operand of a fusion's matrix product: the number of the input that it is, and the layouts in which its
    loads may take less time. last: what is to lie side by side, the axes that are summed over ("k"), or those of the
    result ("free"). Axes of the batch come first. An operand of which a dimension has axes of several kinds, or that is
    padded, expanded or gathered by the product, has no other layout."""
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
        if any(len(each) > 1 for each in found) or not may_read_in_layout(fusion, base.index):
            continue
        walked = [d for d, each in enumerate(found) if each]
        wished = sorted(walked, key=lambda d: min(found[d]))
        own = (*range(len(found)),)
        orders = [own]
        if kinds.transposed and wished != walked:
            orders.append((*(d for d in own if d not in walked), *wished))
        for perm in orders:
            if perm != own:
                yield base.index, Layout(perm)
            row = row_at_lines(base.type, perm, machine)
            if row and kinds.padded:
                yield base.index, Layout(perm, row)


def read_in_layout(fusion: FusionOp, number: int, value: SSAValue, layout: Layout) -> None:
    """Has a fusion read `value`, which is its input `number` in this layout, in the place of that."""
    block = fusion.body.block
    kind = block.args[number].type
    argument = Rewriter.replace_value_with_new_type(block.args[number], stored_type(kind, layout))
    build = BlockBuilder(Block(), fusion.location)
    back = from_memory(build, argument, layout, kind)
    argument.replace_uses_with_if(back, lambda use: use.operation.parent is not build.block)
    Rewriter.inline_block(build.block, InsertPoint.at_start(block))
    fusion.operands[number] = value


def may_store_in_layout(value: SSAValue, machine: Machine) -> bool:
    """Whether a value is what a kernel computes, on vector cores or behind a matrix product, so that it may store it in
    another layout."""
    fusion = value.owner
    if not isinstance(fusion, FusionOp) or fusion.on_host or fusion.schedule is not None or machine.fused:
        return False
    if multiplied(fusion) is None and text(fusion.kind) != "vector":
        return False
    assert isinstance(value, OpResult)
    return is_member(behind_layout(fusion.yielded(0).values[value.index]))


def store_in_layout(value: OpResult, layout: Layout) -> SSAValue:
    """Has a fusion give its result `value` in this layout; that in the place of it. Its users have to be told."""
    fusion = value.owner
    assert isinstance(fusion, FusionOp)
    last = fusion.yielded(0)
    build = BlockBuilder(Block(), fusion.location)
    last.operands[value.index] = to_memory(build, last.values[value.index], layout)
    Rewriter.inline_block(build.block, InsertPoint.before(last))
    made = Rewriter.replace_value_with_new_type(value, stored_type(value.type, layout))
    made.name_hint = layout.name_of(made)
    return made


def relayout(value: SSAValue, layout: Layout) -> FusionOp:
    """A kernel that gives a tensor another layout, in no block."""
    kind = stored_type(value.type, layout)
    body = Block(arg_types=[value.type])
    location = value.owner.location if isinstance(value.owner, Operation) else None
    body.add_op(YieldOp.create(operands=[to_memory(BlockBuilder(body, location), body.args[0], layout)]))
    domain = stored_type(value.type, layout._replace(row=0)).get_shape()
    return FusionOp.create(
        operands=[value],
        result_types=[kind],
        properties={"kind": StringAttr("move"), "domain": ints(domain)},
        regions=[Region(body)],
        location=location,
    )


def copy_of(
    fusion: FusionOp, inputs: Mapping[int, Layout], stored: Mapping[int, Layout] | None = None
) -> FusionOp:
    """A fusion that reads some inputs and stores some results in other layouts, and takes what stands for its inputs:
    it is to be judged, and nothing is made of it."""
    outside = Block(arg_types=[v.type for v in fusion.inputs])
    copied = fusion.clone(dict(zip(fusion.inputs, outside.args, strict=True)))
    for number, layout in inputs.items():
        kind = stored_type(fusion.inputs[number].type, layout)
        read_in_layout(copied, number, outside.insert_arg(kind, len(outside.args)), layout)
    for number, layout in (stored or {}).items():
        store_in_layout(copied.results[number], layout)
    return copied


def macs(product: ContractOp) -> int:
    """Multiplications of a product."""
    summed = [shape_of(product.lhs)[d] for d in to_ints(product.lhs_contract)]
    return size(shape_of(product.result)) * size(summed)
