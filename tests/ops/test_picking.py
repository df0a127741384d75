"""Elements that are picked before they are computed, and single ones that are put by their positions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import FLOATS, check, data, host_ops
from tiers import covering

import tilewright as tw
from tilewright.dialects.dtypes import dtype_name
from tilewright.dialects.graph import GatherOp, ScatterOp
from tilewright.dialects.graph.interface import element_of, shape_of


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
