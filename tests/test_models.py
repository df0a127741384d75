"""The models of examples/ in small: values against JAX, what runs on the NPU, and training that follows JAX's."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from loading import example_module, load
from tiering import later, sampled

import tilewright as tw

SMALL = (
    "mobilenet_v2:tiny",
    "unet:tiny",
    "vit:tiny",
    "bert:tiny",
    "llama:tiny_prefill",
    "llama:tiny_decode",
    "llama_7b:tiny_prefill",
    "llama_7b:tiny_token",
    "gpt2:tiny_token",
    "moe:tiny",
    "moe:tiny_mixtral",
    "moe:tiny_qwen3",
    "gru:tiny",
    "generate:tiny_greedy",
    "generate:tiny_beam",
    "nms:tiny",
    "flash_attention:tiny",
    "flash_attention:tiny_gradient",
    "train_cnn:tiny_sgd",
    "train_cnn:tiny_adam",
    "train_transformer:tiny_sgd",
    "train_transformer:tiny_adam",
)
BYTES = (
    "llama_7b:tiny_token",
    "gpt2:tiny_token",
    "moe:tiny",
    "moe:tiny_mixtral",
    "moe:tiny_qwen3",
    "gru:tiny",
    "nms:tiny",
    "flash_attention:tiny",
)
"""Run on addressed bytes too."""
FULL = (
    "vit:forward",
    "unet:forward",
    "moe:forward",
    "nms:forward",
    "generate:beam",
    "train_cnn:adam",
    "train_transformer:sgd",
)
"""Compiled in full size too: their shapes differ in kind from the small ones'."""


@sampled(24)
@pytest.mark.parametrize("model", SMALL)
def test_values(model: str) -> None:
    """f32 throughout: the small models are short enough for 1e-4 of the largest number of each result."""
    fn, args = load(model)
    program = tw.compile(fn, *args)
    got = program(*args)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * float(np.abs(b).max(initial=0)))
    if model in BYTES:
        flat = program.flatten(args)
        for a, b in zip(jax.tree.leaves(got), program.executable("bytes")(*flat), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), "the memory modes differ"


@sampled(4)
@pytest.mark.parametrize("model", FULL)
def test_products_run_on_the_npu(model: str) -> None:
    fn, args = load(model)
    report = tw.compile(fn, *args).report()
    assert report.npu_flops_fraction >= 0.999


@later()
def test_two_hundred_steps_on_digits_follow_jax() -> None:
    """The loss of each step, and what the weights have learnt by the end."""
    found = example_module("train_cnn")
    state, *_ = found.digits_inputs()
    images, labels = found.digits_batches(200)
    program = tw.compile(found.digits, state, images[0], labels[0])
    reference = jax.jit(found.digits)
    mine, theirs, losses = state, state, []
    for x, y in zip(images, labels, strict=True):
        mine, loss = program(mine, x, y)
        theirs, want = reference(theirs, x, y)
        losses.append((float(loss), float(want)))
    ours, jaxs = np.array(losses).T
    assert jaxs[-20:].mean() < 0.5 * jaxs[:5].mean(), "nothing was learnt"
    # rounding is amplified by each step: the curves start as one and stay close
    np.testing.assert_allclose(ours[:10], jaxs[:10], rtol=1e-3)
    np.testing.assert_allclose(ours[-20:].mean(), jaxs[-20:].mean(), rtol=0.2)
