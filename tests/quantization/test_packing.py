"""What depends on weights alone is a program of its own."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw
from tilewright.passes.errors import CompileError

from .nets import NETS


@sampled(4)
@pytest.mark.parametrize("mode", ["w8a8-dynamic", "w4a16-g4", None])
@pytest.mark.parametrize("kind", NETS)
def test_packed_weights_change_nothing(kind: str, mode: str | None) -> None:
    net, params, x = NETS[kind](4)
    program = tw.compile(net, params, x, options=tw.Options(quantization=mode, weights="params"))
    plain = tw.compile(net, params, x, options=tw.Options(quantization=mode))
    packed = program.pack(params)
    for outputs in (program(packed, x), program(params, x)):
        for a, b in zip(jax.tree.leaves(outputs), jax.tree.leaves(plain(params, x)), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def wide(a, b, x):
    return jnp.tanh(x @ a) @ b


def operands(n: int = 64):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(s), jnp.float16) for s in ((n, n), (n, n), (2, n))]


def test_several_arguments_and_bytes() -> None:
    a, b, x = operands()
    program = tw.compile(wide, a, b, x, options=tw.Options(quantization="w8a16", weights=["a", "b"]))
    packed = program.pack(a, b)
    assert np.array_equal(program(packed, packed, x), program(a, b, x))
    assert packed.nbytes < 0.6 * (a.nbytes + b.nbytes)
    report = program.report()
    assert report.packing_microseconds > 0 and "packing the weights" in report.table()


def test_shapes_alone_are_enough() -> None:
    shapes = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in operands()]
    program = tw.compile(wide, *shapes, options=tw.Options(quantization="w8a16", weights=["a", "b"]))
    assert program.report().microseconds > 0


def test_casts_of_weights_are_packed() -> None:
    a, b, x = (v.astype(jnp.float32) for v in operands())
    cast = tw.Options(precision="mixed_float16")
    program = tw.compile(wide, a, b, x, options=replace(cast, weights=["a", "b"]))
    plain = tw.compile(wide, a, b, x, options=cast)
    packed = program.pack(a, b)
    assert packed.nbytes == (a.nbytes + b.nbytes) // 2
    for outputs in (program(packed, packed, x), program(a, b, x)):
        assert np.asarray(outputs).tobytes() == np.asarray(plain(a, b, x)).tobytes()
    assert program.report().precision == plain.report().precision
    assert program.report().microseconds < plain.report().microseconds
    assert tw.verify(wide, a, b, x, options=replace(cast, weights=["a", "b"]), progress=False).ok


def test_what_is_larger_than_its_weights_is_made_each_time() -> None:
    def net(small, big, x):
        return (x @ big.astype(jnp.float16)).astype(jnp.float32) + jnp.outer(small, jnp.tanh(small))

    small, big = jnp.arange(64, dtype=jnp.float32) / 64, operands()[0].astype(jnp.float32)
    x = big.astype(jnp.float16)
    program = tw.compile(net, small, big, x, options=tw.Options(weights=["small", "big"]))
    packed = program.pack(small, big)
    assert packed.nbytes == big.nbytes // 2 + 2 * small.nbytes
    wanted = np.asarray(net(small, big, x))
    assert np.allclose(np.asarray(program(packed, packed, x)), wanted, rtol=1e-2, atol=1e-1)


def test_mistakes() -> None:
    a, b, x = operands()
    options = tw.Options(quantization="w8a16", weights=["a", "b"])
    program, other = (tw.compile(wide, a, b, x, options=options) for _ in range(2))
    packed = program.pack(a, b)
    with pytest.raises(CompileError, match="packed for another program"):
        other(packed, packed, x)
    with pytest.raises(CompileError, match="pack takes a, b"):
        program.pack(a)
    with pytest.raises(CompileError, match=r"argument a of wide must be f16\[64, 64\]"):
        program.pack(a[:3], b)
    with pytest.raises(CompileError, match="no argument is called 'w'; they are a, b, x"):
        tw.compile(wide, a, b, x, options=tw.Options(weights="w"))
