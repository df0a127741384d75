"""Two products with elementwise ops between them, in one kernel: values of JAX in both memories, and where it pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from products import EPS, assert_as_in_f32, data
from tiering import covering, sampled

import tilewright as tw
from tilewright.machine import Machine
from tilewright.passes.forms import chained
from tilewright.passes.npu.check import check as hazards


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chained products are one kernel however small they are."""
    monkeypatch.setattr(chained, "LEAST_BYTES", 0)
    monkeypatch.setattr(chained, "LEAST_TILE", 0)


def check(fn: Callable[..., Any], *args: Any, options: tw.Options | None = None) -> tw.Program:
    """One kernel, whose values in both memories are those of f32, as far as its type says."""
    program = tw.compile(fn, *args, options=options or tw.Options())
    assert [k.name for k in program.report().kernels if k.kind == "mix"] == ["chain_0"]
    assert hazards(program.module("npu"), Machine.load("ascend-910b1")) == []
    assert_as_in_f32(program, fn, args, 8)
    return program


def sigmoid(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jax.nn.sigmoid(jnp.einsum("hqd,hkd->hqk", q, k)), v)


def perceptron(x: Any, w: Any, b: Any, v: Any) -> Any:
    return jax.nn.gelu(x @ w + b) @ v


SIZES = [
    (1, 16, 16, 16, 16),
    (2, 130, 300, 24, 40),
    (3, 257, 33, 64, 17),
    (1, 128, 1024, 128, 128),
    (5, 19, 531, 7, 256),
]
"""Heads, rows, keys, size of a head, columns."""


@covering(1)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", sorted(EPS))
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_of_heads(dtype: str, sizes: tuple[int, ...]) -> None:
    """Keys of one piece and of many, full pieces and others."""
    heads, rows, keys, shared, columns = sizes
    check(sigmoid, *data(dtype, (heads, rows, shared), (heads, keys, shared), (heads, keys, columns)))


@sampled(6)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize(("rows", "hidden"), [(100, 64), (300, 640), (1000, 1000)])
def test_two_layers(dtype: str, rows: int, hidden: int) -> None:
    check(perceptron, *data(dtype, (rows, 48), (48, hidden), (hidden,), (hidden, 33)))


@pytest.mark.usefixtures("always")
def test_nothing_between_them() -> None:
    check(lambda x, w, v: (x @ w) @ v, *data("f32", (200, 32), (32, 400), (400, 48)))


@pytest.mark.usefixtures("always")
def test_what_f_makes_of_places_behind_the_last_key_does_not_count() -> None:
    """There it is no number: 1 / 0."""
    q, k, v = data("f32", (64, 16), (530, 16), (530, 32))
    check(lambda q, k, v: (1 / (jnp.abs(q) @ jnp.abs(k).T)) @ v, q, k, v)


@pytest.mark.usefixtures("always")
def test_a_mask_of_positions() -> None:
    def linear(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.T
        seen = jnp.arange(k.shape[0])[None, :] <= jnp.arange(q.shape[0])[:, None]
        return jnp.where(seen, scores, 0) @ v

    check(linear, *data("f16", (300, 32), (300, 32), (300, 64)))


@sampled(4)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("keys", [64, 128])
def test_pins(places: int, keys: int) -> None:
    """Where the last parts are added changes no bit, if both ways sum up in steps of one length."""
    args = data("f16", (1, 128, 64), (1, 500, 64), (1, 500, 64))
    pins = tw.Schedule(rows=64, keys=keys, places=places, summed=32)
    program = check(sigmoid, *args, options=tw.Options(schedule=pins))
    one = tw.compile(sigmoid, *args, options=tw.Options(schedule=replace(pins, places=1)))
    np.testing.assert_array_equal(np.asarray(program(*args)), np.asarray(one(*args)))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("pins", "reason"),
    [
        ({"columns": 16}, "columns must be all 64"),
        ({"buffered": 1}, "buffered must be 2"),
        ({"places": 3}, "3 places are too many"),
    ],
)
def test_pins_that_cannot_be_obeyed(pins: dict[str, int], reason: str) -> None:
    args = data("f16", (1, 128, 64), (1, 500, 64), (1, 500, 64))
    with pytest.raises(tw.CompileError, match=rf"@chain_0 cannot obey .*{reason}"):
        tw.compile(sigmoid, *args, options=tw.Options(schedule=tw.Schedule(keys=64, **pins)))


@pytest.mark.usefixtures("always")
def test_what_else_needs_the_first_result_keeps_it() -> None:
    def both(x: Any, w: Any, v: Any) -> Any:
        hidden = jnp.tanh(x @ w)
        return hidden @ v + hidden.sum()

    program = tw.compile(both, *data("f16", (200, 32), (32, 400), (400, 48)))
    assert not any(k.name.startswith("chain") for k in program.report().kernels)


def test_large_ones_are_one_kernel_and_small_ones_two() -> None:
    """And the large one takes less time and memory than its parts."""
    large = [jax.ShapeDtypeStruct((8, 4096, 64), np.float16)] * 3
    small = [jax.ShapeDtypeStruct((8, 512, 64), np.float16)] * 3
    whole, apart = (
        tw.compile(sigmoid, *large, options=tw.Options(without=out)).report() for out in ((), "attention")
    )
    assert [k.name for k in whole.kernels] == ["chain_0"]
    assert whole.microseconds < apart.microseconds
    assert whole.memory.arena_bytes < apart.memory.arena_bytes
    assert len(tw.compile(sigmoid, *small).report().kernels) == 2


def layers(x: Any, a: Any, b: Any) -> Any:
    return jax.nn.relu(x @ a) @ b


def test_products_back_to_back_are_one_kernel_where_that_takes_less_time() -> None:
    """And less memory; where their loads are long, two kernels take less time."""
    narrow = [jax.ShapeDtypeStruct(s, np.float16) for s in ((8192, 32), (32, 256), (256, 32))]
    whole, apart = (tw.compile(layers, *narrow, options=tw.Options(without=out)).report() for out in ((), "attention"))
    assert [k.name for k in whole.kernels] == ["chain_0"]
    assert whole.microseconds < apart.microseconds
    assert whole.memory.arena_bytes < apart.memory.arena_bytes
    wide = [jax.ShapeDtypeStruct(s, np.float16) for s in ((2048, 512), (512, 128), (128, 512))]
    assert len(tw.compile(layers, *wide).report().kernels) == 2
