"""Which ops become one kernel: groups over a shared iteration domain, grown op by op in program order.

Each group has a `domain` (extents of its axes) and, for every value it computes or shares, the axes of that
value's dimensions (None where a dimension has size 1 and no axis).

A rule that keeps an op out of a group says why: a clause about the two, or None where it lets it in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation, SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import itemsize, size
from ...dialects.graph import (
    ELEMENTWISE,
    ArgReduceOp,
    ConcatOp,
    ContractOp,
    ConvOp,
    ElementwiseOp,
    ReduceOp,
)
from ...dialects.graph.interface import GraphOp, Grouping, element_of, shape_of
from ...dialects.open_sizes import any_open, certain, choosing
from ...machine import Machine
from ..forms.access import behind_ones, is_layout, long_dims, long_extents
from ..forms.chained import Chained
from ..forms.gathered_operands import gathers_of
from ..forms.layout_axes import Axes, Broadcast, backward_axes, behind
from ..forms.sparse_products import expansion_of
from .dependencies import Group
from .long_rows import why_not_in_pieces, why_not_whole
from .places import ADDED, ALONG, NOT_FOLLOWED, ValuePlaces
from .serial import ABSORB_RATIO, is_small, why_no_strand

MOST_STACKED = 64
"""A kernel stores at most so many parts of one tensor: each takes room in ub."""


NEEDS_ALL = "it needs elements of the value that another core, or a later step, makes"
BETWEEN = "a third kernel must run between the two"
TWO_PRODUCTS = "both have a product of their own, and one kernel walks one of them"
DOMAINS = "they walk domains of other sizes"
SUMS = "it sums over rows of a product, which are spread over cores and steps"
EIGHT_BITS = "numbers of 8 bits are stored in any case, and whoever reads them widens them"
OWN_ORDER = "the kernel of the value makes it in an order of its own, in which nothing else is computed"
GROUPED = "the kernel of a convolution in groups has no epilogue"
CHAINED = "a kernel of two products has no epilogue, and no result but its own"
STACKED = "a kernel that stores parts of one tensor side by side does nothing else"
UNSTACKED = "its parts are not all of one size and made by one kernel of the vector cores, along its whole domain"
OPENED = "it begins with an op that only begins kernels of the vector cores"


class Grouper(ValuePlaces):
    """Grows the groups of one block, which does not change meanwhile."""

    def __init__(self, machine: Machine, noting: bool = False):
        """noting: whether it keeps why ops are not in the groups that make what they read, in `refusals`."""
        super().__init__()
        self.machine = machine
        self.refusals: dict[Operation, list[tuple[Group, str]]] | None = {} if noting else None

    def add(self, op: GraphOp) -> bool:
        """Puts `op` into a group; False for ops that are not grouped."""
        rule = GROUPINGS.get(op.GROUPING)
        if rule is None:
            return False
        if rule.apart and self.refusals is not None:
            for group in self.candidates(op.operands):
                self.refuse(op, group, rule.apart)
        rule.put(self, op)
        return True

    def refuse(self, op: Operation, group: Group, why: str) -> None:
        """Notes why an op is not in a group that makes what it reads, where somebody asks."""
        if self.refusals is not None:
            self.refusals.setdefault(op, []).append((group, why))

    def why_apart(self, op: Operation, maker: Group) -> str | None:
        """Why an op is not in the group that makes what it reads, as far as a rule said so."""
        said = () if self.refusals is None else self.refusals.get(op, ())
        return next((why for group, why in reversed(said) if group.find() is maker), None)

    def generated(self, op: Operation) -> None:
        """Leaves an op out, which each group makes anew where it is used."""
        for result in op.results:
            self.owner.pop(result, None)

    def elementwise(self, op: ElementwiseOp) -> None:
        """Adds an elementwise op to the best group its operands come from, or starts one."""
        values = [v for v in op.operands if not self.of(v).splat]
        groups = self.candidates(values)
        if groups and self._reloads(op):
            self.refuse(op, groups[0], EIGHT_BITS)
            groups = []
        with choosing():
            groups.sort(key=lambda g: (-size(g.domain), g.kind == "vector", -g.number))
        for group in groups:
            axes = self.place(group, op)
            why = axes if isinstance(axes, str) else self._crowds(group, op.operands) or self._rows_misfit(group, [op])
            if why is not None:
                self.refuse(op, group, why)
                continue
            assert not isinstance(axes, str)
            for other in groups:
                if other is group or other.merged_into is not None:
                    continue
                theirs = self.place(other, op)
                why = ALONG if theirs != axes else self.merge(group, other)
                if why is None:
                    continue
                self.refuse(op, other, theirs if isinstance(theirs, str) else why)
                if _much_smaller(other, group) or self._spreads(other, op):
                    self._absorb(group, other, op, axes)
            self._join(group, op, axes)
            return
        group = self.new_group("vector", shape_of(op.results[0]))
        identity = tuple(range(len(group.domain)))
        for small in groups:
            if _much_smaller(small, group) or self._spreads(small, op):
                self._absorb(group, small, op, identity)
        self._join(group, op, identity)

    def _spreads(self, group: Group, op: ElementwiseOp) -> bool:
        """Whether each element that an op reads of a group is repeated side by side, a few times: no tile ends between,
        so that nothing is computed twice."""
        for value in op.operands:
            chain, base = behind(value, self.owner)
            if base not in self.owner or self.owner[base].find() is not group:
                continue
            shape = shape_of(value)
            axes = backward_axes(chain, tuple(range(len(shape))))
            along = [a for a in axes or () if isinstance(a, int) and certain(shape[a], "!=", 1)]
            first, times = long_dims(shape)[: len(along)], size(shape[max(along, default=-1) + 1 :])
            if along != first or not (certain(times, ">", 1) and certain(times, "<", ABSORB_RATIO)):
                return False
        return True

    def _reloads(self, op: ElementwiseOp) -> bool:
        """Whether an op widens numbers of 8 bits that are stored in any case, for a product or the like: whoever needs
        them wider loads them as they are stored, which is less than the wide ones."""
        if not isinstance(op, ELEMENTWISE["convert"]):
            return False
        (x,) = op.operands
        if self.of(x).width != 1 or itemsize(element_of(op.results[0])) == 1 or x not in self.owner:
            return False
        return any(isinstance(u.operation, GraphOp) and _stores(u.operation) for u in x.uses)

    def merge(self, first: Group, second: Group) -> str | None:
        """Makes two groups of one domain one, unless a third must run between them. Why it does not; None where it
        does."""
        why = self._unmergeable(first, second)
        if why is not None:
            return why
        large, small = sorted((first, second), key=lambda g: len(g.members), reverse=True)
        why = self._crowds(large, small.reads, small) or self._rows_misfit(large, small.members, small.reductions)
        if why is not None:
            return why
        if not (self._sees(first, second) and self._sees(second, first)):
            return NEEDS_ALL
        held = large.held
        for op in small.members if held else ():
            if held and op not in held.members:
                held.add(op)
        first.held = held
        first.members += [m for m in second.members if m not in first.inside]
        first.inside |= second.inside
        first.others += [m for m in second.others if m not in first.others]
        for base, read in second.reads.items():
            first.reads.setdefault(base, {}).update(read)
        first.recomputed |= second.recomputed
        first.axes.update(second.axes)
        first.outputs += [o for o in second.outputs if o not in first.outputs]
        first.reductions |= second.reductions
        first.stacked |= second.stacked
        self.replace(second, first)
        return None

    def _crowds(self, group: Group, reads: Iterable[SSAValue], other: Group | None = None) -> str | None:
        """Why an op, or the members of another group, that read these values are one strand too many for a group."""
        more, reduced = (1, group.reduced) if other is None else (len(other.members), group.reduced | other.reduced)
        return why_no_strand(group, reads, more, reduced, self.of, self.machine)

    def _unmergeable(self, first: Group, second: Group) -> str | None:
        """Why two groups do not become one, whatever they hold; None where they may."""
        if self.between(first, second):
            return BETWEEN
        if second.closed:
            return second.closed
        if second.kind != "vector":
            return DOMAINS if first.kind == "vector" else TWO_PRODUCTS
        if first.domain != second.domain:
            return DOMAINS
        if first.kind != "vector":
            if second.reduced:
                return SUMS
            if _opened(second):
                return OPENED
        if (first.stacked or second.stacked) and not (_stores_parts(first) and _stores_parts(second)):
            return STACKED
        if any(first.axes.get(value, axes) != axes for value, axes in second.axes.items()):
            return ALONG
        return None

    def _sees(self, maker: Group, reader: Group) -> bool:
        """Whether what `reader` takes from `maker` is what their common tiles would hold."""
        for op in reader.others:
            for value in op.operands:
                axes = self.axes_in(reader, value)
                if axes is None:  # read as a whole, by places of its own
                    if self.of(value).base.owner in maker.inside:
                        return False
                    continue
                named = tuple(a if isinstance(a, int) else None for a in axes)
                if self._agrees(maker, value, named) is False:
                    return False
        return all(
            self._agrees(maker, value, axes) is not False
            for base in self._shared(maker, reader)
            for value, axes in reader.reads[base]
        )

    def _shared(self, maker: Group, reader: Group) -> Iterable[SSAValue]:
        """Values behind what `reader` reads that `maker` may have or be needed for: of two large groups, those few that
        both know."""
        if reader.needs & maker.bit:
            return reader.reads
        fewer, more = sorted((reader.reads, maker.axes), key=len)
        return [*(v for v in fewer if v in more), *(v for v in reader.recomputed if v in reader.reads)]

    def _enter(self, group: Group, op: Operation) -> None:
        """Makes an op, whose results have their axes, a member."""
        if op in group.inside:
            return
        group.members.append(op)
        group.inside.add(op)
        if group.held:
            group.held.add(op)
        if not isinstance(op, ElementwiseOp):
            group.others.append(op)
            return
        axes = group.axes[op.results[0]]
        for value in op.operands:
            group.reads.setdefault(self.of(value).base, {})[value, axes] = None

    def _join(self, group: Group, op: Operation, axes: Axes) -> None:
        for result in op.results:
            group.axes[result] = axes
            self.owner[result] = group
        self._enter(group, op)
        for value in op.operands:
            if self.axes_in(group, value) is None:
                self.add_needs(group, self.needs_of(value))
                if not is_layout(value.owner):
                    group.axes.setdefault(value, axes) if value not in self.owner else None

    def _absorb(self, group: Group, small: Group, op: Operation, axes: Axes) -> None:
        """Recomputes the elementwise values of `small` that `op`, with these axes in `group`, is made of; nothing
        where one of them would be needed with two different sets of axes."""
        if small.kind != "vector" or small.reduced or small.closed:
            return
        found: dict[SSAValue, Axes] = {}
        traced = self._trace(group, small, op, axes, found) and not self._read_as_wholes(group, found)
        makers = [v.owner for v in found if isinstance(v.owner, Operation)]
        if traced and self._rows_misfit(group, makers) is None:
            for value, at in found.items():
                maker = value.owner
                assert isinstance(maker, Operation)
                group.axes[value] = at
                self._enter(group, maker)
                group.recomputed.add(value)
            for value in found:
                maker = value.owner
                assert isinstance(maker, Operation)
                for operand in maker.operands:
                    if self.axes_in(group, operand) is None:
                        self.add_needs(group, self.needs_of(operand))

    def _read_as_wholes(self, group: Group, values: Container[SSAValue]) -> bool:
        """Whether an op of a group reads one of these values by places of its own, as a product does: then it has to
        be a tensor before the group runs."""
        return any(
            self.of(v).base in values and self.axes_in(group, v) is None
            for op in group.others
            for v in op.operands
        )

    def _trace(
        self, group: Group, small: Group, op: Operation, axes: Axes, found: dict[SSAValue, Axes]
    ) -> bool:
        """Collects the values of `small` behind the operands of `op`, operands first; False where that fails."""
        for operand in op.operands:
            chain, value = behind(operand, self.owner)
            if value not in self.owner or self.owner[value].find() is not small:
                continue
            at = backward_axes(chain, axes)
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

    def reduction(self, op: ReduceOp | ArgReduceOp) -> None:
        """Joins the group of the operand where whole rows fit on chip, or are read in pieces; starts a group
        otherwise."""
        dims = set(to_ints(op.dims)) if isinstance(op, ReduceOp) else {integer(op.dim)}
        for group in [*self.candidates([op.x]), *self._long_readers(op, dims)]:
            axes = self.axes_in(group, op.x)
            if group.kind != "vector" or group.closed or group.stacked:
                self.refuse(op, group, group.closed or (STACKED if group.stacked else SUMS))
                continue
            if axes is None or Broadcast.ADDED in axes:
                self.refuse(op, group, NOT_FOLLOWED if axes is None else ADDED)
                continue
            named = tuple(a if isinstance(a, int) else None for a in axes)
            reduced = frozenset(a for d in dims if (a := named[d]) is not None)
            why = self._rows_misfit(group, [op], [reduced])
            if why is not None:
                self.refuse(op, group, why)
                continue
            self._add_reduction(group, op, named, dims)
            return
        shape = shape_of(op.x)
        group = self.new_group("vector", shape)
        self._add_reduction(group, op, tuple(None if s == 1 else d for d, s in enumerate(shape)), dims)

    @choosing()
    def _long_readers(self, op: ReduceOp | ArgReduceOp, dims: set[int]) -> list[Group]:
        """Groups that reduce a tensor from outside, of which an op reduces rows too long to fit on chip: what loads
        them once may do so for both."""
        alone = Group(-1, "vector", shape_of(op.x))
        if why_not_whole(alone, dims, [op], self.of, self.machine) is None:
            return []
        return [g for g in self.live.values() if op.x in g.axes and g.reductions and op.x.owner not in g.inside]

    @choosing()
    def _rows_misfit(
        self, group: Group, more: Sequence[Operation], others: Collection[frozenset[int]] = ()
    ) -> str | None:
        """Why the rows that a group reduces, if the ops `more` join, with reductions along these `others`, neither fit
        on chip whole nor are read in pieces. None where they do, or are."""
        reductions = {*group.reductions, *others}
        rows = frozenset[int]().union(*reductions)
        why = why_not_whole(group, rows, more, self.of, self.machine) if rows else None
        if why is None:
            return None
        pieces = why_not_in_pieces(group, rows, more, reductions, self.of, self.machine)
        return None if pieces is None else f"{why}; {pieces}"

    def _add_reduction(self, group: Group, op: ReduceOp | ArgReduceOp, axes: Axes, dims: set[int]) -> None:
        self._enter(group, op)
        group.reductions.add(frozenset(a for d in dims if (a := axes[d]) is not None))
        kept = tuple(a for d, a in enumerate(axes) if d not in dims)
        for result in op.results:
            group.axes[result] = kept
            self.owner[result] = group
        if self.axes_in(group, op.x) is None:
            self.add_needs(group, self.needs_of(op.x))
            if not is_layout(op.x.owner):
                group.axes[op.x] = axes

    def contraction(self, op: ContractOp | ConvOp) -> None:
        closed = GROUPED if isinstance(op, ConvOp) and integer(op.groups) > 1 else ""
        group = self.new_group("cube", shape_of(op.result), closed)
        self._enter(group, op)
        group.axes[op.result] = tuple(range(len(group.domain)))
        self.owner[op.result] = group
        for value in op.operands:
            self.add_needs(group, self.needs_of(value))
        expansion = expansion_of(op)
        for inside in (*gathers_of(op), *([] if expansion is None else [expansion])):
            self._enter(group, inside)
            for value in inside.operands:
                self.add_needs(group, self.needs_of(value))

    def chained(self, found: Chained) -> None:
        """A group of two products and what is between them."""
        group = self.new_group("mix", found.domain, CHAINED)
        group.chained = True
        group.axes.update(found.axes)
        for op in found.members:
            self._enter(group, op)
            if op not in found.generated:
                self.owner.update((result, group) for result in op.results)
        for op in found.members:
            for value in op.operands:
                if self.axes_in(group, value) is None:
                    self.add_needs(group, self.needs_of(value))

    def concatenation(self, op: ConcatOp) -> None:
        """Lets the kernel that computes all parts store them side by side; copies them where there is none."""
        group = self._maker_of(op.parts)
        if group is None:
            for maker in self.candidates(op.operands):
                self.refuse(op, maker, UNSTACKED)
            self.single(op, "move")
            return
        group.stacked = True
        self.owner[op.result] = group

    def _maker_of(self, parts: Sequence[SSAValue]) -> Group | None:
        """The group that can store all of these values side by side: it computes some along its whole domain, and the
        others come from outside. Groups that compute them are made one. None where there is none."""
        values = [v for part in parts for v in self._stored(part)]
        own = list(dict.fromkeys(v for v in values if v in self.owner and not is_layout(v.owner)))
        if not own or len(values) > MOST_STACKED:
            return None
        first = self.owner[own[0]].find()
        if any_open(first.domain) or any(long_extents(shape_of(v)) != long_extents(first.domain) for v in values):
            return None
        if any(shape_of(v) != first.domain for v in own):
            return None
        whole = tuple(range(len(first.domain)))
        for value in own:
            group = self.owner[value].find()
            axes = zip(group.axes[value], whole, first.domain, strict=True)
            if not _stores_parts(group) or any(a != d for a, d, n in axes if n != 1):
                return None
        for value in own:
            group, first = self.owner[value].find(), first.find()
            if group is not first and self.merge(first, group) is not None:
                return None
        group = first.find()
        mask = 0
        for value in values:
            if value not in own:
                mask |= self.needs_of(value)
        if mask & group.bit or any(g.needs & group.bit for g in self.live.values() if mask & g.bit):
            return None
        self.add_needs(group, mask)
        return group

    def _stored(self, part: SSAValue) -> list[SSAValue]:
        """The values that a part of a tensor is stored from: of one that is stored in parts itself, those."""
        part = behind_ones(part)
        op = part.owner
        if isinstance(op, ConcatOp) and part in self.owner and self.owner[part].find().stacked:
            return [v for inner in op.parts for v in self._stored(inner)]
        return [part]

    def single(self, op: Operation, kind: str, closed: str = OWN_ORDER) -> None:
        """A group of its own that nothing joins, or with closed "" only what follows it."""
        group = self.new_group(kind, shape_of(op.results[0]), closed)
        self._enter(group, op)
        for result in op.results:
            group.axes[result] = tuple(range(len(shape_of(result))))
            self.owner[result] = group
        for value in op.operands:
            self.add_needs(group, self.needs_of(value))


class SingleOps(Grouper):
    """Makes a group of each op."""

    def candidates(self, values: Sequence[SSAValue]) -> list[Group]:
        return []

    def _long_readers(self, op: ReduceOp | ArgReduceOp, dims: set[int]) -> list[Group]:
        return []

    def _maker_of(self, parts: Sequence[SSAValue]) -> Group | None:
        return None


def _much_smaller(group: Group, consumer: Group) -> bool:
    """Whether it is better to compute a group again in its consumer than to store and load it."""
    return is_small(size(group.domain), consumer.domain)


def _opened(group: Group) -> bool:
    """Whether a kernel of its own kind begins a group."""
    return any(isinstance(op, GraphOp) and op.GROUPING == "opening" for op in group.others)


def _stores_parts(group: Group) -> bool:
    """Whether the kernel of a group may store values side by side."""
    return group.kind == "vector" and not (group.closed or group.reduced or _opened(group))


def _stores(op: GraphOp) -> bool:
    """Whether what an op reads is a tensor in memory."""
    return op.GROUPING in ("contraction", "opening", "vector", "index", "move", "concatenation")


@dataclass(frozen=True)
class GroupingRule:
    """What is done with ops of one `GROUPING`. apart: why they join no kernel that makes what they read, where none of
    them does; "" where `put` says so of each."""

    put: Callable[[Grouper, Any], None]
    apart: str = ""


GROUPINGS: dict[Grouping, GroupingRule] = {
    "elementwise": GroupingRule(Grouper.elementwise),
    "reduction": GroupingRule(Grouper.reduction),
    "contraction": GroupingRule(
        Grouper.contraction,
        "a product reads it tile by tile and more than once, so that all of it has to be in memory before",
    ),
    "opening": GroupingRule(
        lambda grouper, op: grouper.single(op, "vector", closed=""),
        "it is only computed where a kernel of the vector cores begins",
    ),
    "generated": GroupingRule(Grouper.generated),
    "vector": GroupingRule(
        lambda grouper, op: grouper.single(op, "vector"),
        "it is read in an order that is not the one it is made in",
    ),
    "index": GroupingRule(
        lambda grouper, op: grouper.single(op, "index"),
        "the places at which it is read or written are known only when that kernel runs",
    ),
    "concatenation": GroupingRule(Grouper.concatenation),
    "move": GroupingRule(
        lambda grouper, op: grouper.single(op, "move"),
        "a kernel that moves parts of several tensors computes nothing",
    ),
}
"""What is done with an op, by its `GROUPING`."""
