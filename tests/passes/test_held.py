"""What a kernel holds, counted as ops join, against counting it from nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.ir import Operation, SSAValue

import tilewright as tw
from tilewright.dialects.graph.interface import GraphOp
from tilewright.frontends import lower_function
from tilewright.machine import Machine
from tilewright.passes.forms.access import is_layout
from tilewright.passes.fusion.groups import Grouper
from tilewright.passes.fusion.held import Held


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


def from_nothing(members: set[Operation], row: int, domain: int, grouper: Grouper) -> tuple[float, int]:
    """`Held.buffers` as its docstring says it, from the members alone."""
    of, held, spread, widest = grouper.of, 0.0, 0.0, 4

    def part(value: SSAValue) -> float:
        return min(of(value).elements / domain, 1)

    for value in {v: None for op in members for v in op.operands}:
        mine, base = of(value), of(of(value).base)
        widest = max(widest, base.width)
        if mine.base.owner not in members and base.elements >= row and not base.splat:
            held += part(value)
        if mine.elements >= row > base.elements and not mine.splat:
            spread += part(value)
    for result in (r for op in members for r in op.results):
        if any(use.operation not in members for use in result.uses):
            widest = max(widest, of(result).width)
            if of(result).elements >= row and not of(result).splat:
                held += part(result)
    return pytest.approx(2 * held + spread, rel=1e-12), widest


@given(st.data())
def test_counts_are_those_from_nothing(data: st.DataObject):
    ops, grouper = ops_and_grouper()
    assert len(ops) > 8 and any(is_layout(v.owner) for op in ops for v in op.operands)
    held = Held(grouper.of)
    joined: set[Operation] = set()
    places = st.integers(0, len(ops) - 1)  # not ops: each that is drawn is printed, with its module, where a test fails
    for op in (ops[i] for i in data.draw(st.permutations(range(len(ops))))):
        row, domain = data.draw(st.sampled_from([1, 6, 40, 240])), data.draw(st.sampled_from([1, 6, 240, 480]))
        more = [ops[i] for i in data.draw(st.lists(places, max_size=4))]
        assert held.buffers(row, domain, more) == from_nothing({*joined, *more}, row, domain, grouper)
        assert held.buffers(row, domain, []) == from_nothing(joined, row, domain, grouper)
        held.add(op)
        joined.add(op)
    assert held.buffers(40, 240, []) == from_nothing(joined, 40, 240, grouper)


@pytest.mark.parametrize("reduced", [False, True])
def test_a_long_chain_is_one_kernel(reduced: bool):
    def chain(x: jax.Array) -> jax.Array:
        y = x - x.max(-1, keepdims=True) if reduced else x
        for i in range(150):
            y = jnp.sin(y) * (i + 2.0) + x
        return y

    program = tw.compile(chain, jax.ShapeDtypeStruct((64, 256), np.float32))
    assert len(program.report().kernels) == 1
