"""Device memory within one launch: what the cores of the grid store, together and against each other.

The cores of a launch are unordered, so no two may store to one element, unless both accumulate by one kind, and none
may load what another stores. Only the cores of one grid point are ordered with each other, by cross-core flags:
clocks.py checks those.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import Attribute

from ....dialects.affine import Expr
from ....dialects.base import to_ints
from ....dialects.dtypes import size
from ....dialects.npu import GmType
from ....dialects.npu.structure import KernelOp
from .affine import TouchedBox, cover, ends, product_covers
from .finding import Finding
from .model import CheckedKernel, TensorAccess
from .parts import Part
from .strides import by_stride, core_variables

if TYPE_CHECKING:
    from .in_place import InPlace

MOST_ELEMENTS = 1 << 26
"""Element stores that are followed one by one where the boxes of a tensor do not fit a simple pattern."""
FEW_ELEMENTS = 1 << 22
"""Elements that are followed one by one to tell the parts of cores in one tensor apart."""
NOBODY, SEVERAL = -1, -2
"""Who stores an element, in place of the number of a core."""


@dataclass
class KernelSummary:
    """What a kernel does to its tensor arguments, by number. `types`: theirs. `parts`: which elements the cores store,
    for written tensors that they do not store whole."""

    kernel: CheckedKernel
    types: Sequence[Attribute]
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    needs: set[int] = field(default_factory=set)
    """Written tensors that are also read before: they must come with contents."""
    parts: dict[int, Part] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _seen: dict[int, Part] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def in_place(self) -> InPlace:
        """Which of its tensors may be one."""
        from .in_place import InPlace

        return InPlace(self.kernel)

    def seen(self, tensor: int) -> Part:
        """The elements of a tensor that the kernel may read: those of the views that it loads from, all where data say
        which."""
        if tensor not in self._seen:
            kind = self.types[tensor]
            assert isinstance(kind, GmType)
            loads = [t for t in self.kernel.transfers if t.tensor == tensor and t.reads]
            views = {t.view for t in loads} if all(t.box is not None for t in loads) else {kind}
            self._seen[tensor] = reduce(or_, [Part.shown(view, size(kind.shape)) for view in views])
        return self._seen[tensor]

    @property
    def read_and_written(self) -> frozenset[int]:
        """Tensors that the kernel both reads and writes."""
        return frozenset(self.reads & self.writes)

    @property
    def tracked(self) -> frozenset[int]:
        """The same, and those that it stores again on a pipe whose stores may overlap."""
        return self.read_and_written | stored_again(self.kernel)


def tensor_types(kernel: KernelOp) -> list[Attribute]:
    """The types of a kernel's tensor arguments."""
    return [a.type for a in kernel.body.block.args[len(to_ints(kernel.grid)) :]]


def stored_again(kernel: CheckedKernel) -> frozenset[int]:
    """Tensors of which a core may store an element more than once, on a pipe that may begin a store before those ahead
    of it are over."""
    stores: dict[int, list[TensorAccess]] = {}
    for transfer in kernel.transfers:
        if transfer.write and transfer.op.is_unordered(kernel.machine):
            stores.setdefault(transfer.tensor, []).append(transfer)
    return frozenset(t for t, some in stores.items() if len(some) > 1 or not _moves_on(some[0]))


def _moves_on(store: TensorAccess) -> bool:
    """Whether each loop around a store moves it past all that it stored before."""
    box = store.box
    return box is not None and all(
        any(
            abs(c) > (count - 1) * abs(step)
            for offset, count, step in zip(box.offsets, box.counts, box.steps, strict=True)
            for v, c in offset.terms
            if v == variable
        )
        for variable in store.loops
    )


def summarise(kernel: CheckedKernel) -> KernelSummary:
    """Checks the device memory of a kernel, all cores against each other."""
    found = KernelSummary(kernel, tensor_types(kernel.op))
    stores: dict[int, list[TensorAccess]] = {}
    loads: dict[int, list[TensorAccess]] = {}
    for transfer in kernel.transfers:
        (stores if transfer.write else loads).setdefault(transfer.tensor, []).append(transfer)
    found.reads = {t.tensor for t in kernel.transfers if t.reads}
    found.writes = set(stores)
    beyond = [t for t in kernel.transfers if not _inside(kernel, t)]
    if beyond:
        what = f"{{first}} uses {beyond[0].view}, which leaves its tensor"
        found.findings.append(Finding("bad-box", what, beyond[0].op, kernel=kernel.name))
        return found
    for tensor, writers in stores.items():
        if all(store.alike(writers[0]) for store in writers):
            # in any order, and only where something is: that this comes before, the clocks ask
            found.parts[tensor] = Part.of(np.zeros(0, np.int64), size(_shape(kernel, tensor)))
        # what a core stores of a workspace before it loads it, the clocks follow
        elif not (tensor in kernel.workspaces and _in_slabs(kernel, writers)) and not _regular(
            kernel, writers, tensor, found
        ):
            _exact(kernel, writers, tensor, found)
        for load in loads.get(tensor, ()):
            _own_part(kernel, load, writers, found)
            _stored(kernel, load, writers, found)
    return found


def _in_slabs(kernel: CheckedKernel, writers: Sequence[TensorAccess]) -> bool:
    """Whether each core stores to a part of its own: for each coordinate that tells cores apart there is a dimension in
    which all stores of one value lie within a step of it."""
    units = _most_units(kernel)
    apart = {v: units if v == kernel.unit else kernel.grid[v] for v in range(kernel.unit + 1)}
    if any(store.box is None or store.view != writers[0].view for store in writers):
        return False
    if any(store.section.units != units for store in writers):
        apart.pop(kernel.unit)
        if any(store.section.units > 1 for store in writers):
            return False
    kernel.counts[kernel.unit] = units
    return all(
        any(_steps_apart(kernel, writers, v, d) for d in range(len(writers[0].view.shape)))
        for v, count in apart.items()
        if count > 1
    )


def _steps_apart(kernel: CheckedKernel, writers: Sequence[TensorAccess], variable: int, d: int) -> bool:
    steps: set[int] = set()
    for store in writers:
        assert store.box is not None
        offset = store.box.offsets[d]
        step = offset.coefficient(variable)
        steps.add(step)
        low, high = _reach(kernel, offset.without({variable}), store.box.counts[d], store.box.steps[d])
        if low < 0 or high > step:
            return False
    return len(steps) == 1


def _inside(kernel: CheckedKernel, transfer: TensorAccess) -> bool:
    """Whether a view shows elements of its tensor only."""
    view = transfer.view
    reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
    if 0 in view.shape:
        return True
    low = view.offset + sum(min(r, 0) for r in reach)
    high = view.offset + sum(max(r, 0) for r in reach)
    return low >= 0 and high < size(_shape(kernel, transfer.tensor))


def _regular(
    kernel: CheckedKernel, writers: Sequence[TensorAccess], tensor: int, found: KernelSummary
) -> bool:
    """Handles stores whose boxes fill one part of a view each, every position once; False for others. What a section
    stores in several places is one box where these are the same: flags order what one core stores. Numbers that the
    kernel reads move what all cores store alike along a dimension: what else moves there must tell the parts of cores
    apart, or the other dimensions must; which part of the tensor it is stays unknown."""
    view = writers[0].view
    parts = []
    somewhere = False
    known: list[tuple[TouchedBox | None, GmType, int]] = []
    for store in writers:
        place = (store.box, store.view, store.section.number)
        if place in known:
            continue
        known.append(place)
        cores = core_variables(kernel, store)
        if store.view != view or store.box is None:
            return False
        moving = [v for offset in store.box.offsets for v, _ in offset.terms]
        if len(moving) != len(set(moving)) or not set(cores) <= set(moving):
            return False
        box = store.box
        part = []
        for offset, count, step, extent in zip(box.offsets, box.counts, box.steps, box.extent, strict=True):
            named = offset.without(kernel.unknown)
            if named.terms != offset.terms:
                somewhere = True
                reach = named.reach(kernel.counts)[1] + abs(step) * count
                if named.terms and not cover(named, count, step, reach, kernel.counts).once:
                    return False
                part.append((0, extent))
                continue
            along = cover(offset, count, step, extent, kernel.counts)
            if not (along.full and along.once):
                return False
            part.append((along.low, along.high))
        parts.append(tuple(part))
    for a, b in itertools.combinations(parts, 2):
        if all(x[0] < y[1] and y[0] < x[1] for x, y in zip(a, b, strict=True)):
            return False
    total = size(_shape(kernel, tensor))
    if somewhere:
        if len(parts) > 1 or not view.distinct:
            return False
        found.parts[tensor] = Part.of(np.zeros(0, np.int64), total)
        return True
    if product_covers(parts, view.shape) is None:
        shown = Part.shown(view, total)
        if not shown.whole:
            found.parts[tensor] = shown
        if shown.whole or view.distinct:
            return True
    if not view.distinct:
        return False
    stored = reduce(or_, [Part.shown(box_of(view, part), total) for part in parts])
    if not stored.whole:
        found.parts[tensor] = stored
    return True


def box_of(view: GmType, box: Sequence[tuple[int, int]]) -> GmType:
    """The view of a part of a view: from the first to before the second position along each dimension, of those that
    there are."""
    box = [(max(low, 0), max(min(high, n), low, 0)) for (low, high), n in zip(box, view.shape, strict=True)]
    offset = view.offset + sum(low * s for (low, _), s in zip(box, view.strides, strict=True))
    return GmType.of([high - low for low, high in box], view.element, view.strides, offset)


# -- one by one ----------------------------------------------------------------------------------------------


def _exact(kernel: CheckedKernel, writers: Sequence[TensorAccess], tensor: int, found: KernelSummary) -> None:
    """Follows the stores of all cores element by element."""
    shape = _shape(kernel, tensor)
    total = size(shape)
    work = sum(_work(kernel, s) for s in writers)
    if work > MOST_ELEMENTS:
        what = "{first} stores in a pattern that npu-check cannot follow"
        found.findings.append(Finding("core-race", what, writers[0].op, kernel=kernel.name))
        return
    # Of a large tensor only the elements that are stored have a place here.
    stored = None if total <= max(work, FEW_ELEMENTS) else _stored_elements(kernel, writers)
    owner = np.full(total if stored is None else len(stored), NOBODY, np.int32)
    alike = np.array([[a.alike(b) for b in writers] for a in writers])
    by = np.zeros(len(owner), np.int16)
    mixed = np.zeros(len(owner), np.bool_)  # what its core stores in more than one way
    whole = True
    for number, store in enumerate(writers):
        if store.box is None:
            whole = False
            continue
        unknown = kernel.unknown.keys() & {v for o in store.box.offsets for v, _ in o.terms}
        whole = whole and not unknown
        if unknown and kernel.op.scattered is not None:
            continue
        for core, env in enumerate(_cores(kernel, store)):
            # sections on one grid point are ordered by flags: only the point and the unit tell cores apart
            mark = core if store.section.units > 1 else core * _most_units(kernel)
            for flat in _elements(kernel, store, env):
                places = flat if stored is None else np.searchsorted(stored, flat)
                before = owner[places]
                other = (before != NOBODY) & (before != mark)
                differs = (before != NOBODY) & ~alike[number][by[places]]
                clash = other & (differs | mixed[places])
                if clash.any():
                    place = int(np.argmax(clash))
                    at, first = int(flat[place]), writers[int(by[places[place]])].op
                    where = tuple(int(i) for i in np.unravel_index(at, shape)) if shape else ()
                    what = f"{{first}} and {{second}} on two cores store element {list(where)} of one tensor"
                    if first is store.op:
                        what = f"{{first}} stores element {list(where)} of one tensor from two cores"
                    if unknown:
                        what += "; where no data sends them there, the launch or the kernel says `scattered`"
                    second = None if first is store.op else store.op
                    found.findings.append(Finding("core-race", what, first, second, kernel=kernel.name))
                    return
                owner[places] = np.where(other, SEVERAL, mark)
                by[places] = np.where(before == NOBODY, number, by[places])
                mixed[places] |= differs
    known = np.flatnonzero(owner != NOBODY) if stored is None else stored
    if not whole:
        found.parts[tensor] = Part.of(known[:0], total)
    elif len(known) < total:
        found.parts[tensor] = Part.of(known, total)


def _stored_elements(kernel: CheckedKernel, writers: Sequence[TensorAccess]) -> np.ndarray:
    """The flat elements that all cores store, in ascending order."""
    followed = [s for s in writers if s.box is not None]
    flats = [f for s in followed for env in _cores(kernel, s) for f in _elements(kernel, s, env)]
    return np.unique(np.concatenate(flats)) if flats else np.zeros(0, np.int64)


def _shape(kernel: CheckedKernel, tensor: int) -> tuple[int, ...]:
    kind = kernel.op.body.block.args[len(kernel.grid) + tensor].type
    assert isinstance(kind, GmType)
    return kind.shape


def _most_units(kernel: CheckedKernel) -> int:
    return max(s.units for s in kernel.sections)


def _work(kernel: CheckedKernel, store: TensorAccess) -> int:
    if store.box is None:
        return 0
    cores = math.prod(kernel.grid) * store.section.units
    return cores * math.prod(kernel.counts[v] for v in store.loops) * math.prod(store.box.counts)


def _cores(kernel: CheckedKernel, transfer: TensorAccess) -> Iterator[list[int]]:
    """The environment of each core, loops at 0."""
    for point in itertools.product(*map(range, kernel.grid)):
        for unit in range(transfer.section.units):
            yield [*point, unit, *[0] * (len(kernel.counts) - len(point) - 1)]


def _elements(kernel: CheckedKernel, transfer: TensorAccess, env: list[int]) -> Iterator[np.ndarray]:
    """Flat element numbers that a core stores, loop by loop where loops move several dimensions at once."""
    box, view = transfer.box, transfer.view
    assert box is not None
    uses = [v for o in box.offsets for v, _ in o.terms]
    mixed = [v for v in transfer.loops if uses.count(v) > 1]
    for values in itertools.product(*(range(kernel.counts[v]) for v in mixed)):
        for v, x in zip(mixed, values, strict=True):
            env[v] = x
        flat = np.full((1,), view.offset, np.int64)
        dims = zip(box.offsets, box.counts, box.steps, box.extent, view.strides, strict=True)
        for offset, count, step, extent, stride in dims:
            at = np.array([offset.evaluate(env)]) + np.arange(count) * step
            for v, c in offset.terms:
                if v in transfer.loops and v not in mixed:
                    at = (at[:, None] + np.arange(kernel.counts[v]) * c).reshape(-1)
            at = np.unique(at[(at >= 0) & (at < extent)])
            flat = (flat[:, None] + at * stride).reshape(-1)
        yield flat


# -- loads of what is stored ----------------------------------------------------------------------------------


def _own_part(
    kernel: CheckedKernel, load: TensorAccess, writers: Sequence[TensorAccess], found: KernelSummary
) -> None:
    """A load of a tensor that the launch stores must stay within what its own grid point stores."""
    for store in writers:
        if _apart(kernel, load, store):
            continue
        what = "{first} on one core may store what {second} on another loads"
        found.findings.append(Finding("core-race", what, store.op, load.op, kernel=kernel.name))
        return


def _stored(
    kernel: CheckedKernel, load: TensorAccess, writers: Sequence[TensorAccess], found: KernelSummary
) -> None:
    """A load of a workspace stays within what some core stores, where they do not store it whole."""
    part = found.parts.get(load.tensor)
    if part is None or load.tensor not in kernel.workspaces or load.box is None:
        return
    if _work(kernel, load) > MOST_ELEMENTS:
        return
    for env in _cores(kernel, load):
        for flat in _elements(kernel, load, env):
            if not part.has(flat):
                what = "{first} loads elements of a tensor that no core stores"
                found.findings.append(Finding("uninitialised", what, load.op, kernel=kernel.name))
                return


def _apart(kernel: CheckedKernel, load: TensorAccess, store: TensorAccess) -> bool:
    """Whether loads of one grid point never meet stores of another."""
    if math.prod(kernel.grid) == 1:
        return True
    if load.box is None or store.box is None:
        return False
    if not store.combines and _same_steps(kernel, load, store):
        return True
    boxes: list[list[tuple[tuple[int, int], ...]]] = []
    for transfer in (load, store):
        kernel.counts[kernel.unit] = transfer.section.units
        boxes.append([_hull(kernel, transfer, p) for p in itertools.product(*map(range, kernel.grid))])
    for (i, a), (j, b) in itertools.product(enumerate(boxes[0]), enumerate(boxes[1])):
        if i != j and all(x[0] < y[1] and y[0] < x[1] for x, y in zip(a, b, strict=True)):
            return _apart_exactly(kernel, load, store)
    return True


def _apart_exactly(kernel: CheckedKernel, load: TensorAccess, store: TensorAccess) -> bool:
    """The same, element by element; False where that is too much work or an offset is unknown."""
    assert load.box is not None and store.box is not None
    used = {v for box in (load.box, store.box) for o in box.offsets for v, _ in o.terms}
    if used & kernel.unknown.keys() or _work(kernel, load) + _work(kernel, store) > FEW_ELEMENTS:
        return False
    owner = np.full(size(_shape(kernel, store.tensor)), NOBODY, np.int32)
    for core, env in enumerate(_cores(kernel, store)):
        point = core // store.section.units
        for flat in _elements(kernel, store, env):
            owner[flat] = np.where(np.isin(owner[flat], (NOBODY, point)), point, SEVERAL)
    for core, env in enumerate(_cores(kernel, load)):
        for flat in _elements(kernel, load, env):
            if not np.isin(owner[flat], (NOBODY, core // load.section.units)).all():
                return False
    return True


def _same_steps(kernel: CheckedKernel, load: TensorAccess, store: TensorAccess) -> bool:
    """Whether load and store see the tensor alike but for the order of dimensions, move alike along the grid, and
    the load stays inside the store's part of a grid point (stores of two points do not meet: that is checked
    already)."""
    assert load.box is not None and store.box is not None
    orders = [by_stride(transfer.view) for transfer in (load, store)]
    seen = [
        [(t.view.shape[d], t.view.strides[d]) for d in order]
        for t, order in zip((load, store), orders, strict=True)
    ]
    if load.view.offset != store.view.offset or seen[0] != seen[1] or not store.view.distinct:
        return False
    grid = range(kernel.unit)
    for dims in zip(*orders, strict=True):
        inside, along = [], []
        for transfer, d in zip((load, store), dims, strict=True):
            kernel.counts[kernel.unit] = transfer.section.units
            assert transfer.box is not None
            offset = transfer.box.offsets[d]
            rest = offset.without(grid)
            inside.append(_reach(kernel, rest, transfer.box.counts[d], transfer.box.steps[d]))
            along.append(offset.only(grid))
        if along[0] != along[1] or inside[0][0] < inside[1][0] or inside[0][1] > inside[1][1]:
            return False
    return True


def _reach(kernel: CheckedKernel, offset: Expr[int], count: int, step: int) -> tuple[int, int]:
    key = offset, count, step, kernel.counts[kernel.unit]
    found = kernel.reaches.get(key)
    if found is None:
        low, high = offset.reach(kernel.counts)
        first, last = ends(0, count, step)
        found = kernel.reaches[key] = low + first, high + last
    return found


def _hull(kernel: CheckedKernel, transfer: TensorAccess, point: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The flat range of elements around all that one grid point touches, as a box of one dimension."""
    box, view = transfer.box, transfer.view
    assert box is not None
    low = high = view.offset
    at = dict(enumerate(point))
    for offset, count, step, extent, stride in zip(
        box.offsets, box.counts, box.steps, box.extent, view.strides, strict=True
    ):
        here = offset.substitute(at)
        first, last = _reach(kernel, here, count, step)
        first, last = max(first, 0), min(last, extent)
        if first >= last:
            return ((0, 0),)
        low += min(first * stride, (last - 1) * stride)
        high += max(first * stride, (last - 1) * stride)
    return ((low, high + 1),)
