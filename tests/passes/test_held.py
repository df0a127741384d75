"""What a kernel holds, counted as ops join, against counting it from nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.ir import Operation

import tilewright as tw
from tilewright.dialects.graph.interface import GraphOp
from tilewright.frontends import lower_function
from tilewright.machine import Machine
from tilewright.passes.access import is_layout
from tilewright.passes.graph.groups import Grouper
from tilewright.passes.graph.held import Held


def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
    """Values used once, twice by one op and outside; views of one tensor; broadcasts; a constant."""
    y = x * x + b
    z = (y - y.mean(-1, keepdims=True)) * w[: x.shape[1]] + w[x.shape[1] :]
    h = jnp.tanh(z.astype(jnp.float16)) * 0.5
    return h + h, y.sum(-1), x[:, ::-1] + z


def ops_and_grouper() -> tuple[list[Operation], Grouper]:
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in [(6, 40), (80,), (40,)]]
    module = lower_function(layer, shapes).module
    ops = [
        op for op in module.walk() if isinstance(op, GraphOp) and op.GROUPING in ("elementwise", "reduction")
    ]
    return ops, Grouper(Machine.load("ascend-910b1"))


def from_nothing(members: set[Operation], row: int, grouper: Grouper) -> tuple[int, int]:
    """`Held.buffers` as its docstring says it, from the members alone."""
    of, held, spread, widest = grouper.of, 0, 0, 4
    for value in {v: None for op in members for v in op.operands}:
        mine, base = of(value), of(of(value).base)
        widest = max(widest, base.width)
        held += mine.base.owner not in members and base.elements >= row and not base.splat
        spread += mine.elements >= row > base.elements and not mine.splat
    for result in (r for op in members for r in op.results):
        if any(use.operation not in members for use in result.uses):
            widest = max(widest, of(result).width)
            held += of(result).elements >= row and not of(result).splat
    return 2 * held + spread, widest


@given(st.data())
def test_counts_are_those_from_nothing(data: st.DataObject):
    ops, grouper = ops_and_grouper()
    assert len(ops) > 8 and any(is_layout(v.owner) for op in ops for v in op.operands)
    held = Held(grouper.of)
    joined: set[Operation] = set()
    for op in data.draw(st.permutations(ops)):
        row = data.draw(st.sampled_from([1, 6, 40, 240]))
        more = data.draw(st.lists(st.sampled_from(ops), max_size=4))
        assert held.buffers(row, more) == from_nothing({*joined, *more}, row, grouper)
        assert held.buffers(row, []) == from_nothing(joined, row, grouper)
        held.add(op)
        joined.add(op)
    assert held.buffers(40, []) == from_nothing(joined, 40, grouper)


@pytest.mark.parametrize("reduced", [False, True])
def test_a_long_chain_is_one_kernel(reduced: bool):
    def chain(x: jax.Array) -> jax.Array:
        y = x - x.max(-1, keepdims=True) if reduced else x
        for i in range(150):
            y = jnp.sin(y) * (i + 2.0) + x
        return y

    program = tw.compile(chain, jax.ShapeDtypeStruct((64, 256), np.float32))
    assert len(program.report().kernels) == 1
