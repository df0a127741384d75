"""Products of matrices, contractions, and determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..node import Node
from ..table import rule
from ..values import is_float, is_known
from .reductions import wide


@rule("MatMul")
def _matmul(node: Node, a: Any, b: Any) -> Any:
    import jax.numpy as jnp

    return jnp.matmul(a, b)


@rule("Gemm")
def _gemm(node: Node, a: Any, b: Any, c: Any = None) -> Any:
    import jax

    inner = (0 if node.get("transA", 0) else 1,), (1 if node.get("transB", 0) else 0,)
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    if c is not None and beta == 0:
        c = None
    kind = scaled_type(a.dtype, alpha, 1.0 if c is None else beta)
    y = jax.lax.dot_general(a, b, (inner, ((), ())), preferred_element_type=_product_type(a.dtype, kind))
    y = _times(y.astype(kind), alpha)
    return (y if c is None else y + _times(c.astype(kind), beta)).astype(a.dtype)


def scaled_type(dtype: Any, *factors: float) -> Any:
    """The type in which products and factors are computed: f32 for narrower floats, so that a product may be beyond
    their range, and f64 for integers and fractions, which are cut off in the end."""
    if all(factor == 1 for factor in factors):
        return dtype
    if is_float(np.zeros((), dtype)):
        return np.promote_types(dtype, np.float32) if dtype.kind == "f" else np.dtype(np.float32)
    return dtype if all(factor == int(factor) for factor in factors) else np.dtype(np.float64)


def _product_type(dtype: Any, kind: Any) -> Any:
    """The type of the product of operands that is computed with further in `kind`."""
    return kind if is_float(np.zeros((), dtype)) else dtype


def _times(x: Any, factor: float) -> Any:
    """x times a number, in the type of x."""
    return x if factor == 1 else x * np.asarray(factor).astype(x.dtype)


@rule("Einsum")
def _einsum(node: Node, *operands: Any) -> Any:
    import jax.numpy as jnp

    return jnp.einsum(node.get("equation"), *operands)


@rule("Det")
def _det(node: Node, x: Any) -> Any:
    import jax.numpy as jnp

    if isinstance(x.shape[-1], int) and not x.shape[-1]:
        return jnp.ones(x.shape[:-2], x.dtype)
    return jnp.linalg.det(wide(x)).astype(x.dtype)


# -- products of bytes -------------------------------------------------------------------------------------


@rule("MatMulInteger")
def _matmul_integer(node: Node, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return integer_matmul(*node.inputs)


def integer_matmul(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """The product i32 of matrices of bytes less their zero points: one number, or one per row of a and per column of b;
    None for zero.

    It is a product of i8, which the cube has, and sums of rows and of columns correct it; u8 are i8 plus 128. What
    follows from known operands is a constant.
    """
    import jax.numpy as jnp

    row, column = a.ndim == 1, b.ndim == 1
    (a, a_zero), (b, b_zero) = signed(a, a_zero), signed(b, b_zero)
    if a_zero is not None and a_zero.ndim == 1:
        a_zero = a_zero[:, None]
    a, b = a[None] if row else a, b[:, None] if column else b
    y = jnp.matmul(a, b, preferred_element_type=jnp.int32)
    if b_zero is not None:
        y = y - sums(a, -1) * b_zero
    if a_zero is not None:
        columns = sums(b, -2)
        if b_zero is not None:
            columns = columns - _count(a.shape[-1]) * b_zero
        y = y - columns * a_zero
    y = jnp.squeeze(y, -2) if row else y
    return jnp.squeeze(y, -1) if column else y


def sums(x: Any, axes: int | tuple[int, ...]) -> Any:
    """The i32 sums along axes, which stay; known where x is."""
    import jax.numpy as jnp

    return (np if is_known(x) else jnp).sum(x, axes, dtype=np.int32, keepdims=True)


def _count(n: Any) -> Any:
    """A size as i32."""
    import jax.numpy as jnp

    return np.int32(n) if isinstance(n, int) else jnp.asarray(n, jnp.int64).astype(jnp.int32)


def signed(x: Any, zero: Any) -> tuple[Any, Any]:
    """Bytes as i8 (u8 less 128) with their i32 zero point, which is None where it is known to be 0."""
    shift = np.int32(128 if x.dtype == np.uint8 else 0)
    made = -shift if zero is None else zero.astype(np.int32) - shift
    if is_known(made) and not np.any(made):
        return signed_bytes(x), None
    return signed_bytes(x), made.reshape(()) if made.size == 1 else made


def signed_bytes(x: Any) -> Any:
    """u8 as i8, less 128, which turns their top bit; i8 as they are. What is known stays so."""
    import jax
    import jax.numpy as jnp

    if x.dtype != np.uint8:
        return x
    turned = x ^ np.uint8(128)
    return turned.view(np.int8) if is_known(x) else jax.lax.bitcast_convert_type(turned, jnp.int8)
