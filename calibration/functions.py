"""The JAX functions of measured kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def product(transposed_a: bool, transposed_b: bool, out: str, epilogue: str, fractals: bool) -> Function:
    """A matrix product (batched where the inputs are) to `out`, perhaps with a GELU; `fractals`: b is stored as
    n/c0 blocks of k x c0."""

    def function(a: Any, b: Any) -> Any:
        import jax.numpy as jnp

        left = "...km" if transposed_a else "...mk"
        right, result = ("...jkc", "...mjc") if fractals else ("...nk" if transposed_b else "...kn", "...mn")
        kept = "int32" if a.dtype == "int8" else _dtype(out)
        y = jnp.einsum(f"{left},{right}->{result}", a, b, preferred_element_type=kept)
        return (gelu(y) if epilogue else y).astype(_dtype(out))

    return function


def grouped_quantised(out: str, fractals: bool) -> Function:
    """Products of groups of i8 rows with i8 weights, scaled by row and column, with a GELU; `fractals` as above."""

    def function(a: Any, b: Any, rows: Any, columns: Any) -> Any:
        import jax.numpy as jnp

        how = "gmk,gjkc->gmjc" if fractals else "gmk,gkn->gmn"
        y = jnp.einsum(how, a, b, preferred_element_type="int32").astype("float32")
        rows = rows[:, :, None, None] if fractals else rows[:, :, None]
        return gelu(y * columns[:, None] * rows).astype(_dtype(out))

    return function


def gelu(x: Any) -> Any:
    """The GELU of the measured kernels: x / (1 + exp(-1.595769 (x + 0.044715 x^3))), eight instructions."""
    import jax.numpy as jnp

    return x / (1 + jnp.exp(-1.595769 * (x + 0.044715 * (x * x * x))))


def _dtype(name: str) -> Any:
    import jax.numpy as jnp

    names = {"f16": jnp.float16, "bf16": jnp.bfloat16, "f32": jnp.float32, "i32": jnp.int32, "i8": jnp.int8}
    return names[name]


BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "max": "maximum",
    "min": "minimum",
}
UNARY = {"relu": "relu", "exp": "exp", "abs": "abs", "sqrt": "sqrt", "tanh": "tanh", "sigmoid": "sigmoid"}


def arity(op: str) -> int:
    """Inputs of an elementwise operation."""
    return 2 if op in BINARY else 1


def elementwise(op: str) -> Function | None:
    """An elementwise operation by its name; None for one that is not known."""
    smooth = re.match(r"gelu\b(?:\s*\+\s*(\d+) element-wise)?", op)

    def function(*args: Any) -> Any:
        import jax
        import jax.numpy as jnp

        if op in BINARY:
            return getattr(jnp, BINARY[op])(*args)
        (x,) = args
        if smooth:
            y = gelu(x)
            for _ in range(int(smooth[1] or 0)):
                y = y * 1.01 + 0.01
            return y
        if op == "mul_scalar":
            return x * 3
        if op == "leaky_relu":
            return jax.nn.leaky_relu(x)
        if op in ("relu", "sigmoid", "elu"):
            return getattr(jax.nn, op)(x)
        return getattr(jnp, UNARY[op])(x)

    known = op in BINARY or op in UNARY or smooth or op in ("mul_scalar", "leaky_relu", "elu")
    return function if known else None


def reduction(op: str, kind: str, axis: int) -> tuple[Function, int]:
    """(function, inputs) of a reduction over an axis, alone or after elementwise work."""

    def plain(x: Any) -> Any:
        import jax.numpy as jnp

        return getattr(jnp, kind)(x * x + x if op.startswith("elementwise") else x, axis=axis)

    def swiglu(x: Any, gate: Any, weight: Any) -> Any:
        """Gradients of weight * x * sigmoid-gated gate with respect to gate, weight, and a row's scale."""
        import jax
        import jax.numpy as jnp

        sigmoid = jax.nn.sigmoid(gate)
        smooth = gate * sigmoid
        of_gate = x * weight * sigmoid * (1 + gate * (1 - sigmoid))
        return of_gate, x * smooth, jnp.sum(x * weight * smooth, axis=axis)

    return (swiglu, 3) if "swiglu" in op else (plain, 1)


def to_fractals(c0: int) -> Function:
    """Rows of a matrix in blocks of `c0` columns, each block's rows together."""

    def function(x: Any) -> Any:
        import jax.numpy as jnp

        return jnp.transpose(x.reshape(x.shape[0], x.shape[1] // c0, c0), (1, 0, 2))

    return function
