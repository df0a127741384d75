"""Operands of products that are turned in memory: the values stay what they are, and what is turned is what pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw
from tilewright.dialects.graph import FusionOp
from tilewright.passes.tile.turned import Perm
from tilewright.passes.tile.turned_operands import TurnJudge

LARGE = 8192


def shape(*sizes: int, dtype: str = "float16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has everything turned that can be."""

    def microseconds(
        self: TurnJudge,
        fusion: FusionOp,
        inputs: Mapping[int, Perm] | None = None,
        stored: Mapping[int, Perm] | None = None,
    ) -> float:
        return 100.0 - 10 * len(inputs or {})

    monkeypatch.setattr(TurnJudge, "turn", lambda self, value, perm: 1.0)
    monkeypatch.setattr(TurnJudge, "most_saved", lambda self, fusion, value: 100.0)
    monkeypatch.setattr(TurnJudge, "microseconds", microseconds)


def matmul(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.matmul(x, w)


def of_both(x: jax.Array, w: jax.Array) -> jax.Array:
    """Both operands are the wrong way round."""
    return jnp.einsum("km,kn->mn", x, w)


def batched_first(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("bmk,kbn->bmn", x, w)


def two_sums(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("mkj,jkn->mn", x, w)


def reshaped(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w.reshape(w.shape[0], -1)


def with_users(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The matrix is read by two products and by another kernel."""
    return jax.nn.relu(x @ w), jnp.tanh(w) * (x @ (w * 2)).sum()


def after_kernel(x: jax.Array, w: jax.Array) -> jax.Array:
    """A kernel computes the right side."""
    return x @ jnp.tanh(w.astype(jnp.float32)).astype(w.dtype)


def after_product(x: jax.Array, w: jax.Array) -> jax.Array:
    """A product computes the right side of another one."""
    return x @ (x.T @ w)


def in_loop(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ w), x)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], int]] = {
    "primes": (matmul, (37, 53), (53, 29), 1),
    "one column": (matmul, (37, 53), (53, 1), 0),
    "one row": (matmul, (1, 53), (53, 31), 1),
    "one term": (matmul, (37, 1), (1, 29), 0),
    "batched": (matmul, (3, 17, 40), (3, 40, 23), 1),
    "both": (of_both, (47, 19), (47, 33), 2),
    "a batch in the middle": (batched_first, (3, 17, 20), (20, 3, 23), 1),
    "two sums": (two_sums, (11, 6, 16), (16, 6, 23), 1),
    "reshaped": (reshaped, (19, 24), (24, 5, 7), 1),
    "several users": (with_users, (17, 48), (48, 24), 1),
    "computed": (after_kernel, (17, 48), (48, 24), 0),
    "of a product": (after_product, (17, 48), (17, 24), 2),
    "in a loop": (in_loop, (17, 32), (32, 32), 1),
}


OTHER_TYPES = [(case, dtype) for case in ("primes", "both", "batched") for dtype in ("bfloat16", "float32")]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("case", "dtype"), [*((case, "float16") for case in CASES), *OTHER_TYPES])
def test_values(case: str, dtype: str) -> None:
    """What is turned gives the numbers that it gives unturned, bit by bit."""
    fn, left, right, moves = CASES[case]
    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.standard_normal(s), dtype) for s in (left, right)]
    turned = tw.compile(fn, *args)
    plain = tw.compile(fn, *args, options=tw.Options(turned=False))
    graphs = [str(program.module("graph")) for program in (turned, plain)]
    assert graphs[0].count('kind = "move"') - graphs[1].count('kind = "move"') == moves
    assert (graphs[0] == graphs[1]) == (case in ("one column", "one term"))
    for a, b in zip(jax.tree.leaves(turned(*args)), jax.tree.leaves(plain(*args)), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))
