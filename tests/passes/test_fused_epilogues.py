"""Epilogues on cores that have a cube and a vector unit: what is made once, and what overlaps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import tilewright as tw

RNG = np.random.default_rng(0)


def layer(x: Array, w: Array, b: Array) -> Array:
    return jax.nn.relu(x @ w + b)


def shapes(m: int, k: int, n: int) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(s, np.float16) for s in ((m, k), (k, n), (n,))]


@pytest.mark.parametrize("inner", ["m", "n"])
def test_rows_for_all_tiles_are_made_before_the_loop_over_them(inner: str) -> None:
    """A bias is loaded and repeated before the loop over rows, and in that over columns; the values are JAX's."""
    pins = tw.Schedule(base_m=64, base_n=64, inner=inner)
    args = [RNG.integers(-4, 5, s.shape).astype(np.float16) for s in shapes(300, 48, 200)]
    program = tw.compile(layer, *args, target="ascend-310", options=tw.Options(schedule=pins))
    body = program.ir("tile").split("tile.section")[1]
    made, loops = body.index("tile.broadcast"), [i for i in range(len(body)) if body.startswith("scf.for", i)]
    assert sum(at < made for at in loops) == (1 if inner == "m" else 2)
    wanted = np.asarray(layer(*map(jnp.asarray, args)))
    for memory in ("typed", "bytes"):
        np.testing.assert_array_equal(np.asarray(program.executable(memory)(*args)[0]), wanted)


@pytest.mark.parametrize("target", ["ascend-310", "ascend-310p3"])
def test_the_cube_does_not_wait_for_the_vector_unit(target: str) -> None:
    """Where both have as much to do, two accumulators are worth smaller tiles."""

    def busy(x: Array, w: Array, b: Array) -> Array:
        return jnp.tanh(x @ w + b)

    (kernel,) = tw.compile(busy, *shapes(6272, 512, 512), target=target).report().kernels
    assert kernel.microseconds - kernel.launch_microseconds < 1.4 * max(kernel.pipes.values())


def test_rows_that_l2_has_no_room_for_are_loaded_once() -> None:
    """The loop over columns is the inner one where L2 loses the rows between two columns."""
    m, k, n = 16384, 512, 1024
    program = tw.compile(layer, *shapes(m, k, n), target="ascend-310")
    (kernel,) = program.report().kernels
    assert kernel.bytes["hbm"] < 1.1 * 2 * (m * k + k * n + m * n)
