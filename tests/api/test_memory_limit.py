"""Programs that keep a limit of device memory: the same values, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loading import example_module, load
from tiering import sampled

import tilewright as tw
from tilewright.passes.order import rematerialise
from tilewright.support.amounts import bytes_in

MIB = 1 << 20


def heavy(x: jax.Array, w: jax.Array, wide: jax.Array) -> jax.Array:
    """A large value that is used at both ends of products: enough to bring it to the host and back meanwhile. Most is
    needed between them."""
    first = jnp.exp(x)
    y = first @ w
    for _ in range(12):
        y = jnp.tanh(y @ w)
    y = jnp.tanh(y @ wide) @ wide.T
    for _ in range(12):
        y = jnp.tanh(y @ w)
    return y + first


@cache
def cnn() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return load("train_cnn:tiny_sgd")


@cache
def transformer() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A step of the example with a batch that needs more than its weights do."""
    module = example_module("train_transformer")
    config = module.TINY._replace(batch=13)
    tokens = np.arange(13 * 10, dtype=np.int32).reshape(13, 10) % config.vocab
    return lambda params, tokens: module.sgd_step(params, tokens, config.n_heads), (module.init(config), tokens)


@cache
def offloaded() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    x = np.linspace(-1, 1, 1031 * 128, dtype=np.float32).reshape(1031, 128)
    wide = np.linspace(-0.1, 0.1, 512 * 128, dtype=np.float32).reshape(128, 512)
    return heavy, (x, np.eye(128, dtype=np.float32), wide)


@cache
def mlp() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The gradient of six layers, whose activations are needed from the first to the last."""

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.mean(jnp.square(x))

    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((17, 17), dtype=np.float32) for _ in range(6)]
    return jax.value_and_grad(loss), (weights, rng.standard_normal((531, 17), dtype=np.float32))


CASES = {"mlp": (mlp, 0.75), "cnn": (cnn, 0.9), "transformer": (transformer, 0.7), "heavy": (offloaded, 0.93)}


@cache
def unlimited(name: str) -> tw.Program:
    fn, args = CASES[name][0]()
    return tw.compile(fn, *args)


@cache
def limited(name: str, memory: Literal["typed", "bytes"] = "typed") -> tw.Program:
    make, share = CASES[name]
    fn, args = make()
    limit = int(unlimited(name).report().memory.arena_bytes * share)
    return tw.compile(fn, *args, options=tw.Options(memory_limit=limit, memory=memory))


@sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_the_plan_keeps_the_limit(name: str) -> None:
    before, after = unlimited(name).report(), limited(name).report()
    assert after.memory.limit_bytes == int(before.memory.arena_bytes * CASES[name][1])
    assert after.memory.arena_bytes <= after.memory.limit_bytes
    less = after.memory.less
    assert less.again_launches or less.moved_tensors
    assert (less.again_bytes > 0) == (less.again_launches > 0)
    assert (less.moved_microseconds > 0) == (less.moved_tensors > 0)
    assert before.memory.limit_bytes is None and not before.memory.less.again_launches


@sampled(4)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize("name", ["mlp", "heavy"])
def test_values_are_those_without_a_limit(name: str, memory: Literal["typed", "bytes"]) -> None:
    _, args = CASES[name][0]()
    want = unlimited(name).executable(memory)(*unlimited(name).flatten(args))
    got = limited(name).executable(memory)(*limited(name).flatten(args))
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_values_go_over_the_link_beside_kernels() -> None:
    report = limited("heavy").report()
    assert report.memory.less.moved_tensors == 1
    assert report.memory.less.moved_bytes == 1031 * 128 * 4
    assert report.queues["copy_in"] > 40 and report.queues["copy_out"] > 40
    # events part launches that are one without a limit, so it takes a few launches longer, and no copy
    started = sum(k.launch_microseconds for k in report.kernels)
    before = unlimited("heavy").report()
    once = sum(k.launch_microseconds for k in before.kernels)
    assert report.microseconds - started < 1.05 * (before.microseconds - once)
    assert {op.name for op in report.host_ops} == {"offload", "restore"}


def test_it_is_said_what_is_done() -> None:
    report = limited("heavy").report()
    less = json.loads(report.to_json())["memory"]["less"]
    assert less["moved_tensors"] == 1 and less["moved_bytes"] == 1031 * 128 * 4
    limit = f"{report.memory.limit_bytes:,}"
    assert f"device memory: {report.memory.arena_bytes:,} bytes, limit {limit}: " in report.table()
    assert "1 tensor of 527,872 bytes to the host and back" in report.table().replace("\n", " ")


def test_a_limit_with_room_changes_nothing() -> None:
    fn, args = offloaded()
    roomy = tw.compile(fn, *args, options=tw.Options(memory_limit="1GiB"))
    assert roomy.report().memory.arena_bytes == unlimited("heavy").report().memory.arena_bytes
    assert "nothing had to be done for it" in roomy.report().table()


def test_a_limit_that_cannot_be_kept_is_refused() -> None:
    fn, args = transformer()
    with pytest.raises(tw.CompileError) as error:
        tw.compile(fn, *args, options=tw.Options(memory_limit="64K"))
    said = str(error.value)
    assert "does not fit into 65,536 bytes of device memory; the least that was reached" in said
    assert "a smaller batch or narrower types need less" in said


def test_called_functions_count() -> None:
    """A function that is called twice and stays one has a frame behind the caller's."""

    @jax.jit
    def block(x: jax.Array, w: jax.Array) -> jax.Array:
        for i in range(17):
            x = jnp.tanh(x @ w) + float(i)
        return x

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        first = jnp.exp(x)
        y = block(first @ w, w)
        y = jnp.tanh(y @ jnp.tile(w, (1, 5))) @ jnp.tile(w, (5, 1))
        return block(y * 0.5, w) * first

    x = np.linspace(-1, 1, 1 << 16, dtype=np.float32).reshape(256, 256)
    args = (x, 0.05 * np.eye(256, dtype=np.float32))
    full = tw.compile(fn, *args)
    limit = full.report().memory.arena_bytes - 1
    less = tw.compile(fn, *args, options=tw.Options(memory_limit=limit))
    assert less.report().memory.arena_bytes <= limit
    np.testing.assert_array_equal(np.asarray(full(*args)), np.asarray(less(*args)))


@pytest.mark.parametrize("limit", [0, -5, True, "", "many", "0", 1.5, "12Q"])
def test_limits_that_are_none(limit: Any) -> None:
    with pytest.raises(tw.CompileError, match="memory_limit must be bytes or text such as '512MiB'"):
        tw.Options(memory_limit=limit)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("4096", 4096), ("512K", 512 << 10), ("512MiB", 512 * MIB), (" 1.5 gib ", 1536 * MIB), ("7B", 7), ("0", None)],
)
def test_amounts(text: str, bytes_: int | None) -> None:
    assert bytes_in(text) == bytes_


def test_a_plan_that_is_larger_than_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tile-to-npu keeps apart takes more than the search counted: it begins again with more room."""
    fn, args = mlp()
    whole = tw.compile(fn, *args).report().memory.arena_bytes
    limit, slack, fits, asked = int(0.8 * whole), whole // 10, rematerialise.fits, list[int]()

    def careless(search: Any, most: int, target: float) -> bool:
        asked.append(most)
        return fits(search, most + slack, target)

    monkeypatch.setattr(rematerialise, "fits", careless)
    program = tw.compile(fn, *args, options=tw.Options(memory_limit=limit))
    assert program.report().memory.arena_bytes <= limit
    assert len(set(asked)) > 1 and asked[0] > asked[-1]
