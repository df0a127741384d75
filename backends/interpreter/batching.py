"""Runs independent iterations of a section at once, in typed mode.

XLA compiles a counter, a test and copies for every loop, and runs the small arrays of one tile on one thread. But
most loops of a section are independent: cores of the grid, and loops over tiles whose boxes lie side by side. Such
an index is batched: instead of a loop, every array gets a leading dimension for it (size 1 where a value does not
depend on it), loads cut the tensor into all tiles at once, and stores put them back together. Each element is
computed by the same operations in the same order as in a loop.

An index stays a loop in four cases: iterations carry values; stored boxes do not tile the tensor; the index moves an
operand of a small product (with more columns or rows XLA may add in another order, and both memory modes must give
the same bits); or the columns of all iterations would not fit the cache together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import jax
import numpy as np
from jax import Array, lax
from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from ...dialects.base import integer, to_ints
from ...dialects.dtypes import numpy_dtype
from ...dialects.npu import (
    GmType,
    LoadL0Op,
    LoadOp,
    LoadRowOp,
    LoadScalarOp,
    MmadOp,
    NumberIndexOp,
    StoreOp,
    TransferOp,
    VExtractOp,
    whole_buffer,
    whole_tensor,
)
from ...dialects.npu.handing import takes_turns
from ...dialects.npu.interface import NpuOp, buffer, gm
from ...dialects.npu.structure import KernelOp, SectionOp
from ..functions.loops import bounds
from ..functions.products import SAME_KERNEL_COLUMNS, SAME_KERNEL_PANEL, SAME_KERNEL_ROWS, SAME_KERNEL_TERMS
from ..functions.scope import Box, Offset, Scope, traced
from . import boxes
from .liveness import carried, perfect_nest
from .open_kernels import is_open_kernel
from .views import View
from .wide import Parts, Wide, apart, boxed, extents, grouped, leading, together

WIDE_BYTES = 1 << 20
"""Up to this size the sums of all tiles side by side are kept at once: they and the products that are added to them at
each step should stay in a core's cache (2 MB)."""

THREAD_BYTES = 1 << 18
"""The same for a group of cores that stays on one thread. The library cuts larger products up for its threads; where
these are busy with the other group, that takes longer than it saves (GPT-2 runs a tenth longer with 1 MB, and with
128 KB)."""


@dataclass(frozen=True)
class Batch:
    """The batched indices of a section, outermost first, with their counts; `starts`: first values other than 0;
    `moved`: the indices that each buffer's contents move with."""

    counts: Mapping[SSAValue, int]
    starts: Mapping[SSAValue, Offset] = field(default_factory=dict)
    moved: Mapping[SSAValue, set[SSAValue]] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        return len(self.counts)

    @property
    def sizes(self) -> list[int]:
        return list(self.counts.values())

    def position(self, index: SSAValue) -> int:
        return list(self.counts).index(index)

    def values(self, index: SSAValue) -> Array:
        """All values of an index, i32, with the batch's leading dimensions."""
        shape = [1] * self.rank
        shape[self.position(index)] = self.counts[index]
        steps = lax.reshape(lax.iota(np.int32, self.counts[index]), tuple(shape))
        return steps + traced(self.starts[index].value) if index in self.starts else steps

    def reach(self, index: SSAValue) -> int:
        """The highest value of an index."""
        start = self.starts.get(index)
        return self.counts[index] - 1 + (0 if start is None else start.high)

    def part(self, index: SSAValue, start: Offset, count: int) -> Batch:
        """The batch with `count` values of an index of it, from `start` on; without it if that is one."""
        if count == 1:
            return Batch({v: n for v, n in self.counts.items() if v is not index}, self.starts, self.moved)
        return Batch({**self.counts, index: count}, {**self.starts, index: start}, self.moved)


NO_BATCH = Batch({})


# -- which indices -----------------------------------------------------------------------------------------


def find_batches(kernel: KernelOp) -> dict[SectionOp, Batch]:
    """`find_batch` of all sections of a kernel. How many iterations one with open sizes has is not known; sections that
    accumulate to one tensor run core by core."""
    sections = [op for op in kernel.body.block.ops if isinstance(op, SectionOp)]
    if is_open_kernel(kernel) or accumulates_together(kernel):
        return dict.fromkeys(sections, NO_BATCH)
    if takes_turns(kernel):
        return _in_turns(kernel, sections)
    return {op: find_batch(kernel, op) for op in sections}


def _in_turns(kernel: KernelOp, sections: Sequence[SectionOp]) -> dict[SectionOp, Batch]:
    """The batches of sections that wait for each other: the same grid coordinates in both, and units."""
    found = {op: find_batch(kernel, op) for op in sections}
    shared = set(kernel.body.block.args)
    while True:
        before = len(shared)
        for batch in found.values():
            shared &= set(batch.counts)
        for op, batch in found.items():
            kept = {v: n for v, n in batch.counts.items() if v in shared or v is op.body.block.args[0]}
            found[op] = _fitting(list(op.body.walk()), kept, batch.moved, WIDE_BYTES)
        if len(shared) == before:
            return found


def find_batch(kernel: KernelOp, section: SectionOp) -> Batch:
    """The indices of a section that need no loop: grid coordinates, the unit, loop variables."""
    candidates: dict[SSAValue, int] = {}
    for arg, n in zip(kernel.body.block.args, to_ints(kernel.grid), strict=False):
        candidates[arg] = n
    units = integer(section.units)
    candidates[section.body.block.args[0]] = units
    inner = list(section.body.walk())
    cells = carried(list(section.body.block.ops), {}).cells
    nests = [perfect_nest(loop, {}) for loop, own in cells.items() if own and isinstance(loop, scf.ForOp)]
    carrying = {loop for nest in nests for loop in nest}
    for op in inner:
        if isinstance(op, scf.ForOp) and bounds(op)[1] == 1 and bounds(op)[0] == 0 and op not in carrying:
            candidates[op.body.block.args[0]] = bounds(op)[2]
    candidates = {v: n for v, n in candidates.items() if n > 1}
    moved = _dependencies(inner)
    for op in inner:
        for index in _refused(op, moved):
            candidates.pop(index, None)
    return _fitting(inner, candidates, moved, WIDE_BYTES)


def narrowed(batches: Mapping[SectionOp, Batch]) -> dict[SectionOp, Batch]:
    """The batches of a kernel, with as many indices as a group of cores on one thread should have."""
    return {
        op: _fitting(list(op.body.walk()), dict(batch.counts), batch.moved, THREAD_BYTES)
        for op, batch in batches.items()
    }


def _fitting(
    inner: Sequence[Operation],
    candidates: dict[SSAValue, int],
    moved: Mapping[SSAValue, set[SSAValue]],
    most: int,
) -> Batch:
    """Those of the candidates with which sums have at most so many bytes, and stored boxes lie side by side."""
    for op in inner:
        if isinstance(op, MmadOp):
            _narrow(op, moved, candidates, most)
    transfers = [op for op in inner if isinstance(op, TransferOp)]
    while not _stores_tile(transfers, candidates):
        candidates.popitem()
    return Batch(candidates, moved=moved)


def _dependencies(inner: Sequence[Operation]) -> dict[SSAValue, set[SSAValue]]:
    """For each buffer, the indices that its contents move with; `inner` are all ops of a section."""
    moved: dict[SSAValue, set[SSAValue]] = {}
    facts = [
        (set(op.index_operands()), list(map(whole_buffer, op.reads())), list(map(whole_buffer, op.writes())))
        for op in inner
        if isinstance(op, NpuOp)
    ]
    changed = True
    while changed:
        changed = False
        for indices, reads, writes in facts:
            found = indices.union(*(moved.get(v, ()) for v in reads))
            for v in writes:
                known = moved.setdefault(v, set())
                if not found <= known:
                    known |= found
                    changed = True
    return moved


def _refused(op: Operation, moved: Mapping[SSAValue, set[SSAValue]]) -> set[SSAValue]:
    """The indices that one instruction needs as loops; see `Batch`."""
    if isinstance(op, MmadOp):
        (rows, terms), (_, columns) = buffer(op.a).shape, buffer(op.b).shape
        counters = set(op.index_operands())
        if rows < SAME_KERNEL_ROWS or columns < SAME_KERNEL_COLUMNS or terms < SAME_KERNEL_TERMS:
            return moved.get(whole_buffer(op.a), set()) | moved.get(whole_buffer(op.b), set()) | counters
        return (
            counters if columns % SAME_KERNEL_PANEL == 0 else moved.get(whole_buffer(op.b), set()) | counters
        )
    if isinstance(op, NumberIndexOp):
        return moved.get(whole_buffer(op.source), set())
    if isinstance(op, LoadScalarOp | LoadL0Op | LoadRowOp | VExtractOp):
        return set(op.index_operands())
    if isinstance(op, TransferOp):
        if any(s < 1 for s in op.box_steps):
            return set(op.index_operands())
        # boxes along a diagonal
        moves = Counter(v for start in op.linear() for v in start.variables)
        return {v for v, n in moves.items() if n > 1} | _leaps(op)
    return set()


def _leaps(op: TransferOp) -> set[SSAValue]:
    """The indices with each of which a box goes further than its tensor is long: all that lies between would be taken,
    too, and nothing is there."""
    tensors = [v for v in op.main_operands() if isinstance(v.type, GmType)]
    return {
        index
        for tensor in tensors[:1]
        for start, extent in zip(op.linear(), gm(tensor).shape, strict=False)
        for index, by in start.terms
        if abs(by) > max(extent, 1)
    }


def _narrow(
    op: MmadOp, moved: Mapping[SSAValue, set[SSAValue]], candidates: dict[SSAValue, int], most: int
) -> None:
    """Drops candidates that move the right side of a product, outermost first, until its sums have at most so many
    bytes."""
    (acc,) = op.writes()
    right = moved.get(whole_buffer(op.b), set())
    all_moves = right | moved.get(whole_buffer(op.a), set())
    tile = prod(buffer(acc).shape) * numpy_dtype(buffer(acc).element).itemsize
    for index in [v for v in candidates if v in right]:
        if tile * prod(n for v, n in candidates.items() if v in all_moves) <= most:
            return
        del candidates[index]


def _stores_tile(transfers: Sequence[TransferOp], candidates: Mapping[SSAValue, int]) -> bool:
    """Whether all boxes that are stored lie side by side as the candidates move."""
    written: set[SSAValue] = set()
    for op in transfers:
        if not isinstance(op, LoadOp):
            if op.accumulates() and not _adds_in_order(op, transfers, candidates):
                return False
            if any(s != 1 for s in op.box_steps) and set(op.index_operands()) & set(candidates):
                return False
            written.add(whole_tensor(op.main_operands()[1]))
            rows = _batched_rows(op, candidates)
            for row, size in zip(rows, op.box_sizes, strict=True):
                reach = size
                for coefficient, count in sorted(row):
                    if coefficient != reach:
                        return False
                    reach *= count
            inside = {v for v in candidates if _encloses(v, op)}
            named = {v for v in candidates if v in op.index_operands()}
            if inside - named:
                return False
    loads = [op for op in transfers if isinstance(op, LoadOp)]
    return not any(whole_tensor(op.main_operands()[0]) in written for op in loads)


def _adds_in_order(
    op: TransferOp, transfers: Sequence[TransferOp], candidates: Mapping[SSAValue, int]
) -> bool:
    """Whether each element gets what is added to it in the same order as without candidates: from one store, and where
    they move along a dimension, from one value of them."""
    tensor = whole_tensor(op.main_operands()[1])
    others = [t for t in transfers if t is not op and whole_tensor(t.main_operands()[t.DEVICE_OPERAND]) is tensor]
    mixed = any(
        candidates.keys() & set(start.variables) and not candidates.keys() >= set(start.variables)
        for start in op.linear()
    )
    return not candidates or not (others or mixed)


def accumulates_together(kernel: KernelOp) -> bool:
    """Whether several sections accumulate to one tensor: what they add alternates from core to core."""
    found: dict[SSAValue, set[Operation | None]] = {}
    for section in kernel.sections():
        for op in section.body.walk():
            if isinstance(op, StoreOp) and op.accumulate is not None:
                found.setdefault(whole_tensor(op.main_operands()[1]), set()).add(section)
    return any(len(sections) > 1 for sections in found.values())


def _encloses(index: SSAValue, op: Operation) -> bool:
    """Whether `op` runs once for each value of `index`."""
    block = op.parent
    while block is not None:
        if index in block.args:
            return True
        parent = block.parent_op()
        block = parent.parent if parent is not None else None
    return False


def _batched_rows(op: TransferOp, counts: Mapping[SSAValue, int]) -> list[list[tuple[int, int]]]:
    """For each dimension, (coefficient, count) of the batched indices it moves with."""
    return [[(c, counts[v]) for v, c in start.terms if v in counts] for start in op.linear()]


# -- transfers -----------------------------------------------------------------------------------------------


def load(
    source: Array,
    view: View,
    box: Box,
    scope: Scope,
    batch: Batch,
    fill: np.ndarray,
    shape: Sequence[int],
) -> Array | Wide:
    """The tiles of all batched iterations: as one where they lie side by side, else [*leading, *shape]."""
    offsets, moves = _split_offsets(box, scope, batch)
    parts = side_by_side(moves, box.sizes) if batch.rank and 0 not in shape else None
    if parts is not None and all(s > 0 and (s == 1 or not m) for s, m in zip(box.steps, moves, strict=True)):
        tile = grouped(box.sizes, parts, shape)
        if tile is not None:
            spans, whole = extents(box.sizes, parts, batch.sizes), extents(shape, tile, batch.sizes)
            x = boxes.load(source, view, offsets, spans, box.steps, fill, whole)
            return Wide(x, tuple(shape), tile)
    sizes = box.sizes
    # along a dimension in which an index moves boxes to the front, it is counted from its last place, and the boxes are
    # turned around
    turned = [{index for c, index, _ in move if c < 0} for move in moves]
    offsets = [
        o.scaled(1, sum(c * (count - 1) for c, _, count in move if c < 0))
        for o, move in zip(offsets, moves, strict=True)
    ]
    moves = [[(abs(c), index, count) for c, index, count in move] for move in moves]
    backwards = [s < 0 for s in box.steps]
    steps = [abs(s) for s in box.steps]
    # what is walked backwards is taken from its other end and turned around: no batched index moves it
    offsets = [
        o.scaled(1, -(n - 1) * s) if back else o
        for o, n, s, back in zip(offsets, sizes, steps, backwards, strict=True)
    ]
    # what windows are cut from is taken with all that lies between its elements
    spans = [
        (n - 1) * s + 1 + sum((count - 1) * c for c, _, count in move) if move else n
        for n, s, move in zip(sizes, steps, moves, strict=True)
    ]
    strides = [1 if m else s for s, m in zip(steps, moves, strict=True)]
    x = boxes.load(source, view, offsets, spans, strides, fill, spans)
    order: list[int] = []
    seen: list[int] = []  # the shape of x once it is reshaped, with batched dimensions apart
    for d, (n, s, move, back) in enumerate(zip(sizes, steps, moves, backwards, strict=True)):
        rest = spans[d]
        for c, index, count in sorted(move, reverse=True):
            if rest != c * count:
                x = _windows(lax.reshape(x, (*seen, rest, *spans[d + 1 :])), len(seen), c, count)
                rest = x.shape[len(seen) + 1]
            else:
                rest = c
            seen.append(count)
            order.append(index)
            if index in turned[d]:
                x = lax.rev(lax.reshape(x, (*seen, rest, *spans[d + 1 :])), [len(seen) - 1])
        thin = bool(move) and s > 1
        if thin or back:
            x = lax.reshape(x, (*seen, rest, *spans[d + 1 :]))
            x = lax.slice_in_dim(x, 0, (n - 1) * s + 1, s, axis=len(seen)) if thin else x
            x = lax.rev(x, [len(seen)]) if back else x
        seen.append(n)
        order.append(batch.rank)
    return leading(x, seen, order, batch.rank, shape)


def side_by_side(moves: Sequence[Sequence[tuple[int, int, int]]], sizes: Sequence[int]) -> Parts | None:
    """The parts of boxes of `sizes` that batched indices move by these (coefficient, batch dimension, count)."""
    parts: list[tuple[int, ...]] = []
    named = [index for move in moves for _, index, _ in move]
    if len(named) != len(set(named)):
        return None
    for move, n in zip(moves, sizes, strict=True):
        reach = n
        for c, _, count in sorted(move):
            if c != reach:
                return None
            reach *= count
        parts.append(tuple(index for _, index, _ in sorted(move, reverse=True)))
    return tuple(parts)


def _windows(x: Array, d: int, distance: int, count: int) -> Array:
    """Dimension d becomes (count, rest): `count` windows of one size that begin `distance` apart. The last one
    ends where the dimension does; windows may overlap or leave gaps."""
    extent = x.shape[d]
    window = extent - (count - 1) * distance
    before, after = x.shape[:d], x.shape[d + 1 :]
    if window < distance:
        room = [(0, distance - window if i == d else 0, 0) for i in range(x.ndim)]
        x = lax.reshape(lax.pad(x, np.zeros((), x.dtype), room), (*before, count, distance, *after))
        return lax.slice_in_dim(x, 0, window, axis=d + 1)
    # Overlapping windows by index: XLA takes seconds to compile the same as slices side by side.
    index = np.arange(count, dtype=np.int32)[:, None] * distance + np.arange(window, dtype=np.int32)
    return lax.reshape(boxes.take(x, index.reshape(-1), d), (*before, count, window, *after))


def _split_offsets(
    box: Box, scope: Scope, batch: Batch
) -> tuple[list[Offset], list[list[tuple[int, int, int]]]]:
    """Offsets without the batched indices, and for each dimension (coefficient, batch dimension, count) of those."""
    # a batched index counts from its start, which `scope` has if it is not 0
    from_zero = batch.counts.keys() - batch.starts.keys()
    offsets, moves = [], []
    for start in box.starts:
        offsets.append(scope.evaluate(start.without(from_zero)))
        moves.append([(c, batch.position(v), batch.counts[v]) for v, c in start.terms if v in batch.counts])
    return offsets, moves


def store(dest: Array, view: View, tiles: Array | Wide, box: Box, scope: Scope, batch: Batch) -> Array:
    """`dest` with the boxes of all batched iterations replaced by `tiles` [*leading, *tile]."""
    offsets, moves = _split_offsets(box, scope, batch)
    sizes = box.sizes
    parts = side_by_side(moves, sizes)
    assert parts is not None  # `find_batch` has no others
    whole = boxed(tiles, sizes, parts, batch.sizes) if isinstance(tiles, Wide) else None
    if whole is None:
        tiles = apart(tiles, batch.sizes)
        tiles = lax.reshape(tiles, (*tiles.shape[: batch.rank], *sizes))
        whole = together(tiles, sizes, parts, batch.sizes).x
    return boxes.store(dest, view, whole, offsets, whole.shape, box.steps)


# -- instructions --------------------------------------------------------------------------------------------


def lift(rule: Callable[..., list[Array]], arrays: Sequence[Array], rank: int) -> list[Array]:
    """`rule` over the leading dimensions of its operands; one of size 1 in all of them stays so."""
    if rank == 0:
        return rule(*arrays)
    counts = [max((a.shape[d] for a in arrays), default=1) for d in range(rank)]
    operands = [lax.reshape(a, [*(n for n in a.shape[:rank] if n > 1), *a.shape[rank:]]) for a in arrays]
    over = rule
    for d in reversed(range(rank)):
        if counts[d] > 1:
            over = jax.vmap(over, in_axes=tuple(0 if a.shape[d] > 1 else None for a in arrays))
    inner = sum(n > 1 for n in counts)
    return [lax.reshape(x, (*counts, *x.shape[inner:])) for x in over(*operands)]
