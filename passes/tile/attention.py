"""Attention in one kernel: tiles of scores go from the cube core to its vector cores and back as weights, the maximum
and the sum of each row are carried over the keys, and the result is corrected where a maximum grows.

for each tile of rows of this block of cores:                 load q                                    cube
  for each piece i of the keys:
    scores(i) = q k(i)           to a workspace                                                         cube
    part(i-2) = weights(i-2) v(i-2)  to a workspace                                                     cube
    x = f(scores(i)); m' = max(m, max(x)); weights(i) = exp(x - m'), to a workspace                     vector
    l = l exp(m - m') + sum(weights(i));  o = o correction(i-2) + part(i-2)                             vector
  parts of the last two pieces; result = o / l

The scores of one piece are made while the softmax of another one is computed: so the parts of the result are added two
pieces late, and those before the first one are zero. Milakov and Gimelshein, Online normalizer calculation for softmax,
2018; Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from xdsl.dialects.builtin import Float32Type, StringAttr
from xdsl.ir import Attribute, SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, ints, pack, to_ints
from ...dialects.graph import AttentionSchedule, TransposeOp
from ...dialects.graph.interface import shape_of
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.legality import MIXED
from ...dialects.npu.types import row_strides
from ...dialects.tile import TileType
from .attention_choice import AttentionChoice
from .attention_parts import ProductPart
from .bound import round_up
from .builder import KernelBuilder, dense, gm_of, hand_back, number
from .cube_schedule import CubePlan
from .schedule import may_repeat, share
from .scheduled import as_attention
from .steps import Emitter, Ref

F32 = Float32Type()
LOWEST = -3.4028234663852886e38
"""The least finite f32: what a maximum begins as, so that minus infinity less it is not NaN."""


class AttentionKernel(AttentionChoice):
    """Lowers attention on a chip whose cube and vector cores exchange tiles through device memory."""

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        s = as_attention(name, schedule)
        assert s.rows and s.keys and s.features and s.summed and s.grid
        self.s, self.count = s, self.pieces(s.keys)
        split = {a: share(self._tiles(a, s.rows), n) for a, n in zip(self.outer, s.grid, strict=True)}
        on_grid = [a for a in self.outer if may_repeat(split[a][0])]
        lead = [split[a][0] for a in on_grid]
        b = self.b = KernelBuilder(
            self.machine,
            "mix",
            lead,
            [gm_of(v) for v in self.fusion.body.block.args],
            [gm_of(v) for v in self._yielded],
            [
                dense([*lead, s.rows, s.keys], self.scored),
                dense([*lead, min(self.count, 2), s.rows, s.keys], self.weighed),
                dense([*lead, s.rows, self._wide], F32),
            ],
            {space: getattr(s, space) for space in ("l1", "l0a", "l0b", "l0c", "ub")},
        )
        b.location = self.fusion.location
        self.here = [Expr.of(b.coordinates[i]) for i in range(len(on_grid))]
        self._plan(s)
        with b.section(MIXED, self.units) as unit, ExitStack() as stack:
            self.unit = Expr.of(unit) * (s.rows // self.units)
            self.filled: dict[Ref, SSAValue] = {}
            position: dict[int, Expr] = {}
            for a in self.outer:
                length = s.rows if a == self.row else 1
                position[a] = (self.here[on_grid.index(a)] if a in on_grid else Expr()) * (
                    split[a][1] * length
                )
            self.emitter = Emitter(b, [self._extent(a) for a in self._chain_axes])
            for i, step in enumerate(self.chain.steps):
                if step.kind == "fill":
                    self.emitter.emit(i, step, self.filled)
            for a in self.outer:
                if may_repeat(split[a][1]):
                    index = stack.enter_context(b.loop(split[a][1]))
                    position[a] = position[a] + index * (s.rows if a == self.row else 1)
            self._rows(position)
        return b.finish(name)

    @property
    def _yielded(self) -> Sequence[SSAValue]:
        last = self.fusion.body.block.last_op
        assert last is not None
        return last.operands

    def _extent(self, axis: int) -> int:
        """Elements of a vector core's tile along an axis of the whole."""
        assert self.s.rows and self.s.keys
        if axis == self.row:
            return self.s.rows // self.units
        return self.s.keys if axis == self.keys else 1

    def _plan(self, s: AttentionSchedule) -> None:
        """How the products are cut."""
        assert s.rows and s.keys and s.features and s.summed

        def plan(part: ProductPart, columns: int, step: int) -> CubePlan:
            l0, load = [1] * len(part.extents), [1] * len(part.extents)
            l0[part.number[self.row]] = load[part.number[self.row]] = s.rows or 1
            for a in part.n_axes:
                l0[a] = load[a] = columns
            for a in part.k_axes:
                whole = part.extents[a] if part is self.scores else s.keys or 1
                l0[a] = min(step, round_up(whole)) if a == part.k_axes[-1] else whole
                load[a] = -(-whole // l0[a]) * l0[a]
            return CubePlan(tuple(l0), tuple(load), tuple(load), (), "m", {}, None)

        self.score_plan = plan(self.scores, s.keys, s.features)
        self.value_plan = plan(self.values, self._wide, s.summed)

    def _rows(self, position: dict[int, Expr]) -> None:
        """All keys for one tile of rows."""
        b, loaded = self.b, self._load_query(position)
        if self.count == 1:
            self._score(position, Expr(), loaded)
            softmax = _Softmax(self, position)
            weights, total = softmax.alone()
            self._hand_over(weights, Expr())
            self._sum(position, Expr(), Expr())
            self._finish(position, self._load_part(), total)
            return
        outer = self._begin()
        inner = list(outer)
        with b.loop(self.count // 2, inner) as pair:
            state = list(inner)
            with b.loop(2, state) as slot:
                at = pair * (2 * self._piece_keys) + slot * self._piece_keys
                self._score(position, at, loaded)
                self._sum(position, at - 2 * self._piece_keys, slot)
                softmax = _Softmax(self, {**position, self.keys: at})
                state[:] = softmax.step(state, slot)
            hand_back(inner, state)
        hand_back(outer, inner)
        _, total, last, correction, result = outer
        state = [correction, result]
        with b.loop(2, state) as slot:
            self._sum(position, slot * self._piece_keys + (self.count - 2) * self._piece_keys, slot)
            result = self._corrected(state[1], state[0])
            state[:] = [self.copied(last), result]
        self._finish(position, state[1], total)

    @property
    def _piece_keys(self) -> int:
        assert self.s.keys
        return self.s.keys

    # -- the cube core -----------------------------------------------------------------------------------------

    def _load_query(self, position: Mapping[int, Expr]) -> Sequence[SSAValue]:
        part = self.scores
        return part.left(self.b, self.score_plan, _named(part, position))

    def _score(self, position: Mapping[int, Expr], keys: Expr, query: Sequence[SSAValue]) -> None:
        """The scores of a piece of the keys, to their workspace."""
        part = self.scores
        where = _named(part, {**position, self.keys: keys})
        right = part.right(self.b, self.score_plan, where)
        self._drain(part.sums(self.b, self.score_plan, where, query, right), 0)

    def _sum(self, position: Mapping[int, Expr], keys: Expr, slot: Expr) -> None:
        """Weights by values of a piece of the keys, to their workspace."""
        part, b, s = self.values, self.b, self.s
        assert s.rows and s.keys
        where = _named(part, position) | dict.fromkeys(part.k_axes, keys)
        # before the weights, which the vector cores may still work on
        values = part.right(b, self.value_plan, where)
        kind = TileType.of([s.rows, s.keys], self.weighed, "l1")
        weights = b.load(b.workspace(1), self._place(slot=slot), self._box(1, s.rows, s.keys), kind)
        self._drain(part.sums(b, self.value_plan, where, [weights], values), 2)

    def _drain(self, sums: SSAValue, workspace: int) -> None:
        rows, columns = ops.tile_type(sums).shape
        self.b.store(sums, self.b.workspace(workspace), self._place(), self._box(rows, columns))

    def _place(self, row: Expr | None = None, slot: Expr | None = None) -> list[Expr]:
        """Where this block of cores has its tile of a workspace, that of `slot` where it has two."""
        return [*self.here, *([] if slot is None else [slot]), row or Expr(), Expr()]

    def _box(self, *extents: int) -> list[int]:
        return [*(1 for _ in self.here), *extents]

    # -- the vector cores --------------------------------------------------------------------------------------

    def tile(self, columns: int, element: Attribute) -> TileType:
        """The type of a vector core's tile with so many columns."""
        return TileType.of([*(self._extent(a) for a in self.outer), columns], element, "ub")

    def op(self, name: str, *operands: SSAValue, result: TileType | None = None) -> SSAValue:
        return self.b.add(ops.ELEMENTWISE[name], operands, [result or operands[0].type]).results[0]

    def copied(self, column: SSAValue) -> SSAValue:
        """The same numbers in a tile of their own, which a loop needs to carry them twice."""
        return self.op("max", column, column)

    def fill(self, value: float, kind: TileType) -> SSAValue:
        return self.b.add(ops.FillOp, [], [kind], value=number(value)).results[0]

    def spread(self, column: SSAValue, columns: int) -> SSAValue:
        """A column repeated over so many."""
        kind = self.tile(columns, ops.tile_type(column).element)
        return column if column.type == kind else self.b.add(ops.BroadcastOp, [column], [kind]).results[0]

    def cast(self, value: SSAValue, element: Attribute) -> SSAValue:
        kind = ops.tile_type(value)
        if kind.element == element:
            return value
        return self.op("convert", value, result=TileType.of(kind.shape, element, "ub"))

    def _load_scores(self, e: Emitter) -> SSAValue:
        kind = self.tile(self._piece_keys, self.scored)
        box = self._box(self._extent(self.row), self._piece_keys)
        return e.builder.load(e.builder.workspace(0), self._place(self.unit), box, kind)

    def _load_part(self) -> SSAValue:
        b = self.b
        box = self._box(self._extent(self.row), self._wide)
        return b.load(b.workspace(2), self._place(self.unit), box, self.tile(self._wide, F32))

    def _hand_over(self, weights: SSAValue, slot: Expr) -> None:
        box = self._box(1, self._extent(self.row), self._piece_keys)
        self.b.store(weights, self.b.workspace(1), self._place(self.unit, slot), box)

    def _begin(self) -> list[SSAValue]:
        """The state before the first piece (maximum, sum, the last two corrections, result), and weights of zero in the
        place of those before it."""
        nothing = self.fill(0.0, self.tile(self._piece_keys, self.weighed))
        with self.b.loop(2) as slot:
            self._hand_over(nothing, slot)
        column = self.tile(1, F32)
        states = [self.fill(value, column) for value in (LOWEST, 0.0, 1.0, 1.0)]
        return [*states, self.fill(0.0, self.tile(self._wide, F32))]

    def _corrected(self, result: SSAValue, correction: SSAValue) -> SSAValue:
        """The result with the part that is in its workspace."""
        scaled = self.op("mul", result, self.spread(correction, self._wide))
        return self.op("add", scaled, self._load_part())

    def _finish(self, position: Mapping[int, Expr], result: SSAValue, total: SSAValue) -> None:
        """Divides by the sums, and stores."""
        b = self.b
        out = self.cast(self.op("div", result, self.spread(total, self._wide)), self.result)
        axes = [*self.outer, self.feature]
        offsets = [*(position[a] + self.unit if a == self.row else position[a] for a in self.outer), Expr()]
        for i, value in enumerate(self._yielded):
            strides = self._out_strides(value)
            view = b.view(
                b.output(i), [self.extents.get(a, 1) for a in axes], [strides.get(a, 1) for a in axes]
            )
            b.store(out, view, offsets, [*(self._extent(a) for a in self.outer), self._wide])

    def _out_strides(self, value: SSAValue) -> dict[int, int]:
        """Elements between neighbours of a stored result along each axis."""
        strides = list(row_strides(shape_of(value)))
        while isinstance(value.owner, TransposeOp):
            inner = [0] * len(strides)
            for i, p in enumerate(to_ints(value.owner.perm)):
                inner[p] = strides[i]
            value, strides = value.owner.x, inner
        axes = self.at.axes[self.at.product.result]
        return {a: stride for a, stride in zip(axes, strides, strict=True) if a is not None}


def _named(part: ProductPart, position: Mapping[int, Expr]) -> dict[int, Expr]:
    """Positions along the axes of a part."""
    return {own: position[a] for a, own in part.number.items() if a in position}


class _Softmax:
    """The softmax of one tile of scores."""

    def __init__(self, kernel: AttentionKernel, position: Mapping[int, Expr]) -> None:
        self.k = k = kernel
        k.emitter.position = {i: position.get(a, Expr()) for i, a in enumerate(k._chain_axes)}
        rows = k._chain_axes.index(k.row)
        k.emitter.position[rows] = k.emitter.position[rows] + k.unit
        done = dict(k.filled)
        steps = k.chain.steps
        for i in steps.ordered(i for i, _ in enumerate(steps) if (i, 0) not in done):
            k.emitter.emit(i, steps[i], done)
        x = k.cast(done[k.chain.result], F32)
        keys = k._chain_axes.index(k.keys)
        if k.extents[k.keys] != k.count * k._piece_keys:
            indices, offsets = pack(
                [k.emitter.at(a) if a == keys else Expr() for a, _ in enumerate(k._chain_axes)]
            )
            bounds = [
                k.extents[k.keys] if a == keys else k._extent(axis) for a, axis in enumerate(k._chain_axes)
            ]
            x = k.b.add(
                ops.MaskOp,
                [x, *indices],
                [x.type],
                offsets=offsets,
                bounds=ints(bounds),
                value=number(float("-inf")),
            ).results[0]
        self.x = x

    def reduced(self, kind: str, x: SSAValue) -> SSAValue:
        k = self.k
        return k.b.add(
            ops.ReduceOp, [x], [k.tile(1, F32)], kind=StringAttr(kind), dims=ints([len(k._chain_axes) - 1])
        ).results[0]

    def exponentials(self, peak: SSAValue) -> SSAValue:
        k = self.k
        return k.op("exp", k.op("sub", self.x, k.spread(peak, k._piece_keys)))

    def alone(self) -> tuple[SSAValue, SSAValue]:
        """Weights and sums where there is one piece."""
        k = self.k
        peak = k.op(
            "max",
            self.reduced("max", self.x),
            k.fill(LOWEST, TileType.of([1] * len(k._chain_axes), F32, "ub")),
        )
        e = self.exponentials(peak)
        return k.cast(e, k.weighed), self.reduced("sum", e)

    def step(self, state: Sequence[SSAValue], slot: Expr) -> list[SSAValue]:
        """The state behind this piece. What it writes over is read before: a loop has one place for each tile."""
        k = self.k
        peak, total, last, correction, result = state
        here = self.reduced("max", self.x)
        now = k.op("max", peak, here)
        change = k.op("sub", peak, now)
        e = self.exponentials(now)
        k._hand_over(k.cast(e, k.weighed), slot)
        total = k.op("add", k.op("mul", total, k.op("exp", change)), self.reduced("sum", e))
        result = k._corrected(result, correction)
        correction = k.copied(last)
        return [k.op("max", peak, here), total, k.op("exp", change), correction, result]
