"""What NumPy computes of graph ops, values and bounds, is what the rules give where XLA compiles them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tiering import sampled
from xdsl.ir import Operation

from tilewright.backends.functions.compiling import PLAIN_OPTIONS, xla_jit
from tilewright.frontends import lower_function
from tilewright.verification.bounds import EXACT
from tilewright.verification.compare import compare
from tilewright.verification.functions import evaluate
from tilewright.verification.plain import is_plain_op, plain_bounds, plain_values
from tilewright.verification.tolerance import Mode

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -3.5, 2.5, 60000.0]


def floats(dtype: Any, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((7, 9)).astype(np.float32) * 3
    x.reshape(-1)[seed : seed + len(SPECIAL)] = SPECIAL
    return x.astype(dtype)


def arithmetic(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    return (
        x + y,
        x - y,
        x * y,
        x / y,
        jnp.maximum(x, y),
        lax.clamp(jnp.asarray(-1, x.dtype), x, jnp.asarray(2, x.dtype)),
        -x,
        abs(x),
        lax.rem(x, y),
        lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        jnp.floor(x),
        jnp.sign(x),
        lax.select(x > y, x, y),
        x.astype(jnp.int32),
        x.astype(jnp.float32),
        x.astype(jnp.bfloat16),
        lax.bitcast_convert_type(x, jnp.int16 if x.dtype.itemsize == 2 else jnp.int32),
        (x == y) | ~(x < y),
    )


def moves(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    return (
        jnp.broadcast_to(x[:, None, :], (7, 2, 9)) + 1,
        x.T,
        x.reshape(9, 7),
        x[1:6:2, ::-1],
        lax.pad(x, y[0, 0], ((1, -2, 1), (-3, 2, 0))),
        jnp.concatenate([x, y], 1),
        x.sum(1),
        x.max((0, 1)),
        x.min(0),
        lax.iota(jnp.int32, 9) + lax.broadcasted_iota(jnp.int32, (7, 9), 0),
    )


def whole(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    i, j = (lax.convert_element_type(v, jnp.int32) for v in (x, y))
    return (
        i + j,
        i * j,
        i & j,
        i | 12,
        i ^ j,
        i << 3,
        i >> 2,
        lax.shift_right_logical(i, jnp.full_like(i, 5)),
        lax.bitcast_convert_type(i, jnp.float32),
        i.astype(jnp.int8),
        i.astype(jnp.float32),
        jnp.minimum(i, j),
        lax.div(i, j),
        i.sum(0),
    )


def checked(op: Operation, rng: np.random.Generator, xs: list[Any], mode: Mode) -> None:
    """Values bit by bit; bounds within a hair."""
    off = is_plain_op(op, xs, True)
    es: list[Any] = [
        np.where(rng.random(x.shape) < 0.5, rng.random(x.shape), 0).astype(
            np.float64 if x.dtype.itemsize >= 8 else np.float32
        )
        if off
        else None
        for x in xs
    ]
    ys = plain_values(op, xs)
    want, bounds = xla_jit(lambda xs, es: evaluate(op, xs, es, mode), PLAIN_OPTIONS)(xs, es)
    for y, z in zip(ys, want, strict=True):
        assert compare(y, np.asarray(z), bits=True).ratio == 0, op.name
    for a, b in zip(plain_bounds(op, xs, es, ys, mode), bounds, strict=True):
        assert (a is None) == (b is None), op.name
        if a is not None:
            np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), rtol=1e-5, atol=1e-37, err_msg=op.name)


@pytest.mark.parametrize("mode", ["likely", "worst"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("fn", [arithmetic, moves, whole])
@sampled(2)
def test_values_and_bounds(fn: Any, dtype: Any, mode: Mode) -> None:
    x, y = floats(dtype, 1), floats(dtype, 11)
    module = lower_function(fn, (x, y)).module
    rng, found = np.random.default_rng(3), 0
    main = next(op for op in module.ops if op.name == "func.func")
    env: dict[Any, Any] = dict(zip(main.body.block.args, (x, y), strict=True))
    with jax.enable_x64(True):
        for op in main.body.block.ops:
            if op.name == "func.return":
                break
            xs = [env[v] for v in op.operands]
            if is_plain_op(op, xs, False):
                found += not isinstance(op, EXACT)
                checked(op, rng, xs, mode)
            made = [np.asarray(v) for v in evaluate(op, xs, [], None)[0]]
            env.update(zip(op.results, made, strict=True))
    assert found >= (3 if fn is moves else 8)
