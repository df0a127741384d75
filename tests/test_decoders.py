"""Decoders a token at a time against all tokens at once, and what is compiled from shapes without arrays."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loading import EXAMPLES, example_module
from tiering import sampled

import tilewright as tw
from tilewright.dialects.npu import structure


def close(got: Any, want: Any, tolerance: float) -> None:
    """Within a share of the largest number."""
    want = np.asarray(want, np.float64)
    np.testing.assert_allclose(
        np.asarray(got, np.float64), want, rtol=0, atol=tolerance * float(np.abs(want).max())
    )


@sampled(2)
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.float16, 2e-2)])
def test_tokens_of_gpt2_are_its_forward_pass(dtype: Any, tolerance: float) -> None:
    """One program, for each token of a text in turn, against the logits of the whole text by plain JAX."""
    gpt2 = example_module("gpt2")
    params, tokens = gpt2.init(gpt2.TINY, dtype), gpt2.example_tokens(gpt2.TINY)
    caches = gpt2.example_caches(gpt2.TINY, dtype, 0)
    program = tw.compile(gpt2.tiny_token, params, caches, tokens[:1], jnp.int32(0))
    want = jax.jit(gpt2.tiny)(params, tokens)
    for i in range(len(tokens)):
        logits, caches = program(params, caches, tokens[i : i + 1], jnp.int32(i))
        close(logits, want[i], tolerance)


def test_a_token_of_llama_7b_goes_on_behind_a_prompt() -> None:
    """A prompt of 16 and a token behind it are a prompt of 17; the caches too."""
    llama = example_module("llama_7b")
    params, caches, tokens = llama.tiny_prefill_inputs()
    want, whole = jax.jit(llama.tiny_prefill)(params, caches, tokens)
    _, filled = tw.compile(llama.tiny_prefill, params, caches, tokens[:-1])(params, caches, tokens[:-1])
    last = (tokens[-1:], jnp.int32(len(tokens) - 1))
    got, after = tw.compile(llama.tiny_token, params, filled, *last)(params, filled, *last)
    close(got, want, 1e-5)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(whole), strict=True):
        close(a, b, 1e-5)


FROM_SHAPES = """
import resource, sys
sys.path.insert(0, {examples!r})
import jax, tilewright as tw, {module} as net
tw.compile(lambda x: x + 1, jax.ShapeDtypeStruct((8,), "float32"))  # what every compilation loads
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
program = tw.compile(net.{name}, *net.{name}_inputs())
program.report()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@sampled(3)
@pytest.mark.parametrize("model", ["llama_7b:token", "llama_7b:prefill", "moe:mixtral"])
def test_no_weight_is_made(model: str) -> None:
    """Compiling from shapes takes at most 300 MB more memory than before; one layer's weights have more."""
    module, name = model.split(":")
    code = FROM_SHAPES.format(examples=str(EXAMPLES), module=module, name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 300 * 1024


@pytest.mark.parametrize(("name", "bytes_"), [("token", 14_554_000_000), ("prefill", 13_750_000_000)])
def test_llama_7b_is_one_layer(name: str, bytes_: int) -> None:
    """All 32 layers are calls of one function; all weights and caches are arguments, and the caches donated."""
    llama = example_module("llama_7b")
    program = tw.compile(getattr(llama, name), *getattr(llama, f"{name}_inputs")())
    calls = [op for op in program.module().walk() if isinstance(op, structure.CallOp)]
    assert len(calls) == llama.FULL.n_layers and len({str(op.callee) for op in calls}) == 1
    report = program.report()
    assert report.counts.kernels < 40
    assert report.memory.constant_bytes < 1_000_000
    assert report.memory.donated_bytes == 2 * 32 * 4096 * 2 * (2048 if name == "token" else 512)
    assert report.memory.arena_bytes == pytest.approx(bytes_, rel=0.01)
