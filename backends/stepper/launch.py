"""A launch: its blocks of cores one after the other, and what they do to device memory.

The cores of a block run in program order, each until it waits for another one. Blocks are not ordered among each other,
nor are launches that no barrier parts: where two of them meet in device memory, one to write, that is a race.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...dialects.base import to_ints
from ...dialects.npu.interface import NpuOp
from ...dialects.npu.structure import LaunchOp
from .cores import SteppedCore
from .device import Device, Region, Tensor
from .errors import Race, fault
from .marks import Mark
from .order import BlockOrder
from .plan import SteppedKernel

if TYPE_CHECKING:
    from .session import StepRun


def kind_of(mark: Mark) -> str:
    """How an instruction accumulates to device memory; empty where it does not."""
    return mark.op.accumulates() if isinstance(mark.op, NpuOp) else ""


class BarrierStage:
    """What runs between two barriers: one launch, or several that wait for none. Writes and reads of it have numbers
    from `writes` and `reads` on."""

    def __init__(self, device: Device) -> None:
        self.writes, self.reads = len(device.log), len(device.readings)


class SteppedLaunch:
    """One run of a kernel. tensors: of its arguments."""

    def __init__(
        self,
        session: StepRun,
        op: LaunchOp,
        plan: SteppedKernel,
        tensors: Sequence[Tensor],
        stage: BarrierStage,
        alone: bool,
    ) -> None:
        """alone: whether no other launch is of the stage."""
        self.session, self.op, self.plan, self.tensors = session, op, plan, tensors
        self.device, self.stage, self.checks = session.device, stage, session.races
        first = plan.count - plan.outputs - plan.workspaces
        written = [(t.address, t.address + t.bytes) for t in tensors[first : plan.count]]
        meets = [
            any(t.address < end and start < t.address + t.bytes for start, end in written) for t in tensors
        ]
        ahead = set(to_ints(op.ahead))
        self.since = [session.stage_before(op) if i in ahead else stage.writes for i in range(plan.count)]
        """For each tensor the number of the first write that may still be under way when it is read."""
        self.clean = [
            not meets[i] and alone and i not in ahead and self.device.is_clean(tensors[i])
            for i in range(plan.count)
        ]
        """Whether all of a tensor is written, and nobody writes it meanwhile: its reads need no check."""
        self.watched = [not alone or (i in plan.loaded and meets[i]) for i in range(plan.count)]
        """Whether who reads a tensor may meet who writes it."""
        self.running: list[SteppedCore] = []
        """The cores of the block that runs."""

    def said(self, tensor: int) -> str:
        return str(self.tensors[tensor])

    def run(self) -> Iterator[SteppedCore]:
        """Runs all blocks; gives each core before each of its instructions."""
        for point in self.plan.points:
            yield from self._block(point)

    def _block(self, point: tuple[int, ...]) -> Iterator[SteppedCore]:
        session, cores = self.session, list[SteppedCore]()
        session.blocks += 1
        for section in self.plan.sections:
            for unit in range(section.units):
                cores.append(SteppedCore(self, section, len(cores), session.blocks, point, unit))
        order = BlockOrder(cores, self.checks, self.plan.op.counted is not None)
        for core in cores:
            core.order = order
        self.running = cores
        waiting = {core: core.issue(core.section.nodes) for core in cores}
        while waiting:
            moved = False
            for core, program in list(waiting.items()):
                for runs in program:
                    if not runs:
                        break
                    moved = True
                    yield core
                else:
                    moved = True
                    del waiting[core]
            if not moved:
                core = next(iter(waiting))
                what = "waits for a cross-core event that no other core raises"
                raise fault("deadlock", core.node.op, what, str(core))
        order.finish()

    # -- device memory -------------------------------------------------------------------------------------

    def check_read(self, core: SteppedCore, tensor: int, region: Region, mark: Mark) -> None:
        """Checks a read of device memory. Raises StepFault."""
        device = self.device
        found = device.check(self.tensors[tensor], region, mark.op)
        if not self.checks:
            return
        for number in found:
            before = device.log[number]
            if number >= self.since[tensor] and before is not None:
                self._apart(core, mark, before, tensor, "reads {} that {} may still write")
        if kind_of(mark):
            device.accumulated = True
        elif device.accumulated:
            self._against_readers(core, tensor, region, mark, "reads {} that {} may still write", True)
        if self.watched[tensor]:
            device.readings.append(mark)
            plane = device.readers(mark.queue)
            last = device.shadow(plane, region)
            if int(last.max()) >= self.stage.reads:
                for number in np.unique(last).tolist():
                    if number >= self.stage.reads and device.readings[number].block != core.block:
                        device.mark(device.shared, region, number, last == number)
            device.mark(plane, region, len(device.readings) - 1)

    def check_write(self, core: SteppedCore, tensor: int, region: Region, mark: Mark) -> None:
        """Checks a write of device memory, and takes note of it. Raises Race."""
        device = self.device
        if self.checks:
            shadow = device.shadow(device.writer, region)
            last = int(shadow.max())
            if last >= self.stage.writes:
                for number in (last,) if int(shadow.min()) == last else np.unique(shadow).tolist():
                    before = device.log[number]
                    if number >= self.stage.writes and before is not None:
                        self._apart(core, mark, before, tensor, "writes {} that {} may still write")
            self._against_readers(core, tensor, region, mark, "writes {} that {} may still read", False)
        device.mark(device.writer, region, device.record(mark, self.tensors[tensor].owner))

    def _against_readers(
        self, core: SteppedCore, tensor: int, region: Region, mark: Mark, what: str, accumulating: bool
    ) -> None:
        """Raises Race where an instruction meets one that reads a region; accumulating: only those that write there,
        too, of which the last write does not tell all."""
        device = self.device
        for plane in (*device.planes.values(), *((device.shared,) if device.planes else ())):
            read = device.shadow(plane, region)
            if int(read.max()) >= self.stage.reads:
                for number in np.unique(read).tolist():
                    if number >= self.stage.reads:
                        before = device.readings[number]
                        if not accumulating or kind_of(before):
                            self._apart(core, mark, before, tensor, what)

    def _apart(self, core: SteppedCore, mark: Mark, before: Mark, tensor: int, what: str) -> None:
        """Raises Race unless an instruction starts after another one is over, or both accumulate alike; commands of the
        host program run one after the other."""
        if before.core is None or (before.block == core.block and core.order.knows(mark, before)):
            return
        if kind_of(mark) and kind_of(mark) == kind_of(before):
            return
        where = "the same core" if before.core is core else f"{before.core}"
        said = what.format("device memory", f"'{before.op.name}' of {where}")
        raise Race("race", mark.op, said, self.said(tensor), before.op)
