"""How a kernel is placed: what each axis that it walks is bound to, and where its stages stand, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..dialects.dtypes import itemsize
from ..dialects.graph.schedules import Schedule
from ..dialects.npu.types import Pipe, padded_size
from .builder import may_repeat
from .graph import StageGraph
from .stage import Given, KernelStage

Binding = Literal["cores", "units", "loop"]
"""What takes the parts of an axis: cores, the vector cores beside a cube core, or the turns of a loop."""

Room = Literal["slots", "kept", "carried", "temporary", "none"]
"""Where results are kept on chip: in slots that loads and stores take in turn; as long as a loop further in runs; from
one piece of a row to the next; until they are used; nowhere, for what has none."""


@dataclass(frozen=True)
class Cut:
    """An axis is cut into `times` parts of `elements` each, the last of which may be shorter. what: what a part is."""

    by: Binding
    times: int
    elements: int
    what: str


@dataclass(frozen=True)
class PlannedAxis:
    """One axis that a kernel walks, of `extent` elements.

    dims: the axes of the fusion's domain that it stands for; none where a kernel has axes of its own. cuts: how it is
    cut, the outermost first; none where it is whole in a tile. tile: elements that are worked on at once.
    """

    name: str
    role: str
    extent: int
    tile: int
    cuts: tuple[Cut, ...] = ()
    dims: tuple[int, ...] = ()


def cuts_of(
    cores: int, trips: int, elements: int, what: str = "tile", apart: int | None = None
) -> tuple[Cut, ...]:
    """The cuts of an axis that cores share, each of which takes so many parts of so many elements, one by one. apart:
    elements from where a part begins to where the next one does, if that is not where it ends."""
    own = elements + (trips - 1) * (elements if apart is None else apart)
    both = Cut("cores", cores, own, "part of a core"), Cut("loop", trips, elements, what)
    return tuple(cut for cut in both if may_repeat(cut.times))


@dataclass(frozen=True)
class StagePlace:
    """Where a stage stands. inside: the axes of the plan whose loops it is in, the outermost first; walks: the walks
    over the pieces of a row that it is done in, from 1 on, none where rows are whole or it stands between walks;
    carried: bytes that go from one piece to the next."""

    inside: tuple[int, ...] = ()
    walks: tuple[int, ...] = ()
    carried: int = 0


class Brought(NamedTuple):
    """What a stage is given by another part of the kernel, in words, and the pipe that brings it; None where it is in
    ub already."""

    what: str
    pipe: Pipe | None


@dataclass(frozen=True)
class PlannedGraph:
    """The stages of a kernel, or of a part of it, in their places.

    part: what they are part of; empty where they are all of a kernel. axes: for each axis of the stages, which of the
    plan's it is; tile: elements of a tile along each; slots: buffers in flight of what goes from one pipe to another,
    by memory; brought: what other parts of the kernel give, by the names that stages know it by; tiles: the tile of
    each stage, where these are not all the same; tensors: how many inputs and outputs there are, where what is behind
    these are workspaces.
    """

    part: str
    stages: StageGraph
    axes: tuple[int, ...]
    tile: tuple[int, ...]
    slots: Mapping[str, int]
    places: tuple[StagePlace, ...]
    brought: Mapping[str, Brought] = field(default_factory=dict[str, Brought])
    tiles: Sequence[Sequence[int]] = ()
    tensors: tuple[int, int] | None = None

    def does(self, stage: KernelStage) -> str:
        """What a stage does, in a word or two."""
        if isinstance(stage.op, Given):
            return self.brought[stage.op.name].what
        read, written = self._workspace(stage)
        if read is not None or written is not None:
            return f"{stage.op.does} " + (f"of workspace {read}" if written is None else f"to workspace {written}")
        return stage.op.does

    def source(self, stage: KernelStage) -> int | None:
        """The number of the input that a stage loads."""
        return stage.source if self._workspace(stage)[0] is None else None

    def target(self, stage: KernelStage) -> int | None:
        """The number of the output that a stage stores."""
        return stage.target if self._workspace(stage)[1] is None else None

    def _workspace(self, stage: KernelStage) -> tuple[int | None, int | None]:
        """The numbers of the workspaces that a stage loads and stores."""
        if self.tensors is None:
            return None, None
        inputs, outputs = self.tensors
        read = None if stage.source is None else stage.source - inputs - outputs
        written = None if stage.target is None else stage.target - outputs
        return None if read is None or read < 0 else read, None if written is None or written < 0 else written

    def pipe(self, stage: KernelStage) -> Pipe | None:
        """The pipe that a stage is on; None where its result is there already."""
        return self.brought[stage.op.name].pipe if isinstance(stage.op, Given) else stage.pipe

    def shape(self, i: int) -> Sequence[int]:
        """Elements of the results of a stage along each of their dimensions."""
        tile = self.tiles[i] if self.tiles else self.tile
        return self.stages[i].extents(self.stages.extents(self.stages[i], tile))

    def bytes(self, i: int, result: int) -> int:
        """Bytes on chip that one slot of a result of a stage takes, its rows padded to blocks; 0 for a scalar."""
        stage = self.stages[i]
        return 0 if stage.kind == "scalar" else padded_size(self.shape(i), itemsize(stage.elements[result]))

    def rooms(self) -> list[Room]:
        """Where the results of each stage are kept."""
        found: list[Room] = []
        pipes = [self.pipe(stage) or Pipe.V for stage in self.stages]
        crossing, apart = set[int](), set[int]()
        for i, (stage, place) in enumerate(zip(self.stages, self.places, strict=True)):
            for j, _ in stage.operands:
                if pipes[j] != pipes[i]:
                    crossing.add(j)
                maker = self.places[j]
                if maker.inside != place.inside or not {*place.walks} <= {*maker.walks}:
                    apart.add(j)
        for i, (stage, place) in enumerate(zip(self.stages, self.places, strict=True)):
            if not stage.elements or stage.kind == "scalar":
                found.append("none")
            elif place.carried:
                found.append("carried")
            elif pipes[i] == Pipe.MTE2 or i in crossing:
                found.append("slots")
            else:
                found.append("kept" if i in apart or stage.kind == "fill" else "temporary")
        return found


@dataclass(frozen=True)
class KernelPlan:
    """How a kernel is placed by its schedule. graphs: its stages; unstaged: what is not among them and why, as a
    clause, empty where all is."""

    schedule: Schedule
    axes: tuple[PlannedAxis, ...]
    graphs: tuple[PlannedGraph, ...] = field(default=())
    unstaged: str = ""
