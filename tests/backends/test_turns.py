"""Sections that take turns: how the interpreter orders them, with and without flags, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from npu_programs import random
from tiering import sampled
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from tilewright.api.program import Program
from tilewright.backends.functions.turns import signals_of, takes_turns
from tilewright.backends.interpreter import Executable
from tilewright.dialects.base import integer, text
from tilewright.dialects.dtypes import size
from tilewright.dialects.npu import SetCrossOp, WaitCrossOp
from tilewright.dialects.npu.handing import handed_over
from tilewright.dialects.npu.structure import KernelOp, SectionOp
from tilewright.machine import Machine
from tilewright.passes.npu.check import check

ARGS = random(40, 16), random(80, 16), random(80, 24)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T, axis=-1) @ v


@pytest.fixture
def program() -> Program:
    """Five pieces of keys, over two tiles of rows on each core."""
    pins = tw.Schedule(rows=16, keys=16, cores=2)
    return tw.compile(attention, *ARGS, options=tw.Options(schedule=pins))


def kernel_of(module: ModuleOp) -> KernelOp:
    (kernel,) = (op for op in module.ops if isinstance(op, KernelOp))
    return kernel


def cross(section: SectionOp, kind: type[Operation], event: int) -> list[Operation]:
    return [
        op
        for op in section.body.walk()
        if isinstance(op, kind) and isinstance(op, SetCrossOp | WaitCrossOp) and integer(op.event) == event
    ]


def run(module: ModuleOp, memory: str) -> np.ndarray:
    return np.asarray(Executable(module, Machine.load("ascend-910b1"), memory)(*ARGS)[0])


def test_pairs_of_stores_and_loads(program: Program) -> None:
    """Scores and parts of the result come from the cube, weights go back; of each there is room for two tiles."""
    kernel = kernel_of(program.module("npu"))
    forth, back = handed_over(kernel)
    assert [text(each.writer.core) for each in forth] == ["cube", "cube"]
    assert [text(each.writer.core) for each in back] == ["vector"]
    assert takes_turns(kernel)
    assert [each.room for each in (*forth, *back)] == [2, 2, 2]


@sampled(2)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
def test_without_flags(program: Program, memory: str) -> None:
    """Before npu-synchronize, tiles themselves say who waits for whom: values are the same."""
    module = program.module("npu").clone()
    for op in list(module.walk()):
        if isinstance(op, SetCrossOp | WaitCrossOp):
            op.detach()
    kernel = kernel_of(module)
    signals = signals_of(kernel)
    assert sum(map(len, signals[0].waits.values())) > 2 and sum(s.begin.total() for s in signals) == 6
    wanted = np.asarray(program.executable(memory)(*ARGS)[0])
    np.testing.assert_array_equal(run(module, memory), wanted)
    np.testing.assert_allclose(wanted, attention(*map(jnp.asarray, ARGS)), rtol=1e-4, atol=1e-5)


@sampled(2)
@pytest.mark.parametrize("memory", ["typed", "bytes"])
def test_tiles_that_are_handed_over_in_parts(memory: str) -> None:
    """A loop that stores a tile part by part has the signals of the tile around it; values are those of whole tiles."""
    found = []
    for parts in ({"scored": 16, "columns": 16}, {}):
        pins = tw.Schedule(rows=16, keys=32, cores=2, **parts)
        program = tw.compile(attention, *ARGS, options=tw.Options(schedule=pins))
        kernel = kernel_of(program.module("npu"))
        for each in (*handed_over(kernel)[0], *handed_over(kernel)[1]):
            assert each.room == 2
            for op in (*each.stores, *each.loads):
                around = each.of_tile(op)
                assert isinstance(around, scf.ForOp) == (size(op.box_sizes) * units(op) < each.tile)
                assert isinstance(around.prev_op, WaitCrossOp) and isinstance(around.next_op, SetCrossOp)
        bare = program.module("npu").clone()
        for op in list(bare.walk()):
            if isinstance(op, SetCrossOp | WaitCrossOp):
                op.detach()
        found += [run(program.module("npu"), memory), run(bare, memory)]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def units(op: Operation) -> int:
    """The units of the section around an op."""
    while not isinstance(op, SectionOp):
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return integer(op.units)


def dropped_room(kernel: KernelOp) -> None:
    """The vector cores no longer say that a score was read."""
    for op in cross(kernel.sections()[1], SetCrossOp, 1):
        op.detach()


def fewer_rounds(kernel: KernelOp) -> None:
    """The cube has one round less than the vector cores."""
    loop = next(
        op for op in kernel.sections()[0].body.walk() if isinstance(op, scf.ForOp) and cross_in(op)
    )
    bound = loop.ub.owner
    assert isinstance(bound, Operation)
    fewer = bound.clone()
    value = fewer.properties["value"]
    assert isinstance(value, IntegerAttr)
    fewer.properties["value"] = IntegerAttr(value.value.data + 1, value.type)
    assert loop.parent is not None
    loop.parent.insert_op_before(fewer, loop)
    loop.operands[1] = fewer.results[0]


def cross_in(loop: scf.ForOp) -> bool:
    return any(isinstance(op, WaitCrossOp) for op in loop.body.walk())


@pytest.mark.parametrize("memory", ["typed", "bytes"])
@pytest.mark.parametrize(
    ("fault", "refusal"),
    [
        (dropped_room, "there is no order for both|more signals than are raised"),
        (fewer_rounds, "another number of iterations"),
    ],
)
def test_faults(program: Program, fault: Callable[[KernelOp], None], refusal: str, memory: str) -> None:
    """What has no order is an error of the interpreter, and npu-check finds it."""
    module = program.module("npu").clone()
    fault(kernel_of(module))
    with pytest.raises(VerifyException, match=refusal):
        run(module, memory)
    assert check(module, Machine.load("ascend-910b1"))


def test_waits_of_two_pipes_for_one_event(program: Program) -> None:
    """Whichever comes first takes the signal that the other needs: it may get stuck."""
    module = program.module("npu").clone()
    cube = kernel_of(module).sections()[0]
    first, *_ = cross(cube, WaitCrossOp, 3)
    first.properties["target"] = StringAttr("M")
    found = check(module, Machine.load("ascend-910b1"))
    assert any(f.kind == "deadlock" and "on two pipes" in str(f) for f in found)
