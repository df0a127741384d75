"""Where buffers are in the memories of a core: views of their slots, and the cells that accesses begin and end at.

A *cell* is a range of bytes of one space: a slot of a buffer, cut where another buffer's slot begins or ends inside it.
Every instruction reads and writes whole slots, so what is known of a cell is known of each of its bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import SSAValue

from ...dialects import npu as ops
from ...dialects.base import integer
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu.interface import buffer

if TYPE_CHECKING:
    from .marks import Mark

Row = tuple[int, tuple[tuple[int, int], ...]]
"""An expression of the indices of a core: a constant, and (number of the index, coefficient) pairs."""


def evaluated(rows: Sequence[Row], env: Sequence[int]) -> list[int]:
    """The values of expressions."""
    found = []
    for constant, terms in rows:
        for index, coefficient in terms:
            constant += env[index] * coefficient
        found.append(constant)
    return found


@dataclass(eq=False)
class SectionBuffer:
    """A buffer that a section allocates, or bytes that an instruction works in. number: among those of its section;
    start: of its first slot, 0 where it has memory of its own; runs: the bytes that a slot has; shared: whether others
    may have them, too."""

    value: SSAValue | None
    number: int
    space: str
    shape: tuple[int, ...]
    dtype: np.dtype
    slots: int
    slot_bytes: int
    start: int
    row_bytes: int
    runs: Sequence[tuple[int, int]]
    shared: bool

    @staticmethod
    def of(alloc: ops.AllocOp, number: int, addressed: bool = True) -> SectionBuffer:
        """addressed: whether it is where it was placed."""
        kind = buffer(alloc.result)
        space, start = kind.space, 0
        if alloc.address is None or not addressed:
            space = f"{kind.space} of {number}"
        else:
            start = integer(alloc.address)
        dtype = numpy_dtype(kind.element)
        return SectionBuffer(
            alloc.result,
            number,
            space,
            kind.shape,
            dtype,
            kind.slots,
            kind.slot_bytes,
            start,
            kind.row_bytes,
            kind.runs,
            alloc.shared is not None,
        )

    @staticmethod
    def worked_in(number: int, first: int, end: int) -> SectionBuffer:
        """The bytes [first, end) of ub that an instruction works in."""
        count, byte = end - first, np.dtype(np.uint8)
        return SectionBuffer(
            None, number, "ub", (count,), byte, 1, count, first, count, ((0, count),), shared=False
        )

    @property
    def name(self) -> str:
        if self.value is None:
            return "the bytes that it works in"
        return f"%{self.value.name_hint}" if self.value.name_hint else f"buffer {self.number}"

    def bytes_of(self, slot: int) -> tuple[int, int]:
        """The first byte of a slot in its space and the one behind its last."""
        first = self.start + slot * self.slot_bytes
        return first, first + self.slot_bytes

    def view(self, memory: np.ndarray, slot: int) -> np.ndarray:
        """The elements of a slot, as an array that shares their memory. Raises ValueError or TypeError where it is
        outside the space."""
        strides = _row_strides(self.shape, self.row_bytes, self.dtype.itemsize) if self.shape else []
        return np.ndarray(self.shape, self.dtype, memory, self.start + slot * self.slot_bytes, strides)


def _row_strides(shape: Sequence[int], pitch: int, width: int) -> list[int]:
    """Bytes between neighbours along each dimension of a buffer whose rows are `pitch` bytes apart."""
    strides, step = [width], pitch
    for n in reversed(shape[:-1]):
        strides.insert(0, step)
        step *= n
    return strides


@dataclass(slots=True)
class BufferPlace:
    """A buffer operand: the buffer, and the counter that selects a slot; None where it has one."""

    buffer: SectionBuffer
    counter: Row | None = None

    def slot(self, env: Sequence[int]) -> int:
        """The slot that is selected."""
        if self.counter is None:
            return 0
        constant, terms = self.counter
        for index, coefficient in terms:
            constant += env[index] * coefficient
        return constant % self.buffer.slots


class ByteCell:
    """Bytes [start, end) of a space, and who touched them last. Of sums with unit flags, `flagged` says whether they
    wait to be drained, `flagger` which product or drain left them so, and `known` what that had waited for. `earlier`:
    the read of the last reader's pipe before that one."""

    __slots__ = ("earlier", "end", "flagged", "flagger", "known", "owner", "readers", "space", "start", "writer")

    def __init__(self, space: str, start: int, end: int) -> None:
        self.space, self.start, self.end = space, start, end
        self.readers: dict[int, Mark] = {}
        self.clear()

    def clear(self) -> None:
        """As if nobody had touched them."""
        self.writer: Mark | None = None
        self.owner: SectionBuffer | None = None
        self.readers = {}
        self.earlier: Mark | None = None
        self.flagged = False
        self.flagger: Mark | None = None
        self.known: Sequence[int] = ()

    def __str__(self) -> str:
        return f"{self.space} bytes {self.start}..{self.end - 1}"


UNTOUCHED = 0xA5
"""What every byte of a memory holds at first."""


@dataclass(eq=False)
class CoreMemory:
    """The memories of one core."""

    buffers: Sequence[SectionBuffer]
    rooms: Mapping[str, int]
    """Bytes of each space; a buffer that ends behind them has no view."""
    spaces: dict[str, np.ndarray] = field(default_factory=dict)
    views: list[list[np.ndarray | None]] = field(default_factory=list)
    cells: list[list[list[ByteCell]]] = field(default_factory=list)
    every: list[ByteCell] = field(default_factory=list)

    def __post_init__(self) -> None:
        reach: dict[str, int] = {}
        for b in self.buffers:
            room = self.rooms.get(b.space, b.slots * b.slot_bytes)
            reach[b.space] = max(reach.get(b.space, 0), min(b.start + b.slots * b.slot_bytes, room))
        self.spaces = {space: np.full(max(n, 0), UNTOUCHED, np.uint8) for space, n in reach.items()}
        self.views = [[self._view(b, slot) for slot in range(b.slots)] for b in self.buffers]
        self.cells = [[[] for _ in range(b.slots)] for b in self.buffers]
        self._cut()

    def _view(self, b: SectionBuffer, slot: int) -> np.ndarray | None:
        start, end = b.bytes_of(slot)
        memory = self.spaces[b.space]
        return b.view(memory, slot) if start >= 0 and end <= len(memory) else None

    def clear(self) -> None:
        """Forgets who touched it; what it holds stays."""
        for cell in self.every:
            cell.clear()

    def _cut(self) -> None:
        """Cuts the spaces into cells."""
        listed: dict[str, list[tuple[int, int, SectionBuffer, int]]] = {}
        for b in self.buffers:
            for slot in range(b.slots):
                first, _ = b.bytes_of(slot)
                listed.setdefault(b.space, []).extend((first + s, first + e, b, slot) for s, e in b.runs)
        for space, ranges in listed.items():
            ranges.sort(key=lambda r: r[:2])
            for cluster in _clusters(ranges):
                edges = sorted({r[0] for r in cluster} | {r[1] for r in cluster})
                cells = [ByteCell(space, a, b) for a, b in pairwise(edges)]
                self.every += cells
                for start, end, b, slot in cluster:
                    self.cells[b.number][slot] += cells[bisect_left(edges, start) : bisect_left(edges, end)]


def _clusters(
    ranges: Iterable[tuple[int, int, SectionBuffer, int]],
) -> Iterable[list[tuple[int, int, SectionBuffer, int]]]:
    """Ranges in order, those that overlap together."""
    cluster: list[tuple[int, int, SectionBuffer, int]] = []
    reach = -1
    for each in ranges:
        if cluster and each[0] >= reach:
            yield cluster
            cluster, reach = [], -1
        cluster.append(each)
        reach = max(reach, each[1])
    if cluster:
        yield cluster
