"""The host program of the npu level as steps: which ops are compiled together, and what each step reads and writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import numpy as np
from jax import Array, lax
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects import npu as ops
from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import structure
from ...dialects.npu.host_program import DeviceTensorOp, HostProgramOp, HostVisitor, R
from ...dialects.npu.streams import Command
from ...machine import Machine
from ..functions.scope import traced
from .commands import COMMANDS, host_call
from .graph import Env, GraphRunner, main_of
from .launch import BoundTensor, LaunchBinding, trace_kernel
from .open_boxes import room
from .state import State, on_host, read_view, storage, write_view

Carry = tuple[Array, list[Array], list[Array]]
"""What a compiled loop carries: its rounds so far, the tensors it writes, its numbers."""


class HostProgram:
    """The symbols of a module and the root of every device value in `@main`."""

    def __init__(self, module: ModuleOp, machine: Machine | None, symbols: Sequence[str] = ()):
        """symbols: the open sizes of the module, by name."""
        self.machine, self.symbols = machine, tuple(symbols)
        self.kernels: dict[str, structure.KernelOp] = {}
        self.functions: dict[str, func.FuncOp] = {}
        self._reached: dict[str, tuple[set[SSAValue], bool]] = {}
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                self.functions[text(op.sym_name)] = op
            if isinstance(op, structure.KernelOp):
                self.kernels[text(op.sym_name)] = op
        self.main = main_of(module)
        self.block = self.main.body.block
        self.roots: dict[SSAValue, SSAValue] = {}
        for function in self.functions.values():
            self._find_roots(function.body.block)

    def ops(self) -> Iterator[Operation]:
        """All ops of the host program."""
        for function in self.functions.values():
            yield from function.walk()

    def function(self, op: structure.CallOp) -> Block:
        """The block that a call runs. Raises VerifyException."""
        name = op.callee.root_reference.data
        if name not in self.functions:
            raise VerifyException(f"{describe(op)} calls @{name}, which does not exist")
        return self.functions[name].body.block

    def reached(self, op: structure.CallOp) -> tuple[set[SSAValue], bool]:
        """The tensors of the functions that a call runs (not the caller's), and whether one of them calls the host."""
        name = op.callee.root_reference.data
        if name not in self._reached:
            roots: set[SSAValue] = set()
            host = False
            for inner in self.function(op).walk():
                roots.update(r for r in inner.results if r in self.roots)
                host |= isinstance(inner, Command) and inner.on_host
                if isinstance(inner, structure.CallOp):
                    more, also = self.reached(inner)
                    roots |= more
                    host |= also
            self._reached[name] = ({self.root(r) for r in roots} - set(self.function(op).args), host)
        return self._reached[name]

    def _find_roots(self, block: Block) -> None:
        for arg in block.args:
            self.roots.setdefault(arg, arg)
        for op in block.ops:
            for r in op.results:
                self.roots[r] = self.roots[op.operands[0]] if isinstance(op, ops.ViewOp) else r
            for region in op.regions if not isinstance(op, structure.ScalarsOp) else ():
                if isinstance(op, structure.LoopOp):  # without arguments, a region names the state itself
                    for arg, state in zip(op.state_args(region.block), op.state, strict=False):
                        self.roots[arg] = self.roots[state]
                self._find_roots(region.block)

    def root(self, value: SSAValue) -> SSAValue:
        return self.roots[value]

    def callee(self, op: structure.LaunchOp) -> structure.KernelOp:
        name = op.callee.root_reference.data
        if name not in self.kernels:
            raise VerifyException(f"{describe(op)} calls @{name}, which does not exist")
        return self.kernels[name]

    def size(self, ops: Iterable[Operation]) -> int:
        """How many ops there are in these and in the kernels that they launch."""
        count = 0
        for op in ops:
            for inner in op.walk():
                count += 1 + (self.size([self.callee(inner)]) if isinstance(inner, structure.LaunchOp) else 0)
        return count

    # -- effects -------------------------------------------------------------------------------------------

    def writes(self, op: Operation) -> set[SSAValue]:
        """Roots that an op or the ops inside it write."""
        out: set[SSAValue] = set()
        for inner in op.walk():
            out.update(self.root(v) for v in written_values(inner) if v in self.roots)
        return out

    def touches(self, op: Operation) -> set[SSAValue]:
        """Roots that an op or the ops inside it use in any way."""
        out: set[SSAValue] = set()
        for inner in op.walk():
            if not isinstance(inner, ops.ViewOp):
                out.update(self.root(v) for v in inner.operands if v in self.roots)
        return out

    def local(self, region_of: Operation) -> set[SSAValue]:
        """Roots that are made by an op or inside its regions: allocations, constants, numbers of the host."""
        made = (
            r for op in region_of.walk() for r in op.results if isinstance(op, DeviceTensorOp) or on_host(r)
        )
        calls = (op for op in region_of.walk() if isinstance(op, structure.CallOp))
        return {*made, *(r for op in calls for r in self.reached(op)[0])}

    # -- launches ------------------------------------------------------------------------------------------

    def bind(
        self, op: structure.LaunchOp, defined: Callable[[SSAValue], bool]
    ) -> tuple[LaunchBinding, list[SSAValue], list[SSAValue]]:
        """How a launch binds its kernel, the roots it passes and those it returns.

        In typed memory an input that the kernel writes in place is a tensor of its own: what npu-check holds, that all
        is read before it is overwritten, makes the two the same.
        """
        written = {self.root(v) for v in op.written()}
        scratch = op.operands[len(op.operands) - integer(op.workspaces) :]
        private = {self.root(v) for v in scratch}
        inputs, typed = len(op.inputs()), self.machine is None
        keys = [(self.root(v), typed and i < inputs) for i, v in enumerate(op.operands)]
        bound = dict.fromkeys((r, apart and r in written) for r, apart in keys)
        tensors = []
        for r, apart in bound:
            type_ = storage(r)
            fresh = r in private or not defined(r)
            tensors.append(
                BoundTensor(room(type_.shape), numpy_dtype(type_.element), fresh, r in written and not apart)
            )
        number = {key: i for i, key in enumerate(bound)}
        of = tuple(number[r, apart and r in written] for r, apart in keys)
        passed = [r for (r, _), t in zip(bound, tensors, strict=True) if not t.fresh]
        returned = [r for (r, _), t in zip(bound, tensors, strict=True) if t.written]
        return LaunchBinding(of, tuple(tensors)), passed, returned

    # -- inside one compiled function ----------------------------------------------------------------------

    def run_traced(self, steps: Sequence[Operation], state: State, zero: Array) -> None:
        """Run ops that need no host, updating `state`."""
        run = _TracedRun(self, state, zero)
        for op in steps:
            run.visit(op)

    def read(self, state: State, value: SSAValue) -> Array:
        return read_view(state.get(self.root(value)), storage(value), state.sizes)

    def write(self, state: State, value: SSAValue, x: Array) -> None:
        root = self.root(value)
        state.set(root, x if on_host(root) else write_view(state.get(root), storage(value), x, state.sizes))

    def run_command(self, op: Command, state: State) -> None:
        """Runs a command that is no launch."""
        contents = [self.read(state, v) for v in (*op.reads(), *op.at_issue())]
        if isinstance(op, structure.HostCallOp):  # sizes are numbers on the host
            results = host_call(op, contents, state.sizes)
        else:
            results = COMMANDS[type(op)](op, contents)
        for v, x in zip(op.writes(), results, strict=True):
            self.write(state, v, x)

    def carried(self, op: Operation, defined: Callable[[SSAValue], bool]) -> list[SSAValue]:
        """Roots whose contents leave an op with regions: written inside and known outside, as the results of the
        function around it are to its callers."""
        local, inside, written = self.local(op), set(op.walk()), self.writes(op)
        roots = [r for r in dict.fromkeys(self.roots.values()) if r in written and r not in local]
        return [
            r for r in roots if isinstance(r, BlockArgument) or defined(r) or self._used_outside(r, inside)
        ]

    def _used_outside(self, root: SSAValue, inside: set[Operation]) -> bool:
        values = [v for v, r in self.roots.items() if r is root]
        return any(use.operation not in inside for v in values for use in v.uses)

    def enter(self, block: Block, op: structure.LoopOp, numbers: Sequence[Array], state: State) -> None:
        """Gives a region of a loop the numbers that it carries."""
        self.set_all(op.number_args(block), numbers, state)

    def leave(self, block: Block, targets: Sequence[SSAValue], state: State) -> list[Array]:
        """Copies the tensors that a region yields to `targets`; gives the numbers that it yields."""
        ends = yielded(block)
        numbers = [self.read(state, v) for v in ends[len(targets) :]]
        self.copy_values(ends[: len(targets)], targets, state)
        return numbers

    def set_all(self, values: Sequence[SSAValue], contents: Sequence[Array], state: State) -> None:
        for v, x in zip(values, contents, strict=False):
            state.set(v, x)

    def scalars(self, op: structure.ScalarsOp, state: State) -> None:
        """Runs arithmetic of the host."""
        body = op.body.block
        env: Env = dict(zip(body.args, (self.read(state, v) for v in op.inputs), strict=True))
        self.set_all(op.results, GraphRunner().block(body, env), state)

    def enter_call(self, op: structure.CallOp, state: State) -> None:
        arguments = self.function(op).args
        written = arguments[len(arguments) - integer(op.outputs) :]
        held = {written[o] for o in to_ints(op.updates)}
        empty = [arg for arg in written if arg not in held]
        state.enter(arguments, [self.root(v) for v in op.operands], empty)

    def leave_call(self, op: structure.CallOp, state: State) -> None:
        state.leave(self.function(op).args, [self.root(v) for v in op.operands], integer(op.outputs))

    def copy_values(self, sources: Sequence[SSAValue], targets: Sequence[SSAValue], state: State) -> None:
        """Copy tensors, none written before all that read it have: one after the other, in an order that allows it,
        for XLA copies a whole memory that is read after a write to it. What is in its place already stays there."""
        pairs = zip(sources, targets, strict=True)
        moves = [(v, w) for v, w in pairs if self.root(v) is not self.root(w) or storage(v) != storage(w)]
        while moves:
            readers = Counter(self.root(v) for v, _ in moves)
            free = [(v, w) for v, w in moves if readers[self.root(w)] == (self.root(v) is self.root(w))]
            for group in [[move] for move in free] or [moves]:
                contents = [self.read(state, v) for v, _ in group]
                for (_, w), x in zip(group, contents, strict=True):
                    self.write(state, w, x)
            moves = [move for move in moves if move not in free] if free else []


def written_values(op: Operation) -> Sequence[SSAValue]:
    """Device values that one op of the host program writes, and values of the host that it makes."""
    device = op.written() if isinstance(op, HostProgramOp) else ()
    return [*device, *filter(on_host, op.results)]


def yielded(block: Block) -> Sequence[SSAValue]:
    last = block.last_op
    if not isinstance(last, structure.NpuYieldOp):
        raise VerifyException("a region of the host program must end with npu.yield")
    return last.values


class ExecutingVisitor(HostVisitor[R]):
    """A visitor for which each op has to be one of the host program."""

    def foreign(self, op: Operation) -> R:
        raise VerifyException(f"{describe(op)} is not an op of a host program")


class _TracedRun(ExecutingVisitor[None]):
    """Ops that need no host, inside one compiled function: updates `state`."""

    def __init__(self, host: HostProgram, state: State, zero: Array) -> None:
        self.host, self.state, self.zero = host, state, zero

    def passive(self, op: Operation) -> None:
        pass

    def launch(self, op: structure.LaunchOp) -> None:
        signature, passed, returned = self.host.bind(op, self.state.defined)
        contents = [self.state.get(r) for r in passed]
        kernel = self.host.callee(op)
        results = trace_kernel(
            kernel, signature, self.zero, contents, self.host.machine, inside=True, sizes=self.state.sizes
        )
        for r, x in zip(returned, results, strict=True):
            self.state.set(r, x)

    def command(self, op: Command) -> None:
        self.host.run_command(op, self.state)

    def scalars(self, op: structure.ScalarsOp) -> None:
        self.host.scalars(op, self.state)

    def call(self, op: structure.CallOp) -> None:
        self.host.enter_call(op, self.state)
        self.host.run_traced(list(self.host.function(op).ops), self.state, self.zero)
        self.host.leave_call(op, self.state)

    def loop(self, op: structure.LoopOp) -> None:
        roots = self.host.carried(op, self.state.defined)
        known = self.state.sizes.value(integer(op.trip_count)) if op.trip_count is not None else None

        def go_on(carry: Carry) -> Array:
            i, saved, numbers = carry
            if known is not None:
                return lax.lt(i, traced(known))
            inner = self.state.fork(roots, saved)
            self.host.enter(op.condition.block, op, numbers, inner)
            self.host.run_traced(list(op.condition.block.ops), inner, self.zero)
            (answer,) = yielded(op.condition.block)
            return lax.reshape(self.host.read(inner, answer), ())

        def step(carry: Carry) -> Carry:
            i, saved, numbers = carry
            inner = self.state.fork(roots, saved)
            self.host.enter(op.body.block, op, numbers, inner)
            self.host.run_traced(list(op.body.block.ops), inner, self.zero)
            numbers = self.host.leave(op.body.block, op.state, inner)
            return i + np.int32(1), inner.save(roots), numbers

        start = [self.host.read(self.state, v) for v in op.numbers]
        _, saved, numbers = lax.while_loop(go_on, step, (jax.numpy.int32(0), self.state.save(roots), start))
        self.state.restore(roots, saved)
        self.host.set_all(op.results, numbers, self.state)

    def branch(self, op: structure.BranchOp) -> None:
        roots = self.host.carried(op, self.state.defined)
        start = self.state.save(roots)

        def branch(block: Block) -> Callable[[list[Array]], tuple[list[Array], list[Array]]]:
            def run(saved: list[Array]) -> tuple[list[Array], list[Array]]:
                inner = self.state.fork(roots, saved)
                self.host.run_traced(list(block.ops), inner, self.zero)
                numbers = self.host.leave(block, op.outputs, inner)
                return inner.save(roots), numbers

            return run

        index = lax.convert_element_type(lax.reshape(self.host.read(self.state, op.index), ()), np.int32)
        last = np.int32(len(op.branches) - 1)
        index = lax.select(lax.bitwise_and(lax.ge(index, np.int32(0)), lax.le(index, last)), index, last)
        saved, numbers = lax.switch(index, [branch(r.block) for r in op.branches], start)
        self.state.restore(roots, saved)
        self.host.set_all(op.results, numbers, self.state)
