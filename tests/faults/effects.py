"""What a kernel does to its tensors, as a host program sees it: which bytes it writes, and what those depend on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from oracle import Device, Launch, noise
from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects import npu as ops
from tilewright.dialects.base import Linear, integer, to_ints
from tilewright.dialects.dtypes import itemsize
from tilewright.dialects.npu import GmType, gm, structure
from tilewright.machine import Machine

ALIGN = 512

Run = tuple[int, int, bool, tuple[int, ...]]
"""Bytes from, to; whether they stay as they were; the written tensors whose old contents they depend on."""


class Effect:
    """`reads`: the inputs that a kernel reads; `first`: its first argument that it writes; `runs`: for each tensor that
    it writes, what becomes of its bytes, in order.

    A kernel that loads an output, or stores where device memory says, runs whole, on bytes. Of any other one only the
    stores are followed, however large it is: what it writes depends on its inputs alone. (What a core loads of a
    workspace is what its block stored there: the mutants of the kernel itself are about that.)
    """

    def __init__(self, kernel: structure.KernelOp, machine: Machine):
        args = kernel.body.block.args[len(to_ints(kernel.grid)) :]
        types = [gm(a) for a in args]
        self.first = len(types) - integer(kernel.outputs) - integer(kernel.workspaces)
        self.reads = [i for i, a in enumerate(args[: self.first]) if _used(a)]
        written = args[self.first :]
        outputs = written[: integer(kernel.outputs)]
        indexed = any(isinstance(op, ops.LoadScalarOp) for op in kernel.walk())
        if indexed or any(_loaded(a) for a in outputs):
            self.runs = _observed(kernel, machine, types, self.first)
        else:
            self.runs = _stored(kernel, written)


def _used(value: SSAValue) -> bool:
    return any(not isinstance(u.operation, ops.ViewOp) or _used(u.operation.result) for u in value.uses)


def _loaded(value: SSAValue) -> bool:
    """Whether an instruction reads the tensor."""
    return any(
        _loaded(u.operation.result)
        if isinstance(u.operation, ops.ViewOp)
        else isinstance(u.operation, ops.LoadOp | ops.LoadIndirectOp)
        for u in value.uses
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
    tensors: dict[SSAValue, np.ndarray] = {
        a: np.zeros(gm(a).bytes // itemsize(gm(a).element), bool) for a in written
    }
    stores: dict[Operation, np.ndarray] = {}
    for a in written:
        for op in _stores(a):
            stores[op] = tensors[a]
    around = set(stores)
    for op in stores:
        parent = op.parent_op()
        while parent is not None and parent is not kernel:
            around.add(parent)
            parent = parent.parent_op()

    def walk(block: Block, env: dict[SSAValue, int]) -> None:
        for op in block.ops:
            if isinstance(op, arith.ConstantOp):
                env[op.result] = integer(op.value)
            elif op not in around:
                continue
            elif isinstance(op, scf.ForOp):
                for value in range(env[op.lb], env[op.ub], env[op.step]):
                    env[op.body.block.args[0]] = value
                    walk(op.body.block, env)
            elif isinstance(op, structure.SectionOp):
                for unit in range(integer(op.units)):
                    env[op.body.block.args[0]] = unit
                    walk(op.body.block, env)
            elif isinstance(op, ops.TransferOp):
                rows = Linear.decode(op.properties["offsets"], len(op.index_operands()))
                offsets = rows.evaluate([env[v] for v in op.index_operands()])
                _mark(stores[op], op, offsets)

    for point in itertools.product(*map(range, to_ints(kernel.grid))):
        walk(kernel.body.block, dict(zip(kernel.body.block.args, point, strict=False)))
    found = []
    for a in written:
        width = itemsize(gm(a).element)
        runs = _runs((~tensors[a]).astype(np.int64))
        found.append([(start * width, stop * width, kept, ()) for start, stop, kept, _ in runs])
    return found


def _stores(value: SSAValue) -> Iterator[ops.TransferOp]:
    for use in value.uses:
        if isinstance(use.operation, ops.ViewOp):
            yield from _stores(use.operation.result)
        elif isinstance(use.operation, ops.TransferOp) and not isinstance(use.operation, ops.LoadOp):
            yield use.operation


def _mark(stored: np.ndarray, op: ops.TransferOp, offsets: Sequence[int]) -> None:
    """Notes the elements that one store writes."""
    view = op.view
    at = np.full((), view.offset, np.int64)
    for offset, count, step, extent, stride in zip(
        offsets, op.box_sizes, op.box_steps, view.shape, view.strides, strict=True
    ):
        places = offset + np.arange(count) * step
        at = at[..., None] + places[(places >= 0) & (places < extent)] * stride
    stored[at.reshape(-1)] = True
