"""graph-quantize: products are quantized as a configuration says.

Before:  %y = graph.contract %x, %w : (tensor<8x64xf32>, tensor<64x10xf32>) -> tensor<8x10xf32>
After:   %a = graph.quantize %x : ... -> tensor<8x64x!graph.quantized<i8:f32, 0.05>>
         %b = graph.quantize %w, %scales : ... -> tensor<64x10x!graph.quantized<i8<-127:127>:f32:1, ?>>
         %y = graph.contract (graph.dequantize %a), (graph.dequantize %b, %scales)

The later passes make a product of integers of it. The scales of inputs come from the configuration, or from each row
(token) where a mode is dynamic; those of weights from the weights, one for each feature or group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp, UnitAttr, f32, i8, i16, i32
from xdsl.ir import Operation, SSAValue

from ...dialects.base import describe, integer, integer_attr, text, to_ints
from ...dialects.dtypes import element_type, is_float, limits, numpy_dtype, tensor
from ...dialects.graph import (
    ConcatOp,
    ConstantOp,
    ContractOp,
    ConvOp,
    DataAttr,
    DequantizeOp,
    QuantizedType,
    QuantizeOp,
    ReduceWindowOp,
    StorageOp,
)
from ...dialects.graph.elementwise import ElementwiseOp
from ...dialects.graph.interface import element_of, shape_of
from ...machine import Machine
from ..base import TargetPass
from ..errors import PassError
from .inlining import inline_calls
from .integer_products import MOVES
from .products_named import NamedProduct, mark_weights, named_products
from .quantized import StorageBuilder
from .recipes import WIDE_LIMIT, ProductChoice, QuantConfig, Recipe

PACKED = "graph.packed"
"""Attribute of ops whose results stay the same as long as the weights do, and are what is kept of them."""

LEAST = 2.0**-100
"""Scales are no smaller, so that a row of zeros has one."""


@dataclass(frozen=True)
class GraphQuantizePass(TargetPass):
    """Quantizes products. config: a file with a configuration, or a mode for all products."""

    name = "graph-quantize"
    config: str = ""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        quantize_module(module, machine, read_config(self.config))


def read_config(given: str | Path | QuantConfig) -> QuantConfig:
    """A configuration from what people give: itself, the path of its file, or a mode for all products. Raises
    PassError."""
    if isinstance(given, QuantConfig):
        return given
    if isinstance(given, str) and not given.endswith(".toml"):
        return QuantConfig(given)
    return QuantConfig.load(given)


def quantize_module(
    module: ModuleOp, machine: Machine, config: QuantConfig, weights: Sequence[str] | None = None
) -> list[NamedProduct]:
    """Quantizes the products of a module at the graph level, in place; gives all that could be. weights: patterns of
    the arguments that are weights. Raises PassError for a configuration that names what is not there or that the
    machine cannot do, and for a static mode without a scale."""
    inline_calls(module)
    products = named_products(module, mark_weights(module, weights))
    config.check_names([p.name for p in products])
    chosen = [(p, config.choice(p.name)) for p in products]
    for product, choice in chosen:
        _check(product, choice, machine)
    inputs = Inputs()
    for product, choice in chosen:
        _quantize(product, choice, inputs)
    inputs.read_again()
    return products


def _check(product: NamedProduct, choice: ProductChoice, machine: Machine) -> None:
    recipe, where = choice.recipe, f"quantization: {product.name} ({describe(product.op)})"
    if recipe.static and choice.scale is None:
        raise PassError(
            f"{where} has the mode {choice.mode}, which needs the scale of its input: calibrate it with tw.quantize, "
            f"or take a mode that is dynamic"
        )
    for name in (recipe.inputs, recipe.weights):
        if name is not None and name.startswith("f8") and name not in machine.cube:
            raise PassError(
                f"{where} has the mode {choice.mode}, and the cube of {machine.name} has no {name}"
            )
    if recipe.inputs in ("i8", "i16") and "i8" not in machine.cube:
        raise PassError(f"{where} has the mode {choice.mode}, and the cube of {machine.name} has no i8")
    if recipe.compute is not None and recipe.compute not in machine.cube:
        raise PassError(
            f"{where} has the mode {choice.mode}, and the cube of {machine.name} has no {recipe.compute}"
        )


# -- products --------------------------------------------------------------------------------------------------


def _quantize(product: NamedProduct, choice: ProductChoice, inputs: Inputs) -> None:
    recipe, op = choice.recipe, product.op
    if recipe == Recipe():
        return
    build = StorageBuilder(op)
    x, w = product.input, product.weights
    if choice.balance is not None:
        x, w = _balanced(build, product, choice.balance)
    if recipe.weights is not None:
        w = _weights(build, product, w, choice, recipe)
    if recipe.inputs == "i16":
        result = _by_digits(build, product, x, w)
    else:
        if recipe.static:
            x = inputs.static(build, product, x, choice)
        elif recipe.dynamic:
            x = _dynamic(build, product, x)
        else:
            kind = element_type(recipe.compute) if recipe.compute else element_of(op.result)
            x, w = build.convert(x, kind), build.convert(w, kind)
        result = _multiplied(build, product, x, w, shape_of(op.result))
    if choice.shift is not None:
        result = _shifted(build, product, result, choice.shift)
    old = op.result
    result = build.convert(result, element_of(old))
    result.name_hint = old.name_hint
    inputs.follow(old, result)
    old.replace_all_uses_with(result)
    op.detach()
    op.erase()


def _multiplied(
    build: StorageBuilder, product: NamedProduct, x: SSAValue, w: SSAValue, shape: Sequence[int]
) -> SSAValue:
    """The product of other operands, in f32."""
    operands = [x, w] if product.weight else [w, x]
    return build.add(type(product.op), operands, tensor(shape, f32), **product.op.properties)


def kept_dims(product: NamedProduct) -> list[int]:
    """The dimensions of a product's weights that are not summed."""
    op = product.op
    if isinstance(op, ContractOp):
        summed = to_ints(op.rhs_contract if product.weight else op.lhs_contract)
        return [d for d in range(len(shape_of(product.weights))) if d not in summed]
    return [to_ints(op.rhs_layout)[1]]


def summed_dims(product: NamedProduct) -> tuple[list[int], list[int]]:
    """The dimensions of the input and of the weights that are summed; of a convolution those of the input features."""
    op = product.op
    if isinstance(op, ContractOp):
        sides = [[*to_ints(op.lhs_contract)], [*to_ints(op.rhs_contract)]]
        return sides[1 - product.weight], sides[product.weight]
    return [to_ints(op.lhs_layout)[1]], [to_ints(op.rhs_layout)[0]]


def feature_dims(product: NamedProduct) -> list[int]:
    """The dimensions of the result that are those of the weights which no sum and no batch takes."""
    op = product.op
    if not isinstance(op, ContractOp):
        return [to_ints(op.out_layout)[1]]
    batch, (m, n) = len(to_ints(op.lhs_batch)), op.free_dims()
    first, count = (batch + len(m), len(n)) if product.weight else (batch, len(m))
    return [*range(first, first + count)]


def _balanced(build: StorageBuilder, product: NamedProduct, factors: np.ndarray) -> tuple[SSAValue, SSAValue]:
    """The input over factors, one for each element of the summed dimensions, and the weights times them."""
    x, w, op = product.input, product.weights, product.op
    ours, theirs = summed_dims(product)
    wanted = tuple(shape_of(x)[d] for d in ours)
    if factors.shape != wanted:
        raise PassError(
            f"quantization: {product.name} has input features {list(wanted)}, and its balance has the "
            f"shape {list(factors.shape)}"
        )
    of_weights = factors
    if isinstance(op, ConvOp) and (groups := integer(op.groups)) > 1:
        # the weights of a feature meet the input features of its group
        features = to_ints(op.rhs_layout)[1]
        of_weights = np.repeat(factors.reshape(groups, -1), shape_of(w)[features] // groups, axis=0).T
        theirs = [*theirs, features]
    return _times(build, x, 1 / factors, ours), _times(build, w, of_weights, theirs)


def _times(build: StorageBuilder, x: SSAValue, factors: np.ndarray, dims: Sequence[int]) -> SSAValue:
    """x times factors that lie along dimensions of it."""
    return build.elementwise("mul", x, _along(build, x, factors, dims))


def _along(build: StorageBuilder, x: SSAValue, numbers: np.ndarray, dims: Sequence[int]) -> SSAValue:
    """Numbers along dimensions of x, in the shape of x."""
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    array = numbers.transpose(order)
    vector = build.add(
        ConstantOp,
        [],
        tensor(array.shape, element_of(x)),
        value=DataAttr.of(array.astype(numpy_dtype(element_of(x)))),
    )
    return build.broadcast(vector, shape_of(x), sorted(dims))


def _shifted(build: StorageBuilder, product: NamedProduct, result: SSAValue, shift: np.ndarray) -> SSAValue:
    """The result with a number added to each feature."""
    dims = feature_dims(product)
    wanted = tuple(shape_of(result)[d] for d in dims)
    if shift.shape != wanted:
        raise PassError(
            f"quantization: {product.name} has the features {list(wanted)}, and its shift has the shape "
            f"{list(shift.shape)}"
        )
    return build.elementwise("add", result, _along(build, result, shift, dims))


# -- inputs ----------------------------------------------------------------------------------------------------


class Inputs:
    """Quantized inputs: of products that read the same values in the same way it is one."""

    def __init__(self) -> None:
        self.made: dict[tuple[SSAValue, QuantizedType], SSAValue] = {}
        self.firsts: list[tuple[SSAValue, SSAValue]] = []

    def follow(self, old: SSAValue, new: SSAValue) -> None:
        """Notes that a value is about to be replaced."""
        for (value, kind), made in list(self.made.items()):
            if value is old:
                self.made[new, kind] = made
        self.firsts = [(new if v is old else v, made) for v, made in self.firsts]

    def static(
        self, build: StorageBuilder, product: NamedProduct, x: SSAValue, choice: ProductChoice
    ) -> SSAValue:
        """The input behind numbers that are stored with one scale: of the value that it is moved from."""
        storage = choice.recipe.inputs
        assert storage is not None and choice.scale is not None
        low, high = limits(storage)
        if not low <= choice.zero <= high:
            raise PassError(
                f"quantization: the input of {product.name} has the zero point {choice.zero}, which "
                f"{storage} does not store"
            )
        kind = QuantizedType.of(storage, "f32", choice.scale, choice.zero)
        moves: list[Operation] = []
        source = x
        while isinstance(source.owner, MOVES):
            moves.append(source.owner)
            source = source.owner.x
        found = self.made.get((source, kind))
        if found is None:
            after = StorageBuilder(_after(source, build.at))
            self._before_windows(source, kind)
            found = self.made[source, kind] = stored_as(after, after.convert(source, f32), kind)
            if not isinstance(product.op, ContractOp):
                self.firsts.append((source, found))
        for op in reversed(moves):
            shape = shape_of(op.results[0])
            found = build.add(type(op), [found], tensor(shape, f32), **op.properties)
        return found

    def _before_windows(self, source: SSAValue, kind: QuantizedType) -> None:
        """Stores what the largest of windows are taken of in the same way: they are stored numbers, too."""
        op = source.owner
        if (
            not isinstance(op, ReduceWindowOp)
            or text(op.kind) != "max"
            or not isinstance(op.x.owner, Operation)
        ):
            return
        build = StorageBuilder(op)
        narrow = build.convert(stored_as(build, build.convert(op.x, f32), kind), element_of(op.x))
        op.operands[list(op.operands).index(op.x)] = narrow

    def read_again(self) -> None:
        """What elementwise ops read of an input behind the convolution that it is quantized for is what is stored:
        they would load it once more."""
        for source, made in self.firsts:
            block = made.owner.parent if isinstance(made.owner, Operation) else None
            order = {op: i for i, op in enumerate(block.ops)} if block is not None else {}
            first = min((order[u.operation] for u in made.uses if u.operation in order), default=None)
            if first is None:
                continue
            late = [
                use
                for use in source.uses
                if isinstance(use.operation, (ElementwiseOp, ReduceWindowOp))
                and order.get(use.operation, -1) > first
            ]
            for use in late:
                build = StorageBuilder(use.operation)
                use.operation.operands[use.index] = build.convert(made, element_of(source))


def _after(value: SSAValue, at: Operation) -> Operation:
    """The op right behind what makes a value."""
    owner = value.owner
    if isinstance(owner, Operation):
        following = owner.next_op
        assert following is not None
        return following
    first = owner.first_op
    assert first is not None
    return first if owner is at.parent else at


def stored_as(build: StorageBuilder, x: SSAValue, kind: QuantizedType, *given: SSAValue) -> SSAValue:
    """f32 numbers as they are when they are stored."""
    stored = build.add(QuantizeOp, [x, *given], tensor(shape_of(x), kind))
    return build.add(DequantizeOp, [stored, *given], x.type)


def row_dims(product: NamedProduct) -> dict[int, int]:
    """The dimensions of the input that no sum takes, of a convolution that of the images, and which ones of the result
    they are."""
    op = product.op
    if not isinstance(op, ContractOp):
        return {to_ints(op.lhs_layout)[0]: to_ints(op.out_layout)[0]}
    batch = to_ints(op.lhs_batch if product.weight else op.rhs_batch)
    m, n = op.free_dims()
    free, first = (m, len(batch)) if product.weight else (n, len(batch) + len(m))
    return {d: i for i, d in enumerate(batch)} | {d: first + i for i, d in enumerate(free)}


def _dynamic(build: StorageBuilder, product: NamedProduct, x: SSAValue) -> SSAValue:
    """The input in i8, with a scale for each row, of its largest number."""
    x = build.convert(x, f32)
    stored, scale = _by_rows(build, product, x, "i8", 127)
    return build.add(DequantizeOp, [stored, scale], x.type)


def _by_rows(
    build: StorageBuilder, product: NamedProduct, x: SSAValue, storage: str, high: int
) -> tuple[SSAValue, SSAValue]:
    """The input as stored numbers with a scale for each row, and these."""
    rows = sorted(row_dims(product))
    scale = _largest(build, x, [d for d in range(len(shape_of(x))) if d not in rows], high)
    kind = QuantizedType.of(storage, "f32", None, 0, [(d, 1) for d in rows], -high, high)
    return build.add(QuantizeOp, [x, scale], tensor(shape_of(x), kind)), scale


def _by_digits(build: StorageBuilder, product: NamedProduct, x: SSAValue, w: SSAValue) -> SSAValue:
    """The product of inputs in 16 bits, which the cube multiplies as two numbers of 8: q = 256 a + b. Both are rows of
    one product, so that the weights are loaded once, and few rows cost the cube no more than one."""
    out = shape_of(product.op.result)
    stored, scale = _by_rows(build, product, build.convert(x, f32), "i16", WIDE_LIMIT)
    shape = shape_of(x)
    q = build.convert(build.add(StorageOp, [stored], tensor(shape, i16)), i32)
    high = build.elementwise("add", q, build.constant(128, shape, i32))
    high = build.elementwise("shr_arithmetic", high, build.constant(8, shape, i32))
    low = build.elementwise("sub", q, build.elementwise("shl", high, build.constant(8, shape, i32)))
    digits = [build.convert(part, i8) for part in (high, low)]
    places = row_dims(product)
    if places:
        d, to = min(places.items())
        both = [2 * n if i == d else n for i, n in enumerate(shape)]
        digits = [build.add(ConcatOp, digits, tensor(both, i8), dim=integer_attr(d))]
        wide = [2 * n if i == to else n for i, n in enumerate(out)]
    else:
        to, wide = 0, out
    plain = QuantizedType.of("i8", "f32", 1.0)
    sums = []
    for part in digits:
        numbers = build.add(StorageOp, [part], tensor(shape_of(part), plain))
        numbers = build.add(DequantizeOp, [numbers], tensor(shape_of(part), f32))
        sums.append(_multiplied(build, product, numbers, w, wide))
    if places:
        sums = [build.part(sums[0], to, first, out[to]) for first in (0, out[to])]
    total = build.elementwise("mul", sums[0], build.constant(256, out, f32))
    total = build.elementwise("add", total, sums[1])
    rows = build.broadcast(scale, out, [places[d] for d in sorted(places)])
    return build.elementwise("mul", total, rows)


def _largest(build: StorageBuilder, x: SSAValue, dims: Sequence[int], high: int) -> SSAValue:
    """The scale with which the largest numbers along some dimensions are stored as `high`."""
    top = build.reduce(build.elementwise("abs", x), "max", sorted(dims))
    shape = shape_of(top)
    top = build.elementwise("max", top, build.constant(LEAST, shape, f32))
    return build.elementwise("mul", top, build.constant(float(np.float32(1 / high)), shape, f32))


# -- weights ---------------------------------------------------------------------------------------------------


def weight_blocks(product: NamedProduct, recipe: Recipe) -> dict[int, int]:
    """How many neighbours along each dimension of the weights share a scale: those of a feature; where the summed
    dimension is a whole number of the mode's groups, those of a group."""
    blocks = dict.fromkeys(kept_dims(product), 1)
    k = summed_dims(product)[1][-1]
    size = shape_of(product.weights)[k]
    if recipe.group and isinstance(product.op, ContractOp) and size % recipe.group == 0:
        blocks[k] = recipe.group
    return blocks


def _weights(
    build: StorageBuilder, product: NamedProduct, w: SSAValue, choice: ProductChoice, recipe: Recipe
) -> SSAValue:
    """The weights with a scale for each feature, or for each group of a feature's weights; marked as to be kept."""
    shape, blocks = shape_of(w), weight_blocks(product, recipe)
    k = summed_dims(product)[1][-1]
    assert recipe.weights is not None
    if is_float(element_type(recipe.weights)):
        low = high = None
        top = int(limits(recipe.weights)[1])
    else:
        (low, high), top = recipe.weight_range, recipe.weight_range[1]
    storage = "i8" if recipe.weights == "i4" else recipe.weights
    ordered = sorted(blocks.items())
    kind = QuantizedType.of(storage, "f32", None, 0, ordered, low, high)
    if choice.stored is not None and choice.scales is not None:
        q, scale = _given(build, product, choice, kind, shape)
    else:
        w = build.convert(w, f32)
        scale = _scales(build, w, ordered, top)
        q = build.add(QuantizeOp, [w, scale], tensor(shape, kind))
        _keep(scale)
    if recipe.weights == "i4" and recipe.inputs is None and shape[k] % 2 == 0:
        q = _nibbles(build, q, kind, k)
    else:
        _keep(q)
    return build.add(DequantizeOp, [q, scale], tensor(shape, f32))


def _keep(value: SSAValue) -> None:
    if isinstance(value.owner, Operation):
        value.owner.attributes[PACKED] = UnitAttr()


def _scales(build: StorageBuilder, w: SSAValue, blocks: Sequence[tuple[int, int]], high: int) -> SSAValue:
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
    return _largest(build, build.reshape(w, out) if list(shape) != out else w, summed, high)


def _given(
    build: StorageBuilder,
    product: NamedProduct,
    choice: ProductChoice,
    kind: QuantizedType,
    shape: Sequence[int],
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
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise PassError(f"quantization: {product.name} has scales that are not positive and finite")
    storage = element_type(kind.data.storage)
    array = build.add(ConstantOp, [], tensor(shape, storage), value=DataAttr.of(stored.astype(np.int8)))
    q = build.add(StorageOp, [array], tensor(shape, kind))
    scale = build.add(ConstantOp, [], tensor(grid, f32), value=DataAttr.of(scales.astype(np.float32)))
    return q, scale


def _nibbles(build: StorageBuilder, q: SSAValue, kind: QuantizedType, k: int) -> SSAValue:
    """The same numbers from bytes that hold two each: one of the first half of dimension k, and one of the second."""
    shape = shape_of(q)
    half = shape[k] // 2
    x = build.add(StorageOp, [q], tensor(shape, i8))
    low, high = build.part(x, k, 0, half), build.part(x, k, half, half)
    part = shape_of(low)

    def shift(name: str, value: SSAValue) -> SSAValue:
        return build.elementwise(name, value, build.constant(4, part, i8))

    mask = build.elementwise("and", low, build.constant(15, part, i8))
    both = build.elementwise("or", mask, shift("shl", high))
    _keep(both)
    halves = [shift("shr_arithmetic", shift("shl", both)), shift("shr_arithmetic", both)]
    whole = build.add(ConcatOp, halves, tensor(shape, i8), dim=integer_attr(k))
    return build.add(StorageOp, [whole], tensor(shape, kind))
