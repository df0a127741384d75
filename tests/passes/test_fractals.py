"""Operands of products that lie in fractals: the values stay what they are, and what is brought into them is what
pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import called, prefer
from tiers import sampled

import tilewright as tw
from tilewright.dialects.base import text
from tilewright.dialects.graph import FusionOp
from tilewright.dialects.graph.interface import shape_of
from tilewright.machine import Machine
from tilewright.passes.npu.check import check as hazards
from tilewright.passes.reasons import reasons_asked

ROWS_ONLY = tw.Options(without={"transposed", "pitch", "nz", "attention"})


@pytest.fixture(scope="module", autouse=True)
def eager() -> Any:
    """Has everything in fractals that can be."""

    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, lambda layout: 10 if layout.fractal else 0)
        yield


def fractals(program: tw.Program, columns: int) -> tuple[int, int]:
    """How many tensors of a program kernels make in fractals of so many columns: those that do nothing else, and those
    that compute what they store."""
    ops = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    rank = {op: max((len(shape_of(v)) for v in op.results), default=0) for op in ops}
    made = [op for op in ops if rank[op] > 2 and shape_of(op.results[0])[-1] == columns]
    moved = sum(text(op.kind) == "move" for op in made)
    return moved, len(made) - moved


def same(fn: Callable[..., Any], args: Sequence[Any], memory: str = "typed", columns: int = 16) -> tuple[int, int]:
    """What `fractals` says of a program, which has no hazard and gives what it gives with rows, but for the lengths of
    sums."""
    options = tw.Options(memory="bytes" if memory == "bytes" else "typed", without={"attention"})
    program = tw.compile(fn, *args, options=options)
    plain = tw.compile(fn, *args, options=ROWS_ONLY)
    assert hazards(program.module("npu"), Machine.load("ascend-910b1")) == []
    for a, b in zip(jax.tree.leaves(program(*args)), jax.tree.leaves(plain(*args)), strict=True):
        got, want = np.asarray(a, np.float64), np.asarray(b, np.float64)
        off = 4 * float(jnp.finfo(b.dtype).eps) if jnp.issubdtype(b.dtype, jnp.floating) else 0
        np.testing.assert_allclose(got, want, rtol=off, atol=off * np.abs(want).max(initial=0))
    return fractals(program, columns)


def arrays(dtype: str, *shapes: tuple[int, ...]) -> list[jax.Array]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    if dtype == "int8":
        return [jnp.asarray(rng.integers(-100, 100, s), dtype) for s in shapes]
    return [jnp.asarray(rng.standard_normal(s) * 0.1, dtype) for s in shapes]


def matmul(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


def of_integers(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.dot(x, w, preferred_element_type=jnp.int32)


def batched(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("bmk,bkn->bmn", x, w)


def of_three(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("bmk,kn->bmn", x, w)


def with_itself(x: jax.Array, _: jax.Array) -> jax.Array:
    return x @ x.T


def two_layers(x: jax.Array, w: jax.Array) -> jax.Array:
    """What leaves the cube in fractals is 0 or more."""
    return jax.nn.relu(x @ w) @ w.T


def with_bias(x: jax.Array, w: jax.Array) -> jax.Array:
    """Vector cores stand between two products, with a number for each column."""
    return jax.nn.gelu(x @ w + w[0]) @ w.T


def normed(x: jax.Array, w: jax.Array) -> jax.Array:
    """Vector cores reduce rows and store what they make of them in fractals."""
    wide = x.astype(jnp.float32)
    wide = wide - wide.mean(1, keepdims=True)
    return (wide * jax.lax.rsqrt((wide * wide).mean(1, keepdims=True) + 1e-3)).astype(x.dtype) @ w


def two_readers(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One product reads both matrices of a kernel, another one of them, too."""
    h = jnp.tanh(x)
    return h @ w, (h * 2) @ w


def also_summed(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Something else reads what a product gives: it keeps its rows."""
    h = x @ w
    return h @ w.T, jnp.tanh(h)


def in_a_loop(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(jnp.tanh(y @ w) @ w.T), x)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], tuple[int, int]]] = {
    "given": (matmul, (37, 304), (304, 29), (2, 0)),
    "one row": (matmul, (1, 304), (304, 64), (1, 0)),
    "columns that are no fractals": (matmul, (37, 300), (300, 29), (0, 0)),
    "batched": (batched, (3, 17, 304), (3, 304, 23), (2, 0)),
    "of three dimensions": (of_three, (2, 19, 304), (304, 31), (2, 0)),
    "with itself": (with_itself, (40, 272), (1, 1), (1, 0)),
    "two layers": (two_layers, (65, 48), (48, 304), (1, 1)),
    "with a bias": (with_bias, (65, 48), (48, 304), (1, 1)),
    "normed": (normed, (65, 304), (304, 48), (1, 1)),
    "two readers": (two_readers, (65, 304), (304, 48), (1, 1)),
    "also summed": (also_summed, (65, 48), (48, 304), (1, 0)),
    "in a loop": (in_a_loop, (17, 304), (304, 304), (3, 1)),
}


@sampled(3)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, memory: str) -> None:
    fn, left, right, made = CASES[case]
    assert same(fn, arrays("float16", left, right), memory) == made


TYPED = [
    (case, dtype, columns)
    for case in ("given", "two layers", "normed")
    for dtype, columns in (("float32", 8), ("bfloat16", 16))
]


@pytest.mark.parametrize(("case", "dtype", "columns"), TYPED)
def test_other_types(case: str, dtype: str, columns: int) -> None:
    """A row of a fractal has 32 bytes, 8 numbers of f32."""
    fn, left, right, made = CASES[case]
    assert same(fn, arrays(dtype, left, right), columns=columns) == made


def test_integers() -> None:
    assert same(of_integers, arrays("int8", (37, 544), (544, 29)), columns=32) == (2, 0)


@settings(max_examples=8, deadline=None)
@given(
    st.integers(2, 70),
    st.integers(17, 40),
    st.integers(1, 70),
    st.sampled_from(["float16", "float32"]),
    st.booleans(),
)
def test_any_sizes(rows: int, groups: int, columns: int, dtype: str, computed: bool) -> None:
    """Any number of fractals, which no tile need divide."""
    x, w = arrays(dtype, (rows, 16 * groups), (16 * groups, columns))
    same((lambda x, w: jnp.tanh(x) @ w) if computed else matmul, [x, w])


def test_constant() -> None:
    """A constant is brought into fractals at compile time."""
    matrix = np.arange(304 * 48).reshape(304, 48).astype(np.float16) / 4096
    (x,) = arrays("float16", (1, 304))
    program = tw.compile(lambda x: x @ matrix, x)
    graph = str(program.module("graph"))
    assert "tensor<19x48x16xf16>" in graph and 'kind = "move"' not in graph
    np.testing.assert_allclose(program(x), np.asarray(x @ matrix), rtol=4e-3, atol=4e-3)


PACKED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "a layer": (lambda params, x: x @ params["w"], [(19, 48, 16)]),
    "two layers": (lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"], [(19, 304, 16), (19, 48, 16)]),
    "in a loop": (
        lambda params, x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ params["w"] @ params["v"]), x),
        [(19, 48, 16)],
    ),
    "called": (
        lambda params, x: called(called(x, params["w"], params["v"]), params["w"] * 2, params["v"] * 2),
        [(19, 48, 16)] * 2,
    ),
    "read in both orders": (lambda params, x: jnp.tanh(x @ params["w"]) @ params["w"].T, []),
}


@pytest.mark.parametrize("case", PACKED)
def test_packed(case: str) -> None:
    """Weights are brought into fractals once, where all that reads them sums over their columns."""
    fn, packed_as = PACKED[case]
    x, w, v, u = arrays("float16", (17, 304), (304, 48), (48, 304), (304, 304))
    params = {"w": u, "v": w} if case == "two layers" else {"w": w, "v": v}
    program = tw.compile(fn, params, x, options=tw.Options(weights="params", without={"pitch"}))
    plain = tw.compile(fn, params, x, options=ROWS_ONLY)
    packed = program.pack(params)
    assert [a.shape for a in packed.arrays if a.ndim == 3] == packed_as
    got, want = np.asarray(program(packed, x), np.float32), np.asarray(plain(params, x), np.float32)
    np.testing.assert_allclose(got, want, rtol=4e-3, atol=4e-3)
    np.testing.assert_array_equal(program(packed, x), program(params, x))


def test_reasons() -> None:
    """explain says what is in fractals, and what it takes."""
    with reasons_asked() as found:
        tw.compile(two_layers, *arrays("float16", (65, 48), (48, 304)), options=tw.Options(without={"attention"}))
    said = [r.why for r in found if r.kind == "in fractals"]
    assert len(said) == 2 and all("to bring into fractals it" in why for why in said)


def test_fused_cores() -> None:
    """A chip whose cores have both units reads fractals, which a kernel of its own makes."""
    args = arrays("float16", (37, 304), (304, 29))
    program = tw.compile(matmul, *args, target="ascend-310")
    assert fractals(program, 16) == (2, 0)
    np.testing.assert_allclose(program(*args), np.asarray(matmul(*args)), rtol=4e-3, atol=4e-3)


def test_off() -> None:
    args = arrays("float16", (65, 48), (48, 304))
    program = tw.compile(two_layers, *args, options=tw.Options(without={"nz", "pitch", "attention"}))
    assert fractals(program, 16) == (0, 0)


@pytest.mark.parametrize("case", ["two layers", "two readers", "in a loop"])
def test_verified(case: str) -> None:
    """verify holds what lies in fractals against the values before."""
    fn, left, right, _ = CASES[case]
    assert tw.verify(fn, *arrays("float16", left, right), options=tw.Options(without={"attention"})).ok


def test_padded_columns() -> None:
    """What a kernel loads with padding cannot be loaded by fractals of its columns: it stores rows."""

    def block(x: jax.Array, w: jax.Array, w1: jax.Array) -> jax.Array:
        shape = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=shape, feature_group_count=x.shape[-1])
        return y @ w1

    args = arrays("float32", (1, 6, 6, 64), (3, 3, 1, 64), (64, 32))
    assert same(block, args, columns=8)[1] == 0
