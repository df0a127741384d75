"""Checks that do not depend on the order of instructions: addresses, bounds, events, operands that overlap."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr

from ....dialects import npu as ops
from ....dialects.base import integer
from ....dialects.dtypes import itemsize
from ....dialects.npu import BufferType, NpuOp, buffer, gm
from ....dialects.npu.types import ROW_BYTES
from ....machine import Machine
from .finding import Bytes, Finding
from .model import SET, WAIT, WAIT_CROSS, CheckedKernel, CheckedNode, CheckedSection, Place, TouchedBytes


def check_section(kernel: CheckedKernel, section: CheckedSection, machine: Machine) -> list[Finding]:
    """The findings of one section."""
    out: list[Finding] = []
    for alloc in section.allocs:
        out += _check_alloc(kernel, alloc, machine)
    kernel.counts[kernel.unit] = section.units
    for node in section.works:
        for written in node.writes:
            out += _check_operands(kernel, node, written)
        out += _check_box(kernel, node)
    _check_events(kernel, section.nodes, machine, out)
    _check_cross(kernel, section.nodes, {}, out)
    return out


def _check_alloc(kernel: CheckedKernel, alloc: ops.AllocOp, machine: Machine) -> list[Finding]:
    kind = buffer(alloc.result)
    space = machine.spaces.get(kind.space)
    if not isinstance(alloc.address, IntegerAttr):
        return [Finding("misaligned", "{first} has no address", alloc, kernel=kernel.name)]
    if space is None:
        what = f"{{first}} is in {kind.space}, which {machine.name} does not have"
        return [Finding("out-of-bounds", what, alloc, kernel=kernel.name)]
    start = integer(alloc.address)
    where = Bytes(kind.space, start, start + kind.slot_bytes * kind.slots)
    out = []
    if start < 0 or where.end > space.bytes:
        what = f"{{first}} leaves {kind.space}, which has {space.bytes} bytes"
        out.append(Finding("out-of-bounds", what, alloc, bytes=where, kernel=kernel.name))
    align = itemsize(kind.element) if kind.pitch else max(space.align, ROW_BYTES)
    if start % align:
        what = f"{{first}} does not start at a multiple of {align} bytes"
        out.append(Finding("misaligned", what, alloc, bytes=where, kernel=kernel.name))
    return out


def _check_operands(kernel: CheckedKernel, node: CheckedNode, written: Place) -> list[Finding]:
    """A destination may share bytes with a source only where the instruction works lane by lane, and then
    exactly; two destinations never may."""
    for read in node.reads:
        if not _meet(read, written):
            continue
        assert isinstance(node.op, NpuOp)
        a, b = read.alloc.type, written.alloc.type
        assert isinstance(a, BufferType) and isinstance(b, BufferType)
        first, second = read.slots[0], written.slots[0]
        exact = (
            first[0].start == second[0].start
            and (a.shape, a.slot_bytes, a.row_bytes) == (b.shape, b.slot_bytes, b.row_bytes)
            and read.counter == written.counter
        )
        if not (node.op.in_place() and (exact or _narrows(node.op, a, b, first[0], second[0]))):
            cell = next(c for c in _cells(written) if any(c is d for d in _cells(read)))
            what = "{first} writes bytes of a source that it has not read yet"
            return [
                Finding(
                    "overlap",
                    what,
                    node.op,
                    bytes=Bytes(cell.space, cell.start, cell.end),
                    kernel=kernel.name,
                )
            ]
    for other in node.writes:
        if other is not written and _meet(other, written):
            return [
                Finding(
                    "overlap", "{first} writes two results to the same bytes", node.op, kernel=kernel.name
                )
            ]
    return []


def _narrows(op: NpuOp, a: BufferType, b: BufferType, first: TouchedBytes, second: TouchedBytes) -> bool:
    """Whether a destination of narrower elements begins where its source does: each lane is written where it, or one
    before it, was read."""
    return (
        isinstance(op, ops.ElementwiseVectorOp)
        and first.start == second.start
        and a.shape == b.shape
        and a.slots == b.slots == 1
        and len(a.runs) == len(b.runs) == 1
        and itemsize(b.element) <= itemsize(a.element)
    )


def _cells(place: Place) -> list:
    return [cell for slot in place.slots for cell in slot]


def _meet(a: Place, b: Place) -> bool:
    if a.slots is b.slots:
        return a.counter == b.counter or len(a.slots) == 1
    if len(a.slots) == 1 and len(b.slots) == 1 and len(a.slots[0]) == 1 and len(b.slots[0]) == 1:
        return a.slots[0][0] is b.slots[0][0]
    cells = {id(c) for c in _cells(a)}
    return any(id(c) in cells for c in _cells(b))


def _check_box(kernel: CheckedKernel, node: CheckedNode) -> list[Finding]:
    """The part of a buffer that an instruction reads lies inside it, for all values of the indices."""
    op = node.op
    assert isinstance(op, NpuOp)
    if isinstance(op, ops.LoadScalarOp | ops.LoadNumberOp):
        return _check_number(kernel, op)
    box = op.source_box()
    if box is None:
        return _check_begin(kernel, op) if isinstance(op, ops.TransferOp) else []
    shape = buffer(op.sources()[0]).shape
    offsets = kernel.rows(op.properties["offsets"], op.index_operands(), op)
    dims = zip(offsets, box.sizes, box.steps, box.window, box.window_steps, shape, strict=True)
    for d, (offset, count, step, window, window_step, extent) in enumerate(dims):
        low, high = offset.reach(kernel.counts)
        reach = (count - 1) * step, (window - 1) * window_step
        low, high = low + sum(min(r, 0) for r in reach), high + sum(max(r, 0) for r in reach)
        if low < 0 or high >= extent:
            what = f"{{first}} reads positions {low}..{high} along dimension {d} of a buffer of {extent}"
            return [Finding("bad-box", what, op, kernel=kernel.name)]
    return []


_LAST = (1 << 31) - 1
"""The last position that a number of the scalar unit says."""


def _check_begin(kernel: CheckedKernel, op: ops.TransferOp) -> list[Finding]:
    """Where a box of a tensor begins is a number of 32 bits; outside of the tensor it is clipped."""
    for d, offset in enumerate(kernel.rows(op.properties["offsets"], op.index_operands(), op)):
        for end in offset.reach(kernel.counts):
            if isinstance(end, int) and abs(end) > _LAST:
                what = f"{{first}} begins at position {end} along dimension {d}, which is no number of 32 bits"
                return [Finding("bad-box", what, op, kernel=kernel.name)]
    return []


def _check_number(
    kernel: CheckedKernel, op: ops.LoadScalarOp | ops.LoadNumberOp
) -> list[Finding]:
    """A number that the scalar unit reads is one of its tensor's, for all values of the indices."""
    shape = gm(op.source).shape
    for d, offset in enumerate(kernel.rows(op.offsets, op.index_operands(), op)):
        low, high = offset.reach(kernel.counts)
        if low < 0 or high >= shape[d]:
            what = f"{{first}} reads positions {low}..{high} along dimension {d} of {gm(op.source)}"
            return [Finding("bad-box", what, op, kernel=kernel.name)]
    return []


def _check_events(
    kernel: CheckedKernel, nodes: list[CheckedNode], machine: Machine, out: list[Finding]
) -> None:
    for node in nodes:
        if node.kind in (SET, WAIT):
            last = node.event + node.slots - 1
            if node.event < 0 or last >= machine.flags:
                what = f"{{first}} uses event {last}, but a pair of pipes has 0..{machine.flags - 1}"
                out.append(Finding("event-overflow", what, node.op, kernel=kernel.name))
        elif node.body:
            _check_events(kernel, node.body, machine, out)


def _check_cross(
    kernel: CheckedKernel, nodes: list[CheckedNode], waits: dict[int, CheckedNode], out: list[Finding]
) -> None:
    """Waits of two pipes for one event of other cores: each may take what the other one's instructions need. `waits`:
    the first wait for each event."""
    for node in nodes:
        if node.kind == WAIT_CROSS:
            first = waits.setdefault(node.event, node)
            if first.queue != node.queue:
                what = f"{{first}} and {{second}} wait for cross-core event {node.event} on two pipes: either takes it"
                out.append(Finding("deadlock", what, first.op, node.op, kernel=kernel.name))
        elif node.body:
            _check_cross(kernel, node.body, waits, out)
