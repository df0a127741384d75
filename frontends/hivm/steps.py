"""What a core does, step by step, and what stands for values while its program is walked."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from xdsl.dialects.builtin import MemRefType, StridedLayoutAttr
from xdsl.ir import Attribute, Operation

from ...dialects.base import describe
from ...dialects.dtypes import dtype_name, itemsize
from ...dialects.hivm.rules import space_of_type
from ..errors import FrontendError
from .numbers import DataIndex, Number
from .places import SCRATCH, SPACES, BufferView, Memref, row_major

WORKSPACE = 1_000_000
"""The number of the tensor that is the first part of the workspace; those of arguments are smaller."""

Operand: TypeAlias = BufferView | Memref
"""On chip, or a box of device memory."""


@dataclass(frozen=True)
class CoreStep:
    """An instruction or a flag of the npu level, for one core. properties: as in text, `event = 0, slots = 1`; at: its
    `at [...]`, but for those that move a box of device memory; sizes: of the buffer's side of such a box, where that is
    larger; only: the one unit of several that moves it; works_in: the first byte of ub and the number of those that
    the instruction works in, besides its operands; index: the key of the index that it gives."""

    name: str
    op: Operation = field(compare=False)
    operands: tuple[Operand, ...] = ()
    properties: str = ""
    at: tuple[int, ...] | None = None
    sizes: tuple[int, ...] | None = None
    only: int | None = None
    works_in: tuple[int, int] | None = None
    index: Hashable = None

    @property
    def accumulates(self) -> bool:
        """Whether it combines what it stores with what is there."""
        return "accumulate = " in self.properties


@dataclass(frozen=True)
class CorePart:
    """What a core of one kind does for a block; of vector cores beside a cube core, what each of them does."""

    core: str
    units: tuple[tuple[CoreStep, ...], ...]

    @property
    def steps(self) -> tuple[CoreStep, ...]:
        """The steps of the first unit."""
        return self.units[0]


@dataclass(frozen=True)
class Register:
    """A number that is known when the kernel runs: an element of scratch memory."""

    place: Memref


Value: TypeAlias = Number | Memref | Register | DataIndex


def refused(op: Operation, what: str) -> FrontendError:
    """A kernel that cannot be imported, in one sentence with the op and its place."""
    return FrontendError(f"{describe(op)} {what}")


def memref_of(op: Operation, kind: Attribute, start: int, tensor: int = -1) -> Memref:
    """The array of a type that begins somewhere. Its open sizes are 1, and what makes it says their numbers."""
    if not isinstance(kind, MemRefType):
        raise refused(op, f"gives {kind}, which is no memref")
    space = space_of_type(kind)
    if space is None or (space != "gm" and space not in SPACES):
        raise refused(op, f"names memory without a space that a core has: {kind}")
    try:
        element = dtype_name(kind.element_type)
    except ValueError as error:
        raise refused(op, f"has elements that Tilewright does not know: {error}") from None
    shape = tuple(max(n, 1) for n in kind.get_shape())
    strides = row_major(shape)
    if isinstance(kind.layout, StridedLayoutAttr):
        strides = tuple(s if s is not None else 1 for s in kind.layout.get_strides())
    return Memref("gm" if space == "gm" else SPACES[space], element, shape, strides, start, tensor, start)


@dataclass
class Scratch:
    """Memory for numbers and masks, which the vendor's kernels have in registers or as bits. used: bytes of each
    kind."""

    used: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SCRATCH, 0))
    constants: dict[tuple[Number, str], Memref] = field(default_factory=dict)
    masks: dict[int, Memref] = field(default_factory=dict)
    workspaces: dict[int, Memref] = field(default_factory=dict)
    """The parts of the workspace of a block, by their first byte."""
    most: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SCRATCH, 0))
    """The most bytes of each kind at a time."""

    def begin(self) -> None:
        """Lets the next block have the registers."""
        self.used["registers"] = 0

    def _place(self, kind: str, element: str, shape: tuple[int, ...], align: int) -> Memref:
        start = -(-self.used[kind] // align) * align
        found = Memref(kind, element, shape, row_major(shape), start)
        self.used[kind] = start + max(found.size * itemsize(element), 4)
        self.most[kind] = max(self.most[kind], self.used[kind])
        return found

    def number(self, element: str) -> Memref:
        """A new place for a number."""
        return self._place("registers", element, (), max(itemsize(element), 4))

    def vector(self, element: str, shape: tuple[int, ...]) -> Memref:
        """A new place for a vector."""
        return self._place("vectors", element, shape, 32)

    def constant(self, value: Number, element: str) -> Memref:
        """The place of a number that is known."""
        key = (value, element)
        if key not in self.constants:
            self.constants[key] = self._place("constants", element, (), max(itemsize(element), 4))
        return self.constants[key]

    def mask(self, place: Memref) -> Memref:
        """The place of bits in memory, a byte each."""
        found = self.masks.get(place.start)
        if found is None or found.size < place.size:
            found = self.masks[place.start] = self._place("masks", "i1", place.shape, 32)
        return Memref("masks", "i1", place.shape, row_major(place.shape), found.start)

    def workspace(self, offset: int, part: Memref, block: int) -> Memref:
        """A block's own part of the workspace, as a tensor of its own that has those of all blocks."""
        first = self.workspaces.setdefault(offset, replace(part, tensor=WORKSPACE + len(self.workspaces)))
        start = block * first.reach
        return replace(part, start=start, base=start, tensor=first.tensor)

    def starts(self, end: int) -> dict[str, int]:
        """Where each kind begins behind `end`; the last entry, "", is where all end."""
        found: dict[str, int] = {}
        for kind in SCRATCH:
            found[kind] = end = -(-end // 32) * 32
            end += self.most[kind]
        return {**found, "": end}
