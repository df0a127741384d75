"""Kernels for select-and-scatter, the gradient of pooling, without a scatter.

Positions of the border and x along a dimension are p = q * stride + r with r < stride. The windows that cover p start
at (q - m) * stride, for those m with r + m * stride inside a window. So a tile of q along each dimension needs the
windows from its first q less the largest m on: the kernel finds what each of them selects, then, for each r, adds up
what the few windows that cover it have for it, and stores that with steps of the stride.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import i1, i32
from xdsl.ir import BlockArgument, SSAValue

from ....dialects.base import Expr, describe, text, to_ints
from ....dialects.dtypes import dtype_name, element_type, itemsize, size
from ....dialects.elementwise import REDUCTION_FUNCTION, identity
from ....dialects.graph import FusionOp, SelectAndScatterOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import Pipe, padded_bytes, row_strides
from ....kernels.builder import dense, gm_of
from ....kernels.graph import OwnAxis
from ....kernels.stage import BoxDim, Extract, Iota, Ref, StageLoadBox
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....kernels.writer import StageWriter
from ....machine import Machine
from ...forms.access import resolve
from ..boxes import BoxKernel
from ..schedule import choose_tile


@dataclass(frozen=True)
class Along:
    """One dimension: `extent` elements, of which windows of `window` start every `stride` from -low on."""

    extent: int
    window: int
    stride: int
    low: int
    high: int

    @property
    def first(self) -> int:
        """The lowest q that an element has."""
        return self.low // self.stride

    @property
    def count(self) -> int:
        """How many q there are."""
        return (self.low + self.extent - 1) // self.stride - self.first + 1

    @property
    def behind(self) -> int:
        """The largest m: how many windows before that of q may cover it."""
        return -(-self.window // self.stride) - 1

    @property
    def bordered(self) -> bool:
        return self.low > 0 or self.high > 0

    def taps(self, r: int) -> Sequence[tuple[int, int]]:
        """(m, place in the window) for each window that covers r, in the order of the windows."""
        return [(m, k) for m in range(self.behind, -1, -1) if (k := r + m * self.stride) < self.window]

    def reach(self, windows: int) -> int:
        """How many positions neighbouring windows cover."""
        return (windows - 1) * self.stride + self.window

    def places(self, r: int) -> tuple[int, int, int]:
        """(first element, how many, their first q counted from `first`) of the elements at r."""
        q = max(self.first, -((r - self.low) // self.stride))
        start = q * self.stride + r - self.low
        return start, max(0, -(-(self.extent - start) // self.stride)), q - self.first


class SelectAndScatterKernel(BoxKernel):
    """A select_and_scatter kernel over the q of each dimension."""

    def __init__(self, op: SelectAndScatterOp, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion, machine, asked)
        self.op = op
        self.tensors = [gm_of(a) for a in fusion.body.block.args], [gm_of(op.result)]
        lists = (to_ints(p) for p in (op.window, op.strides, op.low, op.high))
        self.axes = [Along(*spec) for spec in zip(shape_of(op.x), *lists, strict=True)]
        self.domain = [a.count for a in self.axes]
        self.element, self.width = element_of(op.x), itemsize(element_of(op.x))
        self.kind, self.dtype = text(op.kind), dtype_name(self.element)
        unit = machine.vector
        self.best = element_type(unit.computes(text(op.select), self.dtype))
        self.total = element_type(unit.computes(REDUCTION_FUNCTION[self.kind], self.dtype))

    def _windows(self, tile: Sequence[int]) -> list[int]:
        """How many windows cover a tile along each dimension."""
        return [n + a.behind for n, a in zip(tile, self.axes, strict=True)]

    def ub_bytes(self, tile: Sequence[int]) -> int:
        """Buffers of both phases count as if they were alive together."""
        element, best, total, windows = self.element, self.best, self.total, self._windows(tile)
        data = [a.reach(n) for a, n in zip(self.axes, windows, strict=True)]
        need = self.slots * (padded_bytes(data, element) + padded_bytes(windows, element))
        need += padded_bytes(data, best) if best != element else 0
        need += padded_bytes(windows, total) if total != element else 0
        need += (
            4 * padded_bytes(windows, best) + 4 * padded_bytes(windows, i32) + 6 * padded_bytes(windows, i1)
        )
        need += 4 * padded_bytes(tile, total)
        return need + self.slots * size([a.stride for a in self.axes]) * padded_bytes(tile, element)

    def work(self, tile: Sequence[int]) -> VectorWork:
        """Copies of both operands and the result, and a comparison for each place of each window."""
        op, machine = self.op, self.machine
        whole = dense(shape_of(op.x), self.element)
        load, store = (copy_cycles(kind, whole, shape_of(op.x), machine) for kind in ("load", "store"))
        places = size(self._windows(self.domain)) * size([a.window for a in self.axes])
        compared = places * itemsize(self.best) / machine.vector.repeat_bytes
        return VectorWork({Pipe.MTE2: load, Pipe.V: compared, Pipe.MTE3: store})

    def too_large(self) -> str:
        window = list(to_ints(self.op.window))
        return f"{describe(self.op)}: a window of {window} does not fit ub of {self.machine.name}"

    def choose(self, cores: int) -> list[tuple[Sequence[int], int]]:
        tile = choose_tile(self.domain, self.whole, self.fits, self.width, cores)
        return [] if tile is None else [(tile, cores)]

    def write(self, w: StageWriter) -> None:
        op, axes, rank = self.op, self.axes, len(self.axes)
        counted = [(d, a, a.behind + 1, a.first - a.behind) for d, a in enumerate(axes)]
        windows = w.own([OwnAxis("windows", n, d, 1, at) for d, _, n, at in counted])
        reached = w.own(
            [OwnAxis("in windows", a.reach(n), d, a.stride, at * a.stride - a.low) for d, a, n, at in counted]
        )
        neutral, tile, total = identity(self.kind, self.dtype), range(rank), self.total
        data = w.load(_operand(op.x, reached, 0), self.element, reached)
        given = w.load(_operand(op.source, windows, neutral), self.element, windows)
        chosen = _select(w, text(op.select), axes, w.converted(data, self.best), windows)
        given = w.converted(given, total)
        nothing = w.fill(neutral, total, tile)
        results: list[tuple[Ref, list[BoxDim], int]] = []
        rows = row_strides(shape_of(op.x))
        for rest in itertools.product(*(range(a.stride) for a in axes)):
            places = [a.places(r) for a, r in zip(axes, rest, strict=True)]
            if any(count == 0 for _, count, _ in places):
                continue
            result = _gathered(w, REDUCTION_FUNCTION[self.kind], axes, rest, chosen, given, nothing)
            dims = enumerate(zip(places, rows, axes, strict=True))
            box = [BoxDim(n, s * a.stride, d, 1, -q) for d, ((_, n, q), s, a) in dims]
            behind = sum(s * p for s, (p, _, _) in zip(rows, places, strict=True))
            results.append((w.converted(result, self.element), box, behind))
        # the last one first: who waits for it has waited for all, which takes one event
        for result, box, behind in reversed(results):
            w.store(0, box, result, behind)


def _operand(value: SSAValue, axes: Sequence[int], fill: float | int) -> StageLoadBox:
    """What loads a box of an operand's dimensions along these axes, through the layout ops and the pad before it."""
    shape = shape_of(value)
    load = resolve(
        value,
        [Expr.of(-1 - d) for d in range(len(shape))],
        {-1 - d: n for d, n in enumerate(shape)},
        lambda v: isinstance(v, BlockArgument),
    )
    box = [BoxDim(n, 0, a) for n, a in zip(shape, axes, strict=True)]
    for index, n, step in zip(load.indices, load.shape, load.strides, strict=True):
        d = -1 - index.terms[0][0]
        box[d] = BoxDim(n, step, axes[d], 1, index.constant)
    assert isinstance(load.base, BlockArgument)
    return StageLoadBox(load.base.index, tuple(box), load.offset, fill if load.fill is None else load.fill)


def _exists(w: StageWriter, k: int, along: Along, axis: int, windows: Sequence[int]) -> Ref:
    """Whether place k of each window along an axis is an element; for all windows of a tile."""
    row = frozenset({axis})
    place = w.put(Iota(axis, along.stride, k - along.low), [i32], row, (), windows)
    above = w.apply("ge", place, w.fill(0, i32, windows), element=i1)
    below = w.apply("lt", place, w.fill(along.extent, i32, windows), element=i1)
    return w.spread(w.apply("and", above, below), windows)


def _select(w: StageWriter, select: str, axes: Sequence[Along], data: Ref, windows: Sequence[int]) -> Ref:
    """Which of its elements, in row order, each window selects; i32, -1 where all are in the border."""
    bordered = [d for d, a in enumerate(axes) if a.bordered]
    inside: dict[tuple[int, int], Ref] = {}
    for d in bordered:
        for k in range(axes[d].window):
            inside[d, k] = _exists(w, k, axes[d], windows[d], windows)
    best: Ref | None = None
    place = w.fill(-1 if bordered else 0, i32, windows, frozenset(windows))
    none = w.fill(0, i32, windows)
    for i, tap in enumerate(itertools.product(*(range(a.window) for a in axes))):
        taken = tuple((d, k, a.stride) for d, (k, a) in enumerate(zip(tap, axes, strict=True)))
        new = w.extract(Extract(taken), data, windows)
        exists: Ref | None = None
        for d in bordered:
            exists = inside[d, tap[d]] if exists is None else w.apply("and", exists, inside[d, tap[d]])
        if best is None:
            best = new
            if exists is not None:
                place = w.apply("select", exists, w.fill(0, i32, windows), place)
            continue
        keep = w.apply(select, best, new, element=i1)
        if exists is not None:
            keep = w.apply("and", keep, w.apply("ge", place, none, element=i1))
            keep = w.apply("or", keep, w.apply("not", exists))
        best = w.apply("select", keep, best, new)
        place = w.apply("select", keep, place, w.fill(i, i32, windows))
    return place


def _gathered(
    w: StageWriter,
    combine: str,
    axes: Sequence[Along],
    rest: Sequence[int],
    place: Ref,
    given: Ref,
    neutral: Ref,
) -> Ref:
    """What the windows that cover the elements at `rest` have for them."""
    result: Ref | None = None
    tile = range(len(axes))
    for taps in itertools.product(*(a.taps(r) for a, r in zip(axes, rest, strict=True))):
        i = 0
        for a, (_, k) in zip(axes, taps, strict=True):
            i = i * a.window + k
        corner = tuple((d, a.behind - m, 1) for d, (a, (m, _)) in enumerate(zip(axes, taps, strict=True)))
        here = w.extract(Extract(corner), place, tile)
        hit = w.apply("eq", here, w.fill(i, i32, tile), element=i1)
        part = w.apply("select", hit, w.extract(Extract(corner), given, tile), neutral)
        result = part if result is None else w.apply(combine, result, part)
    return w.spread(neutral, tile) if result is None else result
