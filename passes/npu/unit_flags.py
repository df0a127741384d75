"""Which drains follow the product of their sums fractal by fractal, by the machine's unit flags.

The product and the drain of an accumulator order themselves then, in both directions, so no flag between their pipes
is needed. A drain waits until every fractal is flagged, and the next product until every one has left: each run of a
block must make the sums, and drain them once.
"""

from __future__ import annotations

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.npu import AllocOp, FixpipeL1Op, FixpipeOp, MmadOp, SyncOp, buffer, buffer_users
from ...dialects.npu.legality import Section


def give_unit_flags(section: Section) -> None:
    """Gives unit flags to the products and drains of a section that may have them, unless it has flags already."""
    if any(isinstance(op, SyncOp) for op in section.body.walk()):
        return
    for alloc in section.body.block.ops:
        if isinstance(alloc, AllocOp) and buffer(alloc.result).space == "l0c":
            users = list(buffer_users(alloc.result))
            if _take_turns(users):
                for op in users:
                    op.properties["unit_flag"] = UnitAttr()


def _take_turns(users: list[Operation]) -> bool:
    """Whether these are products of one slot of an accumulator and, behind them, its one drain."""
    drains = [op for op in users if isinstance(op, FixpipeOp | FixpipeL1Op)]
    products = [op for op in users if isinstance(op, MmadOp)]
    if len(drains) != 1 or not products or len(drains) + len(products) < len(users):
        return False
    (drain,) = drains
    home = drain.parent
    assert home is not None
    if not all(op.acc is drain.source for op in products):
        return False
    places = [home.find_ancestor_op_in_block(op) for op in products]
    return all(at is not None and at.is_before_in_block(drain) for at in places) and _made_in(drain.source, home)


def _made_in(value: SSAValue, home: Block) -> bool:
    """Whether a buffer is a whole one, or a slot that is chosen in a block."""
    return isinstance(value.owner, AllocOp) or value.owner.parent is home
