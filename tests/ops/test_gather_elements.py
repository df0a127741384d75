"""Gathers of single elements along one dimension: what is picked on chip, and what is loaded one by one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memories import outputs
from tiering import examples

import tilewright as tw
from tilewright.dialects.npu import LoadIndirectOp, VGatherOp


def kinds(program: tw.Program) -> set[type]:
    return {type(op) for op in program.module().walk() if isinstance(op, LoadIndirectOp | VGatherOp)}


def arguments(shape: list[int], axis: int, many: int, dtype: str, index: str, seed: int = 0) -> list[np.ndarray]:
    """A table, and places along an axis of it: some are negative, some beyond its ends."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 50).astype(jnp.dtype(dtype))
    n = shape[axis]
    return [x, rng.integers(-n - 1, n + 2, [many if d == axis else e for d, e in enumerate(shape)]).astype(index)]


def compare(args: list[np.ndarray], axis: int, mode: str, target: str) -> tw.Program:
    def fn(x: Any, i: Any) -> Any:
        return jnp.take_along_axis(x, i, axis=axis, mode=mode)

    with jax.enable_x64(args[1].dtype == np.int64):
        program = tw.compile(fn, *args, target=target)
        want = np.asarray(jax.jit(fn)(*args))
        (got,) = outputs(program, args)
        np.testing.assert_array_equal(got, want)
    return program


@pytest.mark.parametrize("target", ["ascend-910b1", "ascend-310", "ascend-950pr"])
@pytest.mark.parametrize(
    ("shape", "axis", "many"),
    [([5, 37], 1, 40), ([40, 70], 0, 9), ([3, 40, 70], 1, 50), ([129], 0, 300), ([7, 3, 33], 2, 33)],
    ids=str,
)
def test_elements_are_picked_on_chip(shape: list[int], axis: int, many: int, target: str) -> None:
    program = compare(arguments(shape, axis, many, "float32", "int32"), axis, "clip", target)
    assert kinds(program) == {VGatherOp}


@pytest.mark.parametrize(
    ("shape", "axis", "many"),
    [([3, 30000], 1, 2), ([1, 100000], 1, 40), ([40, 5], 0, 60)],
    ids=["few of many", "rows that do not fit", "columns that fill no block"],
)
def test_elements_are_loaded_alone(shape: list[int], axis: int, many: int) -> None:
    args = arguments(shape, axis, many, "float16", "int32")
    assert kinds(compare(args, axis, "clip", "ascend-910b1")) == {LoadIndirectOp}


@examples(6)
@given(st.data())
def test_values_are_those_of_jax(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = [data.draw(st.sampled_from([0, 1, 2, 5, 17, 64, 131])) for _ in range(rank)]
    axis, many = data.draw(st.integers(0, rank - 1)), data.draw(st.sampled_from([0, 1, 3, 20, 150]))
    dtype = data.draw(st.sampled_from(["float32", "float16", "bfloat16", "int32", "int16", "int8", "uint8", "bool"]))
    index = data.draw(st.sampled_from(["int32", "int32", "int16", "uint8", "int64"]))
    mode = data.draw(st.sampled_from(["clip", "fill"])) if shape[axis] else "fill"
    chip = data.draw(st.sampled_from(["ascend-910b1", "ascend-310", "ascend-950pr"]))
    compare(arguments(shape, axis, many, dtype, index, data.draw(st.integers(0, 9))), axis, mode, chip)


def test_a_pinned_tile_has_whole_blocks_of_columns() -> None:
    def fn(x: Any, i: Any) -> Any:
        return jnp.take_along_axis(x, i, axis=0, mode="clip")

    args = arguments([40, 64], 0, 9, "float16", "int32")
    pinned = tw.compile(fn, *args, options=tw.Options(schedule={"gather_0": tw.Schedule(tile=(9, 32))}))
    np.testing.assert_array_equal(pinned(*args), fn(*args))
    with pytest.raises(tw.CompileError, match="a tile has whole blocks of 16 columns"):
        tw.compile(fn, *args, options=tw.Options(schedule={"gather_0": tw.Schedule(tile=(9, 24))}))
