"""How the operands of a matrix product or convolution are read: what loads bring to l1, and what the l1 -> l0a move
makes of it, which unrolls an image to columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import Float32Type, i32
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from ....dialects.base import Expr, integer, to_ints
from ....dialects.dtypes import is_float, itemsize, size
from ....dialects.graph import ElementwiseOp, ExpandOp, FusionOp, GatherOp
from ....dialects.graph.control import axes_of
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.fractals import matrix_bytes
from ....dialects.npu.interface import gm_traffic
from ....dialects.npu.types import GmType, row_strides
from ....dialects.open_sizes import certain
from ....dialects.sparsity import INDEXED, KEPT_OF
from ....kernels.product_cost import LoadCost
from ....kernels.product_stages import Extents, OperandDim, PlaceRead, Terms, lengths
from ....machine import Machine
from ...forms.access import resolve
from ...forms.gathered_operands import gathers_of
from ...forms.nests import Product, nest_of
from ...forms.sparse_products import expansion_of
from ..axes import behind_merges, behind_transposes, is_base, stored_parts
from ..fusion_stages import FusionStages
from ..schedule import merge_axes


def product_in(fusion: FusionOp) -> Product | None:
    """The product of a fusion, if it has one and no other."""
    found = [op for op in fusion.body.block.ops if isinstance(op, Product)]
    return found[0] if len(found) == 1 else None


PROLOGUE = "prologue"
"""The attribute of an op before the product of a fusion that vector cores compute tile by tile: the axes that it has in
the domain of the operand that it helps to make, as `axes` of other ops."""


def made_operand(fusion: FusionOp) -> int | None:
    """Which operand of the product of a fusion (0: lhs, 1: rhs) its vector cores make; None where it has no
    prologue."""
    product = product_in(fusion)
    sides = [] if product is None else list(product.operands)[:2]
    return next((i for i, v in enumerate(sides) if is_prologue(behind_transposes(v)[0].owner)), None)


def is_prologue(op: object) -> bool:
    """Whether an op is part of a prologue."""
    return isinstance(op, Operation) and PROLOGUE in op.attributes


def takes_places(fusion: FusionOp) -> bool:
    """Whether what stands behind the product of a fusion takes single places along an axis of its result: no result of
    the fusion has that axis (choose/column_epilogue.py)."""
    wide = {a for a, n in enumerate(to_ints(fusion.domain)) if n != 1}
    parts = (part for v in fusion.yielded(0).values for part in stored_parts(0, v, row_strides(shape_of(v))))
    made = (behind_merges(part.value)[0].owner for part in parts)
    axes = [{*(axes_of(op) or ())} for op in made if isinstance(op, ElementwiseOp)]
    return bool(axes) and not wide <= set[int]().union(*axes)


def accumulated_in(op: Product) -> Attribute:
    """The element type that the cube adds up a product in."""
    return Float32Type() if is_float(element_of(op.lhs)) else i32


@dataclass
class Operand:
    """How lhs or rhs is read: view dimensions in load order, and whether the matrix is transposed after l1. index: how
    the positions of the values of a 2:4 sparse rhs are read."""

    source: int
    dims: list[OperandDim]
    offset: int
    element: Attribute
    transpose: bool = False
    index: Operand | None = None
    column_dims: int = 1
    """How many of the last dimensions are columns of the matrix in l1."""

    @property
    def placed(self) -> frozenset[int]:
        """The axes of which each place has a slice of its own."""
        return frozenset(a for d in self.dims if d.begins is not None for a in d.begins.axes)

    @property
    def parts(self) -> list[Operand]:
        """What is loaded of it: itself, and its index."""
        return [self] if self.index is None else [self, self.index]

    def l1_bytes(self, tile: Extents, machine: Machine) -> int:
        """What a load of a box of the axes takes in l1, at most: where windows are taken of it, all but the last of its
        dimensions are rows."""
        sizes = lengths(self.dims, tile)
        return max(matrix_bytes(sizes, self.element, "l1", dims, machine) for dims in {1, self.column_dims})

    def view(self, extents: dict[int, int]) -> GmType:
        """All of it, with what lies outside the tensor that windows reach."""
        reach = zip(self.dims, lengths(self.dims, extents), strict=True)
        return GmType.of([max(d.extent, n) for d, n in reach], self.element, [d.stride for d in self.dims])

    def load_cost(self, views: Sequence[GmType], box: Sequence[int], machine: Machine) -> LoadCost:
        """A load of its parts for a box of the axes."""
        move, cycles, moved, bus, turn = machine.moves["gm", "l1"], 0, 0, 0, 0.0
        for part, view in zip(self.parts, views, strict=True):
            sizes = lengths(part.dims, box)
            align = part.alignment(view, sizes, machine)
            traffic = gm_traffic(view, [0] * len(sizes), sizes, [d.step for d in part.dims], machine, align)
            cycles += move.cycles(traffic.bytes, traffic.runs)
            moved += traffic.bytes
            bus += traffic.bus
            turn += move.turn(traffic.bytes, traffic.bus, traffic.runs)
        return LoadCost(cycles, moved, bus, turn)

    def alignment(self, view: GmType, sizes: Sequence[int], machine: Machine) -> int:
        """What divides the starts of all boxes of these sizes, in bytes: a line where each begins at one."""
        width = itemsize(self.element)
        apart = [n * s for n, s, whole in zip(sizes, view.strides, view.shape, strict=True) if n < whole]
        return math.gcd(machine.gm_align, self.offset * width, *(n * width for n in apart))


class ContractionStages(FusionStages):
    """The axes, operands and vector steps of a cube or mix fusion: `anchor` is its product, `operands` are lhs and rhs.
    `role` is that of each axis that is walked."""

    def __init__(self, fusion: FusionOp, machine: Machine, groups: Sequence[Sequence[int]] | None = None):
        anchor = product_in(fusion)
        assert anchor is not None
        self.anchor = anchor
        self.acc_type = accumulated_in(anchor)
        self.nest = nest_of(anchor)
        self.expansion = expansion_of(anchor)
        self.gathers = gathers_of(anchor)
        super().__init__(fusion, machine, groups)

    def _operand(self, value: SSAValue, indices: Sequence[Expr[int]]) -> Operand:
        """The view of lhs or rhs: a dimension per axis where that is enough, per tensor dimension where windows
        or padding make the index reach outside."""
        if self.expansion is not None and value is self.anchor.rhs:
            return self._sparse(self.expansion, indices)
        if self.gathers and (gathered := self._gathered(value, indices)) is not None:
            return gathered
        shape = shape_of(value)
        extents = dict(enumerate(self.nest.extents))
        inside = all(
            i.constant + sum(min(c, 0) * (extents[a] - 1) for a, c in i.terms) >= 0
            and i.constant + sum(max(c, 0) * (extents[a] - 1) for a, c in i.terms) < n
            for i, n in zip(indices, shape, strict=True)
        )
        windowed = any(
            sum(self.nest.roles[a] == "k" for a, _ in i.terms)
            and any(self.nest.roles[a] == "m" for a, _ in i.terms)
            for i in indices
        )
        if inside and not windowed:
            load = resolve(value, indices, extents, is_base)
            dims = [
                OperandDim(n, s, i.terms, i.constant)
                for n, s, i in zip(load.shape, load.strides, load.indices, strict=True)
                if i.terms or i.constant
            ]
            known = {a for d in dims for a in d.axes}
            repeated = sorted({a for i in indices for a, _ in i.terms if extents[a] != 1} - known)
            dims += [OperandDim(extents[a], 0, ((a, 1),)) for a in repeated]
            if value is self.anchor.lhs:
                dims = self._side_by_side(dims, itemsize(element_of(value)))
        else:
            plain = [Expr.of(-1 - d) for d in range(len(shape))]
            load = resolve(value, plain, {-1 - d: n for d, n in enumerate(shape)}, is_base)
            at = {i.terms[0][0]: s for i, s in zip(load.indices, load.strides, strict=True)}
            dims = [
                OperandDim(shape[d], at.get(-1 - d, 0), i.terms, i.constant)
                for d, i in enumerate(indices)
                if shape[d] != 1 or i.terms or i.constant
            ]
            if not self.machine.unrolls:
                dims = [self._one_by_one(d) for d in dims]
        assert isinstance(load.base, BlockArgument)
        return Operand(
            list(self.fusion.body.block.args).index(load.base), dims, load.offset, element_of(value)
        )

    def _one_by_one(self, dim: OperandDim) -> OperandDim:
        """A dimension of windows, loaded along the longest of its axes at one place of each other."""
        if len(dim.along) < 2:
            return dim
        longest = max(dim.along, key=lambda term: self.nest.extents[term[0]])
        return replace(dim, along=(longest,), placed_by=tuple(term for term in dim.along if term != longest))

    def _side_by_side(self, dims: list[OperandDim], width: int) -> list[OperandDim]:
        """The dimensions of lhs, of which no two elements lie next to each other in memory where every other column of
        an image is read. Each element alone would move a whole burst, so what lies between them comes along."""
        steps = [abs(d.stride) for d in dims if d.stride and d.extent > 1]
        least = min(steps, default=1)
        if least == 1 or least * width > self.machine.burst_bytes or not self.machine.unrolls:
            return dims

        def whole(d: OperandDim) -> OperandDim:
            ((axis, step),) = d.along
            if d.stride != least or step != 1 or self.nest.roles[axis] != "m":
                return d
            extent, start = (d.extent - 1) * least + 1, d.start * least
            return replace(d, extent=extent, stride=1, along=((axis, least),), start=start, strided=True)

        return [whole(d) if len(d.along) == 1 else d for d in dims]

    def _sparse(self, op: ExpandOp, indices: Sequence[Expr[int]]) -> Operand:
        """The views of the values and of the index of a sparse rhs."""
        extents = dict(enumerate(self.nest.extents))
        # seen through transposes; these have the index of each dimension of what is expanded
        at = resolve(self.anchor.rhs, indices, extents, lambda v: v is op.result).position
        (k,) = at[integer(op.dim)].variables

        def stored(value: SSAValue, each: int) -> Operand:
            load = resolve(value, at, {**extents, k: extents[k] // each}, is_base)
            assert isinstance(load.base, BlockArgument)
            dims = [
                OperandDim(n, s, i.terms, i.constant, each if k in i.variables else 1)
                for n, s, i in zip(load.shape, load.strides, load.indices, strict=True)
                if i.terms or i.constant
            ]
            if all(d.each == 1 for d in dims):  # one byte has the positions of all
                dims.append(OperandDim(1, 1, ((k, 1),), 0, each))
            number = list(self.fusion.body.block.args).index(load.base)
            return Operand(number, dims, load.offset, element_of(value))

        found = stored(op.values, KEPT_OF)
        found.index = stored(op.index, INDEXED)
        return found

    def _gathered(self, value: SSAValue, indices: Sequence[Expr[int]]) -> Operand | None:
        """The view of the table that lhs or rhs is slices of; None where it is another value."""
        load = resolve(value, indices, dict(enumerate(self.nest.extents)), is_base)
        op = load.base.owner
        if op not in self.gathers:
            return None
        assert isinstance(op, GatherOp)
        offset, index_dim, starts = to_ints(op.offset_dims), integer(op.index_dim), shape_of(op.indices)
        kept, moved = op.slice_dims(), to_ints(op.start_map)
        inside = dict(zip(kept, (load.position[d] for d in offset), strict=True))
        batch = [at for d, at in enumerate(load.position) if d not in offset]
        places = [d for d in range(len(starts)) if d != index_dim]
        inside |= {
            d: batch[places.index(i)]
            for d, i in zip(to_ints(op.x_batch), to_ints(op.indices_batch), strict=True)
        }
        x, numbers = op.x, op.indices
        assert isinstance(x, BlockArgument) and isinstance(numbers, BlockArgument)

        def begins(d: int, n: int, count: int) -> PlaceRead | None:
            if d not in moved or certain(n, "==", count):
                return None
            number: Expr[int] = Expr(moved.index(d))
            at = (number if i == index_dim else batch[places.index(i)] for i in range(len(starts)))
            return PlaceRead(
                numbers.index, tuple(starts), tuple((e.constant, e.terms) for e in at), n - count
            )

        table, dims = shape_of(x), []
        spans = zip(table, row_strides(table), to_ints(op.slice_sizes), strict=True)
        for d, (n, stride, count) in enumerate(spans):
            at: Expr[int] = inside.get(d, Expr())
            dims.append(OperandDim(n, stride, at.terms, at.constant, begins=begins(d, n, count)))
        used = [d for d in dims if d.along or d.start or d.begins is not None]
        return Operand(x.index, used, 0, element_of(value))

    def _merge(self) -> None:
        inside = (self.anchor, self.expansion, *self.gathers)
        self.members = [op for op in self.members if op not in inside]
        self.operands: list[Operand] = [
            self._operand(self.anchor.lhs, self.nest.lhs),
            self._operand(self.anchor.rhs, self.nest.rhs),
        ]
        strides, presence, fixed = self._constraints()
        for operand, roles in zip(self.operands, ("bmk", "bkn"), strict=True):
            step: dict[int, int] = {}
            for d in operand.dims:
                for a, c in (*d.along, *d.placed_by):
                    step[a] = d.stride * c
                fixed |= {a for a, _ in d.placed_by}
                plain = len(d.along) == 1 and not (d.placed_by or d.start)
                if not plain or d.along[0][1] != 1 or self._partial(d):
                    fixed |= d.axes
            fixed |= operand.placed
            strides.append(step)
            presence.append(frozenset(a for a, r in self.nest.roles.items() if r in roles))
        presence.append(frozenset(a for a, r in self.nest.roles.items() if r in "bmn"))
        presence.append(frozenset(a for a, r in self.nest.roles.items() if r == "b"))
        if any(len(t) > 1 for t in self.nest.out):
            fixed |= {a for t in self.nest.out if len(t) > 1 for a in t}
        merged = merge_axes(self.nest.extents, strides, presence, fixed)
        if self.machine.fused:  # A drain fills vector tiles in the accumulator's order.
            merged.sort(key=lambda group: "bmnk".index(self.nest.roles[group[0]]))
        self.merged = self._as_asked(merged)
        self.new_axis = {a: i for i, group in enumerate(self.merged) for a in group}
        self.extents = [size([self.nest.extents[a] for a in group]) for group in self.merged]
        self.role = [self.nest.roles[g[0]] for g in self.merged]
        for operand in self.operands:
            for part in operand.parts:
                self._renumber(part)
        by_role = {r: [a for a, x in enumerate(self.role) if x == r] for r in "bmnk"}
        self.m_axes, self.n_axes = by_role["m"], by_role["n"]
        self.k_axes, self.b_axes = by_role["k"], by_role["b"]
        self._orient()

    def _partial(self, dim: OperandDim) -> bool:
        return dim.extent != self.nest.extents[dim.along[0][0]]

    def _renumber(self, operand: Operand) -> None:
        kept: dict[int, OperandDim] = {}
        others: list[OperandDim] = []
        for d in operand.dims:
            along = self._renumbered(d.along)
            if len(along) == 1 and len(self.merged[along[0][0]]) > 1:
                axis = along[0][0]
                if self.merged[axis][-1] in d.axes:
                    kept[axis] = OperandDim(self.extents[axis], d.stride, ((axis, 1),))
            elif along or d.start or d.begins is not None:
                begins = d.begins
                if begins is not None:
                    begins = replace(
                        begins, at=tuple((start, self._renumbered(terms)) for start, terms in begins.at)
                    )
                others.append(replace(d, along=along, placed_by=self._renumbered(d.placed_by), begins=begins))
        operand.dims = [*others, *kept.values()]

    def _renumbered(self, terms: Terms) -> Terms:
        """Terms by the axes of the nest, by those that are walked: others have one place."""
        found: dict[int, int] = {}
        for axis, step in terms:
            if axis in self.new_axis:
                found[self.new_axis[axis]] = step
        return tuple(found.items())

    def _full_extent(self, axis: int) -> int:
        return self.nest.extents[axis]

    def _out_strides(self, value: SSAValue, within: Sequence[int] | None = None) -> dict[int, int]:
        by_dim = super()._out_strides(value, within)
        out: dict[int, int] = {}
        for d, terms in enumerate(self.nest.out):
            for a, c in terms.items():
                if d in by_dim:
                    out[a] = by_dim[d] * c
        return out

    def _orient(self) -> None:
        """Orders each operand's dimensions: batch, then rows, then columns, the one nearest in memory last.

        A gather of windows puts the positions in a window before the rest of the summed axes, in the order of
        the image's dimensions; the filter follows that order."""
        lhs, rhs = self.operands
        self._order(lhs, self.m_axes, self.k_axes, windowed=True)
        summed = [a for d in lhs.dims for a, _ in (*d.placed_by, *d.along) if a in self.k_axes]
        summed += [a for a in self.k_axes if a not in summed]
        self._order(rhs, self.n_axes, summed, windowed=False)
        if rhs.index is not None:
            self._order(rhs.index, self.n_axes, summed, windowed=False)

    @property
    def singly(self) -> frozenset[int]:
        """The axes of which a step and a load have one place."""
        return frozenset(a for o in self.operands for d in o.dims for a, _ in d.placed_by)

    def _order(self, operand: Operand, free: list[int], k: list[int], windowed: bool) -> None:
        dims = operand.dims

        def find(axes: Sequence[int]) -> list[int]:
            """The numbers of the dimensions along some axes."""
            return list(dict.fromkeys(i for a in axes for i, d in enumerate(dims) if a in d.axes))

        rows = find(free)
        summed = [i for i in find(k) if i not in rows]
        free_dims, k_dims = [dims[i] for i in rows], [dims[i] for i in summed]
        batch = [d for i, d in enumerate(dims) if i not in rows and i not in summed]
        has_window = any(d.windowed for d in free_dims)

        def nearest(dims: list[OperandDim]) -> int:
            return abs(dims[-1].stride) if dims and dims[-1].stride else 1 << 60

        if windowed:
            operand.transpose = not has_window and bool(free_dims) and nearest(free_dims) < nearest(k_dims)
            sides = {False: k_dims, True: free_dims}
            if any(self.role[a] != "b" for d in sides[operand.transpose][-1:] for a, _ in d.placed_by):
                operand.transpose = not operand.transpose  # a window may begin before the tensor: among rows
            first, last = sides[not operand.transpose], sides[operand.transpose]
        else:
            several = [d for d in k_dims if not d.axes <= self.singly]
            operand.transpose = bool(k_dims) and nearest(k_dims) < nearest(free_dims) and len(several) <= 1
            first, last = (free_dims, k_dims) if operand.transpose else (k_dims, free_dims)
        if not last:
            last = [OperandDim(1, 1, ())]
        operand.dims = [*batch, *first, *last]
        operand.column_dims = len(last)
