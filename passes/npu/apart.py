"""Takes a mixed section apart: what the cube core runs of it, and what the vector cores run, each in its order.

Before:  tile.section {core = "mixed", units = 2} {             After:  tile.section {core = "cube", units = 1} {
           scf.for %i ... iter_args(%sum = %zeros) {                      scf.for %i ... {
             %s = tile.mma ...; tile.store %s, %work                        %s = tile.mma ...; tile.store %s, %work
             %t = tile.load %work; %n = tile.add %sum, %t                 } }
             scf.yield %n                                               tile.section {core = "vector", units = 2} {
           } }                                                            scf.for %i ... iter_args(%sum = %zeros) {
                                                                            %t = tile.load %work; ... } }

A loop is in both, with the tiles that each carries, and in one alone where the other has nothing to do in it.
"""

from __future__ import annotations

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects import tile
from ...dialects.base import INDEX, integer, integer_attr, text
from ...dialects.npu.legality import MIXED
from ...dialects.tile import TileOp, TileType
from ...machine import Machine


def is_mixed(section: tile.SectionOp) -> bool:
    """Whether a section is what cores of two kinds run."""
    return text(section.core) == MIXED


def taken_apart(section: tile.SectionOp, machine: Machine) -> list[tile.SectionOp]:
    """The section of each kind of core; a section of one kind as it is."""
    if not is_mixed(section):
        return [section]
    return [_Part(section, core, machine).section() for core in machine.core_kinds]


class _Part:
    """What one kind of core runs of a mixed section."""

    def __init__(self, section: tile.SectionOp, core: str, machine: Machine) -> None:
        self.whole, self.core, self.machine = section, core, machine
        self.inside: dict[SSAValue, SSAValue] = {}

    def section(self) -> tile.SectionOp:
        body = self.whole.body.block
        block = Block(arg_types=[INDEX])
        self.inside[body.args[0]] = block.args[0]
        self.fill(body, block)
        units = integer(self.whole.units) if self.core == "vector" else 1
        return tile.SectionOp.create(
            properties={"core": StringAttr(self.core), "units": integer_attr(units)},
            regions=[Region(block)],
            location=self.whole.location,
        )

    def fill(self, source: Block, target: Block) -> None:
        for op in source.ops:
            if isinstance(op, ForOp):
                self.loop(op, target)
            elif not isinstance(op, YieldOp) and self.has(op):
                new = op.clone_without_regions(value_mapper=self.inside)
                new.location = op.location
                target.add_op(new)
                self.inside.update(zip(op.results, new.results, strict=True))

    def has(self, op: Operation) -> bool:
        """Whether it is this kind of core that runs an op."""
        return isinstance(op, ConstantOp) or (
            isinstance(op, TileOp) and op.core_in(self.machine) == self.core
        )

    def holds(self, value: SSAValue) -> bool:
        """Whether a tile lies on this kind of core."""
        assert isinstance(value.type, TileType)
        return self.machine.spaces[value.type.space].core == self.core

    def loop(self, op: ForOp, target: Block) -> None:
        kept = [i for i, value in enumerate(op.iter_args) if self.holds(value)]
        body, last = op.body.block, op.body.block.last_op
        assert isinstance(last, YieldOp)
        block = Block(arg_types=[INDEX, *(op.iter_args[i].type for i in kept)])
        self.inside[body.args[0]] = block.args[0]
        self.inside.update((body.args[1 + i], block.args[1 + n]) for n, i in enumerate(kept))
        self.fill(body, block)
        if block.first_op is None:
            return
        block.add_op(YieldOp(*(self.inside[last.operands[i]] for i in kept)))
        given = [self.inside.get(v, v) for v in (op.lb, op.ub, op.step, *(op.iter_args[i] for i in kept))]
        new = ForOp.create(
            operands=given,
            result_types=[op.results[i].type for i in kept],
            regions=[Region(block)],
            location=op.location,
        )
        target.add_op(new)
        self.inside.update((op.results[i], new.results[n]) for n, i in enumerate(kept))
