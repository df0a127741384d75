"""Slices that take one element in so many along the last dimension, or the other way round: runs are loaded, and
elements picked on chip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from harness import check, data
from tiering import covering

import tilewright as tw

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rows too": lambda x: x[::2, 1::3],
    "last": lambda x: x[:, -1::-1][:, ::-1][:, ::5],
    "computed": lambda x: jnp.maximum(x[:, ::2], x[:, 1::2]) if x.shape[1] % 2 == 0 else x[:, ::2] * 2,
    "reduced": lambda x: jnp.max(x[:, 3::4], axis=1),
    "transposed": lambda x: x[:, ::2].T,
    "backwards": lambda x: x[:, ::-1] + x[:, :1],
    "backwards by steps": lambda x: x[:, ::-3],
    "backwards from within": lambda x: x[::-1, x.shape[1] // 2 : 0 : -1],
    "backwards and reduced": lambda x: jnp.max(x[:, ::-2], axis=1),
    "one of them": lambda x: x[:, :: x.shape[1]],
}


@covering()
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310", "ascend-950pr"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "i32", "i1"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(5, 67), (64, 128), (3, 1000), (1, 4)])
def test_values(target: str, dtype: str, name: str, shape: tuple[int, int]) -> None:
    check(FUNCTIONS[name], data(dtype, shape), target=target)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int32", "bool"])
def test_a_run_takes_less_than_its_elements(dtype: str) -> None:
    """No load of single elements is left, and the time is that of a few passes over the tensor."""
    shape = jax.ShapeDtypeStruct((2048, 4096), dtype)
    program = tw.compile(lambda x: x[:, ::4], shape)
    assert "tile.extract" in program.ir("tile") and "steps = [4]" in program.ir("tile")
    assert program.report().microseconds < 3 * tw.compile(lambda x: x[:, :1024], shape).report().microseconds


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int32", "bool"])
@pytest.mark.parametrize("shape", [(2048, 4096), (1 << 23,), (3, 1_000_003)])
def test_elements_the_other_way_round_are_a_run(dtype: str, shape: tuple[int, ...]) -> None:
    whole = jax.ShapeDtypeStruct(shape, dtype)
    program, copy = (tw.compile(lambda x, s=step: x[..., ::s] == x[..., :1], whole) for step in (-1, 1))
    assert "steps = [-1]" in program.ir("tile") or "steps = [1, -1]" in program.ir("tile")
    assert program.report().microseconds < 4 * copy.report().microseconds


def test_elements_further_apart_than_lines_are_loaded_alone() -> None:
    shape = jax.ShapeDtypeStruct((64, 4096), "float32")
    assert "tile.extract" not in tw.compile(lambda x: x[:, ::256], shape).ir("tile")
    assert "tile.extract" in tw.compile(lambda x: x[:, ::128], shape).ir("tile")
