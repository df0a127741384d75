"""What ops say that they read and write, which xDSL's passes go by."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr, f32
from xdsl.traits import MemoryEffectKind, get_effects

import tilewright as tw
from tilewright.dialects.dtypes import tensor
from tilewright.dialects.graph import ConstantOp, Constants, DataAttr
from tilewright.dialects.npu import StoreOp


def program() -> tw.Program:
    """A cube kernel and a vector kernel behind it, with a call of the host between them."""

    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.linalg.inv(x @ w).sum(0)

    return tw.compile(fn, *[jax.ShapeDtypeStruct((16, 16), np.float32)] * 2)


@pytest.mark.parametrize("level", ["tile", "npu"])
def test_stores_read_what_they_store_and_write_where_it_goes(level: str) -> None:
    names = {"tile": ("tile.store",), "npu": ("npu.store_nd", "npu.fixpipe")}[level]
    stores = [op for op in program().module(level).walk() if op.name in names]
    assert {op.name for op in stores} == {*names}
    for op in stores:
        found = {(e.kind, e.value) for e in get_effects(op) or ()}
        assert {(MemoryEffectKind.READ, op.operands[0]), (MemoryEffectKind.WRITE, op.operands[1])} <= found
        assert (MemoryEffectKind.WRITE, op.operands[0]) not in found


def test_stores_that_accumulate_read_where_it_goes() -> None:
    for op in [op for op in program().module("npu").walk() if isinstance(op, StoreOp)]:
        op.properties["accumulate"] = StringAttr("add")
        found = {(e.kind, e.value) for e in get_effects(op) or ()}
        assert {(MemoryEffectKind.READ, v) for v in op.operands[:2]} <= found
        assert (MemoryEffectKind.WRITE, op.operands[1]) in found


def test_copies_of_the_host_program_write_what_they_copy_to() -> None:
    copies = [op for op in program().module("npu").walk() if op.name in ("npu.to_host", "npu.to_device")]
    assert copies
    for op in copies:
        found = {(e.kind, e.value) for e in get_effects(op) or ()}
        assert (MemoryEffectKind.READ, op.operands[0]) in found
        assert (MemoryEffectKind.WRITE, op.results[0] if op.results else op.operands[-1]) in found
        assert (MemoryEffectKind.WRITE, op.operands[0]) not in found


def test_a_folded_value_becomes_a_constant() -> None:
    kind = tensor([2], f32)
    value = DataAttr.of(np.zeros(2, np.float32))
    made = Constants().materialize_constant(value, kind)
    assert isinstance(made, ConstantOp) and made.value == value and made.result.type == kind
    assert Constants().materialize_constant(StringAttr("x"), kind) is None
