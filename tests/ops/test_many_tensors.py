"""Many tensors that meet in a few numbers, as gradients in their global norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from harness import check, data
from tiering import covering

import tilewright as tw
from tilewright.dialects.graph import FusionOp
from tilewright.passes.fusion.serial import MOST_MEMBERS

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "equal": [(64, 64)] * 9,
    "of a net": [(64, 48), (48,), (48, 64), (64,), (3, 3, 8, 16), (16,), ()],
    "long rows": [(4, 900)] * 7,
    "odd": [(13, 7), (13, 7), (1, 1), (97,), (97,), (97,), (257, 3)],
}


def clipped(xs: list[Any]) -> list[Any]:
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in xs))
    return [x * jnp.minimum(1, (1 / norm).astype(x.dtype)) for x in xs]


def shifted(xs: list[Any]) -> list[Any]:
    """Two numbers of all tensors, one behind the other."""
    most = jnp.abs(xs[0]).max()
    for x in xs[1:]:
        most = jnp.maximum(most, jnp.abs(x).max())
    ys = [x / most for x in xs]
    total = sum(jnp.sum(y) for y in ys)
    return [y - total for y in ys]


def each(xs: list[Any]) -> list[Any]:
    """Every tensor by its own norm, and the sum of these."""
    norms = [jnp.sqrt(jnp.sum(x * x)) for x in xs]
    return [*(x / n for x, n in zip(xs, norms, strict=True)), sum(norms)]


def rows(xs: list[Any]) -> list[Any]:
    """Few rows of each."""
    sums = sum(jnp.sum(x.reshape(x.shape[0] if x.ndim else 1, -1) ** 2, 1).sum() for x in xs)
    return [sums, *(jnp.argmax(jnp.ravel(x)) for x in xs)]


@covering(6)
@pytest.mark.parametrize("fn", [clipped, shifted, each, rows])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-910b4", "ascend-310", "ascend-950pr"])
def test_values(fn: Callable[..., Any], shapes: str, dtype: str, target: str) -> None:
    xs = [data(dtype, shape, seed=i) for i, shape in enumerate(SHAPES[shapes])]
    check(fn, xs, target=target, length=2000)


def microseconds(count: int) -> float:
    xs = [jax.ShapeDtypeStruct((64, 64), "float32")] * count
    return tw.compile(clipped, xs).report().microseconds


def test_the_time_is_linear_in_the_tensors() -> None:
    """15, 60 and 300 tensors take 8, 19 and 69 us. In one kernel on one core 15 take 28 and 60 take 263."""
    few, some, many = microseconds(15), microseconds(60), microseconds(300)
    assert few < 10
    assert some < 4 * few
    assert many < 5 * some


def test_kernels_of_many_tensors_are_limited() -> None:
    xs = [jax.ShapeDtypeStruct((8,), "float32")] * 100
    kernels = [op for op in tw.compile(each, xs).module("graph").walk() if isinstance(op, FusionOp)]
    assert all(len(k.body.block.ops) < 4 * MOST_MEMBERS for k in kernels)
