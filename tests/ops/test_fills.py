"""Numbers that kernels write themselves: fills, borders and masks, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tilewright as tw
from tilewright.backends.functions import values
from tilewright.dialects import make_context
from tilewright.dialects import tile as ops
from tilewright.dialects.npu.interface import fill_value
from tilewright.dialects.text import parse_module
from tilewright.dialects.tile import TileType
from tilewright.kernels.builder import number

X = jnp.asarray([[1, 2], [3, 4]], jnp.float32)
MINUS, ZERO = jnp.float32(-0.0), jnp.float32(0.0)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "both zeros": lambda x: jnp.where(x > 2, MINUS, ZERO),
    "a border of -0": lambda x: lax.pad(x, MINUS, ((1, 0, 0), (0, 1, 0))),
    "borders of both zeros": lambda x: [lax.pad(x, z, ((1, 0, 0), (0, 1, 0))) for z in (ZERO, MINUS)],
    "two kernels": lambda x: [jnp.where(x.sum(d) > 5, z, x[0]) for d in (0, 1) for z in (ZERO, MINUS)],
    "spread by -0": lambda x: lax.pad(x, MINUS, ((1, 0, 1), (0, 1, 2))),
    "NaN": lambda x: jnp.where(x > 2, jnp.nan, x),
    "the ends of i32": lambda x: jnp.where(x > 2, jnp.int32(-(2**31)), jnp.int32(2**31 - 1)),
}


@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits(name: str, memory: Any) -> None:
    fn = FUNCTIONS[name]
    program = tw.compile(fn, X)
    for got, want in zip(program.executable(memory)(X), jax.tree.leaves(jax.jit(fn)(X)), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


@pytest.mark.parametrize(
    ("value", "element", "dtype"),
    [
        (2**53 + 1, "i64", np.int64),
        (-(2**63), "i64", np.int64),
        (2**63 - 1, "i64", np.int64),
        (2**64 - 1, "ui64", np.uint64),
        (-0.0, "f32", np.float32),
        (7, "i32", np.int32),
    ],
)
def test_a_number_survives_the_text(value: float | int, element: str, dtype: type) -> None:
    fill = ops.FillOp.create(
        result_types=[TileType.of([2], tw.dialects.dtypes.element_type(element), "ub")],
        properties={"value": number(value)},
    )
    module = parse_module(make_context(), str(fill), "fill.mlir")
    (again,) = module.ops
    assert isinstance(again, ops.FillOp)
    got = values.scalar(fill_value(again.value), np.dtype(dtype))
    assert got.tobytes() == np.asarray(value, dtype).tobytes()


def test_nans_of_either_sign_in_one_kernel() -> None:
    """Each is a fill of its own: what is sorted in the total order has NaNs at both ends."""

    def fn(x: jax.Array) -> jax.Array:
        above, below = (np.float32(np.copysign(np.nan, sign)) for sign in (1, -1))
        return jnp.where(x > 1, above, jnp.where(x < -1, below, x))

    x = np.array([2, 0, -2, 1, -0.0, 3, -5], np.float32)
    for mode in ("typed", "step"):
        got = np.asarray(tw.compile(fn, x)(x, mode=mode))
        np.testing.assert_array_equal(np.isnan(got), abs(x) > 1)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(x))
