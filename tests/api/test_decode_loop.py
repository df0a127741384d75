"""A decoder whose cache grows: prefill and 64 steps of one program with open dimensions."""

from __future__ import annotations

import jax
import numpy as np
from jax import export
from loading import example_module
from tiering import xla_code

import tilewright as tw
from tilewright.passes.templates import NoTemplate

STEPS = 64


@xla_code()
def test_prefill_and_decode_are_one_program() -> None:
    llama = example_module("llama")
    config = llama.TINY
    params = llama.init(config, np.float32)
    past, more = export.symbolic_shape("p, t", constraints=["p >= 0"])
    empty = llama.empty_cache(config, np.float32, 0)
    shape = (*empty.k.shape[:2], past, *empty.k.shape[3:])
    cache_type = jax.tree.map(lambda part: jax.ShapeDtypeStruct(shape, part.dtype), empty)
    program = tw.compile(
        llama.tiny_extend,
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params),
        cache_type,
        jax.ShapeDtypeStruct((config.batch, more), "int32"),
    )
    # JAX compiles for each length: the reference is one function for all, of a cache that is full from the start
    fixed = jax.jit(llama.tiny_decode)
    config_cache = llama.empty_cache(config, np.float32, config.n_prompt + STEPS)
    tokens = np.asarray(llama.example_tokens(config, config.n_prompt))
    cache, start = empty, 0
    for _ in range(1 + STEPS):
        got, cache = program(params, cache, tokens)
        want, config_cache = fixed(params, config_cache, tokens, np.int32(start))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        start += tokens.shape[1]
        tokens = np.argmax(np.asarray(want), -1)[:, None].astype(np.int32)
    for part, full in zip(cache, config_cache, strict=True):
        np.testing.assert_allclose(part, full, rtol=1e-4, atol=1e-5)
    # a prompt of 5 to 8 tokens, then caches of 7 and 8, 9 to 16, 17 to 32, 33 to 64 and 65 to 70 positions
    versions = list(program.ranges.values())
    assert len(versions) == 6 and not any(isinstance(v, NoTemplate) for v in versions)
    for version in versions:
        assert not isinstance(version, NoTemplate) and not version.template.constraints
        ((_, executable),) = version.executables._made["typed"]
        assert all(len(made) == 1 for made in executable.compiled.values())
