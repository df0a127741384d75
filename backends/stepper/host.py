"""Walks a host program: launches, copies, loops, branches, calls, numbers and host calls, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import numpy_dtype, shape_in
from ...dialects.graph import ConstantOp, ElementwiseOp, YieldOp
from ...dialects.graph.control import HostOp
from ...dialects.host_text import text_at
from ...dialects.module import find_main
from ...dialects.npu import GmType, ViewOp, structure
from ...dialects.npu.host_program import DeviceTensorOp, HostVisitor
from ...dialects.npu.interface import gm
from ...dialects.npu.streams import COMPUTE, PROGRAM, Command, RecordEventOp, WaitEventOp
from ..functions.host import run_text
from . import numbers
from .cores import SteppedCore
from .device import Tensor
from .launch import SteppedLaunch
from .marks import Mark
from .streams import Place, Streams, bytes_of

if TYPE_CHECKING:
    from .session import StepRun

Steps = Iterator[SteppedCore]


class Functions:
    """The symbols of a module. Raises VerifyException where it has no @main."""

    def __init__(self, module: ModuleOp) -> None:
        self.kernels: dict[str, structure.KernelOp] = {}
        self.functions: dict[str, func.FuncOp] = {}
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                self.functions[text(op.sym_name)] = op
            if isinstance(op, structure.KernelOp):
                self.kernels[text(op.sym_name)] = op
        main = find_main(module)
        if main is None:
            raise VerifyException("the module has no func.func @main")
        self.main = main

    def kernel(self, op: structure.LaunchOp) -> structure.KernelOp:
        """What a launch runs. Raises VerifyException."""
        name = op.callee.root_reference.data
        if name not in self.kernels:
            raise VerifyException(f"{describe(op)} calls @{name}, which does not exist")
        return self.kernels[name]

    def function(self, op: structure.CallOp) -> func.FuncOp:
        """What a call runs. Raises VerifyException."""
        name = op.callee.root_reference.data
        if name not in self.functions:
            raise VerifyException(f"{describe(op)} calls @{name}, which does not exist")
        return self.functions[name]

    def constants(self) -> Iterator[structure.GmConstantOp]:
        """What is in device memory before the program starts."""
        for function in self.functions.values():
            for op in function.walk():
                if isinstance(op, structure.GmConstantOp):
                    yield op


class HostRun(HostVisitor[Steps]):
    """A run of a host program. held: what each value stands for: a tensor of the device, or an array of the host."""

    def __init__(self, session: StepRun, held: Mapping[SSAValue, Tensor | np.ndarray]) -> None:
        self.session, self.device = session, session.device
        self.held: dict[SSAValue, Any] = dict(held)
        self.streams = Streams() if session.races and session.program.is_parallel else None
        """What orders the commands of the function that runs; None where they are all on one stream."""

    def block(self, block: Block) -> Steps:
        """Runs the ops of a block."""
        for op in block.ops:
            self.session.command = op
            if isinstance(op, Command) and not op.PASSIVE:
                self._ordered(op, op.queue, op.reads(), op.writes(), op.at_issue())
            yield from self.visit(op)

    def _ordered(
        self,
        op: Operation,
        queue: str | None,
        reads: Sequence[SSAValue],
        writes: Sequence[SSAValue],
        numbers_: Sequence[SSAValue] = (),
    ) -> None:
        """Checks the order of a command, which may need numbers of the program's thread. Raises Race."""
        if self.streams is not None:
            if numbers_:
                self.streams.use(op, self._places(numbers_))
            self.streams.command(op, queue, self._places(reads), self._places(writes))

    def _places(self, values: Sequence[SSAValue]) -> list[Place]:
        held = [(v, self.held.get(v)) for v in values]
        return [bytes_of(x) if isinstance(x, Tensor) else v for v, x in held]

    def record_event(self, op: RecordEventOp) -> Steps:
        if self.streams is not None:
            self.streams.record(op)
        return iter(())

    def wait_event(self, op: WaitEventOp) -> Steps:
        if self.streams is not None:
            self.streams.wait(op)
        return iter(())

    def number(self, n: int) -> int:
        return self.session.number(n)

    # -- contents ------------------------------------------------------------------------------------------

    def place(self, value: SSAValue) -> tuple[Tensor, int, tuple[int, ...], tuple[int, ...], np.dtype]:
        """(tensor, address, sizes, strides in bytes, dtype) of what a device value shows."""
        kind, tensor = gm(value), self.held[value]
        dtype = numpy_dtype(kind.element)
        width = dtype.itemsize
        sizes = tuple(map(self.number, kind.shape))
        strides = tuple(self.number(s) * width for s in kind.strides)
        return tensor, tensor.address + self.number(kind.offset) * width, sizes, strides, dtype

    def read(self, value: SSAValue, op: Operation) -> np.ndarray:
        """A copy of what a value holds. Raises StepFault."""
        if isinstance(value.type, TensorType):
            return self.held[value]
        return self.device.read(*self.place(value), op)

    def write(self, value: SSAValue, x: Any, op: Operation) -> None:
        """Puts an array where a value stands for."""
        if isinstance(value.type, TensorType):
            self.held[value] = np.asarray(x)
            return
        tensor, address, sizes, strides, dtype = self.place(value)
        x = np.asarray(x).reshape(-1)
        x = x.reshape(sizes) if x.dtype == dtype else x.view(dtype).reshape(sizes)
        self.device.write(tensor, address, x, strides, self._mark(op))
        self.session.may_have_denormals(x)

    def _mark(self, op: Operation) -> Mark:
        self.session.steps += 1
        return Mark(op, 0, None, 0, 0, self.session.steps, ())

    # -- ops -----------------------------------------------------------------------------------------------

    def passive(self, op: Operation) -> Steps:
        return iter(())

    def foreign(self, op: Operation) -> Steps:
        raise VerifyException(f"{describe(op)} is not an op of a host program")

    def view(self, op: ViewOp) -> Steps:
        self.held[op.result] = self.held[op.source]
        return iter(())

    def tensor(self, op: DeviceTensorOp) -> Steps:
        if isinstance(op, structure.GmConstantOp):
            self.held[op.result] = self.session.constants[op.result]
        else:
            self.held[op.result] = self.session.new_tensor(op.result, self.session.program.address(op.result))
        return iter(())

    def launch(self, op: structure.LaunchOp) -> Steps:
        session = self.session
        session.release_numbers()
        tensors = [self._argument(v, op) for v in op.operands]
        given = len(op.inputs())
        self._renew(tensors[given:], tensors[:given], to_ints(op.updates))
        plan = session.program.plan(session.program.functions.kernel(op), session.sizes)
        run = SteppedLaunch(session, op, plan, tensors, *session.stage_of(op))
        session.running = run
        yield from run.run()
        session.running = None

    def _renew(self, written: Sequence[Tensor], given: Sequence[Tensor], updates: Sequence[int]) -> None:
        """What tensors held that are about to be written is not theirs any more, but for `updates`, and for those that
        are read as well."""
        for i, tensor in enumerate(written):
            if i not in updates and all(tensor is not other for other in given):
                tensor.owner = self.device.new_owner()

    def _argument(self, value: SSAValue, op: Operation) -> Tensor:
        """The tensor of a launch's operand: a number travels with the launch."""
        if isinstance(value.type, GmType):
            return self.held[value]
        return self.session.number_on_device(value, self.held[value], self._mark(op))

    def command(self, op: Command) -> Steps:
        with jax.enable_x64(True):
            given = [jax.numpy.asarray(self.read(v, op)) for v in (*op.reads(), *op.at_issue())]
            made = op.evaluate(given)
        for v, x in zip(op.writes(), made, strict=True):
            self.write(v, x, op)
        return iter(())

    def copy(self, op: structure.CopyOp) -> Steps:
        self.write(op.dest, self.read(op.source, op), op)
        return iter(())

    def to_host(self, op: structure.ToHostOp) -> Steps:
        self.held[op.result] = self.read(op.source, op)
        return iter(())

    def to_device(self, op: structure.ToDeviceOp) -> Steps:
        self.write(op.dest, self.held[op.source], op)
        return iter(())

    def host_call(self, op: structure.HostCallOp) -> Steps:
        results = run_text(text_at(op.module, self.session.sizes), [self.held[v] for v in op.inputs], op)
        for v, x in zip(op.outputs, results, strict=True):
            self.held[v] = np.asarray(x)
        return iter(())

    def scalars(self, op: structure.ScalarsOp) -> Steps:
        self._ordered(op, PROGRAM, op.reads(), op.writes())
        body = op.body.block
        env: dict[SSAValue, np.ndarray] = dict(zip(body.args, (self.held[v] for v in op.inputs), strict=True))
        for inner in body.ops:
            if isinstance(inner, YieldOp):
                self.held.update(zip(op.results, (env[v] for v in inner.operands), strict=True))
            else:
                env.update(
                    zip(inner.results, scalar_results(inner, [env[v] for v in inner.operands]), strict=True)
                )
        return iter(())

    def call(self, op: structure.CallOp) -> Steps:
        function = self.session.program.functions.function(op)
        outer, streams = self.held, self.streams
        tensors = [outer[v] for v in op.operands]
        given = len(op.inputs())
        self._renew(tensors[given:], tensors[:given], to_ints(op.updates))
        self._ordered(op, COMPUTE, op.inputs(), op.written())
        self.held = dict(zip(function.body.block.args, tensors, strict=True))
        if streams is not None:
            self.streams = Streams()
            self.streams.command(op, COMPUTE, (), map(bytes_of, tensors))
        yield from self.block(function.body.block)
        if self.streams is not None:
            self.streams.finish(op)
        self.held, self.streams = outer, streams

    def loop(self, op: structure.LoopOp) -> Steps:
        self._use(op, op.at_issue())
        trips = None if op.trip_count is None else self.number(integer(op.trip_count))
        carried, done = [self.held[v] for v in op.numbers], 0
        while True:
            if trips is not None:
                if done >= trips:
                    break
            else:
                self._enter(op, op.condition.block, carried)
                yield from self.block(op.condition.block)
                (answer,) = _yielded(op.condition.block)
                self._use(op, [answer])
                if not bool(self.read(answer, op).reshape(())):
                    break
            self._enter(op, op.body.block, carried)
            yield from self.block(op.body.block)
            carried, done = self._leave(op.body.block, op.state), done + 1
        self.held.update(zip(op.results, carried, strict=True))

    def _use(self, op: Operation, values: Sequence[SSAValue]) -> None:
        """The program's thread needs numbers. Raises Race."""
        if self.streams is not None:
            self.streams.use(op, self._places(values))

    def _enter(self, op: structure.LoopOp, block: Block, carried: Sequence[np.ndarray]) -> None:
        """Gives a region of a loop its state and the numbers that it carries."""
        for arg, v in zip(op.state_args(block), op.state, strict=False):
            self.held[arg] = self.held[v]
        self.held.update(zip(op.number_args(block), carried, strict=False))

    def _leave(self, block: Block, targets: Sequence[SSAValue]) -> list[np.ndarray]:
        """Copies the tensors that a region yields to `targets`, all read before one is written; gives its numbers."""
        ends = _yielded(block)
        last = block.last_op
        moves = [
            (v, w)
            for v, w in zip(ends, targets, strict=False)
            if self.held[v] is not self.held[w] or gm(v) != gm(w)
        ]
        assert isinstance(last, structure.NpuYieldOp)
        self._use(last, last.at_issue())
        if any(self.held[v] is not self.held[w] for v, w in moves):
            self._ordered(last, last.queue, [v for v, _ in moves], [w for _, w in moves])
        contents = [self.read(v, last) for v, _ in moves]
        numbers_ = [self.read(v, last) for v in ends[len(targets) :]]
        for (_, w), x in zip(moves, contents, strict=True):
            self.write(w, x, last)
        return numbers_

    def branch(self, op: structure.BranchOp) -> Steps:
        self._use(op, op.at_issue())
        index, last = int(self.held[op.index]), len(op.branches) - 1
        block = op.branches[index if 0 <= index <= last else last].block
        yield from self.block(block)
        self.held.update(zip(op.results, self._leave(block, op.outputs), strict=True))


def _yielded(block: Block) -> Sequence[SSAValue]:
    last = block.last_op
    if not isinstance(last, structure.NpuYieldOp):
        raise VerifyException("a region of the host program must end with npu.yield")
    return last.values


def scalar_results(op: Operation, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of an op of the graph level on numbers of the host. Raises VerifyException for others."""
    kind = op.results[0].type
    assert isinstance(kind, TensorType)
    dtype = numpy_dtype(kind.element_type)
    if isinstance(op, ConstantOp):
        return [op.value.data.array()]
    if isinstance(op, ElementwiseOp):
        xs = [np.asarray(x).reshape(1) for x in operands]
        denormals = any(map(numbers.has_denormals, xs))
        return [np.asarray(numbers.apply(op.FUNCTION.name, xs, (1,), dtype, denormals)).reshape(())]
    if isinstance(op, HostOp):
        return [np.asarray(x) for x in run_text(text_at(op.module, {}), operands, op)]
    if all(isinstance(v.type, TensorType) and not shape_in(v.type) for v in (*op.operands, *op.results)):
        if len(op.operands) == 1 and operands[0].dtype == dtype:
            return [operands[0]]  # a reshape or a broadcast of a number
    raise VerifyException(f"{describe(op)} is no arithmetic on numbers of the host")
