"""Sections whose buffers ask for more flags than a pair of pipes has events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import check, data
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from sums import ROWS, sums
from xdsl.ir import Operation

import tilewright as tw
from tilewright.dialects import make_context
from tilewright.dialects.npu import AllocOp, BarrierOp, NpuOp, Pipe
from tilewright.dialects.npu.structure import SectionOp
from tilewright.dialects.text import parse_module
from tilewright.passes.npu import reorder


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


INSTRUCTIONS = (
    "npu.load_nd %x, {0} at [0] {{sizes = [64]}} : (!npu.gm<64xf32>, !npu.buffer<64xf32, ub>)",
    "npu.store_nd {0}, %x at [0] {{sizes = [64]}} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)",
    "npu.store_nd {0}, %y at [0] {{sizes = [64]}} : (!npu.buffer<64xf32, ub>, !npu.gm<64xf32>)",
    "npu.vexp {0}, {1} : (!npu.buffer<64xf32, ub>, !npu.buffer<64xf32, ub>)",
    "npu.barrier",
)


@given(
    st.lists(st.tuples(st.sampled_from(INSTRUCTIONS), st.sampled_from("abc"), st.sampled_from("abc")), max_size=14),
    st.sampled_from([Pipe.MTE2, Pipe.V, Pipe.MTE3]),
)
def test_instructions_move_up_one_by_one(listed: list[tuple[str, str, str]], pipe: Pipe) -> None:
    """As if each changed places with the one before it, as long as it may."""
    body = "\n".join(text.format(f"%{a}", f"%{b}") for text, a, b in listed)
    allocs = "\n".join(f"%{name} = npu.alloc : () -> !npu.buffer<64xf32, ub>" for name in "abc")
    module = parse_module(
        make_context(),
        f"""
npu.kernel @k {{grid = [1], kind = "vector", outputs = 2, workspaces = 0}} {{
^bb0(%core: index, %x: !npu.gm<64xf32>, %y: !npu.gm<64xf32>):
  npu.section {{core = "vector", units = 1}} {{
  ^bb1(%unit: index):
    {allocs}
    {body}
  }}
}}""",
        "k.mlir",
    )
    (section,) = (op for op in module.walk() if isinstance(op, SectionOp))
    ops = list(section.body.block.ops)
    want: list[Operation] = []
    for op in ops:
        at = len(want)
        while at and isinstance(op, NpuOp) and pipe == op.PIPE and may_pass(op, want[at - 1]):
            at -= 1
        want.insert(at, op)
    assert reorder._raised(ops, pipe) == want


def may_pass(op: NpuOp, other: Operation) -> bool:
    if isinstance(other, BarrierOp | AllocOp) or not isinstance(other, NpuOp) or other.PIPE == op.PIPE:
        return False
    touched = {*op.reads(), *op.writes()}, {*other.reads(), *other.writes()}
    return not ({*op.writes()} & touched[1] or {*other.writes()} & touched[0])
