"""Numbers for the columns of a product, which the cube and its fixpipe take beside it: a bias, and factors.

The fixpipe takes a factor as a word, of which the low 32 bits are an f32 of few bits. `pack_factors` brings factors
that are known into that form, in the fusion and outside:

Before:  %f = graph.constant {value = #graph.data<f32, [64], ...>}
         graph.fusion %x, %w, %f { ^bb0(..., %c: tensor<64xf32>):  ... graph.broadcast %c ... graph.mul ... }
After:   %f = graph.constant {value = #graph.data<ui64, [64], ...>}
         graph.fusion %x, %w, %f { ^bb0(..., %c: tensor<64xui64>):
             %n = graph.convert %c : ... -> tensor<64xui32>
             %b = graph.bitcast %n : ... -> tensor<64xf32>
             ... graph.broadcast %b ... graph.mul ... }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from ....dialects.base import Expr, ints, to_ints
from ....dialects.dtypes import dtype_name, element_type, tensor
from ....dialects.graph import ELEMENTWISE, ConstantOp, FusionOp
from ....dialects.graph.attributes import DataAttr
from ....dialects.graph.control import AXES, axes_of
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import row_strides
from ....machine import Machine
from ...forms.access import resolve
from ...forms.nests import ProductNest
from ...quantized.integer_chains import POSITIVE
from ..axes import is_base

WORD, NUMBER = np.dtype(np.uint64), np.dtype(np.uint32)


@dataclass(frozen=True)
class Columns:
    """A tensor with a number for each column of a product: the number of the fusion's input, its element type, where it
    begins in it, and its strides by axis of the domain, all in elements. axes: that of each dimension, or -1; None
    where one is no axis from its start on. masked: whether it is of words of which only the bits of positive factors
    are taken."""

    source: int
    element: Attribute
    offset: int
    strides: Mapping[int, int]
    axes: tuple[int, ...] | None
    masked: bool = False


def columns_of(value: SSAValue, user: Operation, fusion: FusionOp, nest: ProductNest) -> Columns | None:
    """How an operand of an op behind a product has a number for each column, from an input of the fusion or from the
    words that are one; None where it does not."""
    named = axes_of(user)
    if named is None or any(len(terms) > 1 for terms in nest.out):
        return None
    indices: list[Expr[int]] = [Expr() if a < 0 else Expr.of(a) for a in named]
    load = resolve(value, indices, to_ints(fusion.domain), is_base)
    argument, masked = _words_behind(load.base, fusion) or (load.base, False)
    if load.fill is not None or not isinstance(argument, BlockArgument):
        return None
    strides = {e.terms[0][0]: s for e, s in zip(load.indices, load.strides, strict=True)}
    walked = [a for a, role in sorted(nest.roles.items()) if role == "n" and nest.extents[a] != 1]
    # a row comes as one run of memory
    if strides != dict(zip(walked, row_strides([nest.extents[a] for a in walked]), strict=True)):
        return None
    simple = all(e == Expr() or e == Expr.of(e.terms[0][0]) for e in load.position)
    axes = tuple(e.terms[0][0] if e.terms else -1 for e in load.position) if simple else None
    return Columns(argument.index, element_of(argument), load.offset, strides, axes, masked)


def _words_behind(value: SSAValue, fusion: FusionOp) -> tuple[SSAValue, bool] | None:
    """The words whose low bits a value is, and whether only those bits of them that make a positive factor."""
    if not isinstance(value.owner, ELEMENTWISE["bitcast"]):
        return None
    low, masked = value.owner.operands[0], False
    if isinstance(low.owner, ELEMENTWISE["and"]):
        bits, mask = low.owner.operands
        if POSITIVE not in (_splat(bits, fusion), _splat(mask, fusion)):
            return None
        low, masked = (mask if _splat(bits, fusion) == POSITIVE else bits), True
    if not isinstance(low.owner, ELEMENTWISE["convert"]) or dtype_name(element_of(low)) != "ui32":
        return None
    words = low.owner.operands[0]
    fits = dtype_name(element_of(words)) == "ui64" and shape_of(words) == shape_of(value)
    return (words, masked) if fits else None


def _splat(value: SSAValue, fusion: FusionOp) -> int | None:
    """The whole number that a value inside a fusion is everywhere, if that is known."""
    if isinstance(value, BlockArgument) and value.owner is fusion.body.block:
        value = fusion.inputs[value.index]
    made = value.owner
    if not isinstance(made, ConstantOp) or not made.value.data.splat or made.value.data.dtype[0] not in "iu":
        return None
    return int(made.value.data.elements()[0])


def known_factors(columns: Columns, fusion: FusionOp, machine: Machine) -> np.ndarray | None:
    """The f32 numbers in a constant, or in the words of one, if the fixpipe takes all of them and all are positive;
    None otherwise."""
    made = fusion.inputs[columns.source].owner
    drains = machine.scaled_drains
    if drains is None or columns.axes is None or not isinstance(made, ConstantOp):
        return None
    values = made.value.data.array()
    if values.dtype == WORD:
        if (values >> 32).any():
            return None
        values = values.astype(NUMBER).view(np.float32)
    if values.dtype != np.float32 or not all(n > 0 and drains.takes(n) for n in values.reshape(-1).tolist()):
        return None
    return values


def pack_factors(fusion: FusionOp, columns: Columns, numbers: np.ndarray) -> None:
    """Gives a fusion factors of columns as words, in the place of the constant that they are."""
    block, old = fusion.body.block, fusion.inputs[columns.source].owner
    shape, parent = numbers.shape, fusion.parent
    assert isinstance(old, ConstantOp) and parent is not None and columns.axes is not None
    words = np.ascontiguousarray(numbers).view(NUMBER).astype(WORD)
    made = ConstantOp.create(
        properties={"value": DataAttr.of(words)},
        result_types=[tensor(shape, element_type("ui64"))],
        location=old.location,
    )
    parent.insert_op_before(made, fusion)
    before = block.args[columns.source]
    argument = block.insert_arg(made.result.type, columns.source)
    value: SSAValue = argument
    first = block.first_op
    assert first is not None
    for function, kind in (("convert", "ui32"), ("bitcast", "f32")):
        op = ELEMENTWISE[function].create(
            operands=[value],
            result_types=[tensor(shape, element_type(kind))],
            attributes={AXES: ints(columns.axes)},
            location=fusion.location,
        )
        block.insert_op_before(op, first)
        value = op.results[0]
    before.replace_all_uses_with(value)
    block.erase_arg(before)
    fusion.operands = [made.result if i == columns.source else v for i, v in enumerate(fusion.inputs)]
    if next(iter(old.result.uses), None) is None:
        old.detach()
        old.erase()
