"""Functions in mixed precision, and gradients of a batch from its parts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiering import MEMORIES, examples, sampled

import tilewright as tw
from tilewright.training import accumulate, cast_floats, micro_batches, mixed

SMALL = ("float16", "bfloat16")


def options(memory: str) -> tw.Options:
    return tw.Options(memory="bytes") if memory == "bytes" else tw.Options()


def layer(params: Any, x: jax.Array, chosen: jax.Array) -> jax.Array:
    return jnp.take(jax.nn.relu(x @ params["w"] + params["b"]), chosen, axis=0)


def arguments(rows: int = 12, n: int = 20, m: int = 7) -> tuple[Any, jax.Array, jax.Array]:
    rng = np.random.default_rng(rows)
    w, b, x = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((n, m), (m,), (rows, n)))
    return {"w": w / 4, "b": b}, x, jnp.asarray(rng.integers(0, rows, 5), jnp.int32)


@pytest.mark.parametrize("dtype", SMALL)
def test_it_computes_in_the_type_and_gives_f32(dtype: str) -> None:
    params, x, chosen = arguments()
    seen = []

    def watched(*args: Any) -> jax.Array:
        seen.append([leaf.dtype for leaf in jax.tree.leaves(args)])
        return layer(*args)

    result = mixed(watched, dtype)(params, x, chosen)
    assert seen == [[jnp.dtype(dtype)] * 3 + [jnp.dtype("int32")]]
    assert result.dtype == jnp.float32
    np.testing.assert_array_equal(result, layer(*cast_floats((params, x), dtype), chosen).astype(jnp.float32))
    assert mixed(layer, dtype, None)(params, x, chosen).dtype == dtype


@pytest.mark.parametrize("dtype", SMALL)
def test_gradients_have_the_type_of_the_parameters(dtype: str) -> None:
    params, x, chosen = arguments()
    params["b"] = params["b"].astype("bfloat16")
    fn = mixed(layer, dtype)
    grads = jax.grad(lambda p: jnp.sum(fn(p, x, chosen) ** 2))(params)
    assert {k: g.dtype for k, g in grads.items()} == {"w": jnp.float32, "b": jnp.bfloat16}


@sampled(2)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("dtype", SMALL)
def test_a_compiled_gradient_is_as_jax_computes_it(dtype: str, memory: str) -> None:
    params, x, chosen = arguments(24, 40, 16)
    fn = mixed(layer, dtype)
    grad = lambda p, x, c: jax.grad(lambda p: jnp.mean(fn(p, x, c) ** 2))(p)  # noqa: E731
    program = tw.compile(grad, params, x, chosen, options=options(memory))
    got, want = program(params, x, chosen), jax.jit(grad)(params, x, chosen)
    unit = float(jnp.finfo(dtype).eps)
    for name in params:
        assert got[name].dtype == jnp.float32
        room = 4 * unit * float(jnp.abs(want[name]).max())
        np.testing.assert_allclose(got[name], want[name], rtol=0, atol=room)


def test_keywords_lists_and_numbers_of_python() -> None:
    fn = mixed(lambda xs, scale, flag=None, by=2.0: [x * scale * by for x in xs], "float16")
    a, b = fn([jnp.ones(2), np.ones(3, np.float64)], 3, by=0.5)
    assert a.dtype == b.dtype == jnp.float32 and float(a[0]) == 1.5


def test_a_type_that_is_none_of_floats() -> None:
    with pytest.raises(TypeError, match=r"a type of floats such as jnp.float16, not int8"):
        mixed(layer, jnp.int8)
    with pytest.raises(TypeError, match=r"not int32"):
        mixed(layer, jnp.float16, jnp.int32)


# -- micro-batches -------------------------------------------------------------------------------------------


def loss(params: Any, x: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(jnp.tanh(x @ params["w"]) + params["b"]))


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 7), st.integers(1, 7))
@examples(30)
def test_parts_of_one_size_give_the_gradient_of_the_whole(count: int, rows: int, n: int, m: int) -> None:
    """Up to the order of additions: a few roundings of the largest number."""
    params, x, _ = arguments(count * rows, n, m)
    whole = jax.value_and_grad(loss)(params, x)
    parts = accumulate(lambda x: jax.value_and_grad(loss)(params, x), micro_batches(count, x))
    for a, b in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=0, atol=16 * 2.0**-24 * max(1.0, float(jnp.abs(b).max())))


@pytest.mark.parametrize("memory", MEMORIES)
def test_four_compiled_micro_batches(memory: str) -> None:
    params, x, _ = arguments(32, 24, 16)
    step = lambda p, x: accumulate(lambda x: jax.value_and_grad(loss)(p, x), micro_batches(4, x))  # noqa: E731
    program = tw.compile(step, params, x, options=options(memory))
    got, want, whole = program(params, x), jax.jit(step)(params, x), jax.value_and_grad(loss)(params, x)
    for a, b, c in zip(*map(jax.tree.leaves, (got, want, whole)), strict=True):
        for other in (b, c):
            np.testing.assert_allclose(a, other, rtol=0, atol=2e-6 * float(jnp.abs(other).max()))


def test_sums_of_small_types_are_in_f32() -> None:
    """2048 ones in f16 would stop at 2048; 4096 of them are still 4096 in f32."""
    found = accumulate(lambda x: {"g": x, "n": 2 * x}, jnp.ones((4096, 1), jnp.float16))
    assert found["g"].dtype == jnp.float32
    assert float(found["g"][0]) == 1 and float(found["n"][0]) == 2


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_an_overflow_of_a_part_stays(bad: float) -> None:
    x = np.ones((4, 3), np.float32)
    x[2, 1] = bad
    found = np.asarray(accumulate(lambda x: x, jnp.asarray(x)))
    assert not np.isfinite(found[1]) and np.isfinite(found[[0, 2]]).all()


def test_several_arguments() -> None:
    a, b = micro_batches(2, jnp.arange(4.0), {"y": jnp.arange(8.0).reshape(4, 2)})
    assert a.shape == (2, 2) and b["y"].shape == (2, 2, 2)
    found = accumulate(lambda x, t: x[:, None] * t["y"], a, b)
    np.testing.assert_array_equal(found, (np.array([[0, 0], [2, 3]]) + np.array([[8, 10], [18, 21]])) / 2)


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda: micro_batches(3, jnp.ones((4, 2))), ValueError, r"\[4, 2\] cannot be cut into 3"),
        (lambda: micro_batches(0, jnp.ones(4)), ValueError, "cannot be cut into 0"),
        (lambda: micro_batches(1, jnp.float32(4)), ValueError, r"\[\] cannot be cut"),
        (lambda: accumulate(lambda x, y: x, jnp.ones(4), jnp.ones(3)), ValueError, r"these are \[4\], \[3\]"),
        (lambda: accumulate(lambda: 1.0), ValueError, "these are none"),
        (lambda: accumulate(lambda x: x, jnp.ones((0, 3))), ValueError, "1 or more"),
        (lambda: accumulate(lambda x: x, jnp.ones(3, jnp.int32)), TypeError, "a mean of int32"),
    ],
)
def test_what_is_no_set_of_micro_batches(call: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        call()
