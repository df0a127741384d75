"""Cores that do the same at places that move regularly from one to the next: these become the grid of one kernel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .places import Memref
from .steps import CorePart, CoreStep, refused

Core = Sequence[CorePart]
"""What the cores of a block do, those of each kind."""


@dataclass(frozen=True)
class GridOfCores:
    """Cores of one kernel. core: the first of them; axes: how many there are along each axis of its grid; moves: how
    much further each box of device memory begins for the next core along each axis, in the order of the parts and their
    steps."""

    core: Core
    axes: tuple[int, ...]
    moves: tuple[tuple[int, ...], ...]


def _shape_of(step: CoreStep) -> tuple[Hashable, ...]:
    """A step but for where its boxes of device memory begin."""
    operands = tuple(
        (o.tensor, o.element, o.shape, o.strides, o.data) if isinstance(o, Memref) else o for o in step.operands
    )
    return step.name, step.properties, step.at, step.sizes, step.index, id(step.op), operands


def alike(part: CorePart) -> CorePart:
    """A part whose units have the same steps: a store of one of them is one of all, which moves nothing for the others.
    Raises FrontendError where they differ in more than that and in where their boxes begin."""
    if len(part.units) != 2:
        return part
    units: tuple[list[CoreStep], list[CoreStep]] = ([], [])
    left = [list(reversed(unit)) for unit in part.units]
    while left[0] or left[1]:
        steps = [unit[-1] if unit else None for unit in left]
        if steps[0] is not None and steps[1] is not None and _shape_of(steps[0]) == _shape_of(steps[1]):
            for own, unit in zip(units, left, strict=True):
                own.append(unit.pop())
            continue
        stores = [n for n, s in enumerate(steps) if s is not None and s.name == "npu.store_nd"]
        if len(stores) != 1:
            differs = next(s for s in (*steps, part.steps[-1]) if s is not None)
            raise refused(differs.op, "is not what the other vector core of the block does")
        step = replace(left[stores[0]].pop(), only=stores[0])
        for own in units:
            own.append(step)
    return CorePart(part.core, tuple(map(tuple, units)))


def _shape_of_part(part: CorePart) -> Hashable:
    """A part but for where its boxes begin."""
    return part.core, tuple((s.only, *_shape_of(s)) for s in part.steps), tuple(unit_moves(part))


def unit_moves(part: CorePart) -> list[int]:
    """How much further the boxes of a part begin for its next unit."""
    starts = [starts_of(unit) for unit in part.units]
    if len(starts) < 2:
        return [0] * len(starts[0])
    return [b - a for a, b in zip(*starts[:2], strict=True)]


def grouped(cores: Sequence[Core]) -> list[GridOfCores]:
    """All cores in groups, in order."""
    kinds: dict[Hashable, int] = {}
    shapes = [kinds.setdefault(tuple(map(_shape_of_part, core)), len(kinds)) for core in cores]
    starts = [np.array([s for part in core for s in starts_of(part.steps)], np.int64) for core in cores]
    found: list[GridOfCores] = []
    begin = 0
    while begin < len(cores):
        end = begin + 1
        while end < len(cores) and shapes[end] == shapes[begin]:
            end += 1
        while begin < end:
            axes, moves, count = _regular(starts[begin:end])
            found.append(GridOfCores(cores[begin], axes, moves))
            begin += count
    return found


def starts_of(steps: Sequence[CoreStep]) -> list[int]:
    """Where the boxes of device memory of some steps begin."""
    return [o.start for step in steps for o in step.operands if isinstance(o, Memref)]


def _regular(starts: Sequence[np.ndarray]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]:
    """The axes and moves of as many of the first cores as move regularly, and their number."""
    found = _axes(starts)
    count = len(starts)
    while found is None:
        count = _run(starts[:count]) if count == len(starts) else count // 2
        found = _axes(starts[:count])
    axes, moves = found
    return axes, moves, count


def _run(starts: Sequence[np.ndarray]) -> int:
    """How many of the first cores move by equal distances."""
    if len(starts) < 3:
        return len(starts)
    step = starts[1] - starts[0]
    count = 2
    while count < len(starts) and np.array_equal(starts[count] - starts[count - 1], step):
        count += 1
    return count


def _axes(starts: Sequence[np.ndarray]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    """The axes of a grid over which all cores move regularly, the slowest first; None where there are none."""
    if len(starts) == 1:
        return (1,), (tuple(0 for _ in starts[0]),)
    run = _run(starts)
    step = starts[1] - starts[0]
    if run == len(starts):
        return (run,), (tuple(int(n) for n in step),)
    if len(starts) % run or run == 1:
        return None
    for begin in range(0, len(starts), run):
        for i in range(1, run):
            if not np.array_equal(starts[begin + i] - starts[begin], i * step):
                return None
    outer = _axes(starts[::run])
    if outer is None:
        return None
    return (*outer[0], run), (*outer[1], tuple(int(n) for n in step))
