"""Executes a module of the npu level: Python walks the host program, XLA runs the segments between host calls."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax import Array
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import structure
from ...dialects.npu.host_program import DeviceTensorOp, is_passive
from ...dialects.npu.interface import gm
from ...dialects.npu.streams import Command
from ...dialects.open_sizes import assuming
from ...dialects.sizes import Constraint, Sizes
from ...machine import Machine
from ...support.collector import collector_paused
from ..functions.scope import RunTimeSizes
from ..functions.values import on_device, plain
from .arena import Arena
from .graph import needs_host
from .hostprogram import ExecutingVisitor, HostProgram, yielded
from .launch import ZERO, CompiledKernel, is_heavy
from .segments import Segment
from .state import ArenaState, State, TypedState, given, held, on_host, seated, storage, unseated

COMPILERS = ThreadPoolExecutor((os.cpu_count() or 1) + 1, thread_name_prefix="tilewright-compiler")
"""Has XLA compile kernels. It releases the interpreter lock, and leaves much of the work to threads of its own: one
more than there are processors keeps all of them busy."""

SEGMENT_LAUNCHES = 8
"""From this many launches on, a segment ends where a kernel comes again: so the layers of a network are
equal."""


@dataclass
class PythonStep:
    """One thing that Python does; `dead` are roots that nothing uses afterwards."""

    run: Callable[[State], None]
    dead: list[SSAValue] = field(default_factory=list)


class Compiler(NamedTuple):
    """lower: traces something and gives what compiles it; ops: of the host program that it is made from."""

    lower: Callable[[], Callable[[], Any]]
    ops: Sequence[Operation]


@dataclass(frozen=True)
class Compiled:
    """What was compiled, and what must hold of the open sizes where it is used."""

    constraints: tuple[Constraint, ...]
    code: Any


NO_SIZES: Sizes = {}


class Executable:
    """A module of the npu level, ready to call with the arrays of `@main`'s arguments.

    `typed` memory keeps an array per buffer; `bytes` keeps each memory space, and the device's, as addressed
    words. symbols: the open sizes of the module, by name; then `run` takes their values.
    """

    def __init__(
        self,
        module: ModuleOp,
        machine: Machine,
        memory: Literal["typed", "bytes"] = "typed",
        symbols: Sequence[str] = (),
    ):
        self.memory = memory
        self.host = HostProgram(module, machine if memory == "bytes" else None, symbols)
        self.compilers: dict[Any, Compiler] = {}
        self.compiled: dict[Any, list[Compiled]] = {}
        self._lock = threading.Lock()
        """Held while something is compiled, which other threads wait for."""
        self._ready: tuple[Sizes, Mapping[Any, Any]] | None = None
        """The sizes of the last call, and what is run for them."""
        self.arena = Arena(self.host) if memory == "bytes" else None
        self.constants: dict[SSAValue, Array] = {}
        constants = [op for op in self.host.ops() if isinstance(op, structure.GmConstantOp)]
        fixed = {op.result for op in constants}
        known = {*self.host.block.args, *fixed}
        if memory == "typed":
            with jax.enable_x64(True):
                self.constants = {op.result: held(op.value.data.array(), own=True) for op in constants}
        self.heavy: dict[structure.KernelOp, bool] = {}
        self.functions: dict[Block, list[PythonStep]] = {}
        """What Python does for functions that are called, each planned and compiled once."""
        self.fixed = fixed
        self.steps = self._plan(self.host.block, known, False)

    def compile(self, at: Sizes = NO_SIZES) -> Mapping[Any, Any]:
        """Compile everything that is not compiled yet for these sizes, the largest first: Python traces, and other
        threads have XLA compile what is traced already. What was asked of open sizes while it was traced holds for
        others, too, in most cases. Gives what is to be run for them."""
        ready = self._ready  # another thread may put there what is for other sizes
        if ready is not None and ready[0] == at:
            return ready[1]
        with self._lock:
            return self._compile(at)

    def _compile(self, at: Sizes) -> Mapping[Any, Any]:
        """What is to be run for these sizes; all that is not compiled yet is."""
        found = {key: self._found(key, at) for key in self.compilers}
        missing = [key for key, one in found.items() if one is None]
        missing.sort(key=lambda key: -self.host.size(self.compilers[key].ops))
        with collector_paused():
            waiting: list[tuple[Any, tuple[Constraint, ...], Future[Any]]] = []
            for key in missing:
                with assuming(at) as assumed:
                    compiler = self.compilers[key].lower()
                waiting.append((key, tuple(assumed.made), COMPILERS.submit(compiler)))
            for key, constraints, future in waiting:
                found[key] = one = Compiled(constraints, future.result())
                self.compiled.setdefault(key, []).append(one)
        code = {key: one.code for key, one in found.items() if one is not None}
        self._ready = dict(at), code
        return code

    def _found(self, key: Any, at: Sizes) -> Compiled | None:
        """What is compiled already and right for these sizes."""
        kept = self.compiled.get(key, ())
        return next((one for one in kept if all(c.holds(at) for c in one.constraints)), None)

    def __call__(self, *arrays: Any) -> list[Array]:
        """The results of `@main`. Raises TypeError for arguments of the wrong number, shape or dtype."""
        return self.run(arrays)

    def run(self, arrays: Sequence[Any], at: Sizes = NO_SIZES) -> list[Array]:
        """The results of `@main` where its open sizes are these. Raises TypeError as a call does."""
        code, sizes = self.compile(at), RunTimeSizes(at)
        with jax.enable_x64(True):
            args = [on_device(a) for a in arrays]
            _check_arguments(self.host.block, args, sizes)
            if self.arena is None:
                inputs = [
                    seated(held(x), storage(arg)) for arg, x in zip(self.host.block.args, args, strict=True)
                ]
                contents = self.constants | dict(zip(self.host.block.args, inputs, strict=True))
                state: State = TypedState(contents, sizes, code)
            else:
                state = self.arena.start(args, sizes, code)
            _run(self.steps, state)
            end = self.host.block.last_op
            assert isinstance(end, func.ReturnOp)
            results = [
                given(unseated(self.host.read(state, v), storage(v), sizes), v) for v in end.operands
            ]
            if self.arena is not None:
                self.arena.keep(state)
            return results

    # -- planning ------------------------------------------------------------------------------------------

    def _plan(self, block: Block, defined: set[SSAValue], inner: bool) -> list[PythonStep]:
        """The steps of a block. `defined`: roots that hold something before it; `inner`: roots from
        outside it stay."""
        defined = set(defined)
        made = (r for op in block.ops for inner in op.walk() for r in inner.results)
        own = {r for r in made if on_host(r) or isinstance(r.owner, structure.GmAllocOp)}
        ops = [op for op in block.ops if not isinstance(op, DeviceTensorOp)]
        last = {r: i for i, op in enumerate(ops) for r in self.host.touches(op)}
        last |= dict.fromkeys(self.host.touches(ops[-1]), len(ops))
        steps: list[PythonStep] = []
        for start, end in self._stretches(ops):
            lives = {r for r, at in last.items() if at >= end or (inner and r not in own)}
            part = [op for op in ops[start:end] if not is_passive(op)]
            if not part:
                continue
            step = (
                self._single(part[0], defined)
                if self._alone(part[0])
                else self._segment(part, defined, lives)
            )
            step.dead = [r for r, at in last.items() if start <= at < end and r not in lives]
            steps.append(step)
            for op in part:
                defined.update(self.host.writes(op))
        return steps

    def _stretches(self, ops: Sequence[Operation]) -> list[tuple[int, int]]:
        """The ranges of ops that become one step each."""
        cuts, launches = [0], []
        for i, op in enumerate(ops):
            alone = self._alone(op)
            callee = op.callee if isinstance(op, structure.LaunchOp) else None
            again = len(launches) >= SEGMENT_LAUNCHES and callee in launches
            if alone or again or (self.arena is not None and callee is not None and launches):
                cuts.append(i)
                launches = []
            if alone:
                cuts.append(i + 1)
            elif callee is not None:
                launches.append(callee)
        cuts.append(len(ops))
        return [(a, b) for a, b in itertools.pairwise(cuts) if a < b]

    def _alone(self, op: Operation) -> bool:
        """Whether an op is a step by itself: it needs the host, or two threads, or is compiled once for all calls."""
        return isinstance(op, structure.CallOp) or self._apart(op)

    def _apart(self, op: Operation) -> bool:
        """Whether an op cannot be part of a compiled loop."""
        return _NeedsPython(self).visit(op)

    def is_heavy(self, op: structure.LaunchOp) -> bool:
        kernel = self.host.callee(op)
        if kernel not in self.heavy:
            self.heavy[kernel] = is_heavy(kernel)
        return self.heavy[kernel]

    def _single(self, op: Operation, defined: set[SSAValue]) -> PythonStep:
        return _PythonSteps(self, defined).visit(op)

    def _segment(self, ops: Sequence[Operation], defined: set[SSAValue], lives: set[SSAValue]) -> PythonStep:
        known = frozenset(defined)
        segment = Segment(self.host, ops, known.__contains__, lives)
        if self.arena is not None:
            return self._arena_segment(segment)
        self.compilers.setdefault(segment.key, Compiler(segment.lower_typed, ops))

        def run(state: State) -> None:
            given = (plain(state.get(r)) for r in segment.inputs)
            results = state.code[segment.key](ZERO, self._numbers(state), *given)
            state.restore(segment.outputs, results)

        return PythonStep(run)

    def _arena_segment(self, segment: Segment) -> PythonStep:
        assert self.arena is not None
        words = self.arena.words
        self.compilers.setdefault(segment.key, Compiler(lambda: segment.lower_bytes(words), segment.steps))
        inputs, outputs = list(filter(on_host, segment.inputs)), list(filter(on_host, segment.outputs))

        def run(state: State) -> None:
            assert isinstance(state, ArenaState)
            first = np.array([state.address[r] for r in segment.tensors], np.int32)
            numbers = [plain(state.get(r)) for r in inputs]
            code = state.code[segment.key]
            state.restore(outputs, code(ZERO, self._numbers(state), state.words, first, *numbers))

        return PythonStep(run)

    def _numbers(self, state: State) -> list[np.int32]:
        """The values of the open sizes, as compiled functions take them."""
        return [np.int32(state.sizes.values[name]) for name in self.host.symbols]

    def heavy_launch(self, op: structure.LaunchOp, defined: set[SSAValue]) -> PythonStep:
        kernel = self.host.callee(op)
        signature, passed, returned = self.host.bind(op, defined.__contains__)
        key = (kernel.sym_name, signature)

        def lower() -> Callable[[], CompiledKernel]:
            return CompiledKernel(kernel, signature, self.host.symbols).lower()

        self.compilers.setdefault(key, Compiler(lower, [op]))

        def run(state: State) -> None:
            contents = [plain(state.get(r)) for r in passed]
            state.restore(returned, state.code[key](contents, self._numbers(state)))

        return PythonStep(run)

    def python_loop(self, op: structure.LoopOp, defined: set[SSAValue]) -> PythonStep:
        body = self._plan(op.body.block, {*defined, *op.number_args(op.body.block)}, True)
        trips = None if op.trip_count is None else integer(op.trip_count)
        # with a trip count the condition has nothing to say, and yields nothing
        known = {*defined, *op.number_args(op.condition.block)}
        condition = self._plan(op.condition.block, known, True) if trips is None else []

        def go_on(state: State, numbers: Sequence[Array], trip: int) -> bool:
            if trips is not None:
                return trip < state.sizes.value(trips)
            self.host.enter(op.condition.block, op, numbers, state)
            _run(condition, state)
            (answer,) = yielded(op.condition.block)
            return bool(self.host.read(state, answer).reshape(()))

        def run(state: State) -> None:
            numbers, trip = [self.host.read(state, v) for v in op.numbers], 0
            while go_on(state, numbers, trip):
                self.host.enter(op.body.block, op, numbers, state)
                _run(body, state)
                numbers, trip = self.host.leave(op.body.block, op.state, state), trip + 1
            self.host.set_all(op.results, numbers, state)

        return PythonStep(run)

    def python_branch(self, op: structure.BranchOp, defined: set[SSAValue]) -> PythonStep:
        branches = [(self._plan(r.block, defined, True), r.block) for r in op.branches]

        def run(state: State) -> None:
            index = int(self.host.read(state, op.index).reshape(()))
            steps, block = branches[index if 0 <= index < len(branches) else -1]
            _run(steps, state)
            self.host.set_all(op.results, self.host.leave(block, op.outputs, state), state)

        return PythonStep(run)

    def python_call(self, op: structure.CallOp) -> PythonStep:
        block = self.host.function(op)
        if block not in self.functions:
            first = len(block.args) - integer(op.outputs)
            given = [*block.args[:first], *(block.args[first + o] for o in to_ints(op.updates))]
            self.functions[block] = self._plan(block, {*self.fixed, *given}, True)
        steps = self.functions[block]

        def run(state: State) -> None:
            self.host.enter_call(op, state)
            _run(steps, state)
            self.host.leave_call(op, state)

        return PythonStep(run)


class _NeedsPython(ExecutingVisitor[bool]):
    """Whether an op cannot be part of a compiled loop."""

    def __init__(self, program: Executable) -> None:
        self.program = program

    def passive(self, op: Operation) -> bool:
        return False

    def launch(self, op: structure.LaunchOp) -> bool:
        return self.program.arena is None and self.program.is_heavy(op)

    def command(self, op: Command) -> bool:
        return op.on_host

    def call(self, op: structure.CallOp) -> bool:
        return self.program.host.reached(op)[1]

    def scalars(self, op: structure.ScalarsOp) -> bool:
        return needs_host(op)

    def loop(self, op: structure.LoopOp) -> bool:
        return any(map(self.visit, _inside(op)))

    def branch(self, op: structure.BranchOp) -> bool:
        return any(map(self.visit, _inside(op)))


class _PythonSteps(ExecutingVisitor[PythonStep]):
    """The step that an op is by itself. `defined`: roots that hold something before it."""

    def __init__(self, program: Executable, defined: set[SSAValue]) -> None:
        self.program, self.defined = program, defined

    def passive(self, op: Operation) -> PythonStep:
        raise AssertionError(f"{op.name} is not a step of its own")

    def launch(self, op: structure.LaunchOp) -> PythonStep:
        return self.program.heavy_launch(op, self.defined)

    def command(self, op: Command) -> PythonStep:
        return PythonStep(lambda state: self.program.host.run_command(op, state))

    def call(self, op: structure.CallOp) -> PythonStep:
        return self.program.python_call(op)

    def scalars(self, op: structure.ScalarsOp) -> PythonStep:
        return PythonStep(lambda state: self.program.host.scalars(op, state))

    def loop(self, op: structure.LoopOp) -> PythonStep:
        return self.program.python_loop(op, self.defined)

    def branch(self, op: structure.BranchOp) -> PythonStep:
        return self.program.python_branch(op, self.defined)


def _run(steps: Sequence[PythonStep], state: State) -> None:
    for step in steps:
        step.run(state)
        state.drop(step.dead)


def _inside(op: Operation) -> list[Operation]:
    """The ops directly inside an op's regions."""
    return [inner for region in op.regions for inner in region.block.ops]


def _check_arguments(block: Block, arrays: Sequence[Array], sizes: RunTimeSizes) -> None:
    if len(arrays) != len(block.args):
        raise TypeError(f"@main takes {len(block.args)} arrays, got {len(arrays)}")
    for i, (arg, x) in enumerate(zip(block.args, arrays, strict=True)):
        want = gm(arg)
        shape = tuple(sizes.value(n) for n in want.shape)
        if x.shape != shape or x.dtype != numpy_dtype(want.element):
            raise TypeError(f"argument {i} of @main is {want}, got {x.dtype}{list(x.shape)}")
