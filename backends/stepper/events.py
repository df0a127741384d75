"""What a debugger sees of an instruction: where it is, what it reads and writes, and the values there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...dialects.base import describe, source_of
from .device import Tensor
from .instructions import Work
from .marks import Mark
from .nodes import Cross, Flag, IssuedNode
from .places import SectionBuffer, evaluated

if TYPE_CHECKING:
    from .cores import SteppedCore


@dataclass(frozen=True)
class TouchedValues:
    """Bytes that an instruction touches. space: of the core, or "gm"; of: the buffer or the tensor; ranges: first byte
    and the one behind the last, in the space; values: the elements, which share the memory."""

    space: str
    of: SectionBuffer | Tensor
    ranges: tuple[tuple[int, int], ...]
    write: bool
    values: np.ndarray


class StepEvent:
    """An instruction that a core comes to: it has not run yet."""

    def __init__(self, core: SteppedCore, node: IssuedNode) -> None:
        self.core, self.node, self.op = core, node, node.op
        self.env = tuple(core.env)

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        return self.core.launch.plan.name

    @property
    def pipe(self) -> str:
        """The pipe that runs it."""
        return self.core.section.pipes[self.node.queue]

    @property
    def location(self) -> str | None:
        """`file:line` of the user's source."""
        return source_of(self.op)

    @property
    def indices(self) -> dict[str, int]:
        """The grid coordinates, the unit and the loops' indices around it, by name."""
        return named_indices(self.core, self.env)

    @property
    def offsets(self) -> Sequence[int]:
        """The values of its `at [...]`."""
        return evaluated(self.node.rows, self.env) if isinstance(self.node, Work) else ()

    @property
    def reads(self) -> list[TouchedValues]:
        """What it reads."""
        return [a for a in self._accesses() if not a.write]

    @property
    def writes(self) -> list[TouchedValues]:
        """What it writes."""
        return [a for a in self._accesses() if a.write]

    @property
    def waits_for(self) -> str:
        """What its pipe waits for before it, where it is a wait; else empty."""
        node = self.node
        if isinstance(node, Flag) and not node.sets:
            return f"flag {node.channel(self.env)} from {node.pair[0]}"
        if isinstance(node, Cross) and not node.sets:
            return f"cross-core event {node.event}"
        return ""

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.indices.items())
        return f"{describe(self.op)} on {self.pipe} of {self.core} of @{self.kernel} ({at})"

    def _accesses(self) -> list[TouchedValues]:
        node, core = self.node, self.core
        if not isinstance(node, Work):
            return []
        found = []
        for places, write in ((node.reads, False), (node.writes, True)):
            for place in places:
                slot = place.slot(self.env)
                view = core.memory.views[place.buffer.number][slot]
                if view is not None:
                    ranges = (place.buffer.bytes_of(slot),)
                    found.append(TouchedValues(place.buffer.space, place.buffer, ranges, write, view))
        for box, (offset, sizes, strides, _), write in node.accesses(core):
            tensor = core.launch.tensors[box.tensor]
            address = tensor.address + offset
            values = core.device.window(address, sizes, strides, box.dtype, node.op)
            ranges = byte_ranges(address, sizes, strides, box.dtype.itemsize)
            found.append(TouchedValues("gm", tensor, ranges, write, values))
        return found


def named_indices(core: SteppedCore, env: Sequence[int]) -> dict[str, int]:
    """The indices of a core by name."""
    found = {}
    for value, number in core.launch.plan.indices.items():
        name = value.name_hint or f"i{number}"
        found[name if name not in found else f"{name}.{number}"] = env[number]
    return found


def byte_ranges(
    address: int, sizes: Sequence[int], strides: Sequence[int], width: int
) -> tuple[tuple[int, int], ...]:
    """The bytes of a box, as ranges in order; those that touch are one."""
    starts = np.full(1, address)
    for n, stride in zip(sizes, strides, strict=True):
        starts = (starts[:, None] + np.arange(n) * stride).reshape(-1)
    if not starts.size:
        return ()
    starts = np.unique(starts)
    ends = starts + width
    cuts = np.flatnonzero(starts[1:] > ends[:-1]) + 1
    firsts, lasts = np.concatenate([[0], cuts]), np.concatenate([cuts - 1, [len(starts) - 1]])
    return tuple((int(starts[a]), int(ends[b])) for a, b in zip(firsts, lasts, strict=True))


def said_by(mark: Mark) -> str:
    """An instruction that ran, as text."""
    if mark.core is None:
        return describe(mark.op)
    at = ", ".join(f"{name} = {value}" for name, value in named_indices(mark.core, mark.env).items())
    return f"{describe(mark.op)} on {mark.core.pipe_of(mark)} of {mark.core} ({at})"
