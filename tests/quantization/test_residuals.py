"""Residuals that are added to sums on their way out: a part of the epilogue is the fixpipe's, the rest the vector
cores'."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw

NUMBERS = ("NHWC", "HWIO", "NHWC")


def block(params, x):
    """Two convolutions with batch norms, a projection, a pool and a product, with residuals between."""
    h = jax.nn.relu(jax.lax.conv_general_dilated(x, params["w0"], (1, 1), "SAME", dimension_numbers=NUMBERS))
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    y = jax.lax.conv_general_dilated(h, params["w1"], (1, 1), "SAME", dimension_numbers=NUMBERS)
    y = jax.nn.relu(y * params["g"] + params["b"] + h)
    z = jax.lax.conv_general_dilated(y, params["w2"], (1, 1), "SAME", dimension_numbers=NUMBERS)
    p = jax.lax.conv_general_dilated(y, params["w3"], (1, 1), "SAME", dimension_numbers=NUMBERS)
    z = jax.nn.relu(z * params["g"] + p - params["b"])
    return z.reshape(len(z), -1) @ params["w4"]


def inputs(channels: int, size: int, dtype: str, seed: int = 0):
    rng = np.random.default_rng(seed)

    def array(*shape: int):
        return jnp.asarray(rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1])), dtype)

    c, half = channels, size // 2
    params = {
        "w0": array(3, 3, 3, c),
        "w1": array(3, 3, c, c),
        "w2": array(3, 3, c, c),
        "w3": array(1, 1, c, c),
        "w4": array(half * half * c, 5),
        "g": jnp.asarray(rng.standard_normal(c), dtype),
        "b": jnp.asarray(rng.standard_normal(c), dtype),
    }
    return params, jnp.asarray(rng.standard_normal((2, size, size, 3)), dtype)


@sampled(8)
@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("channels", "size"), [(16, 8), (7, 6)])
def test_values_are_those_of_the_graph_in_both_memories(channels, size, dtype, target) -> None:
    params, x = inputs(channels, size, dtype)
    made = tw.quantize(block, params, x, config="w8a8", target=target, progress=False)
    wanted = np.asarray(jax.jit(made.function)(params, x))
    assert np.array_equal(np.asarray(made.program(params, x)), wanted)
    options = tw.Options(memory="bytes", quantization=made.config, weights="params")
    bytes_mode = tw.compile(block, params, x, target=target, options=options)
    assert np.array_equal(np.asarray(bytes_mode(params, x)), wanted)
    assert made.table.sqnr > 20


def test_the_fixpipe_takes_what_it_can() -> None:
    """A convolution before a residual leaves the cube as f16, one before a quantization as i8, without vector cores."""
    params, x = inputs(32, 16, "float16")
    made = tw.quantize(block, params, x, config="w8a8", progress=False)
    text = made.program.ir("tile")
    kinds = [k.kind for k in made.program.report().kernels if k.name.lstrip("@").startswith("conv")]
    assert "cube" in kinds and "mix" in kinds
    stores = [line for line in text.splitlines() if "tile.store" in line and "xui64, fb>" in line]
    assert any("xf16" in line for line in stores), "no sums are stored as f16"
