"""The text of the npu level that an imported kernel is: its tensors, launches and kernels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import FileLineColLoc

from ...dialects.base import place_of
from ...dialects.dtypes import element_type
from ...dialects.npu.fractals import larger_fractals
from ...dialects.npu.scratch import WORKS_IN
from ...machine import Machine
from .boxes import BoxPlace, only_on, placed
from .groups import GridOfCores, starts_of, unit_moves
from .instructions import literal
from .kernels import KernelFunctions
from .places import SCRATCH, BufferView, Memref
from .steps import CorePart, CoreStep, Scratch, refused
from .tensors import ArgumentTensor, Ranges

STATES = "stored real partitioned fused scheduled tiled inlined bufferized addressed synchronized"
"""What the kernels of a module that is imported have."""

@dataclass
class Writer:
    """Writes the text of a module."""

    kernel: KernelFunctions
    machine: Machine
    scratch: Scratch
    tensors: dict[int, ArgumentTensor]
    ranges: Ranges
    scattered: bool
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
            f"  npu.kernel @{self._name(number)} {{counted, {'scattered, ' * self.scattered}grid = [{grid}], "
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
        self._indices: dict[Hashable, str] = {}
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
        decided: list[str] = []
        for o in step.operands:
            if isinstance(o, Memref):
                name, kind, place = self._view(step, o, o is step.operands[-1])
                decided = [self._indices[key] for key, _ in o.data]
            else:
                name, kind = self.buffer(o), self.kind(o)
            names.append(name)
            types.append(kind)
        where = ""
        if place is not None:
            coordinates = [f"%i{a}" for a in range(len(self.group.axes))]
            coordinates += ["%unit"] * (len(self.part.units) > 1) + decided
            places = [_linear(c, m, coordinates) for c, m in zip(place.constants, place.moves, strict=True)]
            where = f" at [{', '.join(places)}]"
            last = step.sizes or place.sizes
            sizes = f"sizes = {[*place.sizes[: len(place.sizes) - len(last)], *last]}"
        elif at is not None:
            where = f" at [{', '.join(map(str, at))}]"
        bounds, result = "", ("", "")
        if step.index is not None:
            name = self._indices[step.index] = f"%n{self._first}_{len(self._indices)}"
            low, high = self.writer.ranges[step.index]
            bounds, result = f"low = {low} : i64, high = {high} : i64", (f"{name} = ", " -> index")
        inside = ", ".join(p for p in (sizes, step.properties, bounds) if p)
        listed = f" {', '.join(names)}" if names else ""
        properties = f" {{{inside}}}" if inside else ""
        if step.works_in is not None:
            start, count = step.works_in
            properties += f" attributes {{{WORKS_IN} = array<i64: {start}, {count}>}}"
        kinds = f" : ({', '.join(types)})" if types else ""
        return f"      {result[0]}{step.name}{listed}{where}{properties}{kinds}{result[1]}{_location(step)}"

    def _view(self, step: CoreStep, box: Memref, writes: bool) -> tuple[str, str, BoxPlace]:
        """The view that a box of device memory lies in, its type, and its place there."""
        group, tensor = self.group, self.writer.tensors[box.tensor]
        moves = [m[self._boxes] for m in group.moves]
        axes = group.axes
        if len(self.part.units) > 1:
            moves, axes = [*moves, self._units[self._boxes - self._first]], (*axes, len(self.part.units))
        self._boxes += 1
        moves = [*moves, *(by for _, by in box.data)]
        reached = (*axes, *(self.writer.ranges[key][1] + 1 for key, _ in box.data))
        clipped = step.sizes is not None and step.sizes != box.shape
        place = placed(box, moves, reached, tensor.elements, clipped)
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
