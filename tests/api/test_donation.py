"""Donated arguments: what JAX's users see, what the program does with the memory, and that values stay right."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from memories import outputs
from tiering import MEMORIES, examples

import tilewright as tw
from tilewright.api.program import Program
from tilewright.dialects.npu.structure import CopyOp, LaunchOp

X = np.linspace(0.1, 1, 37 * 53, dtype=np.float32).reshape(37, 53)


def fresh(n: int, shape: tuple[int, ...] = (37, 53)) -> list[jax.Array]:
    rng = np.random.default_rng(n)
    return [jnp.asarray(rng.uniform(0.1, 1, shape), jnp.float32) for _ in range(n)]


def momentum(p: Any, m: Any, g: Any) -> Any:
    m = 0.9 * m + g
    return p - 0.1 * m, m


def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


def write(cache: Any, x: Any, i: Any) -> Any:
    cache = lax.dynamic_update_slice(cache, x, (i, 0))
    return cache, cache @ x[0]


def copies(program: Program) -> int:
    return sum(isinstance(op, CopyOp) for op in program.module("npu").walk())


def agrees(
    fn: Callable[..., Any], args: Sequence[Any], donate: Sequence[int], inner: float = 1e-5
) -> Program:
    """Both memory modes give what JAX gives, the same bits as each other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some cannot be used
        program = tw.compile(fn, *args, options=tw.Options(donate=tuple(donate)))
    want = jax.tree.leaves(jax.jit(fn)(*args))
    for got, expected in zip(outputs(program, program.flatten(args), MEMORIES), want, strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        close = {"rtol": inner, "atol": inner}
        np.testing.assert_allclose(got.astype(np.float64), np.asarray(expected, np.float64), **close)
    return program


# -- as in JAX -----------------------------------------------------------------------------------------------


def ways() -> dict[str, Callable[[], Callable[..., Any]]]:
    compiled = {
        "compile a jax.jit": lambda *a: tw.compile(jax.jit(momentum, donate_argnums=(0, 1)), *a),
        "Options, by position": lambda *a: tw.compile(momentum, *a, options=tw.Options(donate=(0, -2))),
        "Options, by name": lambda *a: tw.compile(momentum, *a, options=tw.Options(donate=("p", "m"))),
    }
    found = {name: lambda make=make: lambda *a: make(*a)(*a) for name, make in compiled.items()}
    found["jit, by position"] = lambda: tw.jit(momentum, donate_argnums=(0, 1))
    found["jit, by name"] = lambda: tw.jit(momentum, donate_argnames=("p", "m"))
    found["jit, Options"] = lambda: tw.jit(momentum, options=tw.Options(donate=(0, "m")))
    found["jit of a jax.jit, keywords"] = lambda: (
        lambda p, m, g: tw.jit(jax.jit(momentum, donate_argnums=(0, 1)))(p, g=g, m=m)
    )
    return found


@pytest.mark.parametrize("way", ways())
def test_donated_arrays_are_deleted(way: str) -> None:
    args = fresh(3)
    want = jax.jit(momentum)(*args)
    got = ways()[way]()(*args)
    assert [a.is_deleted() for a in args] == [True, True, False]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_deleted_array_is_refused() -> None:
    program = tw.compile(jax.jit(momentum, donate_argnums=0), *fresh(3))
    args = fresh(3)
    program(*args)
    with pytest.raises(
        RuntimeError, match="argument p of momentum has been deleted: it was donated to an earlier"
    ):
        program(*args)


def test_an_array_cannot_be_donated_and_used_otherwise() -> None:
    (x,) = fresh(1)
    with pytest.raises(RuntimeError, match="argument p of momentum is donated, and argument g is the same array"):
        tw.compile(momentum, x, X, x, options=tw.Options(donate=0))(x, X, x)
    assert not x.is_deleted()


def test_numpy_arrays_and_keys() -> None:
    given = X.copy()
    p, _ = tw.jit(momentum, donate_argnums=(0, 1))(given, X, X)
    np.testing.assert_array_equal(given, X)
    np.testing.assert_allclose(p, momentum(X, X, X)[0], rtol=1e-5)
    key = jax.random.key(3)
    want = jax.random.key_data(jax.random.split(key)[0])
    got = tw.jit(lambda k: jax.random.split(k)[0], donate_argnums=0)(key)
    assert key.is_deleted()
    np.testing.assert_array_equal(jax.random.key_data(got), want)


def test_an_argument_that_is_the_result() -> None:
    (x,) = fresh(1)
    want = np.asarray(x).copy()
    same, twice = tw.jit(lambda x: (x, x * 2), donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(same, want)
    np.testing.assert_allclose(twice, want * 2)


def test_what_cannot_be_used_is_said_once_and_kept() -> None:
    x, y = jnp.asarray(X), jnp.ones(3)

    def total(x: Any, y: Any) -> Any:
        return x * 2 + y.sum()

    given_ = jax.jit(total, donate_argnums=(0, 1))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        program = tw.compile(given_, x, y)
        program(x, y)
        assert program.report().memory.donated_bytes == x.nbytes + y.nbytes
    assert [str(w.message) for w in said] == ["Some donated buffers of total were not usable: y f32[3]."]
    assert (x.is_deleted(), y.is_deleted()) == (True, False)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tw.compile(momentum, X, X, X, options=tw.Options(donate=3)), "has no argument 3 to donate"),
        (
            lambda: tw.compile(momentum, X, X, X, options=tw.Options(donate="q")),
            "has no argument 'q' to donate",
        ),
        (lambda: tw.jit(momentum, donate_argnums=5), "momentum has no argument 5 to donate; it has 3"),
        (
            lambda: tw.jit(momentum, donate_argnames="q"),
            "momentum has no argument 'q' to donate; it has p, m, g",
        ),
        (
            lambda: tw.jit(momentum, static_argnums=0, donate_argnums=0),
            "'p' of momentum cannot be static and",
        ),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(tw.CompileError, match=re.escape(said)):
        make()


def test_methods_and_pytrees() -> None:
    class Model:
        @tw.jit(donate_argnums=1)
        def step(self, state: dict[str, Any], g: Any) -> dict[str, Any]:
            return {k: v - 0.1 * g for k, v in state.items()}

        __hash__ = object.__hash__

    state = dict(zip("ab", fresh(2), strict=True))
    got = Model().step(state, jnp.asarray(X))
    assert all(v.is_deleted() for v in state.values())
    assert not any(v.is_deleted() for v in got.values())


def test_stablehlo_says_it_too(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = jax.jit(write, donate_argnums=(0, 1)).lower(X, X[:1], 3).as_text()
    assert "tf.aliasing_output" in text
    program = tw.compile(text, options=tw.Options())
    assert "graph.donated" in program.ir("graph") and "graph.donated" in program.ir("npu")
    assert copies(program) == 0
    donor = text.replace("tf.aliasing_output = 0 : i32", "jax.buffer_donor = true")
    (tmp_path / "m.mlir").write_text(donor)
    assert copies(tw.compile(tmp_path / "m.mlir")) == 0
    (tmp_path / "no.mlir").write_text(
        text.replace("tf.aliasing_output = 0 : i32", "jax.buffer_donor = false")
    )
    assert copies(tw.compile(tmp_path / "no.mlir")) == 1
    level = tw.compile(tmp_path / "m.mlir").ir("tile")
    (tmp_path / "tile.mlir").write_text(level)
    assert copies(tw.compile(tmp_path / "tile.mlir")) == 0


# -- memory --------------------------------------------------------------------------------------------------


def test_an_optimizer_step_is_in_place() -> None:
    program = agrees(adam, fresh(4), (0, 1, 2))
    memory = program.report().memory
    tensor = 8192  # 37 x 53 f32, in blocks of 512 bytes
    assert memory.arena_bytes == 4 * tensor
    assert memory.undonated_arena_bytes == 7 * tensor
    assert memory.undonated_arena_bytes == tw.compile(adam, *fresh(4)).report().memory.arena_bytes
    (launch,) = (op for op in program.module("npu").walk() if isinstance(op, LaunchOp))
    assert {v.name_hint for v in launch.written()} == {"p", "m", "v"}


def test_a_cache_is_updated_in_place() -> None:
    args = (X, X[:1], np.int32(5))
    kept, given_ = tw.compile(write, *args), agrees(write, args, (0,))
    assert (copies(kept), copies(given_)) == (1, 0)
    stores = {k.name: k.bytes["write"] for k in given_.report().kernels if k.name.startswith("update")}
    assert [n < 2 * X[:1].nbytes for n in stores.values()] == [True]  # whole bursts of 32 bytes
    assert given_.report().microseconds < kept.report().microseconds


def test_what_still_needs_the_cache_gets_the_old_one() -> None:
    def both(cache: Any, x: Any) -> Any:
        new = lax.dynamic_update_slice(cache, x, (2, 0))
        return new, cache.sum(axis=1), cache * 2

    agrees(both, (X, X[:1]), (0,))


def test_donated_memory_is_free_for_the_plan() -> None:
    def wider(x: Any, w: Any, v: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ w) @ v)

    w, v = (np.full(shape, 0.01, np.float32) for shape in ((53, 128), (128, 128)))
    program = agrees(wider, (X, w, v), (0,))
    memory = program.report().memory
    assert memory.undonated_arena_bytes is not None
    assert memory.arena_bytes <= memory.undonated_arena_bytes - 8192


def test_a_training_loop_keeps_its_state_in_place() -> None:
    def train(p: Any, m: Any, batches: Any) -> Any:
        return lax.scan(lambda s, g: (momentum(*s, jnp.tanh(s[0] * g)), s[0].sum()), (p, m), batches)

    program = agrees(train, (*fresh(2), fresh(1, (5, 37, 53))[0]), (0, 1))
    assert copies(program) == 0
    assert program.report().memory.arena_bytes < 10 * 8192


# -- values --------------------------------------------------------------------------------------------------

BODIES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "elementwise": (lambda a: jnp.sin(a) + 0.5 * a, True),
    "softmax": (lambda a: jax.nn.softmax(a * 3.0), True),
    "centred": (lambda a: a - a.mean(axis=-1, keepdims=True), True),
    "reshaped": (lambda a: (a.reshape(-1) * 0.5 + 1.0).reshape(a.shape), True),
    "reversed": (lambda a: a[::-1] * 0.5 + a, False),
    "shifted": (lambda a: jnp.concatenate([a[1:], a[:1]]) * 0.5 + a, True),
    "outer": (lambda a: a * 0.5 + a[:1] * a[:, :1], False),
    "sums of columns": (lambda a: a * 0.5 + a.sum(axis=0) * 0.01, True),
    "cumulative": (lambda a: jnp.cumsum(a, axis=1) * 0.1, True),
    "updated": (lambda a: a.at[0].set(a[-1] * 2.0), True),
    "product": (lambda a: a @ (jnp.eye(a.shape[1]) * 0.9), True),
}
"""What becomes of a state in a round, and whether it may be computed over the old one."""
SIZES = (1, 2, 5, 13, 37, 64, 130)


@examples(8)
@given(st.sampled_from(sorted(BODIES)), st.sampled_from(SIZES), st.sampled_from(SIZES), st.booleans())
def test_loops_and_donations_agree_with_jax(body: str, rows: int, columns: int, loop: bool) -> None:
    step, _ = BODIES[body]
    x = np.linspace(-1, 1, rows * columns, dtype=np.float32).reshape(rows, columns)
    agrees((lambda a: lax.fori_loop(0, 3, lambda i, b: step(b), a)) if loop else step, (x,), (0,))


@pytest.mark.parametrize("body", [name for name, (_, together) in BODIES.items() if together])
def test_no_copy_in_a_round(body: str) -> None:
    step, _ = BODIES[body]
    program = tw.compile(
        lambda a: lax.fori_loop(0, 3, lambda i, b: step(b), a), X, options=tw.Options(donate=0)
    )
    steps = program.report().kernels
    assert not [k for k in steps if k.kind == "copy"], program.ir("npu")


@pytest.mark.parametrize("body", [name for name, (_, together) in BODIES.items() if not together])
def test_other_elements_are_not_overwritten(body: str) -> None:
    step, _ = BODIES[body]
    program = tw.compile(step, X, options=tw.Options(donate=0))
    for op in program.module("npu").walk():
        if isinstance(op, LaunchOp):
            assert not set(op.written()) & set(op.inputs())


def test_donating_everything_does_no_harm() -> None:
    def mixed(a: Any, b: Any, n: Any) -> Any:
        c = lax.cond(n > 2, lambda x: x * 2, lambda x: x - 1, a)
        c = lax.while_loop(lambda s: s.sum() < 1e4, lambda s: s * 1.5 + b, jnp.abs(c) + 1)
        return c, n + 1, b, jnp.sort(a, axis=1), math.pi * a

    agrees(mixed, (X, X[::-1].copy(), np.int32(3)), (0, 1, 2))
