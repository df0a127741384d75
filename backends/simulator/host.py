"""The host program: launches in order, what L2 keeps between them, host calls, loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from xdsl.dialects import func
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, SymbolRefAttr
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import describe, integer, source_of, text, to_ints
from ...dialects.dtypes import size
from ...dialects.graph.donation import donated
from ...dialects.npu import gm, ops, structure
from ...machine import Machine
from .errors import SimulationError
from .kernel import Kernel, KernelRun
from .memory import L2, Snapshot


class OfOp:
    """What an op of the host program does."""

    op: Operation

    @property
    def source(self) -> str | None:
        """`file:line` of the user's source."""
        return source_of(self.op)


@dataclass(frozen=True)
class Launch(OfOp):
    """One launch of a kernel; `op` is the one of the host program."""

    kernel: Kernel
    run: KernelRun
    microseconds: float
    op: Operation


@dataclass(frozen=True)
class Copy(OfOp):
    """A copy within device memory: `bytes` are read and as many written, `hbm_bytes` of both cross HBM."""

    bytes: int
    hbm_bytes: int
    cycles: int
    microseconds: float
    op: Operation


@dataclass(frozen=True)
class HostCall(OfOp):
    """Work that the host does: the bytes over the link and the elements it computes. `microseconds`: the call, the
    transfers and the computing, one after the other.

    Where `control`, it only reads one number of device memory.
    """

    name: str
    bytes: int
    elements: int
    control: bool
    transfer_microseconds: float
    compute_microseconds: float
    microseconds: float
    op: Operation


@dataclass(frozen=True)
class Scalars(OfOp):
    """Arithmetic on numbers that the host does between launches: `operations` of them."""

    operations: int
    microseconds: float
    op: Operation


Step = Launch | Copy | HostCall | Scalars


@dataclass(frozen=True)
class Repeat:
    """Steps that run `times` times, each time alike; `call` is the op that runs them where they are a function's."""

    steps: tuple[Step | Repeat, ...]
    times: int
    call: Operation | None = None

    @cached_property
    def microseconds(self) -> float:
        """All times together."""
        return self.times * sum(step.microseconds for step in self.steps)


@dataclass(frozen=True)
class Simulation:
    """What a program does in time: its steps in order, and the loops and branches whose course was assumed.

    arena_bytes: device memory that the plan takes, 0 before it; constant_bytes: the constants among it; donated_bytes:
    the arguments whose memory may be used for anything.
    """

    machine: Machine
    kernels: dict[str, Kernel]
    steps: tuple[Step | Repeat, ...]
    assumed_trips: tuple[str, ...]
    assumed_branches: tuple[str, ...]
    arena_bytes: int
    constant_bytes: int
    donated_bytes: int

    @property
    def microseconds(self) -> float:
        """From the first launch to the last result."""
        return sum(step.microseconds for step in self.steps)

    def flat(self) -> Iterator[tuple[Step, int]]:
        """Each step once, with how often it runs."""
        return _flat(self.steps, 1)


def _flat(steps: Sequence[Step | Repeat], times: int) -> Iterator[tuple[Step, int]]:
    for step in steps:
        if isinstance(step, Repeat):
            yield from _flat(step.steps, times * step.times)
        else:
            yield step, times


def simulate(
    module: ModuleOp,
    machine: Machine,
    *,
    extrapolate: bool = True,
    warm: bool = False,
    bypassing: frozenset[int] = frozenset(),
) -> Simulation:
    """The time of the npu-level program in `module`.

    Without `extrapolate` each trip of each loop of each core is simulated: slower, the same to the cycle. `warm`:
    the program ran just before, and L2 holds what it left. `bypassing`: operands that L2 does not keep. Raises
    SimulationError for a deadlock or an op that is not at the npu level.
    """
    kernels = {
        text(op.sym_name): Kernel(op, machine, extrapolate, bypassing)
        for op in module.ops
        if isinstance(op, structure.KernelOp)
    }
    main = next((op for op in module.ops if isinstance(op, func.FuncOp) and op.sym_name.data == "main"), None)
    if main is None:
        raise SimulationError("the module has no function @main to simulate")
    functions = {text(op.sym_name): op for op in module.ops if isinstance(op, func.FuncOp) and op.body.blocks}
    host = _Host(machine, kernels, functions, _addresses(main, functions.values()))
    if warm:
        host.block(main.body.block)
    steps = host.block(main.body.block)
    arena = main.attributes.get("npu.arena_bytes")
    program = (op for function in functions.values() for op in function.walk())
    given = sum(gm(a).bytes for a, free in zip(main.body.block.args, donated(main), strict=True) if free)
    constants = sum(gm(op.result).bytes for op in program if isinstance(op, structure.GmConstantOp))
    return Simulation(
        machine,
        kernels,
        tuple(steps),
        tuple(host.assumed_trips),
        tuple(host.assumed_branches),
        0 if arena is None else integer(arena),
        constants,
        given,
    )


def _addresses(main: func.FuncOp, functions: Iterable[func.FuncOp]) -> dict[SSAValue, int]:
    """Where the plan of device memory puts arguments, constants and other tensors; empty before it."""
    places = main.attributes.get("npu.addresses")
    arguments = to_ints(places) if isinstance(places, DenseArrayBase) else ()
    found: dict[SSAValue, int] = dict(zip(main.body.block.args, arguments, strict=False))
    for op in (op for function in functions for op in function.walk()):
        if isinstance(op, structure.GmAllocOp | structure.GmConstantOp) and op.address is not None:
            found[op.result] = integer(op.address)
    return found


class _Host:
    """Walks the host program; `root` maps views and block arguments to the tensors that they are."""

    def __init__(
        self,
        machine: Machine,
        kernels: dict[str, Kernel],
        functions: dict[str, func.FuncOp],
        addresses: dict[SSAValue, int],
    ) -> None:
        self.machine, self.kernels, self.functions = machine, kernels, functions
        self._calls: dict[tuple[str, tuple[float, ...]], Repeat] = {}
        self._addresses = addresses
        self.l2 = L2(machine.l2_bytes)
        self.assumed_trips: list[str] = []
        self.assumed_branches: list[str] = []
        self._roots: dict[SSAValue, SSAValue] = {}

    def root(self, value: SSAValue) -> SSAValue:
        return self._roots.get(value, value)

    def block(self, block: Block) -> list[Step | Repeat]:
        """The steps of one pass through a block."""
        steps: list[Step | Repeat] = []
        for op in block.ops:
            if isinstance(op, ops.ViewOp):
                self._roots[op.result] = self.root(op.source)
            elif isinstance(op, structure.LaunchOp):
                steps.append(self._launch(op))
            elif isinstance(op, structure.CopyOp):
                steps.append(self._copy(op.source, op.dest, op))
            elif isinstance(op, structure.HostCallOp):
                steps.append(self._host_call(op))
            elif isinstance(op, structure.CallOp):
                steps.append(self._call(op))
            elif isinstance(op, structure.ScalarsOp):
                steps += self._scalars(op)
            elif isinstance(op, structure.ToHostOp):
                steps.append(self._over_link("to host", [op.source], 0, True, op))
            elif isinstance(op, structure.ToDeviceOp):
                steps.append(self._to_device(op))
            elif isinstance(op, structure.LoopOp):
                steps += self._loop(op)
            elif isinstance(op, structure.BranchOp):
                steps += self._branch(op)
            elif not isinstance(op, _SILENT):
                raise SimulationError(f"{describe(op)} is not an op of the host program")
        return steps

    # -- the device ----------------------------------------------------------------------------------------

    def _launch(self, op: structure.LaunchOp) -> Launch:
        assert isinstance(op.callee, SymbolRefAttr)
        name = op.callee.root_reference.data
        kernel = self.kernels.get(name)
        if kernel is None:
            raise SimulationError(f"{describe(op)} launches @{name}, which does not exist")
        if len(op.operands) != kernel.operands:
            raise SimulationError(
                f"{describe(op)} gives @{name} {len(op.operands)} of {kernel.operands} operands"
            )
        roots = [self.root(v) for v in op.operands]
        run = kernel.run(tuple(self._missing(kernel, i, root) for i, root in enumerate(roots)))
        for moved in (kernel.totals.read, kernel.totals.written):
            for i, root in enumerate(roots):
                if structure.is_number(root.type):
                    continue
                if i not in kernel.bypassing and (
                    moved is kernel.totals.written or i not in kernel.workspaces
                ):
                    self._touch(root, moved[i])
        microseconds = kernel.launch_microseconds + self.machine.cycles_to_microseconds(run.cycles)
        return Launch(kernel, run, microseconds, op)

    def _missing(self, kernel: Kernel, i: int, root: SSAValue) -> float:
        """The share of an operand's bytes that crosses HBM in this launch.

        Reads: what the kernel's own reuse leaves, of that what was not resident before. Writes stay in L2 as far
        as all that the launch moves fits there; what does not is pushed out to HBM, written bytes first.
        """
        read, written = kernel.totals.read[i], kernel.totals.written[i]
        if not read + written or i in kernel.workspaces or structure.is_number(root.type):
            return 0.0  # numbers come with the launch's arguments
        crossing = 0.0
        if read:
            crossing += min(read * kernel.reuse.crossing_share(i), read) * self.l2.absent(
                root, gm(root).bytes
            )
        if written:
            over = max(0.0, kernel.reuse.footprint - self.machine.l2_bytes)
            crossing += written * min(1.0, over / sum(kernel.totals.written))
        return crossing / (read + written)

    def _touch(self, root: SSAValue, moved: int) -> None:
        if moved:
            total, start = gm(root).bytes, self._addresses.get(root)
            self.l2.touch(root, total, moved, None if start is None else range(start, start + total))

    def _copy(self, source: SSAValue, dest: SSAValue, op: Operation) -> Copy:
        """A copy runs at the bandwidth of HBM or L2, whichever is slower, and is launched like one core."""
        moved = gm(source).bytes
        source, dest = self.root(source), self.root(dest)
        hbm = moved * self.l2.absent(source, moved) + moved * (moved > self.machine.l2_bytes)
        self._touch(source, moved)
        self._touch(dest, moved)
        machine = self.machine
        cycles = max(ceil(hbm / machine.hbm_bytes_per_cycle), ceil(2 * moved / machine.l2_bytes_per_cycle))
        microseconds = machine.launch_microseconds(1) + machine.cycles_to_microseconds(cycles)
        return Copy(moved, round(hbm), cycles, microseconds, op)

    # -- the host ------------------------------------------------------------------------------------------

    def _host_call(self, op: structure.HostCallOp) -> HostCall:
        results = op.operands[len(op.operands) - integer(op.outputs) :]
        for value in results:
            self.l2.drop(self.root(value))
        elements = sum(size(gm(v).shape) for v in results)
        work = integer(op.work) if op.work is not None else sum(gm(v).bytes for v in _tensors(op.operands))
        return self._over_link(text(op.op), op.operands, elements, False, op, work)

    def _over_link(
        self,
        name: str,
        moved: Sequence[SSAValue],
        elements: int,
        control: bool,
        op: Operation,
        work: int = 0,
    ) -> HostCall:
        """One runtime call, the transfers of `moved`, and what the host takes to read and write `work` bytes."""
        total, host = sum(gm(v).bytes for v in _tensors(moved)), self.machine.host
        transfer, compute = total / host.pcie_bytes_per_us, work / host.compute_bytes_per_us
        microseconds = host.call_us + transfer + compute
        return HostCall(name, total, elements, control, transfer, compute, microseconds, op)

    def _call(self, op: structure.CallOp) -> Repeat:
        """What a function does costs the same as often as L2 holds as much of its arguments: it is walked once for
        each such case."""
        name = op.callee.root_reference.data
        function = self.functions.get(name)
        if function is None:
            raise SimulationError(f"{describe(op)} calls @{name}, which does not exist")
        roots = [self.root(v) for v in op.operands]
        absent = tuple(round(self.l2.absent(r, gm(r).bytes), 2) for r in roots)
        known = self._calls.get((name, absent))
        if known is None:
            self._roots.update(zip(function.body.block.args, roots, strict=True))
            known = self._calls[name, absent] = Repeat(tuple(self.block(function.body.block)), 1)
        else:
            for r in roots:
                self._touch(r, gm(r).bytes)
        return replace(known, call=op)

    def _scalars(self, op: structure.ScalarsOp) -> list[Step | Repeat]:
        work = op.work()
        return [Scalars(work, work * self.machine.host.scalar_us, op)] if work else []

    def _to_device(self, op: structure.ToDeviceOp) -> Copy:
        """The number goes along with a command on the stream; nobody waits for it."""
        moved = gm(op.dest).bytes
        self._touch(self.root(op.dest), moved)
        return Copy(moved, 0, 0, self.machine.launch_microseconds(1), op)

    def _loop(self, op: structure.LoopOp) -> list[Step | Repeat]:
        """Passes differ by what L2 holds at their start: each is walked until that repeats."""
        state = [self.root(v) for v in op.state]
        for region in (op.condition, op.body):
            self._roots.update(zip(op.state_args(region.block), state, strict=False))
        trips = 1 if op.trip_count is None else integer(op.trip_count)
        if op.trip_count is None:
            self.assumed_trips.append(describe(op))
        steps: list[Step | Repeat] = []
        seen: list[Snapshot] = []
        done = 0
        while done < trips:
            seen.append(self.l2.snapshot())
            body = self._condition(op) if op.trip_count is None else []
            body += self.block(op.body.block)
            body += self._hand_over(op.body.block, state)
            settled = self.l2.snapshot() == seen[-1] or len(seen) == _PASSES
            times = trips - done if settled else 1
            steps.append(Repeat(tuple(body), times))
            done += times
        return steps + (self._condition(op) if op.trip_count is None else [])

    def _condition(self, op: structure.LoopOp) -> list[Step | Repeat]:
        return self.block(op.condition.block)

    def _branch(self, op: structure.BranchOp) -> list[Step | Repeat]:
        """The branch that takes longest is counted."""
        if len(op.branches) > 1:
            self.assumed_branches.append(describe(op))
        outputs = [self.root(v) for v in op.outputs]
        start = self.l2.snapshot()
        longest: list[Step | Repeat] = []
        end = start
        for region in op.branches:
            self.l2.restore(start)
            steps = self.block(region.block)
            steps += self._hand_over(region.block, outputs)
            if not longest or sum(s.microseconds for s in steps) > sum(s.microseconds for s in longest):
                longest, end = steps, self.l2.snapshot()
        self.l2.restore(end)
        return longest

    def _hand_over(self, block: Block, targets: Sequence[SSAValue]) -> list[Step | Repeat]:
        """Copies of what a region yields into the tensors that receive it, where it is not there already."""
        last = block.last_op
        if not isinstance(last, structure.NpuYieldOp):
            return []
        return [
            self._copy(value, target, last)
            for value, target in zip(last.operands, targets, strict=False)
            if self.root(value) is not target
        ]


def _tensors(values: Sequence[SSAValue]) -> list[SSAValue]:
    """Those that are in device memory."""
    return [v for v in values if not structure.is_number(v.type)]


_PASSES = 4
"""Passes through a loop after which what L2 holds is taken as settled."""

_SILENT = (
    structure.GmAllocOp,
    structure.GmConstantOp,
    structure.NpuYieldOp,
    func.ReturnOp,
)
"""Ops of the host program that take no time."""
