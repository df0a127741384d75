"""tile-inline: kernels make small rows that they read themselves, so that nothing has to wait for these.

Before:  %s = tile.launch @reduce_0 %x ; %y = tile.launch @contract_0 %s, %w
After:   %y = tile.launch @contract_1 %x, %w

What one core makes in a moment, as the norm of a row or the sum of parts of sums, is a launch of its own, or a stage
behind a barrier. Where all kernels that read it can make it themselves, each core of theirs does (own_rows.py), if that
is judged to take less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import FloatAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects import tile
from ...dialects.base import ints, text, to_ints
from ...dialects.graph import ReshapeOp
from ...dialects.npu.structure import SectionOp
from ...dialects.npu.waking import woken_by
from ...machine import Machine
from ..base import TargetPass
from ..errors import PassError
from ..npu.allocate import allocate_section
from ..npu.bufferize import bufferize_kernel
from ..npu.busy import work_microseconds
from .launch_order import MICROSECONDS
from .own_rows import Origin, alone, origin_of, readings_of, repeated


@dataclass(frozen=True)
class TileInlinePass(TargetPass):
    """Makes rows where they are read."""

    name = "tile-inline"
    inline: bool = True
    """Whether kernels make rows that they read themselves."""

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        if not self.inline:
            return
        inlining = _Inlining(module, machine)
        for func in list(module.ops):
            if isinstance(func, FuncOp):
                for block in _blocks(func):
                    inlining.block(block)
        inlining.sweep()


def _blocks(op: Operation) -> Iterator[Block]:
    """The blocks of an op and of all that is in it."""
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in block.ops:
                yield from _blocks(inner)


@dataclass(frozen=True)
class _Inlined:
    """A kernel that makes a row itself, and by how many microseconds each of its cores works longer."""

    kernel: tile.KernelOp
    longer: float


@dataclass
class _Inlining:
    module: ModuleOp
    machine: Machine
    kernels: dict[str, tile.KernelOp] = field(init=False)
    origins: dict[tuple[str, int], Origin | None] = field(default_factory=dict)
    works: dict[str, float | None] = field(default_factory=dict)
    known: dict[tuple[str, int, str, tuple[int, ...]], _Inlined | None] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    """Kernels of launches that are no more."""
    depths: dict[tile.LaunchOp, int] = field(default_factory=dict)
    """How many launches of a block run one after the other up to each, where those before it are done with."""
    now: dict[tile.LaunchOp, tile.LaunchOp] = field(default_factory=dict)
    """What is launched in the place of launches that are no more."""

    def __post_init__(self) -> None:
        self.kernels = {text(op.sym_name): op for op in self.module.ops if isinstance(op, tile.KernelOp)}

    def block(self, block: Block) -> None:
        launches = [op for op in block.ops if isinstance(op, tile.LaunchOp)]
        self.depths, self.now = {}, {}
        for op in launches:
            self.depths[op] = self.depth(op)
        for op in launches:
            self.launch(self.current(op))

    def launch(self, op: tile.LaunchOp) -> None:
        """Lets others make the results of a launch, and those of the launches that these then wait for."""
        block = op.parent
        if block is None or op.again is not None:
            return
        self.depths[op] = self.depth(op)
        read = [self.row(op, number) for number in range(len(op.outputs))]
        if not any(read):
            return
        makers = list(dict.fromkeys(map(_maker, op.arguments)))
        if not any(map(self.users, op.outputs)):
            self.drop(op)
        for maker in makers:
            if isinstance(maker, tile.LaunchOp) and maker.parent is block:
                self.launch(maker)

    def current(self, op: tile.LaunchOp) -> tile.LaunchOp:
        """What is launched now in the place of a launch."""
        while op in self.now:
            op = self.now[op]
        return op

    def depth(self, op: tile.LaunchOp) -> int:
        """How many launches run one after the other up to this one."""
        makers = (_maker(v) for v in op.arguments)
        return 1 + max((self.depths.get(m, 0) for m in makers if isinstance(m, tile.LaunchOp)), default=0)

    def row(self, maker: tile.LaunchOp, number: int) -> bool:
        """Lets the launches that wait for a result of one make it themselves, if that is less work than to wait for it;
        whether they do. What waits for something that is made later reads it as before."""
        name = _callee(maker)
        key = name, number
        if key not in self.origins:
            kernel = self.kernels.get(name)
            self.origins[key] = None if kernel is None else origin_of(kernel, number)
        origin = self.origins[key]
        if origin is None or any(i >= 0 for i in to_ints(maker.inits)):
            return False
        readers = self.readers(maker, maker.outputs[number])
        saved = self.work(name)
        if not readers or saved is None:
            return False
        made: dict[tile.LaunchOp, _Inlined] = {}
        waits: list[float] = []
        for reader, rows in readers.items():
            inlined = self.inlined(name, number, _callee(reader), rows)
            if inlined is None:
                return False
            made[reader] = inlined
            waits.append(self.wait(name, _callee(reader)))
        if sum(each.longer for each in made.values()) >= saved + min(waits):
            return False
        for reader, inlined in made.items():
            self.keep(inlined.kernel, _callee(reader))
            self.replace(reader, readers[reader], maker, origin, inlined.kernel)
        return True

    def users(self, value: SSAValue) -> list[tuple[Operation, int]]:
        """What uses a value or the same memory under another shape, with the numbers of the operands."""
        found: list[tuple[Operation, int]] = []
        for use in value.uses:
            op = use.operation
            found += self.users(op.result) if isinstance(op, ReshapeOp) else [(op, use.index)]
        return found

    def readers(self, maker: tile.LaunchOp, value: SSAValue) -> dict[tile.LaunchOp, tuple[int, ...]] | None:
        """The launches that wait for a value and for nothing that is made later, with the numbers of the inputs that
        are it; None where something else than launches of the same block waits for it, or one updates it."""
        found: dict[tile.LaunchOp, list[int]] = {}
        for op, index in self.users(value):
            if op.parent is not maker.parent:
                return None
            if not isinstance(op, tile.LaunchOp) or self.depth(op) > self.depths[maker] + 1:
                continue
            if index in to_ints(op.inits) or op.again is not None:
                return None
            found.setdefault(op, []).append(_inputs(op).index(index))
        return {op: tuple(sorted(inputs)) for op, inputs in found.items()}

    def inlined(self, maker: str, number: int, reader: str, rows: tuple[int, ...]) -> _Inlined | None:
        """A kernel that makes a result of another one itself, in the place of these inputs; None where it cannot."""
        key = maker, number, reader, rows
        if key not in self.known:
            self.known[key] = self._inlined(maker, number, reader, rows)
        return self.known[key]

    def keep(self, kernel: tile.KernelOp, reader: str) -> None:
        """Gives a kernel that is launched a name and a place, behind the one that it is like."""
        if kernel.parent is None:
            name = self.name(reader)
            kernel.sym_name = StringAttr(name)
            self.kernels[name] = kernel
            self.module.body.block.insert_op_after(kernel, self.kernels[reader])

    def _inlined(self, maker: str, number: int, reader: str, rows: tuple[int, ...]) -> _Inlined | None:
        kernel, origin, before = self.kernels.get(reader), self.origins[maker, number], self.work(reader)
        if kernel is None or origin is None or before is None:
            return None
        args = kernel.body.block.args[len(to_ints(kernel.grid)) :]
        readings = readings_of(kernel, [args[i] for i in rows], origin.extent)
        if readings is None or not origin.fits(readings.rank):
            return None
        made = repeated(kernel, rows, readings, origin)
        work = self._work(made)
        if work is None:
            return None
        taken = made.attributes.get(MICROSECONDS)
        if isinstance(taken, FloatAttr):
            made.attributes[MICROSECONDS] = FloatAttr(taken.value.data + max(work - before, 0.0), 64)
        return _Inlined(made, work - before)

    def name(self, reader: str) -> str:
        """The next name of a kernel of the same stem."""
        stem, number = reader.rpartition("_")[0] or reader, 0
        while f"{stem}_{number}" in self.kernels:
            number += 1
        return f"{stem}_{number}"

    def work(self, name: str) -> float | None:
        """Microseconds that each core of a kernel works; None where that is not known."""
        if name not in self.works:
            kernel = self.kernels.get(name)
            self.works[name] = None if kernel is None else self._work(kernel)
        return self.works[name]

    def _work(self, kernel: tile.KernelOp) -> float | None:
        """The same of a kernel of vector cores; None of another one, and where its tiles do not fit on chip."""
        if alone(kernel) is None:
            return None
        try:
            lowered = bufferize_kernel(kernel, self.machine)
            for section in lowered.sections():
                assert isinstance(section, SectionOp)
                allocate_section(section, lowered, self.machine)
            return work_microseconds(lowered, self.machine)
        except (PassError, KeyError):  # what the machine cannot run is for npu-check to say
            return None

    def wait(self, maker: str, reader: str) -> float:
        """Microseconds from the end of one kernel to the beginning of the next, in one launch or in two, at least."""
        first, second = (woken_by(self.kernels[name], self.machine) for name in (maker, reader))
        return min(first.launch_microseconds(self.machine), (first | second).barrier_microseconds(self.machine))

    def replace(
        self, reader: tile.LaunchOp, rows: Sequence[int], maker: tile.LaunchOp, origin: Origin, kernel: tile.KernelOp
    ) -> None:
        """Launches a kernel that makes a row itself in the place of one that reads it as these inputs."""
        gone = {_inputs(reader)[i] for i in rows}
        kept = [i for i in range(len(reader.arguments)) if i not in gone]
        first = len(to_ints(self.kernels[_callee(maker)].grid))
        operands = [reader.arguments[i] for i in kept] + [maker.arguments[a.index - first] for a in origin.inputs()]
        new = tile.LaunchOp.create(
            operands=operands,
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
        """Takes away the kernels that are launched no more."""
        launched = {_callee(op) for op in self.module.walk() if isinstance(op, tile.LaunchOp)}
        for name in self.left - launched:
            self.kernels[name].detach()
            self.kernels[name].erase()


def _drop_shapes(value: SSAValue) -> None:
    for use in list(value.uses):
        op = use.operation
        assert isinstance(op, ReshapeOp)
        _drop_shapes(op.result)
        op.detach()
        op.erase()


def _maker(value: SSAValue) -> Operation | Block:
    """What makes a value, or the value of which it is another shape."""
    while isinstance(value.owner, ReshapeOp):
        value = value.owner.x
    return value.owner


def _callee(op: tile.LaunchOp) -> str:
    return op.callee.root_reference.data


def _inputs(op: tile.LaunchOp) -> list[int]:
    """The numbers of the operands that are inputs of its kernel, in order."""
    begun = set(to_ints(op.inits))
    return [i for i in range(len(op.arguments)) if i not in begun]
