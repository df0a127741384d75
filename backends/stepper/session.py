"""A run of a program that can be stopped before each instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects import func
from xdsl.ir import Operation, SSAValue

from ...dialects.dtypes import itemsize
from ...dialects.npu.interface import gm
from ...dialects.npu.structure import LaunchOp
from ...dialects.open_sizes import value_at
from ...dialects.sizes import Sizes
from ...support.collector import collector_paused
from . import numbers
from .cores import SteppedCore
from .device import Device, Tensor
from .events import StepEvent
from .host import HostRun
from .launch import BarrierStage, SteppedLaunch
from .marks import Mark
from .places import CoreMemory
from .plan import PlannedSection, SteppedKernel

if TYPE_CHECKING:
    from .program import StepProgram

NUMBER_BYTES = 32
"""Room for a number of the host that travels with a launch."""


class StepRun:
    """A run of a program on some arrays.

    `step()` runs the instruction that the program is at and gives the next one as a `StepEvent`, None at the end; so
    does iteration, and `run()` goes to the end and gives the results. A fault is raised as a `StepFault`, and leaves
    all as it was when it was met.
    """

    def __init__(self, program: StepProgram, arrays: Sequence[Any], sizes: Sizes, races: bool) -> None:
        """arrays: of `@main`'s arguments, checked. races: whether races are faults."""
        self.program, self.sizes, self.races = program, sizes, races
        self.steps, self.blocks = 0, 0
        """How many instructions, and how many blocks of cores, ran so far."""
        self.running: SteppedLaunch | None = None
        self.command: Operation = program.functions.main
        """The op of the host program that runs."""
        self._stages: dict[LaunchOp, BarrierStage] = {}
        self._memories: dict[tuple[PlannedSection, int], CoreMemory] = {}
        self._numbers = 0
        self.room = program.arena(sizes)
        self.device = Device(self.room + program.numbers * NUMBER_BYTES, program.granule)
        self.constants: dict[SSAValue, Tensor] = {}
        start = Mark(program.functions.main, 0, None, 0, 0, 0, ())
        for op in program.functions.constants():
            made = self.constants[op.result] = self.new_tensor(op.result, program.address(op.result))
            self._put(made, op.value.data.array(), start)
        held: dict[SSAValue, Tensor] = {}
        for arg, x in zip(program.functions.main.body.block.args, arrays, strict=True):
            held[arg] = self.new_tensor(arg, program.address(arg))
            self._put(held[arg], x, start)
        self.host = HostRun(self, held)
        self._cores = self.host.block(program.functions.main.body.block)
        self.core: SteppedCore | None = None
        """The core whose instruction is next."""
        self.is_over = False

    # -- running -------------------------------------------------------------------------------------------

    def step(self) -> StepEvent | None:
        """Runs the instruction that the program is at, if it is at one, and gives the next one. Raises StepFault."""
        self.advance()
        return self.event

    def advance(self) -> SteppedCore | None:
        """`step`, which gives the core."""
        with np.errstate(all="ignore"):
            self.core = next(self._cores, None)
        self.is_over = self.core is None
        return self.core

    @property
    def event(self) -> StepEvent | None:
        """The instruction that the program is at."""
        return None if self.core is None else StepEvent(self.core, self.core.node)

    def __iter__(self) -> Iterator[StepEvent]:
        while (event := self.step()) is not None:
            yield event

    def run(self) -> list[np.ndarray]:
        """The results of `@main`. Raises StepFault."""
        with np.errstate(all="ignore"), collector_paused():
            for core in self._cores:
                self.core = core
        self.core, self.is_over = None, True
        return self.results()

    def results(self) -> list[np.ndarray]:
        """The results of `@main`, when it is over. Raises StepFault for one that is not written."""
        end = self.program.functions.main.body.block.last_op
        assert isinstance(end, func.ReturnOp)
        return [self.host.read(v, end) for v in end.operands]

    # -- what a debugger asks for --------------------------------------------------------------------------

    def who_wrote(self, space: str, byte: int, core: SteppedCore | None = None) -> Mark | None:
        """The last instruction that wrote a byte of device memory ("gm"), or of a space of a core of the block that
        runs, None where nobody did. Without a core, that of the next instruction."""
        if space == "gm":
            return self.device.who_wrote(byte)
        core = core or self.core
        cells = () if core is None else core.memory.every
        return next((c.writer for c in cells if c.space == space and c.start <= byte < c.end), None)

    def known(self, core: SteppedCore) -> dict[str, dict[str, tuple[int, int]]]:
        """For each pipe of a core what it has waited for: of each other pipe how many instructions are known to be over
        when its next one starts, and how many were issued."""
        queues, clocks = core.order.queues(core), core.order.clocks
        names = dict(zip(queues, core.section.pipes, strict=True))
        return {
            str(names[q]): {str(names[r]): (clocks[q][r], core.order.begun[r]) for r in queues if r != q}
            for q in queues
        }

    # -- what the host program asks for --------------------------------------------------------------------

    def number(self, n: int) -> int:
        """The value of an int or an open size."""
        return n if type(n) is int else value_at(n, self.sizes)

    def new_tensor(self, value: SSAValue, address: int) -> Tensor:
        """A tensor that holds nothing yet."""
        kind = gm(value)
        bytes_ = prod(map(self.number, kind.shape)) * itemsize(kind.element)
        return Tensor(value, self.number(address), bytes_, self.device.new_owner())

    def _put(self, tensor: Tensor, x: np.ndarray, mark: Mark) -> None:
        """Writes a whole tensor before the program starts."""
        x = np.ascontiguousarray(x).reshape(-1)
        self.device.write(tensor, tensor.address, x, x.strides, mark)
        self.may_have_denormals(x)

    def may_have_denormals(self, x: np.ndarray) -> None:
        """Takes note of numbers that come from the host."""
        if not self.device.denormals and x.size:
            self.device.denormals = numbers.has_denormals(x)

    def memory(self, plan: SteppedKernel, section: PlannedSection, unit: int) -> CoreMemory:
        """The memory of a core as if nobody had touched it. Blocks run one after the other, and use it again."""
        key = section, unit
        found = self._memories.get(key)
        if found is None:
            found = self._memories[key] = CoreMemory(section.buffers, plan.rooms)
        found.clear()
        return found

    def release_numbers(self) -> None:
        """Numbers of the host that travelled with a launch are not needed any more."""
        self._numbers = 0

    def number_on_device(self, value: SSAValue, x: np.ndarray, mark: Mark) -> Tensor:
        """A number of the host as a tensor of device memory, until `release_numbers`."""
        address = self.room + self._numbers * NUMBER_BYTES
        self._numbers += 1
        made = Tensor(value, address, x.dtype.itemsize, self.device.new_owner())
        self._put(made, x, mark)
        return made

    def stage_of(self, op: LaunchOp) -> tuple[BarrierStage, bool]:
        """What runs between the barriers around a launch, and whether it is this one alone."""
        behind = op.without_barrier()
        alone = op.nowait is None and len(behind) == 1
        before = op.independent_before()[-1] if op.nowait is not None and op.independent_before() else None
        stage = self._stages.get(before) if before is not None else None
        found = self._stages[op] = stage or BarrierStage(self.device)
        return found, alone

    def stage_before(self, op: LaunchOp) -> int:
        """The number of the first write of a launch that may still run while this one reads what it reads ahead."""
        known = [self._stages[b].writes for b in op.before_reading() if b in self._stages]
        return min(known, default=len(self.device.log))
