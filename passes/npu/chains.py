"""In-place chains: temporaries of the vector unit take the buffers that are loaded and stored, where these are idle.

Before:  load_nd %x, %a;  vsub %a, %m, %t;  vmul %t, %t, %u;  vreduce %u, %r;  vmul %t, %s, %b;  store_nd %b, %y
After:   load_nd %x, %a;  vsub %a, %m, %a;  vmul %a, %a, %b;  vreduce %b, %r;  vmul %a, %s, %b;  store_nd %b, %y

A buffer that is loaded is idle behind the last instruction that reads it, one that is stored before the first one that
writes it. A temporary of the same block and type that lives in that time takes its slot. Pipes keep their order: a slot
belongs to a pipe of copies for one part of a round and to the vector unit for the other, so that two slots hide either.
What is loaded does not become what is stored: a slot would go through three pipes then, which two slots do not hide. Of
several loops in a row, as walks over rows, only what is stored is shared: loads run ahead from one loop into the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects.scf import ForOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.dtypes import size
from ...dialects.npu import BufferType, ElementwiseVectorOp, Pipe, SlotOp, whole_buffer
from .usages import Usage


@dataclass
class _Host:
    """A buffer that another pipe fills or drains, in the block where all its instructions are: the value that they use,
    and when it is in use, as the numbers of the first and the last instruction of each time."""

    value: SSAValue
    times: list[tuple[int, int]]

    def takes(self, first: int, last: int, order: Sequence[Operation]) -> bool:
        """Whether it is idle from one instruction of the block to another. An elementwise instruction may end one time
        and begin the next."""
        return all(
            last < begin
            or first > end
            or (first == end and isinstance(order[first], ElementwiseVectorOp))
            or (last == begin and isinstance(order[last], ElementwiseVectorOp))
            for begin, end in self.times
        )

    def ends_at(self, number: int) -> bool:
        """Whether a time of its use ends with this instruction."""
        return any(end == number for _, end in self.times)


def share_slots(usages: Iterable[Usage]) -> bool:
    """Moves temporaries of a section to idle slots. Whether there were any; their own buffers are gone then."""
    orders: dict[Block, list[Operation]] = {}
    numbers: dict[Operation, int] = {}
    hosts: dict[tuple[Block, BufferType], list[_Host]] = {}
    lodgers: list[tuple[int, int, Usage, Block]] = []
    for usage in usages:
        block = _only_block(usage)
        if block is None or usage.type.space != "ub" or usage.alloc.shared is not None:
            continue
        if size(usage.type.shape) == 1:  # it takes a block, and a constant in it is a number to HIVM
            continue
        if usage.type.dtype() == "i1":  # the vendor's IR has bytes where truths are copied, and bits elsewhere
            continue
        if block not in orders:
            orders[block] = list(block.ops)
            numbers.update((op, i) for i, op in enumerate(orders[block]))
        first, last = numbers[usage.ops[0]], numbers[usage.ops[-1]]
        if usage.private_block() is not None:
            if all(whole_buffer(v) is not usage.alloc.result for v in usage.ops[0].reads()):
                lodgers.append((first, last, usage, block))
        elif (value := _slot_of(usage, block)) is not None:
            hosts.setdefault((block, usage.type.one_slot), []).append(_Host(value, [(first, last)]))
    moved = False
    for first, last, usage, block in sorted(lodgers, key=lambda each: each[:2]):
        known = [h for h in hosts.get((block, usage.type), ()) if h.takes(first, last, orders[block])]
        if not known:
            continue
        host = next((h for h in known if h.ends_at(first)), known[0])
        host.times.append((first, last))
        if isinstance(slot := host.value.owner, SlotOp) and not slot.is_before_in_block(usage.ops[0]):
            slot.detach()
            block.insert_op_before(slot, usage.ops[0])
        usage.alloc.result.replace_all_uses_with(host.value)
        usage.alloc.detach()
        usage.alloc.erase()
        moved = True
    return moved


def _runs_ahead(loop: ForOp) -> bool:
    """Whether loads of a loop are made while the vector unit ends a loop before it, so that each slot counts."""
    return loop.parent is not None and sum(isinstance(op, ForOp) for op in loop.parent.ops) > 1


def _only_block(usage: Usage) -> Block | None:
    """The block that all instructions of a buffer are in, where they are in one."""
    blocks = {op.parent for op in usage.ops}
    return blocks.pop() if len(blocks) == 1 else None


def _slot_of(usage: Usage, block: Block) -> SSAValue | None:
    """The value by which all instructions name a buffer that another pipe fills or drains, where it has a slot for that
    pipe beside the vector unit's, or they run once. None where there is none."""
    values = {v for op in usage.ops for v in op.main_operands() if whole_buffer(v) is usage.alloc.result}
    copies = {op.PIPE for op in usage.ops} - {Pipe.V}
    if len(values) != 1 or len(copies) != 1 or usage.type.pitch:
        return None
    loop = block.parent_op()
    if isinstance(loop, ForOp) and (usage.type.slots == 1 or (Pipe.MTE3 not in copies and _runs_ahead(loop))):
        return None
    (value,) = values
    slot = value.owner
    made_here = isinstance(slot, SlotOp) and any(
        isinstance(v.owner, Operation) and v.owner.parent is block for v in slot.indices
    )
    return None if made_here else value
