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

import tilewright as tw

ROWS = 12
BUFFER = "!npu.buffer<64xf32, ub>"


def sums(buffers: int, rounds: int) -> str:
    """A kernel that adds ROWS rows of each of `rounds` blocks, brought one after the other into `buffers` buffers."""
    x, y = f"!npu.gm<{rounds * ROWS}x64xf32>", f"!npu.gm<{rounds}x64xf32>"
    lines = [f"%b{i} = npu.alloc : () -> {BUFFER}" for i in range(buffers)]
    lines += [f"%s = npu.alloc : () -> {BUFFER}", f"scf.for %j = %zero to %{rounds} step %one {{"]
    lines.append(f"npu.vfill %s {{value = 0.0 : f64}} : ({BUFFER})")
    for row in range(ROWS):
        b = f"%b{row % buffers}"
        lines.append(f"npu.load_nd %x, {b} at [%j * {ROWS} + {row}, 0] {{sizes = [1, 64]}} : ({x}, {BUFFER})")
        lines.append(f"npu.vadd %s, {b}, %s : ({BUFFER}, {BUFFER}, {BUFFER})")
    lines.append(f"npu.store_nd %s, %y at [%j, 0] {{sizes = [1, 64]}} : ({BUFFER}, {y})\n}}")
    body = "\n".join(lines)
    return f"""
func.func @main(%x: {x}) -> {y} {{
  %y = npu.gm_alloc : () -> {y}
  npu.launch @k %x, %y {{outputs = 1, workspaces = 0}} : ({x}, {y})
  func.return %y : {y}
}}
npu.kernel @k {{grid = [1], kind = "vector", outputs = 1, workspaces = 0}} {{
^bb0(%i: index, %x: {x}, %y: {y}):
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %{rounds} = arith.constant {rounds} : index
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    {body}
  }}
}}
"""


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
    check(fn, x, w, each[0], jnp.abs(each[1]), *each[2:], memories=("typed", "bytes"), length=64)
