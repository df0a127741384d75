"""Products as matrix products of rows and weights, whatever their dimensions: for methods that round matrices."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from xdsl.dialects.func import FuncOp

from ..dialects.base import integer, to_ints
from ..dialects.graph import ContractOp, ConvOp
from ..dialects.graph.interface import shape_of
from ..passes.quantized.products_named import NamedProduct, summed_dims
from ..passes.quantized.recipes import Recipe
from ..passes.quantized.stored_weights import weight_blocks
from . import weights
from .weights import Im2col


@dataclass(frozen=True)
class Matrices:
    """A product as that of rows [..., M, K] and weights [..., K, N]: one matrix, or one for each group of features of
    a convolution."""

    product: NamedProduct
    patches: Im2col | None

    @staticmethod
    def of(product: NamedProduct) -> Matrices | None:
        """That of a product; None for one in a loop, with batches, or with several summed dimensions."""
        op = product.op
        if not isinstance(op.parent_op(), FuncOp):
            return None
        if isinstance(op, ContractOp):
            plain = len(summed_dims(product)[0]) == 1 and not to_ints(op.lhs_batch)
            return Matrices(product, None) if plain else None
        return Matrices(product, _patches(op))

    @property
    def groups(self) -> int | None:
        """How many matrices of a convolution there are; None where it is one without a dimension for them."""
        return None if self.patches is None else self.patches.groups

    def start(self) -> Array:
        """The sum of x x^T over no rows."""
        if self.patches is not None:
            return weights.start_hessian(self.patches.k, self.patches.groups)
        return weights.start_hessian(shape_of(self.product.input)[summed_dims(self.product)[0][0]])

    def update(self, hessian: Array, x: Array) -> Array:
        """The sum with an input more."""
        if self.patches is not None:
            return self.patches.update_hessian(hessian, x)
        return weights.update_hessian(hessian, self.rows(x))

    def rows(self, x: Array) -> Array:
        """An input as rows."""
        if self.patches is not None:
            return self.patches.patches(x)
        k = summed_dims(self.product)[0][0]
        return jnp.moveaxis(x, k, -1).reshape(-1, x.shape[k]).astype(jnp.float32)

    def matrix(self, w: Array) -> Array:
        """Weights as matrices."""
        if self.patches is not None:
            return self.patches.matrix(w).astype(jnp.float32)
        k = summed_dims(self.product)[1][0]
        return jnp.moveaxis(w, k, 0).reshape(w.shape[k], -1).astype(jnp.float32)

    def operand(self, matrix: Array) -> Array:
        """The inverse of `matrix`."""
        if self.patches is not None:
            return self.patches.kernel(matrix)
        shape, k = shape_of(self.product.weights), summed_dims(self.product)[1][0]
        rest = [n for d, n in enumerate(shape) if d != k]
        return jnp.moveaxis(matrix.reshape(shape[k], *rest), 0, k)

    def scales(self, scale: Array, recipe: Recipe) -> Array:
        """Scales [..., K / group or 1, N] in the shape of the blocks of the weights."""
        if self.patches is not None:
            return self.patches.channels(scale)
        shape, k = shape_of(self.product.weights), summed_dims(self.product)[1][0]
        rest = [n for d, n in enumerate(shape) if d != k]
        whole = jnp.moveaxis(scale.reshape(scale.shape[0], *rest), 0, k)
        return whole.reshape([shape[d] // n for d, n in sorted(weight_blocks(self.product, recipe).items())])

    def group(self, recipe: Recipe) -> int | None:
        """How many rows of weights share a scale; None: all."""
        if self.patches is not None:
            return None
        return weight_blocks(self.product, recipe).get(summed_dims(self.product)[1][0])

    def factors(self, balance: Array) -> Array:
        """What each row of the matrices, [..., K], is multiplied by for a balance of input features."""
        if self.patches is None:
            return balance
        return jnp.repeat(balance.reshape(self.patches.groups, -1), self.patches.taps, axis=1)


def _patches(op: ConvOp) -> Im2col:
    lhs, rhs, out = to_ints(op.lhs_layout), to_ints(op.rhs_layout), to_ints(op.out_layout)
    return Im2col.of(
        shape_of(op.lhs),
        shape_of(op.rhs),
        to_ints(op.strides),
        tuple(zip(to_ints(op.low), to_ints(op.high), strict=True)),
        to_ints(op.lhs_dilation),
        to_ints(op.rhs_dilation),
        lax.ConvDimensionNumbers(lhs, (rhs[1], rhs[0], *rhs[2:]), out),
        integer(op.groups),
    )
