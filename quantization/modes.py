"""What a product computes in a mode, in JAX. Rounding has the gradient of the number itself (straight-through), so that
programs can be trained, and measured, as they will be quantized."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..backends.interpreter.graph import contract, conv
from ..compression.masks import two_of_four
from ..dialects.base import integer, to_ints
from ..dialects.dtypes import element_type, is_float, limits, numpy_dtype
from ..dialects.graph import ContractOp, ConvOp
from ..dialects.graph.interface import element_of
from ..passes.quantized.products_named import NamedProduct, feature_dims, row_dims, summed_dims
from ..passes.quantized.recipes import ProductChoice, Recipe, largest_stored
from ..passes.quantized.stored_weights import LEAST, is_sparse, weight_blocks, weights_in_block

F32 = np.dtype(np.float32)

NEAR = 0.5 + 2.0**-12
"""Numbers that are no more than so many steps beyond the range are rounded into it, and not saturated. Half a step is
exact but for the rounding of a quotient."""


@jax.custom_jvp
def straight(forward: Array, through: Array) -> Array:
    """`forward`, with the gradient of `through` (straight-through estimator, Bengio et al. 2013)."""
    return forward


@straight.defjvp
def _straight_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return primals[0], tangents[1]


def rounded(x: Array, scale: Array, zero: float, low: float, high: float, storage: str) -> Array:
    """x as it is when it is stored and read again; in f32. Its gradient is that of x, or 0 where x is saturated."""
    scale = lax.stop_gradient(scale)
    units = x * (np.float32(1) / scale)
    # what is rounded into the range keeps its gradient: the largest weight, which has made the scale, too
    inside = (units > low - zero - NEAR) & (units < high - zero + NEAR)
    through = jnp.where(inside, units, lax.stop_gradient(units))
    if is_float(element_type(storage)):
        stored = jnp.clip(units, low, high).astype(numpy_dtype(storage)).astype(F32)
    else:
        stored = jnp.clip(jnp.round(units) + zero, low, high) - zero
    return straight(stored, through) * scale


def product_in_mode(product: NamedProduct, choice: ProductChoice, x: Array, w: Array) -> Array:
    """The result of a product on an input and weights, in the mode that is chosen for it; in its own element type."""
    op, recipe = product.op, choice.recipe
    result = numpy_dtype(element_of(op.result))
    if recipe == Recipe():
        return _multiplied(product, x, w, result)
    x, w = x.astype(F32), w.astype(F32)
    if choice.balance is not None:
        ours, theirs, of_weights = balances(product, choice.balance)
        x = x * _along(1 / choice.balance, ours, x.ndim)
        w = w * _along(of_weights, theirs, w.ndim)
    if recipe.weights is not None:
        w = quantized_weights(product, choice, w)
    if recipe.inputs is not None:
        x = quantized_input(product, choice, x)
    elif recipe.compute is not None:
        x, w = (a.astype(numpy_dtype(recipe.compute)) for a in (x, w))
    made = _multiplied(product, x, w, F32)
    if choice.shift is not None:
        made = made + _along(choice.shift, feature_dims(product), made.ndim)
    return made.astype(result)


def _multiplied(product: NamedProduct, x: Array, w: Array, dtype: np.dtype) -> Array:
    operands, op = (x, w) if product.weight else (w, x), product.op
    return contract(op, *operands, dtype) if isinstance(op, ContractOp) else conv(op, *operands, dtype)


def balances(product: NamedProduct, factors: np.ndarray) -> tuple[list[int], list[int], np.ndarray]:
    """The dimensions of the input along which a balance lies, those of the weights, and the factors of these."""
    ours, theirs = summed_dims(product)
    op = product.op
    if isinstance(op, ConvOp) and (groups := integer(op.groups)) > 1:
        features = to_ints(op.rhs_layout)[1]
        count = product.weights.type.get_shape()[features]  # pyright: ignore[reportAttributeAccessIssue]
        return ours, [*theirs, features], np.repeat(factors.reshape(groups, -1), count // groups, axis=0).T
    return ours, theirs, factors


def _along(numbers: np.ndarray, dims: Sequence[int], rank: int) -> Array:
    """Numbers along some of `rank` dimensions."""
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    array = np.asarray(numbers, F32).transpose(order)
    shape = [1] * rank
    for d, n in zip(sorted(dims), array.shape, strict=True):
        shape[d] = n
    return jnp.asarray(array.reshape(shape))


def quantized_input(product: NamedProduct, choice: ProductChoice, x: Array) -> Array:
    """An f32 input as its mode stores it."""
    recipe = choice.recipe
    assert recipe.inputs is not None
    if recipe.static:
        assert choice.scale is not None
        low, high = limits(recipe.inputs)
        return rounded(x, jnp.float32(choice.scale), choice.zero, low, high, recipe.inputs)
    high = recipe.largest_input
    dims = tuple(d for d in range(x.ndim) if d not in row_dims(product))
    top = jnp.max(jnp.abs(x), axis=dims, keepdims=True, initial=0)
    scale = jnp.maximum(top, LEAST) * np.float32(1 / high)
    return rounded(x, scale, 0, -high, high, recipe.inputs)


def quantized_weights(product: NamedProduct, choice: ProductChoice, w: Array) -> Array:
    """f32 weights as their mode stores them."""
    recipe = choice.recipe
    assert recipe.weights is not None
    if is_sparse(product, recipe):
        w = jnp.where(two_of_four(lax.stop_gradient(w), summed_dims(product)[1][0]), w, 0)
    blocks = weight_blocks(product, recipe)
    parts: list[int] = []
    summed: list[int] = []
    for d, n in enumerate(w.shape):
        size = blocks.get(d, n)
        parts += [n // size, size] if size else [1, 0]
        summed.append(2 * d + 1)
    split = w.reshape(parts)
    low, high = stored_range(recipe)
    if choice.stored is not None and choice.scales is not None:
        grid = [n // blocks.get(d, n) if n else 1 for d, n in enumerate(w.shape)]
        shape = [v for n in grid for v in (n, 1)]
        stored = jnp.asarray(choice.stored, F32).reshape(parts)
        return straight((stored * jnp.asarray(choice.scales, F32).reshape(shape)).reshape(w.shape), w)
    top = jnp.max(jnp.abs(split), axis=tuple(summed), keepdims=True, initial=0)
    storage = "i8" if recipe.weights == "i4" else recipe.weights
    if not is_float(element_type(storage)):
        largest = largest_stored(int(high), weights_in_block(w.shape, blocks))
    else:
        largest = high
    scale = jnp.maximum(top, LEAST) * np.float32(1 / largest)
    return rounded(split, scale, 0, low, high, storage).reshape(w.shape)


def stored_range(recipe: Recipe) -> tuple[float, float]:
    """The least and the largest stored weight."""
    assert recipe.weights is not None
    return limits(recipe.weights) if is_float(element_type(recipe.weights)) else recipe.weight_range
