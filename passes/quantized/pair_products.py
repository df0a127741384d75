"""Products of numbers of 4 bits, as pairs of them that the cube multiplies.

    %x = graph.bitcast %bytes : (tensor<8x32xi8>) -> tensor<8x32x!graph.i4x2>
    %y = graph.contract %x, %w : (tensor<8x32x!graph.i4x2>, tensor<16x32x!graph.i4x2>) -> tensor<8x16xi32>

adds 64 products for each result. A sum has no order, so that which two numbers make a pair is free as long as both
sides agree: the first half of the summed dimension and the second one lie in the lower and the upper bits. Pairs lie
along the summed dimension, which is the last one in memory: the cube's loads take no pair apart.
"""

from __future__ import annotations

from xdsl.dialects.builtin import f16, f32, i8, i32
from xdsl.ir import Operation, SSAValue

from ...dialects.base import ints, to_ints
from ...dialects.dtypes import PAIR, size, tensor
from ...dialects.graph import ELEMENTWISE, ContractOp, StorageOp
from ...dialects.graph.interface import shape_of
from .integer_chains import PACKED, keep
from .products_named import NamedProduct
from .quantized import StorageBuilder, inverse
from .recipes import ProductChoice, Recipe
from .stored_inputs import input_kind

STORED = "i4"
"""What weights and inputs of such products are stored as."""


def is_paired(product: NamedProduct, recipe: Recipe) -> bool:
    """Whether a product multiplies pairs: a matrix product whose weights and inputs are stored in 4 bits."""
    if not (recipe.weights == recipe.inputs == STORED and isinstance(product.op, ContractOp)):
        return False
    return size(shape_of(product.input)) * size(shape_of(product.weights)) > 0


def sums_of_pairs(
    build: StorageBuilder, product: NamedProduct, x: SSAValue, q: SSAValue, choice: ProductChoice
) -> SSAValue:
    """The i32 sums of an input x of floats, which is stored with one scale, and of stored weights q."""
    op = product.op
    assert isinstance(op, ContractOp)
    left, right = _paired_input(build, product, x, choice), _paired_weights(build, product, q)
    operands = [left, right] if product.weight else [right, left]
    batch, last = ints(range(len(to_ints(op.lhs_batch)))), [ints([len(shape_of(v)) - 1]) for v in operands]
    return build.add(
        ContractOp,
        operands,
        tensor(shape_of(op.result), i32),
        lhs_batch=batch,
        rhs_batch=batch,
        lhs_contract=last[0],
        rhs_contract=last[1],
    )


def _paired_input(build: StorageBuilder, product: NamedProduct, x: SSAValue, choice: ProductChoice) -> SSAValue:
    """An input as pairs, with the summed dimension last. Each half is stored where it is read, so that one kernel makes
    the pairs of both."""
    assert choice.scale is not None
    low, high = input_kind(product, choice).data.range
    halves = []
    for half in _halves(build, _with_sum_last(build, product, x, 1 - product.weight)):
        shape = shape_of(half)
        units = build.elementwise(
            "mul", build.convert(half, f32), build.constant(inverse(choice.scale), shape, f32)
        )
        stored = build.elementwise("round_even", units)
        if choice.zero:
            stored = build.elementwise("add", stored, build.constant(choice.zero, shape, f32))
        ends = [build.constant(end, shape, f32) for end in (low, high)]
        halves.append(build.convert(build.elementwise("clamp", ends[0], stored, ends[1]), f16))
    first, second = halves
    shape = shape_of(first)
    # the byte is 16 second + first, and 16 more where first is below zero
    below = build.elementwise(
        "clamp", build.constant(-1, shape, f16), first, build.constant(0, shape, f16)
    )
    upper = build.elementwise("mul", build.elementwise("sub", second, below), build.constant(16, shape, f16))
    return as_pairs(build, build.convert(build.elementwise("add", upper, first), i8))


def _paired_weights(build: StorageBuilder, product: NamedProduct, q: SSAValue) -> SSAValue:
    """Stored weights as pairs, with the summed dimension last, which are kept."""
    assert isinstance(q.owner, Operation)
    q.owner.attributes.pop(PACKED, None)
    x = build.add(StorageOp, [q], tensor(shape_of(q), i8))
    first, second = _halves(build, _with_sum_last(build, product, x, product.weight))
    return keep(as_pairs(build, in_bytes(build, first, second)))


def in_bytes(build: StorageBuilder, first: SSAValue, second: SSAValue) -> SSAValue:
    """Bytes that hold two numbers of 4 bits each, which are given as i8: the first ones in their lower halves."""
    shape = shape_of(first)
    lower = build.elementwise("and", first, build.constant(15, shape, i8))
    upper = build.elementwise("shl", second, build.constant(4, shape, i8))
    return build.elementwise("or", lower, upper)


def as_pairs(build: StorageBuilder, x: SSAValue) -> SSAValue:
    """Bytes, i8, as the pairs that they hold."""
    return build.add(ELEMENTWISE["bitcast"], [x], tensor(shape_of(x), PAIR))


def _with_sum_last(build: StorageBuilder, product: NamedProduct, x: SSAValue, side: int) -> SSAValue:
    """An operand, 0 the left and 1 the right one, with batches first and all that is summed as one last dimension."""
    op = product.op
    assert isinstance(op, ContractOp)
    batch, summed = (
        [to_ints(a) for a in ((op.lhs_batch, op.lhs_contract), (op.rhs_batch, op.rhs_contract))[side]]
    )
    order = [*batch, *op.free_dims()[side], *summed]
    x = build.transpose(x, order)
    shape = shape_of(x)
    kept = shape[: len(shape) - len(summed)]
    return x if len(summed) == 1 else build.reshape(x, [*kept, size(shape[len(kept) :])])


def _halves(build: StorageBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Both halves of the last dimension; of an odd one, the second half ends with a zero."""
    *kept, n = shape_of(x)
    last, half = len(kept), -(-n // 2)
    x = build.pad(x, 0, [0] * (last + 1), [*[0] * last, 2 * half - n], [0] * (last + 1))
    return build.part(x, last, 0, half), build.part(x, last, half, half)
