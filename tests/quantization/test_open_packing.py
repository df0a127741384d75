"""Weights of programs with open dimensions: packed once, for all sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import export
from tiering import examples, xla_code

import tilewright as tw
from tilewright.api.packing import PackedProgram
from tilewright.api.sizes.templates import SizedProgram
from tilewright.passes.errors import CompileError

OPTIONS = {
    "w8a8-dynamic": tw.Options(quantization="w8a8-dynamic"),
    "w4a16-g4": tw.Options(quantization="w4a16-g4"),
    "mixed_float16": tw.Options(precision="mixed_float16"),
    "as they are": tw.Options(),
}


def net(params: Any, x: Any) -> Any:
    h = jax.nn.relu(x @ params["w1"] + params["b1"])
    return {"y": jax.nn.softmax(h @ params["w2"]), "n": h.sum(-1) / x.shape[0]}


def weights() -> Any:
    rng = np.random.default_rng(0)
    shapes = {"w1": (64, 96), "b1": (96,), "w2": (96, 32)}
    return {name: np.float32(rng.standard_normal(shape)) for name, shape in shapes.items()}


def images(n: int, seed: int = 0) -> Any:
    return np.float32(np.random.default_rng((n, seed)).standard_normal((n, 64)))


def opened(options: tw.Options, fn: Any = net) -> Any:
    (b,) = export.symbolic_shape("b", constraints=["b <= 300"])
    types = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), weights())
    return tw.compile(fn, types, jax.ShapeDtypeStruct((b, 64), "float32"), options=options)


@cache
def program_of(name: str) -> tuple[Any, Any, Any]:
    """A program, its packed weights, and the same without `weights=`."""
    program = opened(replace(OPTIONS[name], weights="params"))
    return program, program.pack(weights()), opened(OPTIONS[name])


@examples(40)
@given(st.sampled_from(sorted(OPTIONS)), st.integers(1, 130), st.sampled_from(["typed", "bytes"]))
def test_one_packed_set_serves_all_sizes(name: str, n: int, memory: Literal["typed", "bytes"]) -> None:
    program, packed, plain = program_of(name)
    params, x = weights(), images(n)
    want = jax.tree.leaves(plain(params, x))
    version = program.at(b=n)
    assert isinstance(version, PackedProgram) and version.packing is program.packing
    for found in (program(packed, x), program(params, x), version(packed, x), version(params, x)):
        assert jax.tree.structure(found) == jax.tree.structure(plain(params, x))
        for a, b in zip(jax.tree.leaves(found), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    again = version.executable(memory)(*version.flatten((params, x)))
    for a, b in zip(again, jax.tree.leaves(program(packed, x)), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@xla_code()
@pytest.mark.parametrize("name", OPTIONS)
def test_sizes_are_served_by_versions_for_ranges(name: str) -> None:
    program, packed, _ = program_of(name)
    for n in (33, 40, 61, 64):
        program(packed, images(n))
        version = program.at(b=n)
        assert isinstance(version.rest, SizedProgram), list(map(str, program.ranges.values()))
        executable = version.rest._shared._made["typed"]
        assert all(len(kept) == 1 for _, one in executable for kept in one.compiled.values())
        report = program.report(at={"b": n})
        assert report.packing_microseconds == program.packing.report().microseconds
        assert report.packing_microseconds > 0 or name == "as they are"
        assert "packing the weights" in report.table()
    assert len({id(program.at(b=n).packing) for n in (1, 2, 33, 64)}) == 1


def test_the_packed_set_is_as_small_as_that_of_one_size() -> None:
    program, packed, _ = program_of("w8a8-dynamic")
    alone = tw.compile(net, weights(), images(40), options=program.options)
    assert packed.nbytes == alone.pack(weights()).nbytes
    assert packed.nbytes < 0.35 * sum(w.nbytes for w in weights().values())


def test_two_open_sizes_and_several_arguments() -> None:
    def fn(a: Any, x: Any, c: Any) -> Any:
        return jnp.einsum("bsd,de->bse", x, a) @ c

    b, s = export.symbolic_shape("b, s")
    types = [jax.ShapeDtypeStruct(n, "float32") for n in [(16, 32), (b, s, 16), (32, 8)]]
    program: Any = tw.compile(fn, *types, options=tw.Options(quantization="w8a16", weights=["a", "c"]))
    rng = np.random.default_rng(0)
    a, c = (np.float32(rng.standard_normal(n)) for n in ((16, 32), (32, 8)))
    packed = program.pack(a, c)
    for n, m in ((1, 1), (1, 7), (3, 5), (4, 8), (13, 29)):
        x = np.float32(rng.standard_normal((n, m, 16)))
        found = program(packed, x, packed)
        assert found.shape == (n, m, 8)
        alone: Any = tw.compile(fn, a, x, c, options=tw.Options(quantization="w8a16"))
        np.testing.assert_allclose(found, alone(a, x, c), rtol=1e-3, atol=1e-3)


def test_donated_inputs_and_the_pool() -> None:
    def step(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["w"])

    (b,) = export.symbolic_shape("b")
    types = {"w": jax.ShapeDtypeStruct((64, 64), "float32")}, jax.ShapeDtypeStruct((b, 64), "float32")
    program: Any = tw.compile(step, *types, options=tw.Options(weights="params", donate=("x",)))
    params = {"w": jnp.ones((64, 64))}
    packed = program.pack(params)
    for n in (40, 50):
        for passed in (packed, params):
            x = jnp.ones((n, 64))
            want = np.asarray(step(params, x))
            np.testing.assert_allclose(program(passed, x), want, atol=1e-4)
            assert x.is_deleted() and not params["w"].is_deleted()
    assert program.pool is program.rest.pool


@xla_code()
def test_verified_with_packed_weights() -> None:
    program, _, _ = program_of("as they are")
    assert tw.verify(net, weights(), images(40), program=program, progress=False).ok


def test_mistakes() -> None:
    program, packed, _ = program_of("w8a8-dynamic")
    other = opened(replace(OPTIONS["w8a8-dynamic"], weights="params"))
    with pytest.raises(CompileError, match="packed for another program"):
        other(packed, images(5))
    with pytest.raises(CompileError, match="b is 301"):
        program(packed, images(301))
    with pytest.raises(CompileError, match=r"params\['w1'\] of net must be f32\[64, 96\]"):
        program.pack({**weights(), "w1": np.ones((3, 96), "f4")})
    with pytest.raises(CompileError, match="no argument is called 'w'"):
        opened(tw.Options(weights="w"))
    (b,) = export.symbolic_shape("b")
    types = jax.ShapeDtypeStruct((b, 64), "float32"), jax.ShapeDtypeStruct((64, b), "float32")
    with pytest.raises(CompileError, match=r"argument y is weights.*its shape is open: f32\[64, b\]"):
        tw.compile(lambda x, y: x @ y, *types, options=tw.Options(weights="y"))
