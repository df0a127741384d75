"""Products that contract nothing, or one element: multiplications, rounded and wrapped as products."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from jax import lax
from tiering import sampled, some

import tilewright as tw

OUTER = ((), ()), ((), ())
CASES = {
    "outer": ((5,), (7,), OUTER),
    "head mask": ((12,), (1, 12, 9, 8), (((), ()), ((0,), (1,)))),
    "one term": ((4, 1), (1, 6), (((1,), (0,)), ((), ()))),
    "one term of two dimensions, in a batch": ((1, 3, 4, 1), (1, 1, 5, 3), (((0, 3), (1, 0)), ((1,), (3,)))),
    "all batch": ((6, 2), (2, 6), (((), ()), ((0, 1), (1, 0)))),
    "single numbers": ((1,), (1, 1), OUTER),
    "scalars": ((), (), OUTER),
    "nothing": ((0, 3), (3, 4), (((), ()), ((1,), (0,)))),
    "larger than a tile": ((301,), (515,), OUTER),
}
TYPES = [
    ("f32", None),
    ("f16", None),
    ("bf16", None),
    ("f16", "float32"),
    ("bf16", "float32"),
    ("i8", "int32"),
    ("i8", "int8"),
    ("i32", None),
]


@sampled(2)
@pytest.mark.parametrize(("dtype", "result"), TYPES)
def test_values(dtype: str, result: str | None) -> None:
    wide: Any = None if result is None else jnp.dtype(result)

    cases = some(list(CASES.values()), TYPES.index((dtype, result)), 3)  # each in two types at least

    def fn(pairs: list[tuple[jax.Array, jax.Array]]) -> list[jax.Array]:
        return [
            lax.dot_general(x, y, dims, preferred_element_type=wide)
            for (x, y), (_, _, dims) in zip(pairs, cases, strict=True)
        ]

    pairs = [(data(dtype, left, 0), data(dtype, right, 1)) for left, right, _ in cases]
    program = check(fn, pairs)
    assert "graph.contract" not in program.ir("graph")


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310"])
def test_floats_round_once(target: str) -> None:
    """Bit for bit what JAX gives: overflow, the smallest numbers, and products halfway between two."""
    edges = np.array([65504, 6e-8, 1.0009765625, 255.5, 3e-5, np.inf, -0.0, 2.0], np.float16)
    program = tw.compile(lambda x, y: jnp.einsum("a,b->ab", x, y), edges, edges, target=target)
    with np.errstate(over="ignore", invalid="ignore"):
        got, want = np.asarray(program(edges, edges)), np.multiply.outer(edges, edges)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got)[want == want], np.signbit(want)[want == want])


def test_integers_wrap_in_the_type_of_the_result() -> None:
    x = np.array([127, -128, 100, 3], np.int8)
    fn = lambda a: lax.dot_general(a, a, OUTER, preferred_element_type=jnp.int32)  # noqa: E731
    np.testing.assert_array_equal(np.asarray(check(fn, x)(x)), np.multiply.outer(x.astype(np.int32), x))


def test_a_head_mask_is_in_the_kernel_that_uses_it() -> None:
    def fn(p: jax.Array, mask: jax.Array) -> jax.Array:
        return jnp.exp(jnp.einsum("h,bhqk->bhqk", mask, p)) + 1

    program = check(fn, data("f32", (1, 12, 32, 32), 0), data("f32", (12,), 1))
    assert [k.kind for k in program.report().kernels] == ["vector"]
