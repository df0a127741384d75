"""Kernels of several products with open sizes: of more tiles than cores, one version for a range of sizes, and values
of JAX at its ends and between."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiering import sampled

import tilewright as tw
from tilewright.passes.forms import chained
from tilewright.passes.simplify import grouped_products
from tilewright.passes.strips import flash_backward
from tilewright.passes.templates import NoTemplate

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Such kernels are made however little there is for them."""
    monkeypatch.setattr(chained, "LEAST_BYTES", 0)
    monkeypatch.setattr(chained, "LEAST_LENGTH", 0)
    monkeypatch.setattr(chained, "LEAST_TILE", 0)
    monkeypatch.setattr(flash_backward, "LEAST_GROWTH", 0)
    monkeypatch.setattr(grouped_products, "LAUNCHES", -np.inf)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def gradient(q: Any, k: Any, v: Any, d: Any) -> Any:
    result, back = jax.vjp(attention, q, k, v)
    return (result, *back(d))


def perceptron(x: Any, w: Any, v: Any) -> Any:
    return jax.nn.gelu(x @ w) @ v


def grouped(x: Any, w: Any, sizes: Any) -> Any:
    return jax.lax.ragged_dot(x, w, sizes)


def gradient_of_grouped(x: Any, w: Any, sizes: Any, d: Any) -> Any:
    return jax.vjp(lambda x, w: grouped(x, w, sizes), x, w)[1](d)


GROUPS = 7
Shape = tuple[int | str, ...]

CASES: dict[str, tuple[Function, Sequence[Shape], Sequence[str]]] = {
    "attention": (attention, [(20, "n", 16)] * 3, ["attention_0"]),
    "gradient": (gradient, [(9, "n", 16)] * 4, ["attention_0", "chain_0", "chain_1", "chain_2"]),
    "perceptron": (perceptron, [("n", 24), (24, 80), (80, 40)], ["chain_0"]),
    "grouped": (grouped, [("n", 48), (GROUPS, 48, 40), ()], []),
    "gradient of grouped": (gradient_of_grouped, [("n", 48), (GROUPS, 48, 40), (), ("n", 40)], []),
}
"""A function, the shapes of its operands, () for the sizes of groups; and its kernels of several products."""


def operands(shapes: Sequence[Shape], rows: int) -> list[Any]:
    rng = np.random.default_rng(rows)
    ends = np.sort(rng.integers(0, rows + 1, GROUPS))
    sizes = np.diff(ends, prepend=0).astype(np.int32)

    def one(shape: Shape) -> Any:
        whole = tuple(rows if n == "n" else int(n) for n in shape)
        return jnp.asarray(rng.standard_normal(whole) / 3, jnp.float32) if whole else jnp.asarray(sizes)

    return [one(shape) for shape in shapes]


@sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_one_version_serves_a_range(name: str) -> None:
    fn, shapes, kernels = CASES[name]
    (n,) = jax.export.symbolic_shape("n", constraints=["n <= 4096"])
    given = [
        jax.ShapeDtypeStruct(tuple(n if size == "n" else size for size in shape), "float32")
        if shape
        else jax.ShapeDtypeStruct((GROUPS,), "int32")
        for shape in shapes
    ]
    program = tw.compile(fn, *given)
    assert isinstance(program, tw.DynamicProgram)
    for rows in (256, 193, 231):
        args = operands(shapes, rows)
        for got, want in zip(jax.tree.leaves(program(*args)), jax.tree.leaves(fn(*args)), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * max(1, float(jnp.abs(want).max())))
        version = program.at(n=rows)
        found = [k.name for k in version.report().kernels if k.name.startswith(("attention", "chain"))]
        assert sorted(found) == kernels
        assert ("graph.gather" in version.ir("graph")) == ("grouped" in name)  # windows of rows
    assert len(program.ranges) == 1
    assert not [str(v) for v in program.ranges.values() if isinstance(v, NoTemplate)]
