"""tile-fit: rematerialisation and offload. A program that needs more device memory at one time than it may have makes
values again, or moves them to the host and back.

Before:  %a = tile.launch @f %x ; ... ; %z = tile.launch @g %a, %y
After:   %a = tile.launch @f %x ; ... ; %b = tile.launch @f %x {again} ; %z = tile.launch @g %b, %y

and where the link to the host has time for it

         %h = graph.offload %a : ... ; ... ; %b = graph.restore %h : ...

What is taken away, where, is for remat_choice.py to find. The pass only runs where a limit is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import FloatAttr, ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects import graph, tile
from ...dialects.base import describe, source_of, text, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import ConstantOp, HostOp
from ...dialects.graph.donation import donated
from ...dialects.module import find_main
from ...dialects.npu.places import limit_of, set_limit
from ...machine import Machine
from ...support.sentences import counted
from ..base import TargetPass
from ..calls import callers_first, calls_of
from ..errors import PassError
from ..npu.in_place import in_place
from ..npu.plan_memory import OverLimit, plan, planned, reached
from ..npu.program import lower_program
from .launch_order import FREE, MICROSECONDS, Ordering, Times, base, bytes_of, only_for_host, used
from .memory_problem import MemoryOp, MemoryProblem, MemoryRun, MemoryState, MemoryValue
from .remat_choice import Link, RematSearch


@dataclass(frozen=True)
class TileFitPass(TargetPass):
    """Lowers the most bytes that @main needs at one time to `memory_limit`, in bytes; 0: no limit."""

    name = "tile-fit"
    memory_limit: int | None = None

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        main = find_main(module)
        if not self.memory_limit or main is None:
            return
        fit(module, main, self.memory_limit, machine)
        for op in module.ops:
            op.attributes.pop(MICROSECONDS, None)


def fit(module: ModuleOp, main: FuncOp, limit: int, machine: Machine) -> None:
    """Makes @main need at most `limit` bytes at one time. Raises PassError where that is not found."""
    set_limit(main, limit)
    fitting = Fitting(module, main, machine)
    problem = fitting.problem(frames_behind(module, main, machine))
    start = problem.start()
    least = MemoryState(problem, start)
    if problem.fixed + planned(least.packing()).height <= limit:
        return
    room = 2 * fitting.largest_home
    for _ in range(ROUNDS):
        best, least = searched(problem, start, limit, room, machine, least)
        if best is None:
            break
        over = excess(module, best.state.runs, machine)
        if over <= 0:
            fitting.write(best.state.runs)
            return
        room += over
    raise PassError(fitting.unreachable(problem, least, limit))


def searched(
    problem: MemoryProblem, start: Sequence[MemoryRun], limit: int, room: int, machine: Machine, least: MemoryState
) -> tuple[RematSearch | None, MemoryState]:
    """What takes least time of the programs that are found within a limit, less some room; None where none is. Beside
    it the state of least bytes that a search ended in, `least` before."""
    link = Link(machine.host.call_us, machine.host.pcie_bytes_per_us)
    best: RematSearch | None = None
    for target in TARGETS:
        for given in (link, None):
            search = RematSearch(problem, start, limit, given)
            if not fits(search, limit - room, target):
                least = min(least, search.state, key=lambda s: s.peak)
            elif best is None or search.microseconds < best.microseconds:
                best = search
            if best is not None and not best.stalls:
                break
        if best is not None:
            break
    return best, least


def excess(module: ModuleOp, runs: Sequence[MemoryRun], machine: Machine) -> int:
    """Bytes by which the plan of @main is over the limit when it runs so: the one that npu-plan-memory will make, with
    the results in place that tile-to-npu finds."""
    copy = module.clone()
    main = find_main(copy)
    assert main is not None
    fitting = Fitting(copy, main, machine)
    fitting.problem()
    fitting.write(runs)
    lower_program(copy)
    limit = limit_of(main)
    assert limit is not None
    try:
        plan(main, reached(main, callers_first(copy)), machine)
    except OverLimit as error:
        return error.bytes - limit
    return 0


def frames_behind(module: ModuleOp, main: FuncOp, machine: Machine) -> int:
    """Bytes of the frames of the functions that @main calls, each behind those of its callers."""
    functions = callers_first(module)
    ends = {text(main.sym_name): 0}
    for func in functions:
        name = text(func.sym_name)
        if name not in ends:
            continue
        if func is not main:
            ends[name] += Fitting(module, func, machine).own()
        for called in calls_of(func):
            ends[called] = max(ends.get(called, 0), ends[name])
    return max(ends.values())


TARGETS = (1.0, 0.8, 0.0)
"""Shares of the limit that are aimed at, one after the other until one leads below it: what is over a lower one is
taken away in more places, and more of it together."""

ROUNDS = 8
"""Times at most that the limit is lowered by the gaps that a plan has between tensors, and by what tile-to-npu keeps
apart."""


def fits(search: RematSearch, limit: int, target: float) -> bool:
    """Lets a search find a program of which the plan of device memory takes at most `limit` bytes, aiming at a share of
    these; whether it does."""
    aim = limit
    for _ in range(ROUNDS):
        if not search.run(aim, int(aim * target)):
            return False
        over = search.problem.fixed + planned(search.state.packing()).height - limit
        if over <= 0:
            return True
        aim -= over
    return False


class Fitting(Ordering):
    """A function as numbers, and the way back."""

    def __init__(self, module: ModuleOp, main: FuncOp, machine: Machine) -> None:
        functions = {text(f.sym_name): f for f in module.ops if isinstance(f, FuncOp) and f.body.blocks}
        kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, tile.KernelOp)}
        times = Times(functions, kernels, self.cost, machine, 0)
        owned = [a for a, free in zip(main.body.block.args, donated(main), strict=False) if free]
        super().__init__(main.body.block, times, owned)
        self.last = self.prepare()
        self.machine = machine
        self.constants = [op.result for f in functions.values() for op in f.walk() if isinstance(op, ConstantOp)]
        self.number: dict[SSAValue, int] = {}
        self.names: list[SSAValue] = []
        self.largest_home = 0
        """Bytes of the largest result that is made where a donated argument was. tile-to-npu may find another place for
        one, and then another for the one that was to have that: the search begins with room for two."""
        self.pairs: dict[tile.KernelOp, frozenset[tuple[int, int]]] = {}
        """Pairs of an input and an output of each kernel that may be one tensor."""

    def cost(self, op: Operation) -> float | None:
        """Microseconds of a launch: as its kernel says, or else those of its tensors over the memory's bandwidth."""
        if not isinstance(op, tile.LaunchOp):
            return None
        kernel = self.times.kernels[op.callee.root_reference.data]
        said = kernel.attributes.get(MICROSECONDS)
        if isinstance(said, FloatAttr):
            return said.value.data
        machine = self.times.machine
        moved = sum(bytes_of(v.type) for v in (*op.operands, *op.results))
        return machine.launch_microseconds(1) + machine.cycles_to_microseconds(moved / machine.hbm_bytes_per_cycle)

    def launching(self, op: Operation) -> float:
        """Microseconds that the launch of a kernel takes."""
        if not isinstance(op, tile.LaunchOp):
            return 0.0
        kernel = self.times.kernels[op.callee.root_reference.data]
        return self.machine.launch_microseconds(size(to_ints(kernel.grid)))

    def padded(self, value: SSAValue) -> int:
        align = self.machine.gm_align
        return max(-(-bytes_of(value.type) // align), 1) * align

    def problem(self, frames: int = 0) -> MemoryProblem:
        """The ops and values of the function. frames: bytes of the functions that it calls."""
        end = len(self.ops)
        values: list[MemoryValue] = []

        def add(value: SSAValue, given: bool, over: int) -> None:
            self.number[value] = len(values)
            self.names.append(value)
            values.append(MemoryValue(self.padded(value), given, end in self.users.get(value, ()), over))

        for a in self.owned:
            add(a, True, -1)
        for i, op in enumerate(self.ops):
            taken = self.updates(op)
            for r in op.results:
                if r in self.on_host or (isinstance(op, HostOp) and only_for_host(r)):
                    continue
                old = base(taken[r]) if r in taken else r
                spent = old in self.number and max(self.users.get(old, ()), default=-1) <= i
                add(r, False, self.number[old] if spent else -1)
        self.settle_donated(values)
        ops = []
        for i, op in enumerate(self.ops):
            uses = dict.fromkeys(self.number[v] for v in map(base, used(op)) if v in self.number)
            makes = tuple(self.number[r] for r in op.results if r in self.number)
            ops.append(
                MemoryOp(
                    us := self.units[i].microseconds,
                    max(us - self.launching(op), 0.0),
                    tuple(uses),
                    makes,
                    self.alone(op),
                    isinstance(op, tile.LaunchOp),
                )
            )
        given = [a for a in self.block.args if a not in self.owned]
        fixed = sum(map(self.padded, (*given, *self.constants)))
        return MemoryProblem(ops, values, fixed + frames)

    def own(self) -> int:
        """Bytes of the frame that a called function has, its arguments and results being its caller's."""
        problem = self.problem()
        values = [replace(v, bytes=0, kept=False) if v.kept else v for v in problem.values]
        inner = MemoryProblem(problem.ops, values, 0)
        return planned(MemoryState(inner, inner.start()).packing()).height

    def settle_donated(self, values: list[MemoryValue]) -> None:
        """Results that are made where a donated argument was take no memory of their own."""
        end, free = len(self.ops), list(self.owned)
        for i, op in enumerate(self.ops):
            for r in op.results:
                if r not in self.number or end not in self.users.get(r, ()):
                    continue
                fits = [
                    a
                    for a in free
                    if bytes_of(a.type) == bytes_of(r.type) and max(self.users.get(a, ()), default=-1) <= i
                ]
                over = [a for a in fits if i in self.users.get(a, ()) and self.stores_over(op, a, r)]
                spent = [a for a in fits if i not in self.users.get(a, ())]
                for home in (over or spent)[:1]:
                    free.remove(home)
                    self.largest_home = max(self.largest_home, self.padded(r))
                    n = self.number[home]
                    values[n] = MemoryValue(values[n].bytes, given=True, kept=True, until=i)
                    values[self.number[r]] = MemoryValue(0, kept=True)

    def stores_over(self, op: Operation, home: SSAValue, result: SSAValue) -> bool:
        """Whether the kernel of a launch may store a result over an argument that it reads."""
        if not isinstance(op, tile.LaunchOp) or any(i >= 0 for i in to_ints(op.inits)):
            return False
        kernel = self.times.kernels[op.callee.root_reference.data]
        if kernel not in self.pairs:
            self.pairs[kernel] = in_place(kernel)
        o = next(i for i, r in enumerate(op.results) if r is result)
        reads = [i for i, v in enumerate(op.arguments) if base(v) is home]
        return bool(reads) and all((i, o) in self.pairs[kernel] for i in reads)

    def unreachable(self, problem: MemoryProblem, state: MemoryState, limit: int) -> str:
        """One sentence on a limit that is not reached: what is, what is live there, and what would help."""
        at = int(state.live.argmax())
        run = state.runs[at]
        op = self.ops[run.op] if not run.moves else self.names[run.value].owner
        live = [
            (problem.values[v].bytes, v)
            for v, spells in enumerate(state.spells)
            if any(state.begin(s) <= at <= s.last for s in spells) and problem.values[v].bytes
        ]
        live.sort(key=lambda found: (-found[0], found[1]))
        listed = "; ".join(f"{self.names[v].type}, {size_} bytes{_place(self.names[v])}" for size_, v in live[:SHOWN])
        more = f"; {len(live) - SHOWN} smaller ones" if len(live) > SHOWN else ""
        where = describe(op) if isinstance(op, Operation) else "the start"
        helps = "a smaller batch or narrower types need less"
        if problem.fixed:
            helps += f", and {problem.fixed} bytes of it are constants and arguments that are not donated"
        room = counted(limit, "byte", "bytes")
        return (
            f"memory_limit: the program does not fit into {room} of device memory; the least that was reached, "
            f"with values that are computed again or wait on the host, is {state.peak:,}, at {where}, where there are "
            f"{listed}{more}: {helps}"
        )

    # -- back to ops ---------------------------------------------------------------------------------------

    def write(self, runs: Sequence[MemoryRun]) -> None:
        """Makes the block what the runs say."""
        for op in list(self.block.ops):
            op.detach()
        writer = _Writer(self.block)
        for run in runs:
            if run.moves:
                writer.move(self.names[run.value], run.out)
            elif run.again:
                writer.again(self.ops[run.op])
            else:
                writer.put(self.ops[run.op])
        writer.put(self.last)


SHOWN = 5
"""Values that an error lists."""


def _place(value: SSAValue) -> str:
    """` (model.py:12)`, where a value comes from."""
    owner = value.owner
    source = source_of(owner) if isinstance(owner, Operation) else None
    return f" ({source})" if source else ""


class _Writer:
    """Adds ops to a block, each with the newest value of what it uses."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.newest: dict[SSAValue, SSAValue] = {}
        """What values have been made again as."""
        self.on_host: dict[SSAValue, SSAValue] = {}
        self.shown: dict[tuple[SSAValue, SSAValue], SSAValue] = {}
        self.placed: set[Operation] = set()

    def now(self, value: SSAValue) -> SSAValue:
        """What a value is by now; what only names memory is put before its first use."""
        op = value.owner
        if not isinstance(op, FREE):
            return self.newest.get(value, value)
        if isinstance(op, ConstantOp):
            inner = None
        else:
            inner = self.now(op.x)
            if inner is not op.x:
                key = (value, inner)
                if key not in self.shown:
                    copy = op.clone({op.x: inner})
                    copy.location = op.location
                    self.block.add_op(copy)
                    self.shown[key] = copy.results[0]
                return self.shown[key]
        if op not in self.placed and op.parent is None:
            self.placed.add(op)
            self.block.add_op(op)
        return value

    def put(self, op: Operation) -> None:
        """An op as it is, for the first time."""
        for inner in op.walk() if not isinstance(op, graph.FusionOp) else (op,):
            for i, value in enumerate(inner.operands):
                new = self.now(value)
                if new is not value:
                    inner.operands[i] = new
        self.block.add_op(op)

    def again(self, op: Operation) -> None:
        """A launch once more."""
        copy = op.clone({v: self.now(v) for v in op.operands})
        copy.location = op.location
        copy.properties["again"] = UnitAttr()
        self.block.add_op(copy)
        self.newest.update(zip(op.results, copy.results, strict=True))

    def move(self, value: SSAValue, out: bool) -> None:
        """A value to the host, or back."""
        if out:
            op = graph.OffloadOp.create(operands=[self.now(value)], result_types=[value.type])
            self.on_host[value] = op.result
        else:
            op = graph.RestoreOp.create(operands=[self.on_host[value]], result_types=[value.type])
            self.newest[value] = op.result
        maker = value.owner
        if isinstance(maker, Operation):
            op.location = maker.location
        self.block.add_op(op)
