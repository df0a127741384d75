"""Convolutions in types that a chip's cube lacks, against JAX: windows that overlap, touch and lie apart."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tiering import examples

import tilewright as tw

SIZES = st.tuples(
    st.integers(1, 13),  # of the input
    st.integers(1, 4),  # of the window
    st.integers(1, 5),  # from one window to the next
    st.integers(1, 6),  # from one position of the window to the next
    st.integers(0, 2),  # padded before
    st.integers(-1, 3),  # and behind
)


def long(size: int, window: int, stride: int, dilation: int, low: int, high: int) -> int:
    """How many windows there are."""
    return (size + low + high - (window - 1) * dilation - 1) // stride + 1


@examples(40)
@given(
    st.lists(SIZES, min_size=1, max_size=2), st.sampled_from([1, 2]), st.sampled_from(["int32", "float32"])
)
def test_convolutions_are_those_of_jax(dims: list[tuple[int, ...]], groups: int, dtype: str) -> None:
    assume(all(long(*d) > 0 and d[0] + d[5] > 0 for d in dims))
    size, window, strides, dilation, low, high = zip(*dims, strict=True)
    names = "NHW"[: 1 + len(dims)] + "C", "HW"[: len(dims)] + "IO", "NC" + "HW"[: len(dims)]

    def conv(x: jax.Array, w: jax.Array) -> jax.Array:
        padding = list(zip(low, high, strict=True))
        return jax.lax.conv_general_dilated(
            x, w, strides, padding, None, dilation, names, groups, preferred_element_type=dtype
        )

    rng = np.random.default_rng(sum(map(sum, dims)))
    x = rng.integers(-4, 5, (2, *size, 2 * groups)).astype(dtype)
    w = rng.integers(-4, 5, (*window, 2, 3 * groups)).astype(dtype)
    np.testing.assert_array_equal(tw.compile(conv, x, w, target="ascend-310")(x, w), conv(x, w))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_patches_are_one_product(dtype: str) -> None:
    """As vision transformers begin with, and what its weights learn from."""

    def conv(x: jax.Array, w: jax.Array) -> Any:
        return jax.lax.conv_general_dilated(x, w, (8, 8), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def learnt(x: jax.Array, w: jax.Array, y: jax.Array) -> Any:
        return jax.vjp(lambda w: conv(x, w), w)[1](y)

    shapes = [jax.ShapeDtypeStruct(s, dtype) for s in ((2, 64, 64, 3), (8, 8, 3, 32), (2, 8, 8, 32))]
    for program in (
        tw.compile(conv, *shapes[:2], target="ascend-310"),
        tw.compile(learnt, *shapes, target="ascend-310"),
    ):
        text = program.ir("graph")
        assert text.count("graph.reduce ") == 1
        assert "graph.concat" not in text
