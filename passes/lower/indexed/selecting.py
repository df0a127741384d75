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
from xdsl.ir import Attribute, BlockArgument, SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr, describe, integer_attr, ints, pack, text, to_ints
from ....dialects.dtypes import dtype_name, element_type, itemsize, size
from ....dialects.elementwise import REDUCTION_FUNCTION, identity
from ....dialects.graph import FusionOp, SelectAndScatterOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import Pipe, padded_bytes, row_strides
from ....dialects.tile import TileType
from ....kernels.builder import KernelBuilder, dense, gm_of, number
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....machine import Machine
from ...forms.access import resolve
from ..boxes import BoxKernel, TilePlace
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


class _Operand:
    """What is loaded of an operand: a box of its dimensions, through the layout ops and the pad before it."""

    def __init__(self, b: KernelBuilder, fusion: FusionOp, value: SSAValue):
        shape = shape_of(value)
        self.b, self.element = b, element_of(value)
        load = resolve(
            value,
            [Expr.of(-1 - d) for d in range(len(shape))],
            {-1 - d: n for d, n in enumerate(shape)},
            lambda v: isinstance(v, BlockArgument),
        )
        self.fill, extents = load.fill, list(shape)
        strides, self.shifts = [0] * len(shape), [0] * len(shape)
        for index, n, step in zip(load.indices, load.shape, load.strides, strict=True):
            d = -1 - index.terms[0][0]
            extents[d], strides[d], self.shifts[d] = n, step, index.constant
        assert isinstance(load.base, BlockArgument)
        self.view = b.view(b.gm(load.base.index), extents, strides, load.offset)

    def box(self, at: Sequence[Expr], sizes: Sequence[int], fill: float | int) -> SSAValue:
        where = [p + shift for p, shift in zip(at, self.shifts, strict=True)]
        known = fill if self.fill is None else self.fill
        return self.b.load(self.view, where, sizes, TileType.of(sizes, self.element, "ub"), fill=known)


class _Tiles:
    """Ops on tiles in ub."""

    def __init__(self, b: KernelBuilder):
        self.b = b

    def apply(self, name: str, *tiles: SSAValue, element: Attribute | None = None) -> SSAValue:
        like = tiles[-1].type
        for t in tiles:
            assert isinstance(t.type, TileType) and isinstance(like, TileType)
            like = t.type if size(t.type.shape) > size(like.shape) else like
        assert isinstance(like, TileType) and isinstance(tiles[-1].type, TileType)
        out = TileType.of(like.shape, element or tiles[-1].type.element, "ub")
        return self.b.add(ops.ELEMENTWISE[name], tiles, [out]).results[0]

    def convert(self, tile: SSAValue, element: Attribute) -> SSAValue:
        assert isinstance(tile.type, TileType)
        return tile if tile.type.element == element else self.apply("convert", tile, element=element)

    def fill(self, value: float | int, shape: Sequence[int], element: Attribute) -> SSAValue:
        out = TileType.of(shape, element, "ub")
        return self.b.add(ops.FillOp, [], [out], value=number(value)).results[0]

    def extract(
        self, tile: SSAValue, at: Sequence[int], shape: Sequence[int], steps: Sequence[int]
    ) -> SSAValue:
        assert isinstance(tile.type, TileType)
        if not any(at) and tuple(shape) == tile.type.shape:
            return tile
        indices, rows = pack([Expr(p) for p in at])
        out = TileType.of(shape, tile.type.element, "ub")
        return self.b.add(
            ops.ExtractOp, [tile, *indices], [out], offsets=rows, sizes=ints(shape), steps=ints(steps)
        ).results[0]

    def exists(self, at: Expr, along: Along, d: int, shape: Sequence[int]) -> SSAValue:
        """Whether positions from `at` on, a stride apart along dimension d, are elements; i1 of `shape`."""
        row = [n if i == d else 1 for i, n in enumerate(shape)]
        indices, rows = pack([at])
        out = TileType.of(row, i32, "ub")
        place = self.b.add(
            ops.IotaOp, indices, [out], offsets=rows, dim=integer_attr(d), step=integer_attr(along.stride)
        ).results[0]
        one = [1] * len(shape)
        above = self.apply("ge", place, self.fill(0, one, i32), element=i1)
        below = self.apply("lt", place, self.fill(along.extent, one, i32), element=i1)
        inside = self.apply("and", above, below)
        full = TileType.of(shape, i1, "ub")
        return inside if inside.type == full else self.b.add(ops.BroadcastOp, [inside], [full]).results[0]


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

    def body(self, b: KernelBuilder, place: TilePlace) -> None:
        op, axes, tile, at = self.op, self.axes, place.tile, place.position
        t, x, source = _Tiles(b), _Operand(b, self.fusion, op.x), _Operand(b, self.fusion, op.source)
        windows = self._windows(tile)
        window_at = [p + (a.first - a.behind) for p, a in zip(at, axes, strict=True)]
        starts = [p * a.stride + -a.low for p, a in zip(window_at, axes, strict=True)]
        data = x.box(starts, [a.reach(n) for a, n in zip(axes, windows, strict=True)], 0)
        given = source.box(window_at, windows, identity(self.kind, self.dtype))
        chosen = _select(t, text(op.select), axes, t.convert(data, self.best), starts, windows)
        given = t.convert(given, self.total)
        neutral = t.fill(identity(self.kind, self.dtype), [1] * len(axes), self.total)
        results: list[tuple[SSAValue, SSAValue, list[Expr]]] = []
        for rest in itertools.product(*(range(a.stride) for a in axes)):
            places = [a.places(r) for a, r in zip(axes, rest, strict=True)]
            if any(count == 0 for _, count, _ in places):
                continue
            combine = REDUCTION_FUNCTION[self.kind]
            result = _gathered(t, combine, axes, rest, chosen, given, neutral, tile)
            rows = row_strides(shape_of(op.x))
            view = b.view(
                b.output(0),
                [count for _, count, _ in places],
                [s * a.stride for s, a in zip(rows, axes, strict=True)],
                sum(s * p for s, (p, _, _) in zip(rows, places, strict=True)),
            )
            where = [p + -q for p, (_, _, q) in zip(at, places, strict=True)]
            results.append((t.convert(result, self.element), view, where))
        # the last one first: who waits for it has waited for all, which takes one event
        for result, view, where in reversed(results):
            b.store(result, view, where, tile)


def _select(
    t: _Tiles,
    select: str,
    axes: Sequence[Along],
    data: SSAValue,
    starts: Sequence[Expr],
    windows: Sequence[int],
) -> SSAValue:
    """Which of its elements, in row order, each window selects; i32, -1 where all are in the border."""
    bordered = [d for d, a in enumerate(axes) if a.bordered]
    inside: dict[tuple[int, int], SSAValue] = {}
    for d in bordered:
        for k in range(axes[d].window):
            inside[d, k] = t.exists(starts[d] + k, axes[d], d, windows)
    one, steps = [1] * len(axes), [a.stride for a in axes]
    best: SSAValue | None = None
    place = t.fill(-1, windows, i32) if bordered else t.fill(0, windows, i32)
    none = t.fill(0, one, i32)
    for i, tap in enumerate(itertools.product(*(range(a.window) for a in axes))):
        new = t.extract(data, tap, windows, steps)
        exists: SSAValue | None = None
        for d in bordered:
            exists = inside[d, tap[d]] if exists is None else t.apply("and", exists, inside[d, tap[d]])
        if best is None:
            best = new
            if exists is not None:
                place = t.apply("select", exists, t.fill(0, one, i32), place)
            continue
        keep = t.apply(select, best, new, element=i1)
        if exists is not None:
            keep = t.apply("and", keep, t.apply("ge", place, none, element=i1))
            keep = t.apply("or", keep, t.apply("not", exists))
        best = t.apply("select", keep, best, new)
        place = t.apply("select", keep, place, t.fill(i, one, i32))
    return place


def _gathered(
    t: _Tiles,
    combine: str,
    axes: Sequence[Along],
    rest: Sequence[int],
    place: SSAValue,
    given: SSAValue,
    neutral: SSAValue,
    tile: Sequence[int],
) -> SSAValue:
    """What the windows that cover the elements at `rest` have for them."""
    result: SSAValue | None = None
    one = [1] * len(axes)
    for taps in itertools.product(*(a.taps(r) for a, r in zip(axes, rest, strict=True))):
        i = 0
        for a, (_, k) in zip(axes, taps, strict=True):
            i = i * a.window + k
        corner = [a.behind - m for a, (m, _) in zip(axes, taps, strict=True)]
        here = t.extract(place, corner, tile, one)
        hit = t.apply("eq", here, t.fill(i, one, i32), element=i1)
        part = t.apply("select", hit, t.extract(given, corner, tile, one), neutral)
        result = part if result is None else t.apply(combine, result, part)
    if result is None:
        assert isinstance(neutral.type, TileType)
        return t.b.add(ops.BroadcastOp, [neutral], [TileType.of(tile, neutral.type.element, "ub")]).results[0]
    return result
