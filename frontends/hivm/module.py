"""The text of the npu level that an imported kernel is: its tensors, launches and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import FileLineColLoc, MemRefType

from ...dialects.base import place_of
from ...dialects.dtypes import element_type
from ...dialects.npu.fractals import larger_fractals
from ...dialects.npu.scratch import WORKS_IN
from ...machine import Machine
from .boxes import BoxPlace, only_on, placed
from .groups import Core, GridOfCores, starts_of, unit_moves
from .instructions import literal
from .kernels import KernelFunctions
from .places import SCRATCH, BufferView, Memref
from .steps import WORKSPACE, CorePart, CoreStep, Scratch, refused

STATES = "stored real partitioned fused scheduled tiled inlined bufferized addressed synchronized"
"""What the kernels of a module that is imported have."""

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


def tensors_of(kernel: KernelFunctions, cores: Sequence[Core]) -> dict[int, ArgumentTensor]:
    """The tensors that a kernel touches, by the numbers of its arguments; what one kind of core stores and the other
    loads is a workspace."""
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
            element, reach = listed[0][0].element, max(b.start + b.reach for b, *_ in listed)
            found[tensor] = ArgumentTensor(f"work{tensor - WORKSPACE}", element, (reach,), reach, workspace=True)
            continue
        argument = kernel.arguments[tensor]
        handed = kinds[tensor][True] and kinds[tensor][False] - kinds[tensor][True]
        reach = max(b.start + b.reach for b, *_ in listed)
        element = listed[0][0].element
        shape: tuple[int, ...] = (reach,)
        fixed = argument.kind.get_shape() if isinstance(argument.kind, MemRefType) else (-1,)
        if min(fixed, default=1) > 0:
            shape = tuple(fixed)
        elements = int(np.prod(shape))
        for box, _, step, _ in listed:
            if box.start < 0 or box.start + box.reach > elements:
                raise refused(step.op, f"reaches element {box.start + box.reach - 1} of {elements}")
            if box.element != element:
                raise refused(step.op, f"sees a tensor of {element} as {box.element}")
        made = found[tensor] = ArgumentTensor(argument.name, element, shape, elements)
        if handed:  # what one kind of core stores for the other
            made.workspace = True
            continue
        made.loaded = any(not writes for _, writes, *_ in listed)
        made.stored = any(writes for _, writes, *_ in listed)
        if made.stored:
            made.whole = _covered(listed, elements)
        if made.stored and made.loaded and _loads_again(listed):
            made.in_place, made.loaded = True, False
            made.whole = made.whole and _stored_first(listed, elements)
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
        if writes:
            marked[_numbers(box)] = True
    return bool(marked.all())


def _loads_again(listed: Sequence[tuple[Memref, bool, CoreStep, int]]) -> bool:
    """Whether a core loads elements that it stored before."""
    stored: dict[int, set[tuple[int, int]]] = {}
    for box, writes, _, core in listed:
        span = (box.start, box.start + box.reach)
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
        if writes:
            stored[core][_numbers(box)] = True
        elif not stored[core][_numbers(box)].all():
            return False
    return True


@dataclass
class Writer:
    """Writes the text of a module."""

    kernel: KernelFunctions
    machine: Machine
    scratch: Scratch
    tensors: dict[int, ArgumentTensor]
    where: str
    lines: list[str] = field(default_factory=list)

    def module(self, groups: Sequence[GridOfCores]) -> str:
        """The text of the module."""
        states = ", ".join(f'"{s}"' for s in STATES.split())
        attributes = f'tilewright.target = "{self.machine.name}", tilewright.states = [{states}]'
        self.lines = [f"builtin.module attributes {{{attributes}}} {{"]
        self._main(groups)
        for number, group in enumerate(groups):
            self._kernel(number, group)
        self.lines.append("}")
        return "\n".join(self.lines) + "\n"

    def _name(self, number: int) -> str:
        name = self.kernel.func.sym_name.data.strip("_") or "kernel"
        return f"{name}_{number}"

    def _main(self, groups: Sequence[GridOfCores]) -> None:
        given = [t for t in self.tensors.values() if t.given]
        stored = [t for t in self.tensors.values() if t.stored]
        arguments = ", ".join(f"%{t.name}: {t.kind}" for t in given)
        results = ", ".join(t.kind for t in stored)
        self.lines.append(f"  func.func @main({arguments}) -> ({results}) {{")
        for t in stored:
            self.lines.append(f"    %out_{t.name} = npu.gm_alloc : () -> {t.kind}")
            if not t.whole:
                self.lines.append(f"    npu.copy %{t.name}, %out_{t.name} : ({t.kind}, {t.kind})")
        loaded = [t for t in self.tensors.values() if t.loaded]
        works = [t for t in self.tensors.values() if t.workspace]
        for t in works:
            self.lines.append(f"    %{t.name} = npu.gm_alloc : () -> {t.kind}")
        names = [
            *(t.named(False) for t in loaded),
            *(t.named(True) for t in stored),
            *(t.named(False) for t in works),
        ]
        operands = ", ".join(names)
        types = ", ".join(t.kind for t in (*loaded, *stored, *works))
        for number, _ in enumerate(groups):
            updates = [i for i, t in enumerate(stored) if number or not t.whole]
            also = f", updates = array<i64: {', '.join(map(str, updates))}>" if updates else ""
            self.lines.append(
                f"    npu.launch @{self._name(number)} {operands} {{outputs = {len(stored)}{also}, "
                f"workspaces = {len(works)}}} : ({types})"
            )
        names = ", ".join(f"%out_{t.name}" for t in stored)
        self.lines.append(f"    func.return {names} : {results}" if stored else "    func.return")
        self.lines.append("  }")

    def _kernel(self, number: int, group: GridOfCores) -> None:
        loaded = [t for t in self.tensors.values() if t.loaded]
        stored = [t for t in self.tensors.values() if t.stored]
        grid = ", ".join(map(str, group.axes))
        arguments = [f"%i{a}: index" for a in range(len(group.axes))]
        arguments += [f"%{t.name}: {t.kind}" for t in loaded]
        arguments += [f"%out_{t.name}: {t.kind}" for t in stored]
        works = [t for t in self.tensors.values() if t.workspace]
        arguments += [f"%{t.name}: {t.kind}" for t in works]
        self.lines += [
            f"  npu.kernel @{self._name(number)} {{counted, grid = [{grid}], "
            f'kind = "{self.kernel.kind}", outputs = {len(stored)}, workspaces = {len(works)}}} {{',
            f"  ^bb0({', '.join(arguments)}):",
        ]
        views: dict[tuple[str, str], str] = {}
        sections: list[str] = []
        first = 0
        for part in group.core:
            body = SectionWriter(self, group, part, first, views)
            text = body.steps()
            text = [*body.constants(), *text]
            sections.append(f'    npu.section {{core = "{part.core}", units = {len(part.units)}}} {{')
            sections.append("    ^bb0(%unit: index):")
            sections += [*body.allocs, *text, "    }"]
            first += len(starts_of(part.steps))
        for (name, kind), view in views.items():
            source = next(t for t in self.tensors.values() if name in (t.named(True), t.named(False)))
            self.lines.append(f"    {view} = npu.view {name} : ({source.kind}) -> {kind}")
        self.lines += [*sections, "  }"]


class SectionWriter:
    """Writes a section of a kernel. first: the number of its first box among the group's; views: those of all sections
    of the kernel, by what they are of and their type."""

    def __init__(
        self, writer: Writer, group: GridOfCores, part: CorePart, first: int, views: dict[tuple[str, str], str]
    ):
        self.writer, self.group, self.part = writer, group, part
        self.allocs: list[str] = []
        self._buffers: dict[BufferView, str] = {}
        self._views = views
        self._first = self._boxes = first
        self._units = unit_moves(part)
        ends = [o.end for s in part.steps for o in s.operands if isinstance(o, BufferView) and o.space == "ub"]
        ends += [sum(s.works_in) for s in part.steps if s.works_in is not None]
        self._starts = writer.scratch.starts(max(ends, default=0))
        room = writer.machine.spaces["ub"].bytes if "ub" in writer.machine.spaces else 0
        users = [s for s in part.steps if any(o.space in SCRATCH for o in s.operands)]
        if self._starts[""] > room and users:
            needed = self._starts[""]
            what = f"needs {needed:,} bytes of ub with numbers and masks behind the kernel's own, of {room:,}"
            raise refused(users[0].op, what)

    def constants(self) -> list[str]:
        """Puts the numbers that are known to their places."""
        used = {b for b in self._buffers if b.space == "constants"}
        starts = {b.start for b in used}
        lines = []
        for (value, element), place in self.writer.scratch.constants.items():
            if place.start in starts:
                found = BufferView("constants", element, (1,), 1, place.start)
                name, kind = self.buffer(found), self.kind(found)
                lines.append(f"      npu.set_number {name} {{value = {literal(value, element)}}} : ({kind})")
        return lines

    def kind(self, b: BufferView) -> str:
        """The type of a buffer."""
        space, element = "ub" if b.space in SCRATCH else b.space, element_type(b.element)
        layout = f", pitch {b.pitch}" if b.pitch else ""
        blocks = None if b.pitch else larger_fractals(b.shape, element, space, 1, self.writer.machine)
        if blocks is not None:
            layout = f", fractals [{blocks.rows}, {blocks.columns}]"
        shape = "x".join(map(str, b.shape))
        return f"!npu.buffer<{shape}x{b.element}, {space}{layout}>"

    def buffer(self, b: BufferView) -> str:
        """The name of a buffer, which is allocated where it is met first."""
        if b not in self._buffers:
            name = self._buffers[b] = f"%b{self._first}_{len(self._buffers)}"
            start = b.start + (self._starts[b.space] if b.space in SCRATCH else 0)
            self.allocs.append(
                f"      {name} = npu.alloc {{address = {start}, shared}} : () -> {self.kind(b)}"
            )
        return self._buffers[b]

    def steps(self) -> list[str]:
        """The lines of all steps."""
        return [self._line(step) for step in self.part.steps]

    def _line(self, step: CoreStep) -> str:
        names, types, at, sizes = [], [], step.at, ""
        place: BoxPlace | None = None
        for o in step.operands:
            if isinstance(o, Memref):
                name, kind, place = self._view(step, o, o is step.operands[-1])
            else:
                name, kind = self.buffer(o), self.kind(o)
            names.append(name)
            types.append(kind)
        where = ""
        if place is not None:
            coordinates = [f"%i{a}" for a in range(len(self.group.axes))] + ["%unit"]
            places = [_linear(c, m, coordinates) for c, m in zip(place.constants, place.moves, strict=True)]
            where = f" at [{', '.join(places)}]"
            found = step.sizes or place.sizes
            found = (*place.sizes[: len(place.sizes) - len(found)], *found)
            sizes = f"sizes = {list(found)}"
        elif at is not None:
            where = f" at [{', '.join(map(str, at))}]"
        inside = ", ".join(p for p in (sizes, step.properties) if p)
        listed = f" {', '.join(names)}" if names else ""
        properties = f" {{{inside}}}" if inside else ""
        if step.works_in is not None:
            start, count = step.works_in
            properties += f" attributes {{{WORKS_IN} = array<i64: {start}, {count}>}}"
        kinds = f" : ({', '.join(types)})" if types else ""
        return f"      {step.name}{listed}{where}{properties}{kinds}{_location(step)}"

    def _view(self, step: CoreStep, box: Memref, writes: bool) -> tuple[str, str, BoxPlace]:
        """The view that a box of device memory lies in, its type, and its place there."""
        group, tensor = self.group, self.writer.tensors[box.tensor]
        moves = [m[self._boxes] for m in group.moves]
        axes = group.axes
        if len(self.part.units) > 1:
            moves, axes = [*moves, self._units[self._boxes - self._first]], (*axes, len(self.part.units))
        self._boxes += 1
        clipped = step.sizes is not None and step.sizes != box.shape
        place = placed(box, moves, axes, tensor.elements, clipped)
        if step.only is not None:
            place = only_on(place, step.only, len(axes))
        name = tensor.named(writes)
        shape = "x".join(map(str, place.shape))
        strides = ", ".join(map(str, place.strides))
        kind = f"!npu.gm<{shape}x{tensor.element}, strides [{strides}], offset 0>"
        if (name, kind) not in self._views:
            self._views[name, kind] = f"%v{len(self._views)}"
        return self._views[name, kind], kind, place


def _linear(constant: int, moves: Sequence[int], coordinates: Sequence[str]) -> str:
    terms = [x if m == 1 else f"{x} * {m}" for x, m in zip(coordinates, moves, strict=False) if m]
    if constant or not terms:
        terms.append(str(constant))
    return " + ".join(terms)


def _location(step: CoreStep) -> str:
    place = place_of(step.op)
    if not isinstance(place, FileLineColLoc):
        return ""
    return f' loc("{place.filename.data}":{place.line.data}:{place.column.data})'
