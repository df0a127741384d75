"""A command of a plugin in the host program: every walker of host programs knows it by what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def

import tilewright as tw
from tilewright.backends.interpreter import Executable
from tilewright.backends.interpreter.graph import main_of
from tilewright.backends.simulator import Copy, HostCall, Transfer, simulate
from tilewright.backends.stepper import StepProgram
from tilewright.dialects.npu import GmType, structure
from tilewright.dialects.npu.streams import COPY_IN, HOST, Command, CommandCost, EventOp
from tilewright.machine import Machine
from tilewright.passes.npu.check import check
from tilewright.passes.npu.plan_memory import NpuPlanMemoryPass
from tilewright.passes.npu.schedule_host import NpuScheduleHostPass
from tilewright.verification.hostwalk import HostWalk
from tilewright.verification.structure import Cache

TARGET = "ascend-910b1"


class Negate(Command):
    """The negative of a tensor."""

    source = operand_def(GmType)
    dest = operand_def(GmType)

    def reads(self) -> Sequence[SSAValue]:
        return [self.source]

    def writes(self) -> Sequence[SSAValue]:
        return [self.dest]

    def evaluate(self, contents: Sequence[Any]) -> Sequence[Any]:
        return [-contents[0]]

    def cost(self, machine: Machine) -> CommandCost:
        return CommandCost(4096, machine.launch_microseconds(1) + 5)


@irdl_op_definition
class NegateOp(Negate):
    name = "acme.negate"


@irdl_op_definition
class NegateOnHostOp(Negate):
    STREAM: ClassVar[str] = HOST
    name = "acme.negate_on_host"


@irdl_op_definition
class NegateOnTheWayOp(Negate):
    STREAM: ClassVar[str] = COPY_IN
    name = "acme.negate_on_the_way"


KINDS = {NegateOp: Copy, NegateOnHostOp: HostCall, NegateOnTheWayOp: Transfer}
"""The ops, and what the simulator shows them as."""

X = np.linspace(-1, 1, 1024, dtype=np.float32)


def program(kind: type[Negate]) -> ModuleOp:
    """-exp(x), where the negation is the command."""
    module = tw.compile(jnp.exp, X, target=TARGET).module()
    block = main_of(module).body.block
    end = block.last_op
    assert end is not None
    between = end.operands[0]
    negated = structure.GmAllocOp.create(result_types=[between.type])
    block.insert_ops_before([negated, kind.create(operands=[between, negated.result])], end)
    end.operands[0] = negated.result
    NpuPlanMemoryPass(target=TARGET).run(module)
    NpuScheduleHostPass().run(module)
    return module


def negation(module: ModuleOp) -> Negate:
    return next(op for op in main_of(module).walk() if isinstance(op, Negate))


def events(module: ModuleOp) -> list[EventOp]:
    return [op for op in main_of(module).walk() if isinstance(op, EventOp)]


@pytest.mark.parametrize("kind", KINDS)
def test_values(kind: type[Negate]) -> None:
    module, machine = program(kind), Machine.load(TARGET)
    modes: tuple[Literal["typed", "bytes"], ...] = ("typed", "bytes")
    for memory in modes:
        (got,) = Executable(module, machine, memory)(X)
        np.testing.assert_allclose(got, -np.exp(X), rtol=1e-5)
        (walked,) = HostWalk(module, machine, Cache(), memory).run([X]).results
        np.testing.assert_array_equal(walked, got)
    np.testing.assert_array_equal(StepProgram(module, machine)(X)[0], got)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_and_time(kind: type[Negate]) -> None:
    module, machine = program(kind), Machine.load(TARGET)
    assert not check(module, machine)
    op = negation(module)
    assert op.queue == op.STREAM
    assert len(events(module)) == (0 if kind is NegateOp else 2)
    steps = [step for step, _ in simulate(module, machine).flat()]
    assert [type(step) for step in steps if step.op is op] == [KINDS[kind]]
    assert sum(step.microseconds for step in steps if step.op is op) == op.cost(machine).microseconds


def test_the_checker_asks_what_it_reads_and_writes() -> None:
    module, machine = program(NegateOnHostOp), Machine.load(TARGET)
    for op in events(module):
        op.detach()
        op.erase()
    assert {f.kind for f in check(module, machine)} == {"stream-race"}
    module = program(NegateOp)
    negation(module).detach()
    assert {f.kind for f in check(module, machine)} == {"device-uninitialised"}
