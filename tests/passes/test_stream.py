"""Products of which the sums of the last tiles alone are cut: values, what is stored where, and what is chosen."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.dialects.graph.schedules import CubeSchedule, LastTiles
from tilewright.passes.errors import PassError
from tilewright.passes.reasons import reasons_asked

TARGETS = ("ascend-910b1", "ascend-310", "ascend-950pr")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "int8":
        return rng.integers(-100, 100, shape).astype(dtype)
    return np.asarray(jnp.asarray(rng.normal(size=shape) / 4).astype(dtype))


def plain(x: Any, w: Any, b: Any) -> Any:
    del b
    return x @ w


def with_columns(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.relu(x @ w + b)


def with_rows(x: Any, w: Any, b: Any) -> Any:
    """What is masked, and what stands for each row, come from the places of the whole result."""
    del b
    y = x @ w
    places = jnp.arange(y.shape[-2])[:, None] < jnp.arange(y.shape[-1])
    return jnp.where(places, y, 2 * y) * x.max(axis=-1, keepdims=True)


def transposed(x: Any, w: Any, b: Any) -> Any:
    return jnp.swapaxes(x @ w + b, -1, -2)


def two_results(x: Any, w: Any, b: Any) -> Any:
    y = x @ w
    return y + b, jnp.tanh(y)


def of_integers(x: Any, w: Any, b: Any) -> Any:
    del b
    return jnp.matmul(x, w, preferred_element_type=jnp.int32)


@given(
    sizes=st.tuples(st.integers(2, 150), st.integers(2, 200), st.integers(2, 150)),
    batch=st.sampled_from([(), (3,)]),
    fn=st.sampled_from([plain, with_columns, with_rows, transposed, two_results, of_integers]),
    dtype=st.sampled_from(["float16", "float32", "bfloat16"]),
    side=st.sampled_from("mn"),
    target=st.sampled_from(TARGETS),
    memory=st.sampled_from(["typed", "bytes"]),
    data=st.data(),
)
@settings(max_examples=20, deadline=None)
def test_values(
    sizes: tuple[int, int, int],
    batch: tuple[int, ...],
    fn: Any,
    dtype: str,
    side: str,
    target: str,
    memory: Literal["typed", "bytes"],
    data: st.DataObject,
) -> None:
    m, k, n = sizes
    dtype = "int8" if fn is of_integers else dtype
    if target == "ascend-310" and dtype != "int8":
        dtype = "float16"  # the one that its cube multiplies
    length = data.draw(st.integers(1, (m if side == "m" else n) - 1))
    parts = data.draw(st.integers(2, min(k, 9)))
    rng = np.random.default_rng(m)
    args = [numbers(rng, shape, dtype) for shape in ((*batch, m, k), (*batch, k, n), (n,))]
    pin = tw.Schedule(split_k=parts, **{f"stream_{side}": length})
    options = tw.Options(schedule=pin, memory=memory)
    program = tw.compile(fn, *args, target=target, options=options)
    assert tw.verify(fn, *args, program=program).ok


def test_both_store_into_one_tensor() -> None:
    """No copy stands between the two products and the result."""
    args = [np.ones(shape, "f2") for shape in ((96, 64), (64, 32), (32,))]
    options = tw.Options(schedule=tw.Schedule(split_k=2, stream_m=32))
    program = tw.compile(with_columns, *args, options=options)
    names = [k.name for k in program.report().kernels]
    assert sorted(names) == ["contract_0", "contract_1", "contract_part_reduce_0"]
    assert "offset 2048" in program.ir("tile")


@pytest.mark.parametrize(
    ("shapes", "least"),
    [
        (((1280, 16384), (16384, 640)), 1.2),  # 25 tiles of 256 x 128 on 24 cores
        (((640, 16384), (16384, 1664)), 1.15),
        (((256, 3072), (3072, 768)), 1.0),
    ],
)
def test_sums_are_cut_where_cores_are_idle(shapes: tuple[tuple[int, ...], ...], least: float) -> None:
    """Neither program is asked for anything; sums in parts take so many times less."""
    args = [jax.ShapeDtypeStruct(shape, "float16") for shape in shapes]
    whole, cut = (
        tw.compile(jnp.matmul, *args, target="ascend-910b1", options=tw.Options(without=out)).report().microseconds
        for out in ("stream-k", ())
    )
    assert whole >= cut * least


def test_products_that_fill_the_cores_stay_whole() -> None:
    args = [jax.ShapeDtypeStruct(shape, "float16") for shape in ((3072, 4096), (4096, 2048))]
    with reasons_asked() as reasons:
        program = tw.compile(jnp.matmul, *args, target="ascend-910b1")
    assert [k.name for k in program.report().kernels] == ["contract_0"]
    assert not any(reason.kind in ("cut", "not cut") for reason in reasons)


def test_what_was_judged_is_said() -> None:
    args = [jax.ShapeDtypeStruct(shape, "float16") for shape in ((1280, 16384), (16384, 640))]
    with reasons_asked() as reasons:
        tw.compile(jnp.matmul, *args, target="ascend-910b1")
    (said,) = [reason.why for reason in reasons if reason.kind == "cut"]
    assert "split_k=" in said and "whole sums" in said


def test_what_is_cut_is_written_in_the_schedule() -> None:
    assert LastTiles("n", 48).cut_in(3) == CubeSchedule(split_k=3, stream_n=48)
    schedule = CubeSchedule(split_k=3, stream_n=48, base_m=64)
    assert schedule.stream == LastTiles("n", 48)
    assert schedule.whole() == CubeSchedule(base_m=64)


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        (tw.Schedule(split_k=2, stream_m=96), "there are 96 of them"),
        (tw.Schedule(split_k=65, stream_m=32), "is not between 2 and the 64 of k"),
        (tw.Schedule(stream_m=32), "stream_m needs split_k"),
        (tw.Schedule(split_k=2, stream_m=32, stream_n=16), "give stream_m or stream_n"),
    ],
)
def test_refusals(pin: tw.Schedule, said: str) -> None:
    args = [np.ones(shape, "f2") for shape in ((96, 64), (64, 32))]
    with pytest.raises((PassError, tw.CompileError), match=said):
        tw.compile(jnp.matmul, *args, options=tw.Options(schedule=pin))
