"""Finds operands of products that typed mode reads straight from device memory.

A matrix goes from gm to l1 and from there to l0a or l0b: two copies of the same data. If the second load
takes a plain box of the first one's result, the two boxes are composed and the first load is not executed. Loops that
are then perfectly nested run as one (see `liveness.perfect_nest`).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from ...dialects.npu import LoadL0Op, LoadOp, SlotOp, TransferOp, whole_tensor
from ...dialects.npu.interface import buffer
from ...dialects.npu.structure import KernelOp, SectionOp
from ...dialects.shapes import transposes
from ..functions.scope import Box, Ranges
from .instructions import box_of
from .open_kernels import is_open_kernel
from .ranges import index_ranges


def find_direct(
    kernel: KernelOp, section: SectionOp
) -> tuple[dict[Operation, tuple[LoadOp, Box]], set[Operation]]:
    """({load to l0: (load to l1, box of its device tensor)}, {loads to l1 that nothing else reads})."""
    transfers = [op for op in section.body.walk() if isinstance(op, TransferOp)]
    loads = [op for op in transfers if isinstance(op, LoadOp) and buffer(op.tile()).space == "l1"]
    direct: dict[Operation, tuple[LoadOp, Box]] = {}
    skipped: set[Operation] = set()
    if not loads or is_open_kernel(kernel):
        return direct, skipped
    ranges = index_ranges(kernel)
    stored = {
        whole_tensor(op.main_operands()[op.DEVICE_OPERAND])
        for op in kernel.walk()
        if isinstance(op, TransferOp) and not isinstance(op, LoadOp)
    }
    for op in loads:
        if whole_tensor(op.main_operands()[0]) in stored:
            continue
        found = {reader: _composed(op, reader, ranges) for reader in _readers(op)}
        if found and all(box is not None for box in found.values()):
            direct.update((r, (op, box)) for r, box in found.items() if box is not None)
            skipped.add(op)
    return direct, skipped


def _readers(load: LoadOp) -> Sequence[Operation]:
    """The ops that read the tile that `load` brings. Empty unless all of them follow it in its block and
    name the same slot of a buffer that no other op writes."""
    tile = load.tile()
    if isinstance(tile.owner, SlotOp) and len(list(tile.owner.source.uses)) != 1:
        return ()
    block = load.parent
    following: set[Operation] = set()
    after = load.next_op
    while after is not None:
        following.add(after)
        after = after.next_op
    readers = [use.operation for use in tile.uses if use.operation is not load]
    for reader in readers:
        top = reader
        while top.parent is not block:
            parent = top.parent_op()
            if parent is None:
                return ()
            top = parent
        if top not in following:
            return ()
    return readers


def _composed(load: LoadOp, reader: Operation, ranges: Ranges) -> Box | None:
    """The box of the device tensor that `reader` takes, if it is one."""
    if not isinstance(reader, LoadL0Op) or reader.window is not None:
        return None
    outer, inner, shape = box_of(load), box_of(reader), buffer(load.tile()).shape
    wide = [d for d, n in enumerate(outer.sizes) if n > 1]
    named = [d for d, n in enumerate(shape) if n > 1]
    if [outer.sizes[d] for d in wide] != [shape[d] for d in named]:
        return None
    if not inner.inside(shape, ranges):
        return None
    # across an edge a box is moved into place after it is cut, for each product anew: measured, no quicker than l1
    if transposes(reader) and not outer.inside(load.view.shape, ranges):
        return None
    starts = list(outer.starts)
    sizes, steps = [1] * len(starts), list(outer.steps)
    for d, e in zip(wide, named, strict=True):
        step = outer.steps[d]
        starts[d] = starts[d] + inner.starts[e] * step
        sizes[d], steps[d] = inner.sizes[e], step * inner.steps[e]
    return Box(tuple(starts), tuple(sizes), tuple(steps))
