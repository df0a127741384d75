"""Chained products in one kernel: tiles of scores go from the cube core to its vector cores and back as weights, and
the sums of weights by values stay in l0c over all keys.

There may be two first products, whose tiles of scores f takes both.

for each tile of rows of this block of cores:                 load q                                    cube
  for each piece i of the keys, and the lines with i-2 for two that follow:
    scores(i) = q k(i)           to a workspace                                                         cube
    sums = sums + weights(i-2) v(i-2)                                                                   cube
    weights(i) = f(scores(i)), to a workspace                                                           vector
  result = sums

Tiles of scores have their rows along the last dimension: what each row has lies in one line of numbers, which
instructions take as it is for each line of a tile, and sums and maxima are those of whole lines.
The scores of one piece are made while f of another one is computed: so the parts of the result are added two pieces
late, those before the first one are zero, and the last two are added behind the loop, or in two turns more of it, whose
scores nobody uses (`places`). Attention carries more over the keys, and keeps its sums on the vector cores
(attention.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from xdsl.dialects.builtin import Float32Type, UnitAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.hints import isa

from ....dialects import tile as ops
from ....dialects.base import Expr, ints, pack
from ....dialects.graph import AttentionSchedule
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.legality import MIXED
from ....dialects.npu.types import GmType
from ....dialects.tile import TileType
from ....dialects.tile.vector import IN_PLACE
from ....kernels.builder import KernelBuilder, dense, gm_of, hand_back, may_repeat, number
from ....kernels.chain_cost import BEHIND
from ....kernels.emit import Emitter
from ....kernels.product import round_up
from ....kernels.stage import Ref, Stage
from ..cube.cube_schedule import CubePlan
from ..scheduled import as_attention
from .attention_costs import AttentionCosts
from .attention_parts import ProductPart, ScoreStages, result_strides

F32 = Float32Type()


class ChainKernel(AttentionCosts):
    """Lowers chained products on a chip whose cube and vector cores exchange tiles through device memory. `slot`: where
    in their workspaces the tiles are that are worked on."""

    slot: Expr

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        s = as_attention(name, schedule)
        assert s.rows and s.keys and s.scored and s.columns and s.features and s.summed and s.grid
        self.s, self.count = s, self.pieces(s.keys)
        lead = [cores for cores, _ in self._split(s).values() if may_repeat(cores)]
        b = self.b = KernelBuilder(
            self.machine,
            "mix",
            lead,
            [gm_of(v) for v in self.fusion.body.block.args],
            [gm_of(v) for v in self._yielded],
            [
                *(
                    dense([*lead, self._rooms, self.units, s.keys, s.rows // self.units], e)
                    for e in self.scored
                ),
                dense([*lead, self._rooms, s.keys, s.rows], self.weighed),
                dense([*lead, self._part_rooms, self.units, self.wide, s.rows // self.units], F32),
            ],
            {space: getattr(s, space) for space in ("l1", "l0a", "l0b", "l0c", "ub")},
        )
        b.location = self.fusion.location
        self.here = [Expr.of(b.coordinates[i]) for i in range(len(lead))]
        self._plan(s)
        with b.section(MIXED, self.units) as unit, ExitStack() as stack:
            self.number = Expr.of(unit)
            self.unit = self.number * (s.rows // self.units)
            position = self._of_core(self.here, s)
            position[self.row] = position[self.row] + self.band.begin
            self.emitter = Emitter(b, [self._extent(a) for a in self._chain_axes])
            self.filled = {chain: self._fill_of(chain) for chain in self.chains}
            self._loops(b, stack, position, s)
            self._rows(position)
        return b.finish(name)

    def _fill_of(self, chain: ScoreStages) -> dict[Ref, SSAValue]:
        """The numbers that steps take, once for all tiles."""
        filled: dict[Ref, SSAValue] = {}
        self.emitter.given = chain.given
        for i, step in enumerate(chain.stages):
            if step.kind == "fill":
                self.emitter.emit(i, step, filled)
        return filled

    def emitted(self, chain: ScoreStages) -> dict[Ref, SSAValue]:
        """The tiles of all steps, where the emitter is."""
        done = dict(self.filled[chain])
        self.emitter.given = chain.given
        for i in chain.stages.ordered(i for i, _ in enumerate(chain.stages) if (i, 0) not in done):
            self.emitter.emit(i, chain.stages[i], done)
        return done

    def _extent(self, axis: int) -> int:
        """Elements of a vector core's tile along an axis of the whole."""
        assert self.s.rows and self.s.keys
        if axis == self.row:
            return self.s.rows // self.units
        return self.s.keys if axis == self.keys else 1

    def _plan(self, s: AttentionSchedule) -> None:
        """How the products are cut."""
        assert s.rows and s.keys and s.scored and s.columns and s.features and s.summed
        keys = s.keys
        tile: dict[int, int] = {self.row: s.rows, self.keys: s.scored, self.feature: s.columns}
        wholes = {**tile, self.feature: self.wide}

        def plan(part: ProductPart, step: int) -> CubePlan:
            l0, load = [1] * len(part.extents), [1] * len(part.extents)
            for axis, a in part.number.items():
                l0[a], load[a] = tile.get(axis, 1), wholes.get(axis, 1)
            for a in part.k_axes:
                whole = keys if part is self.values else part.extents[a]
                l0[a] = min(step, round_up(whole)) if a == part.k_axes[-1] else whole
                load[a] = -(-whole // l0[a]) * l0[a]
            return CubePlan(tuple(l0), tuple(load), tuple(load), (), "m", {}, None)

        self.score_plans = [plan(part, s.features) for part in self.scores]
        self.value_plan = plan(self.values, s.summed)

    def _rows(self, position: dict[int, Expr]) -> None:
        """All keys for one tile of rows."""
        b, loaded, first = self.b, self._load_queries(position), Expr(self.band.first)
        if self.count == 1:
            self._score(position, first, Expr(), loaded)
            weights, statistics = self._between({**position, self.keys: first}, Expr()).alone()
            self._hand_over(weights, Expr(), Expr())
            self._sum(position, first, Expr())
            self._finish(position, self._load_part(Expr()), statistics)
            return
        self._zero_weights()
        outer, each, apart = self._begin(), self._piece_keys, self.s.places == 2
        inner = list(outer)
        with b.loop(self.count // 2 if apart else (self.count + BEHIND) // 2, inner) as pair:
            state = list(inner)
            with b.loop(2, state) as slot:
                turn = pair * 2 + slot
                self._score(position, first + turn * each, slot, loaded)
                self._add_part(state, position, first + (turn - BEHIND) * each, slot, turn)
                state[:] = self._between({**position, self.keys: first + turn * each}, slot).step(state, slot)
            hand_back(inner, state)
        hand_back(outer, inner)
        if apart:
            last = list(outer)
            with b.loop(BEHIND, last) as slot:
                turn = slot + self.count
                self._add_part(last, position, first + (turn - BEHIND) * each, slot, turn)
                last[:] = self._behind_scores(last, slot)
            hand_back(outer, last)
        else:
            with b.loop(BEHIND) as slot:  # weights of what lies behind the last piece
                self._load_weights(slot)
        self._end(position, outer)

    # -- without a softmax -------------------------------------------------------------------------------------

    @property
    def _rooms(self) -> int:
        """Pieces of the keys that are in the workspaces at once."""
        return 1 if self.count == 1 else BEHIND

    @property
    def _part_rooms(self) -> int:
        """Parts of the result that are in their workspace at once."""
        return 1

    def _between(self, position: Mapping[int, Expr], slot: Expr) -> Between:
        """What is between the products, of one tile of scores."""
        return Elementwise(self, position, slot)

    def _begin(self) -> list[SSAValue]:
        """The state before the first piece: the sums in l0c."""
        assert self.s.rows
        return [self.values.nothing(self.b, self.wide, self.s.rows)]

    def _add_part(
        self, state: list[SSAValue], position: Mapping[int, Expr], keys: Expr, slot: Expr, turn: Expr
    ) -> None:
        """Weights by values of a piece of the keys, onto the sums of those before."""
        state[0] = self._product(position, keys, slot, (state[0], turn))(Expr())

    def _behind_scores(self, state: Sequence[SSAValue], slot: Expr) -> list[SSAValue]:
        """The state with the part of one of the last pieces, behind all scores."""
        return list(state)

    def _end(self, position: Mapping[int, Expr], state: Sequence[SSAValue]) -> None:
        """The result of a state behind all pieces."""
        self._drain(state[0], self._of_parts, Expr(), Expr())
        self._finish(position, self._load_part(Expr()), ())

    @property
    def _of_weights(self) -> int:
        """The workspace of weights, behind those of scores; `_of_parts`: of parts of the result."""
        return len(self.scores)

    @property
    def _of_parts(self) -> int:
        return self._of_weights + 1

    @property
    def _piece_keys(self) -> int:
        assert self.s.keys
        return self.s.keys

    # -- the cube core -----------------------------------------------------------------------------------------

    def _load_queries(self, position: Mapping[int, Expr]) -> list[Sequence[SSAValue]]:
        """What each first product has of a tile of rows."""
        parts = zip(self.scores, self.score_plans, strict=True)
        return [part.right(self.b, plan, part.named(position)) for part, plan in parts]

    def _score(
        self, position: Mapping[int, Expr], keys: Expr, slot: Expr, queries: Sequence[Sequence[SSAValue]]
    ) -> None:
        """The scores of a piece of the keys, of each first product to its workspace."""
        b, scored = self.b, self.s.scored
        assert scored
        for i, (part, plan, query) in enumerate(zip(self.scores, self.score_plans, queries, strict=True)):
            with b.loop(self._piece_keys // scored) as index:
                where = part.named({**position, self.keys: keys + index * scored})
                sums = part.sums(b, plan, part.left(b, plan, where), query)
                self._drain(sums, i, slot, index * scored)

    def _sum(self, position: Mapping[int, Expr], keys: Expr, slot: Expr) -> None:
        """Weights by values of a piece of the keys, to their workspace."""
        product, columns = self._product(position, keys, slot), self.s.columns
        assert columns
        with self.b.loop(self.wide // columns) as index:
            self._drain(product(index * columns), self._of_parts, slot, index * columns)

    def _product(
        self, position: Mapping[int, Expr], keys: Expr, slot: Expr, onto: tuple[SSAValue, Expr] | None = None
    ) -> Callable[[Expr], SSAValue]:
        """Loads weights and values of a piece of the keys; what is given multiplies them, for columns from a place on.
        onto: sums to go on with, and the steps before."""
        part, b = self.values, self.b
        where = part.named(position) | dict.fromkeys(part.k_axes, keys)
        # before the weights, which the vector cores may still work on
        values = part.left(b, self.value_plan, where)
        weights = [self._load_weights(slot)]
        return lambda column: part.sums(b, self.value_plan, values, weights, {self.feature: column}, onto)

    def _load_weights(self, slot: Expr) -> SSAValue:
        b, s = self.b, self.s
        assert s.rows and s.keys
        kind = TileType.of([s.keys, s.rows], self.weighed, "l1")
        place = [*self.here, slot, Expr(), Expr()]
        return b.load(b.workspace(self._of_weights), place, self._box(1, s.keys, s.rows), kind)

    def _drain(self, sums: SSAValue, workspace: int, slot: Expr, line: Expr) -> None:
        """Stores what the cube has summed up from a line of a tile on, the rows of each vector core side by side."""
        lines, rows = ops.tile_type(sums).shape
        each = rows // self.units
        whole = self.b.workspace(workspace)
        assert isa(whole.type, GmType)
        outer, all_lines = len(self.here), whole.type.shape[-2]
        strides = [*whole.type.strides[: outer + 1], each, all_lines * each, 1]
        view = self.b.view(whole, [*whole.type.shape[: outer + 1], all_lines, self.units, each], strides)
        self.b.store(
            sums, view, [*self.here, slot, line, Expr(), Expr()], self._box(1, lines, self.units, each)
        )

    def _box(self, *extents: int) -> list[int]:
        return [*(1 for _ in self.here), *extents]

    # -- the vector cores --------------------------------------------------------------------------------------

    def tile(self, lines: int, element: Attribute) -> TileType:
        """The type of a vector core's tile with so many numbers for each row of scores, which is a column of it."""
        return TileType.of([*(1 for _ in self.others), lines, self._extent(self.row)], element, "ub")

    def op(self, name: str, *operands: SSAValue, result: TileType | None = None) -> SSAValue:
        return self.b.add(ops.ELEMENTWISE[name], operands, [result or operands[0].type]).results[0]

    def fill(self, value: float, kind: TileType) -> SSAValue:
        return self.b.add(ops.FillOp, [], [kind], value=number(value)).results[0]

    def cast(self, value: SSAValue, element: Attribute) -> SSAValue:
        kind = ops.tile_type(value)
        if kind.element == element:
            return value
        return self.op("convert", value, result=TileType.of(kind.shape, element, "ub"))

    def _load_scores(self, i: int, e: Emitter, stage: Stage) -> SSAValue:
        return self._load_own(i, self.slot, self._piece_keys, self.scored[i])

    def _load_part(self, slot: Expr) -> SSAValue:
        return self._load_own(self._of_parts, slot, self.wide, F32)

    def _load_own(self, workspace: int, slot: Expr, lines: int, element: Attribute) -> SSAValue:
        """This vector core's part of what the cube has summed up."""
        b = self.b
        box = self._box(1, 1, lines, self._extent(self.row))
        at = [*self.here, slot, self.number, Expr(), Expr()]
        return b.load(b.workspace(workspace), at, box, self.tile(lines, element))

    def _hand_over(self, weights: SSAValue, slot: Expr, line: Expr) -> None:
        """Stores weights from a line of a tile on."""
        box = self._box(1, *ops.tile_type(weights).shape[-2:])
        self.b.store(weights, self.b.workspace(self._of_weights), [*self.here, slot, line, self.unit], box)

    def _zero_weights(self) -> None:
        """Weights of zero in the place of those before the first piece."""
        few = self.zeros_stored(self._piece_keys)
        nothing = self.fill(0.0, self.tile(few, self.weighed))
        with self.b.loop(BEHIND) as slot, self.b.loop(self._piece_keys // few) as index:
            self._hand_over(nothing, slot, index * few)

    def _store_statistics(self, position: Mapping[int, Expr], statistics: Sequence[SSAValue]) -> None:
        """Stores what else is needed of each row: nothing."""

    def _finish(self, position: Mapping[int, Expr], result: SSAValue, statistics: Sequence[SSAValue]) -> None:
        """Divides by the sums if there are some, turns rows of scores into rows, and stores: a part of the columns
        after the other, as each takes room until it is stored. statistics: the maximum and the sum of each row."""
        self._store_statistics(position, statistics)
        total = statistics[1] if statistics else None
        b, rank, each = self.b, len(self.others), self.columns_stored
        ones = [1 for _ in self.others]
        with b.loop(self.wide // each) as index:
            indices, offsets = pack([*(Expr() for _ in ones), index * each, Expr()])
            kind = self.tile(each, F32)
            part = result
            if kind != result.type:
                part = b.add(
                    ops.ExtractOp,
                    [result, *indices],
                    [kind],
                    offsets=offsets,
                    sizes=ints(kind.shape),
                    steps=ints([1] * (rank + 2)),
                ).results[0]
            quotient = self.cast(part if total is None else self.op("div", part, total), self.result)
            transposed = TileType.of([*ones, self._extent(self.row), each], self.result, "ub")
            perm = ints([*range(rank), rank + 1, rank])
            out = b.add(ops.TransposeOp, [quotient], [transposed], perm=perm).results[0]
            axes = [*self.others, self.row, self.feature]
            at = [*(position[a] for a in self.others), position[self.row] + self.unit, index * each]
            for i, value, base in self.results:
                if base is not self.at.product.result:
                    continue
                strides = result_strides(self.at, value)
                view = b.view(
                    b.output(i), [self.whole.get(a, 1) for a in axes], [strides.get(a, 1) for a in axes]
                )
                b.store(out, view, at, [*ones, self._extent(self.row), each])


def write_over(value: SSAValue) -> SSAValue:
    """Marks what an elementwise op gives as taking the place of its first operand."""
    assert isinstance(value.owner, ops.ElementwiseTileOp)
    value.owner.attributes[IN_PLACE] = UnitAttr()
    return value


class Between(ABC):
    """What is between the products, of one tile of scores."""

    def __init__(self, kernel: ChainKernel, position: Mapping[int, Expr], slot: Expr) -> None:
        self.k = k = kernel
        k.slot = slot
        k.emitter.position = {i: position.get(a, Expr()) for i, a in enumerate(k._chain_axes)}
        rows = k._chain_axes.index(k.row)
        k.emitter.position[rows] = k.emitter.position[rows] + k.unit
        self.done = k.emitted(k.chain)

    def masked(self, x: SSAValue, value: float) -> SSAValue:
        """A tile with a value in the place of keys behind the last one."""
        k = self.k
        at = [k.emitter.at(i) if a == k.keys else Expr() for i, a in enumerate(k._chain_axes)]
        indices, offsets = pack(at)
        bounds = [k.whole[a] if a == k.keys else k._extent(a) for a in k._chain_axes]
        return k.b.add(
            ops.MaskOp, [x, *indices], [x.type], offsets=offsets, bounds=ints(bounds), value=number(value)
        ).results[0]

    @abstractmethod
    def alone(self) -> tuple[SSAValue, Sequence[SSAValue]]:
        """Weights where there is one piece, and the maxima and sums of rows if the result is divided by the latter."""

    @abstractmethod
    def step(self, state: Sequence[SSAValue], slot: Expr) -> list[SSAValue]:
        """Hands the weights over; the state behind this piece."""


class Elementwise(Between):
    """What is computed element by element."""

    def weights(self) -> SSAValue:
        """What the second product takes."""
        k = self.k
        x = k.cast(self.done[k.chain.result], k.weighed)
        return self.masked(x, 0.0) if k.is_masked(k.s) else x

    def alone(self) -> tuple[SSAValue, Sequence[SSAValue]]:
        return self.weights(), ()

    def step(self, state: Sequence[SSAValue], slot: Expr) -> list[SSAValue]:
        self.k._hand_over(self.weights(), slot, Expr())
        return list(state)
