"""The gradient of attention in kernels of chained products: values of JAX's own gradient, in both memories, and where
there are such kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from memories import outputs
from products import EPS, TYPES
from tiering import covering, later, sampled

import tilewright as tw
from tilewright.dialects.graph import ContractOp, WhileOp
from tilewright.machine import Machine
from tilewright.passes.forms import chained
from tilewright.passes.npu.check import check as hazards
from tilewright.passes.reasons import reasons_asked
from tilewright.passes.strips import flash_backward

Function = Callable[..., Any]


def scores_of(q: Any, k: Any) -> Any:
    wide = jnp.promote_types(q.dtype, jnp.float32)
    return jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=wide)


def scaled(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(scores_of(q, k) / math.sqrt(q.shape[-1]))
    return jnp.einsum("hqk,hkd->hqd", weights.astype(v.dtype), v)


def causal(q: Any, k: Any, v: Any) -> Any:
    seen = jnp.arange(k.shape[1]) <= jnp.arange(q.shape[1])[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores_of(q, k) * 0.3, -jnp.inf))
    return jnp.einsum("hqk,hkd->hqd", weights.astype(v.dtype), v)


def plain(q: Any, k: Any, v: Any) -> Any:
    """All of it in the type of the inputs, but for the sums of the softmax."""
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k)), v)


def sigmoid(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("hqk,hkd->hqd", jax.nn.sigmoid(scores_of(q, k)).astype(v.dtype), v)


def dropped(q: Any, k: Any, v: Any) -> Any:
    """Dropout with given bits."""
    weights = jax.nn.softmax(scores_of(q, k) / math.sqrt(q.shape[-1]))
    keep = np.random.default_rng(5).random(weights.shape) < 0.8
    return jnp.einsum("hqk,hkd->hqd", jnp.where(keep, weights / 0.8, 0).astype(v.dtype), v)


def selected(q: Any, k: Any, v: Any) -> Any:
    """Weights of some keys alone, by positions, times factors of rows and of scores, with another sign."""
    weights = jax.nn.softmax(scores_of(q, k) / math.sqrt(q.shape[-1]))
    row, key = jnp.arange(q.shape[1])[:, None], jnp.arange(k.shape[1])
    factors = np.random.default_rng(6).random(weights.shape).astype(np.float32) + 0.5
    weights = -jnp.where((row + key) % 3 == 0, 0, weights * factors) * (1 + row % 4) / 3
    return jnp.einsum("hqk,hkd->hqd", weights.astype(v.dtype), v)


def of_softmax(q: Any, k: Any, v: Any, d: Any) -> Any:
    """The gradient as a softmax with a rule of its own has it: of weights, and the sum of their products with it."""
    weights = jax.nn.softmax(scores_of(q, k))
    back = jnp.einsum("hqd,hkd->hqk", d, v)
    change = weights * (back - (weights * back).sum(-1, keepdims=True))
    return (
        jnp.einsum("hqk,hkd->hqd", weights.astype(v.dtype), v),
        jnp.einsum("hqk,hkd->hqd", change, k),
        jnp.einsum("hqk,hqd->hkd", change, q),
        jnp.einsum("hqk,hqd->hkd", weights.astype(v.dtype), d),
    )


def with_gradient(fn: Function) -> Function:
    def both(q: Any, k: Any, v: Any, d: Any) -> Any:
        result, back = jax.vjp(fn, q, k, v)
        return (result, *back(d))

    return both


def data(dtype: str, *sizes: int) -> list[Any]:
    heads, rows, keys, shared, columns = sizes
    rng = np.random.default_rng(sum(sizes))
    shapes = ((heads, rows, shared), (heads, keys, shared), (heads, keys, columns), (heads, rows, columns))
    return [rng.standard_normal(shape).astype(TYPES[dtype]) for shape in shapes]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products have scores of their own however few these are."""
    monkeypatch.setattr(chained, "LEAST_BYTES", 0)
    monkeypatch.setattr(chained, "LEAST_LENGTH", 0)
    monkeypatch.setattr(chained, "LEAST_TILE", 0)
    monkeypatch.setattr(flash_backward, "LEAST_GROWTH", 0)


def kernels(program: tw.Program) -> list[str]:
    return [k.name for k in program.report().kernels if k.kind == "mix"]


def check(fn: Function, dtype: str, *sizes: int, options: tw.Options | None = None) -> tw.Program:
    """Four kernels, whose values in both memories are as near to those of f64 as JAX's own in this type may be."""
    return compare(fn, data(dtype, *sizes), dtype, options)


def compare(fn: Function, args: list[Any], dtype: str, options: tw.Options | None = None) -> tw.Program:
    program = tw.compile(fn, *args, options=options or tw.Options())
    assert len(kernels(program)) == 4
    assert hazards(program.module("npu"), Machine.load("ascend-910b1")) == []
    with jax.enable_x64(True):
        want = [np.asarray(x) for x in jax.jit(fn)(*(np.asarray(x, np.float64) for x in args))]
    for got, exact in zip(outputs(program, program.flatten(args)), want, strict=True):
        allowed = 8 * EPS[dtype] * np.abs(exact).max(initial=0)
        np.testing.assert_allclose(got.astype(np.float64), exact, atol=allowed, rtol=0)
    return program


SIZES = [(1, 16, 16, 16, 16), (2, 70, 130, 24, 40), (3, 37, 37, 17, 16), (1, 128, 300, 64, 31)]
"""Heads, rows, keys, size of a head, columns."""


@covering(1)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", sorted(EPS))
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("fn", [scaled, causal, plain, sigmoid, dropped, selected])
def test_values(fn: Function, sizes: tuple[int, ...], dtype: str) -> None:
    names = kernels(check(with_gradient(fn), dtype, *sizes))
    assert ("attention_0" in names) == (fn is not sigmoid)


@sampled(24)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", sorted(EPS))
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("rows", "keys"), [(40, 40), (19, 70)])
def test_heads_that_share_keys(heads: int, groups: int, rows: int, keys: int, dtype: str) -> None:
    """Their gradients of keys and values are sums of one for each group."""

    def shared(q: Any, k: Any, v: Any) -> Any:
        wide = jnp.promote_types(q.dtype, jnp.float32)
        scores = jnp.einsum("ghqd,hkd->ghqk", q, k, preferred_element_type=wide) / math.sqrt(q.shape[-1])
        return jnp.einsum("ghqk,hkd->ghqd", jax.nn.softmax(scores).astype(v.dtype), v)

    rng = np.random.default_rng(groups)
    shapes = (groups, heads, rows, 16), (heads, keys, 16), (heads, keys, 24), (groups, heads, rows, 24)
    compare(with_gradient(shared), [rng.standard_normal(shape).astype(TYPES[dtype]) for shape in shapes], dtype)


@pytest.mark.usefixtures("always")
def test_the_rule_of_a_softmax() -> None:
    assert "attention_0" in kernels(check(of_softmax, "f32", 2, 50, 90, 16, 24))


@pytest.mark.usefixtures("always")
def test_maxima_do_not_see_what_is_behind_the_last_piece() -> None:
    """With one place for the second product, the loop has two turns more."""
    pins = tw.Schedule(keys=32, places=1)
    check(with_gradient(scaled), "f32", 1, 32, 64, 16, 16, options=tw.Options(schedule=pins))


@pytest.mark.usefixtures("always")
def test_other_factors_than_those_of_the_result_are_stored() -> None:
    """The sum of weights times their gradient is then no sum over the columns of the result."""

    def fn(q: Any, k: Any, v: Any, d: Any) -> Any:
        weights = jax.nn.softmax(scores_of(q, k))
        kept = np.random.default_rng(5).random(weights.shape) < 0.8
        back = jnp.einsum("hqd,hkd->hqk", d, v)
        change = weights * (back - (weights * back).sum(-1, keepdims=True))
        return jnp.einsum("hqk,hkd->hqd", jnp.where(kept, weights, 0), v), jnp.einsum("hqk,hkd->hqd", change, k)

    args = data("f32", 2, 50, 90, 16, 24)
    program = tw.compile(fn, *args)
    assert not any(name.startswith("chain") for name in kernels(program))
    for got, want in zip(program(*args), fn(*args), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@sampled(2)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("what", ["scores", "weights"])
def test_what_else_needs_them_keeps_them(what: str) -> None:
    def fn(q: Any, k: Any, v: Any, d: Any) -> Any:
        scores = scores_of(q, k) / math.sqrt(q.shape[-1])
        weights = jax.nn.softmax(scores)
        whole = scores.sum() if what == "scores" else (weights * weights).sum(-1)
        return (*with_gradient(scaled)(q, k, v, d), whole)

    with reasons_asked() as reasons:
        program = tw.compile(fn, *data("f32", 2, 50, 90, 16, 24))
        program.report()
    assert not any(name.startswith("chain") for name in kernels(program))
    assert any(r.kind == "not chained" and "is a sum of what its scores become" in r.why for r in reasons)


def test_many_scores_are_in_kernels_and_few_are_stored() -> None:
    """Those of 4,096 rows are, which takes less time, and a tenth of the memory that strips take whose softmax is no
    part of the first product's kernel."""

    def compiled(*shape: int, **options: bool) -> tw.Program:
        return tw.compile(
            with_gradient(scaled),
            *[jax.ShapeDtypeStruct(shape, np.float16)] * 4,
            options=tw.Options(**options),
        )

    one, strips = compiled(1, 4096, 64), compiled(1, 4096, 64, without="attention")
    stored = compiled(1, 4096, 64, without={"attention", "row-epilogue"})
    marked = [
        op
        for op in one.module("graph").walk()
        if isinstance(op, ContractOp) and "own_scores" in op.attributes
    ]
    assert len(marked) == 4 and not any(isinstance(op, WhileOp) for op in one.module("graph").walk())
    assert any(isinstance(op, WhileOp) for op in strips.module("graph").walk())
    assert one.report().microseconds < strips.report().microseconds
    assert one.report().memory.arena_bytes * 8 < strips.report().memory.arena_bytes
    assert one.report().memory.arena_bytes * 10 < stored.report().memory.arena_bytes
    for few in (compiled(2, 512, 64), compiled(600, 128, 64)):
        assert not any(name.startswith("chain") for name in kernels(few))


@later()
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("heads", [1, 4, 8])
@pytest.mark.parametrize("rows", [128, 512, 1024, 4096, 8192])
def test_never_slower(heads: int, rows: int, size: int) -> None:
    """Than without kernels of two products, nor larger, by more than what the forward half alone makes of it."""
    arg = jax.ShapeDtypeStruct((heads, rows, size), np.float16)
    whole, parts = (
        tw.compile(with_gradient(scaled), arg, arg, arg, arg, options=tw.Options(without=each)).report()
        for each in ((), "attention")
    )
    assert whole.microseconds <= parts.microseconds * 1.001
    assert whole.memory.arena_bytes <= parts.memory.arena_bytes


@sampled(4)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("fn", "dtype"), [(plain, "f16"), (scaled, "f16"), (scaled, "bf16"), (causal, "bf16")]
)
def test_verify_knows_the_sum_over_the_columns(fn: Function, dtype: str) -> None:
    """It takes the place of a sum over the keys of what was rounded, which is further off than it."""
    found = tw.verify(with_gradient(fn), *data(dtype, 1, 16, 33, 16, 16))
    assert found.ok, found.culprit
