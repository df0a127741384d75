"""Which ops become one kernel: groups over a shared iteration domain, grown op by op in program order.

Each group has a `domain` (extents of its axes) and, for every value it computes or shares, the axes of that
value's dimensions (None where a dimension has size 1 and no axis). Dependencies between groups are bit masks, so
that "would this make a cycle" is two integer operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import (
    ArgReduceOp,
    BroadcastOp,
    ContractOp,
    ConvOp,
    CumulateOp,
    ElementwiseOp,
    GatherOp,
    IotaOp,
    ReduceOp,
    ReduceWindowOp,
    ReshapeOp,
    ScatterOp,
    SelectAndScatterOp,
    SortOp,
    TransposeOp,
)
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.npu.types import ROW_BYTES
from ...machine import Machine
from ..access import is_layout, reshape_groups, splat_of
from ..tile.schedule import UB_FRACTION

Axes = tuple[int | None, ...]

ABSORB_RATIO = 16
"""A group this many times smaller than its consumer is recomputed there instead of stored and loaded."""

ROW_VALUES = 6
"""Row buffers a fused row reduction is planned with: loads twice buffered, temporaries and the result."""

WIDEST = 8
"""Bytes of the widest element there is."""


@dataclass(eq=False)
class Group:
    """One kernel in the making."""

    number: int
    kind: str
    domain: tuple[int, ...]
    members: list[Operation] = field(default_factory=list)
    axes: dict[SSAValue, Axes] = field(default_factory=dict)
    outputs: list[SSAValue] = field(default_factory=list)
    needs: int = 0
    """Bit mask of the groups this one must run after, transitively."""
    reduced: set[int] = field(default_factory=set)
    closed: bool = False
    merged_into: Group | None = None

    @property
    def bit(self) -> int:
        return 1 << self.number

    def find(self) -> Group:
        group = self
        while group.merged_into is not None:
            group = group.merged_into
        return group


def forward_axes(op: Operation, axes: Axes) -> list[int | str | None] | None:
    """Axes of a layout op's result from those of its operand; "new" for a dimension that a broadcast adds.

    None where the op does more than add, drop or permute dimensions.
    """
    if isinstance(op, TransposeOp):
        return [axes[p] for p in to_ints(op.perm)]
    if isinstance(op, BroadcastOp):
        source, target, dims = shape_of(op.x), shape_of(op.result), to_ints(op.dims)
        out: list[int | str | None] = ["new" if s != 1 else None for s in target]
        for i, d in enumerate(dims):
            if source[i] == target[d]:
                out[d] = axes[i]
        return out
    if isinstance(op, ReshapeOp):
        source, target = shape_of(op.x), shape_of(op.result)
        out = [None] * len(target)
        for left, right in reshape_groups(source, target):
            wide_in = [d for d in left if source[d] != 1]
            wide_out = [d for d in right if target[d] != 1]
            if [source[d] for d in wide_in] != [target[d] for d in wide_out]:
                return None
            for i, o in zip(wide_in, wide_out, strict=True):
                out[o] = axes[i]
        return out
    return None


def base_of(value: SSAValue) -> SSAValue:
    """The value behind layout ops."""
    while isinstance(value.owner, Operation) and is_layout(value.owner):
        value = value.owner.operands[0]
    return value


class Grouper:
    """Grows the groups of one block."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.groups: list[Group] = []
        self.owner: dict[SSAValue, Group] = {}
        self.barriers: dict[SSAValue, int] = {}
        """For results of ops that are not in a group: the groups that make what they use."""

    # -- dependencies --------------------------------------------------------------------------------------

    def needs_of(self, value: SSAValue) -> int:
        """Mask of the groups that must have run for `value` to exist."""
        if value in self.owner:
            group = self.owner[value].find()
            return group.bit | group.needs
        found, rest = 0, self.makers_of(value)
        while rest:
            last = rest & -rest
            group = self.groups[last.bit_length() - 1].find()
            found |= group.bit | group.needs
            rest ^= last
        return found

    def makers_of(self, value: SSAValue) -> int:
        """Mask of the groups that make what `value` is made of. Which groups those need in turn, and which they are
        merged into, may change still."""
        if value in self.owner:
            return self.owner[value].find().bit
        if value in self.barriers:
            return self.barriers[value]
        op = value.owner
        found = 0
        if isinstance(op, Operation) and is_layout(op):
            for operand in op.operands:
                found |= self.makers_of(operand)
            self.barriers[value] = found
        return found

    def add_needs(self, group: Group, mask: int) -> None:
        mask &= ~group.bit
        if mask & ~group.needs:
            group.needs |= mask
            for other in self.groups:
                if other.needs & group.bit:
                    other.needs |= group.needs & ~other.bit

    def new_group(self, kind: str, domain: Sequence[int], closed: bool = False) -> Group:
        group = Group(len(self.groups), kind, tuple(domain), closed=closed)
        self.groups.append(group)
        return group

    def merge(self, first: Group, second: Group) -> bool:
        """Makes two groups of one domain one, unless a third must run between them."""
        between = any(
            (g.needs & first.bit and second.needs & g.bit) or (g.needs & second.bit and first.needs & g.bit)
            for g in self.groups
            if g is not first and g is not second and g.merged_into is None
        )
        if between or second.kind != "vector" or second.closed or first.domain != second.domain:
            return False
        if second.reduced and first.kind != "vector":
            return False
        for value, axes in second.axes.items():
            if first.axes.get(value, axes) != axes:
                return False
        rows = first.reduced | second.reduced
        if not self._rows_fit(first.domain, rows, {*first.members, *second.members}):
            return False
        if not (self._sees(first, second) and self._sees(second, first)):
            return False
        second.merged_into = first
        first.members += [m for m in second.members if m not in first.members]
        first.axes.update(second.axes)
        first.outputs += [o for o in second.outputs if o not in first.outputs]
        first.reduced |= second.reduced
        mask = second.needs & ~first.bit & ~second.bit
        for other in self.groups:
            if other.needs & second.bit:
                other.needs = (other.needs & ~second.bit) | (first.bit if other is not first else 0)
        self.add_needs(first, mask)
        for other in self.groups:
            if other.needs & first.bit:
                other.needs |= first.needs
        return True

    def _sees(self, maker: Group, reader: Group) -> bool:
        """Whether what `reader` takes from `maker` is what their common tiles would hold."""
        for op in reader.members:
            for value in op.operands:
                axes = (
                    reader.axes[op.results[0]]
                    if isinstance(op, ElementwiseOp)
                    else self.axes_in(reader, value)
                )
                if axes is None:  # read as a whole, by places of its own
                    if base_of(value).owner in maker.members:
                        return False
                    continue
                named = tuple(a if isinstance(a, int) else None for a in axes)
                if self._agrees(maker, value, named) is False:
                    return False
        return True

    # -- where a value stands in a group ---------------------------------------------------------------------

    def axes_in(self, group: Group, value: SSAValue) -> list[int | str | None] | None:
        """Axes of `value` where it is a value of `group` seen through layout ops; None otherwise."""
        chain: list[Operation] = []
        while value not in group.axes:
            op = value.owner
            if not isinstance(op, Operation) or not is_layout(op):
                return None
            chain.append(op)
            value = op.operands[0]
        axes: list[int | str | None] = list(group.axes[value])
        for op in reversed(chain):
            if "new" in axes:
                marked = [a if a != "new" else None for a in axes]
                step = forward_axes(op, tuple(a if isinstance(a, int) else None for a in marked))
                if step is None:
                    return None
                fresh = forward_axes(op, tuple(-2 if a == "new" else None for a in axes))
                assert fresh is not None
                axes = ["new" if f == -2 else s for s, f in zip(step, fresh, strict=True)]
            else:
                step = forward_axes(op, tuple(a if isinstance(a, int) else None for a in axes))
                if step is None:
                    return None
                axes = step
        return axes

    def candidates(self, values: Sequence[SSAValue]) -> list[Group]:
        """Groups that `values` come from, latest first."""
        found: list[Group] = []
        for value in values:
            while value not in self.owner:
                op = value.owner
                if not isinstance(op, Operation) or not is_layout(op):
                    break
                value = op.operands[0]
            else:
                group = self.owner[value].find()
                if group not in found:
                    found.append(group)
        return sorted(found, key=lambda g: -g.number)

    def _complete(self, group: Group, axes: list[int | str | None], shape: Sequence[int]) -> Axes | None:
        """Gives dimensions that a broadcast added the group's unused axes of the same extent, in order."""
        used = {a for a in axes if isinstance(a, int)}
        free = [a for a in range(len(group.domain)) if a not in used]
        out: list[int | None] = []
        for a, s in zip(axes, shape, strict=True):
            if a != "new":
                out.append(a if isinstance(a, int) else None)
                continue
            match = next((f for f in free if group.domain[f] == s), None)
            if match is None:
                return None
            free.remove(match)
            out.append(match)
        taken = [a for a in out if a is not None]
        return tuple(out) if taken == sorted(taken) else None

    def _agrees(self, group: Group, value: SSAValue, axes: Axes) -> bool | None:
        """Whether `value`, used with `axes`, is a value of the group (True), comes from outside (None), or is one
        in a way the group's tiles cannot give (False)."""
        found = self.axes_in(group, value)
        if found is None:
            return (
                False if self.needs_of(value) & group.bit or base_of(value).owner in group.members else None
            )
        return all(f in ("new", None) or f == a for f, a in zip(found, axes, strict=True))

    def place(self, group: Group, op: Operation) -> Axes | None:
        """The axes an elementwise op would have in `group`, or None where it cannot join."""
        if group.closed:
            return None
        shape = shape_of(op.results[0])
        guesses = [a for v in op.operands if (a := self.axes_in(group, v)) is not None]
        guesses.sort(key=lambda a: a.count("new"))
        if not guesses:
            return None
        axes = self._complete(group, guesses[0], shape)
        if axes is None:
            return None
        for value in op.operands:
            if self._agrees(group, value, axes) is False:
                return None
        return axes

    # -- ops ---------------------------------------------------------------------------------------------------

    def elementwise(self, op: ElementwiseOp) -> None:
        """Adds an elementwise op to the best group its operands come from, or starts one."""
        values = [v for v in op.operands if splat_of(v) is None]
        groups = self.candidates(values)
        groups.sort(key=lambda g: (-size(g.domain), g.kind == "vector", -g.number))
        for group in groups:
            axes = self.place(group, op)
            if axes is None or not self._fits(group, op):
                continue
            for other in groups:
                if other is group or other.merged_into is not None:
                    continue
                theirs = self.place(other, op)
                if theirs == axes and self.merge(group, other):
                    continue
                if size(other.domain) * ABSORB_RATIO <= size(group.domain):
                    self._absorb(group, other, op, axes)
            self._join(group, op, axes)
            return
        group = self.new_group("vector", shape_of(op.results[0]))
        identity = tuple(range(len(group.domain)))
        for small in groups:
            if size(small.domain) * ABSORB_RATIO <= size(group.domain):
                self._absorb(group, small, op, identity)
        self._join(group, op, identity)

    def _fits(self, group: Group, op: ElementwiseOp) -> bool:
        return len(group.members) < 200 and self._rows_fit(group.domain, group.reduced, {*group.members, op})

    def _join(self, group: Group, op: Operation, axes: Axes) -> None:
        group.members.append(op)
        for result in op.results:
            group.axes[result] = axes
            self.owner[result] = group
        for value in op.operands:
            if self.axes_in(group, value) is None:
                self.add_needs(group, self.needs_of(value))
                if not isinstance(value.owner, Operation) or not is_layout(value.owner):
                    group.axes.setdefault(value, axes) if value not in self.owner else None

    def _absorb(self, group: Group, small: Group, op: Operation, axes: Axes) -> None:
        """Recomputes the elementwise values of `small` that `op`, with these axes in `group`, is made of; nothing
        where one of them would be needed with two different sets of axes."""
        if small.kind != "vector" or small.reduced or small.closed:
            return
        found: dict[SSAValue, Axes] = {}
        traced = self._trace(group, small, op, axes, found)
        makers = {v.owner for v in found if isinstance(v.owner, Operation)}
        if traced and self._rows_fit(group.domain, group.reduced, {*group.members, *makers}):
            for value, at in found.items():
                maker = value.owner
                assert isinstance(maker, Operation)
                group.members.append(maker)
                group.axes[value] = at
            for value in found:
                maker = value.owner
                assert isinstance(maker, Operation)
                for operand in maker.operands:
                    if self.axes_in(group, operand) is None:
                        self.add_needs(group, self.needs_of(operand))

    def _trace(
        self, group: Group, small: Group, op: Operation, axes: Axes, found: dict[SSAValue, Axes]
    ) -> bool:
        """Collects the values of `small` behind the operands of `op`, operands first; False where that fails."""
        for operand in op.operands:
            chain: list[Operation] = []
            value = operand
            while value not in self.owner and isinstance(value.owner, Operation) and is_layout(value.owner):
                chain.append(value.owner)
                value = value.owner.operands[0]
            if value not in self.owner or self.owner[value].find() is not small:
                continue
            at = self._backward(chain, axes)
            maker = value.owner
            if at is None or not isinstance(maker, ElementwiseOp):
                return False
            known = found.get(value, group.axes.get(value))
            if known is not None:
                if known != at:
                    return False
                continue
            if not self._trace(group, small, maker, at, found):
                return False
            found[value] = at
        return True

    def _backward(self, chain: Sequence[Operation], axes: Axes) -> Axes | None:
        for op in chain:
            if isinstance(op, BroadcastOp):
                source, target = shape_of(op.x), shape_of(op.result)
                axes = tuple(
                    None if source[i] == 1 and target[d] != 1 else axes[d]
                    for i, d in enumerate(to_ints(op.dims))
                )
            elif isinstance(op, ReshapeOp):
                source, target = shape_of(op.x), shape_of(op.result)
                wide_in = [d for d, s in enumerate(source) if s != 1]
                wide_out = [d for d, s in enumerate(target) if s != 1]
                if [source[d] for d in wide_in] != [target[d] for d in wide_out]:
                    return None
                out: list[int | None] = [None] * len(source)
                for i, o in zip(wide_in, wide_out, strict=True):
                    out[i] = axes[o]
                axes = tuple(out)
            else:
                return None
        return axes

    def reduction(self, op: ReduceOp | ArgReduceOp) -> None:
        """Joins the group of the operand where whole rows fit on chip; starts a group otherwise."""
        dims = set(to_ints(op.dims)) if isinstance(op, ReduceOp) else {integer(op.dim)}
        for group in self.candidates([op.x]):
            axes = self.axes_in(group, op.x)
            if group.kind != "vector" or group.closed or axes is None or "new" in axes:
                continue
            named = tuple(a if isinstance(a, int) else None for a in axes)
            reduced = {named[d] for d in dims if named[d] is not None}
            rows = group.reduced | {a for a in reduced if a is not None}
            if not self._rows_fit(group.domain, rows, {*group.members, op}):
                continue
            self._add_reduction(group, op, named, dims)
            return
        shape = shape_of(op.x)
        group = self.new_group("vector", shape)
        if not self._rows_fit(shape, dims, {op}):
            group.closed = True
        self._add_reduction(group, op, tuple(None if s == 1 else d for d, s in enumerate(shape)), dims)

    def _rows_fit(self, domain: Sequence[int], rows: set[int], members: set[Operation]) -> bool:
        """Whether whole rows of what a kernel of `members` holds at once fit on chip: what it loads and what others
        use of it, twice each, and three temporaries."""
        if not rows:
            return True
        row, inner = (
            size([domain[a] for a in rows]),
            max((a for a, n in enumerate(domain) if n > 1), default=0),
        )
        room = self.machine.spaces["ub"].bytes * UB_FRACTION
        # across rows each position takes a block, however few elements there are
        least = 1 if inner in rows else ROW_BYTES
        most = sum(len(op.operands) + len(op.results) for op in members)
        if row * max(WIDEST, least) * max(ROW_VALUES, 2 * most + 3) <= room:
            return True  # whatever they hold
        used = {base_of(v) for op in members for v in op.operands}
        loaded = [v for v in used if v.owner not in members]
        kept = [r for op in members for r in op.results if any(u.operation not in members for u in r.uses)]
        held = [v for v in (*loaded, *kept) if size(shape_of(v)) >= row and splat_of(v) is None]
        widest = max((itemsize(element_of(v)) for v in (*used, *kept)), default=4)
        return row * max(4, widest, least) * max(ROW_VALUES, 2 * len(held) + 3) <= room

    def _add_reduction(self, group: Group, op: ReduceOp | ArgReduceOp, axes: Axes, dims: set[int]) -> None:
        group.members.append(op)
        group.reduced |= {a for d in dims if (a := axes[d]) is not None}
        kept = tuple(a for d, a in enumerate(axes) if d not in dims)
        for result in op.results:
            group.axes[result] = kept
            self.owner[result] = group
        if self.axes_in(group, op.x) is None:
            self.add_needs(group, self.needs_of(op.x))
            if not isinstance(op.x.owner, Operation) or not is_layout(op.x.owner):
                group.axes[op.x] = axes

    def contraction(self, op: ContractOp | ConvOp) -> None:
        grouped = isinstance(op, ConvOp) and integer(op.groups) > 1
        group = self.new_group("cube", shape_of(op.result), closed=grouped)
        group.members.append(op)
        group.axes[op.result] = tuple(range(len(group.domain)))
        self.owner[op.result] = group
        for value in op.operands:
            self.add_needs(group, self.needs_of(value))

    def single(self, op: Operation, kind: str) -> None:
        """A group of its own that nothing joins."""
        group = self.new_group(kind, shape_of(op.results[0]), closed=True)
        group.members.append(op)
        for result in op.results:
            group.axes[result] = tuple(range(len(shape_of(result))))
            self.owner[result] = group
        for value in op.operands:
            self.add_needs(group, self.needs_of(value))

    def add(self, op: Operation) -> bool:
        """Puts `op` into a group; False for ops that are not grouped."""
        if isinstance(op, ElementwiseOp):
            self.elementwise(op)
        elif isinstance(op, ReduceOp | ArgReduceOp):
            self.reduction(op)
        elif isinstance(op, ContractOp | ConvOp):
            self.contraction(op)
        elif isinstance(op, CumulateOp | ReduceWindowOp | SelectAndScatterOp | SortOp):
            self.single(op, "vector")
        elif isinstance(op, GatherOp | ScatterOp):
            self.single(op, "index")
        elif isinstance(op, IotaOp):
            self.owner.pop(op.result, None)
        else:
            return False
        return True
