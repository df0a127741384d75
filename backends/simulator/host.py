"""The host program: launches in order, what L2 keeps between them, host calls, loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from math import ceil
from operator import or_

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects import npu as ops
from ...dialects.base import describe, integer, text, to_ints
from ...dialects.graph.donation import donated
from ...dialects.module import find_main
from ...dialects.npu import gm, structure
from ...dialects.npu.host_program import DeviceTensorOp, HostVisitor
from ...dialects.npu.occupancy import Occupancy
from ...dialects.npu.places import addresses_of, arena_of
from ...dialects.npu.streams import COMPUTE, HOST, PROGRAM, Command
from ...machine import Machine
from .core import BarrierWait
from .errors import SimulationError
from .independent import Beside, ends
from .kernel import TimedKernel
from .memory import L2, Snapshot
from .steps import Copy, EventRecord, EventWait, HostCall, Launch, Repeat, Scalars, Simulation, Step, Transfer
from .timeline import makespan


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
        text(op.sym_name): TimedKernel(op, machine, extrapolate, bypassing)
        for op in module.ops
        if isinstance(op, structure.KernelOp)
    }
    main = find_main(module)
    if main is None:
        raise SimulationError("the module has no function @main to simulate")
    functions = {text(op.sym_name): op for op in module.ops if isinstance(op, func.FuncOp) and op.body.blocks}
    host = _Host(machine, kernels, functions, _addresses(main, functions.values()))
    if warm:
        host.block(main.body.block)
    steps = host.block(main.body.block)
    program = (op for function in functions.values() for op in function.walk())
    given = sum(gm(a).bytes for a, free in zip(main.body.block.args, donated(main), strict=True) if free)
    constants = sum(gm(op.result).bytes for op in program if isinstance(op, structure.GmConstantOp))
    return Simulation(
        machine,
        kernels,
        tuple(steps),
        makespan(steps),
        tuple(host.assumed_trips),
        tuple(host.assumed_branches),
        arena_of(main) or 0,
        constants,
        given,
    )


def _addresses(main: func.FuncOp, functions: Iterable[func.FuncOp]) -> dict[SSAValue, int]:
    """Where the plan of device memory puts arguments, constants and other tensors; empty before it."""
    found: dict[SSAValue, int] = dict(zip(main.body.block.args, addresses_of(main) or (), strict=False))
    for op in (op for function in functions for op in function.walk()):
        if isinstance(op, DeviceTensorOp) and op.address is not None:
            found[op.result] = integer(op.address)
    return found


Steps = list[Step | Repeat]
"""What an op, or the ops of a block, add to a program."""


class _Host(HostVisitor[Steps]):
    """Walks the host program; `root` maps views and block arguments to the tensors that they are."""

    def __init__(
        self,
        machine: Machine,
        kernels: dict[str, TimedKernel],
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
        self._groups: dict[structure.LaunchOp, Occupancy] = {}
        self._timed: dict[structure.LaunchOp, Launch] = {}
        self._stages: list[Sequence[Launch]] = []
        """The launches of the group so far, between two barriers each."""
        commands = (op for f in functions.values() for op in f.walk() if isinstance(op, Command))
        self.scheduled = any(op.queue is not None for op in commands)

    def root(self, value: SSAValue) -> SSAValue:
        return self._roots.get(value, value)

    def block(self, block: Block) -> Steps:
        """The steps of one pass through a block."""
        return [step for op in block.ops for step in self.visit(op)]

    def passive(self, op: Operation) -> Steps:
        return []

    def foreign(self, op: Operation) -> Steps:
        raise SimulationError(f"{describe(op)} is not an op of the host program")

    def view(self, op: ops.ViewOp) -> Steps:
        self._roots[op.result] = self.root(op.source)
        return []

    def record_event(self, op: structure.RecordEventOp) -> Steps:
        return [EventRecord(integer(op.event), text(op.stream))]

    def wait_event(self, op: structure.WaitEventOp) -> Steps:
        return [EventWait(integer(op.event), text(op.stream))]

    def command(self, op: Command) -> Steps:
        """A command that says itself what it takes, shown as what its stream is for."""
        moved, microseconds = op.cost(self.machine)
        for value in op.written():
            self.l2.drop(self.root(value))
        if op.home() == COMPUTE:
            return [Copy(moved, 0, 0, microseconds, op, op.queue)]
        if op.home() == HOST:
            return [HostCall(op.name, 0, microseconds, microseconds, op, op.queue)]
        return [Transfer(op.name, moved, False, microseconds, microseconds, op, op.queue)]

    # -- the device ----------------------------------------------------------------------------------------

    def launch(self, op: structure.LaunchOp) -> Steps:
        """Launches that no barrier parts are timed together, where the first of them is."""
        if op not in self._timed:
            together = op.without_barrier()
            if op.joined is None:
                self._stages.clear()
            steps: list[Launch] = []
            between: Operation | None = op
            while between is not None and len(steps) < len(together):
                if isinstance(between, structure.LaunchOp):
                    steps.append(self._alone(between))
                else:
                    self.visit(between)  # a view that the next launch takes
                between = between.next_op
            self._stages.append(self._independent(steps))
            self._timed.update(zip(together, self._stages[-1], strict=True))
        return [self._timed.pop(op)]

    def _independent(self, steps: Sequence[Launch]) -> Sequence[Launch]:
        """Launches that no barrier parts, each with its share of the time that they take together."""
        machine = self.machine
        launches = [self._beside(step) for step in steps]
        begin_end = ends(launches) if len(steps) > 1 else [(0.0, launches[0].alone)]
        alone = sum(launch.alone for launch in launches)
        crossing = machine.cycles_to_microseconds(
            sum(step.run.hbm_bytes for step in steps) / machine.hbm_bytes_per_cycle
        )
        taken = max(*(end for _, end in begin_end), crossing)
        first, *others = steps
        # the last one ends earlier by what each wins that begins at once
        over = max(
            end - (0.0 if begin else self._gained(step, first.overhead))
            for step, (begin, end) in zip(steps, begin_end, strict=True)
        )
        whole = max(first.overhead + min(over, taken), crossing)
        overhead = max(whole - taken, 0.0)
        saved = max(1 - (whole - overhead) / alone, 0.0) if alone else 0.0
        return [
            replace(
                step,
                overhead=before,
                microseconds=before + (1 - saved) * launch.alone,
                saved=saved * launch.alone,
            )
            for step, launch, before in zip(steps, launches, (overhead, *(0.0 for _ in others)), strict=True)
        ]

    def _gained(self, step: Launch, barrier: float) -> float:
        """By how many microseconds a launch ends earlier because it loads ahead of a barrier that takes so many."""
        op, kernel, run, clock = step.op, step.kernel, step.run, self.machine.clock_mhz
        assert isinstance(op, structure.LaunchOp)
        if op.ahead is None:
            return 0.0
        idle = {s.core: round(self._idle(op, s.core) * clock) for s in kernel.sections}
        first, waits = max(idle.values()), round(barrier * clock)
        begins = tuple((kind, first - cycles) for kind, cycles in sorted(idle.items()) if cycles < first)
        held = BarrierWait(first + waits, frozenset(to_ints(op.ahead)), begins)
        return self.machine.cycles_to_microseconds(
            first + waits + run.cycles - kernel.held_cycles(run.missing, held)
        )

    def _beside(self, step: Launch) -> Beside:
        """A launch as one beside others."""
        kernel, missing = step.kernel, step.run.missing
        assert isinstance(step.op, structure.LaunchOp)

        def microseconds(cores: int) -> float:
            return self.machine.cycles_to_microseconds(kernel.cycles_beside(missing, cores))

        cores = kernel.blocks * max((section.units for section in kernel.sections), default=1)
        return Beside(kernel.occupancy.places(step.op.begins_on), cores, microseconds)

    def _alone(self, op: structure.LaunchOp) -> Launch:
        """A launch that has the chip to itself."""
        kernel, name = self._kernel(op), op.callee.root_reference.data
        if len(op.operands) != kernel.operands:
            raise SimulationError(
                f"{describe(op)} gives @{name} {len(op.operands)} of {kernel.operands} operands"
            )
        roots = [self.root(v) for v in op.operands]
        pushed = self._pushed_out(kernel)
        run = kernel.run(tuple(self._missing(kernel, i, root, pushed) for i, root in enumerate(roots)))
        warm = tuple(self._missing(kernel, i, root, pushed, warm=True) for i, root in enumerate(roots))
        once = sum(self._crossing_once(kernel, i, root, pushed) for i, root in enumerate(roots))
        for moved in (kernel.totals.read, kernel.totals.written):
            for i, root in enumerate(roots):
                if structure.is_number(root.type):
                    continue
                if i not in kernel.bypassing and (
                    moved is kernel.totals.written or i not in kernel.workspaces
                ):
                    self._touch(root, moved[i])
        occupancy, joined = self._occupancy(op), op.joined is not None
        overhead = (occupancy.barrier_microseconds if joined else occupancy.launch_microseconds)(self.machine)
        if op.nowait is not None:
            overhead = 0.0
        microseconds = overhead + self.machine.cycles_to_microseconds(run.cycles)
        return Launch(kernel, run, overhead, joined, microseconds, op, op.queue, once, warm)

    def _idle(self, op: structure.LaunchOp, kind: str) -> float:
        """Microseconds before the stage before a launch ends in which cores of a kind have nothing else to do than to
        load ahead for it, and the way to HBM is free."""
        found, machine = 0.0, self.machine
        for number, stage in enumerate(reversed(self._stages[-op.passes_barriers :]), 1):
            if any(kind == section.core for step in stage for section in step.kernel.sections):
                if len(stage) == 1:
                    (step,) = stage
                    found += machine.cycles_to_microseconds(step.kernel.idle_cycles(step.run.missing, kind))
                break
            moved = sum(step.run.hbm_bytes for step in stage)
            taken = sum(step.microseconds for step in stage)
            if number == op.passes_barriers:
                taken -= stage[0].overhead
            found += max(taken - machine.cycles_to_microseconds(moved / machine.hbm_bytes_per_cycle), 0.0)
        return found

    def _occupancy(self, op: structure.LaunchOp) -> Occupancy:
        """What the group of a launch occupies; found once for all of the group."""
        if op not in self._groups:
            group = op.group()
            occupancy = reduce(or_, (self._kernel(each).occupancy.behind(each.begins_on) for each in group))
            self._groups.update(dict.fromkeys(group, occupancy))
        return self._groups[op]

    def _kernel(self, op: structure.LaunchOp) -> TimedKernel:
        """The kernel that a launch names. Raises SimulationError."""
        name = op.callee.root_reference.data
        kernel = self.kernels.get(name)
        if kernel is None:
            raise SimulationError(f"{describe(op)} launches @{name}, which does not exist")
        return kernel

    def _missing(
        self, kernel: TimedKernel, i: int, root: SSAValue, pushed: float, warm: bool = False
    ) -> float:
        """The share of an operand's bytes that crosses HBM in this launch; `warm`: if L2 had all that fits there.

        Reads: what the kernel's own reuse leaves, of that what was not resident before. Writes stay in L2 as far
        as all that the launch moves fits there; what does not is pushed out to HBM, written bytes first: a share
        `pushed` of them.
        """
        read, written = kernel.totals.read[i], kernel.totals.written[i]
        if not self._moves(kernel, i, root):
            return 0.0
        crossing = 0.0
        if read:
            size = gm(root).bytes
            absent = float(size > self.machine.l2_bytes) if warm else self.l2.absent(root, size)
            crossing += min(read * kernel.reuse.crossing_share(i), read) * absent
        return (crossing + written * pushed) / (read + written)

    def _crossing_once(self, kernel: TimedKernel, i: int, root: SSAValue, pushed: float) -> float:
        """Bytes of an operand that cross HBM in this launch at least: what it reads of it and L2 does not have, each
        byte once, and what it writes and L2 cannot keep, a share `pushed`."""
        if not self._moves(kernel, i, root):
            return 0.0
        size, totals = gm(root).bytes, kernel.totals
        read, written = (  # boxes that are clipped at an edge count as whole ones in what is distinct
            min(kernel.reuse.distinct_bytes(i, writes), size, (totals.written if writes else totals.read)[i])
            for writes in (False, True)
        )
        return read * self.l2.absent(root, size) + written * pushed

    @staticmethod
    def _moves(kernel: TimedKernel, i: int, root: SSAValue) -> bool:
        """Whether a launch moves bytes of an operand that may cross HBM: numbers come with its arguments."""
        moved = kernel.totals.read[i] + kernel.totals.written[i]
        return bool(moved) and i not in kernel.workspaces and not structure.is_number(root.type)

    def _pushed_out(self, kernel: TimedKernel) -> float:
        """The share of all that a launch writes that does not stay in L2."""
        over = max(0.0, kernel.reuse.footprint - self.machine.l2_bytes)
        written = sum(kernel.totals.written)
        return min(1.0, over / written) if written else 0.0

    def _touch(self, root: SSAValue, moved: int) -> None:
        if moved:
            total, start = gm(root).bytes, self._addresses.get(root)
            self.l2.touch(root, total, moved, None if start is None else range(start, start + total))

    def _copy(self, source: SSAValue, dest: SSAValue, op: Command) -> Copy:
        """A copy runs at the bandwidth of HBM or L2, whichever is slower, and is launched like one core."""
        moved = gm(source).bytes
        source, dest = self.root(source), self.root(dest)
        hbm = moved * self.l2.absent(source, moved) + moved * (moved > self.machine.l2_bytes)
        self._touch(source, moved)
        self._touch(dest, moved)
        machine = self.machine
        cycles = max(ceil(hbm / machine.hbm_bytes_per_cycle), ceil(2 * moved / machine.l2_bytes_per_cycle))
        microseconds = machine.launch_microseconds(1) + machine.cycles_to_microseconds(cycles)
        return Copy(moved, round(hbm), cycles, microseconds, op, op.queue)

    def copy(self, op: structure.CopyOp) -> Steps:
        return [self._copy(op.source, op.dest, op)]

    # -- the host ------------------------------------------------------------------------------------------

    def host_call(self, op: structure.HostCallOp) -> Steps:
        """One runtime call, and what the host takes to read and write all that the call works on."""
        host = self.machine.host
        compute = op.host_bytes() / host.compute_bytes_per_us
        return [HostCall(text(op.op), op.elements(), compute, host.call_us + compute, op, op.queue)]

    def to_host(self, op: structure.ToHostOp) -> Steps:
        """A tensor for host calls, or one that waits on the host, or a number that the program waits for: these take a
        runtime call."""
        if op.parks:
            return [self._parking("offload", gm(op.source).bytes, op)]
        users = [use.operation for use in op.result.uses]
        calls = [user for user in users if isinstance(user, structure.HostCallOp)]
        control = not calls or len(calls) < len(users)
        moved = gm(op.source).bytes
        link = moved / self.machine.host.pcie_bytes_per_us
        name = "to host" if control else text(calls[0].op)
        microseconds = self.machine.host.call_us + link if control else link
        return [Transfer(name, moved, control, link, microseconds, op, op.queue)]

    def _parking(self, name: str, moved: int, op: Command) -> Transfer:
        """A tensor that goes to the host to wait there, or comes back."""
        link = moved / self.machine.host.pcie_bytes_per_us
        return Transfer(name, moved, False, link, self.machine.host.call_us + link, op, op.queue)

    def call(self, op: structure.CallOp) -> Steps:
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
        return [replace(known, call=op)]

    def scalars(self, op: structure.ScalarsOp) -> Steps:
        work = op.work()
        queue = PROGRAM if self.scheduled else None
        return [Scalars(work, work * self.machine.host.scalar_us, op, queue)] if work else []

    def to_device(self, op: structure.ToDeviceOp) -> Steps:
        """The result of a host call crosses the link. A number that the program has goes along with a command on the
        stream, a tensor that waited there comes back by a runtime call."""
        if op.restores:
            self.l2.drop(self.root(op.dest))
            return [self._parking("restore", gm(op.dest).bytes, op)]
        moved, root, call = gm(op.dest).bytes, self.root(op.dest), op.source.owner
        if op.with_command() or not isinstance(call, structure.HostCallOp):
            self._touch(root, moved)
            return [Copy(moved, 0, 0, self.machine.launch_microseconds(1), op, op.queue)]
        self.l2.drop(root)
        link = moved / self.machine.host.pcie_bytes_per_us
        return [Transfer(text(call.op), moved, False, link, link, op, op.queue)]

    def loop(self, op: structure.LoopOp) -> Steps:
        """Passes differ by what L2 holds at their start: each is walked until that repeats."""
        state = [self.root(v) for v in op.state]
        for region in (op.condition, op.body):
            self._roots.update(zip(op.state_args(region.block), state, strict=False))
        trips = 1 if op.trip_count is None else integer(op.trip_count)
        if op.trip_count is None:
            self.assumed_trips.append(describe(op))
        steps: Steps = []
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

    def _condition(self, op: structure.LoopOp) -> Steps:
        return self.block(op.condition.block)

    def branch(self, op: structure.BranchOp) -> Steps:
        """The branch that takes longest is counted."""
        if len(op.branches) > 1:
            self.assumed_branches.append(describe(op))
        outputs = [self.root(v) for v in op.outputs]
        start = self.l2.snapshot()
        longest: Steps = []
        end = start
        for region in op.branches:
            self.l2.restore(start)
            steps = self.block(region.block)
            steps += self._hand_over(region.block, outputs)
            if not longest or sum(s.microseconds for s in steps) > sum(s.microseconds for s in longest):
                longest, end = steps, self.l2.snapshot()
        self.l2.restore(end)
        return longest

    def _hand_over(self, block: Block, targets: Sequence[SSAValue]) -> Steps:
        """The copies of a region's yielded tensors to the tensors that receive them, except for those already
        in place."""
        last = block.last_op
        if not isinstance(last, structure.NpuYieldOp):
            return []
        return [
            self._copy(value, target, last)
            for value, target in zip(last.operands, targets, strict=False)
            if self.root(value) is not target
        ]


_PASSES = 4
"""Passes through a loop after which what L2 holds is taken as settled."""
