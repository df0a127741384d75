"""Weights as a quantized program keeps them: stored numbers, and a scale for each feature or group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import f16, f32, i8, i16
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialects.base import integer, integer_attr
from ...dialects.dtypes import element_type, is_float, limits, size, tensor
from ...dialects.graph import (
    ConstantOp,
    ContractOp,
    ConvOp,
    DataAttr,
    DequantizeOp,
    ExpandOp,
    QuantizedType,
    QuantizeOp,
    StorageOp,
    UnpackOp,
)
from ...dialects.graph.interface import shape_of
from ...dialects.quantized import quantized
from ...dialects.sparsity import INDEXED
from ..errors import PassError
from ..forms.sparse_products import GROUP, compressed, largest_two
from .integer_chains import PACKED, keep, short
from .pair_products import as_pairs, in_bytes
from .products_named import (
    NamedProduct,
    kept_dims,
    summed_dims,
)
from .quantized import StorageBuilder
from .recipes import ProductChoice, Recipe, largest_stored

MOST_SHIFT = 2.0**24
"""What is added to a feature is at most so many units of its sums."""

FEW_ROWS = 16
"""Inputs of no more rows are one block of the cube: the columns of their product are what its cores share."""

LEAST = 2.0**-100
"""Scales are no smaller, so that a row of zeros has one."""


def largest_scale(build: StorageBuilder, x: SSAValue, dims: Sequence[int], high: float) -> SSAValue:
    """The scale with which the largest numbers along some dimensions are stored as `high`."""
    top = build.reduce(build.elementwise("abs", x), "max", sorted(dims))
    shape = shape_of(top)
    top = build.elementwise("max", top, build.constant(LEAST, shape, f32))
    return build.elementwise("mul", top, build.constant(float(np.float32(1 / high)), shape, f32))


def weight_blocks(product: NamedProduct, recipe: Recipe) -> dict[int, int]:
    """How many neighbours along each dimension of the weights share a scale: those of a feature; where the summed
    dimension is a whole number of the mode's groups, those of a group."""
    blocks = dict.fromkeys(kept_dims(product), 1)
    k = summed_dims(product)[1][-1]
    size = shape_of(product.weights)[k]
    if recipe.group and isinstance(product.op, ContractOp) and size % recipe.group == 0:
        blocks[k] = recipe.group
    return blocks


def weights_in_block(shape: Sequence[int], blocks: Mapping[int, int]) -> int:
    """How many weights share a scale."""
    return math.prod(blocks.get(d, n) for d, n in enumerate(shape))


def weights_as_stored(
    build: StorageBuilder,
    product: NamedProduct,
    w: SSAValue,
    choice: ProductChoice,
    recipe: Recipe,
    element: Attribute = f32,
    unpacks: bool = False,
) -> SSAValue:
    """The numbers that the weights stand for once they are stored, rounded from f32 to an element type; unpacks:
    whether the machine has an instruction that makes floats of pairs of numbers of 4 bits."""
    q, scale = stored_weights(build, product, w, choice, recipe)
    k = summed_dims(product)[1][-1]
    if is_sparse(product, recipe):
        q = in_sparse_columns(build, product, q)
    elif recipe.weights == "i4" and recipe.inputs is None and shape_of(w)[k] % 2 == 0:
        kind = quantized(q.type)
        assert kind is not None
        assert isinstance(q.owner, Operation)
        q.owner.attributes.pop(PACKED, None)  # its pairs or its halves are kept
        if unpacks and build.split_shape(kind.data, shape_of(w))[-1] % 2 == 0:
            return _from_pairs(build, q, kind, scale, element)
        return _from_nibbles(build, q, kind, k, scale, element)
    elif isinstance(product.op, ContractOp):
        q = in_columns(build, product, q)
    return build.convert(build.add(DequantizeOp, [q, scale], tensor(shape_of(w), f32)), element)


def in_columns(build: StorageBuilder, product: NamedProduct, q: SSAValue) -> SSAValue:
    """Stored weights that are kept with the summed dimensions last: what a core needs of them lies together, where
    rows of a few columns' bytes would fill no burst of the memory."""
    summed = summed_dims(product)[1]
    rank = len(shape_of(q))
    order = [*(d for d in range(rank) if d not in summed), *summed]
    kind = quantized(q.type)
    if order == [*range(rank)] or kind is None or not isinstance(q.owner, Operation):
        return q
    q.owner.attributes.pop(PACKED, None)
    x = build.add(StorageOp, [q], tensor(shape_of(q), kind.storage))
    transposed = keep(build.transpose(x, order))
    back = build.transpose(transposed, [order.index(d) for d in range(rank)])
    return build.add(StorageOp, [back], q.type)


def is_sparse(product: NamedProduct, recipe: Recipe) -> bool:
    """Whether two of four weights of a product are stored: those on the right side of a matrix product that sums over
    one dimension of whole bytes of positions, or of a convolution of one group with such input features."""
    summed = summed_dims(product)[1]
    grouped = isinstance(product.op, ConvOp) and integer(product.op.groups) > 1
    wanted = recipe.sparse and not grouped and product.weight == 1 and len(summed) == 1
    return wanted and shape_of(product.weights)[summed[0]] % INDEXED == 0


def in_sparse_columns(build: StorageBuilder, product: NamedProduct, q: SSAValue) -> SSAValue:
    """Stored weights that are kept as two of four, and their positions: of a convolution in the order in which they
    are, since the cube loads a window as rows of features; of a matrix product with the summed dimension last. Where
    inputs of this have more than `FEW_ROWS`, positions lie along the features: a core then loads many columns and few
    bytes of positions of each, else few columns and all bytes of these."""
    (k,) = summed_dims(product)[1]
    rank, kind = len(shape_of(q)), quantized(q.type)
    assert kind is not None and isinstance(q.owner, Operation)
    q.owner.attributes.pop(PACKED, None)
    if isinstance(product.op, ConvOp):
        values, index = compressed(build, build.add(StorageOp, [q], tensor(shape_of(q), i8)), k)
        dense = build.add(ExpandOp, [keep(values), keep(index)], tensor(shape_of(q), i8), dim=integer_attr(k))
        return build.add(StorageOp, [dense], q.type)
    order = [*(d for d in range(rank) if d != k), k]
    x = build.transpose(build.add(StorageOp, [q], tensor(shape_of(q), i8)), order)
    values, index = compressed(build, x, rank - 1)
    rows = size(shape_of(product.input)) // shape_of(q)[k]
    turn = [*range(rank - 2), rank - 1, rank - 2] if rows > FEW_ROWS and rank > 1 else [*range(rank)]
    values, index = keep(values), build.transpose(keep(build.transpose(index, turn)), turn)
    dense = build.add(ExpandOp, [values, index], x.type, dim=integer_attr(rank - 1))
    back = build.transpose(dense, [order.index(d) for d in range(rank)])
    return build.add(StorageOp, [back], q.type)


def stored_weights(
    build: StorageBuilder,
    product: NamedProduct,
    w: SSAValue,
    choice: ProductChoice,
    recipe: Recipe,
    step: float | None = None,
    shift: SSAValue | None = None,
) -> tuple[SSAValue, SSAValue]:
    """The weights as they are stored, marked as to be kept, and a scale for each feature or for each group of a
    feature's weights. step: what one unit of the input stands for; scales are then those of the sums, in few bits.
    shift: what is added to each feature, which is no more than `MOST_SHIFT` units of the sums."""
    shape, blocks = shape_of(w), weight_blocks(product, recipe)
    assert recipe.weights is not None
    if is_float(element_type(recipe.weights)):
        low = high = None
        top = float(limits(recipe.weights)[1])
    else:
        low, high = recipe.weight_range
        top = largest_stored(high, weights_in_block(shape, blocks))
    storage = "i8" if recipe.weights == "i4" else recipe.weights
    kind = QuantizedType.of(storage, "f32", None, 0, sorted(blocks.items()), low, high)

    def times(x: SSAValue, factor: float) -> SSAValue:
        return build.elementwise("mul", x, build.constant(float(np.float32(factor)), shape_of(x), f32))

    if choice.stored is not None and choice.scales is not None:
        q, scale = _given(build, product, choice, kind, shape, recipe)
        return q, scale if step is None else keep(short(build, times(scale, step)))
    w = build.convert(w, f32)
    if is_sparse(product, recipe):
        w = largest_two(build, w, summed_dims(product)[1][0])
    scale = _scales(build, w, sorted(blocks.items()), top)
    kept = scale
    if step is not None:
        if shift is not None:
            least = times(build.elementwise("abs", shift), 1 / (step * MOST_SHIFT))
            scale = build.elementwise("max", scale, least)
        if low is None:  # 8-bit floats reach so far that the product of two scales may be no f32 number
            scale = build.elementwise("max", scale, build.constant(LEAST / step, shape_of(scale), f32))
        kept = short(build, times(scale, step))
        scale = times(kept, 1 / step)
    return keep(build.add(QuantizeOp, [w, scale], tensor(shape, kind))), keep(kept)


def _scales(build: StorageBuilder, w: SSAValue, blocks: Sequence[tuple[int, int]], high: float) -> SSAValue:
    """A scale for each block of weights."""
    shape, out, summed = shape_of(w), list[int](), list[int]()
    sizes = dict(blocks)
    for d, n in enumerate(shape):
        if d not in sizes:
            summed.append(len(out))
            out.append(n)
        else:
            out.append(n // sizes[d])
            if sizes[d] > 1:
                summed.append(len(out))
                out.append(sizes[d])
    return largest_scale(build, build.reshape(w, out) if list(shape) != out else w, summed, high)


def _given(
    build: StorageBuilder,
    product: NamedProduct,
    choice: ProductChoice,
    kind: QuantizedType,
    shape: Sequence[int],
    recipe: Recipe,
) -> tuple[SSAValue, SSAValue]:
    """Weights that the configuration has, and their scales."""
    stored, scales = choice.stored, choice.scales
    assert stored is not None and scales is not None
    grid = kind.data.grid(shape)
    for what, array, wanted in (("stored weights", stored, tuple(shape)), ("scales", scales, grid)):
        if array.shape != wanted:
            raise PassError(
                f"quantization: {product.name} takes {what} of the shape {list(wanted)}, and the "
                f"configuration has {list(array.shape)}"
            )
    if is_sparse(product, recipe):
        moved = np.moveaxis(stored, summed_dims(product)[1][0], -1)
        if (np.count_nonzero(moved.reshape(*moved.shape[:-1], -1, GROUP), axis=-1) > GROUP // 2).any():
            raise PassError(
                f"quantization: {product.name} takes stored weights of which two of four are zero, and the "
                f"configuration has others: take a mode that is not sparse"
            )
    if not (scales > 0).all():
        raise PassError(f"quantization: {product.name} has scales that are not positive and finite")
    storage, (low, high) = element_type(kind.data.storage), kind.data.range
    if stored.size and not low <= stored.min() <= stored.max() <= high:
        raise PassError(
            f"quantization: {product.name} has stored weights from {stored.min()} to {stored.max()}; its mode takes "
            f"{low} to {high}"
        )
    array = build.add(ConstantOp, [], tensor(shape, storage), value=DataAttr.of(stored.astype(np.int8)))
    q = build.add(StorageOp, [array], tensor(shape, kind))
    scale = build.add(ConstantOp, [], tensor(grid, f32), value=DataAttr.of(scales.astype(np.float32)))
    return q, scale


def _from_pairs(
    build: StorageBuilder, q: SSAValue, kind: QuantizedType, scale: SSAValue, element: Attribute
) -> SSAValue:
    """The numbers that stored ones stand for, from pairs of neighbours in memory, which one instruction unpacks."""
    whole, facts = shape_of(q), kind.data
    x = build.split(build.add(StorageOp, [q], tensor(whole, i8)), facts)
    out, last = shape_of(x), len(shape_of(x)) - 1
    first, second = (build.part(x, last, at, out[last] // 2, 2) for at in range(2))
    x = build.add(UnpackOp, [keep(as_pairs(build, in_bytes(build, first, second)))], tensor(out, f16))
    numbers = build.elementwise("mul", build.convert(x, f32), build.spread(scale, facts, whole))
    return build.joined(build.convert(numbers, element), whole)


def _from_nibbles(
    build: StorageBuilder, q: SSAValue, kind: QuantizedType, k: int, scale: SSAValue, element: Attribute
) -> SSAValue:
    """The numbers that stored ones stand for, from bytes that hold two each: one of the first half of dimension k, and
    one of the second. All that is done to a byte is of one shape, so that it is one kernel."""
    shape = shape_of(q)
    both = keep(_packed_halves(build, q, k))
    blocks = dict(kind.data.blocks)
    half, group = shape[k] // 2, blocks.get(k)
    whole = group is None or half % group == 0
    inside = [2, half // group, group] if group is not None and whole else [2, half]
    out = [*shape[:k], *inside, *shape[k + 1 :]]
    beside = [d for d in range(len(out)) if d != k]
    x = build.broadcast(build.reshape(both, [out[d] for d in beside]), out, beside)
    x = build.convert(build.convert(x, f16), i16)
    places = build.broadcast(build.numbers([12, 8], [2], i16), out, [k])
    x = build.elementwise("shl", x, places)
    x = build.elementwise("shr_arithmetic", x, build.constant(12, out, i16))
    if not whole:  # a group is in both halves
        numbers = build.convert(build.reshape(x, shape), i8)
        stored = build.add(StorageOp, [numbers], tensor(shape, kind))
        return build.convert(build.add(DequantizeOp, [stored, scale], tensor(shape, f32)), element)
    dims = [d for d in range(k) if d in blocks]
    dims += [k, k + 1] if group is not None else []
    dims += [d + len(inside) - 1 for d in range(k + 1, len(shape)) if d in blocks]
    factor = build.broadcast(build.reshape(scale, [out[d] for d in dims]), out, dims)
    numbers = build.elementwise("mul", build.convert(x, f32), factor)
    return build.reshape(build.convert(numbers, element), shape)


def _packed_halves(build: StorageBuilder, q: SSAValue, k: int) -> SSAValue:
    """Bytes that hold two stored numbers of 4 bits each: the lower one is of the first half of dimension k, the upper
    one of the second."""
    shape = shape_of(q)
    half = shape[k] // 2
    x = build.add(StorageOp, [q], tensor(shape, i8))
    low, high = build.part(x, k, 0, half), build.part(x, k, half, half)
    return in_bytes(build, low, high)
