"""Scalar functions: one row each."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.elementwise import Function

MISH = Function(
    name="mish",
    arity=1,
    formula="x * tanh(log(1 + exp(x)))",
    value="acme_npu.functions:mish",
    ulps={"f32": 24.0, "f16": 3.0, "bf16": 2.0},
    stablehlo="custom_call @acme_mish",
    domain="float",
    flops=5,
)
"""Ulps: a hyperbolic tangent of 5, a logarithm of 2, an exponential of 3 whose error the logarithm passes on, and a
product; the unit computes f16 and bf16 with a table of 2 bits more than they have."""


def mish(x: Any) -> Any:
    """In f32, and rounded once."""
    import jax.numpy as jnp
    from jax import lax

    wide = x.astype(jnp.float32)
    return (wide * lax.tanh(jnp.logaddexp(wide, 0.0))).astype(x.dtype)


def prefix_xor(x: Any) -> Any:
    """Each element xor all before it along the last dimension."""
    from jax import lax

    return lax.associative_scan(lax.bitwise_xor, x, axis=x.ndim - 1)
