"""A product as multiplications and a sum: what the vector cores compute where the cube would wait for its operands.

Before:  ^bb0(%x: tensor<1x64xf16>, %w: tensor<64x32xf16>):  %y = graph.contract %x, %w ... : tensor<1x32xf16>
After:   domain [1, 64, 32]; both sides as f32, spread over the domain, multiplied, and added up along axis 1

The sums are in f32, as in the cube. The axes that are summed over stand where the longer operand has them in memory,
so that what is loaded of it are long runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from ....dialects.base import ints, text, to_ints
from ....dialects.dtypes import element_type, is_float, size, tensor
from ....dialects.graph import ELEMENTWISE, ArgReduceOp, ContractOp, FusionOp, ReduceOp, YieldOp
from ....dialects.graph.control import AXES, axes_of
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.open_sizes import any_open
from ....machine import Machine
from ...forms.access import resolve
from ...forms.gathered_operands import gathers_of
from ...forms.nests import ProductNest, nest_of_contract
from ...forms.sparse_products import expansion_of
from ...forms.tensor_builder import BlockBuilder
from ..axes import is_member
from .contraction_axes import made_operand, product_in, takes_places
from .pooling import pooling_in

MOST_ROWS = 4
"""A product of more rows and more columns than this is the cube's: each takes the vector unit as long again, the cube
takes sixteen at once."""


def why_not_spread(fusion: FusionOp, machine: Machine) -> str | None:
    """Why vector cores should not compute the product of a fusion, as a sentence without its end; None where they
    may."""
    op = product_in(fusion)
    if not isinstance(op, ContractOp) or text(fusion.kind) not in ("cube", "mix"):
        return "it is no product"
    if made_operand(fusion) is not None:
        return "vector cores make an operand of its product for the cube"
    if machine.fused:
        return f"on {machine.name} the cube and the vector unit load over one pipe"
    axes, out = axes_of(op), shape_of(op.result)
    if any_open([*shape_of(op.lhs), *shape_of(op.rhs)]):
        return "its product has open dimensions"
    if not is_float(element_of(op.lhs)) or not is_float(element_of(op.rhs)) or expansion_of(op) is not None:
        return "its product is of integers or of a sparse operand"
    if gathers_of(op):
        return "its product reads slices at places that the scalar unit of a cube core reads"
    if axes is None or to_ints(fusion.domain) != out or any(a not in (d, -1) for d, a in enumerate(axes)):
        return "its product does not have the axes of its domain"
    m, n = op.free_dims()
    rows, columns = size([shape_of(op.lhs)[d] for d in m]), size([shape_of(op.rhs)[d] for d in n])
    if min(rows, columns) > MOST_ROWS:
        return f"its product has more than {MOST_ROWS} rows and columns"
    if any(isinstance(inside, ReduceOp | ArgReduceOp) for inside in fusion.body.block.ops):
        return "rows of its result are reduced behind it"
    if takes_places(fusion):
        return "what stands behind its product takes single places along an axis of its result"
    if 0 in out or size([shape_of(op.lhs)[d] for d in to_ints(op.lhs_contract)]) < 2:
        return "its product adds nothing up"
    if pooling_in(fusion) is not None:
        return "its result is pooled"
    return None


class AxesBuilder(BlockBuilder):
    """Adds ops at the end of a block, those of a fusion's domain with their axes."""

    def product(self, op: ContractOp, lhs: SSAValue, rhs: SSAValue, place: Mapping[int, int]) -> SSAValue:
        """What a product gives for these operands, in f32. `place`: the axis of the domain of each axis of its nest."""
        nest, wide = nest_of_contract(op), element_type("f32")
        shape, everything = nest.extents, range(len(nest.extents))
        at = [-1 if n == 1 else place[a] for a, n in enumerate(shape)]
        factors: list[SSAValue] = []
        for value, indices in ((lhs, nest.lhs), (rhs, nest.rhs)):
            axes = [i.terms[0][0] for i in indices]
            order = sorted(range(len(axes)), key=axes.__getitem__)
            dims = [axes[d] for d in order]
            transposed = self.transpose(value, order)
            factors.append(self.broadcast(self.converted(transposed, wide, [at[a] for a in dims]), shape, dims))
        product = self.along(self.add(ELEMENTWISE["mul"], factors, tensor(shape, wide)), at)
        summed = [a for a in everything if nest.roles[a] == "k"]
        return self.along(self.reduce(product, "sum", summed), at)

    def converted(self, value: SSAValue, element: Attribute, axes: Sequence[int]) -> SSAValue:
        """A value with these axes in another element type, if it is not in that one."""
        return value if element_of(value) == element else self.along(self.convert(value, element), axes)

    def along(self, value: SSAValue, axes: Sequence[int]) -> SSAValue:
        """The result of a new op, which works along these axes."""
        assert isinstance(value.owner, Operation)
        value.owner.attributes[AXES] = ints(axes)
        return value


@dataclass(frozen=True)
class Prologue:
    """An elementwise fusion that makes an operand of a product, the `number`-th one. dims: the dimension of the operand
    along each axis of the fusion's domain."""

    fusion: FusionOp
    number: int
    dims: Mapping[int, int]


SPREAD = "spread"
"""The attribute of the sum of a product in a vector fusion that is spread over its domain: its kernel is that of a
product."""


def is_spread(fusion: FusionOp) -> bool:
    """Whether a vector fusion is a product that was spread."""
    return any(SPREAD in op.attributes for op in fusion.body.block.ops)


def spread(fusion: FusionOp, prologue: Prologue | None = None) -> FusionOp:
    """A vector fusion that computes what one does against which `why_not_spread` has no reason, in no block; its
    operands are arguments of a block of their own. With a prologue, what that takes comes first, in the place of what
    it makes."""
    op = product_in(fusion)
    assert isinstance(op, ContractOp)
    nest = nest_of_contract(op)
    order = _order(op, nest)
    place = {a: i for i, a in enumerate(order)}
    made = None if prologue is None else op.operands[prologue.number]
    given = [arg for arg in fusion.body.block.args if arg is not made]
    before = [] if prologue is None else list(prologue.fusion.body.block.args)
    types = [v.type for v in (*before, *given)]
    build = AxesBuilder(Block(arg_types=types))
    values: dict[SSAValue, SSAValue] = dict(zip((*before, *given), build.block.args, strict=True))
    if prologue is not None and made is not None:
        indices = (nest.lhs, nest.rhs)[prologue.number]
        along = {a: place[indices[d].terms[0][0]] for a, d in prologue.dims.items()}
        values[made] = _inlined(prologue.fusion, build, values, along)
    for each in fusion.body.block.ops:
        build.location = each.location
        if each is op:
            total = build.product(op, values[op.lhs], values[op.rhs], place)
            assert isinstance(total.owner, Operation)
            total.owner.attributes[SPREAD] = UnitAttr()
            axes = [-1 if n == 1 else place[a] for a, n in enumerate(shape_of(op.result))]
            values[op.result] = build.converted(total, element_of(op.result), axes)
            continue
        copy = each.clone(values)
        named = axes_of(copy)
        if named is not None:
            copy.attributes[AXES] = ints([a if a < 0 else place[a] for a in named])
        build.block.add_op(copy)
    return FusionOp.create(
        operands=Block(arg_types=types).args,
        result_types=fusion.result_types,
        properties={"kind": StringAttr("vector"), "domain": ints([nest.extents[a] for a in order])},
        regions=[Region(build.block)],
        location=fusion.location,
    )


def _inlined(
    fusion: FusionOp, build: AxesBuilder, values: dict[SSAValue, SSAValue], along: Mapping[int, int]
) -> SSAValue:
    """What a fusion makes, its ops at the end of a block; `along`: the axis there of each of its own."""
    for each in fusion.body.block.ops:
        if isinstance(each, YieldOp):
            return values[each.values[0]]
        copy = each.clone(values)
        named = axes_of(copy)
        if named is not None:
            copy.attributes[AXES] = ints([along.get(a, -1) for a in named])
        build.block.add_op(copy)
    raise AssertionError("a fusion yields nothing")


def longer_operand(op: ContractOp) -> SSAValue:
    """The operand of a product that has more elements: the weights, where there is one row."""
    return op.rhs if size(shape_of(op.rhs)) >= size(shape_of(op.lhs)) else op.lhs


def innermost(op: ContractOp, longer: SSAValue) -> int | None:
    """The extent of the axis along which the longer operand is contiguous; None where it is summed over."""
    nest = nest_of_contract(op)
    axis, _ = _steps(op, nest, longer)
    return None if axis is None or nest.roles[axis] == "k" else nest.extents[axis]


def _steps(op: ContractOp, nest: ProductNest, longer: SSAValue) -> tuple[int | None, dict[int, int]]:
    """The axis of the nest along which an operand's elements are nearest in memory, and how far apart they are along
    each; None where it has one element."""
    indices = nest.rhs if longer is op.rhs else nest.lhs
    load = resolve(
        longer, indices, dict(enumerate(nest.extents)), lambda v: isinstance(v, BlockArgument) or is_member(v)
    )
    found = zip(load.indices, load.strides, strict=True)
    steps = {i.terms[0][0]: abs(s) for i, s in found if i.terms and nest.extents[i.terms[0][0]] != 1}
    return min((a for a in steps if steps[a]), key=steps.__getitem__, default=None), steps


def _order(op: ContractOp, nest: ProductNest) -> list[int]:
    """The axes of a product, those of its result in order, with those that are summed over before the axis along which
    the longer operand is contiguous, or last where that is one of them."""
    out = list(range(len(shape_of(op.result))))
    axis, steps = _steps(op, nest, longer_operand(op))
    summed = sorted((a for a, role in nest.roles.items() if role == "k"), key=lambda a: -steps.get(a, 0))
    at = len(out) if axis is None or axis in summed else axis
    return [*out[:at], *summed, *out[at:]]
