"""tile-inline: recomputation of producers. Kernels make small rows that they read themselves, so that nothing has to
wait for these.

Before:  %s = tile.launch @reduce_0 %x ; %y = tile.launch @contract_0 %s, %w
After:   %y = tile.launch @contract_0 %w, %x

What one core makes in a moment, as the norm of a row or the sum of parts of sums, is a launch of its own, or a stage
behind a barrier. Where all kernels that wait for it can make it themselves (recomputed_rows.py), each core of theirs
does, if that is judged to take less (recompute_judge.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import FloatAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue, Use

from ...dialects import tile
from ...dialects.base import ints, text, to_ints
from ...dialects.graph import ReshapeOp, WhileOp
from ...dialects.graph.donation import donated
from ...dialects.open_sizes import choosing
from ...machine import Machine
from ..alternatives import JOIN, RECOMPUTE
from ..base import ChoosingPass
from ..npu.program import misfit_of
from ..plans import plan_as
from ..program.partition import blocks_of
from ..reasons import say_apart
from .launch_order import MICROSECONDS, base, uses_of
from .recompute_judge import RecomputeJudge, RecomputeStage, launches_around
from .recomputed_rows import RowToRecompute, inputs_of, with_recomputed_rows
from .row_producers import RowProducer, has_open_sizes, readings_of, row_producer_of


@dataclass(frozen=True)
class TileInlinePass(ChoosingPass):
    """Makes rows where they are read."""

    name = "tile-inline"

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        if not self.may(RECOMPUTE):
            return
        with choosing():  # of kernels with open sizes it is only judged how long they take
            recomputation = _Recomputation(module, RecomputeJudge(machine, self.may(JOIN)))
            for func in list(module.ops):
                if isinstance(func, FuncOp) and func.body.blocks:
                    for block in blocks_of(func.body.block):
                        recomputation.block(block)
            recomputation.sweep()


MADE_HERE = "what makes the rows that it no longer reads stands in front, where tile-inline put it"
"""What the plans of kernels say that make rows themselves."""

Rows = Mapping[int, tuple[int, ...]]
"""The results of a launch that another one reads as rows, by their numbers, with those of the inputs that are each."""


@dataclass(frozen=True)
class _Recomputed:
    """A kernel that makes rows itself, and by how many microseconds each of its cores works longer."""

    kernel: tile.KernelOp
    longer: float


@dataclass
class _Recomputation:
    module: ModuleOp
    judge: RecomputeJudge
    kernels: dict[str, tile.KernelOp] = field(init=False)
    producers: dict[tuple[str, int], RowProducer | None] = field(default_factory=dict)
    known: dict[tuple[str, str, tuple[tuple[int, tuple[int, ...]], ...]], _Recomputed | None] = field(
        default_factory=dict
    )
    like: dict[str, str] = field(default_factory=dict)
    """The kernel that each one that makes rows itself was made of."""
    closed: dict[str, bool] = field(default_factory=dict)
    """Whether each kernel has no open sizes."""
    left: set[str] = field(default_factory=set)
    """Kernels of launches that are no more."""
    depths: dict[tile.LaunchOp, int] = field(default_factory=dict)
    """How many launches of a block run one after the other up to each, where those before it are done with."""
    now: dict[tile.LaunchOp, tile.LaunchOp] = field(default_factory=dict)
    """What is launched in the place of launches that are no more."""

    def __post_init__(self) -> None:
        self.kernels = {text(op.sym_name): op for op in self.module.ops if isinstance(op, tile.KernelOp)}

    # -- the walk ------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        launches = [op for op in block.ops if isinstance(op, tile.LaunchOp) and self.is_whole(op)]
        self.depths, self.now = {}, {}
        for op in launches:
            self.depths[op] = self.depth(op)
        for op in launches:
            while op in self.now:
                op = self.now[op]
            self.launch(op)

    def launch(self, op: tile.LaunchOp) -> None:
        """Lets others make the results of a launch, and those of the launches that these then wait for."""
        block = op.parent
        if block is None or op not in self.depths:
            return
        self.depths[op] = self.depth(op)
        if not self.rows(op):
            return
        makers = list(dict.fromkeys(map(_maker, op.arguments)))
        if not any(use for result in op.outputs for use in readers_of(result)):
            self.drop(op)
        for maker in makers:
            if isinstance(maker, tile.LaunchOp) and maker.parent is block:
                self.launch(maker)

    def is_whole(self, op: tile.LaunchOp) -> bool:
        """Whether a launch gives its kernel what that takes: what it lacks is for tile-to-npu to say. And whether the
        kernel has no open sizes."""
        name = _callee(op)
        kernel = self.kernels.get(name)
        if kernel is None:
            return False
        if name not in self.closed:
            self.closed[name] = not has_open_sizes(kernel)
        return self.closed[name] and misfit_of(op, kernel) is None

    def depth(self, op: tile.LaunchOp) -> int:
        """How many launches run one after the other up to this one."""
        makers = (_maker(v) for v in op.arguments)
        return 1 + max((self.depths.get(m, 0) for m in makers if isinstance(m, tile.LaunchOp)), default=0)

    def rows(self, maker: tile.LaunchOp) -> bool:
        """Lets the launches that wait for results of one make these themselves, if that takes less than to wait;
        whether they do. What waits for something that is made later reads them as before."""
        if maker.again is not None or any(i >= 0 for i in to_ints(maker.inits)):
            return False
        readers = self.readers(maker)
        made: dict[tile.LaunchOp, _Recomputed] = {}
        for reader, rows in (readers or {}).items():
            recomputed = self.recomputed(_callee(maker), _callee(reader), rows)
            if recomputed is None:
                why = "it does more with it than to load runs of it, or has no room for it on chip"
                say_apart(maker, reader, why, rows, "not recomputed")
                return False
            made[reader] = recomputed
        if readers is None or not made:
            return False
        if any(_is_overwritten(v) for reader in made for v in self.given(maker, readers[reader])):
            return False  # it would be copied before, or what comes after it would not take its place
        before, after = (self.judge.microseconds(stages) for stages in self.stages(maker, readers, made))
        if after >= before:
            around = f"the launches around take {after:.1f} us then, and {before:.1f} as they are"
            for reader, recomputed in made.items():
                why = f"its cores would work {recomputed.longer:.1f} us longer: {around}"
                say_apart(maker, reader, why, readers[reader], "not recomputed")
            return False
        for reader, recomputed in made.items():
            self.keep(recomputed.kernel, _callee(reader))
            self.replace(reader, readers[reader], maker, recomputed.kernel)
        return True

    def readers(self, maker: tile.LaunchOp) -> dict[tile.LaunchOp, Rows] | None:
        """The launches that wait for a launch and for nothing that is made later, and which rows of its results they
        read; None where something else of the block waits for it, or needs a result that is no row."""
        found: dict[tile.LaunchOp, dict[int, list[int]]] = {}
        for number, result in enumerate(maker.outputs):
            for use in readers_of(result):
                op, index = use.operation, use.index
                if op.parent is not maker.parent or not isinstance(op, tile.LaunchOp):
                    if op.parent is maker.parent and op.next_op is None:
                        continue  # what the block gives
                    return None
                if self.depth(op) > self.depths[maker] + 1:
                    continue
                if op not in self.depths or op.again is not None or index in to_ints(op.inits):
                    return None
                if self.producer(_callee(maker), number) is None:
                    return None
                found.setdefault(op, {}).setdefault(number, []).append(op.input_numbers().index(index))
        return {op: {n: tuple(sorted(inputs)) for n, inputs in rows.items()} for op, rows in found.items()}

    def stages(
        self,
        maker: tile.LaunchOp,
        readers: Mapping[tile.LaunchOp, Rows],
        made: Mapping[tile.LaunchOp, _Recomputed],
    ) -> tuple[list[RecomputeStage], list[RecomputeStage]]:
        """The launches around one, as they are and where those that wait for it make its rows themselves."""
        stays = any(use.operation not in made for result in maker.outputs for use in readers_of(result))
        before: list[RecomputeStage] = []
        after: list[RecomputeStage] = []
        parted = False
        for op, first in launches_around(maker, list(made)):
            kernel = self.kernels.get(_callee(op))
            if kernel is None:
                continue
            reads, writes = frozenset(map(base, op.arguments)), frozenset(op.outputs)
            stage = RecomputeStage(
                self.judge.occupancy(kernel), self.judge.work(kernel) or 0.0, first, reads, writes
            )
            before.append(stage)
            if op is maker and not stays:
                parted = first
                continue
            if op in made:
                reads = (reads - set(maker.outputs)) | frozenset(map(base, self.given(maker, readers[op])))
                stage = stage._replace(work=stage.work + made[op].longer, reads=reads)
            after.append(stage._replace(first=first or parted))
            parted = False
        return before, after

    # -- kernels -------------------------------------------------------------------------------------------------

    def producer(self, maker: str, number: int) -> RowProducer | None:
        """How a kernel makes a result that is a row; None where it is none."""
        key = maker, number
        if key not in self.producers:
            self.producers[key] = row_producer_of(self.kernels[maker], number)
        return self.producers[key]

    def recomputed(self, maker: str, reader: str, rows: Rows) -> _Recomputed | None:
        """A kernel like one that makes what it reads of another one itself; None where it cannot."""
        key = maker, reader, tuple(rows.items())
        if key not in self.known:
            self.known[key] = self._recomputed(maker, reader, rows)
        return self.known[key]

    def _recomputed(self, maker: str, reader: str, rows: Rows) -> _Recomputed | None:
        kernel, before = self.kernels[reader], self.judge.work(self.kernels[reader])
        if before is None:
            return None
        args, found = kernel.body.block.args[len(to_ints(kernel.grid)) :], list[RowToRecompute]()
        for number, inputs in rows.items():
            producer = self.producer(maker, number)
            assert producer is not None
            readings = readings_of(kernel, [args[i] for i in inputs], producer.extent)
            if readings is None:
                return None
            found.append(RowToRecompute(inputs, readings, producer))
        kernel = with_recomputed_rows(kernel, found)
        if kernel is None:
            return None
        work = self.judge.work(kernel)
        if work is None:
            return None
        taken = kernel.attributes.get(MICROSECONDS)
        if isinstance(taken, FloatAttr):
            kernel.attributes[MICROSECONDS] = FloatAttr(taken.value.data + max(work - before, 0.0), 64)
        return _Recomputed(kernel, work - before)

    def keep(self, kernel: tile.KernelOp, reader: str) -> None:
        """Gives a kernel that is launched a name and a place, behind the one that it is like."""
        if kernel.parent is None:
            stem, number = reader.rpartition("_")[0] or reader, 0
            while f"{stem}_{number}" in self.kernels:
                number += 1
            name = f"{stem}_{number}"
            kernel.sym_name = StringAttr(name)
            self.kernels[name] = kernel
            self.like[name] = reader
            plan_as(name, reader, MADE_HERE)
            self.module.body.block.insert_op_after(kernel, self.kernels[reader])

    # -- launches ------------------------------------------------------------------------------------------------

    def given(self, maker: tile.LaunchOp, rows: Rows) -> list[SSAValue]:
        """What rows are made of, among the operands of a launch that makes them."""
        name = _callee(maker)
        producers = [producer for number in rows if (producer := self.producer(name, number)) is not None]
        first = len(to_ints(self.kernels[name].grid))
        return [maker.arguments[a.index - first] for a in inputs_of(producers)]

    def replace(self, reader: tile.LaunchOp, rows: Rows, maker: tile.LaunchOp, kernel: tile.KernelOp) -> None:
        """Launches a kernel that makes rows itself in the place of one that reads them."""
        numbers = reader.input_numbers()
        gone = {numbers[i] for inputs in rows.values() for i in inputs}
        kept = [i for i in range(len(reader.arguments)) if i not in gone]
        new = tile.LaunchOp.create(
            operands=[*(reader.arguments[i] for i in kept), *self.given(maker, rows)],
            result_types=list(reader.result_types),
            properties={
                "callee": SymbolRefAttr(text(kernel.sym_name)),
                "inits": ints([i if i < 0 else kept.index(i) for i in to_ints(reader.inits)]),
            },
            location=reader.location,
        )
        block = reader.parent
        assert block is not None
        block.insert_op_before(new, reader)
        self.depths[new] = self.depth(new)
        self.now[reader] = new
        for old, result in zip(reader.outputs, new.outputs, strict=True):
            result.name_hint = old.name_hint
            old.replace_all_uses_with(result)
        self.drop(reader)

    def drop(self, op: tile.LaunchOp) -> None:
        """Takes away a launch whose results nothing needs, and what is only another shape of them."""
        self.left.add(_callee(op))
        for result in op.outputs:
            _drop_shapes(result)
        op.detach()
        op.erase()

    def sweep(self) -> None:
        """Takes away the kernels that are launched no more; one that is like them then has their name."""
        launches: dict[str, list[tile.LaunchOp]] = {}
        for op in self.module.walk():
            if isinstance(op, tile.LaunchOp):
                launches.setdefault(_callee(op), []).append(op)
        for name in self.left - set(launches):
            kernel = self.kernels.pop(name)
            kernel.detach()
            kernel.erase()
        for name in self.like:
            first = name
            while first in self.like:
                first = self.like[first]
            if name in self.kernels and first not in self.kernels:
                kernel = self.kernels[first] = self.kernels.pop(name)
                kernel.sym_name = StringAttr(first)
                plan_as(first, name, MADE_HERE)
                for op in launches[name]:
                    op.callee = SymbolRefAttr(first)


def readers_of(value: SSAValue) -> Iterator[Use]:
    """The uses of a value, and of it in other shapes."""
    return uses_of(value, (ReshapeOp,))


def _is_overwritten(value: SSAValue) -> bool:
    """Whether a launch writes over a tensor, or may: over an argument that is donated, or that a loop carries and gives
    another value."""
    tensor = base(value)
    for use in readers_of(tensor):
        if isinstance(use.operation, tile.LaunchOp) and use.index in to_ints(use.operation.inits):
            return True
    if not isinstance(tensor, BlockArgument):
        return False
    around = tensor.block.parent_op()
    if isinstance(around, FuncOp):
        return donated(around)[tensor.index]
    last = tensor.block.last_op
    if not isinstance(around, WhileOp) or last is None or tensor.block is not around.body.block:
        return False
    return tensor.index >= len(last.operands) or last.operands[tensor.index] is not tensor


def _drop_shapes(value: SSAValue) -> None:
    for use in list(value.uses):
        op = use.operation
        assert isinstance(op, ReshapeOp)
        _drop_shapes(op.result)
        op.detach()
        op.erase()


def _maker(value: SSAValue) -> Operation | Block:
    """What makes a value, or the value of which it is another shape."""
    return base(value).owner


def _callee(op: tile.LaunchOp) -> str:
    return op.callee.root_reference.data
