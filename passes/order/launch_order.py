"""Orders launches around host calls: launches that depend on the host come last.

Before:  %h = graph.host %x {op = "fft"} ; %s = tile.launch @reduce_0 %h ; %y = tile.launch @contract_0 %a, %b
After:   %h = graph.host %x {op = "fft"} ; %y = tile.launch @contract_0 %a, %b ; %s = tile.launch @reduce_0 %h

Kernels run on one stream in program order. The order is decided here because the launches are known and the IR still
has value semantics, so any order that respects def-use is correct. Each op of a block becomes a unit with legs on
queues and an estimated time for each leg, and queues.py orders the units. In-place updates stay possible: a reader of a
tensor stays before the op that overwrites it in program order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue, Use

from ...dialects import graph, tile
from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import itemsize, shape_in, size
from ...dialects.graph import CaseOp, ConstantOp, FusionOp, HostOp, ReshapeOp, ToHostOp, WhileOp
from ...dialects.graph.donation import donated
from ...dialects.npu import gm
from ...dialects.npu.streams import COMPUTE, COPY_IN, COPY_OUT, HOST, PROGRAM
from ...dialects.open_sizes import example
from ...machine import Machine
from ..calls import callee_of
from ..program.partition import blocks_of
from .least_peak import OrderProblem, least_peak
from .queues import TensorLife, Unit, arrange, run

FREE = (ReshapeOp, graph.ViewOp, ConstantOp)
"""Ops that do nothing when the program runs: they only name memory."""


def bytes_of(kind: Attribute) -> int:
    """The bytes of a tensor, for the example where its dimensions are open: any order of launches is right."""
    assert isinstance(kind, TensorType)
    return example(size(shape_in(kind)) * itemsize(kind.element_type))


MICROSECONDS = "tile.microseconds"
"""Attribute of a kernel: how long a launch of it takes by the analytic bound. graph-to-tile says it for tile-fit."""

Costs = Callable[[Operation], float | None]
"""Microseconds of a launch; None for an op of which nobody knows."""


def order_launches(module: ModuleOp, costs: Costs, machine: Machine) -> None:
    """Reorders the ops of each block that calls the host."""
    functions = {text(f.sym_name): f for f in module.ops if isinstance(f, FuncOp) and f.body.blocks}
    kernels = {text(op.sym_name): op for op in module.ops if isinstance(op, tile.KernelOp)}
    fixed = [a for f in functions.values() for a in f.body.block.args]
    fixed += [op.result for f in functions.values() for op in f.walk() if isinstance(op, ConstantOp)]
    room = machine.spaces["gm"].bytes - sum(bytes_of(v.type) for v in fixed)
    times = Times(functions, kernels, costs, machine, room)
    for func in functions.values():
        owned = [a for a, free in zip(func.body.block.args, donated(func), strict=False) if free]
        for block in blocks_of(func.body.block):
            if any(isinstance(op, HostOp) for op in block.ops):
                Ordering(block, times, owned if block is func.body.block else ()).run()
            elif block is func.body.block:
                Ordering(block, times, owned, timed=False).lower_peak()


@dataclass
class Times:
    """How long the ops of a program take, and on which queues."""

    functions: Mapping[str, FuncOp]
    kernels: Mapping[str, tile.KernelOp]
    costs: Costs
    machine: Machine
    room: int
    """Bytes of device memory that arguments and constants leave."""
    known: dict[str, tuple[float, bool]] = field(default_factory=dict)

    def unit(self, op: Operation) -> Unit:
        host = self.machine.host
        if isinstance(op, HostOp):
            link = host.pcie_bytes_per_us
            brought = sum(bytes_of(v.type) for v in dict.fromkeys(op.inputs)) / link
            called = host.call_us + example(op.host_bytes()) / host.compute_bytes_per_us
            taken = sum(bytes_of(v.type) for v in op.outputs if not only_for_host(v)) / link
            return Unit([(COPY_OUT, brought), (HOST, called), (COPY_IN, taken)])
        if isinstance(op, ToHostOp):
            return Unit([(COPY_OUT, host.call_us + bytes_of(op.x.type) / host.pcie_bytes_per_us)])
        if isinstance(op, FusionOp) and op.on_host:
            return Unit([(PROGRAM, op.flops() * host.scalar_us)])
        taken, whole = self.time(op)
        return Unit([(COMPUTE, taken)], whole=whole)

    def time(self, op: Operation) -> tuple[float, bool]:
        """Microseconds of an op with all that is in it, one command after the other, and whether it has work for other
        queues than that of the kernels. A loop whose rounds nobody knows counts as one."""
        name = callee_of(op)
        if name is not None:
            if name not in self.known:
                self.known[name] = self.sum(self.functions[name].body.block)
            return self.known[name]
        if isinstance(op, WhileOp):
            (one, first), (body, second) = (self.sum(r.block) for r in op.regions)
            rounds = 1 if op.trip_count is None else example(integer(op.trip_count))
            return rounds * (one + body), first or second or op.trip_count is None
        if isinstance(op, CaseOp):
            found = [self.sum(r.block) for r in op.branches]
            return max(us for us, _ in found), any(whole for _, whole in found)
        known = self.costs(op)
        return self.machine.launch_microseconds(1) if known is None else known, False

    def sum(self, block: Block) -> tuple[float, bool]:
        units = [self.unit(op) for op in block.ops if not isinstance(op, FREE) and op is not block.last_op]
        others = any(queue not in (COMPUTE, PROGRAM) for unit in units for queue, _ in unit.legs)
        return sum(unit.microseconds for unit in units), others or any(unit.whole for unit in units)

    def workspaces(self, op: tile.LaunchOp) -> int:
        """Bytes of device memory that only a launch itself uses."""
        kernel = self.kernels[op.callee.root_reference.data]
        n = integer(kernel.workspaces)
        return example(sum(gm(a).bytes for a in kernel.body.block.args[-n:])) if n else 0


def only_for_host(value: SSAValue) -> bool:
    """Whether a result of the host never goes to the device."""
    return all(isinstance(use.operation, HostOp | ToHostOp) for use in value.uses)


def used(op: Operation) -> Iterator[SSAValue]:
    """What an op and the ops inside it use; of a fusion, which is closed, its inputs."""
    yield from op.operands
    if not isinstance(op, FusionOp):
        for region in op.regions:
            for inner in region.block.ops:
                yield from used(inner)


def base(value: SSAValue) -> SSAValue:
    """The value whose memory one of another shape shows."""
    while isinstance(value.owner, ReshapeOp | graph.ViewOp):
        value = value.owner.x
    return value


def uses_of(value: SSAValue, shapes: tuple[type[Operation], ...] = FREE) -> Iterator[Use]:
    """The uses of a value, and of other values that ops of these classes make of its memory."""
    for use in value.uses:
        if isinstance(use.operation, shapes):
            for result in use.operation.results:
                yield from uses_of(result, shapes)
        else:
            yield use


class Ordering:
    """Orders one block. `owned`: its arguments whose memory is the block's to use."""

    def __init__(self, block: Block, times: Times, owned: Sequence[SSAValue], timed: bool = True) -> None:
        """timed: whether it is known how long units take; without, they have no legs."""
        self.block, self.times = block, times
        loop = block.parent_op()
        self.loop = loop if isinstance(loop, WhileOp) and block is loop.body.block else None
        self.owned = list(block.args) if self.loop is not None else list(owned)
        self.ops = [op for op in block.ops if not isinstance(op, FREE) and op is not block.last_op]
        self.place = {op: i for i, op in enumerate(self.ops)}
        self.units = [times.unit(op) if timed else Unit([]) for op in self.ops]
        self.users: dict[SSAValue, list[int]] = {}
        """The units that use the memory of a value, in order; the block's end counts as one more."""
        self.tensors: dict[SSAValue, TensorLife] = {}
        self.on_host: set[SSAValue] = set()

    def run(self) -> None:
        """Puts the ops of a block that calls the host in the order in which they end first."""
        last = self.prepare()
        start = self.settled()
        self.put(arrange(self.units, self.lives(), start, self.times.room), last)

    def lower_peak(self) -> None:
        """Puts the ops in an order in which less is live at one time, where there is one."""
        last = self.prepare()
        self.put(least_peak(OrderProblem.of(self.units, self.lives())), last)

    def put(self, order: Sequence[int], last: Operation) -> None:
        if list(order) != list(range(len(order))):
            self.rebuild([self.ops[i] for i in order], last)

    def prepare(self) -> Operation:
        """Finds what the units need of each other, and the memory of values; the end of the block."""
        last = self.block.last_op
        assert last is not None
        for i, op in enumerate([*self.ops, last]):
            for value in dict.fromkeys(map(base, used(op))):
                self.users.setdefault(value, []).append(i)
        for i, op in enumerate(self.ops):
            self.depend(i, op)
        for value in self.owned:
            self.tensor(value, -1)
        for i, op in enumerate(self.ops):
            self.keep(i, op)
        self.settle(last)
        return last

    # -- what must stay in order -------------------------------------------------------------------------------

    def depend(self, i: int, op: Operation) -> None:
        """A unit comes behind those that make what it uses; numbers of the host are there before it is given away."""
        unit = self.units[i]
        for value in map(base, used(op)):
            maker = self.place.get(value.owner) if isinstance(value.owner, Operation) else None
            if maker is not None:
                unit.needs.add(maker)
                if value in self.on_host and not isinstance(op, HostOp | ToHostOp):
                    unit.at_issue.add(maker)
        if isinstance(op, ToHostOp) or (isinstance(op, FusionOp) and op.on_host):
            self.on_host.update(op.results)
        elif isinstance(op, WhileOp | CaseOp):
            self.on_host.update(op.results[k] for k in to_ints(op.host))

    def keep(self, i: int, op: Operation) -> None:
        """Gives results memory; that of what they update where nobody needs it behind the update. Then all who read it
        before still do."""
        taken = self.updates(op)
        for result in op.results:
            if result in self.on_host or (isinstance(op, HostOp) and only_for_host(result)):
                continue
            old = self.tensors.get(base(taken[result])) if result in taken else None
            if old is not None and max(old.users, default=-1) <= i:
                self.behind(old, i)
                self.tensors[result] = old
                old.users.update(self.users.get(result, ()))
            else:
                self.tensor(result, i)

    def updates(self, op: Operation) -> dict[SSAValue, SSAValue]:
        """The results of an op that start as one of its operands."""
        if isinstance(op, tile.LaunchOp):
            pairs = zip(op.outputs, to_ints(op.inits), strict=True)
            return {r: op.arguments[k] for r, k in pairs if k >= 0}
        if isinstance(op, WhileOp):
            return dict(zip(op.results, op.inits, strict=True))
        return {}

    def tensor(self, value: SSAValue, maker: int) -> None:
        align = self.times.machine.gm_align
        needed = -(-bytes_of(value.type) // align) * align
        self.tensors[value] = TensorLife(needed, maker, set(self.users.get(value, ())))

    def behind(self, old: TensorLife, i: int) -> None:
        """Unit i overwrites what others use before it."""
        self.units[i].needs.update(old.users - {i})

    def settle(self, last: Operation) -> None:
        """Results end up in memory that is given: a loop's next value where the present one is, a function's result
        where a donated argument was. They may be made there as long as nobody needs what it holds."""
        pairs: list[tuple[SSAValue, SSAValue]]
        if self.loop is not None:
            pairs = list(zip(self.owned, last.operands, strict=True))
        else:
            pairs = [
                (home, value) for value in last.operands for home in self.owned if home.type == value.type
            ]
        for home, value in pairs:
            readers = self.tensors[home].users
            end: SSAValue | None = value
            while end is not None and (maker := self.maker(end)) is not None:
                if max(readers, default=-1) <= maker:
                    self.units[maker].needs.update(readers - {maker})
                end = self.updates(self.ops[maker]).get(base(end))

    def maker(self, value: SSAValue) -> int | None:
        owner = base(value).owner
        return self.place.get(owner) if isinstance(owner, Operation) else None

    # -- the numbers -------------------------------------------------------------------------------------------

    def settled(self) -> dict[str, float] | None:
        """When queues are free as a round of a loop begins, and what it has from the round before is there: as after
        one round in the order of the program. None where there are no rounds."""
        if self.loop is None:
            return None
        once = run(self.units, range(len(self.units)), None)
        last = self.block.last_op
        assert last is not None
        for argument, value in zip(self.block.args, last.operands, strict=True):
            maker = self.maker(value)
            if maker is not None:
                for i in self.users.get(argument, ()):
                    if i < len(self.units):
                        self.units[i].ready = max(self.units[i].ready, once.ends[maker])
        return once.free

    def lives(self) -> list[TensorLife]:
        """The tensors that share memory: none in a loop or branch, where all have memory of their own."""
        if self.block.parent_op() is None or not isinstance(self.block.parent_op(), FuncOp):
            return []
        for op, unit in zip(self.ops, self.units, strict=True):
            unit.bytes = self.alone(op)
        found = list({id(t): t for t in self.tensors.values()}.values())
        behind = len(self.units)
        for t in found:
            t.kept = behind in t.users
            t.users.discard(behind)
        return found

    def alone(self, op: Operation) -> int:
        """Bytes of device memory that are needed only while an op runs."""
        if isinstance(op, tile.LaunchOp):
            return self.times.workspaces(op)
        inner = (
            []
            if isinstance(op, FusionOp)
            else [o for r in op.regions for b in blocks_of(r.block) for o in b.ops]
        )
        made = sum(
            bytes_of(r.type) for o in inner if isinstance(o, tile.LaunchOp | HostOp) for r in o.results
        )
        return made + sum(self.times.workspaces(o) for o in inner if isinstance(o, tile.LaunchOp))

    def rebuild(self, order: Sequence[Operation], last: Operation) -> None:
        """Puts the ops in order; what only names memory goes right before its first use, and behind all if it has
        none."""
        done: list[Operation] = []
        placed: set[Operation] = set()

        def put(op: Operation) -> None:
            for value in used(op):
                owner = value.owner
                if isinstance(owner, FREE) and owner.parent is self.block and owner not in placed:
                    put(owner)
            placed.add(op)
            done.append(op)

        for op in (*order, last):
            put(op)
        unused = [op for op in self.block.ops if op not in placed]
        for op in list(self.block.ops):
            op.detach()
        *before, end = done
        self.block.add_ops([*before, *unused, end])
