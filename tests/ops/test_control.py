"""Loops and branches, with trip counts and predicates known only at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data, host_ops
from jax import lax
from tiering import sampled

import tilewright as tw
from tilewright.dialects.npu.structure import LoopOp
from tilewright.dialects.text import verify

Args = tuple[jax.Array, ...]
X, Y, W = data("f32", (5, 7)), data("f32", (5, 7), 1), data("f32", (7, 7)) * 0.3
YES, NO = jnp.bool_(True), jnp.bool_(False)


def count(n: int) -> jax.Array:
    return jnp.int32(n)


def step(i: Any, x: Any) -> Any:
    return x * 1.5 + i


def between(a: jax.Array, b: jax.Array, late: bool) -> jax.Array:
    """A loop between ops that would be one kernel without it; that kernel takes in another one after the loop."""
    p = a >= b
    r = lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, jnp.where(p, a, -b))
    q = jnp.exp(b)
    s = jnp.where(p, a, q)
    return r * s if not late else jnp.where(p, q + r, s) * r


def handed_on(x: jax.Array, n: jax.Array) -> list[jax.Array]:
    """A loop that goes on with a number of the host, which is returned as well."""
    k = lax.while_loop(lambda i: i < n + 2, lambda i: i + 1, 0)
    return [lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, k), (0, x))[1], k]


LOOPS: dict[str, tuple[Callable[..., Any], Args]] = {
    "fori": (lambda x: lax.fori_loop(0, 5, step, x), (X,)),
    "fori, count given": (lambda x, n: lax.fori_loop(0, n, step, x), (X, count(4))),
    "fori, bounds given": (lambda x, a, n: lax.fori_loop(a, n, step, x), (X, count(-2), count(1))),
    "no trips": (lambda x, n: lax.fori_loop(0, n, step, x), (X, count(0))),
    "while": (lambda x: lax.while_loop(lambda x: jnp.sum(x) < 100, lambda x: x * 2, jnp.abs(x)), (X,)),
    "while a flag": (
        lambda x, p: lax.while_loop(lambda c: c[1], lambda c: (c[0] + 1, c[0].sum() < 10), (x, p)),
        (jnp.zeros(5), YES),
    ),
    "scan": (lambda x, xs: lax.scan(lambda c, x: (c * 0.5 + x, c.sum()), x, xs), (X[0], X)),
    "scan backwards": (lambda x, xs: lax.scan(lambda c, x: (c * 0.5 + x, c), x, xs, reverse=True), (X[0], X)),
    "scan without input": (lambda x: lax.scan(lambda c, _: (c + 1, c), x, None, length=4), (X,)),
    "recurrent": (
        lambda h, w, xs: lax.scan(lambda c, x: (jnp.tanh(c @ w + x), c), h, xs),
        (X, W, data("f32", (4, 5, 7))),
    ),
    "map": (lambda x: lax.map(lambda row: row.sum(), x), (X,)),
    "swap": (lambda x, y: lax.fori_loop(0, 5, lambda i, c: (c[1], c[0]), (x, y)), (X, Y)),
    "swap, count given": (
        lambda x, y, n: lax.fori_loop(0, n, lambda i, c: (c[1], c[0] + 1), (x, y)),
        (X, Y, count(3)),
    ),
    "rotate": (lambda *xs: lax.fori_loop(0, 4, lambda i, c: (c[1], c[2], c[0]), xs), (X, Y, X + 1)),
    "one start for two": (lambda x: lax.fori_loop(0, 3, lambda i, c: (c[0] + 1, c[1] * 2), (x, x)), (X,)),
    "an unchanged part": (lambda x, y: lax.fori_loop(0, 3, lambda i, c: (c[0], c[1] + c[0]), (x, y)), (X, Y)),
    "a nest": (
        lambda x: lax.fori_loop(0, 3, lambda i, x: lax.fori_loop(0, i, lambda j, y: y + j, x) * 2, x),
        (X,),
    ),
    "a branch inside": (
        lambda x: lax.while_loop(
            lambda c: c[0] < 3,
            lambda c: (c[0] + 1, lax.cond(c[0] > 1, lambda x: x * 2, lambda x: x + 1, c[1])),
            (0, x),
        ),
        (X,),
    ),
    "a product inside": (lambda x, w: lax.fori_loop(0, 3, lambda i, c: c @ w, x), (X, W)),
    "a layout inside": (lambda x: lax.fori_loop(0, 3, lambda i, c: (c + 1).reshape(7, 5).T, x), (X,)),
    "an update inside": (
        lambda x, n: lax.fori_loop(0, n, lambda i, c: lax.dynamic_update_slice(c, c[:1] + i, (i, 0)), x),
        (X, count(4)),
    ),
    "a constant result": (lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.ones_like(c), x), (X,)),
    "used afterwards": (lambda x: (lambda y: (y + x, y))(lax.fori_loop(0, 3, step, x)), (X,)),
    "a scalar": (lambda x: lax.fori_loop(0, 5, lambda i, c: c * 2 + x, x), (data("f32", ()),)),
    "between ops of one kernel": (lambda a, b: between(a, b, False), (X, X * 0.5 + 1)),
    "between ops of one kernel, used twice": (lambda a, b: between(a, b, True), (X, X * 0.5 + 1)),
    "a number handed on": (handed_on, (count(-7), count(2))),
    "a number handed on, not run": (handed_on, (count(-7), count(0))),
    "many trips": (lambda x: lax.fori_loop(0, 100, lambda i, c: c * 0.99, x), (data("f32", (300, 257)),)),
}

BRANCHES: dict[str, tuple[Callable[..., Any], Args]] = {
    "taken": (lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x * 2, x), (YES, X)),
    "not taken": (lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x * 2, x), (NO, X)),
    "a computed predicate": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (X,)),
    "its operand as result": (lambda p, x: lax.cond(p, lambda x: (x, x), lambda x: (x * 2, x), x), (NO, X)),
    "constants": (lambda p: lax.cond(p, lambda: jnp.ones(3), lambda: jnp.zeros(3)), (YES,)),
    "a product": (lambda p, x, w: lax.cond(p, lambda: x @ w, lambda: x), (YES, X, W)),
    "an outer value": (
        lambda p, x: (lambda y: lax.cond(p, lambda: y.sum(0), lambda: y[0]) + y[1])(jnp.exp(x)),
        (NO, X),
    ),
}


@sampled(5)
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    fn, args = LOOPS[name]
    check(fn, *args, length=100)


@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name: str) -> None:
    fn, args = BRANCHES[name]
    check(fn, *args)


def hosted(x: jax.Array) -> jax.Array:
    """Host ops: the device has no 8-bit floats."""
    return x.astype(jnp.float8_e5m2).astype(x.dtype)


HOSTED: dict[str, tuple[Callable[..., Any], Args]] = {
    "fori": (lambda x: lax.fori_loop(0, 5, lambda i, c: hosted(c)[:, ::-1] + i, x), (X,)),
    "no trips": (lambda x: lax.fori_loop(0, 0, lambda i, c: hosted(c), x), (X,)),
    "scan": (lambda x: lax.scan(lambda c, r: (hosted(c + r), c), x[0], x), (X,)),
    "count given": (lambda x, n: lax.fori_loop(0, n, lambda i, c: hosted(c) * 2, x), (X, count(3))),
    "while": (lambda x: lax.while_loop(lambda c: hosted(c)[0, 0] < 9, lambda c: c + 1, x), (X,)),
    "a nest": (
        lambda x: lax.fori_loop(
            0, 2, lambda i, c: lax.fori_loop(0, 3, lambda j, d: hosted(d + j), c) * 0.5, x
        ),
        (X,),
    ),
    "a branch inside": (
        lambda x: lax.fori_loop(0, 4, lambda i, c: lax.cond(i % 2 == 0, hosted, lambda c: -c, c), x),
        (X,),
    ),
}


@sampled(2)
@pytest.mark.parametrize("name", HOSTED)
def test_loops_with_host_ops_inside(name: str) -> None:
    fn, args = HOSTED[name]
    program = check(fn, *args, host=True, length=100)
    assert host_ops(program) or name == "no trips"


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 5])
def test_switch(index: int) -> None:
    branches = [lambda x: x + 1, lambda x: x * 2, lambda x: x]
    check(lambda i, x: lax.switch(i, branches, x), count(index), X)


def test_on_a_fused_core() -> None:
    fn, args = LOOPS["recurrent"]
    check(fn, *args, target="ascend-310", length=100)


@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize("name", ["fori", "fori, count given", "a product inside"])
def test_loops_that_name_their_state(name: str, memory: Any) -> None:
    """A loop of a hand-written npu program may use the state's tensors themselves instead of block arguments."""
    fn, args = LOOPS[name]
    program = tw.compile(fn, *args)
    for op in program.module().walk():
        if isinstance(op, LoopOp):
            for region in op.regions:
                for arg, state in zip(
                    list(op.state_args(region.block)), op.state, strict=bool(region.block.args)
                ):
                    arg.replace_all_uses_with(state)
                    region.block.erase_arg(arg)
    verify(program.module())
    (got,) = program.executable(memory)(*program.flatten(args))
    np.testing.assert_allclose(got, jax.jit(fn)(*args), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "int8", "uint8"])
def test_loops_count_in_any_integer_type(dtype: str) -> None:
    """With 64-bit types on, JAX counts fori_loop and scan in i64."""
    with jax.enable_x64(True):

        def fn(x: Any, rows: Any) -> Any:
            counted = lax.fori_loop(jnp.asarray(3, dtype), jnp.asarray(9, dtype), lambda k, c: c + k, x)
            return lax.scan(lambda c, r: (c * r, c + r), counted, rows)

        x, rows = jnp.arange(5, dtype=jnp.int32).astype(dtype), jnp.ones((4, 5), dtype)
        program = tw.compile(fn, x, rows)
        loops = [op for op in program.module("graph").walk() if op.name == "graph.while"]
        assert [op.properties["trip_count"].value.data for op in loops] == [6, 4]
        for got, want in zip(program(x, rows), jax.jit(fn)(x, rows), strict=True):
            np.testing.assert_array_equal(got, want)
