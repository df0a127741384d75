"""What a verification computes, before it does: a program whose values no memory holds several times, or whose loops
run for hours, is refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation

from ..dialects.base import integer
from ..dialects.dtypes import shape_in
from ..dialects.graph import WhileOp

MOST_ELEMENTS = 1 << 28
"""Elements of the largest value that is verified: in f32 a gigabyte, of which there are the reference, its bound and
the result of a pass at once."""

MOST_WORK = 1 << 34
"""Elements that all ops of a program compute, some minutes for each pass."""

EACH_OP = 1 << 10
"""Elements that take as long to compute as one more op does."""


def too_much(module: ModuleOp) -> str | None:
    """Why a program at the graph level is not verified: what of it is too large; None where nothing is."""
    largest, total = 0, 0
    for op, runs in _ops(module.body.block, 1):
        sizes = [prod(shape_in(v.type)) for v in op.results if isinstance(v.type, TensorType)]
        sizes = [n for n in sizes if isinstance(n, int)]
        largest, total = max([largest, *sizes]), total + runs * (sum(sizes) + EACH_OP)
    if largest > MOST_ELEMENTS:
        return f"it has a value of {largest:,} elements, and {MOST_ELEMENTS:,} can be verified: make its sizes smaller"
    if total > MOST_WORK:
        return (
            f"its ops compute some {total:,} elements, loops included, and {MOST_WORK:,} can be verified: make its "
            "sizes smaller, or its loops shorter"
        )
    return None


def _ops(block: Block, runs: int) -> Iterator[tuple[Operation, int]]:
    """The ops of a block and within them, and how often each runs; a loop whose steps data decides counts as one."""
    for op in block.ops:
        yield op, runs
        trips = op.trip_count if isinstance(op, WhileOp) else None
        inner = runs if trips is None else runs * integer(trips)
        for region in op.regions:
            for each in region.blocks:
                yield from _ops(each, inner)
