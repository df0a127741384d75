"""Kernels beside work of the host: values, modelled time, device memory, and what stays in place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tiering import sampled

import tilewright as tw
from tilewright.passes.choose import lower

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 512)).astype(np.complex64)
W = RNG.standard_normal((256, 256)).astype(np.float32) / 16
A = RNG.standard_normal((256, 256)).astype(np.float32)


def power(x: Any) -> jax.Array:
    return jnp.sum(jnp.abs(jnp.fft.fft(x)), axis=-1)


def chain(a: Any, w: Any, n: int) -> jax.Array:
    for _ in range(n):
        a = jnp.tanh(a @ w)
    return a


def beside(x: Any, w: Any, a: Any) -> Any:
    return power(x), chain(a, w, 6)


def two_calls(x: Any, w: Any, a: Any) -> Any:
    """The second transform waits for the first one's reader, other kernels for neither."""
    b = chain(a, w, 2)
    p = power(x)
    q = power(x * p[:, None])
    return q, chain(b, w, 3)


def looped(x: Any, w: Any, a: Any) -> Any:
    """In each round a transform of what the round before made, and a product."""

    def step(carry: Any, _: Any) -> Any:
        x, a = carry
        return (x / (1 + power(x)[:, None]), chain(a, w, 2)), a[0, 0]

    return lax.scan(step, (x, a), None, length=3)


def branched(x: Any, w: Any, a: Any) -> Any:
    """A branch that the host must decide, one that the device computes, and a call of the host in one of them."""
    p = power(x)
    c = lax.cond(a[0, 0] > 5, lambda a: a + 1, lambda a: chain(a, w, 2), a)
    d = lax.cond(jnp.sum(p) > 1, lambda a: a * jnp.max(power(x)), lambda a: a, a)
    return p, c, d, chain(a, w, 2)


def updated(x: Any, w: Any, a: Any) -> Any:
    """What waits for the host reads `b` before it is updated in place."""
    b = chain(a, w, 1)
    p = b[0, :16] * power(x)
    c = b.at[3].set(1.0)
    return p, chain(c, w, 2), c


def called(x: Any, w: Any, a: Any) -> Any:
    """Functions that are called, with and without the host."""
    inner = jax.jit(lambda x: power(x) + power(x[::-1]) * jnp.sum(jnp.abs(x), -1))
    layers = jax.jit(lambda a: chain(a, w, 3) + chain(a, w, 2))
    p = inner(x)
    q = layers(layers(a))
    return p, inner(x * p[:, None]), q


PROGRAMS = [beside, two_calls, looped, branched, updated, called]


@sampled(2)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_values_time_and_memory(fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As JAX has it; no later and with no more memory than in the order of the program, but for what one call of the
    host brings."""
    program = tw.compile(fn, X, W, A)
    for got, want in zip(*map(jax.tree.leaves, (program(X, W, A), jax.jit(fn)(X, W, A))), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-4)
    text = program.ir("tile")
    monkeypatch.setattr(lower, "order_launches", lambda *_: None)
    plain = tw.compile(fn, X, W, A)
    assert text != plain.ir("tile")
    ours, theirs = program.report(), plain.report()
    assert ours.microseconds < 0.95 * theirs.microseconds
    brought = max(map(size_of, re.findall(r"npu.to_device .*!npu.gm<([\dx]+)xcomplex", program.ir("npu"))))
    assert ours.memory.arena_bytes <= theirs.memory.arena_bytes + brought
    assert program.ir("npu").count("npu.copy") <= plain.ir("npu").count("npu.copy")


def test_every_pass_is_verified() -> None:
    """Launches are matched by the order in which they run from graph-to-tile on."""
    result = tw.verify(updated, X, W, A)
    assert result.ok, result


def size_of(shape: str) -> int:
    return int(np.prod([int(n) for n in shape.split("x")])) * 8


def test_the_kernels_hide_behind_the_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six products that need nothing of the host are hidden but for what is longer than the host works."""
    program = tw.compile(beside, X, W, A)
    launches = re.findall(r"npu.launch @(\w+?)_\d", program.ir("npu"))
    assert launches == ["contract"] * 6 + ["reduce"]
    monkeypatch.setattr(lower, "order_launches", lambda *_: None)
    plain = tw.compile(beside, X, W, A)
    work = program.report()
    products = sum(k.microseconds for k in work.kernels if k.name.startswith("contract"))
    transform = sum(op.microseconds for op in work.host_ops)
    assert work.microseconds < plain.report().microseconds - 0.9 * min(products, transform)


def test_programs_without_the_host_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(w: Any, a: Any) -> Any:
        n = lax.while_loop(lambda n: jnp.max(a) * n < 20, lambda n: n + 1, 0)
        return n, chain(a, w, 2), lax.fori_loop(0, n, lambda _, a: jnp.sin(a), a)

    text = tw.compile(fn, W, A).ir("tile")
    monkeypatch.setattr(lower, "order_launches", lambda *_: None)
    assert text == tw.compile(fn, W, A).ir("tile")
