"""What a kernel does to its tensors, as a host program sees it: which bytes it writes, and what those depend on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from oracle import Device, Launch, noise
from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import npu as ops
from tilewright.dialects.base import integer, to_ints
from tilewright.dialects.dtypes import itemsize, size
from tilewright.dialects.npu import GmType, gm, structure
from tilewright.machine import Machine

ALIGN = 512

MOST_AT_ONCE = 1 << 21
"""Elements that are noted at a time."""

Run = tuple[int, int, bool, tuple[int, ...]]
"""Bytes from, to; whether they stay as they were; the written tensors whose old contents they depend on."""


class Effect:
    """`reads`: the inputs that a kernel reads, and which bytes of each, None for all; `first`: its first argument that
    it writes; `runs`: for each tensor that it writes, what becomes of its bytes, in order.

    A kernel that reads an output, or stores where device memory says, runs whole, on bytes. Of any other one only the
    stores are followed, however large it is: what it writes depends on its inputs alone. (What a core loads of a
    workspace is what its block stored there: the mutants of the kernel itself are about that.)
    """

    def __init__(self, kernel: structure.KernelOp, machine: Machine):
        args = kernel.body.block.args[len(to_ints(kernel.grid)) :]
        types = [gm(a) for a in args]
        self.first = len(types) - integer(kernel.outputs) - integer(kernel.workspaces)
        indexed = any(isinstance(op, ops.IndexOp) for op in kernel.walk())
        read = [i for i, a in enumerate(args[: self.first]) if any(_users(a))]
        self.reads = {i: None if indexed else _seen(args[i]) for i in read}
        written = args[self.first :]
        outputs = written[: integer(kernel.outputs)]
        if indexed or any(_loaded(a) for a in outputs):
            self.runs = _observed(kernel, machine, types, self.first)
        else:
            self.runs = _stored(kernel, written)


def _seen(value: SSAValue) -> list[tuple[int, int]] | None:
    """The bytes of a tensor that loads of a kernel see, from and to; None where one of them may see all of it."""
    users = list(_users(value))
    loads = [op for op in users if isinstance(op, ops.LoadOp)]
    if len(loads) < len(users) or any(gm(op.source).shape == gm(value).shape for op in loads):
        return None
    width = itemsize(gm(value).element)
    kept = np.ones(gm(value).bytes // width, np.int8)
    for op in loads:
        _mark(kept, op)
    return [(start * width, stop * width) for start, stop, same, _ in _runs(kept) if not same]


def _loaded(value: SSAValue) -> bool:
    """Whether an instruction reads the tensor."""
    return any(
        isinstance(op, ops.LoadOp | ops.LoadIndirectOp) or (isinstance(op, ops.StoreOp) and op.accumulates())
        for op in _users(value)
    )


def _observed(
    kernel: structure.KernelOp, machine: Machine, types: Sequence[GmType], first: int
) -> list[list[Run]]:
    """The runs of what is written, from what becomes of random bytes."""
    places = list(itertools.accumulate((-(-t.bytes // ALIGN) * ALIGN + ALIGN for t in types), initial=0))
    written = [slice(at, at + t.bytes) for at, t in zip(places, types, strict=False)][first:]

    def run(start: np.ndarray) -> np.ndarray:
        arena = start.copy()
        Launch(kernel, machine, Device(arena), places[:-1]).in_order()
        return arena

    before = noise(places[-1], 1)
    after = run(before)
    states = [np.zeros(t.bytes, np.int64) for t in types[first:]]
    for j, here in enumerate(written):
        start = before.copy()
        start[here] = ~start[here]
        other = run(start)
        for state, there in zip(states, written, strict=True):
            state += (after[there] != other[there]).astype(np.int64) << j + 1
        states[j] += (after[here] == before[here]) & (other[here] == start[here])
    return [list(_runs(state)) for state in states]


def _runs(state: np.ndarray) -> Iterator[Run]:
    """Bit 0: a byte is kept; bit j + 1: it depends on what written tensor j held."""
    ends = [0, *(np.flatnonzero(np.diff(state)) + 1).tolist(), len(state)]
    for start, stop in itertools.pairwise(ends):
        if start < stop:
            bits = int(state[start])
            yield (
                start,
                stop,
                bool(bits & 1),
                tuple(j for j in range(bits.bit_length() - 1) if bits >> j + 1 & 1),
            )


def _stored(kernel: structure.KernelOp, written: Sequence[SSAValue]) -> list[list[Run]]:
    """The runs of what is written by kernels of which each byte is stored or kept, and depends on inputs only."""
    found = []
    for a in written:
        width = itemsize(gm(a).element)
        kept = np.ones(gm(a).bytes // width, np.int8)
        for op in _users(a):
            if isinstance(op, ops.TransferOp) and not isinstance(op, ops.LoadOp):
                _mark(kept, op)
        found.append([(start * width, stop * width, same, ()) for start, stop, same, _ in _runs(kept)])
    return found


def _users(value: SSAValue) -> Iterator[Operation]:
    """What uses a tensor, or a view of it."""
    for use in value.uses:
        if isinstance(use.operation, ops.ViewOp):
            yield from _users(use.operation.result)
        else:
            yield use.operation


def _ranges(op: Operation) -> dict[SSAValue, range]:
    """What the indices around an op run over: those of loops, units and the grid."""
    found: dict[SSAValue, range] = {}
    at = op.parent_op()
    while at is not None and not isinstance(at, structure.KernelOp):
        block = at.regions[0].block
        if isinstance(at, scf.ForOp):
            found[block.args[0]] = range(*(_constant(v) for v in (at.lb, at.ub, at.step)))
        elif isinstance(at, structure.SectionOp):
            found[block.args[0]] = range(integer(at.units))
        at = at.parent_op()
    assert at is not None
    return found | dict(zip(at.body.block.args, map(range, to_ints(at.grid)), strict=False))


def _constant(value: SSAValue) -> int:
    assert isinstance(value.owner, arith.ConstantOp)
    return integer(value.owner.value)


def _mark(kept: np.ndarray, op: ops.TransferOp) -> None:
    """Sets to 0 the elements that a transfer reads or writes, wherever it stands in its loops."""
    ranges, indices = _ranges(op), op.index_operands()
    used = list(dict.fromkeys(indices))
    grid = np.meshgrid(*(np.array(ranges[v]) for v in used), indexing="ij")
    places = dict(zip(used, (g.reshape(-1) for g in grid), strict=True))
    if any(not len(r) for r in ranges.values()):
        return
    rows = [start.evaluate(places) for start in op.linear()]
    count = max((len(p) for p in places.values()), default=1)
    offsets = np.unique(np.stack([np.broadcast_to(r, count) for r in rows], axis=1), axis=0) if rows else None
    view = op.view
    if offsets is None:
        kept[view.offset] = 0
        return
    some = max(1, MOST_AT_ONCE // max(size(op.box_sizes), 1))
    for first in range(0, len(offsets), some):
        part = offsets[first : first + some]
        at, inside = np.full(len(part), view.offset, np.int64), np.ones(len(part), bool)
        for d, (n, step, extent, stride) in enumerate(
            zip(op.box_sizes, op.box_steps, view.shape, view.strides, strict=True)
        ):
            p = part[:, d].reshape(-1, *[1] * (d + 1)) + np.arange(n) * step
            at = at[..., None] + p * stride
            inside = inside[..., None] & (p >= 0) & (p < extent)
        kept[at[inside]] = 0
