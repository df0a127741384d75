"""Loops and branches, which carry the extents of bounded tensors beside these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, Region, SSAValue

from ...dialects.dtypes import tensor
from ...dialects.graph import CaseOp, WhileOp, YieldOp
from ..extents import I32
from ..walk import Body, Walk

Places = list[tuple[int, int]]
"""Bounded dimensions: the number of a value, and its dimension. Their extents are behind the values, in this order."""

_EXTENT = tensor([], I32)


def while_loop(
    walk: Walk, args: Sequence[SSAValue], types: Sequence[TensorType], regions: Sequence[Any]
) -> tuple[WhileOp, Places]:
    """A loop, and which of the values that it carries are bounded: those that are before it, or after a round."""
    places = _bounded(walk, args)
    while True:
        body, results = _converted(walk, regions[1], types, places)
        found = sorted({*places, *_bounded(walk, results)})
        if found == places:
            break
        places = found  # then the round begins with them bounded, too
    condition, test = _converted(walk, regions[0], types, places)
    closed = [_closed(walk, condition, test, []), _closed(walk, body, results, places)]
    extents = [walk.extents.size(args[i], d) for i, d in places]
    kinds = [*types, *(_EXTENT for _ in places)]
    return walk.emit_control(WhileOp, [*args, *extents], kinds, closed), places


def branches(
    walk: Walk, index: SSAValue, types: Sequence[TensorType], regions: Sequence[Any]
) -> list[SSAValue]:
    """What the branch of a number gives; a dimension is bounded where it is in one of them."""
    made = [_converted(walk, region, [], []) for region in regions]
    places = sorted({place for _, results in made for place in _bounded(walk, results)})
    closed = [_closed(walk, *one, places) for one in made]
    kinds = [*types, *(_EXTENT for _ in places)]
    return results_of(walk, walk.emit_control(CaseOp, [index], kinds, closed), len(types), places)


def results_of(walk: Walk, op: Operation, count: int, places: Places) -> list[SSAValue]:
    """The results of a loop or a branch without the extents behind them, which are known from then on."""
    walk.extents.know(op.results, places)
    return list(op.results[:count])


def _bounded(walk: Walk, values: Sequence[SSAValue]) -> Places:
    return [(i, d) for i, v in enumerate(values) for d in sorted(walk.extents.of(v))]


def _converted(
    walk: Walk, region: Any, types: Sequence[TensorType], places: Places
) -> tuple[Body, list[SSAValue]]:
    """A region that takes values of these types and extents behind them, without its end, and what it yields."""
    body = Body(Block(arg_types=[*types, *(_EXTENT for _ in places)]))
    walk.extents.know(body.block.args, places)
    with walk.inside(body):
        results = walk.inline(region.blocks[0], body.block.args[: len(types)])
    return body, results


def _closed(walk: Walk, body: Body, results: Sequence[SSAValue], places: Places) -> Region:
    """A region with its end, which yields the extents of bounded dimensions behind the results."""
    with walk.inside(body):
        extents = [walk.extents.size(results[i], d) for i, d in places]
        with walk.extents.taken_whole(*results):
            walk.emit(YieldOp, [*results, *extents], [])
    body.block.add_ops(body.ops)
    return Region(body.block)
