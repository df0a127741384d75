"""Kernels that store the parts of a concatenation where it has them."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw

MAKERS = ("product", "layer", "norm", "map", "transposed", "argument", "read twice")


def part(kind: str, x: Any, w: Any) -> Any:
    """[rows, columns] of x [rows, k] and w [k, columns]."""
    y = x @ w
    if kind == "layer":
        return jax.nn.relu(y + w[0])
    if kind == "norm":
        return y - y.mean(axis=-1, keepdims=True)
    if kind == "map":
        return jnp.tanh(x[:, :1] * w[:1])
    if kind == "transposed":
        return (w.T @ x.T).T
    return y


@given(
    kinds=st.lists(st.sampled_from(MAKERS), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 70), min_size=6, max_size=6),
    axis=st.integers(0, 1),
    dtype=st.sampled_from(["float16", "float32"]),
    memory=st.sampled_from(["typed", "bytes"]),
    target=st.sampled_from(["ascend-910b1", "ascend-950pr"]),
)
@settings(max_examples=8, deadline=None)
def test_values(
    kinds: list[str],
    sizes: list[int],
    axis: int,
    dtype: str,
    memory: Literal["typed", "bytes"],
    target: str,
) -> None:
    rng = np.random.default_rng(sizes[0])
    common, summed, *own = sizes
    args: list[np.ndarray] = []
    for i, kind in enumerate(kinds):
        rows, columns = (own[i], common) if axis == 0 else (common, own[i])
        shapes = [(rows, columns)] if kind == "argument" else [(rows, summed), (summed, columns)]
        args += [(rng.normal(size=shape) / 4).astype(dtype) for shape in shapes]

    def fn(*given: Any) -> Any:
        left, parts, more = list(given), [], []
        for kind in kinds:
            parts.append(left.pop(0) if kind == "argument" else part(kind, left.pop(0), left.pop(0)))
            more += [parts[-1]] if kind == "read twice" else []
        return jnp.concatenate(parts, axis=axis), *more

    program = tw.compile(fn, *args, target=target, options=tw.Options(memory=memory))
    assert tw.verify(fn, *args, program=program).ok


def convolutions(x: Any, w: Any, v: Any) -> Any:
    layouts = ("NHWC", "HWIO", "NHWC")
    one, two = (
        jax.nn.relu(jax.lax.conv_general_dilated(x, each, (1, 1), "SAME", dimension_numbers=layouts))
        for each in (w, v)
    )
    return jnp.concatenate([one, two], axis=-1)


@pytest.mark.parametrize("placed", [True, False])
def test_features_of_convolutions_are_not_copied(placed: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = (2, 9, 7, 32), (3, 3, 32, 24), (1, 1, 32, 40)
    args = [(rng.normal(size=shape) / 8).astype("f2") for shape in shapes]
    program = tw.compile(convolutions, *args, options=tw.Options(without=() if placed else "placed"))
    assert any(k.name.startswith("concat") for k in program.report().kernels) is not placed
    assert tw.verify(convolutions, *args, program=program).ok


def test_parts_of_one_shape_stay_one_kernel_each() -> None:
    """The same layer at two places of a tensor is two kernels, as each stores elsewhere."""
    args = [np.ones(shape, "f2") for shape in ((32, 48), (32, 48), (48, 64))]
    program = tw.compile(lambda x, y, w: jnp.concatenate([x @ w, y @ w]), *args)
    assert [k.name for k in program.report().kernels if k.name.startswith("concat")] == []
    assert np.array_equal(np.asarray(program(*args)), np.full((64, 64), 48, "f2"))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("count", [2, 3])
def test_a_part_at_several_places(axis: int, count: int) -> None:
    """A kernel stores what it makes once, so that this part is copied, and the other one is in place."""

    def fn(x: Any, w: Any) -> Any:
        y, z = jnp.outer(x[:, 0], w[0]), jnp.tanh(x @ w)
        return jnp.concatenate([y, z, *[y] * (count - 1)], axis)

    x, w = np.linspace(-1, 1, 51, dtype=np.float32).reshape(17, 3), np.eye(3, 20, dtype=np.float32)
    got = tw.compile(fn, x, w)(x, w, mode="step")
    np.testing.assert_allclose(got, np.asarray(fn(x, w)), rtol=1e-5, atol=1e-6)
