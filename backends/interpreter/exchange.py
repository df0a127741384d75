"""Runs sections that wait for each other: what a cube core and its vector cores do in turns, as one program.

Both sections have the loops in which they exchange tiles, and run them together. Between two signals, each core runs as
far as it can: the order of what one core does is its own, and that of signals is what the flags say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import prod
from typing import TYPE_CHECKING, Any

from jax import Array
from xdsl.dialects import scf
from xdsl.ir import Block, Operation
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe, integer
from ...dialects.npu.structure import SectionOp
from ..functions.loops import bounds
from ..functions.scope import Offset
from ..functions.turns import signals_of
from .grid import coordinates
from .liveness import perfect_nest
from .memory import Memory

if TYPE_CHECKING:
    from .kernel import CoreState, NpuKernel


@dataclass
class _Side:
    """One section, with the state of each core that runs it: several where its units are not run at once."""

    section: SectionOp
    cores: list[CoreState]


class Exchange:
    """One run of a kernel whose sections take turns, for the cores at one place of the grid."""

    def __init__(self, kernel: NpuKernel, sections: Sequence[SectionOp]) -> None:
        self.kernel = kernel
        self.sides = [_Side(section, self._cores(section)) for section in sections]
        self.signals = signals_of(kernel.kernel)

    def _cores(self, section: SectionOp) -> list[CoreState]:
        batched = section.body.block.args[0] in self.kernel.batch_of(section).counts
        units = 1 if batched else integer(section.units)
        unit = section.body.block.args[0]
        if not batched:
            self.kernel.scope.index.pop(unit, None)
        return [
            self.kernel.core_state(section, None if batched else (unit, Offset.known(i)))
            for i in range(units)
        ]

    def run(self) -> None:
        raised = [Counter(each.begin) for each in self.signals]
        self._blocks([side.section.body.block for side in self.sides], raised)

    def _blocks(self, blocks: Sequence[Block], raised: list[Counter[int]]) -> None:
        """Runs a block of each section. `raised`: the signals of each that the other has not taken."""
        left = [list(block.ops) for block in blocks]
        for each in left:
            each.reverse()
        while any(left):
            moved = [self._advance(side, left[side], raised) for side in (0, 1)]
            heads = [each[-1] for each in left if each]
            if len(heads) == 2 and all(isinstance(op, scf.ForOp) for op in heads):
                self._loops([op for op in heads if isinstance(op, scf.ForOp)], raised)
                for each in left:
                    each.pop()
            elif heads and not any(moved):
                raise VerifyException(
                    f"{describe(heads[0])} waits for cores that wait for its own core: there is no order for both"
                )

    def _advance(self, side: int, left: list[Operation], raised: list[Counter[int]]) -> bool:
        """Runs one section up to a wait for what is not raised, or a loop with such waits; whether it did anything."""
        own, others, moved = self.signals[side], raised[1 - side], False
        while left:
            op = left[-1]
            if any(others[event] < count for event, count in own.counted(op, own.waits).items()):
                break
            self._on_each(side, op)
            others.subtract(own.counted(op, own.waits))
            raised[side].update(own.counted(op, own.raises))
            left.pop()
            moved = True
        return moved

    def _on_each(self, side: int, op: Operation) -> None:
        for core in self.sides[side].cores:
            with self.kernel.on(core):
                self.kernel.execute(op)

    def _loops(self, loops: Sequence[scf.ForOp], raised: list[Counter[int]]) -> None:
        """Runs a loop of each section, and those directly in it, iteration by iteration."""
        both = zip(*(perfect_nest(loop, {}) for loop in loops), strict=False)
        alike = [*takewhile(lambda pair: bounds(pair[0]) == bounds(pair[1]), both)]
        nests = [[pair[side] for pair in alike] for side in (0, 1)]
        ranges = [bounds(loop) for loop in nests[0]]
        if not alike:
            raise VerifyException(
                f"{describe(loops[0])} takes turns with a loop of another number of iterations"
            )
        trips = [count for _, _, count in ranges]
        kernel, before = self.kernel, [Counter(each) for each in raised]
        memories: list[tuple[Memory, scf.ForOp]] = []
        for side, loop in zip(self.sides, loops, strict=True):
            memories += [(core.memory, loop) for core in side.cores]
        saved = [memory.save(loop) for memory, loop in memories]
        lengths = [len(state) for state in saved]

        def parts(state: Sequence[Array]) -> list[Sequence[Array]]:
            found, at = [], 0
            for length in lengths:
                found.append(state[at : at + length])
                at += length
            return found

        def iteration(i: Any, state: Sequence[Array]) -> Sequence[Array]:
            for (memory, loop), own in zip(memories, parts(state), strict=True):
                memory.enter(loop, own)
            places = coordinates(i, trips, kernel.scope.sizes)
            for nest in nests:
                for loop, (first, step, _), at in zip(nest, ranges, places, strict=True):
                    kernel.scope.index[loop.body.block.args[0]] = kernel.scope.stepped(at, step, first)
            self._blocks([nest[-1].body.block for nest in nests], raised)
            return [x for memory, loop in memories for x in memory.take(loop)]

        end = kernel.repeat(0, prod(trips), iteration, loops, [x for state in saved for x in state])
        for (memory, loop), own in zip(memories, parts(end), strict=True):
            memory.leave(loop, own)
        for each, known in zip(raised, before, strict=True):
            for event in {*each, *known}:  # what one iteration leaves over or takes, all of them do
                each[event] = known[event] + (each[event] - known[event]) * prod(trips)
                if each[event] < 0:
                    raise VerifyException(f"{describe(loops[0])} takes more signals than are raised")
