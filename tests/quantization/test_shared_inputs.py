"""Values that several products read in several modes, and results of one row."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw

NUMBERS = ("NHWC", "HWIO", "NHWC")


def convolved(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS)


def numbers(seed: int, *shape: int, dtype: str = "float32"):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mode", ["w8a8-dynamic", "w8a16", "f16"])
def test_a_product_beside_a_saturated_convolution_reads_the_numbers_themselves(mode: str, dtype: str) -> None:
    """The first convolution stores its input in few steps and saturates it; that is no matter of the second one's."""

    def net(params, x):
        return convolved(x, params["a"]), convolved(x, params["b"])

    params = {"a": numbers(0, 1, 1, 3, 2, dtype=dtype), "b": numbers(1, 1, 1, 3, 4, dtype=dtype)}
    x = numbers(2, 2, 5, 4, 3, dtype=dtype)
    choices = {"params['a']": tw.ProductChoice("w8a8", 2.0**-9), "params['b']": tw.ProductChoice(mode)}
    config = tw.QuantConfig(products=choices)
    program = tw.compile(net, params, x, options=tw.Options(quantization=config, weights="params"))
    _, got = program(params, x)
    wanted = np.asarray(convolved(x, params["b"]), np.float32)
    assert np.abs(np.asarray(got, np.float32) - wanted).max() < 0.03 * np.abs(wanted).max()


@pytest.mark.parametrize("rows", [1, 2])
def test_a_batch_norm_goes_into_the_weights_of_a_single_row_too(rows: int) -> None:
    """With one row a bias along the features is no broadcast; sums become stored numbers all the same."""

    def net(params, x):
        h = jax.nn.relu((x @ params["a"]) * params["s"] + params["b"])
        return h @ params["c"] + params["b"].reshape(1, -1)

    params = {"a": numbers(0, 8, 6), "s": numbers(1, 6), "b": numbers(2, 6), "c": numbers(3, 6, 6)}
    choices = {f"params['{n}']": tw.ProductChoice("w8a8", 0.03125) for n in "ac"}
    config = tw.QuantConfig(products=choices)
    x = numbers(4, rows, 8)
    program = tw.compile(net, params, x, options=tw.Options(quantization=config, weights="params"))
    added = [op for op in program.module("graph").walk() if op.name == "graph.add"]
    assert len(added) == 2 and all("xi32>" in str(op.results[0].type) for op in added)
