"""Splits a contraction with few results and long sums: each core computes a part of every sum.

The fusion becomes fusions: a product of the parts, side by side as a batch, and behind it a sum over the parts with the
epilogue. Where the parts do not divide the sums, a smaller product of what is left joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.ir import Attribute, Block, Operation, SSAValue

from ....dialects.base import integer, integer_attr, ints, to_ints
from ....dialects.dtypes import element_type, is_float, itemsize, size, tensor
from ....dialects.graph import ContractOp, ConvOp, FusionOp, YieldOp
from ....dialects.graph.control import besides_axes
from ....dialects.graph.interface import element_of, shape_of
from ....machine import Machine
from ...forms.gathered_operands import gathers_of
from ...forms.nests import Product
from ...forms.sparse_products import expansion_of
from ...forms.tensor_builder import BlockBuilder, TensorBuilder
from ...fusion.fuse import fuse_block
from ..schedule import even_parts
from .contraction_axes import made_operand, product_in
from .pooling import pooling_in

TILE = 128
"""Rows and columns of results that one core computes together."""

BLOCK = 16
"""Rows and columns are computed in blocks of so many."""

MANY_BYTES = 1 << 19
"""So many bytes of operands take a core longer than a second launch."""


def product_of(fusion: FusionOp) -> Product | None:
    """The contraction of a fusion, None where it has none, or several, or is pooled, which needs whole sums, or where
    vector cores make an operand of it."""
    whole = pooling_in(fusion) is not None or made_operand(fusion) is not None
    return None if whole else product_in(fusion)


def parts_worth_trying(op: Product, machine: Machine) -> list[int]:
    """Into how many parts sums could be cut so that idle cores have work: all of these, half of them, and so on; none
    where that cannot pay."""
    batch, m, n, length = sizes_of(op)
    width, extents = itemsize(element_of(op.lhs)), split_extents(op)
    most, found = _most_parts(batch, m, n, length, width, machine), list[int]()
    while most > 1 and extents:
        parts = max(even_parts(n, most) or 0 for n in extents) or min(most, max(extents))
        if parts > 1 and parts not in found and _pays(m, n, length, width, parts):
            found.append(parts)
        most //= 2
    return found


def every_number_of_parts(op: Product, machine: Machine) -> list[int]:
    """Into how many parts sums may be cut that are even, or a power of two, and no more than there are cores."""
    extents = split_extents(op)
    tried = range(2, min(machine.cube_cores, max(extents, default=0)) + 1)
    return [parts for parts in tried if parts & (parts - 1) == 0 or any(n % parts == 0 for n in extents)]


def sizes_of(op: Product) -> tuple[int, int, int, int]:
    """How many products an op is, the rows and columns of the result of each, and what one of its elements is summed
    over."""
    if isinstance(op, ConvOp):
        b, out, groups = shape_of(op.rhs), shape_of(op.result), integer(op.groups)
        n = max(out[to_ints(op.out_layout)[1]], 1)
        return groups, size(out) // n, n // groups, size(b) // n
    a, b = shape_of(op.lhs), shape_of(op.rhs)
    m, n = (size([x[d] for d in free]) for x, free in zip((a, b), op.free_dims(), strict=True))
    return size([a[d] for d in to_ints(op.lhs_batch)]), m, n, size([a[d] for d in to_ints(op.lhs_contract)])


def split_extents(op: Product) -> list[int]:
    """Lengths of the dimensions along which sums can be cut."""
    if isinstance(op, ConvOp):
        return [] if integer(op.groups) > 1 else [shape_of(op.rhs)[to_ints(op.rhs_layout)[0]]]
    if expansion_of(op) is not None:
        return []  # a part might begin inside a byte of positions
    if gathers_of(op):
        return []  # each part would be a slice of its own
    return [shape_of(op.lhs)[d] for d in to_ints(op.lhs_contract)]


def split_fusion(fusion: FusionOp, parts: int, machine: Machine) -> Block:
    """A block that computes the same in fusions of its own, the sums cut into so many parts. Its arguments are the
    fusion's inputs, and its yield has the fusion's results."""
    block = Block(arg_types=[v.type for v in fusion.inputs])
    values: dict[SSAValue, SSAValue] = dict(zip(fusion.body.block.args, block.args, strict=True))
    for op in fusion.body.block.ops:
        if isinstance(op, Product):
            build = BlockBuilder(block, op.location)
            values[op.result] = split_product(build, op, values[op.lhs], values[op.rhs], parts)
        elif isinstance(op, YieldOp):
            block.add_op(YieldOp.create(operands=[values[v] for v in op.operands], location=op.location))
        else:
            copied = without_axes(op, [values[v] for v in op.operands])
            block.add_op(copied)
            values.update(zip(op.results, copied.results, strict=True))
    fuse_block(block, machine)
    return block


def without_axes(
    op: Operation,
    operands: Sequence[SSAValue],
    result_types: Sequence[Attribute] | None = None,
    properties: Mapping[str, Attribute] | None = None,
) -> Operation:
    """An op of a fusion with these operands, in no block, and without its axes, which another fusion gives it anew.
    result_types, properties: its own where there are no others."""
    return type(op).create(
        operands=operands,
        result_types=op.result_types if result_types is None else result_types,
        properties=op.properties if properties is None else properties,
        attributes=besides_axes(op),
        location=op.location,
    )


def split_product(build: TensorBuilder, op: Product, lhs: SSAValue, rhs: SSAValue, parts: int) -> SSAValue:
    """The result of `op` for these operands, its sums cut into so many parts."""
    if isinstance(op, ConvOp):
        return _split_conv(build, op, lhs, rhs, parts)
    return _split_contract(build, op, lhs, rhs, parts)


def _split_contract(
    build: TensorBuilder, op: ContractOp, lhs: SSAValue, rhs: SSAValue, parts: int
) -> SSAValue:
    a = shape_of(op.lhs)
    pairs = zip(to_ints(op.lhs_contract), to_ints(op.rhs_contract), strict=True)
    left, right = max(pairs, key=lambda pair: (a[pair[0]] % parts == 0, a[pair[0]]))

    def product(start: int, stop: int, split: int) -> SSAValue:
        """The product of a part of the long dimension, of which `split` parts are a batch where that is not 0."""
        new, cut, batches, sums = bool(split), [], [], []
        dims = ((op.lhs_batch, op.lhs_contract), (op.rhs_batch, op.rhs_contract))
        for x, d, (over, along) in zip((lhs, rhs), (left, right), dims, strict=True):
            cut.append(build.grouped(build.part(x, d, start, stop - start), d, split))
            batches.append(ints([*([d] if new else []), *(i + (new and i > d) for i in to_ints(over))]))
            sums.append(ints([i + (new and i >= d) for i in to_ints(along)]))
        return build.add(
            ContractOp,
            cut,
            tensor([*([split] if new else []), *shape_of(op.result)], _wide(op)),
            lhs_batch=batches[0],
            rhs_batch=batches[1],
            lhs_contract=sums[0],
            rhs_contract=sums[1],
        )

    return _added_up(build, op, a[left], parts, 0, product)


def _split_conv(build: TensorBuilder, op: ConvOp, lhs: SSAValue, rhs: SSAValue, parts: int) -> SSAValue:
    """The parts are those of the input features, as groups."""
    b, out = shape_of(op.rhs), shape_of(op.result)
    left, right, features = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)[1]
    extent, n = b[right[0]], max(out[features], 1)

    def conv(start: int, stop: int, groups: int) -> SSAValue:
        """The results of a part of the input features, for each of `groups` groups of it where that is not 0."""
        image = build.part(lhs, left[1], start, stop - start)
        weights = build.part(rhs, right[0], start, stop - start)
        many = max(groups, 1)
        if groups:
            # the groups go in front of the output features
            each = list(b)
            each[right[0]], each[right[1]] = (stop - start) // groups, groups * n
            order = [d + (d >= right[0]) for d in range(len(b))]
            order.insert(right[1], right[0])
            inside = build.grouped(weights, right[0], groups)
            weights = build.reshape(build.transpose(inside, order), each)
        shape = [*out[:features], many * n, *out[features + 1 :]]
        kept = {name: value for name, value in op.properties.items() if name != "groups"}
        made = build.add(
            ConvOp, [image, weights], tensor(shape, _wide(op)), groups=integer_attr(many), **kept
        )
        return build.grouped(made, features, groups)

    return _added_up(build, op, extent, parts, features, conv)


def _added_up(
    build: TensorBuilder,
    op: Product,
    extent: int,
    parts: int,
    dim: int,
    product: Callable[[int, int, int], SSAValue],
) -> SSAValue:
    """The result of `op` from `parts` products of one size over its long dimension of `extent`, which `product` gives
    side by side along `dim`, and from one of what is left."""
    most_of_it = extent // parts * parts
    total = build.reduce(product(0, most_of_it, parts), "sum", [dim])
    if most_of_it < extent:
        rest = product(most_of_it, extent, 0)
        total = build.elementwise("add", total, rest)
    return build.convert(total, element_of(op.result))


def _most_parts(batch: int, m: int, n: int, length: int, width: int, machine: Machine) -> int:
    """How many parts of its sums a product of m x n results, each over `length`, has idle cores for; 0 where cutting
    them does not pay. `width`: bytes of an element."""
    most = machine.cube_cores // max(batch * -(-m // TILE) * -(-n // TILE), 1)
    lines = sum(-(-min(x, TILE) // BLOCK) * BLOCK for x in (m, n))
    return 0 if length * lines * width < MANY_BYTES else most


def _pays(m: int, n: int, length: int, width: int, parts: int) -> bool:
    """Whether parts of sums are not written and read again for as long as is won."""
    return length * (m + n) * width >= 2 * 4 * parts * m * n


def _wide(op: Product) -> Attribute:
    """The type in which parts of sums are kept."""
    return element_type("f32") if is_float(element_of(op.lhs)) else element_of(op.result)
