"""The axes of a fusion's domain: the axis of each dimension of each value, and which neighbouring axes are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from ...dialects.base import Expr, describe, integer, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import (
    ArgReduceOp,
    ConcatOp,
    FusionOp,
    IotaOp,
    PlaceOp,
    ReduceOp,
    ReshapeOp,
    TransposeOp,
    UnpackOp,
    WidenOp,
)
from ...dialects.graph.control import AXES, axes_of
from ...dialects.graph.interface import shape_of
from ...dialects.npu.types import row_strides
from ...machine import Machine
from ..errors import PassError
from ..forms.access import Load, behind_ones, long_dims, reshape_groups, resolve, splat_of
from .schedule import merge_axes


class StoredPart(NamedTuple):
    """A value that a fusion stores as its result `output`, or as part of it: `offset` elements behind its first one,
    with `strides` elements between neighbours along each dimension of the value."""

    output: int
    value: SSAValue
    strides: Sequence[int]
    offset: int


def stored_parts(output: int, value: SSAValue, strides: Sequence[int], offset: int = 0) -> Iterator[StoredPart]:
    """What a result of a fusion is stored from: the parts of a concatenation one by one, else the value itself; what
    has wider rows in memory, or is a part of a tensor, is stored into these."""
    if isinstance(value.owner, PlaceOp):
        offset += strides[integer(value.owner.dim)] * integer(value.owner.start)
    value = behind_room(value)
    op = value.owner
    if not isinstance(op, ConcatOp):
        yield StoredPart(output, value, strides, offset)
        return
    dim = integer(op.dim)
    for part in op.parts:
        wide = iter([s for s, n in zip(strides, shape_of(part), strict=True) if n != 1])
        own = behind_ones(part)
        yield from stored_parts(output, own, [1 if n == 1 else next(wide) for n in shape_of(own)], offset)
        offset += strides[dim] * shape_of(part)[dim]


def behind_room(value: SSAValue) -> SSAValue:
    """What a fusion computes where it yields that in wider rows, or as a part of a tensor; else the value itself."""
    return value.owner.x if isinstance(value.owner, WidenOp | PlaceOp) else value


def read_by(block: Block) -> list[BlockArgument]:
    """The arguments of a fusion's block that its kernel reads: not those that results begin as, which come last."""
    return [a for a in block.args if not any(isinstance(u.operation, PlaceOp) and u.index for u in a.uses)]


def begun_as(fusion: FusionOp) -> list[SSAValue]:
    """For each result of a fusion the input that it begins as; none at all where the kernel makes all of them."""
    placed = [v.owner for v in fusion.yielded(0).values if isinstance(v.owner, PlaceOp)]
    bases = [op.base for op in placed if op.base is not None]
    return [fusion.inputs[base.index] for base in bases if isinstance(base, BlockArgument)]


def behind_transposes(value: SSAValue, strides: Sequence[int] = ()) -> tuple[SSAValue, Sequence[int]]:
    """The value that transposes turn into this one, and what these strides, one for each dimension, are along its
    own."""
    while isinstance(value.owner, TransposeOp) and AXES not in value.owner.attributes:
        places = {p: i for i, p in enumerate(to_ints(value.owner.perm))}
        value, strides = value.owner.x, [strides[places[d]] for d in range(len(strides))]
    return value, strides


def behind_merges(value: SSAValue, strides: Sequence[int] = ()) -> tuple[SSAValue, Sequence[int]]:
    """The same behind reshapes that merge dimensions, too, each of which has a stride of its own."""
    value, strides = behind_transposes(value, strides)
    op = value.owner
    if isinstance(op, ReshapeOp) and AXES not in op.attributes and (found := _unmerged(op, strides)) is not None:
        return behind_merges(op.x, found)
    return value, strides


def behind_layout(value: SSAValue) -> SSAValue:
    """What a fusion computes where it yields that in another layout, or as a part of a tensor; else the value
    itself."""
    return behind_merges(behind_room(value))[0]


def _unmerged(op: ReshapeOp, strides: Sequence[int]) -> Sequence[int] | None:
    """What strides along the dimensions of a reshape's result are along those of its operand; None where it does more
    than to merge some."""
    source, found = shape_of(op.x), list[int]()
    for left, right in reshape_groups(source, shape_of(op.result)):
        if len(right) != 1:
            return None
        step = strides[right[0]] if strides else 0
        found += [step * inner for inner in row_strides([source[d] for d in left])]
    return found if strides else ()


def is_member(value: SSAValue) -> bool:
    """Whether a value is computed by an op of the fusion's domain, not by a layout op."""
    return isinstance(value.owner, Operation) and "axes" in value.owner.attributes


def is_base(value: SSAValue) -> bool:
    """Whether a kernel takes a value as it is: it is given, or computed by an op of the fusion's domain."""
    return isinstance(value, BlockArgument) or is_member(value)


def reduced_dims(op: Operation) -> tuple[int, ...]:
    """The dimensions of its operand that an op reduces."""
    if isinstance(op, ArgReduceOp):
        return (integer(op.dim),)
    return to_ints(op.dims) if isinstance(op, ReduceOp) else ()


class FusionAxes:
    """A fusion's values by the axes of its domain, neighbouring axes merged where every access allows it.

    `merged` has the domain axes of each axis that is walked, `extents` their sizes, `new_axis` the way there. `groups`:
    what it is to be, as a schedule says; `apart`: no axes are to be merged. Raises PassError for groups that accesses
    do not allow.
    """

    def __init__(
        self,
        fusion: FusionOp,
        machine: Machine,
        groups: Sequence[Sequence[int]] | None = None,
        apart: bool = False,
    ):
        self.groups = groups
        self.apart = apart
        self.fusion = fusion
        self.machine = machine
        self.block = fusion.body.block
        self.domain = to_ints(fusion.domain)
        self.inputs: dict[SSAValue, int] = {a: i for i, a in enumerate(read_by(self.block))}
        self.members = [op for op in self.block.ops if "axes" in op.attributes]
        self.yielded = fusion.yielded(0).values
        self.stored = [
            part for i, v in enumerate(self.yielded) for part in stored_parts(i, v, row_strides(shape_of(v)))
        ]
        self.new_axis: dict[int, int] = {}
        self._merge()

    def _axes_of(self, op: Operation) -> list[int | None]:
        axes = axes_of(op)
        assert axes is not None
        return [None if a < 0 else a for a in axes]

    def _result_axes(self, op: Operation) -> list[int | None]:
        return [a for d, a in enumerate(self._axes_of(op)) if d not in reduced_dims(op)]

    def _trace(self, value: SSAValue, axes: Sequence[int | None]) -> Load:
        return resolve(value, [Expr() if a is None else Expr.of(a) for a in axes], self.domain, is_base)

    def _uses(self) -> list[tuple[SSAValue, list[int | None]]]:
        """Every (value, axes of its dimensions) the kernel uses."""
        found = [
            (v, self._axes_of(op)) for op in self.members if not isinstance(op, UnpackOp) for v in op.operands
        ]
        for part in self.stored:
            if self._member_of(part.value) is None:
                found.append((part.value, self._domain_axes(part.value)))
        return found

    def places_taken(self, load: Load) -> dict[int, int]:
        """The one place that is read of what a member makes, by the axis of the kernel along which it lies: where the
        reader has no such axis."""
        if not is_member(load.base):
            return {}
        assert isinstance(load.base.owner, Operation)
        both = zip(self._result_axes(load.base.owner), load.position, strict=True)
        places = ((a, at.constant) for a, at in both if a is not None and not at.terms)
        return {self.new_axis[a]: place for a, place in places if a in self.new_axis}

    def _domain_axes(self, value: SSAValue) -> list[int | None]:
        """The axes of the domain that the dimensions of a value from outside lie along, which has its extents but for
        those of one element."""
        shape = shape_of(value)
        along = dict(zip(long_dims(shape), long_dims(self.domain), strict=True))
        return [along.get(d) for d in range(len(shape))]

    def _member_of(self, value: SSAValue) -> SSAValue | None:
        """The member result a yielded value is, seen through transposes; None for loaded data."""
        value, _ = behind_merges(value)
        return value if is_member(value) else None

    def _out_strides(self, value: SSAValue, within: Sequence[int] | None = None) -> dict[int, int]:
        """Elements between neighbours of the stored tensor along each domain axis. within: those along each dimension
        of the value, where it is stored as a part of another."""
        strides = list(row_strides(shape_of(value)) if within is None else within)
        if self._member_of(value) is None:
            axes = self._domain_axes(value)
            return {a: s for a, s in zip(axes, strides, strict=True) if a is not None}
        value, strides = behind_merges(value, strides)
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
            if isinstance(op, UnpackOp):  # pairs lie in memory as their numbers would
                strides.append(self._strides_of_numbers(op))
        for part in self.stored:
            by_axis = self._out_strides(part.value, part.strides)
            strides.append({a: s for a, s in by_axis.items() if self._full_extent(a) != 1})
        return strides, presence, fixed

    def _strides_of_numbers(self, op: UnpackOp) -> dict[int, int]:
        """Numbers between neighbours of pairs along each axis of the domain."""
        by_dim = zip(self._axes_of(op), row_strides(shape_of(op.result)), shape_of(op.result), strict=True)
        return {a: s for a, s, n in by_dim if a is not None and n != 1}

    def _full_extent(self, axis: int) -> int:
        return self.domain[axis]

    def _merge(self) -> None:
        if self.apart:  # what is stored need not have the domain's dimensions: a kernel around it says where it goes
            strides, presence, fixed = [], [], set(range(len(self.domain)))
        else:
            strides, presence, fixed = self._constraints()
        self.merged = self._as_asked(merge_axes(self.domain, strides, presence, fixed) or [[]])
        self.new_axis = {a: i for i, group in enumerate(self.merged) for a in group}
        self.extents = [size([self.domain[a] for a in group]) for group in self.merged]

    def _as_asked(self, most: list[list[int]]) -> list[list[int]]:
        """The groups that are asked for, each a part of one of those in which `most` axes are merged."""
        if self.groups is None:
            return most
        asked = [list(group) for group in self.groups]
        inside = all(any(_is_run(group, of) for of in most) for group in asked)
        if not inside or [*chain(*asked)] != [*chain(*most)]:
            raise PassError(
                f"{describe(self.fusion)}: its schedule walks the axes as {asked}, and they must be {most} or parts of "
                "these, in order"
            )
        return asked

    def _new(self, axes: Sequence[int | None]) -> frozenset[int]:
        return frozenset(self.new_axis[a] for a in axes if a is not None and a in self.new_axis)


def _is_run(part: Sequence[int], of: Sequence[int]) -> bool:
    """Whether a list is found in another, side by side."""
    return any(list(of[i : i + len(part)]) == list(part) for i in range(len(of) - len(part) + 1))
