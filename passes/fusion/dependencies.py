"""Groups of ops and their order. The predecessors of a group are a bit mask, so the test for a cycle takes two
integer operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from ..forms.access import is_layout
from ..forms.layout_axes import Axes, behind
from .held import Held


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
    reductions: set[frozenset[int]] = field(default_factory=set)
    """The axes of each reduction."""
    inside: set[Operation] = field(default_factory=set)
    """The members, to ask for one."""
    reads: dict[SSAValue, dict[tuple[SSAValue, Axes], None]] = field(default_factory=dict)
    """What elementwise members read and with which axes, by the value behind layout ops."""
    others: list[Operation] = field(default_factory=list)
    """Members that are not elementwise."""
    recomputed: set[SSAValue] = field(default_factory=set)
    """Values of other groups that this one computes again: it need not run after those."""
    held: Held | None = None
    """What a kernel of the members holds at once; counted from the first time that it matters."""
    closed: str = ""
    """Why nothing joins it any more; "" where something may."""
    chained: bool = False
    """Whether it is two products and what is between them."""
    stacked: bool = False
    """Whether it stores values of its own side by side, as parts of one tensor."""
    merged_into: Group | None = None

    @property
    def reduced(self) -> frozenset[int]:
        """The axes along which it reduces."""
        return frozenset[int]().union(*self.reductions)

    @property
    def bit(self) -> int:
        return 1 << self.number

    def find(self) -> Group:
        group = self
        while group.merged_into is not None:
            group = group.merged_into
        return group


class Dependencies:
    """The groups of one block, which of them makes each value, and which must run before which."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.live: dict[int, Group] = {}
        """The groups that are not merged into others, by number."""
        self.owner: dict[SSAValue, Group] = {}
        self.barriers: dict[SSAValue, int] = {}
        """For results of ops that are not in a group: the groups that make what they use."""

    def new_group(self, kind: str, domain: Sequence[int], closed: str = "") -> Group:
        group = Group(len(self.groups), kind, tuple(domain), closed=closed)
        self.groups.append(group)
        self.live[group.number] = group
        return group

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
        if is_layout(op):
            for operand in op.operands:
                found |= self.makers_of(operand)
            self.barriers[value] = found
        return found

    def add_needs(self, group: Group, mask: int) -> None:
        mask &= ~group.bit
        if mask & ~group.needs:
            group.needs |= mask
            for other in self.live.values():
                if other.needs & group.bit:
                    other.needs |= group.needs & ~other.bit

    def between(self, first: Group, second: Group) -> bool:
        """Whether a third group must run between two."""
        return any(
            (g.needs & first.bit and second.needs & g.bit) or (g.needs & second.bit and first.needs & g.bit)
            for g in self.live.values()
            if g is not first and g is not second
        )

    def replace(self, gone: Group, kept: Group) -> None:
        """Makes one group part of another, which runs after what both had to run after."""
        gone.merged_into = kept
        del self.live[gone.number]
        mask = gone.needs & ~kept.bit & ~gone.bit
        for other in self.live.values():
            if other.needs & gone.bit:
                other.needs = (other.needs & ~gone.bit) | (kept.bit if other is not kept else 0)
        self.add_needs(kept, mask)
        for other in self.live.values():
            if other.needs & kept.bit:
                other.needs |= kept.needs

    def candidates(self, values: Sequence[SSAValue]) -> list[Group]:
        """Groups that `values` come from, latest first."""
        found: list[Group] = []
        for value in values:
            _, base = behind(value, self.owner)
            if base in self.owner:
                group = self.owner[base].find()
                if group not in found:
                    found.append(group)
        return sorted(found, key=lambda g: -g.number)
