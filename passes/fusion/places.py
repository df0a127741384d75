"""Where values stand in groups: the axes that each has, and those that an op would have which joins."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from ...dialects.dtypes import itemsize, size
from ...dialects.graph.interface import element_of, shape_of
from ...dialects.open_sizes import certain
from ..forms.access import splat_of
from ..forms.layout_axes import Axes, Broadcast, FoundAxes, axes_behind, base_of, behind
from .dependencies import Dependencies, Group
from .held import Facts

ALONG = "it takes the value along other axes than those it is made along, so that a tile of one is none of the other"
NOT_FOLLOWED = "it reads the value through a reshape or a slice that the axes of one kernel do not follow"
ADDED = "it is larger along a dimension that the kernel of the value does not walk"
LATER = "what it combines the value with is made from it, in a kernel that runs between the two"


class ValuePlaces(Dependencies):
    """The axes of values in the groups of one block."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[SSAValue, Facts] = {}

    def of(self, value: SSAValue) -> Facts:
        found = self.facts.get(value)
        if found is None:
            splat = splat_of(value) is not None
            found = Facts(size(shape_of(value)), itemsize(element_of(value)), splat, base_of(value))
            self.facts[value] = found
        return found

    def axes_in(self, group: Group, value: SSAValue) -> FoundAxes | None:
        """Axes of `value` where it is a value of `group` seen through layout ops; None otherwise."""
        chain, base = behind(value, group.axes)
        return axes_behind(chain, group.axes[base]) if base in group.axes else None

    def _complete(self, group: Group, axes: FoundAxes, shape: Sequence[int]) -> Axes | None:
        """Gives dimensions that a broadcast added the group's unused axes of the same extent, in order."""
        used = {a for a in axes if isinstance(a, int)}
        free = [a for a in range(len(group.domain)) if a not in used]
        out: list[int | None] = []
        for a, s in zip(axes, shape, strict=True):
            if a is not Broadcast.ADDED:
                out.append(a if isinstance(a, int) else None)
                continue
            match = next((f for f in free if certain(group.domain[f], "==", s)), None)
            if match is None:
                return None
            free.remove(match)
            out.append(match)
        taken = [a for a in out if a is not None]
        return tuple(out) if taken == sorted(taken) else None

    def _agrees(self, group: Group, value: SSAValue, axes: Axes) -> bool | None:
        """Whether `value`, used with `axes`, is a value of the group (True), comes from outside (None), or is one
        in a way the group's tiles cannot give (False)."""
        return self._matches(group, value, self.axes_in(group, value), axes)

    def _matches(
        self, group: Group, value: SSAValue, found: Sequence[int | Broadcast | None] | None, axes: Axes
    ) -> bool | None:
        """`_agrees`, where the axes of `value` in the group are found already."""
        if found is None:
            return (
                False
                if self.needs_of(value) & group.bit or self.of(value).base.owner in group.inside
                else None
            )
        return all(f in (Broadcast.ADDED, None) or f == a for f, a in zip(found, axes, strict=True))

    def place(self, group: Group, op: Operation) -> Axes | str:
        """The axes an elementwise op would have in `group`, or why it cannot join."""
        if group.closed:
            return group.closed
        found = {v: self.axes_in(group, v) for v in op.operands}
        guesses = [a for a in found.values() if a is not None]
        if not guesses:
            return NOT_FOLLOWED
        axes = self._complete(
            group, min(guesses, key=lambda a: a.count(Broadcast.ADDED)), shape_of(op.results[0])
        )
        if axes is None:
            return ADDED
        for value, at in found.items():
            if self._matches(group, value, at, axes) is False:
                return LATER if at is None else ALONG
        return axes
