"""Sections whose buffers ask for more flags than a pair of pipes has events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from jax import lax
from sums import ROWS, sums

import tilewright as tw


@pytest.mark.parametrize(("buffers", "barriers"), [(1, True), (5, False), (ROWS, False)])
def test_more_loads_than_events(tmp_path: Path, buffers: int, barriers: bool) -> None:
    """Loads into a few buffers move until their flags can be joined; those into one cannot, and wait at barriers."""
    file = tmp_path / "sums.mlir"
    file.write_text(sums(buffers, 3))
    program = tw.compile(str(file))
    assert ("npu.barrier" in program.ir("npu")) == barriers
    x = np.random.default_rng(0).standard_normal((3 * ROWS, 64)).astype(np.float32)
    want = x.reshape(3, ROWS, 64).sum(1)
    for memory in ("typed", "bytes"):
        np.testing.assert_allclose(program.executable(memory)(x)[0], want, rtol=1e-5, atol=1e-5)
    assert program.report().microseconds > 0


def test_depthwise_convolution_with_its_mean() -> None:
    """Nine positions of a window, a batch norm and the mean of the result in one kernel."""

    def fn(x: Any, w: Any, mean: Any, variance: Any, scale: Any, bias: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=24
        )
        y = jax.nn.swish((y - mean) * (lax.rsqrt(variance + 1e-5) * scale) + bias)
        return y, jnp.mean(y, (1, 2))

    x, w = data("f32", (1, 16, 16, 24)), data("f32", (3, 3, 1, 24))
    each = [data("f32", (24,), seed) for seed in range(4)]
    check(fn, x, w, each[0], jnp.abs(each[1]), *each[2:], length=64)
