"""Where data of a kernel is, for one block: device memory and on-chip memory, with numbers in place of values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ...dialects.dtypes import itemsize
from .numbers import DataIndex, Index

SPACES = {"ub": "ub", "cbuf": "l1", "ca": "l0a", "cb": "l0b", "cc": "l0c"}
"""What the npu level calls the vendor's memories."""

SCRATCH = ("masks", "constants", "registers", "vectors")
"""In place of a memory: bytes of ub behind all that the kernel uses, one kind behind the other."""


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense array."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


@dataclass(frozen=True)
class Memref:
    """A strided array: `start` is a byte address on chip, and the number of an element of argument `tensor` in device
    memory; `base` is that of the memory that it is a part of, from which casts count; `data` has the multiples of
    numbers, by their keys, that it begins further on."""

    space: str
    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    tensor: int = -1
    base: int = field(default=0, compare=False)
    data: tuple[tuple[Hashable, int], ...] = ()

    @property
    def unit(self) -> int:
        """What `start` counts in elements."""
        return 1 if self.space == "gm" else itemsize(self.element)

    def part(self, offsets: Sequence[Index], sizes: Sequence[int], steps: Sequence[int]) -> Memref:
        """A box of it."""
        strides = tuple(a * b for a, b in zip(self.strides, steps, strict=True))
        moved = self.moved(sum(o * s for o, s in zip(offsets, self.strides, strict=True)))
        return replace(moved, shape=tuple(sizes), strides=strides)

    def moved(self, elements: Index) -> Memref:
        """The same so many elements further on."""
        found = DataIndex(0, self.data) + elements
        return replace(self, start=self.start + found.constant * self.unit, data=found.terms)

    def collapsed(self, groups: Sequence[Sequence[int]]) -> Memref:
        """With each group of dimensions, which lie one within the other, as one."""
        shape = tuple(prod(self.shape[d] for d in group) for group in groups)
        strides = tuple(
            next((self.strides[d] for d in reversed(group) if self.shape[d] != 1), self.strides[group[-1]])
            for group in groups
        )
        return replace(self, shape=shape, strides=strides)

    def expanded(self, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> Memref:
        """With each dimension as a group of them."""
        strides: list[int] = []
        for stride, group in zip(self.strides, groups, strict=True):
            strides += [stride * s for s in row_major([shape[d] for d in group])]
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def at(self, index: int) -> Memref:
        """Row `index` of it."""
        start = self.start + index * self.strides[0] * self.unit
        return replace(self, shape=self.shape[1:], strides=self.strides[1:], start=start)

    @property
    def in_ub(self) -> bool:
        """Whether the vector unit reaches it."""
        return self.space == "ub" or self.space in SCRATCH

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def reach(self) -> int:
        """The elements from its first one to its last one."""
        return sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1 if self.size else 0


@dataclass(frozen=True)
class BufferView:
    """An operand on chip: rows that are `pitch` elements apart; 0 where they begin at blocks."""

    space: str
    element: str
    shape: tuple[int, ...]
    pitch: int
    start: int

    @property
    def end(self) -> int:
        """The byte behind its last one."""
        inner = self.shape[-1] if self.shape else 1
        rows = prod(self.shape[:-1])
        return self.start + ((rows - 1) * self.pitch + inner) * itemsize(self.element)


def rows_of(place: Memref, deeper: bool) -> BufferView | None:
    """The operand for an array on chip, with a last dimension of one element if `deeper`; None where its rows are not
    all as far apart."""
    shape, strides = place.shape, place.strides
    if deeper or not shape or (shape[-1] != 1 and strides[-1] != 1):
        shape, strides = (*shape, 1), (*strides, 1)
    inner, step = shape[-1], None
    expected = 0
    for n, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if n == 1:
            continue
        if step is None:
            step, expected = stride, stride * n
        elif stride != expected:
            return None
        else:
            expected *= n
    pitch = inner if step is None else step
    if pitch < inner:
        return None
    return BufferView(place.space, place.element, shape, pitch, place.start)


def needs_deeper(places: Sequence[Memref]) -> bool:
    """Whether one of some arrays has elements of its last dimension that do not follow each other."""
    return any(p.shape and p.shape[-1] != 1 and p.strides[-1] != 1 for p in places)
