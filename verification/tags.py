"""Tags: name hints that tell which value of one module is which of the next.

Passes carry hints along: what replaces a value takes over its hint. So every value gets a hint of its own before the
first pass, and new values get theirs after each pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue


def values_of(op: Operation) -> Iterator[SSAValue]:
    """All values inside an op: block arguments and results."""
    for inner in op.walk():
        yield from inner.results
        for region in inner.regions:
            for block in region.blocks:
                yield from block.args


class Tags:
    """Numbers values; one counter for all modules of a verification."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    def fresh(self, module: ModuleOp) -> None:
        """Gives every value a tag of its own."""
        for value in values_of(module):
            value.name_hint = f"v{next(self.numbers)}"

    def complete(self, module: ModuleOp) -> None:
        """Gives a tag to values that have none."""
        for value in values_of(module):
            if value.name_hint is None:
                value.name_hint = f"v{next(self.numbers)}"
