"""Turns a fusion into stages: loads of its operands, the ops of its domain, stores of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import f16
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from ...dialects.base import describe, integer, text, to_ints
from ...dialects.dtypes import PAIR, dtype_name, element_type, itemsize, signed, size
from ...dialects.elementwise import FUNCTIONS, REDUCTION_FUNCTION
from ...dialects.graph import ArgReduceOp, ElementwiseOp, FusionOp, IotaOp, ReduceOp, UnpackOp
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import is_open
from ...kernels.builder import exactly
from ...kernels.graph import StageGraph
from ...kernels.stage import (
    Apply,
    ArgReduce,
    BoxDim,
    Extract,
    Fill,
    Iota,
    KernelStage,
    Reduce,
    Ref,
    Round,
    Spacing,
    Spread,
    StageLoadBox,
    StageStoreBox,
    Unpack,
)
from ...machine import Machine
from ..errors import NoKernel, PassError
from ..forms.access import Load, splat_of
from .axes import FusionAxes, StoredPart
from .rounding import Rounding, roundings


class FusionStages(FusionAxes):
    """Makes the stages of a fusion's members. `made` is the step of each value that is computed."""

    def __init__(
        self,
        fusion: FusionOp,
        machine: Machine,
        groups: Sequence[Sequence[int]] | None = None,
        apart: bool = False,
    ):
        super().__init__(fusion, machine, groups, apart)
        self.location = fusion.location
        self.stages = self._no_stages()
        self.made: dict[SSAValue, Ref] = {}
        self.loads: dict[tuple, Ref] = {}
        self.casts: dict[tuple, Ref] = {}
        self.paired: frozenset[int] = frozenset()
        """Axes along which numbers are loaded in pairs: tiles have even extents there."""

    def _no_stages(self) -> StageGraph:
        """What stages are added to."""
        return StageGraph()

    def build_stages(self) -> None:
        """Fills `stages`. Raises PassError for an op that no vector kernel has."""
        rounded = roundings(self.members, self.machine.vector)
        within = frozenset[Operation]().union(*(chain.ops for chain in rounded.values()))
        for op in self.members:
            self.location = op.location
            if op in within:
                continue
            if op in rounded:
                self._rounded(op, rounded[op])
            elif isinstance(op, ElementwiseOp):
                self._elementwise(op)
            elif isinstance(op, ReduceOp):
                self._reduce(op)
            elif isinstance(op, ArgReduceOp):
                self._arg_reduce(op)
            elif isinstance(op, UnpackOp):
                self._unpack(op)
            else:
                self._other(op)
        for part in self.stored:
            self._store(part)

    def _other(self, op: Operation) -> None:
        """Makes the stages of an op that is in some kernels only. Raises PassError where this is none of them."""
        raise PassError(f"{describe(op)} cannot be part of a vector kernel")

    def _stored_extent(self, axis: int) -> int:
        """Elements along an axis of what is stored."""
        return self.extents[axis]

    def _stage(self, step: KernelStage) -> Ref:
        step.location = self.location
        self.stages.append(step)
        return (len(self.stages) - 1, 0)

    def _fill(self, value: float | int, element: Attribute) -> Ref:
        key = ("fill", exactly(value), element)
        if key not in self.loads:
            self.loads[key] = self._stage(KernelStage(Fill(value), [element], frozenset()))
        return self.loads[key]

    def _iota(self, load: Load, element: Attribute) -> Ref:
        assert isinstance(load.base.owner, IotaOp)
        native = element_type(self.machine.vector.computes("iota", dtype_name(element)))
        if native != element:
            return self._cast(self._iota(load, native), element)
        index = load.position[integer(load.base.owner.dim)]
        terms = [(self.new_axis[a], c) for a, c in index.terms if a in self.new_axis]
        if not terms:
            return self._fill(index.constant, element)
        key = ("iota", index, element)
        if key in self.loads:
            return self.loads[key]
        total: Ref | None = None
        for position, (axis, coefficient) in enumerate(terms):
            op = Iota(axis, coefficient, index.constant if position == 0 else 0)
            part = self._stage(KernelStage(op, [element], frozenset({axis})))
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
        dims: list[BoxDim] = []
        for d in order:
            index = load.indices[d]
            old, step = index.terms[0] if index.terms else (None, 1)
            axis = self.new_axis.get(old) if old is not None else None
            dims.append(BoxDim(load.shape[d], load.strides[d], axis, step, index.constant))
        if load.fill is None:
            merged = {
                d.axis: BoxDim(self.extents[d.axis], d.stride, d.axis) for d in dims if d.axis is not None
            }
            dims = list(merged.values())
        # a tile has its axes in the kernel's order, which on a fused core is the accumulator's and not the tensor's
        dims.sort(key=lambda d: -1 if d.axis is None else d.axis)
        key = ("load", number_in, tuple(dims), load.offset, exactly(load.fill))
        if key in self.loads:
            return self.loads[key]
        spacing = self._spacing(dims, load, element)
        if spacing is not None:
            self.loads[key] = self._picked(dims, load, element, number_in, spacing)
            return self.loads[key]
        op = StageLoadBox(number_in, tuple(dims), load.offset, load.fill)
        self.loads[key] = self._stage(KernelStage(op, [element], op.moves))
        return self.loads[key]

    def _spacing(self, dims: Sequence[BoxDim], load: Load, element: Attribute) -> Spacing | None:
        """How far apart the elements are of which a load takes one in so many along the last axis of a tile, or takes
        them the other way round, where a run of all between two of them takes no longer than one: they are picked on
        chip then."""
        last = dims[-1] if dims else None
        if load.fill is not None or last is None or last.axis is None:
            return None
        if last.axis != len(self.extents) - 1 or last.step != 1:
            return None
        if any(is_open(n) for d in dims for n in (d.extent, d.stride)) or last.extent == 1:
            return None
        near = min((abs(d.stride) for d in dims if d.extent > 1 and d.stride), default=1)
        step = last.stride
        whole_lines = abs(step) * itemsize(element) <= self.machine.gm_align
        picks = self.machine.vector.supports("gather", dtype_name(element))
        if abs(step) != near or step in (0, 1) or not (whole_lines and picks):
            return None
        return Spacing(last.axis, step, of=last.extent if step < 0 else 0)

    def _picked(
        self, dims: Sequence[BoxDim], load: Load, element: Attribute, source: int, spacing: Spacing
    ) -> Ref:
        """Loads all elements between those that are taken, and picks these on chip."""
        length = spacing.length(dims[-1].extent)
        run = BoxDim(length, 1, spacing.axis)
        op = StageLoadBox(source, (*dims[:-1], run), load.offset - (length - 1 if spacing.step < 0 else 0))
        brought = self._stage(KernelStage(op, [element], op.moves, spacing=spacing))
        pick = Extract(((spacing.axis, 0, spacing.step),), picks=True)
        return self._stage(KernelStage(pick, [element], op.moves, [brought]))

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
        maker = load.base.owner
        if load.base not in self.made and isinstance(maker, Operation):
            raise NoKernel(f"{describe(maker)} cannot be part of a load of its kernel")
        return self._taken(self.made[load.base], self.places_taken(load))

    def _taken(self, ref: Ref, places: Mapping[int, int]) -> Ref:
        """What a stage gives at one place along each of some axes."""
        taken = tuple((axis, place, 1) for axis, place in sorted(places.items()) if axis in self._span(ref))
        if not taken:
            return ref
        if (ref, taken) not in self.casts:
            axes = self._span(ref).difference(places)
            self.casts[ref, taken] = self._stage(KernelStage(Extract(taken), [self._element(ref)], axes, [ref]))
        return self.casts[ref, taken]

    def _span(self, ref: Ref) -> frozenset[int]:
        return self.stages[ref[0]].axes

    def _element(self, ref: Ref) -> Attribute:
        return self.stages[ref[0]].elements[ref[1]]

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
            self.casts[key] = self._materialise(ref, axes)
        return self.casts[key]

    def _materialise(self, ref: Ref, axes: frozenset[int]) -> Ref:
        """A value repeated over real lanes along `axes`."""
        return self._stage(KernelStage(Spread(), [self._element(ref)], axes, [ref]))

    def _spanning(self, ref: Ref, axes: frozenset[int]) -> Ref:
        """A value with a number for each place along `axes`."""
        ref = self._spread(ref, axes)
        return ref if self._span(ref) == axes else self._materialise(ref, axes)

    def _apply(
        self, function: str, operands: Sequence[Ref], element: Attribute, axes: frozenset[int] | None = None
    ) -> Ref:
        """An elementwise step over the union of its operands' axes."""
        span = frozenset().union(*(self._span(r) for r in operands)) if axes is None else axes
        return self._stage(KernelStage(Apply(function), [element], span, self._lanes(operands, span)))

    def _lanes(self, operands: Sequence[Ref], span: frozenset[int]) -> list[Ref]:
        """The operands of an elementwise step over `span`, each repeated over its lanes."""
        return [self._spread(r, span) for r in operands]

    def _native(self, function: str, element: Attribute) -> Attribute:
        """The element type the vector unit computes in for operands of `element`."""
        name = dtype_name(element)
        unit = self.machine.vector
        if FUNCTIONS[function].result in ("any", "bits") or (name == "i1" and unit.runs(function, name)):
            return element
        ordered = FUNCTIONS[function].picks or FUNCTIONS[function].passing == "order"
        return element_type(unit.orders(function, name) if ordered else unit.computes(function, name))

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
            same = self._element(operands[0]) == out
            ref = operands[0] if same else self._apply("convert", [operands[0]], out)
        else:
            ref = self._apply(name, operands, result, span if any(self._span(r) for r in operands) else None)
        if added and op.FUNCTION.leading:
            ref = self._apply("sub", [ref, self._fill(added * op.FUNCTION.leading, native)], native)
        self.made[op.results[0]] = self._cast(ref, out)

    def _rounded(self, op: Operation, chain: Rounding) -> None:
        ref = self._value(chain.value, self._axes_of(op))
        for mode, dtype in chain.path:
            if mode == "even":
                for function, end in (("max", chain.low), ("min", chain.high)):
                    if end is not None:
                        kind = self._element(ref)
                        ref = self._apply(function, [ref, self._fill(float(end), kind)], kind)
            ref = self._round(ref, mode, element_type(dtype))
        self.made[op.results[0]] = ref

    def _round(self, ref: Ref, mode: str, element: Attribute) -> Ref:
        """A conversion that rounds by a rule."""
        return self._stage(KernelStage(Round(mode), [element], self._span(ref), [ref]))

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

        reduction = Reduce(kind, tuple((a, self.extents[a]) for a in sorted(dims)))
        ref = self._stage(KernelStage(reduction, [native], span, [source]))
        self.made[op.result] = self._cast(ref, out)

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
        reduction = ArgReduce(text(op.kind), dim, self.extents[dim])
        number_of, _ = self._stage(KernelStage(reduction, [native, index], span, [source]))
        self.made[op.value] = self._cast((number_of, 0), out)
        self.made[op.index] = (number_of, 1)

    def _unpack(self, op: UnpackOp) -> None:
        """Pairs are loaded, and become their numbers. They lie along the last axis."""
        axes = self._new(self._axes_of(op))
        strides = {self.new_axis[a]: s for a, s in sorted(self._strides_of_numbers(op).items())}
        paired, dims = max(strides), sorted(strides)
        self.paired |= {paired}
        assert isinstance(op.x, BlockArgument) and strides[paired] == 1
        source, spacing = self.inputs[op.x], Spacing(paired, pairs=True)
        box = (
            BoxDim(self.extents[a] // 2, 1, a) if a == paired else BoxDim(self.extents[a], strides[a] // 2, a)
            for a in dims
        )
        pairs = self._stage(KernelStage(StageLoadBox(source, tuple(box)), [PAIR], axes, spacing=spacing))
        self.made[op.result] = self._stage(KernelStage(Unpack(), [f16], axes, [pairs]))

    def _store(self, part: StoredPart) -> None:
        value = part.value
        member = self._member_of(value)
        ref = self._value(value, self._domain_axes(value)) if member is None else self.made[member]
        strides = self._out_strides(value, part.strides)
        axes = self._new(list(strides))
        by_axis = {self.new_axis[a]: s for a, s in sorted(strides.items()) if a in self.new_axis}
        if self._span(ref) != axes:
            ref = self._materialise(ref, axes)
        place, offset = self._place_of(part)
        box = (*place, *(BoxDim(self._stored_extent(a), by_axis[a], a) for a in sorted(by_axis)))
        self._stage(KernelStage(StageStoreBox(part.output, box, self._element(ref), offset), [], axes, [ref]))

    def _place_of(self, part: StoredPart) -> tuple[Sequence[BoxDim], int]:
        """The dimensions of what is stored along which a part has one place, and where the first element of that is."""
        return (), part.offset
