"""Runs a module of the npu level launch by launch, and holds each against the launch it came from.

Typed memory has an array per tensor. Bytes memory has addressed buffers on chip; once npu-plan-memory has run also
one arena for the device, so that two tensors at one address spoil each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ..backends.functions.scope import RunTimeSizes
from ..backends.interpreter.arena import placed
from ..backends.interpreter.commands import COMMANDS
from ..backends.interpreter.hostprogram import (
    ExecutingVisitor,
    HostProgram,
    yielded,
)
from ..backends.interpreter.launch import LaunchBinding
from ..backends.interpreter.state import State, TypedState, given, held, on_host, storage
from ..dialects.base import integer
from ..dialects.dtypes import numpy_dtype, size
from ..dialects.npu import structure as npu
from ..dialects.npu.host_program import DeviceTensorOp
from ..dialects.npu.interface import gm
from ..dialects.npu.places import arena_of
from ..dialects.npu.streams import Command
from ..machine import Machine
from .compare import WRONG, compare
from .kernels import run_npu_kernel
from .structure import Cache, structure
from .walk import LaunchRun, Path, Trace, WrongValue

Memory = Literal["typed", "bytes"]


class HostArena:
    """Device memory as bytes on the host: reads and writes whole tensors at their addresses. No sizes are open."""

    def __init__(self, host: HostProgram):
        self.address, size = placed(host)
        self.bytes = np.zeros(size, np.uint8)
        self.sizes, self.code = RunTimeSizes(), {}

    def enter(self, arguments: Sequence[SSAValue], roots: Sequence[SSAValue], outputs: int) -> None:
        self.address.update(zip(arguments, (self.address[r] for r in roots), strict=True))

    def leave(self, arguments: Sequence[SSAValue], roots: Sequence[SSAValue], outputs: int) -> None:
        pass  # it wrote there itself

    def defined(self, root: SSAValue) -> bool:
        return True

    def get(self, root: SSAValue) -> Any:
        """The tensor's contents, as a view that later writes change."""
        first, kind = self.address[root], storage(root)
        if first < 0 or first + kind.bytes > self.bytes.size:
            raise VerifyException(f"{kind} at byte {first} lies outside the arena of {self.bytes.size} bytes")
        dtype = numpy_dtype(kind.element)
        return self.bytes[first : first + kind.bytes].view(dtype).reshape(kind.shape)

    def set(self, root: SSAValue, x: Any) -> None:
        first = self.address[root]
        raw = np.ascontiguousarray(np.asarray(x)).reshape(-1).view(np.uint8)
        if first < 0 or first + raw.size > self.bytes.size:
            raise VerifyException(
                f"{gm(root)} at byte {first} lies outside the arena of {self.bytes.size} bytes"
            )
        self.bytes[first : first + raw.size] = raw


@dataclass(frozen=True)
class BoundKernel:
    """A launch's kernel: its key, and the tensors that go in and come out."""

    key: Hashable
    signature: LaunchBinding
    passed: list[SSAValue]
    returned: list[SSAValue]


class HostWalk(ExecutingVisitor[None]):
    """One run of a module of the npu level. golden: the run of the level or pass before; exact values are
    expected, since nothing below the tile level changes arithmetic."""

    def __init__(
        self,
        module: ModuleOp,
        machine: Machine,
        cache: Cache,
        memory: Memory,
        golden: Trace | None = None,
        once: bool = False,
    ):
        self.host = HostProgram(module, machine if memory == "bytes" else None)
        self.machine = machine if memory == "bytes" else None
        self.chip = machine
        self.cache, self.golden, self.memory, self.once = cache, golden, memory, once
        self.structures: dict[npu.KernelOp, int] = {}
        self.judged: set[Any] = set()
        """Kernels, with how they are bound, that gave the right bits once."""
        self.trace = Trace()
        planned = arena_of(self.host.main) is not None
        self.arena = HostArena(self.host) if memory == "bytes" and planned else None
        self.state: Any = self.arena or TypedState({})
        self.numbers = TypedState({})
        """What the host has in its own memory."""
        self.fresh: set[SSAValue] = set()
        """Tensors of the arena that nothing was written to since they were made."""
        self.cleared: set[SSAValue] = set()
        """Tensors of the arena that were set to zeros for the launch at hand."""
        self.path: Path = ()
        self.lost = False
        """The launches no longer correspond to the golden ones: nothing further is compared."""

    def run(self, inputs: Sequence[Any]) -> Trace:
        """Runs @main on flat arrays."""
        with jax.enable_x64(True):
            for arg, x in zip(self.host.block.args, inputs, strict=True):
                self.state.set(arg, held(x))
            for op in self.host.ops():
                if isinstance(op, npu.GmConstantOp):
                    self.state.set(op.result, held(op.value.data.array()))
            self.block(self.host.block, ())
            end = self.host.block.last_op
            assert isinstance(end, func.ReturnOp)
            self.trace.results = [np.array(given(self.read(v), v)) for v in end.operands]
        if self.golden is not None:
            missing = len(self.golden.launches) - len(self.trace.launches)
            if missing > 0 and not self.lost:
                name = self.golden.launches[len(self.trace.launches)].kernel
                self._odd(end, f"{missing} launches are missing, the first of @{name}", None)
            for i, (x, want) in enumerate(zip(self.trace.results, self.golden.results, strict=False)):
                self.trace.judge(WrongValue(end, i, (), compare(x, want, bits=True)), x.size)
        return self.trace

    def read(self, value: SSAValue) -> Any:
        if on_host(value):
            return self.numbers.get(value)
        kind, whole = storage(value), self.state.get(self.host.root(value))
        if kind.dense and whole.size == size(kind.shape):
            return whole if whole.shape == kind.shape else whole.reshape(kind.shape)
        return self.host.read(self._as_state(), value)

    def write(self, value: SSAValue, x: Any) -> None:
        self.fresh.discard(self.host.root(value))
        self.host.write(self._as_state(), value, x)

    def _as_state(self) -> State:
        return self.state

    def block(self, block: Block, path: Path) -> None:
        outer, self.path = self.path, path
        for op in block.ops:
            self.visit(op)
        self.path = outer

    def passive(self, op: Operation) -> None:
        pass

    def tensor(self, op: DeviceTensorOp) -> None:
        if isinstance(op, npu.GmAllocOp):
            if self.arena is None:
                self.state.drop([op.result])
            else:
                self.fresh.add(op.result)

    def launch(self, op: npu.LaunchOp) -> None:
        self._clear(op)
        self._launch(op, self.path)

    def command(self, op: Command) -> None:
        contents = [
            self.read(v) if on_host(v) else jax.numpy.array(self.read(v)) for v in (*op.reads(), *op.at_issue())
        ]
        for v, x in zip(op.writes(), COMMANDS[type(op)](op, contents), strict=True):
            if on_host(v):
                self.numbers.set(v, x)
            else:
                self.write(v, x)

    def call(self, op: npu.CallOp) -> None:
        self.host.enter_call(op, self.state)
        self.block(self.host.function(op), self.path)
        self.host.leave_call(op, self.state)
        self.fresh -= {self.host.root(v) for v in op.written()}

    def scalars(self, op: npu.ScalarsOp) -> None:
        self.host.scalars(op, self.numbers)

    def branch(self, op: npu.BranchOp) -> None:
        index = int(np.asarray(self.read(op.index)).reshape(()))
        region = op.branches[index if 0 <= index < len(op.branches) else -1]
        self.block(region.block, self.path)
        self._set(op.results, self._leave_block(region.block, op.outputs))

    def _copy_values(self, sources: Sequence[SSAValue], targets: Sequence[SSAValue]) -> None:
        contents = [jax.numpy.array(self.read(v)) for v in sources]
        for v, x in zip(targets, contents, strict=True):
            self.write(v, x)

    def _leave_block(self, block: Block, targets: Sequence[SSAValue]) -> list[Any]:
        """Copies the tensors that a region yields to `targets`; gives the numbers that it yields."""
        ends = yielded(block)
        numbers = [self.read(v) for v in ends[len(targets) :]]
        self._copy_values(ends[: len(targets)], targets)
        return numbers

    def _set(self, values: Sequence[SSAValue], contents: Sequence[Any]) -> None:
        for v, x in zip(values, contents, strict=False):
            self.numbers.set(v, x)

    def loop(self, op: npu.LoopOp) -> None:
        path = self.path
        known = None if op.trip_count is None else integer(op.trip_count)
        numbers, trip = [self.read(v) for v in op.numbers], 0
        while True:
            if known is None:
                self._set(op.number_args(op.condition.block), numbers)
                self.block(op.condition.block, path)
                (answer,) = yielded(op.condition.block)
                go_on = bool(np.asarray(self.read(answer)).reshape(()))
            else:
                go_on = trip < known
            if not go_on:
                self._set(op.results, numbers)
                return
            self._set(op.number_args(op.body.block), numbers)
            self.block(op.body.block, (*path, ("loop", trip)))
            numbers = self._leave_block(op.body.block, op.state)
            trip += 1

    # -- launches ------------------------------------------------------------------------------------------

    def _clear(self, op: npu.LaunchOp) -> None:
        """Zeros in tensors of an arena that nothing was written to since they were made: what a kernel leaves out, as
        the first part of a concatenation does the others, is then what it is at the tile level."""
        self.cleared = self.fresh.intersection(self.host.root(v) for v in op.written())
        for root in self.cleared:
            kind = storage(root)
            self.state.set(root, np.zeros(kind.shape, numpy_dtype(kind.element)))
        self.fresh -= self.cleared

    def _launch(self, op: npu.LaunchOp, path: Path) -> None:
        number = len(self.trace.launches)
        name = op.callee.root_reference.data
        inputs = [self.read(v) for v in op.inputs()]
        golden = self._counterpart(op, number, name)
        starts = {i: self.read(op.written()[i]) for i in golden.starts} if golden is not None else {}
        over = {self.host.root(v) for v in op.inputs()} & {self.host.root(v) for v in op.written()}
        if self.arena is not None and (golden is None or over):
            inputs = [x.copy() for x in inputs]
        record = LaunchRun(op, name, path, inputs, starts, [], lambda: record.outputs)
        self.trace.launches.append(record)
        same = golden is not None and self._judge_inputs(op, number, record, golden)
        settled = same and golden is not None and self._settled(op, golden)
        bound = self._bind(op)
        known = settled and golden is not None and bound.key in golden.right
        if golden is not None and (known or (self.once and bound.key in self.judged)):
            self._leave(op, golden.outputs)
            record.outputs = golden.outputs
            self.trace.proven += 1
            self.trace.numbers += sum(int(np.size(x)) for x in golden.outputs)
            return
        self._execute(op, bound)
        outputs = [self.read(v) for v in op.written()]
        if self.arena is not None:
            outputs = [x.copy() for x in outputs]
        if golden is not None:
            before = len(self.trace.findings)
            for i, (x, want) in enumerate(zip(outputs, golden.own(), strict=True)):
                want = np.asarray(want).reshape(x.shape)
                self.trace.judge(WrongValue(op, i, path, compare(x, want, bits=True), number), x.size)
            if len(self.trace.findings) == before:
                self.judged.add(bound.key)
                if settled:
                    golden.right.add(bound.key)
            self._leave(op, golden.outputs)
            outputs = golden.outputs
        record.outputs = outputs

    def _leave(self, op: npu.LaunchOp, outputs: Sequence[Any]) -> None:
        """Golden contents for the tensors that a launch writes."""
        for v, want in zip(op.written(), outputs, strict=True):
            shape = gm(v).shape
            self.write(v, want if want.shape == shape else jax.numpy.asarray(want).reshape(shape))

    def _counterpart(self, op: npu.LaunchOp, number: int, name: str) -> LaunchRun | None:
        if self.golden is None or self.lost:
            return None
        if number >= len(self.golden.launches):
            self._odd(op, f"@{name} is launched once more than before", number)
            return None
        found = self.golden.launches[number]
        if found.kernel != name or len(found.outputs) != len(op.written()):
            self._odd(op, f"@{name} is launched where @{found.kernel} is expected", number)
            return None
        return found

    def _odd(self, op: Operation, problem: str, number: int | None) -> None:
        self.lost = True
        self.trace.judge(WrongValue(op, 0, (), WRONG, number, problem), 0)

    def _settled(self, op: npu.LaunchOp, golden: LaunchRun) -> bool:
        """Whether all that a kernel can see is in its inputs: no scratch memory that others left something in, and
        outputs that start as zeros or as the golden ones do."""
        if integer(op.workspaces) and self.arena is not None:
            return False
        for i, v in enumerate(op.written()):
            root = self.host.root(v)
            whole = storage(v).dense and size(storage(v).shape) == size(storage(root).shape)
            zeros = root in self.cleared if self.arena is not None else not self.state.defined(root)
            if not (zeros or (i in golden.starts and whole)):
                return False
        return True

    def _judge_inputs(self, op: npu.LaunchOp, number: int, record: LaunchRun, golden: LaunchRun) -> bool:
        """What a launch reads must be what it read before; a mismatch is the host program's, not the kernel's. Returns
        whether all of it is."""
        before = len(self.trace.findings)
        pairs = list(zip(record.inputs, golden.inputs, strict=False))
        places = [f"operand {j}" for j in range(len(pairs))]
        for i, x in record.starts.items():
            pairs.append((x, golden.starts[i]))
            places.append(f"the tensor it updates as output {i}")
        for (x, want), place in zip(pairs, places, strict=True):
            if x is want:
                continue
            shaped = np.asarray(want)
            shaped = shaped.reshape(np.shape(x)) if shaped.size == np.size(x) else shaped
            difference = compare(x, shaped, bits=True)
            problem = f"{place} of the launch of @{record.kernel} holds other values than before"
            self.trace.judge(WrongValue(op, -1, record.path, difference, number, problem), np.size(x))
        return len(self.trace.findings) == before

    def _bind(self, op: npu.LaunchOp) -> BoundKernel:
        # bytes memory has no fresh tensors: what a kernel does not write keeps what was there
        typed = self.machine is None
        defined = (lambda r: on_host(r) or self.state.defined(r)) if typed else lambda _: True
        signature, passed, returned = self.host.bind(op, defined)
        kernel = self.host.callee(op)
        if kernel not in self.structures:
            # typed memory has neither addresses nor flags
            self.structures[kernel] = self.cache.number(structure(kernel, self.machine is not None))
        return BoundKernel(
            ("npu", self.memory, self.structures[kernel], signature), signature, passed, returned
        )

    def _execute(self, op: npu.LaunchOp, bound: BoundKernel) -> None:
        contents: list[Any] = [(self.numbers if on_host(r) else self.state).get(r) for r in bound.passed]
        given = (self.host.callee(op), self.chip, self.machine is not None, bound.signature, contents)
        for r, x in zip(bound.returned, run_npu_kernel(self.cache, bound.key, *given), strict=True):
            self.state.set(r, x)
