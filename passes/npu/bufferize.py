"""tile-to-npu: tiles become buffers, tile ops become instructions that fill them, and the program that launches
kernels works on tensors in device memory.

Before:  %a = tile.load %x at [%k * 64] {sizes = [...]} : (!npu.gm<...>) -> !tile.tile<128x64xf32, l1>
After:   %buf = npu.alloc : !npu.buffer<128x64xf32, l1, 2 slots>          (at the top of the section)
         %a = npu.slot %buf at [%k]
         npu.load_nd2nz %x, %a at [%k * 64] {sizes = [...]}

A value that crosses pipes gets as many slots as the kernel's schedule says; an accumulator that a loop carries
stays in one buffer; everything else is a temporary of the vector unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects import npu, tile
from ...dialects.base import INDEX, Expr, describe, integer, pack, to_ints
from ...dialects.module import machine_of
from ...dialects.npu import BufferType, structure
from ...dialects.tile import TileOp, TileType, tile_type
from ...dialects.tile.structure import SPACE_ORDER
from ...machine import Machine
from ..base import LevelPass
from ..errors import PassError
from .apart import is_mixed, taken_apart
from .loops import trip_count
from .program import lower_program

LOADS = {"l1": npu.LoadNd2NzOp, "ub": npu.LoadNdOp}
SLOTS = "slots"
"""The property of a tile op that says how many buffers its result has."""

STORES = {"l0c": npu.FixpipeOp, "ub": npu.StoreNdOp}


@dataclass(frozen=True)
class TileToNpuPass(LevelPass):
    """Bufferizes kernels and the program around them."""

    name = "tile-to-npu"

    def run(self, module: ModuleOp) -> None:
        kernels = [kernel for kernel in module.ops if isinstance(kernel, tile.KernelOp)]
        machine = machine_of(module)
        lower_program(module)
        for kernel in kernels:
            module.body.block.insert_op_before(bufferize_kernel(kernel, machine), kernel)
            kernel.detach()
            kernel.erase()


def bufferize_kernel(kernel: tile.KernelOp, machine: Machine | None) -> structure.KernelOp:
    """The npu kernel of a tile kernel. Raises PassError for a mixed section where no machine is known."""
    source = kernel.body.block
    target = Block(arg_types=[a.type for a in source.args])
    env: dict[SSAValue, SSAValue] = dict(zip(source.args, target.args, strict=True))
    slots: dict[str, int] = dict(zip(SPACE_ORDER, to_ints(kernel.slots), strict=True))
    for op in source.ops:
        if isinstance(op, tile.SectionOp):
            if is_mixed(op) and machine is None:
                raise PassError(
                    f"{describe(op)} is for cores of two kinds: the module must say for which machine it is"
                )
            parts = [op] if machine is None else taken_apart(op, machine)
            for part in parts:
                target.add_op(Bufferizer(part, env, slots).run())
                if part is not op:
                    part.erase()
        else:
            target.add_op(_clone(op, env))
    return structure.KernelOp.create(
        properties={k: v for k, v in kernel.properties.items() if k != "slots"},
        regions=[Region(target)],
        location=kernel.location,
    )


def _clone(op: Operation, env: dict[SSAValue, SSAValue]) -> Operation:
    if isinstance(op, tile.ViewOp):
        new: Operation = npu.ViewOp.create(
            operands=[env[op.source]], result_types=[op.result.type], location=op.location
        )
    elif isinstance(op, tile.SizeOp):
        new = npu.SizeOp.of(op.number)
    elif isinstance(op, ConstantOp):
        new = ConstantOp.create(
            result_types=[op.result.type], properties=dict(op.properties), location=op.location
        )
    else:
        raise PassError(f"{describe(op)} cannot stand outside the sections of a kernel")
    env.update(zip(op.results, new.results, strict=True))
    return new


class Bufferizer:
    """Bufferizes one section."""

    def __init__(self, section: tile.SectionOp, env: dict[SSAValue, SSAValue], slots: dict[str, int]):
        self.section = section
        self.env = env
        self.slots = slots
        self.top = Block(arg_types=[INDEX])
        self.allocs: list[Operation] = []
        self.block = self.top
        self.loops: list[tuple[SSAValue, int]] = []
        self.wanted: dict[SSAValue, SSAValue] = {}
        """Buffers that values must be computed into: those a loop carries."""

    def run(self) -> structure.SectionOp:
        body = self.section.body.block
        self.env[body.args[0]] = self.top.args[0]
        self.ops(body)
        first = self.top.first_op
        for op in self.allocs:
            if first is None:
                self.top.add_op(op)
            else:
                self.top.insert_op_before(op, first)
        return structure.SectionOp.create(
            properties=dict(self.section.properties),
            regions=[Region(self.top)],
            location=self.section.location,
        )

    def add(self, op: Operation) -> None:
        self.block.add_op(op)

    def ops(self, block: Block) -> None:
        for op in block.ops:
            if isinstance(op, ForOp):
                self.loop(op)
            elif isinstance(op, tile.LoadOp):
                space = tile_type(op.result).space
                dest = self.buffer(op.result)
                # rows of numbers are not matrices, which l1 has in fractals
                row = any(isinstance(u.operation, tile.MoveRowOp) for u in op.result.uses)
                self.instruction(npu.LoadNdOp if row else LOADS[space], op, [self.env[op.source], dest])
            elif isinstance(op, tile.StoreOp):
                space = tile_type(op.source).space
                self.instruction(STORES[space], op, [self.env[v] for v in op.main_operands()])
            elif isinstance(op, tile.ZeroOp):
                self.buffer(op.result)
            elif isinstance(op, tile.MmaOp):
                acc = self.env[op.acc]
                self.env[op.result] = acc
                others = [self.env[v] for v in op.main_operands()[3:]]
                self.instruction(npu.MmadOp, op, [self.env[op.a], self.env[op.b], acc, *others])
            elif isinstance(op, tile.ScalarOp):
                new = npu.LoadScalarOp.create(
                    operands=[self.env[v] for v in op.operands],
                    result_types=[INDEX],
                    properties=dict(op.properties),
                    location=op.location,
                )
                self.add(new)
                self.env[op.result] = new.result
            elif isinstance(op, TileOp) and op.INSTRUCTION is not None:
                sources = [self.env[v] for v in op.main_operands()]
                if isinstance(op, tile.ElementwiseTileOp) and op.in_place:
                    self._take_place(op)
                    dests = [self.env[op.results[0]]]
                else:
                    dests = [self.buffer(r) for r in op.results]
                self.instruction(op.INSTRUCTION, op, [*sources, *dests])
            elif isinstance(op, YieldOp):
                self._check_yield(op)
            else:
                raise PassError(f"{describe(op)} has no counterpart at the npu level")

    def _take_place(self, op: tile.ElementwiseTileOp) -> None:
        """Gives a result the buffer of the first operand. Raises PassError where that is needed afterwards."""
        operand, result = op.operands[0], op.results[0]
        later = [
            use.operation
            for use in operand.uses
            if use.operation is not op
            and not (use.operation.parent is op.parent and use.operation.is_before_in_block(op))
        ]
        made = operand.owner.parent if isinstance(operand.owner, TileOp) else operand.owner
        if later or made is not op.parent:
            raise PassError(f"{describe(op)} writes over a tile that something else uses later or brings")
        if result in self.wanted and self.wanted[result] is not self.env[operand]:
            raise PassError(f"{describe(op)} writes over a tile, and a loop carries its result elsewhere")
        self.env[result] = self.env[operand]

    def instruction(self, cls: type[Operation], op: TileOp, operands: Sequence[SSAValue]) -> None:
        indices = [self.env[v] for v in op.index_operands()]
        self.add(
            cls.create(
                operands=[*operands, *indices],
                properties={k: v for k, v in op.properties.items() if k != SLOTS},
                location=op.location,
            )
        )

    def _check_yield(self, op: YieldOp) -> None:
        for value in op.operands:
            if self.env[value] is not self.wanted.get(value, self.env[value]):
                raise PassError(f"{describe(op)} carries a tile that could not be updated in place")

    def loop(self, op: ForOp) -> None:
        body = op.body.block
        trips = trip_count(op)
        block = Block(arg_types=[INDEX])
        self.env[body.args[0]] = block.args[0]
        last = body.last_op
        assert isinstance(last, YieldOp)
        for init, arg, result, value in zip(
            op.iter_args, body.args[1:], op.results, last.operands, strict=True
        ):
            carried = self.env[init]
            self.env[arg] = self.env[result] = carried
            self.wanted[value] = carried
        outer, self.block = self.block, block
        self.loops.append((block.args[0], trips))
        self.ops(body)
        self.loops.pop()
        self.add(YieldOp())
        self.block = outer
        self.add(
            ForOp.create(
                operands=[self.env[v] for v in (op.lb, op.ub, op.step)],
                regions=[Region(block)],
                location=op.location,
            )
        )

    def buffer(self, value: SSAValue) -> SSAValue:
        """The buffer `value` is computed into; made here unless a loop carries it."""
        if value in self.wanted:
            self.env[value] = self.wanted[value]
            return self.env[value]
        kind = tile_type(value)
        # a chip's own memory feeds the vector unit as ub does, and has as many
        slots = self.slots.get(kind.space, self.slots["ub"])
        if isinstance(value.owner, tile.MoveRowOp):
            slots = 1 if value.owner.slots is None else integer(value.owner.slots)
        slots = slots if self.loops and crosses_pipes(value) else 1
        alloc = npu.AllocOp.create(
            result_types=[BufferType.of(kind.shape, kind.element, kind.space, slots)],
            location=value.owner.location if isinstance(value.owner, Operation) else None,
        )
        alloc.result.name_hint = value.name_hint
        self.allocs.append(alloc)
        found: SSAValue = alloc.result
        if slots > 1:
            counter, inner = Expr(), 1
            for index, trips in reversed(self.loops):
                counter = counter + Expr.of(index, inner)
                inner *= trips
            indices, rows = pack([counter])
            slot = npu.SlotOp.create(
                operands=[alloc.result, *indices],
                result_types=[BufferType.of(kind.shape, kind.element, kind.space)],
                properties={"offsets": rows},
            )
            self.add(slot)
            found = slot.result
        self.env[value] = found
        return found


def crosses_pipes(value: SSAValue) -> bool:
    """True for tiles that one pipe writes and another reads: loads, moves, accumulators and what is stored."""
    kind = value.type
    assert isinstance(kind, TileType)
    if kind.space != "ub" or isinstance(value.owner, tile.LoadOp | tile.LoadIndirectOp):
        return True
    return any(isinstance(u.operation, tile.StoreOp | tile.LoadIndirectOp) for u in value.uses)
