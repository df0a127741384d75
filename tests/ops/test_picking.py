"""Elements that are picked before they are computed, and single ones that are put by their positions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import FLOATS, check, data, host_ops
from tiering import covering

import tilewright as tw
from tilewright.dialects.dtypes import dtype_name
from tilewright.dialects.graph import GatherOp, ScatterOp
from tilewright.dialects.graph.interface import element_of, shape_of
from tilewright.frontends import lower_function
from tilewright.passes.forms.known_numbers import known_numbers


def ops_of(program: tw.Program, kind: type) -> list[Any]:
    return [op for op in program.module("graph").walk() if isinstance(op, kind)]


@covering(1)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (7, 501), (64, 130)])
def test_a_label_of_each_row(rows: int, columns: int, dtype: str) -> None:
    """Labels count from the end where they are negative; those outside give NaN, and no gradient."""
    x = data(dtype, (rows, columns))
    labels = jnp.asarray(np.random.default_rng(0).integers(-columns - 2, columns + 2, rows), jnp.int32)

    def picked(x: Any) -> Any:
        return jnp.take_along_axis(jax.nn.log_softmax(x.astype(jnp.float32)), labels[:, None], 1)

    program = check(picked, x, length=columns)
    (gather,) = ops_of(program, GatherOp)
    assert dtype_name(element_of(gather.x)) == dtype
    assert len(program.report().kernels) <= 5
    gradient = check(lambda x: jax.grad(lambda x: jnp.nansum(picked(x)))(x), x, length=columns)
    assert not ops_of(gradient, ScatterOp)
    assert not host_ops(gradient)


@pytest.mark.parametrize("put", ["add", "max", "set"])
def test_one_number_in_each_row(put: str) -> None:
    values, places = data("f32", (33,)), jnp.arange(33) * 5 % 12

    def fn(values: Any, places: Any) -> Any:
        rows = jnp.full((33, 12), -0.0)
        at = jax.vmap(lambda row, i, v: getattr(row.at[i], put)(v))
        return at(rows, places, values)

    assert not ops_of(check(fn, values, places), ScatterOp)


def test_rows_of_a_table_are_picked_before_they_are_converted() -> None:
    """As embeddings are: the table is not converted."""
    table, ids = data("f16", (1000, 16)), jnp.asarray([3, 999, 0, 3])
    program = check(lambda table, ids: table.astype(jnp.float32)[ids] * 2, table, ids)
    (gather,) = ops_of(program, GatherOp)
    assert shape_of(gather.x) == (1000, 16)
    assert dtype_name(element_of(gather.x)) == "f16"


EVEN: dict[str, tuple[int, ...]] = {
    "apart": (1, 3, 5),
    "backwards": (6, 4, 2, 0),
    "one": (3,),
    "one several times": (2, 2, 2),
    "each twice": (0, 0, 1, 1, 2, 2),
    "backwards, each three times": (5, 5, 5, 3, 3, 3),
    "behind the end": (5, 6, 7, 8),
}


@covering(4)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8", "i1"])
@pytest.mark.parametrize("places", EVEN)
def test_evenly_spaced_places_are_slices(places: str, dtype: str, axis: int) -> None:
    """Those that are clipped to the end follow each other evenly or do not: values are right either way."""
    x, at = data(dtype, (7, 9, 8)), np.array(EVEN[places])
    program = check(lambda x: jnp.take(x, at, axis=axis, mode="clip"), x)
    even = places != "behind the end" or axis == 1
    assert bool(ops_of(program, GatherOp)) != even


@pytest.mark.parametrize("size", [(14, 10), (21, 5), (7, 15), (3, 2), (9, 6)])
def test_resized_images(size: tuple[int, int]) -> None:
    """Arithmetic on positions says which pixels are taken; of whole factors, no gather is left."""
    x = data("f16", (2, 7, 5, 3))
    program = check(lambda x: jax.image.resize(x, (2, *size, 3), "nearest"), x)
    if all(n % m == 0 for n, m in zip(size, (7, 5), strict=True)):
        assert not ops_of(program, GatherOp)


def test_numbers_are_those_that_jax_computes() -> None:
    def of(fn: Any) -> Any:
        module = lower_function(fn, ()).module
        (returned,) = (op for op in module.walk() if op.name == "func.return")
        return known_numbers(returned.operands[0])

    functions = [
        lambda: jnp.floor((jnp.arange(50, dtype=jnp.float32) + 0.5) * (17 / 50)).astype(jnp.int32),
        lambda: jnp.flip(jnp.arange(12).reshape(3, 4).T, 1)[::2] % 5,
        lambda: jnp.where(jnp.arange(9) > 4, jnp.int8(-3), jnp.arange(9).astype(jnp.int8) * 40),
        lambda: jnp.broadcast_to(jnp.arange(3, dtype=jnp.bfloat16)[:, None] / 3, (3, 2)),
    ]
    for fn in functions:
        np.testing.assert_array_equal(of(fn), np.asarray(fn()), strict=True)
    assert of(lambda: jnp.arange(20_000)) is None
