"""Products whose operands are slices of a table at places that the program computes: values of JAX in both memories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from products import EPS, assert_as_in_f32, data
from tiering import covering, sampled

import tilewright as tw
from tilewright.dialects.graph import ContractOp, FusionOp, GatherOp
from tilewright.machine import Machine
from tilewright.passes.npu.check import check as hazards
from tilewright.passes.simplify import grouped_products

CUBES = [("ascend-910b1", "f16"), ("ascend-910b1", "bf16"), ("ascend-910b1", "f32"), ("ascend-310p3", "f16")]
"""Targets, and types that their cubes multiply."""


def loaded_at_places(program: tw.Program) -> int:
    """How many slices products load at their places."""
    fusions = [op for op in program.module("graph").walk() if isinstance(op, FusionOp)]
    blocks = [[*op.body.block.ops] for op in fusions]
    return sum(
        isinstance(op, GatherOp)
        for ops in blocks
        for op in ops
        if any(isinstance(o, ContractOp) for o in ops)
    )


def check(fn: Callable[..., Any], *args: Any, slices: int, target: str = CUBES[0][0]) -> tw.Program:
    """The values of both memories are those of f32, as far as the type of the first argument says."""
    program = tw.compile(fn, *args, target=target)
    assert loaded_at_places(program) == slices
    assert hazards(program.module("npu"), Machine.load(target)) == []
    assert_as_in_f32(program, fn, args, 4)
    return program


def experts(x: Any, w: Any, i: Any) -> Any:
    return jnp.einsum("tmk,tkn->tmn", x, w.at[i].get(mode="clip"))


@covering()
@pytest.mark.parametrize(("target", "dtype"), CUBES)
@pytest.mark.parametrize(
    "sizes", [(6, 40, 96, 200), (1, 5, 7, 3), (29, 16, 130, 33), (25, 1, 300, 17)], ids=str
)
def test_a_matrix_for_each_product(target: str, dtype: str, sizes: tuple[int, ...]) -> None:
    """Places outside of the table are clamped, as JAX's are; a prime number of products is not for all cores."""
    count, rows, summed, columns = sizes
    places = np.random.default_rng(0).integers(-2, 7, count).astype(np.int32)
    arrays = data(dtype, (count, rows, summed), (5, summed, columns))
    program = check(experts, *arrays, places, slices=1, target=target)
    assert "gather_0" not in [k.name for k in program.report().kernels]


def test_what_else_a_slice_may_be() -> None:
    """Transposed, of two indices, a window of rows, both sides, one table for each row, with an epilogue."""
    x, w, b = data("f32", (6, 20, 24), (5, 40, 24), (40,))
    i = np.array([3, 0, 4, 4, 1, 2], np.int32)
    check(lambda x, w, i, b: jax.nn.relu(jnp.einsum("tmk,tnk->tmn", x, w[i]) + b), x, w, i, b, slices=1)
    (v,) = data("f32", (5, 3, 24, 17))
    check(lambda x, v, i, j: x @ v[i, j], x, v, i, i[::-1] % 3, slices=1)
    (table,) = data("f32", (90, 24))

    def windows(table: Any, w: Any, i: Any) -> Any:
        rows = jax.vmap(lambda at: jax.lax.dynamic_slice(table, (at, 0), (16, 24)))(i * 20)
        return jnp.einsum("tmk,tnk->tmn", rows, w[i])

    check(windows, table, w, i, slices=2)
    check(lambda w, x, i: jnp.einsum("tnk,tmk->tnm", w[i], x), w, x, i, slices=1)


def test_pins_and_bytes() -> None:
    """Cores that cannot share the products evenly are refused, and the table crosses HBM once at most."""
    shape = jax.ShapeDtypeStruct
    args = shape((9, 128, 512), "float16"), shape((4, 512, 512), "float16"), shape((9,), "int32")
    schedule = tw.Schedule(grid=(2, 1, 1, 1))
    with pytest.raises(
        tw.CompileError, match="9 products that begin at places of their own, which 2 cores cannot"
    ):
        tw.compile(experts, *args, options=tw.Options(schedule={"contract_0": schedule}))
    obeyed = tw.Options(schedule={"contract_0": replace(schedule, grid=(3, 1, 1, 1))})
    rows, table = 9 * 128 * 512 * 2, 4 * 512 * 512 * 2
    for program in (tw.compile(experts, *args), tw.compile(experts, *args, options=obeyed)):
        (kernel,) = [k for k in program.report().kernels if k.name == "contract_0"]
        assert kernel.cores % 3 == 0
        assert rows + table <= kernel.bytes["hbm"] < rows + table + 1000


def test_what_no_product_loads_at_its_places() -> None:
    """A part of what is summed over, behind which other numbers lie; rows that each have a place."""
    x, w = data("f32", (6, 20, 24), (5, 60, 33))
    i = np.array([3, 0, 4, 4, 1, 2], np.int32)

    def parts(x: Any, w: Any, i: Any) -> Any:
        cut = jax.vmap(lambda at: jax.lax.dynamic_slice(w, (at, 7, 0), (1, 24, 33)))(i)
        return jnp.einsum("tmk,tkn->tmn", x, cut[:, 0])

    check(parts, x, w, i, slices=0)
    rows, matrix = data("f32", (50, 24), (24, 33))
    check(lambda rows, matrix, i: rows[i] @ matrix, rows, matrix, i * 9, slices=0)


# -- groups of rows -----------------------------------------------------------------------------------------------


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are multiplied tile by tile however small they are."""
    monkeypatch.setattr(grouped_products, "LAUNCHES", -np.inf)


def ragged(x: Any, w: Any, sizes: Any) -> Any:
    return jax.lax.ragged_dot(x, w, sizes)


@covering(1)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("target", "dtype"), CUBES)
@pytest.mark.parametrize(
    ("sizes", "rows", "summed", "columns"),
    [
        ((10, 0, 33, 1, 20), 64, 40, 24),
        ((0, 0, 0), 20, 7, 5),
        ((17,) * 2, 34, 130, 300),
        ((0, 301, 0, 16), 333, 64, 17),
        ((1,) * 31, 31, 16, 16),
    ],
    ids=str,
)
def test_rows_in_groups(
    target: str, dtype: str, sizes: tuple[int, ...], rows: int, summed: int, columns: int
) -> None:
    """Empty groups, groups of parts of a tile, rows behind all groups, which are 0."""
    x, w = data(dtype, (rows, summed), (len(sizes), summed, columns))
    check(ragged, x, w, np.array(sizes, np.int32), slices=2, target=target)


@covering(6)
@pytest.mark.parametrize(("target", "dtype"), CUBES)
@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        ((16, 16, 16), 48),
        ((1, 1), 2),
        ((5, 0, 17, 3), 25),
        ((5, 7), 20),
        ((0, 0), 9),
        ((9,) * 20, 180),
        ((3, 5) * 10, 90),
    ],
    ids=str,
)
def test_known_sizes(target: str, dtype: str, sizes: tuple[int, ...], rows: int) -> None:
    """Sizes that are numbers of the program: no row is multiplied by a matrix of another group, and no gather is left,
    unless there are many groups of several sizes."""
    x, w = data(dtype, (rows, 24), (len(sizes), 24, 33))
    program = check(lambda x, w: ragged(x, w, jnp.asarray(sizes, jnp.int32)), x, w, slices=0, target=target)
    products = [op for op in program.module("graph").walk() if isinstance(op, ContractOp)]
    if len(set(sizes)) == 1 and sum(sizes) == rows:
        assert len(products) == 1
    elif len(sizes) <= 16:
        assert len(products) == sum(n > 0 for n in sizes)


def before(sizes: Any) -> Any:
    return jnp.concatenate([jnp.zeros(1, sizes.dtype), jnp.cumsum(sizes)[:-1]])


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("first", [before, lambda sizes: jnp.cumsum(sizes) - sizes], ids=["moved", "minus"])
@pytest.mark.parametrize("sizes", [(10, 0, 33, 1, 20), (0, 40)], ids=str)
def test_spellings(sizes: tuple[int, ...], first: Callable[[Any], Any], second: bool) -> None:
    """A mask of groups and rows that is repeated along the rows' numbers; rows as either operand of the product."""
    x, w = data("f32", (64, 24), (len(sizes), 24, 9))

    def masked(x: Any, w: Any, sizes: Any) -> Any:
        row = jnp.arange(len(x))
        inside = (first(sizes)[:, None] <= row) & (row < jnp.cumsum(sizes)[:, None])
        rows = jnp.where(inside[..., None], x, jnp.zeros((), x.dtype))
        sides = ((rows, (0, 2)), (w, (0, 1)))
        (lhs, left), (rhs, right) = sides[::-1] if second else sides
        return jax.lax.dot_general(lhs, rhs, ((left, right), ((), ())))

    check(masked, x, w, np.array(sizes, np.int32), slices=2)


@pytest.mark.usefixtures("always")
@given(st.lists(st.integers(0, 40), min_size=5, max_size=5))
def test_any_sizes(sizes: list[int]) -> None:
    """One program for all sizes, those of more rows than there are included: they end with the last row."""
    program, args = _program_of_groups()
    given_sizes = np.array(sizes, np.int32)
    got = np.asarray(program(*args, given_sizes))
    want = np.asarray(ragged(*args, given_sizes))
    np.testing.assert_allclose(got, want, atol=4 * EPS["f32"] * max(np.abs(want).max(), 1), rtol=0)


def _program_of_groups() -> tuple[tw.Program, list[Any]]:
    args = data("f32", (100, 24), (5, 24, 9))
    if not _KEPT:
        _KEPT.append(tw.compile(ragged, *args, np.zeros(5, np.int32)))
        assert loaded_at_places(_KEPT[0]) == 2
    return _KEPT[0], args


_KEPT: list[tw.Program] = []


@sampled(2)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("argument", "slices"), [(0, 4), (1, 2)], ids=["rows", "matrices"])
def test_gradients_are_in_tiles_too(argument: int, slices: int) -> None:
    x, w = data("f32", (70, 24), (4, 24, 40))
    sizes = np.array([20, 3, 40, 7], np.int32)

    def gradient(x: Any, w: Any, sizes: Any) -> Any:
        return jax.grad(lambda *args: (ragged(*args, sizes) ** 2).sum(), argument)(x, w)

    check(gradient, x, w, sizes, slices=slices)


@covering(1)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("target", "dtype"), CUBES)
@pytest.mark.parametrize(
    ("sizes", "rows", "left", "right"),
    [
        ((10, 0, 33, 1, 20), 64, 40, 24),
        ((0, 0, 0), 20, 7, 5),
        ((0, 301, 0, 16), 333, 17, 64),
        ((1,) * 31, 31, 16, 1),
    ],
    ids=str,
)
def test_sums_over_the_rows_of_groups(
    target: str, dtype: str, sizes: tuple[int, ...], rows: int, left: int, right: int
) -> None:
    """As the gradient of the matrices is; rows of other groups that are infinite or NaN do not count."""
    x, y = data(dtype, (rows, left), (rows, right))
    x[sum(sizes) :], y[sum(sizes) :] = np.nan, np.inf
    numbers = jax.lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])

    def sums(x: Any, y: Any, sizes: Any) -> Any:
        return jax.lax.ragged_dot_general(x, y, sizes, numbers)

    program = check(sums, x, y, np.array(sizes, np.int32), slices=0, target=target)
    assert "scatter_0" in [k.name for k in program.report().kernels]


def test_where_it_pays() -> None:
    """Few rows and matrices are one product of all with all; many are not."""
    shape = jax.ShapeDtypeStruct
    few = tw.compile(ragged, shape((64, 32), "float16"), shape((4, 32, 32), "float16"), shape((4,), "int32"))
    assert loaded_at_places(few) == 0
    many = tw.compile(
        ragged, shape((16384, 2048), "bfloat16"), shape((128, 2048, 768), "bfloat16"), shape((128,), "int32")
    )
    assert loaded_at_places(many) == 2
    # all rows by all matrices would take 128 times as many products
    assert many.report().microseconds < 2 * many.report().floor_microseconds


def test_numbers_that_are_no_groups_stay() -> None:
    """Groups that do not begin where the one before ends may have rows twice."""
    x, w = data("f32", (512, 256), (16, 256, 256))
    first = np.arange(16, dtype=np.int32) * 30

    def overlapping(x: Any, w: Any, first: Any) -> Any:
        row = jnp.arange(512)
        inside = (first[:, None] <= row) & (row < first[:, None] + 40)
        return jnp.einsum("gmk,gkn->mn", jnp.where(inside[..., None], x, 0), w)

    check(overlapping, x, w, first, slices=0)
