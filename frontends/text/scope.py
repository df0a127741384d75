"""Which name stands for which value, across blocks and loops."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Block, SSAValue

from .builder import Builder, Value
from .diagnostics import TextSpan
from .numbers import is_whole


@dataclass(eq=False)
class LoopRegion:
    """A region of a loop being built. What it uses of the values around it comes in as carried values in front of
    the others, as JAX does it."""

    block: Block
    captured: dict[SSAValue, SSAValue] = field(default_factory=dict)

    def capture(self, value: SSAValue, b: Builder) -> SSAValue:
        """The block argument that stands for a value from outside."""
        found = self.captured.get(value)
        if found is None:
            found = self.captured[value] = self.block.insert_arg(value.type, len(self.captured))
            found.name_hint = value.name_hint
            b.stands_for(found, value)
        return found


@dataclass(eq=False)
class BlockNames:
    """The names of a block; depth: how many loops are around it."""

    parent: BlockNames | None
    depth: int
    names: dict[str, Value] = field(default_factory=dict)
    dimensions: frozenset[str] = frozenset()
    partial: dict[str, TextSpan] = field(default_factory=dict)
    """Names that one branch of an `if` assigns and the other does not."""

    def find(self, name: str) -> tuple[Value, int] | None:
        """The value of a name and the depth of the scope that has it."""
        scope: BlockNames | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name], scope.depth
            scope = scope.parent
        return None

    def visible(self) -> set[str]:
        """All names that can be used here."""
        out: set[str] = set()
        scope: BlockNames | None = self
        while scope is not None:
            out |= set(scope.names)
            scope = scope.parent
        return out

    def numbers(self) -> set[str]:
        """The visible names of whole numbers known at compile time."""
        return {n for n in self.visible() if (found := self.find(n)) is not None and is_whole(found[0])}

    def is_dimension(self, name: str) -> bool:
        """Whether a name is a symbolic dimension of the function."""
        return name in self.dimensions or (self.parent is not None and self.parent.is_dimension(name))

    def branches_of(self, name: str) -> TextSpan | None:
        """Where a name is assigned in one branch only."""
        return self.partial.get(name) or (self.parent.branches_of(name) if self.parent is not None else None)
