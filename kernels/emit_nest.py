"""Builds kernels of nests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import SSAValue

from ..dialects import tile as ops
from ..dialects.base import Expr
from ..dialects.npu.types import GmType
from ..machine import Machine
from . import emit_products, indexed
from .builder import KernelBuilder, may_repeat
from .emit import Emitter
from .nest import Nest, Turns
from .stage import Ref

BUILDERS = (emit_products, indexed)
"""Modules besides emit.py that build tile ops of stages."""


@dataclass(frozen=True)
class Frame:
    """What a kernel has around its stages: cores of which `kind` it is for; inputs, outputs and workspaces; buffers in
    flight by memory."""

    machine: Machine
    kind: str
    inputs: Sequence[GmType]
    outputs: Sequence[GmType]
    workspaces: Sequence[GmType]
    slots: Mapping[str, int]
    location: LocationAttr | None = None


class SectionNest(NamedTuple):
    """What cores of a kind do; units: how many vector cores share it."""

    core: str
    nest: Nest
    units: int = 1


def vector_frame(
    machine: Machine,
    inputs: Sequence[GmType],
    outputs: Sequence[GmType],
    slots: int,
    location: LocationAttr | None,
) -> Frame:
    """That of a kernel of the vector cores alone, with so many buffers in flight."""
    return Frame(machine, "vector", inputs, outputs, [], {"ub": slots}, location)


def vector_section(machine: Machine) -> str:
    """The section of what vector units do alone."""
    return "fused" if machine.fused else "vector"


def nested_kernel(name: str, frame: Frame, sections: Sequence[SectionNest]) -> ops.KernelOp:
    """A kernel of sections on the same grid."""
    grid = [trips for trips in sections[0].nest.grid() if may_repeat(trips)]
    tensors = frame.inputs, frame.outputs, frame.workspaces
    b = KernelBuilder(frame.machine, frame.kind, grid, *tensors, slots=dict(frame.slots))
    b.location = frame.location
    for core, nest, units in sections:
        with b.section(core, units) as unit:
            emitter = NestEmitter(b, (), cores=iter(list(b.coordinates)), unit=unit)
            emitter.build_all(nest, nest.body, {})
    return b.finish(name)


@dataclass
class NestEmitter(Emitter):
    """Builds a nest. cores: where the core is along each axis of the grid that is still to come; unit: the number of
    the vector core."""

    cores: Iterator[SSAValue] = field(default_factory=lambda: iter(()))
    unit: SSAValue | None = None

    def build_all(self, nest: Nest, body: Sequence[int | Turns], done: dict[Ref, SSAValue]) -> None:
        """Builds stages and loops in order, and adds the results of the stages."""
        for item in body:
            if isinstance(item, Turns):
                self._turns(nest, item, done)
            else:
                self.tile = nest.tiles[item]
                self.emit(item, nest.stages[item], done)

    def _turns(self, nest: Nest, loop: Turns, done: dict[Ref, SSAValue]) -> None:
        position, steps, around = dict(self.position), self.steps, self.around
        first = {before: done[before] for before, _ in loop.carried}
        carried = [first[before] for before, _ in loop.carried]
        with self._index(loop, carried) as index:
            for axis, apart, ahead in loop.along:
                self.position[axis] = self.at(axis) + index * apart + ahead
            if loop.by == "loop" and may_repeat(loop.trips):
                self.around = (*around, *(a.axis for a in loop.along))
            each, begun = loop.steps
            self.steps = steps + index * each + begun
            done.update(zip(first, carried, strict=True))
            self.build_all(nest, loop.body, done)
            carried[:] = [done[after] for _, after in loop.carried]
        done.update(first)
        done.update((after, value) for (_, after), value in zip(loop.carried, carried, strict=True))
        self.position, self.steps, self.around = position, steps, around

    @contextmanager
    def _index(self, loop: Turns, carried: list[SSAValue]) -> Iterator[Expr]:
        """Which turn it is."""
        if loop.by == "units":
            assert self.unit is not None
            yield Expr.of(self.unit)
        elif loop.by == "cores":
            yield Expr.of(next(self.cores)) if may_repeat(loop.trips) else Expr()
        else:
            with self.builder.loop(loop.trips, carried) as index:
                yield index
