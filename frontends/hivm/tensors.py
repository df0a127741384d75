"""The tensors that a kernel touches, and what the numbers are by which data decides where."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType

from .groups import Core
from .kernels import KernelFunctions
from .places import Memref
from .steps import WORKSPACE, CoreStep, refused

MOST_MARKED = 1 << 28
"""Elements of a tensor above which it is not followed which of them are stored."""


@dataclass
class ArgumentTensor:
    """An argument in device memory: its shape, and whether the kernel loads it and stores it."""

    name: str
    element: str
    shape: tuple[int, ...]
    elements: int
    loaded: bool = False
    stored: bool = False
    whole: bool = False
    """Whether all its elements are stored."""
    in_place: bool = False
    """Whether the kernel loads what it stored before."""
    workspace: bool = False

    @property
    def kind(self) -> str:
        return f"!npu.gm<{'x'.join(map(str, self.shape))}x{self.element}>"

    @property
    def given(self) -> bool:
        """Whether the caller gives it."""
        return not self.workspace and (self.loaded or not self.whole)

    def named(self, writes: bool) -> str:
        """What the kernel calls it where it loads, or writes."""
        return f"%out_{self.name}" if (writes or self.in_place) and not self.workspace else f"%{self.name}"


Ranges = dict[Hashable, tuple[int, int]]
"""The least and the greatest value of numbers by which data decides where, by their keys."""

WIDEST = -(1 << 31), (1 << 31) - 1
"""The values of a number that decides nothing."""


def tensors_of(kernel: KernelFunctions, cores: Sequence[Core], sizes: Mapping[int, int]) -> dict[int, ArgumentTensor]:
    """The tensors that a kernel touches, by the numbers of its arguments; what one kind of core stores and the other
    loads is a workspace. sizes: the elements of those that the launch gives. Raises FrontendError, as for a tensor of
    which nothing says where it ends."""
    found: dict[int, ArgumentTensor] = {}
    boxes: dict[int, list[tuple[Memref, bool, CoreStep, int]]] = {}
    kinds: dict[int, dict[bool, set[str]]] = {}
    every = [(part.core, unit) for core in cores for part in core for unit in part.units]
    for number, (core, steps) in enumerate(every):
        for step in steps:
            for o in step.operands:
                if isinstance(o, Memref):
                    writes = o is step.operands[-1]
                    boxes.setdefault(o.tensor, []).append((o, writes, step, number))
                    kinds.setdefault(o.tensor, {True: set(), False: set()})[writes].add(core)
    for tensor in sorted(boxes):
        listed = boxes[tensor]
        if tensor >= WORKSPACE:
            element, reach = listed[0][0].element, _end(listed)
            found[tensor] = ArgumentTensor(f"work{tensor - WORKSPACE}", element, (reach,), reach, workspace=True)
            continue
        argument = kernel.arguments[tensor]
        handed = kinds[tensor][True] and kinds[tensor][False] - kinds[tensor][True]
        element = listed[0][0].element
        fixed = argument.kind.get_shape() if isinstance(argument.kind, MemRefType) else (-1,)
        shape = tuple(fixed) if min(fixed, default=1) > 0 else (sizes.get(tensor) or _end(listed),)
        elements = prod(shape)
        if not elements:
            what = f"reaches what data decides of %{argument.name}: say in the launch how many elements it has"
            raise refused(listed[0][2].op, f"{what}, as in {argument.name}=4096")
        for box, _, step, _ in listed:
            if box.data:
                continue
            if box.start < 0 or box.start + box.reach > elements:
                raise refused(step.op, f"reaches element {box.start + box.reach - 1} of {elements}")
            if box.element != element:
                raise refused(step.op, f"sees a tensor of {element} as {box.element}")
        made = found[tensor] = ArgumentTensor(argument.name, element, shape, elements)
        grows = _reads_first(listed, elements)
        if handed and not grows:  # what one kind of core stores for the other
            made.workspace = True
            continue
        made.loaded = any(not writes for _, writes, *_ in listed)
        made.stored = any(writes for _, writes, *_ in listed)
        if made.stored:
            made.whole = not grows and _covered(listed, elements)
        if made.stored and made.loaded and ((grows and handed) or _loads_again(listed)):
            made.in_place, made.loaded = True, False
            made.whole = made.whole and _stored_first(listed, elements)
    return found


def _reads_first(listed: Sequence[tuple[Memref, bool, CoreStep, int]], elements: int) -> bool:
    """Whether a core accumulates to what it did not store before."""
    if not any(step.accumulates for _, _, step, _ in listed):
        return False
    return elements > MOST_MARKED or not _stored_first(
        [(box, not step.accumulates, step, core) for box, writes, step, core in listed if writes], elements
    )


def _end(listed: Sequence[tuple[Memref, bool, CoreStep, int]]) -> int:
    """The element behind the last one that boxes reach of which data decides nothing."""
    return max((b.start + b.reach for b, *_ in listed if not b.data), default=0)


def ranges_of(cores: Sequence[Core], tensors: Mapping[int, ArgumentTensor]) -> Ranges:
    """What numbers are where all that they decide lies in its tensor."""
    found: Ranges = {}
    every = [step for core in cores for part in core for unit in part.units for step in unit]
    for step in every:
        if step.index is not None:
            found.setdefault(step.index, WIDEST)
        for box in (o for o in step.operands if isinstance(o, Memref)):
            room = tensors[box.tensor].elements - box.reach - box.start
            for key, by in box.data:
                low, high = (-box.start, room) if by > 0 else (-room, box.start)
                low, high = -(-low // abs(by)), high // abs(by)
                least, most = found.get(key, WIDEST)
                found[key] = max(low, least), min(high, most)
    for step in every:
        if step.index is not None and found[step.index][0] > found[step.index][1]:
            raise refused(step.op, "decides places of which some lie outside of a tensor for all numbers")
    return found


def _numbers(box: Memref) -> Any:
    """The elements of a box."""
    at = np.array(box.start, np.int64)
    for n, s in zip(box.shape, box.strides, strict=True):
        at = at[..., None] + np.arange(n, dtype=np.int64) * s
    return at.reshape(-1)


def _covered(listed: Sequence[tuple[Memref, bool, CoreStep, int]], elements: int) -> bool:
    if elements > MOST_MARKED:
        return False
    marked = np.zeros(elements, np.bool_)
    for box, writes, *_ in listed:
        if writes and not box.data:
            marked[_numbers(box)] = True
    return bool(marked.all())


def _loads_again(listed: Sequence[tuple[Memref, bool, CoreStep, int]]) -> bool:
    """Whether a core loads elements that it stored before."""
    stored: dict[int, set[tuple[int, int]]] = {}
    for box, writes, _, core in listed:
        span = (box.start, box.start + box.reach) if not box.data else (0, MOST_MARKED)
        if writes:
            stored.setdefault(core, set()).add(span)
        elif any(a < span[1] and span[0] < b for a, b in stored.get(core, ())):
            return True
    return False


def _stored_first(listed: Sequence[tuple[Memref, bool, CoreStep, int]], elements: int) -> bool:
    """Whether all that a core loads is what it stored before."""
    stored: dict[int, np.ndarray] = {}
    for box, writes, _, core in listed:
        if core not in stored:
            stored[core] = np.zeros(elements, np.bool_)
        if box.data:
            if not writes and not stored[core].all():
                return False
        elif writes:
            stored[core][_numbers(box)] = True
        elif not stored[core][_numbers(box)].all():
            return False
    return True


