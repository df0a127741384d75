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
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, f32, i1, i8, i16, i32
from xdsl.ir import Attribute, Operation, SSAValue

from ...dialects.base import describe, integer, ints, to_ints
from ...dialects.chosen import ChosenMode, location_with
from ...dialects.dtypes import element_type, is_float, numpy_dtype, tensor
from ...dialects.graph import (
    ELEMENTWISE,
    ConstantOp,
    ContractOp,
    ConvOp,
    DataAttr,
    DequantizeOp,
    QuantizedType,
    QuantizeOp,
    StorageOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.quantized import quantized
from ...machine import Machine
from ..base import TargetPass
from ..errors import PassError
from ..forms.access import splat_of
from ..inlining import inline_calls
from ..rewriting import erase_dead
from .affine_chains import AffineChain, chain_behind
from .integer_chains import integer_sums, requantize, sums_of_stored
from .pair_products import is_paired, sums_of_pairs
from .products_named import (
    NamedProduct,
    feature_dims,
    free_dims,
    main_function,
    mark_weights,
    named_products,
    row_dims,
    summed_dims,
    weight_values,
)
from .quantized import StorageBuilder
from .recipes import ProductChoice, QuantConfig, Recipe
from .stored_inputs import Inputs, input_kind
from .stored_weights import (
    in_columns,
    in_sparse_columns,
    is_sparse,
    largest_scale,
    stored_weights,
    weight_blocks,
    weights_as_stored,
)


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
    module: ModuleOp,
    machine: Machine,
    config: QuantConfig,
    weights: Sequence[str] | None = None,
    words: bool = True,
) -> list[NamedProduct]:
    """Quantizes the products of a module at the graph level, in place; gives all that could be.

    weights: patterns of the arguments that are weights; words: whether factors of sums are kept in the form that the
    machine takes. Raises PassError for a configuration that names what is not there or that the machine cannot do, and
    for a static mode without a scale.
    """
    inline_calls(module)
    flags = mark_weights(module, weights)
    products = named_products(module, flags)
    config.check_names([p.name for p in products])
    chosen = [(p, config.choice(p.name)) for p in products]
    for product, choice in chosen:
        _check(product, choice, machine)
    main = main_function(module)
    own = {*main.walk()}
    balanced: dict[tuple[SSAValue, bytes], SSAValue] = {}
    for product, choice in chosen:
        if choice.balance is not None and choice.recipe != Recipe():
            _balance(product, choice.balance, balanced)
    inputs = Inputs(words and machine.scaled_drains is not None and not machine.fused, own)
    fixed = weight_values(main, flags)
    for product, choice in chosen:
        _quantize(product, choice, inputs, fixed, machine.vector.runs("unpack", "f16"))
    inputs.read_again()
    erase_dead(main.body.block)  # what is not used any more is no use of a result
    requantize(inputs.sums)
    erase_dead(main.body.block)
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
    if recipe.inputs in ("i4", "i8", "i16") and "i8" not in machine.cube:
        raise PassError(f"{where} has the mode {choice.mode}, and the cube of {machine.name} has no i8")
    if recipe.inputs == "i4" and "i4x2" not in machine.cube:
        raise PassError(
            f"{where} has the mode {choice.mode}, and the cube of {machine.name} has no products of 4 bits: take "
            f"{choice.mode.replace('a4', 'a8')}"
        )
    if recipe.sparse and recipe.weights not in machine.cube_sparse:
        raise PassError(
            f"{where} has the mode {choice.mode}, and the cube of {machine.name} has no products of sparse weights: "
            f"take {choice.mode.removesuffix('-sparse')}"
        )
    if recipe.compute is not None and recipe.compute not in machine.cube:
        raise PassError(
            f"{where} has the mode {choice.mode}, and the cube of {machine.name} has no {recipe.compute}"
        )


# -- products --------------------------------------------------------------------------------------------------


class ProductBuilder(StorageBuilder):
    """Builds what a product becomes. The new product has the location of the old one, with what was chosen for it."""

    def __init__(self, at: Operation, product: Operation, said: ChosenMode):
        super().__init__(at)
        self.kind, self.location = type(product), location_with(said, product.location)

    def add(
        self, cls: type[Operation], operands: Sequence[SSAValue], result: Attribute, **properties: Attribute
    ) -> SSAValue:
        made = super().add(cls, operands, result, **properties)
        if cls is self.kind and isinstance(made.owner, Operation):
            made.owner.location = self.location
        return made


def _quantize(
    product: NamedProduct, choice: ProductChoice, inputs: Inputs, fixed: set[SSAValue], unpacks: bool
) -> None:
    recipe, op = choice.recipe, product.op
    said = ChosenMode(product.name, choice.mode)
    if recipe == Recipe():
        op.location = location_with(said, op.location)
        return
    folds = recipe.weights is not None and choice.stored is None
    chain = chain_behind(op.result, feature_dims(product), fixed) if folds else AffineChain(op.result)
    build = ProductBuilder(chain.last or op, op, said)
    scale, shift = chain.scale_and_shift(build, feature_dims(product))
    if choice.shift is not None:
        more = _numbers(
            build, choice.shift, [shape_of(op.result)[d] for d in feature_dims(product)], product, "shift"
        )
        more = more if scale is None else build.elementwise("mul", more, scale)
        shift = more if shift is None else build.elementwise("add", shift, more)
    x, w = product.input, product.weights
    if scale is not None:
        of_weights = build.broadcast(scale, shape_of(w), free_dims(product))
        w = build.elementwise("mul", build.convert(w, f32), of_weights)
    if recipe.inputs == "i16":
        w = weights_as_stored(build, product, w, choice, recipe)
        result = _by_digits(build, product, x, w, recipe)
    elif recipe.static:
        result, shift = _static(build, product, x, w, choice, inputs, shift)
    else:
        kind = element_type(recipe.compute) if recipe.compute else element_of(op.result)
        kind = f32 if recipe.dynamic else kind
        if recipe.weights is not None:
            w = weights_as_stored(build, product, w, choice, recipe, kind, unpacks)
        if recipe.dynamic:
            x = _dynamic(build, product, x, recipe)
        else:
            x, w = build.convert(x, kind), build.convert(w, kind)
        result = _multiplied(build, product, x, w, shape_of(op.result))
    if shift is not None:
        shift = build.broadcast(shift, shape_of(result), feature_dims(product))
        result = build.elementwise("add", result, shift)
    old = chain.end
    result = build.convert(result, element_of(old))
    result.name_hint = old.name_hint
    inputs.follow(old, result)
    old.replace_all_uses_with(result)
    _erase_chain(op, chain.last)


def _erase_chain(op: Operation, last: Operation | None) -> None:
    """Erases a product and what follows it up to `last`, of which nothing is used."""
    chain = [op]
    while last is not None and chain[-1] is not last:
        user = chain[-1].results[0].get_user_of_unique_use()
        assert user is not None
        chain.append(user)
    for each in reversed(chain):
        each.detach()
        each.erase()


def _multiplied(
    build: StorageBuilder, product: NamedProduct, x: SSAValue, w: SSAValue, shape: Sequence[int]
) -> SSAValue:
    """The product of other operands, in f32."""
    operands = [x, w] if product.weight else [w, x]
    return build.add(type(product.op), operands, tensor(shape, f32), **product.op.properties)


def _balance(
    product: NamedProduct, factors: np.ndarray, known: dict[tuple[SSAValue, bytes], SSAValue]
) -> None:
    """Divides the input of a product by factors, one for each element of the summed dimensions, and multiplies the
    weights by them. A relu may come behind the division, so that a product before it can take the factors."""
    op, build = product.op, StorageBuilder(product.op)
    x, w = product.input, product.weights
    ours, theirs = summed_dims(product)
    wanted = tuple(shape_of(x)[d] for d in ours)
    if factors.shape != wanted or not (np.isfinite(factors).all() and (factors > 0).all()):
        raise PassError(
            f"quantization: {product.name} takes a balance of positive numbers of the shape {list(wanted)}, and the "
            f"configuration has others, of the shape {list(factors.shape)}"
        )
    of_weights = factors
    if isinstance(op, ConvOp) and (groups := integer(op.groups)) > 1:
        # the weights of a feature meet the input features of its group
        features = to_ints(op.rhs_layout)[1]
        of_weights = np.repeat(factors.reshape(groups, -1), shape_of(w)[features] // groups, axis=0).T
        theirs = [*theirs, features]
    key = x, factors.tobytes()
    if key not in known:
        relu = x.owner
        inside = (
            next((v for v in relu.operands if splat_of(v) is None), None)
            if isinstance(relu, ELEMENTWISE["max"]) and x.has_one_use() and 0 in map(splat_of, relu.operands)
            else None
        )
        if inside is None or not isinstance(relu, Operation):
            known[key] = _times(build, x, 1 / factors, ours)
        else:
            before = StorageBuilder(relu)
            relu.operands[list(relu.operands).index(inside)] = _times(before, inside, 1 / factors, ours)
            known[key] = x
    op.operands[1 - product.weight] = known[key]
    op.operands[product.weight] = _times(build, w, of_weights, theirs)


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


def _numbers(
    build: StorageBuilder, array: np.ndarray, wanted: Sequence[int], product: NamedProduct, what: str
) -> SSAValue:
    """An array of the configuration as f32 numbers. Raises PassError where it has another shape."""
    if list(array.shape) != list(wanted):
        raise PassError(
            f"quantization: {product.name} takes a {what} of the shape {list(wanted)}, and the configuration has "
            f"{list(array.shape)}"
        )
    return build.add(ConstantOp, [], tensor(wanted, f32), value=DataAttr.of(array.astype(np.float32)))


# -- inputs ----------------------------------------------------------------------------------------------------


def _static(
    build: StorageBuilder,
    product: NamedProduct,
    x: SSAValue,
    w: SSAValue,
    choice: ProductChoice,
    inputs: Inputs,
    shift: SSAValue | None,
) -> tuple[SSAValue, SSAValue | None]:
    """The product of an input that is stored with one scale, and what is still to be added to its features."""
    recipe, step = choice.recipe, choice.scale
    assert recipe.inputs is not None and step is not None
    plain = not choice.zero or isinstance(product.op, ContractOp)  # what is beside an image stands for 0
    features = [shape_of(product.op.result)[d] for d in feature_dims(product)]
    whole = [shape_of(w)[d] for d in sorted(weight_blocks(product, recipe))] == features
    if recipe.inputs != "i16" and plain and whole:
        q, scale = stored_weights(build, product, w, choice, recipe, step, shift)
        dense = build.add(StorageOp, [q], tensor(shape_of(q), _storage(q)))
        if is_paired(product, recipe):
            total = sums_of_pairs(build, product, x, q, choice)
        else:
            stored = inputs.stored(build, product, x, choice)
            if is_sparse(product, recipe):
                q = in_sparse_columns(build, product, q)
            elif isinstance(product.op, ContractOp):
                q = in_columns(build, product, q)
            total = sums_of_stored(
                build, product, stored, build.add(StorageOp, [q], tensor(shape_of(q), _storage(q)))
            )
        sums = integer_sums(build, product, total, dense, choice.zero, scale, shift, inputs.drained)
        inputs.sums.append(sums)
        return sums.result, None
    stored = inputs.stored(build, product, x, choice)
    x = build.add(StorageOp, [stored], tensor(shape_of(stored), input_kind(product, choice)))
    x = build.add(DequantizeOp, [x], tensor(shape_of(stored), f32))
    w = weights_as_stored(build, product, w, choice, recipe)
    return _multiplied(build, product, x, w, shape_of(product.op.result)), shift


def _storage(q: SSAValue) -> Attribute:
    """The element type of what is stored for a quantized value."""
    kind = quantized(q.type)
    assert kind is not None
    return kind.storage


def _dynamic(build: StorageBuilder, product: NamedProduct, x: SSAValue, recipe: Recipe) -> SSAValue:
    """The input as it is stored, with a scale for each row, of its largest number."""
    x = build.convert(x, f32)
    stored, scale = _by_rows(build, product, x, recipe)
    return build.add(DequantizeOp, [stored, scale], x.type)


def _by_rows(
    build: StorageBuilder, product: NamedProduct, x: SSAValue, recipe: Recipe
) -> tuple[SSAValue, SSAValue]:
    """The input as stored numbers with a scale for each row, and these."""
    rows, storage, high = sorted(row_dims(product)), recipe.inputs, recipe.largest_input
    assert storage is not None
    scale = largest_scale(build, x, [d for d in range(len(shape_of(x))) if d not in rows], high)
    ends = (None, None) if is_float(storage) else (-int(high), int(high))
    kind = QuantizedType.of(storage, "f32", None, 0, [(d, 1) for d in rows], *ends)
    return build.add(QuantizeOp, [x, scale], tensor(shape_of(x), kind)), scale


def _by_digits(
    build: StorageBuilder, product: NamedProduct, x: SSAValue, w: SSAValue, recipe: Recipe
) -> SSAValue:
    """The product of inputs in 16 bits, which the cube multiplies as two numbers of 8: q = 256 a + b. Both are rows of
    one product, so that the weights are loaded once, and few rows cost the cube no more than one."""
    op, out = product.op, shape_of(product.op.result)
    stored, scale = _by_rows(build, product, build.convert(x, f32), recipe)
    shape = shape_of(x)
    q = build.convert(build.add(StorageOp, [stored], tensor(shape, i16)), i32)
    rank, pair = len(shape), [2, *shape]
    q = build.broadcast(q, pair, range(1, rank + 1))
    high = build.elementwise("add", q, build.constant(128, pair, i32))
    high = build.elementwise("shr_arithmetic", high, build.constant(8, pair, i32))
    low = build.elementwise("sub", q, build.elementwise("shl", high, build.constant(8, pair, i32)))
    first = build.broadcast(build.numbers([True, False], [2], i1), pair, [0])
    digits = build.convert(build.add(ELEMENTWISE["select"], [first, high, low], high.type), i8)
    plain = QuantizedType.of("i8", "f32", 1.0)
    places = row_dims(product)
    if isinstance(op, ContractOp):
        properties, to = _one_more_row(product)
        wide = [*out[:to], 2, *out[to:]]
    else:  # images and their digits are one dimension
        ((d, to),) = places.items()
        digits = build.transpose(digits, [*range(1, d + 1), 0, *range(d + 1, rank + 1)])
        digits = build.reshape(digits, [2 * n if i == d else n for i, n in enumerate(shape)])
        properties, wide = op.properties, [2 * n if i == to else n for i, n in enumerate(out)]
    numbers = build.add(StorageOp, [digits], tensor(shape_of(digits), plain))
    numbers = build.add(DequantizeOp, [numbers], tensor(shape_of(digits), f32))
    operands = [numbers, w] if product.weight else [w, numbers]
    sums = build.add(type(op), operands, tensor(wide, f32), **properties)
    count = 1 if isinstance(op, ContractOp) else out[to]
    parts = [build.reshape(build.part(sums, to, i * count, count), out) for i in range(2)]
    total = build.elementwise("mul", parts[0], build.constant(256, out, f32))
    total = build.elementwise("add", total, parts[1])
    rows = build.broadcast(scale, out, [places[d] for d in sorted(places)])
    return build.elementwise("mul", total, rows)


def _one_more_row(product: NamedProduct) -> tuple[dict[str, Attribute], int]:
    """The properties of a matrix product whose input has one more dimension, the first one, and where that is in the
    result."""
    op = product.op
    assert isinstance(op, ContractOp)
    side = "lhs" if product.weight else "rhs"
    made = dict(op.properties)
    for name in (f"{side}_batch", f"{side}_contract"):
        dims = made[name]
        assert isinstance(dims, DenseArrayBase)
        made[name] = ints([d + 1 for d in to_ints(dims)])
    batch = len(to_ints(op.lhs_batch))
    return made, batch if product.weight else batch + len(op.free_dims()[0])
