"""What a compiled function accepts and gives: random keys, Python scalars, dtypes that JAX would narrow."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw


def words(tree: Any) -> list[np.ndarray]:
    """The flat arrays of a pytree, keys as their words."""
    leaves = jax.tree.leaves(tree)
    keys = [jnp.issubdtype(v.dtype, jax.dtypes.prng_key) for v in leaves]
    return [np.asarray(jax.random.key_data(v) if k else v) for v, k in zip(leaves, keys, strict=True)]


@sampled(2)
@pytest.mark.parametrize("generator", ["threefry2x32", "rbg"])
def test_keys_go_in_and_out(generator: str) -> None:
    def draw(key: jax.Array, x: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        first, second = jax.random.split(key)
        return x + jax.random.uniform(first, (5,)), {"next": second, "seen": jnp.stack([key, first])}

    key = jax.random.key(7, impl=generator)
    x = np.ones(5, np.float32)
    program = tw.compile(draw, key, x)
    got, want = program(key, x), jax.jit(draw)(key, x)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    assert got[1]["next"].dtype == key.dtype
    for a, b in zip(words(got), words(want), strict=True):
        np.testing.assert_array_equal(a, b)
    assert tw.verify(draw, key, x, program=program, quick=True).ok


def test_wide_integers_are_narrowed_as_jax_does() -> None:
    x = np.arange(6, dtype=np.int64)
    got = tw.compile(lambda x: x * 3, x)(x)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, x * 3)


def test_python_scalars_are_weak() -> None:
    x = np.ones(3, np.float16)
    program = tw.compile(lambda x, s: x * s, x, 2.0)
    assert program(x, 3.0).dtype == np.float16
    np.testing.assert_array_equal(program(x, 3.0), np.full(3, 3, np.float16))


def test_a_fraction_is_no_integer() -> None:
    x = np.ones(3, np.float32)
    program = tw.compile(lambda x, n: x + n, x, 2)
    with pytest.raises(tw.CompileError, match=r"argument n of <lambda> must be i32\[\], got f64\[\]"):
        program(x, 2.5)


def test_results_are_weak_where_those_of_jax_are() -> None:
    def fn(x: Any, s: Any) -> Any:
        return x * s, s * 2, 3, 2.5, True, jnp.full(4, 1.5), jnp.ones(2)

    x = np.ones(3, np.float16)
    got, want = tw.compile(fn, x, 2.0)(x, 2.0), jax.jit(fn)(x, 2.0)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
        np.testing.assert_array_equal(a, b)


def test_gradients_of_integers_are_float0() -> None:
    def fn(x: Any, n: Any) -> Any:
        return jax.grad(lambda n, x: (x * n).sum(), argnums=(0, 1), allow_int=True)(n, x)

    x, n = np.arange(3, dtype=np.float32), np.arange(3)
    (void, slope), want = tw.compile(fn, x, n)(x, n), jax.jit(fn)(x, n)
    assert (void.dtype, void.shape) == (want[0].dtype, want[0].shape)
    np.testing.assert_array_equal(slope, want[1])
    np.testing.assert_array_equal(tw.compile(lambda v, x: x + 1, void, x)(void, x), x + 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("three", r"argument p\['n'\] of f is a str: give an array, a number or a jax.ShapeDtypeStruct"),
        (memoryview(b"x"), r"argument p\['n'\] of f is a memoryview: give an array"),
        (np.array(["a"]), r"argument p\['n'\] of f is a ndarray of <U1: give an array"),
        (2**40, r"argument p\['n'\] of f is 1099511627776, which no integer of JAX's default type holds"),
        (jax.ShapeDtypeStruct((3, 2**63), np.float32), r"p\['n'\] of f has a dimension of 9223372036854775808: "),
        (jax.ShapeDtypeStruct((-1,), np.float32), r"argument p\['n'\] of f has a dimension of -1: the smallest is 0"),
    ],
)
def test_what_is_no_array_is_named(value: Any, message: str) -> None:
    def f(x: Any, p: Any) -> Any:
        return x + p["n"]

    with pytest.raises(tw.CompileError, match=message):
        tw.compile(f, np.ones(3, np.float32), {"n": value})


@pytest.mark.parametrize("value", ["three", b"x", 1j, 2**40, 2.5, object(), [1], None])
def test_a_number_must_fit_the_compiled_type(value: Any) -> None:
    """Nothing is cut off without a word: 2 ** 40 is not 0 in 32 bits, and 1j is not 0."""
    program = tw.compile(lambda n: n + 1, 2)
    with pytest.raises(tw.CompileError, match=r"(must be i32\[\], got|was compiled for inputs)"):
        program(value)
    assert program(True) == 2


def test_buffers_are_arrays_when_called() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    program = tw.compile(lambda x: x + 1, jax.ShapeDtypeStruct((2, 3), np.float32))
    for given in (
        x,
        memoryview(x),
        x.astype(np.float64),
        jnp.asarray(x),
        x[::-1][::-1],
        np.asfortranarray(x),
    ):
        np.testing.assert_array_equal(program(given), x + 1)


def test_types_are_checked_without_values() -> None:
    program = tw.compile(
        lambda x, n, key: x * n + jax.random.uniform(key), np.ones(3, np.float32), 2, jax.random.key(0)
    )
    x, key = jax.ShapeDtypeStruct((3,), np.float32), jax.random.key(1)
    program.check(x, 2, key)
    program.check(key=key, n=jax.ShapeDtypeStruct((), np.int64), x=np.ones(3))
    for args, said in (
        (
            (jax.ShapeDtypeStruct((4,), np.float32), 2, key),
            "argument x of <lambda> must be f32[3], got f32[4]",
        ),
        ((x, 2.5, key), "argument n of <lambda> must be i32[], got f64[]"),
        ((x, "2", key), "argument n of <lambda> must be i32[], got a value of type str"),
        ((x, 2, x), "argument key of <lambda> must be ui32[2], got f32[3]"),
        ((np.array(["a"] * 3), 2, key), "argument x of <lambda> must be f32[3], got an array of <U1"),
    ):
        with pytest.raises(tw.CompileError, match=re.escape(said)):
            program.check(*args)
