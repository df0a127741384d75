"""Concatenations: stored side by side by the kernel that makes their parts, and copied where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from tiering import covering, sampled

import tilewright as tw


def nested(x: jax.Array, y: jax.Array) -> jax.Array:
    """Places in tiles of 2 x 2."""
    a, b = x[:, None, :, None], y[:, None, :, None]
    rows = [
        jnp.concatenate([f(a, b), g(a, b)], 3)
        for f, g in ((jnp.add, jnp.subtract), (jnp.subtract, jnp.maximum))
    ]
    return jnp.concatenate(rows, 1).reshape(2 * x.shape[0], 2 * x.shape[1])


STORED: dict[str, Callable[..., Any]] = {
    "two parts": lambda x, y: jnp.concatenate([x + y, x * y], 0),
    "along the innermost dimension": lambda x, y: jnp.concatenate([x + y, x * y, x - y], 1),
    "one part twice": lambda x, y: jnp.concatenate([x + y, x + y, x * y], 0),
    "a part from outside": lambda x, y: jnp.concatenate([y, x + y], 1),
    "a part from outside, reversed": lambda x, y: jnp.concatenate([jnp.exp(x), y[::-1]], 1),
    "a part of one number": lambda x, y: jnp.concatenate([x + y, jnp.zeros_like(x)], 0),
    "places in tiles": nested,
    "parts that are results, too": lambda x, y: (jnp.concatenate([x + y, x * y], 0), x + y),
    "two concatenations of the same parts": lambda x, y: (
        jnp.concatenate([x + y, x * y], 0),
        jnp.concatenate([x * y, x + y], 1),
    ),
    "a stack": lambda x, y: jnp.stack([x + y, x * y, x], 0),
    "a part from outside of other dimensions": lambda x, y: jnp.concatenate(
        [x.reshape(1, -1) * x.dtype.type(2), y.reshape(-1)[None]], 0
    ),
    "three columns": lambda x, y: jnp.stack([x + y, y, x], 2),
    "a stack of columns": lambda x, y: jnp.stack([x + y, y], 2),
    "numbers that alternate": lambda x, y: jnp.stack([x + y, x * y], -1).reshape(x.shape[0], 2 * x.shape[1]),
    "ops of concatenations": lambda x, y: (
        jnp.concatenate([x + y, x], 0) * jnp.concatenate([y, y], 0) + jnp.concatenate([x, y], 0)
    ),
    "parts that share nothing": lambda x, y: jnp.concatenate([jnp.exp(x), jnp.tanh(y)], 0),
}

COPIED: dict[str, Callable[..., Any]] = {
    "parts of two sizes": lambda x, y: jnp.concatenate([x + y, y[:1]], 0),
    "only parts from outside": lambda x, y: jnp.concatenate([x, y], 0),
    "a row and a vector": lambda x, y: jnp.concatenate([jnp.exp(x[:1]), jnp.tanh(y[0]).reshape(1, -1)], 0),
    "a part moved": lambda x, y: jnp.concatenate([x + y, (x + y)[::-1]], 0),
    "rows that are reduced": lambda x, y: jnp.concatenate([jax.nn.softmax(x), jnp.exp(y)], 0),
    "a part made of the concatenation": lambda x, y: jnp.concatenate(
        [x + y, jnp.concatenate([x + y, x * y], 0)[x.shape[0] :] * 2], 0
    ),
    "a product's results": lambda x, y: jnp.concatenate([jnp.exp(x @ y.T), jnp.tanh(x @ y.T)], 0),
}


OF_FLOATS = ("a part from outside, reversed", "parts that share nothing")


@covering(6)
@pytest.mark.parametrize("shape", [(1, 1), (13, 7), (130, 97)])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, t) for name in STORED for t in ("f32", "f16", "i8") if t != "i8" or name not in OF_FLOATS],
)
def test_parts_are_stored_by_the_kernel_that_makes_them(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    fn = STORED[name]
    args = data(dtype, shape), data(dtype, shape, 1)
    program = check(fn, *args)
    assert len(program.report().kernels) == 1


@sampled(3)
@pytest.mark.parametrize("name", COPIED)
@pytest.mark.parametrize("shape", [(13, 7), (130, 97)])
def test_other_parts_are_copied(name: str, shape: tuple[int, ...]) -> None:
    program = check(COPIED[name], data("f32", shape), data("f32", shape, 1), length=shape[1])
    assert len(program.report().kernels) > 1


def test_more_parts_than_a_kernel_stores() -> None:
    def fn(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x + i for i in range(70)], 0)

    assert len(check(fn, data("f32", (3, 5))).report().kernels) > 1


def test_parts_side_by_side_that_are_transposed() -> None:
    """A transpose of what is stored side by side, as rotary positions have it."""

    def transposed(x: Any) -> Any:
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * 2 - b, a + b * 3], axis=-1).transpose(0, 2, 1, 3)

    x = np.random.default_rng(0).standard_normal((2, 3, 4, 8)).astype(np.float32)
    program = tw.compile(transposed, x)
    for memory in ("typed", "bytes"):
        (got,) = program.executable(memory)(*program.flatten((x,)))
        np.testing.assert_allclose(np.asarray(got), np.asarray(transposed(x)), rtol=1e-6)


@covering(6)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310", "ascend-950pr"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "i32", "i1"])
@pytest.mark.parametrize("run", [1, 2, 5])
@pytest.mark.parametrize("many", [2, 3, 4])
def test_interleaved(many: int, run: int, dtype: str, target: str) -> None:
    """Runs shorter than a block, one of each part after the other, of what is computed and of what is given."""
    x, y = data(dtype, (67, 9, run)), data(dtype, (67, 9, run), seed=1)
    parts = {0: lambda a, b: a, 1: lambda a, b: b, 2: jnp.maximum, 3: jnp.minimum}
    check(lambda a, b: jnp.concatenate([parts[i](a, b) for i in range(many)], -1), x, y, target=target)


def test_interleaved_numbers_take_little_longer_than_numbers_side_by_side() -> None:
    x = jax.ShapeDtypeStruct((1024, 2048), "float16")
    woven, beside = (tw.compile(lambda a, b, d=d: jnp.stack([a, b], d), x, x) for d in (2, 1))
    assert "graph.concat" not in woven.ir("graph")
    assert woven.report().microseconds < 3 * beside.report().microseconds
