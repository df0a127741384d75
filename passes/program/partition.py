"""graph-partition: moves scalar control arithmetic to the host, which runs the control flow anyway.

Before:  %i = graph.while %c0 ... { %k = graph.add %i, %one ; %x = graph.dynamic_slice %xs, %k }
After:   %i = graph.while %c0 ... {host = [0]} { %k = graph.fusion %i {kind = "scalar"} { ... graph.add } ; ... }

Loop counters, conditions, indices of branches and starts of dynamic slices are numbers (tensors of rank 0). If
the host has all operands of a number, it computes the number between launches, in nanoseconds instead of a launch;
kernels get it as an argument. A number that the host needs and only the device has is read back once, after it is
computed: `graph.to_host`. The property `host` of loops and branches lists their numbers that never leave the host.
Finally neighbouring host ops are merged (host_calls.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from ...dialects.base import block_of, ints, to_ints
from ...dialects.graph import CaseOp, ConstantOp, FusionOp, GraphOp, ToHostOp, WhileOp, YieldOp
from ...dialects.graph.interface import shape_of
from ..base import LevelPass
from ..errors import PassError
from .host_calls import join_host_ops, refuse

HOST = ("allow", "forbid")


@dataclass(frozen=True)
class GraphPartitionPass(LevelPass):
    """Decides what the host computes on the way, and joins its calls. host: `allow`, or `forbid` for a program that may
    not call it."""

    name = "graph-partition"
    host: str = "allow"

    def run(self, module: ModuleOp) -> None:
        if self.host not in HOST:
            raise PassError(f"graph-partition: host={self.host} is not one of {', '.join(HOST)}")
        tops = [f.body.block for f in module.ops if isinstance(f, FuncOp) and f.body.blocks]
        for top in tops:
            partition(top)
        blocks = [block for top in tops for block in blocks_of(top)]
        if self.host == "forbid":
            refuse(blocks)
        for block in blocks:
            join_host_ops(block)


def partition(block: Block) -> None:
    """Partitions the program of a function. What is partitioned already stays as it is."""
    if not any(op.steering() or control(op) for inner in blocks_of(block) for op in graph_ops(inner)):
        return
    strict = Availability(loose=False)
    strict.block(block)
    loose = Availability(loose=True)
    loose.block(block)
    HostPartition(strict, loose).decide(block)


def blocks_of(block: Block) -> Iterator[Block]:
    """A block and those of the control flow in it, outermost first."""
    yield block
    for op in block.ops:
        if control(op):
            for region in op.regions:
                yield from blocks_of(region.block)


def control(op: Operation) -> bool:
    """Whether an op holds other parts of the program."""
    return bool(op.regions) and not isinstance(op, FusionOp)


def graph_ops(block: Block) -> Iterator[GraphOp]:
    return (op for op in block.ops if isinstance(op, GraphOp))


def is_scalar(value: SSAValue) -> bool:
    return not shape_of(value)


def computes(op: Operation) -> bool:
    """Whether an op is arithmetic on numbers."""
    given = isinstance(op, ConstantOp | ToHostOp | FusionOp)
    return isinstance(op, GraphOp) and not given and bool(op.results) and op.on_numbers()


@dataclass
class Availability:
    """Which numbers the host can have. loose: inside a loop it may also have what the device made before the loop,
    at one read for all iterations."""

    loose: bool
    values: set[SSAValue] = field(default_factory=set)
    carried: dict[WhileOp, set[int]] = field(default_factory=dict)
    inside: set[Block] | None = None
    """The blocks of the innermost loop."""

    def has(self, value: SSAValue) -> bool:
        if value in self.values:
            return True
        outer = self.loose and self.inside is not None and block_of(value) not in self.inside
        return outer and is_scalar(value)

    def block(self, block: Block) -> None:
        if self.inside is not None:
            self.inside.add(block)
        for op in block.ops:
            if isinstance(op, WhileOp):
                self._loop(op)
            elif isinstance(op, CaseOp):
                self._case(op)
            elif (
                isinstance(op, ToHostOp)
                or (isinstance(op, FusionOp) and op.on_host)
                or (isinstance(op, ConstantOp) and op.on_numbers())
                or (computes(op) and all(map(self.has, op.operands)))
            ):
                self.values.update(op.results)

    def _loop(self, op: WhileOp) -> None:
        """The carried numbers that follow from each other and from what is there: drop what does not, and look
        again."""
        found = {i for i, v in enumerate(op.inits) if is_scalar(v) and (self.loose or self.has(v))}
        before, around = self.values, self.inside
        while True:
            self.values, self.inside = set(before), set()
            for region in op.regions:
                self.values.update(region.block.args[i] for i in found)
                self.block(region.block)
            ends = op.yielded(1).values
            lost = {i for i in found if not self.has(ends[i])}
            if not lost:
                break
            found -= lost
        self.inside = around
        if around is not None:
            around.update(b for r in op.regions for b in blocks_of(r.block))
        self.carried[op] = found
        self.values.update(op.results[i] for i in found)

    def _case(self, op: CaseOp) -> None:
        for region in op.branches:
            self.block(region.block)
        ends = [op.yielded(i).values for i in range(len(op.branches))]
        for i, result in enumerate(op.results):
            if is_scalar(result) and all(self.has(values[i]) for values in ends):
                self.values.add(result)


class HostPartition:
    """Decides what the host computes, carries and reads, then rewrites."""

    def __init__(self, strict: Availability, loose: Availability):
        self.strict, self.loose = strict, loose
        self.computed: set[Operation] = set()
        self.kept: dict[WhileOp | CaseOp, set[int]] = {}
        """For loops and branches, the results that are numbers of the host."""
        self.read: dict[SSAValue, SSAValue] = {}
        """Numbers of the device that the host reads, and what it has then."""
        self.known: set[SSAValue] = set()

    def decide(self, block: Block) -> None:
        blocks = list(blocks_of(block))
        for inner in blocks:
            for op in inner.ops:
                if isinstance(op, WhileOp):
                    self.steer(op.yielded(0).values[0])
                    for i in self.strict.carried[op]:
                        self.keep(op, i)
                elif isinstance(op, CaseOp):
                    self.steer(op.index)
                    for i, result in enumerate(op.results):
                        if result in self.strict.values:
                            self.keep(op, i)
                elif isinstance(op, GraphOp):
                    if computes(op) and op.results[0] in self.strict.values:
                        self.want(op.results[0])
                    for value in op.steering():
                        if value in self.loose.values:
                            self.want(value)
        for inner in blocks:
            self.outline(inner)
        self.finish()

    # -- what the host needs -------------------------------------------------------------------------------

    def steer(self, value: SSAValue) -> None:
        """The host must have this number to go on. If it has to read it back, it may as well read what the number is
        computed from, as long as that is one number, too."""
        if self.loose.has(value) or len(self._sources(value)) == 1:
            self.want(value, pull=True)
        else:
            self.fetch(value)

    def _sources(self, value: SSAValue) -> set[SSAValue]:
        """The numbers of the device that `value` is computed from."""
        found: set[SSAValue] = set()
        pending = [value]
        while pending:
            value = pending.pop()
            if self.loose.has(value) or isinstance(value.owner, ConstantOp):
                continue
            if isinstance(value.owner, Operation) and computes(value.owner):
                pending += value.owner.operands
            else:
                found.add(value)
        return found

    def want(self, value: SSAValue, pull: bool = False) -> None:
        """The host needs a number: it computes it, carries it through a loop, or reads it."""
        pending = [value]
        while pending:
            value = pending.pop()
            if value in self.known:
                continue
            self.known.add(value)
            owner = value.owner
            if isinstance(owner, Operation) and computes(owner) and (pull or self.loose.has(value)):
                self.computed.add(owner)
                pending += owner.operands
            elif isinstance(value, OpResult) and isinstance(value.op, WhileOp | CaseOp):
                if value in self.loose.values:
                    self.keep(value.op, value.index)
                else:
                    self.fetch(value)
            elif isinstance(value, BlockArgument) and value in self.loose.values:
                loop = value.owner.parent_op()
                assert isinstance(loop, WhileOp)
                self.keep(loop, value.index)
            elif value not in self.strict.values:
                self.fetch(value)

    def keep(self, op: WhileOp | CaseOp, i: int) -> None:
        """Number `i` of a loop or branch stays with the host, and so does what it comes from."""
        kept = self.kept.setdefault(op, set())
        if i in kept:
            return
        kept.add(i)
        if isinstance(op, WhileOp):
            self.known.update((op.results[i], *(r.block.args[i] for r in op.regions)))
            self.want(op.inits[i])
            self.want(op.yielded(1).values[i])
        else:
            self.known.add(op.results[i])
            for branch in range(len(op.branches)):
                self.want(op.yielded(branch).values[i])

    def fetch(self, value: SSAValue) -> None:
        """Read a number of the device where it is made."""
        if value in self.read or value in self.strict.values:
            return
        block, owner = block_of(value), value.owner
        assert block is not None
        maker = owner if isinstance(owner, Operation) else block.parent_op()
        op = ToHostOp.create(operands=[value], result_types=[value.type])
        if maker is not None:
            op.location = maker.location
        if isinstance(owner, Operation):
            block.insert_op_after(op, owner)
        elif block.first_op is not None:
            block.insert_op_before(op, block.first_op)
        self.read[value] = op.result

    # -- rewriting -----------------------------------------------------------------------------------------

    def outline(self, block: Block) -> None:
        """The computed numbers of a block as scalar fusions: one at its beginning, and one behind each op that gives
        the host a number on the way."""
        number = {op: i for i, op in enumerate(block.ops)}
        after: dict[Operation, Operation | None] = {}
        groups: dict[Operation | None, list[Operation]] = {}

        def latest(value: SSAValue) -> Operation | None:
            value = self.read.get(value, value)
            owner = value.owner
            if isinstance(owner, Block) or owner.parent is not block or isinstance(owner, ConstantOp):
                return None
            return after[owner] if owner in self.computed else owner

        for op in list(block.ops):
            if op in self.computed:
                makers = [m for v in op.operands if (m := latest(v)) is not None]
                after[op] = max(makers, key=lambda m: number[m], default=None)
                groups.setdefault(after[op], []).append(op)
        for place, ops in groups.items():
            fusion = self._fusion(ops)
            if place is not None:
                block.insert_op_after(fusion, place)
            else:
                first = block.first_op
                assert first is not None
                block.insert_op_before(fusion, first)
            for op in reversed(ops):
                op.detach()
                op.erase()

    def _fusion(self, ops: Sequence[Operation]) -> FusionOp:
        inputs: dict[SSAValue, None] = {}
        made = {r for op in ops for r in op.results}
        for op in ops:
            for v in op.operands:
                if v not in made and not isinstance(v.owner, ConstantOp):
                    inputs[self.read.get(v, v)] = None
        block = Block(arg_types=[v.type for v in inputs])
        inside: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
        group = set(ops)
        for op in ops:
            operands: list[SSAValue] = []
            for v in op.operands:
                v = self.read.get(v, v)
                if v not in inside:
                    assert isinstance(v.owner, ConstantOp)
                    copy = v.owner.clone()
                    copy.result.name_hint = v.name_hint
                    block.add_op(copy)
                    inside[v] = copy.result
                operands.append(inside[v])
            new = type(op).create(
                operands=operands,
                result_types=list(op.result_types),
                properties=op.properties,
                location=op.location,
            )
            block.add_op(new)
            for old, result in zip(op.results, new.results, strict=True):
                result.name_hint = old.name_hint
                inside[old] = result
        outputs = [r for op in ops for r in op.results if any(use.operation not in group for use in r.uses)]
        block.add_op(YieldOp.create(operands=[inside[v] for v in outputs]))
        fusion = FusionOp.create(
            operands=list(inputs),
            result_types=[v.type for v in outputs],
            properties={"kind": StringAttr("scalar"), "domain": ints(())},
            regions=[Region(block)],
            location=ops[-1].location,
        )
        for old, new in zip(outputs, fusion.results, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        return fusion

    def finish(self) -> None:
        """Tells loops and branches what stays with the host, and gives them what was read for them."""
        for op, kept in self.kept.items():
            op.host = ints(sorted({*kept, *to_ints(op.host)}))
            ends = (
                [op.yielded(1)] if isinstance(op, WhileOp) else list(map(op.yielded, range(len(op.regions))))
            )
            for i in kept:
                if isinstance(op, WhileOp):
                    op.operands[i] = self.read.get(op.operands[i], op.operands[i])
                for end in ends:
                    end.operands[i] = self.read.get(end.operands[i], end.operands[i])
        for value, read in self.read.items():
            for use in list(value.uses):
                user = use.operation
                decides = isinstance(user, CaseOp) or (
                    isinstance(user, YieldOp)
                    and isinstance(loop := user.parent_op(), WhileOp)
                    and user.parent is loop.condition.block
                )
                if decides and use.operation is not read.owner:
                    user.operands[use.index] = read
