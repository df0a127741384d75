"""What names stand for where a program is: buffers and indices of a core, tensors, and bytes of a memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from ..backends.stepper import StepRun
from ..backends.stepper.cores import SteppedCore
from ..backends.stepper.device import Region, Tensor
from ..backends.stepper.marks import Mark
from ..backends.stepper.places import BufferPlace, ByteCell, SectionBuffer
from ..dialects.dtypes import name_of_numpy, numpy_dtype
from ..dialects.npu import BufferType, GmType, SlotOp
from ..dialects.npu.interface import gm
from ..dialects.npu.structure import KernelOp, SectionOp
from .errors import DebugError
from .listing import Listing

GM = "gm"
"""Device memory."""

ADDRESS = re.compile(r"([a-z]\w*)\s*\+\s*(0x[0-9a-fA-F]+|\d+)(?:\s*\.\.\s*(0x[0-9a-fA-F]+|\d+))?")


@dataclass(frozen=True)
class ByteRange:
    """Bytes [start, end) of a space: of device memory, or of the memory of a core."""

    space: str
    start: int
    end: int

    def __str__(self) -> str:
        last = f"..{self.end - 1}" if self.end - self.start > 1 else ""
        return f"{self.space}+{self.start}{last}"


@dataclass(frozen=True)
class Written:
    """Bytes and the instruction or command that wrote them last; by: None where nothing did. foreign: the buffer or
    the tensor that they were written as, where that is another one than the one asked for."""

    span: ByteRange
    by: Mark | None
    foreign: str = ""


@dataclass(frozen=True)
class ShownValue:
    """What a name stands for, with the elements that are there. what: a line about it; writes: of its bytes; unwritten:
    of which elements nothing wrote, in the shape of values; None where all were."""

    what: str
    values: Any
    writes: Sequence[Written] = ()
    unwritten: np.ndarray | None = None


def span_of(text: str, spaces: Sequence[str]) -> ByteRange | None:
    """`ub+4096` or `gm+1024..2047` as bytes; None where it is no address. Raises DebugError for a space that the
    machine has not."""
    match = ADDRESS.fullmatch(text.strip())
    if match is None:
        return None
    space, first = match[1], int(match[2], 0)
    if space not in spaces:
        raise DebugError(f"the machine has no memory {space}; it has {', '.join(spaces)}")
    last = first if match[3] is None else int(match[3], 0)
    if last < first:
        raise DebugError(f"{text}: the last byte is before the first one")
    return ByteRange(space, first, last + 1)


def indices_of(op: Operation) -> list[SSAValue]:
    """The indices that hold at an op: the grid's, the unit's and those of the loops around it, outermost first."""
    found: list[SSAValue] = []
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, scf.ForOp | SectionOp):
            found.insert(0, parent.body.block.args[0])
        elif isinstance(parent, KernelOp):
            found[:0] = [v for v in parent.body.block.args if not isinstance(v.type, GmType)]
        parent = parent.parent_op()
    return found


class NameScope:
    """Where names are looked up: on a core of a kernel, or, without one, among the values of the host program.

    op: the instruction or command that the program is at.
    """

    def __init__(self, session: StepRun, listing: Listing, core: SteppedCore | None, op: Operation) -> None:
        self.session, self.listing, self.core, self.op = session, listing, core, op

    def value(self, name: str) -> SSAValue:
        """The value of a name. Raises DebugError."""
        if name not in self.listing.values:
            where = f"@{self.core.launch.plan.name}" if self.core is not None else "the host program here"
            raise DebugError(f"{where} has no value {name}")
        return self.listing.values[name]

    def indices(self) -> Iterator[tuple[str, int]]:
        """The indices that hold here, by name."""
        if self.core is not None:
            known = self.core.launch.plan.indices
            for v in indices_of(self.op):
                if v in known:
                    yield self.listing.name(v), self.core.env[known[v]]

    def find(self, name: str) -> ShownValue:
        """What a name stands for. Raises DebugError."""
        value = self.value(name)
        if self.core is None:
            return self._of_host(name, value)
        plan, env = self.core.launch.plan, self.core.env
        if value in plan.known:
            return ShownValue(f"{name}, an index", plan.known[value])
        if value in plan.indices:
            return ShownValue(f"{name}, an index", env[plan.indices[value]])
        if isinstance(value.type, BufferType):
            return self._buffer(name, value)
        return self._tensor(name, value, self.core.launch.tensors[plan.tensors[value]], plan.number)

    def spans(self, name: str) -> list[ByteRange]:
        """The bytes of a buffer or a tensor. Raises DebugError for what has none."""
        found = self.find(name)
        if not found.writes:
            raise DebugError(f"{name} has no bytes in a memory")
        return [w.span for w in found.writes]

    # -- buffers -------------------------------------------------------------------------------------------

    def _home(self, buffer: SSAValue) -> tuple[SteppedCore, SectionBuffer] | None:
        """The core that has a buffer, and what that is there: this core, or the first one of its kind."""
        assert self.core is not None
        for core in (self.core, *self.core.launch.running):
            for each in core.section.buffers:
                if each.value is buffer:
                    return core, each
        return None

    def _buffer(self, name: str, value: SSAValue) -> ShownValue:
        owner, counter = value, None
        while isinstance(owner.owner, SlotOp):
            (counter,) = (
                self.core.launch.plan.rows(owner.owner) if self.core and counter is None else (counter,)
            )
            owner = owner.owner.source
        home = self._home(owner)
        if home is None:
            raise DebugError(f"{name} is a buffer of no core that runs")
        core, buffer = home
        selects = counter is not None and buffer.slots > 1
        slots = [BufferPlace(buffer, counter).slot(core.env)] if selects else list(range(buffer.slots))
        cells = [core.memory.cells[buffer.number][slot] for slot in slots]
        views = [core.memory.views[buffer.number][slot] for slot in slots]
        ranges = [buffer.bytes_of(slot) for slot in slots]
        first, last = ranges[0][0], ranges[-1][1]
        shape = "x".join(map(str, buffer.shape)) + ("x" if buffer.shape else "") + name_of_numpy(buffer.dtype)
        of = (
            f", slot {slots[0]} of {buffer.slots}"
            if selects
            else f", {buffer.slots} slots" * (buffer.slots > 1)
        )
        what = f"{name}, {shape} at {ByteRange(buffer.space, first, last)}{of}"
        if core is not self.core:
            what += f", of {core}"
        writes = [w for each in cells for w in self._cells(each, buffer)]
        if any(view is None for view in views):
            return ShownValue(f"{what}, outside the memory", None, writes)
        held = [view for view in views if view is not None]
        blank = [
            np.full(view.shape, not any(c.writer for c in each))
            for view, each in zip(held, cells, strict=True)
        ]
        values, unwritten = (held[0], blank[0]) if len(held) == 1 else (np.stack(held), np.stack(blank))
        return ShownValue(what, values, writes, unwritten if unwritten.any() else None)

    def _cells(self, cells: Sequence[ByteCell], buffer: SectionBuffer | None) -> Iterator[Written]:
        for cell in cells:
            owner = cell.owner
            foreign = self.listing.buffer(owner) if owner is not None and owner is not buffer else ""
            yield Written(ByteRange(cell.space, cell.start, cell.end), cell.writer, foreign)

    # -- tensors -------------------------------------------------------------------------------------------

    def _of_host(self, name: str, value: SSAValue) -> ShownValue:
        held = self.session.host.held
        if value not in held:
            raise DebugError(f"{name} is not made yet, or not in the function that runs")
        found = held[value]
        if isinstance(found, Tensor):
            return self._tensor(name, value, found, self.session.number)
        shown = np.asarray(found)
        return ShownValue(f"{name}, {name_of_numpy(shown.dtype)} of the host", shown)

    def _tensor(self, name: str, value: SSAValue, tensor: Tensor, number: Callable[[int], int]) -> ShownValue:
        kind, device = gm(value), self.session.device
        dtype = numpy_dtype(kind.element)
        width = dtype.itemsize
        sizes = tuple(map(number, kind.shape))
        strides = tuple(number(s) * width for s in kind.strides)
        address = tensor.address + number(kind.offset) * width
        shape = "x".join(map(str, sizes)) + ("x" if sizes else "") + name_of_numpy(dtype)
        end = address + (
            sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + width if prod(sizes) else 0
        )
        what = f"{name}, {shape} at {ByteRange(GM, address, end)}"
        if not prod(sizes):
            return ShownValue(what, np.zeros(sizes, dtype))
        values = device.window(address, sizes, strides, dtype, self.op)
        shadow = device.shadow(device.writer, Region(address, sizes, strides, width))
        unwritten = (shadow == 0).reshape(*sizes, -1).any(-1)
        writes = list(self._writes(ByteRange(GM, address, end), tensor))
        return ShownValue(what, values, writes, unwritten if unwritten.any() else None)

    def _writes(self, span: ByteRange, tensor: Tensor | None) -> Iterator[Written]:
        """Runs of device bytes that one instruction wrote."""
        device = self.session.device
        granule = device.granule
        first, last = span.start // granule, -(-span.end // granule)
        here = device.writer[first:last]
        if not len(here):
            return
        starts = [0, *(np.flatnonzero(here[1:] != here[:-1]) + 1).tolist(), len(here)]
        for a, b in pairwise(starts):
            number = int(here[a])
            start, end = max((first + a) * granule, span.start), min((first + b) * granule, span.end)
            is_foreign = tensor is not None and number and device.owners[number] != tensor.owner
            yield Written(ByteRange(GM, start, end), device.log[number], "another tensor" if is_foreign else "")

    # -- addresses -----------------------------------------------------------------------------------------

    def at(self, span: ByteRange) -> list[Written]:
        """Who wrote bytes of a memory. Raises DebugError where no program is there."""
        if span.space == GM:
            size = len(self.session.device.arena)
            if span.start >= size:
                raise DebugError(f"{span} is behind the {size} bytes of device memory that the program takes")
            return list(self._writes(ByteRange(GM, span.start, min(span.end, size)), None))
        if self.core is None:
            raise DebugError(f"{span}: no core runs here")
        core = next(
            (c for c in (self.core, *self.core.launch.running) if span.space in c.memory.spaces), None
        )
        if core is None:
            raise DebugError(f"@{self.core.launch.plan.name} has no buffer in {span.space}")
        cells = [
            c
            for c in core.memory.every
            if c.space == span.space and c.start < span.end and span.start < c.end
        ]
        if not cells:
            raise DebugError(f"no buffer of @{self.core.launch.plan.name} has bytes of {span}")
        return list(self._cells(cells, next((c.owner for c in cells if c.owner), None)))
