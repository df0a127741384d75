"""Runs one kernel of the npu level for its values alone: no faults, no order of pipes, no host program.

What `SteppedLaunch` checks of each access is left out, and a core that waits for no other one runs to its end. Memory
holds what is no number (`BLANK`) before something is written to it, so that what reads it shows in the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from ...dialects.base import describe
from ...support.collector import collector_paused
from . import numbers
from .cores import BlockCore
from .errors import OutOfBounds, StepFault, fault
from .instructions import DeviceBox, Part
from .nodes import Barrier, Cross, Flag, IssuedNode, Loop, PipeBarrier
from .places import UNTOUCHED, BufferPlace, CoreMemory
from .plan import PlannedSection, SteppedKernel

BLANK = 0xFF
"""What every byte on chip holds before a block of cores begins: no number in any type of floats."""


def blank_of(dtype: np.dtype) -> np.ndarray:
    """What memory holds before something is written to it, shape []."""
    return np.full(dtype.itemsize, BLANK, np.uint8).view(dtype)[0]


class DeviceArray:
    """A device tensor as a kernel sees it. elements: all of it, row-major."""

    __slots__ = ("bytes", "elements", "raw")

    def __init__(self, elements: np.ndarray) -> None:
        self.elements = elements
        self.bytes = elements.nbytes
        self.raw = elements.reshape(-1).view(np.uint8)

    def elements_as(self, dtype: np.dtype) -> np.ndarray:
        """All elements in a row, as of a type."""
        return self.raw.view(dtype)

    def window(self, op: Operation, box: DeviceBox, part: Part) -> np.ndarray:
        """The elements of a part of a box, as an array that shares their memory. Raises StepFault."""
        offset, sizes, strides, _ = part
        try:
            return np.ndarray(sizes, box.dtype, self.raw, offset, strides)
        except (TypeError, ValueError):
            if not prod(sizes):
                return np.zeros(sizes, box.dtype)
            said = f"a box from byte {offset} of {self.bytes} on"
            raise fault("out-of-bounds", op, "leaves its tensor", said) from None


def arrays_of(tensors: Iterable[tuple[Sequence[int], np.dtype, Any, bool]]) -> list[DeviceArray]:
    """Device tensors of (shape, dtype, contents, whether they are written): zeros without contents, and a copy of what
    is written."""
    found = []
    for shape, dtype, x, written in tensors:
        if x is None:
            found.append(DeviceArray(np.zeros(tuple(shape), dtype)))
        else:
            array = np.array(x, order="C") if written else np.ascontiguousarray(np.asarray(x))
            found.append(DeviceArray(array))
    return found


class _Order:
    """The signals between the cores of a block; what orders the pipes of a core changes no value."""

    def __init__(self, cores: Sequence[KernelCore]) -> None:
        self.raised = {core: Counter[int]() for core in cores}
        self.taken = {(a, b): Counter[int]() for a in cores for b in cores}
        self.cores, self.signals = cores, 0
        """signals: how many were raised and taken."""

    def raises(self, core: KernelCore, event: int) -> None:
        self.signals += 1
        self.raised[core][event] += 1

    def takes(self, core: KernelCore, event: int) -> bool:
        """Consumes an event of all cores that send it, if each has raised it."""
        senders = [c for c in self.cores if c.section is not core.section and event in c.section.sends]
        if not senders or any(
            self.raised[c][event] <= self.taken[c, core][event] for c in senders
        ):
            return False
        self.signals += 1
        for c in senders:
            self.taken[c, core][event] += 1
        return True

    def unit_flags(self, *_: Any) -> None:
        pass

    def scalar(self, *_: Any) -> None:
        pass


class KernelCore(BlockCore):
    """A core of a block. device: the run, which knows whether denormal numbers may be there."""

    def __init__(
        self, run: ValueRun, section: PlannedSection, memory: CoreMemory, point: Sequence[int], unit: int
    ) -> None:
        super().__init__(run.plan, section, memory, point, unit)
        self.launch = self.device = run
        self._arrays = run.tensors

    def issue(self, nodes: Sequence[IssuedNode]) -> Iterator[Cross]:
        """Runs nodes in program order; gives what it waits for while that is not raised."""
        env = self.env
        for node in nodes:
            if isinstance(node, Loop):
                index, body = node.index, node.body
                for value in node.places:
                    env[index] = value
                    yield from self.issue(body)
            elif isinstance(node, Cross):
                if node.sets:
                    self.order.raises(self, node.event)
                    continue
                while not self.order.takes(self, node.event):
                    yield node
            elif not isinstance(node, _SILENT):
                try:
                    node.run(self)
                except OutOfBounds as error:
                    self._blank(node, error)

    def _blank(self, node: Any, error: OutOfBounds) -> None:
        """What an instruction gives that reads outside its memory."""
        for place in node.writes:
            target = self._views[place.buffer.number][place.slot(self.env)]
            if target is None:
                raise error
            target[...] = blank_of(target.dtype)

    def begin(self, node: IssuedNode) -> IssuedNode:
        return node

    def read(self, place: BufferPlace, slot: int, mark: Any) -> None:
        pass

    def write(self, place: BufferPlace, slot: int, mark: Any) -> None:
        pass

    def work_in(self, place: BufferPlace, results: Sequence[tuple[BufferPlace, int]], mark: Any) -> None:
        self.view(place, 0, mark)[...] = UNTOUCHED

    def load(self, box: DeviceBox, part: Part, mark: Any) -> np.ndarray:
        return self._arrays[box.tensor].window(mark.op, box, part)

    def gather(self, box: DeviceBox, places: np.ndarray, mark: Any) -> np.ndarray:
        return self._arrays[box.tensor].elements_as(box.dtype)[places]

    def store(self, box: DeviceBox, part: Part, x: np.ndarray, mark: Any) -> None:
        target = self._arrays[box.tensor].window(mark.op, box, part)
        if target.size:
            target[...] = x.reshape(target.shape)


_SILENT = (Flag, Barrier, PipeBarrier)


@dataclass
class ValueRun:
    """A launch of a kernel. tensors: of its arguments; denormals: whether numbers may be there that XLA takes for
    zeros."""

    plan: SteppedKernel
    tensors: Sequence[DeviceArray]
    denormals: bool = field(default=False, init=False)

    def run(self) -> None:
        """Runs all blocks. Raises VerifyException where a buffer ends outside its space, and where cores wait for each
        other."""
        self.denormals = any(numbers.has_denormals(t.elements) for t in self.tensors)
        places = [
            (s, CoreMemory(s.buffers, self.plan.rooms), unit) for s in self.plan.ordered for unit in range(s.units)
        ]
        try:
            with np.errstate(all="ignore"), collector_paused():
                for point in self.plan.points:
                    self._block(places, point)
        except StepFault as error:
            raise VerifyException(str(error)) from error

    def _block(
        self, places: Sequence[tuple[PlannedSection, CoreMemory, int]], point: Sequence[int]
    ) -> None:
        cores = []
        for section, memory, unit in places:
            for space in memory.spaces.values():
                space.fill(BLANK)
            cores.append(KernelCore(self, section, memory, point, unit))
        order = _Order(cores)
        for core in cores:
            core.order = order
        waiting = {core: core.issue(core.section.nodes) for core in cores}
        while waiting:
            signals, left = order.signals, len(waiting)
            held: Cross | None = None
            for core, program in list(waiting.items()):
                held = next(program, None)
                if held is None:
                    del waiting[core]
            if held is not None and order.signals == signals and len(waiting) == left:
                raise VerifyException(
                    f"{describe(held.op)} waits for cores that wait for its own core: there is no order for both"
                )
