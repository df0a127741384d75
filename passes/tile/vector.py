"""Vector kernels: elementwise ops and reductions over a tiled domain, and pure data movement.

The fusion becomes a list of steps (load, fill, op, store), each known by the domain axes it spans. Tile sizes
come from the schedule; then each step is emitted in the outermost loop that knows everything it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from xdsl.dialects.builtin import LocationAttr, StringAttr
from xdsl.dialects.builtin import i1 as I1
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, describe, integer, ints, pack, text, to_ints
from ...dialects.dtypes import dtype_name, element_type, itemsize, signed, size
from ...dialects.elementwise import FUNCTIONS, REDUCTION_FUNCTION, identity
from ...dialects.graph import (
    ArgReduceOp,
    ElementwiseOp,
    FusionOp,
    IotaOp,
    ReduceOp,
    TransposeOp,
    YieldOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import GmType, padded_bytes, row_strides
from ...dialects.tile import TileType
from ...machine import Machine
from ..access import Index, Load, resolve, splat_of
from ..errors import PassError
from ..pins import FREE, VECTOR_FIELDS, Pins, Schedule, schedule_for
from .builder import KernelBuilder, divide_grid, gm_of, integer_attr, number
from .cores import copy_cycles, worth_waking
from .schedule import UB_FRACTION, choose_tile, cut_tile, largest_tile, merge_axes

Ref = tuple[int, int]
"""A step's number and which of its results."""


@dataclass
class Step:
    """One tile op. `axes` are the domain axes its result spans; `emit` builds it from its operands' tiles."""

    elements: Sequence[Attribute]
    axes: frozenset[int]
    operands: Sequence[Ref]
    emit: Callable[[Emitter, list[SSAValue]], Sequence[SSAValue]]
    kind: str
    moves: frozenset[int] = frozenset()
    """Axes whose loop indices the step itself reads."""
    reduces: frozenset[int] = frozenset()
    function: str | None = None
    """What the vector unit computes."""
    view: GmType | None = None
    """What a load or store moves in all, along `along`: an axis for each dimension, None where there is one place."""
    along: Sequence[int | None] = ()
    location: LocationAttr | None = None
    """Where the graph op it belongs to came from."""


_ORDER = {"load": 0, "store": 2}
"""When the kinds of steps of one loop depth are emitted; others come between."""


@dataclass
class Emitter:
    """What steps need while they are emitted: tile extents and loop positions."""

    builder: KernelBuilder
    tile: Sequence[int]
    position: dict[int, Expr] = field(default_factory=dict)

    def shape(self, axes: frozenset[int]) -> list[int]:
        return [t if a in axes else 1 for a, t in enumerate(self.tile)]

    def type(self, axes: frozenset[int], element: Attribute) -> TileType:
        return TileType.of(self.shape(axes), element, "ub")

    def at(self, axis: int) -> Expr:
        return self.position.get(axis, Expr())


def is_member(value: SSAValue) -> bool:
    """Whether a value is computed by an op of the fusion's domain, not by a layout op."""
    return isinstance(value.owner, Operation) and "axes" in value.owner.attributes


class VectorKernel:
    """Lowers one vector or move fusion."""

    def __init__(self, fusion: FusionOp, machine: Machine, pins: Schedule = FREE):
        self.pins = pins
        self.fusion = fusion
        self.machine = machine
        self.location = fusion.location
        self.block = fusion.body.block
        self.domain = to_ints(fusion.domain)
        self.steps: list[Step] = []
        self.made: dict[SSAValue, Ref] = {}
        self.loads: dict[tuple, Ref] = {}
        self.casts: dict[tuple, Ref] = {}
        self.inputs = {a: i for i, a in enumerate(self.block.args)}
        self.members = [op for op in self.block.ops if "axes" in op.attributes]
        last = self.block.last_op
        assert isinstance(last, YieldOp)
        self.yielded = last.values
        self.new_axis: dict[int, int] = {}
        self._merge()

    # -- axes ------------------------------------------------------------------------------------------------

    def _axes_of(self, op: Operation) -> list[int | None]:
        attr = op.attributes["axes"]
        return [None if a < 0 else a for a in to_ints(attr)]  # pyright: ignore[reportArgumentType]

    def _result_axes(self, op: Operation) -> list[int | None]:
        axes = self._axes_of(op)
        if isinstance(op, ReduceOp):
            return [a for d, a in enumerate(axes) if d not in to_ints(op.dims)]
        if isinstance(op, ArgReduceOp):
            return [a for d, a in enumerate(axes) if d != integer(op.dim)]
        return axes

    def _is_base(self, value: SSAValue) -> bool:
        return isinstance(value, BlockArgument) or is_member(value)

    def _trace(self, value: SSAValue, axes: Sequence[int | None]) -> Load:
        return resolve(value, [Index.axis(a) for a in axes], self.domain, self._is_base)

    def _uses(self) -> list[tuple[SSAValue, list[int | None]]]:
        """Every (value, axes of its dimensions) the kernel uses."""
        found = [(v, self._axes_of(op)) for op in self.members for v in op.operands]
        for value in self.yielded:
            if self._member_of(value) is None:
                found.append((value, list(range(len(self.domain)))))
        return found

    def _member_of(self, value: SSAValue) -> SSAValue | None:
        """The member result a yielded value is, seen through transposes; None for loaded data."""
        while isinstance(value.owner, TransposeOp) and "axes" not in value.owner.attributes:
            value = value.owner.x
        return value if is_member(value) else None

    def _out_strides(self, value: SSAValue) -> dict[int, int]:
        """Elements between neighbours of the stored tensor along each domain axis."""
        strides = list(row_strides(shape_of(value)))
        if self._member_of(value) is None:
            return dict(enumerate(strides))
        while isinstance(value.owner, TransposeOp) and "axes" not in value.owner.attributes:
            inner = [0] * len(strides)
            for i, p in enumerate(to_ints(value.owner.perm)):
                inner[p] = strides[i]
            value, strides = value.owner.x, inner
        assert isinstance(value.owner, Operation)
        axes = self._result_axes(value.owner)
        return {a: s for a, s in zip(axes, strides, strict=True) if a is not None}

    def _constraints(self) -> tuple[list[dict[int, int]], list[frozenset[int]], set[int]]:
        """What merging axes must respect: (strides of each access by axis, axes of each value, axes kept apart)."""
        strides: list[dict[int, int]] = []
        presence: list[frozenset[int]] = []
        fixed: set[int] = set()
        for value, axes in self._uses():
            presence.append(frozenset(a for a in axes if a is not None))
            if splat_of(value) is not None:
                continue
            load = self._trace(value, axes)
            if isinstance(load.base.owner, IotaOp):
                fixed |= {a for i in load.position for a, _ in i.terms}
            elif load.fill is not None:
                fixed |= load.axes
            elif isinstance(load.base, BlockArgument):
                step = {i.terms[0][0]: s for i, s in zip(load.indices, load.strides, strict=True)}
                strides.append(step)
                presence.append(frozenset(step))
        for op in self.members:
            presence.append(frozenset(a for a in self._result_axes(op) if a is not None))
        for value in self.yielded:
            strides.append({a: s for a, s in self._out_strides(value).items() if self._full_extent(a) != 1})
        return strides, presence, fixed

    def _full_extent(self, axis: int) -> int:
        return self.domain[axis]

    def _merge(self) -> None:
        strides, presence, fixed = self._constraints()
        by_axis = {len(p) for p in (self.pins.tile, self.pins.grid) if p is not None and len(p) > 1}
        if len(self.domain) in by_axis:  # Pinned axis by axis: none may merge.
            fixed = set(range(len(self.domain)))
        self.merged = merge_axes(self.domain, strides, presence, fixed) or [[]]
        self.new_axis = {a: i for i, group in enumerate(self.merged) for a in group}
        self.extents = [size([self.domain[a] for a in group]) for group in self.merged]

    def _new(self, axes: Sequence[int | None]) -> frozenset[int]:
        return frozenset(self.new_axis[a] for a in axes if a is not None and a in self.new_axis)

    # -- steps -----------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> Ref:
        step.location = self.location
        self.steps.append(step)
        return (len(self.steps) - 1, 0)

    def _fill(self, value: float | int, element: Attribute) -> Ref:
        key = ("fill", repr(value), element)  # 0.0 and -0.0 are equal, but not the same
        if key not in self.loads:

            def emit(e: Emitter, _: list[SSAValue]) -> Sequence[SSAValue]:
                return e.builder.add(
                    ops.FillOp, [], [e.type(frozenset(), element)], value=number(value)
                ).results

            self.loads[key] = self._step(Step([element], frozenset(), (), emit, "fill"))
        return self.loads[key]

    def _iota(self, load: Load, element: Attribute) -> Ref:
        assert isinstance(load.base.owner, IotaOp)
        index = load.position[integer(load.base.owner.dim)]
        terms = [(self.new_axis[a], c) for a, c in index.terms if a in self.new_axis]
        if not terms:
            return self._fill(index.constant, element)
        key = ("iota", index, element)
        if key in self.loads:
            return self.loads[key]
        total: Ref | None = None
        for position, (axis, coefficient) in enumerate(terms):
            constant = index.constant if position == 0 else 0

            def emit(
                e: Emitter, _: list[SSAValue], axis=axis, c=coefficient, constant=constant
            ) -> Sequence[SSAValue]:
                indices, rows = pack([e.at(axis) * c + constant])
                return e.builder.add(
                    ops.IotaOp,
                    indices,
                    [e.type(frozenset({axis}), element)],
                    offsets=rows,
                    dim=integer_attr(axis),
                    step=integer_attr(c),
                ).results

            part = self._step(Step([element], frozenset({axis}), (), emit, "op", frozenset({axis})))
            total = part if total is None else self._apply("add", [total, part], element)
        assert total is not None
        self.loads[key] = total
        return total

    def _load(self, load: Load, element: Attribute) -> Ref:
        order = sorted(
            range(len(load.shape)), key=lambda d: load.indices[d].terms[0][0] if load.indices[d].terms else -1
        )
        assert isinstance(load.base, BlockArgument)
        number_in = self.inputs[load.base]
        dims: list[tuple[int, int, int | None, int, int]] = []
        for d in order:
            index = load.indices[d]
            old = index.terms[0][0] if index.terms else None
            axis = self.new_axis.get(old) if old is not None else None
            step = index.terms[0][1] if index.terms else 1
            dims.append((load.shape[d], load.strides[d], axis, step, index.constant))
        if load.fill is None:
            merged: dict[int, tuple[int, int, int | None, int, int]] = {}
            for entry in dims:
                if entry[2] is not None:
                    merged[entry[2]] = (self.extents[entry[2]], entry[1], entry[2], 1, 0)
            dims = list(merged.values())
        key = ("load", number_in, tuple(dims), load.offset, repr(load.fill))
        if key in self.loads:
            return self.loads[key]
        axes = frozenset(d[2] for d in dims if d[2] is not None)

        def emit(e: Emitter, _: list[SSAValue]) -> Sequence[SSAValue]:
            view = e.builder.view(
                e.builder.gm(number_in), [d[0] for d in dims], [d[1] for d in dims], load.offset
            )
            offsets = [(e.at(d[2]) * d[3] if d[2] is not None else Expr()) + d[4] for d in dims]
            sizes = [e.tile[d[2]] if d[2] is not None else 1 for d in dims]
            steps = [d[3] if d[2] is not None else 1 for d in dims]
            return [e.builder.load(view, offsets, sizes, e.type(axes, element), steps, load.fill)]

        along = [d[2] for d in dims]
        whole = GmType.of([d[0] for d in dims], element, [d[1] * d[3] for d in dims])
        self.loads[key] = self._step(Step([element], axes, (), emit, "load", axes, view=whole, along=along))
        return self.loads[key]

    def _value(self, value: SSAValue, axes: Sequence[int | None]) -> Ref:
        """The step that gives `value` with these axes."""
        splat = splat_of(value)
        element = element_of(value)
        if splat is not None:
            return self._fill(splat, element)
        load = self._trace(value, axes)
        if isinstance(load.base, BlockArgument):
            return self._load(load, element)
        if isinstance(load.base.owner, IotaOp):
            return self._iota(load, element)
        return self.made[load.base]

    def _span(self, ref: Ref) -> frozenset[int]:
        return self.steps[ref[0]].axes

    def _element(self, ref: Ref) -> Attribute:
        return self.steps[ref[0]].elements[ref[1]]

    def _cast(self, ref: Ref, element: Attribute) -> Ref:
        if self._element(ref) == element:
            return ref
        key = (ref, element)
        if key not in self.casts:
            self.casts[key] = self._apply("convert", [ref], element)
        return self.casts[key]

    def _spread(self, ref: Ref, axes: frozenset[int]) -> Ref:
        """Repeats a value over `axes`; single elements stay as they are (scalar operands)."""
        if self._span(ref) == axes or not self._span(ref):
            return ref
        key = (ref, axes)
        if key not in self.casts:
            element = self._element(ref)

            def emit(e: Emitter, tiles: list[SSAValue]) -> Sequence[SSAValue]:
                if tiles[0].type == e.type(axes, element):
                    return tiles
                return e.builder.add(ops.BroadcastOp, tiles, [e.type(axes, element)]).results

            self.casts[key] = self._step(Step([element], axes, [ref], emit, "op"))
        return self.casts[key]

    def _apply(
        self, function: str, operands: Sequence[Ref], element: Attribute, axes: frozenset[int] | None = None
    ) -> Ref:
        """An elementwise step over the union of its operands' axes."""
        span = frozenset().union(*(self._span(r) for r in operands)) if axes is None else axes
        spread = [self._spread(r, span) for r in operands]
        cls = ops.ELEMENTWISE[function]

        def emit(e: Emitter, tiles: list[SSAValue]) -> Sequence[SSAValue]:
            return e.builder.add(cls, tiles, [e.type(span, element)]).results

        return self._step(Step([element], span, spread, emit, "op", function=function))

    def _native(self, function: str, element: Attribute) -> Attribute:
        """The element type the vector unit computes in for operands of `element`."""
        name = dtype_name(element)
        unit = self.machine.vector
        if name == "i1" or FUNCTIONS[function].result in ("any", "bits"):
            return element
        return element_type(unit.computes(function, name))

    def _elementwise(self, op: ElementwiseOp) -> None:
        axes = self._axes_of(op)
        operands = [self._value(v, axes) for v in op.operands]
        name = op.FUNCTION.name
        first = 1 if op.FUNCTION.predicate else 0
        native = self._native(name, self._element(operands[first]))
        out = element_of(op.results[0])
        if op.FUNCTION.sign and native != out:
            operands[0] = self._apply("bitcast", [operands[0]], signed(out))
        operands = [r if i < first else self._cast(r, native) for i, r in enumerate(operands)]
        added = 8 * (itemsize(native) - itemsize(out)) if op.FUNCTION.bits else 0
        if added:
            ones = self._fill((1 << 8 * itemsize(out)) - 1, native)
            operands[0] = self._apply("and", [operands[0], ones], native)
        span = self._new(axes)
        result = out if op.FUNCTION.result != "same" else native
        if name == "convert":
            ref = self._convert(operands[0], out, span)
        else:
            ref = self._apply(name, operands, result, span if any(self._span(r) for r in operands) else None)
        if added and op.FUNCTION.leading:
            ref = self._apply("sub", [ref, self._fill(added * op.FUNCTION.leading, native)], native)
        self.made[op.results[0]] = self._cast(ref, out)

    def _convert(self, ref: Ref, out: Attribute, span: frozenset[int]) -> Ref:
        if self._element(ref) == out:
            return ref
        return self._apply("convert", [ref], out)

    def _reduce(self, op: ReduceOp) -> None:
        axes = self._axes_of(op)
        dims = self._new([axes[d] for d in to_ints(op.dims)])
        source = self._value(op.x, axes)
        out = element_of(op.result)
        kind = text(op.kind)
        missing = size([shape_of(op.x)[d] for d in to_ints(op.dims)])
        source = self._spread(source, self._new(axes))
        if not self._span(source) and missing != 1:
            source = self._materialise(source, self._new(axes))
        native = self._native(REDUCTION_FUNCTION[kind], out)
        source = self._cast(source, native)
        span = self._span(source) - dims
        if not dims:
            self.made[op.result] = self._cast(source, out)
            return

        def emit(e: Emitter, tiles: list[SSAValue]) -> Sequence[SSAValue]:
            return e.builder.add(
                ops.ReduceOp,
                tiles,
                [e.type(span, native)],
                kind=StringAttr(kind),
                dims=ints(sorted(dims)),
            ).results

        function = REDUCTION_FUNCTION[kind]
        ref = self._step(Step([native], span, [source], emit, "reduce", reduces=dims, function=function))
        self.made[op.result] = self._cast(ref, out)

    def _materialise(self, ref: Ref, axes: frozenset[int]) -> Ref:
        """A single element repeated over real lanes, for ops without a scalar operand."""
        element = self._element(ref)

        def emit(e: Emitter, tiles: list[SSAValue]) -> Sequence[SSAValue]:
            if tiles[0].type == e.type(axes, element):
                return tiles
            return e.builder.add(ops.BroadcastOp, tiles, [e.type(axes, element)]).results

        return self._step(Step([element], axes, [ref], emit, "op"))

    def _arg_reduce(self, op: ArgReduceOp) -> None:
        axes = self._axes_of(op)
        dims = self._new([axes[integer(op.dim)]])
        source = self._value(op.x, axes)
        out, index = element_of(op.value), element_of(op.index)
        native = self._native("max", out)
        if not self._span(source):
            source = self._materialise(source, self._new(axes))
        source = self._cast(self._spread(source, self._new(axes)), native)
        if not dims:
            self.made[op.value] = self._cast(source, out)
            self.made[op.index] = self._fill(0, index)
            return
        (dim,) = dims
        span = self._span(source) - dims
        kind = text(op.kind)

        def emit(e: Emitter, tiles: list[SSAValue]) -> Sequence[SSAValue]:
            return e.builder.add(
                ops.ArgReduceOp,
                tiles,
                [e.type(span, native), e.type(span, index)],
                kind=StringAttr(kind),
                dim=integer_attr(dim),
            ).results

        number_of, _ = self._step(Step([native, index], span, [source], emit, "reduce", reduces=dims))
        self.made[op.value] = self._cast((number_of, 0), out)
        self.made[op.index] = (number_of, 1)

    def _store(self, i: int, value: SSAValue) -> None:
        member = self._member_of(value)
        ref = self._value(value, list(range(len(self.domain)))) if member is None else self.made[member]
        strides = self._out_strides(value)
        axes = self._new(list(strides))
        by_axis = {self.new_axis[a]: s for a, s in sorted(strides.items()) if a in self.new_axis}
        if self._span(ref) != axes:
            ref = self._materialise(ref, axes)
        dims = sorted(by_axis)

        def emit(e: Emitter, tiles: list[SSAValue]) -> Sequence[SSAValue]:
            dest = e.builder.view(
                e.builder.output(i), [self.extents[a] for a in dims] or [1], [by_axis[a] for a in dims] or [1]
            )
            e.builder.store(
                tiles[0], dest, [e.at(a) for a in dims] or [Expr()], [e.tile[a] for a in dims] or [1]
            )
            return ()

        whole = GmType.of([self.extents[a] for a in dims], self._element(ref), [by_axis[a] for a in dims])
        self._step(Step([], axes, [ref], emit, "store", axes, view=whole, along=dims))

    def build_steps(self) -> None:
        for op in self.members:
            self.location = op.location
            if isinstance(op, ElementwiseOp):
                self._elementwise(op)
            elif isinstance(op, ReduceOp):
                self._reduce(op)
            elif isinstance(op, ArgReduceOp):
                self._arg_reduce(op)
            else:
                raise PassError(f"{describe(op)} cannot be part of a vector kernel")
        for i, value in enumerate(self.yielded):
            self._store(i, value)

    # -- schedule ----------------------------------------------------------------------------------------------

    def _varies(self) -> list[frozenset[int]]:
        """The axes whose loops each step may stand in: those that anything it uses moves along."""
        rows = frozenset().union(*(s.reduces for s in self.steps))
        found: list[frozenset[int]] = []
        for step in self.steps:
            found.append((step.moves - rows).union(*(found[j] for j, _ in step.operands)))
        return found

    def ub_bytes(self, tile: Sequence[int]) -> int:
        """Bytes of the unified buffer that the steps need at once with these tile extents. Temporaries of one loop
        share memory; what a loop further in uses keeps its own."""
        varies = self._varies()
        last: dict[int, int] = {}
        crossing: set[int] = set()
        kept: set[int] = set()
        for i, step in enumerate(self.steps):
            for j, _ in step.operands:
                last[j] = i
                if step.kind == "store":
                    crossing.add(j)
                if varies[j] != varies[i]:
                    kept.add(j)
            if step.kind == "load":
                crossing.add(i)
        total = live = peak = 0
        ends: dict[int, list[int]] = {}
        for i, step in enumerate(self.steps):
            shape = [t if a in step.axes else 1 for a, t in enumerate(tile)]
            need = sum(padded_bytes(shape, e) for e in step.elements)
            if i in crossing:
                total += need * self.slots
            elif step.kind == "fill" or i in kept:
                total += need
            elif step.elements:
                live += need
                ends.setdefault(last.get(i, i), []).append(need)
                peak = max(peak, live)
            live -= sum(ends.pop(i, ()))
        return total + peak

    def combining_bytes(self, tile: Sequence[int], ragged: bool = True) -> int:
        """Bytes on top where rows are read in pieces: the masked piece if they may be `ragged`, what is carried,
        comparisons."""
        step = next(s for s in self.steps if s.reduces)
        source = self.steps[step.operands[0][0]]

        def bytes_of(axes: frozenset[int], elements: Sequence[Attribute]) -> int:
            return sum(padded_bytes([t if a in axes else 1 for a, t in enumerate(tile)], e) for e in elements)

        masked = bytes_of(source.axes, source.elements) if ragged else 0
        return masked + 4 * bytes_of(step.axes, step.elements)

    def build(self, name: str) -> ops.KernelOp:
        self.slots = self.pins.ub or 2
        self.build_steps()
        rows = frozenset().union(*(s.reduces for s in self.steps))
        capacity = int(self.machine.spaces["ub"].bytes * UB_FRACTION)

        def fits(tile: Sequence[int]) -> bool:
            return self.ub_bytes(tile) <= capacity

        width = max(itemsize(e) for s in self.steps for e in s.elements)
        self.cores = min(self.machine.vector_cores, self.pins.cores or self.machine.vector_cores)
        tile = self._pinned_tile(name, rows)
        if tile is not None:
            return self._emit(name, tile, rows, any(tile[a] < self.extents[a] for a in rows))
        tile = largest_tile(self.extents, rows, fits)
        streamed = tile is None
        if tile is not None:
            if self.pins.cores is None and self.pins.grid is None:
                self.cores = worth_waking(self.work_cycles(tile), self.machine)
            tile = cut_tile(tile, self.extents, rows, width, self.cores)
        else:
            if sum(bool(s.reduces) for s in self.steps) != 1:
                raise PassError(f"{describe(self.fusion)} needs more of ub than {self.machine.name} has")
            tile = choose_tile(
                self.extents,
                frozenset(),
                lambda t: self.ub_bytes(t) + self.combining_bytes(t) <= capacity,
                width,
                1,
            )
            if tile is None:
                raise PassError(f"{describe(self.fusion)}: one element of each value does not fit ub")
        return self._emit(name, tile, rows, streamed)

    def work_cycles(self, tile: Sequence[int]) -> float:
        """What the kernel would take one core, its pipes one after the other, tile by tile."""
        unit, cycles = self.machine.vector, 0.0
        for step in self.steps:
            if step.view is not None:
                box = [1 if a is None else tile[a] for a in step.along]
                cycles += copy_cycles(step.kind, step.view, box, self.machine)
            elif step.function is not None:
                elements = size([n for a, n in enumerate(self.extents) if a in step.axes | step.reduces])
                dtype = dtype_name(step.elements[0])
                function = step.function if unit.supports(step.function, dtype) else "add"
                cycles += unit.cycles(function, dtype, elements)
        return cycles

    def _refuse(self, name: str, reason: str) -> PassError:
        return PassError(f"@{name} cannot obey its pinned schedule: {reason}")

    def _pinned_tile(self, name: str, rows: frozenset[int]) -> tuple[int, ...] | None:
        """The pinned tile over the merged axes; None where none is pinned. Raises PassError where it cannot be."""
        wanted = self.pins.tile
        if wanted is None and self.pins.copy_length is None:
            return None
        if wanted is not None and len(wanted) == len(self.extents):
            tile = tuple(min(t, n) for t, n in zip(wanted, self.extents, strict=True))
        elif wanted is not None and len(wanted) == len(self.domain):
            kept = [wanted[group[0]] if group else 1 for group in self.merged]
            tile = tuple(min(t, n) for t, n in zip(kept, self.extents, strict=True))
        elif wanted is not None and len(wanted) > 1:
            raise self._refuse(name, f"its domain has {len(self.domain)} axes, and the tile {len(wanted)}")
        else:
            left = wanted[0] if wanted else self.pins.copy_length or 1
            lengths = [n if a in rows else 1 for a, n in enumerate(self.extents)]
            for a in reversed(range(len(self.extents))):
                if a not in rows or wanted:
                    lengths[a] = min(max(left, 1), self.extents[a])
                left //= lengths[a]
            tile = tuple(lengths)
        pieces = any(tile[a] < self.extents[a] for a in rows)
        if pieces:
            reductions = [i for i, s in enumerate(self.steps) if s.reduces]
            if len(reductions) != 1:
                raise self._refuse(name, "rows are reduced more than once, so they cannot be read in pieces")
            wide = [i for i in self._spanning(rows) if i != reductions[0]]
            if any(reductions[0] in self._ancestors(i) for i in wide):
                raise self._refuse(
                    name, "what its rows are reduced to is used along them, so they must be whole"
                )
        ragged = any(self.extents[a] % tile[a] for a in rows)
        room = self.machine.spaces["ub"].bytes
        extra = self.combining_bytes(tile, ragged) if pieces else 0
        if self.pins.ub is None and self.ub_bytes(tile) + extra > room:
            self.slots = 1
        need = self.ub_bytes(tile) + extra
        if need > room:
            shown = " x ".join(map(str, tile))
            raise self._refuse(
                name, f"a tile of {shown} takes {need} bytes of ub, and {self.machine.name} has {room}"
            )
        return tile

    def _split(self, name: str, counts: Sequence[int], outer: Sequence[int]) -> dict[int, tuple[int, int]]:
        """(cores along it, tiles per core) for each axis that is not reduced."""
        cores = self.cores
        grid = self.pins.grid
        if grid is None:
            return dict(zip(outer, divide_grid([counts[a] for a in outer], cores), strict=True))
        if len(grid) == len(self.domain):
            grid = tuple(grid[group[0]] if group else 1 for group in self.merged)
        if len(grid) != len(self.extents):
            raise self._refuse(name, f"its domain has {len(self.domain)} axes, and the grid {len(grid)}")
        if size(grid) > cores:
            raise self._refuse(name, f"a grid of {size(grid)} cores is more than the {cores} there are")
        out: dict[int, tuple[int, int]] = {}
        for a, wanted in enumerate(grid):
            per_core = -(-counts[a] // wanted)
            if -(-counts[a] // per_core) != wanted or (a not in outer and wanted > 1):
                why = "it is reduced" if a not in outer else f"it has {counts[a]} tiles"
                raise self._refuse(name, f"axis {a} cannot be split over {wanted} cores, as {why}")
            if a in outer:
                out[a] = (wanted, per_core)
        return out

    def _emit(self, name: str, tile: Sequence[int], rows: frozenset[int], streamed: bool) -> ops.KernelOp:
        counts = [-(-n // t) for n, t in zip(self.extents, tile, strict=True)]
        outer = [a for a in range(len(tile)) if a not in rows]
        split = self._split(name, counts, outer)
        axes_on_grid = [a for a in outer if split[a][0] > 1]
        builder = KernelBuilder(
            self.machine,
            "vector",
            [split[a][0] for a in axes_on_grid],
            [gm_of(a) for a in self.block.args],
            [gm_of(v) for v in self.yielded],
            slots={"ub": self.slots},
        )
        builder.location = self.fusion.location
        emitter = Emitter(builder, tile)
        core = "fused" if self.machine.fused else "vector"
        loops = [(a, split[a][1]) for a in outer if split[a][1] > 1]
        if streamed:
            loops += [(a, counts[a]) for a in sorted(rows) if counts[a] > 1]
        depth = {a: i + 1 for i, (a, _) in enumerate(loops)}
        level = self._levels(depth)
        with builder.section(core):
            for a in outer:
                on_grid = Expr.of(builder.coordinates[axes_on_grid.index(a)]) if a in axes_on_grid else Expr()
                emitter.position[a] = on_grid * (split[a][1] * tile[a])
            if streamed:
                self._emit_streamed(emitter, loops, level, rows)
            else:
                done: dict[Ref, SSAValue] = {}
                with ExitStack() as stack:
                    for d in range(len(loops) + 1):
                        if d:
                            axis, trips = loops[d - 1]
                            index = stack.enter_context(builder.loop(trips))
                            emitter.position[axis] = emitter.position[axis] + index * tile[axis]
                        self._emit_level(emitter, level, d, done)
        return builder.finish(name)

    def _levels(self, depth: dict[int, int]) -> list[int]:
        """The loop depth each step belongs to: the deepest that anything it uses varies with."""
        level: list[int] = []
        for step in self.steps:
            own = max((depth.get(a, 0) for a in step.moves), default=0)
            level.append(max([own, *(level[j] for j, _ in step.operands)]))
        return level

    def _emit_level(
        self, emitter: Emitter, level: Sequence[int], depth: int, done: dict[Ref, SSAValue]
    ) -> None:
        """Emits the steps of one loop depth: loads first and stores last, so that one flag can cover them all."""
        here = [i for i, _ in enumerate(self.steps) if level[i] == depth and (i, 0) not in done]
        for i in self._ordered(here):
            self._emit_step(emitter, i, self.steps[i], done)

    def _ordered(self, steps: Iterable[int]) -> list[int]:
        return sorted(steps, key=lambda i: _ORDER.get(self.steps[i].kind, 1))

    def _emit_step(self, emitter: Emitter, i: int, step: Step, done: dict[Ref, SSAValue]) -> None:
        emitter.builder.location = step.location
        results = step.emit(emitter, [done[r] for r in step.operands])
        emitter.builder.location = self.fusion.location
        done.update({(i, j): r for j, r in enumerate(results)})

    def _emit_streamed(
        self, emitter: Emitter, loops: list[tuple[int, int]], level: list[int], rows: frozenset[int]
    ) -> None:
        """A reduction whose rows do not fit: partial results of row pieces are combined in a carried tile."""
        builder = emitter.builder
        at = next(i for i, s in enumerate(self.steps) if s.reduces)
        before = self._ancestors(at)
        beside = [i for i in self._spanning(rows) if i not in before and i != at]
        done: dict[Ref, SSAValue] = {}
        outer = [(a, n) for a, n in loops if a not in rows]
        inner = [(a, n) for a, n in loops if a in rows]
        with ExitStack() as stack:
            for axis, trips in outer:
                index = stack.enter_context(builder.loop(trips))
                emitter.position[axis] = emitter.position[axis] + index * emitter.tile[axis]
            for a in rows:
                emitter.position[a] = Expr()
            carried = self._neutral(emitter, at)
            with ExitStack() as nest:
                levels: list[list[SSAValue]] = []
                for axis, trips in inner:
                    levels.append(carried)
                    carried = list(carried)
                    index = nest.enter_context(_carrying(builder, trips, levels[-1], carried))
                    emitter.position[axis] = emitter.position[axis] + index * emitter.tile[axis]
                for i in [*before, *self._ordered(beside)]:
                    self._emit_step(emitter, i, self.steps[i], done)
                self._combine(emitter, at, done, carried)
            final = levels[0] if levels else carried
            done.update({(at, j): v for j, v in enumerate(final)})
            inside = {*before, *beside, at}
            for i in self._ordered(i for i, _ in enumerate(self.steps) if i not in inside):
                self._emit_step(emitter, i, self.steps[i], done)

    def _spanning(self, rows: frozenset[int]) -> list[int]:
        """The steps that work on reduced axes, and what only they use."""
        wide = [i for i, s in enumerate(self.steps) if (s.axes | s.moves) & rows]
        return sorted({j for i in wide for j in [*self._ancestors(i), i]})

    def _ancestors(self, at: int) -> list[int]:
        needed: set[int] = set()
        stack = [at]
        while stack:
            for j, _ in self.steps[stack.pop()].operands:
                if j not in needed:
                    needed.add(j)
                    stack.append(j)
        return sorted(needed)

    def _reduction_kind(self, at: int) -> str:
        op = next(o for o in self.members if isinstance(o, ReduceOp | ArgReduceOp))
        return text(op.kind)

    def _neutral(self, emitter: Emitter, at: int) -> list[SSAValue]:
        step, kind = self.steps[at], self._reduction_kind(at)
        out = []
        for j, element in enumerate(step.elements):
            value = identity(kind, dtype_name(element)) if j == 0 else 0
            out.append(
                emitter.builder.add(
                    ops.FillOp, [], [emitter.type(step.axes, element)], value=number(value)
                ).results[0]
            )
        return out

    def _combine(self, emitter: Emitter, at: int, done: dict[Ref, SSAValue], carried: list[SSAValue]) -> None:
        step, kind, builder = self.steps[at], self._reduction_kind(at), emitter.builder
        (source,) = step.operands
        tile = done[source]
        neutral = identity(kind, dtype_name(step.elements[0]))
        ragged = [a for a in step.reduces if self.extents[a] % emitter.tile[a]]
        if ragged:
            rank = len(emitter.tile)
            indices, rows = pack([emitter.at(a) if a in ragged else Expr() for a in range(rank)])
            bounds = [self.extents[a] if a in ragged else emitter.tile[a] for a in range(rank)]
            tile = builder.add(
                ops.MaskOp,
                [tile, *indices],
                [tile.type],
                offsets=rows,
                bounds=ints(bounds),
                value=number(neutral),
            ).results[0]
        parts = list(step.emit(emitter, [tile]))
        if len(parts) == 1:
            cls = ops.ELEMENTWISE[REDUCTION_FUNCTION[kind]]
            carried[0] = builder.add(cls, [carried[0], parts[0]], [carried[0].type]).results[0]
            return
        self._combine_arg(emitter, kind, parts, carried, next(iter(step.reduces)))

    def _combine_arg(
        self, emitter: Emitter, kind: str, parts: list[SSAValue], carried: list[SSAValue], axis: int
    ) -> None:
        """The better of the best so far and a piece's best; the first index wins, NaN wins over numbers."""
        builder = emitter.builder
        value, index = parts
        best, best_index = carried
        mask = TileType.of(value.type.shape, I1, "ub")  # pyright: ignore[reportAttributeAccessIssue]

        def op(name: str, *operands: SSAValue, result: Attribute | None = None) -> SSAValue:
            return builder.add(ops.ELEMENTWISE[name], operands, [result or operands[-1].type]).results[0]

        indices, rows = pack([emitter.at(axis)])
        start = builder.add(
            ops.IotaOp,
            indices,
            [TileType.of([1] * len(emitter.tile), index.type.element, "ub")],  # pyright: ignore[reportAttributeAccessIssue]
            offsets=rows,
            dim=integer_attr(0),
            step=integer_attr(1),
        ).results[0]
        shifted = op("add", index, start, result=index.type)
        better = op("gt" if kind == "max" else "lt", value, best, result=mask)
        if dtype_name(value.type.element)[0] in "fb":  # pyright: ignore[reportAttributeAccessIssue]
            nan = op("ne", value, value, result=mask)
            number_so_far = op("eq", best, best, result=mask)
            better = op("or", better, op("and", nan, number_so_far))
            better = op("and", better, number_so_far)
        carried[0] = op("select", better, value, best)
        carried[1] = op("select", better, shifted, best_index)


class _carrying(ExitStack):
    """A loop whose carried tiles start as `outer` and are `inner` inside; `outer` becomes the loop's results."""

    def __init__(self, builder: KernelBuilder, trips: int, outer: list[SSAValue], inner: list[SSAValue]):
        super().__init__()
        self.builder, self.trips, self.outer, self.inner = builder, trips, outer, inner

    def __enter__(self) -> Expr:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.loop = self.builder.loop(self.trips, self.inner)
        index = self.loop.__enter__()
        return index

    def __exit__(self, *details) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.loop.__exit__(*details)
        self.outer[:] = self.inner


OBEYED = VECTOR_FIELDS | {"ub", "cores"}


def lower_vector(fusion: FusionOp, machine: Machine, name: str, pins: Pins = None) -> ops.KernelOp:
    """The kernel of a vector or move fusion. Raises PassError where it cannot fit, or cannot obey its pins."""
    return VectorKernel(fusion, machine, schedule_for(pins, name, OBEYED)).build(name)
