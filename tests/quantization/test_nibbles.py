"""Weights of which two are in a byte, against a model in numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw

RNG = np.random.default_rng(0)


def matmul(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ params["w"]


def model(w: np.ndarray, group: int) -> np.ndarray:
    """What w stands for once it is stored in 4 bits, a scale for each group of rows and column, in f16."""
    k, n = w.shape
    blocks = w.reshape(k // group, group, n).astype(np.float32)
    scale = np.maximum(np.abs(blocks).max(1, keepdims=True), np.float32(2.0**-100)) * np.float32(1 / 7)
    stored = np.clip(np.round(blocks * (np.float32(1) / scale)), -7, 7)
    return (stored * scale).reshape(k, n).astype(np.float16)


@sampled(12)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
@pytest.mark.parametrize(
    ("k", "n", "group"),
    [(16, 5, 4), (64, 48, 4), (12, 6, 4), (12, 7, 4), (10, 7, 10), (10, 6, 10)],
    ids=[
        "groups",
        "more groups",
        "few features",
        "a group in both halves",
        "a scale for each feature",
        "a scale for each of two features",
    ],
)
def test_bytes_become_the_numbers_of_both(k: int, n: int, group: int, target: str) -> None:
    """A product with the identity has the weights; each byte holds two, and one kernel makes the numbers of them."""
    w = RNG.standard_normal((k, n)).astype(np.float16)
    params, x = {"w": jnp.asarray(w)}, jnp.eye(k, dtype=jnp.float16)
    mode = "w4a16-g4" if group == 4 else "w4a16"
    made = tw.quantize(matmul, params, x, config=mode, target=target, progress=False)
    unpacked = target == "ascend-910b1" and n % 2 == 0
    assert [op.name for op in made.program.module("npu").walk() if op.name == "npu.vunpack"] == [
        "npu.vunpack"
    ] * unpacked
    assert k * n // 2 in [np.prod(shape) for shape, dtype in made.program.rest.inputs if dtype == "i8"]
    options = tw.Options(quantization=made.config, weights="params", memory="bytes")
    for program in (made.program, tw.compile(matmul, params, x, target=target, options=options)):
        packed = program.pack(params)
        np.testing.assert_array_equal(np.asarray(program(packed, x)), model(w, group))


@pytest.mark.parametrize("groups", [(3, 4), (1, 6)])
def test_weights_with_the_summed_dimension_last(groups: tuple[int, int]) -> None:
    """Pairs lie along the groups; a group is a row of the kernel, or all of one."""
    count, group = groups
    w = RNG.standard_normal((7, count * group)).astype(np.float16)
    params, x = {"w": jnp.asarray(w)}, jnp.eye(count * group, dtype=jnp.float16)
    config = tw.QuantConfig(f"w4a16-g{group}")
    options = tw.Options(quantization=config, weights="params", memory="bytes")

    def net(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.einsum("mk,nk->mn", x, params["w"])

    program = tw.compile(net, params, x, options=options)
    assert "npu.vunpack" in program.ir("npu")
    np.testing.assert_array_equal(np.asarray(program(params, x)), model(w.T, group))


def test_a_byte_is_unpacked_by_one_kernel() -> None:
    params, x = {"w": jax.ShapeDtypeStruct((1024, 512), jnp.float16)}, jax.ShapeDtypeStruct((1, 1024), jnp.float16)
    config, pinned = tw.QuantConfig("w4a16"), tw.Schedule(on="cube")
    options = tw.Options(quantization=config, weights="params", schedule=pinned)
    kernels = tw.compile(matmul, params, x, target="ascend-910b1", options=options).report().kernels
    assert sorted(k.kind for k in kernels) == ["cube", "vector"]
