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

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute

from ....dialects.graph import AttentionSchedule
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.legality import MIXED
from ....kernels.builder import dense, may_repeat
from ....kernels.chain_cost import BEHIND
from ....kernels.emit_nest import Frame
from ....kernels.graph import OwnAxis
from ....kernels.nest import AxisStep, Nest, NestWriter
from ....kernels.product import round_up
from ....kernels.product_stages import LoadHanded, StoreSums
from ....kernels.stage import BoxDim, Extract, Given, Mask, Ref, StageLoadBox, Transpose
from ....kernels.writer import boxed
from ..cube.cube_schedule import CubePlan
from ..scheduled import as_attention
from .attention_costs import AttentionCosts
from .attention_parts import NestedProduct, ProductPart, ScoreStages, result_strides


class ChainKernel(AttentionCosts):
    """Lowers chained products on a chip whose cube and vector cores exchange tiles through device memory."""

    CORE = MIXED

    def frame(self, schedule: Schedule) -> Frame:
        """Its workspaces are those of scores, of weights, and of parts of the result."""
        s = as_attention("", schedule)
        assert s.rows and s.keys
        lead, own = [cores for cores, _ in self.split(s).values() if may_repeat(cores)], s.rows // self.units
        rooms, parts = self._rooms(s)
        workspaces = [
            *(dense([*lead, rooms, self.units, s.keys, own], e) for e in self.scored),
            dense([*lead, rooms, s.keys, s.rows], self.weighed),
            dense([*lead, parts, self.units, self.wide, own], f32),
        ]
        return self.framed("mix", s, workspaces)

    def _rooms(self, s: AttentionSchedule) -> tuple[int, int]:
        """Pieces of the keys that are in the workspaces at once, and parts of the result."""
        assert s.keys
        return 1 if self.pieces(s.keys) == 1 else BEHIND, 1

    def nest(self, schedule: Schedule) -> Nest:
        return ChainNest(self, as_attention("", schedule)).written()


class ChainNest:
    """A kernel of chained products on its way into a nest. Besides the axes of the whole there are those of its
    workspaces: where a core is (`here`), the room of a piece, the line of a tile by keys and by columns, the number of
    a vector core, its rows and all rows of a tile."""

    def __init__(self, kernel: ChainKernel, s: AttentionSchedule):
        assert s.rows and s.keys and s.scored and s.columns and s.features and s.summed and s.grid
        self.k, self.s, self.frame, self.count = kernel, s, kernel.frame(s), kernel.pieces(s.keys)
        k, own, w = kernel, s.rows // kernel.units, NestWriter(kernel.feature + 1, kernel.fusion.location)
        self.w, self.keys, self.rows, self.own_rows = w, s.keys, s.rows, own
        on_grid = [a for a, (cores, _) in k.split(s).items() if may_repeat(cores)]
        self.here: Mapping[int, int] = dict(
            zip(on_grid, w.own([OwnAxis("core", of=a, step=0) for a in on_grid]), strict=True)
        )
        self.room, self.line, self.column, self.unit, self.row_of_unit, self.row_of_tile = w.own(
            [
                OwnAxis("room of a piece", of=k.keys, step=0),
                OwnAxis("line of scores", s.keys, of=k.keys, step=0),
                OwnAxis("line of a part of the result", k.wide, of=k.feature, step=0),
                OwnAxis("vector core", of=k.row, step=0),
                OwnAxis("row of a vector core", own, of=k.row, step=0),
                OwnAxis("row of a tile", s.rows, of=k.row, step=0),
            ]
        )
        w.tile = {
            k.row: own,
            k.keys: s.keys,
            k.feature: k.wide,
            self.line: s.keys,
            self.column: k.wide,
            self.row_of_unit: own,
            self.row_of_tile: own,
        }
        self._plan()

    def _plan(self) -> None:
        """How the products are cut."""
        s, k = self.s, self.k
        assert s.rows and s.keys and s.scored and s.columns and s.features and s.summed
        keys = s.keys
        tile: dict[int, int] = {k.row: s.rows, k.keys: s.scored, k.feature: s.columns}
        wholes = {**tile, k.feature: k.wide}

        def plan(part: ProductPart, step: int) -> CubePlan:
            l0, load = [1] * len(part.extents), [1] * len(part.extents)
            for axis, a in part.number.items():
                l0[a], load[a] = tile.get(axis, 1), wholes.get(axis, 1)
            for a in part.k_axes:
                whole = keys if part is k.values else part.extents[a]
                l0[a] = min(step, round_up(whole)) if a == part.k_axes[-1] else whole
                load[a] = -(-whole // l0[a]) * l0[a]
            return CubePlan(tuple(l0), tuple(load), tuple(load), (), "m", {}, None)

        w = self.w
        self.scores = [NestedProduct(w, part, part.axes_in(w), plan(part, s.features)) for part in k.scores]
        self.values = NestedProduct(w, k.values, k.values.axes_in(w, k.keys), plan(k.values, s.summed))

    def written(self) -> Nest:
        """All of it."""
        k, w, s = self.k, self.w, self.s
        begins = [AxisStep(a, 0, at) for a, at in ((k.row, k.band.begin), (k.keys, k.band.first)) if at]
        with k.in_cores(w, s, self.here), w.turns(1, *begins):
            self.filled = {chain: self._filled(chain) for chain in k.chains}
            with k.in_loops(w, s):
                self._rows()
        return w.nest()

    def _filled(self, chain: ScoreStages) -> dict[Ref, Ref]:
        """The numbers that stages take, once for all tiles."""
        filled: dict[Ref, Ref] = {}
        for i, stage in enumerate(chain.stages):
            if stage.kind == "fill":
                self._take(chain, i, filled)
        return filled

    def _take(self, chain: ScoreStages, i: int, known: dict[Ref, Ref]) -> None:
        self.w.take_known(chain.stages, i, self.k.chain_axes, self.k.chain_tile(self.s), known)

    def taken(self, chain: ScoreStages, given: Ref | None = None) -> dict[Ref, Ref]:
        """All stages between the products, or behind the softmax, where the nest is. given: exponentials, of which the
        latter are."""
        done = dict(self.filled[chain])
        for i in chain.stages.ordered(i for i, _ in enumerate(chain.stages) if (i, 0) not in done):
            op = chain.stages[i].op
            if not isinstance(op, Given):
                self._take(chain, i, done)
            elif given is not None:
                done[i, 0] = given
            else:
                done[i, 0] = self._load_scores(chain.products[op.name])
        return done

    def _rows(self) -> None:
        """All keys for one tile of rows."""
        w, k, each, room = self.w, self.k, self.keys, self.room
        loaded = [product.load(1) for product in self.scores]
        if self.count == 1:
            self._score(loaded)
            with self._vector_cores():
                weights, statistics = self._alone()
                self._hand_over(weights)
            self._sum()
            with self._vector_cores():
                self._finish(self._load_part(), statistics)
            return
        self._zero_weights()
        state, apart = self._begin(), self.s.places == 2
        turns = self.count // 2 if apart else (self.count + BEHIND) // 2
        with (
            w.turns(turns, AxisStep(k.keys, 2 * each), state=state, steps=(2, 0)),
            w.turns(2, AxisStep(k.keys, each), AxisStep(room, 1), state=state, steps=(1, 0)),
        ):
            self._score(loaded)
            with w.turns(1, AxisStep(k.keys, 0, -BEHIND * each)):
                self._add_part(state)
            with self._vector_cores():
                state[:] = self._step(state)
        if apart:
            late = AxisStep(k.keys, each, (self.count - BEHIND) * each)
            with w.turns(BEHIND, late, AxisStep(room, 1), state=state, steps=(1, self.count)):
                self._add_part(state)
                state[:] = self._behind_scores(state)
        else:
            with w.turns(BEHIND, AxisStep(room, 1)):  # weights of what lies behind the last piece
                self._load_weights()
        self._end(state)

    def _vector_cores(self) -> AbstractContextManager[None]:
        """What is written inside each vector core does for its own rows."""
        own = self.own_rows
        along = AxisStep(self.k.row, own), AxisStep(self.unit, 1), AxisStep(self.row_of_tile, own)
        return self.w.turns(self.k.units, *along, by="units")

    # -- without a softmax -------------------------------------------------------------------------------------

    def _weights(self) -> Ref:
        """What the second product takes of one tile of scores."""
        k = self.k
        x = self.w.converted(self.taken(k.chain)[k.chain.result], k.weighed)
        return self.masked(x, 0.0) if k.is_masked(self.s) else x

    def _alone(self) -> tuple[Ref, Sequence[Ref]]:
        """Weights where there is one piece, and the maxima and sums of rows if the result is divided by the latter."""
        return self._weights(), ()

    def _step(self, state: Sequence[Ref]) -> list[Ref]:
        """Hands weights over; the state behind this piece."""
        self._hand_over(self._weights())
        return list(state)

    def _begin(self) -> list[Ref]:
        """The state before the first piece: the sums in l0c."""
        return [self.values.nothing()]

    def _add_part(self, state: list[Ref]) -> None:
        """Weights by values of a piece of the keys, onto the sums of those before."""
        values, weights = self._operands()
        state[0] = self.values.sums(values, weights, state[0])

    def _behind_scores(self, state: Sequence[Ref]) -> list[Ref]:
        """The state with the part of one of the last pieces, behind all scores."""
        return list(state)

    def _end(self, state: Sequence[Ref]) -> None:
        """The result of a state behind all pieces."""
        self._drain(state[0], self._of_parts, self.column, self.k.wide)
        with self._vector_cores():
            self._finish(self._load_part(), ())

    @property
    def _of_weights(self) -> int:
        """The workspace of weights, behind those of scores; `_of_parts`: of parts of the result."""
        return len(self.scores)

    @property
    def _of_parts(self) -> int:
        return self._of_weights + 1

    # -- the cube core -----------------------------------------------------------------------------------------

    def _score(self, queries: Sequence[Sequence[Ref]]) -> None:
        """The scores of a piece of the keys, of each first product to its workspace."""
        w, scored = self.w, self.s.scored
        assert scored
        for i, (product, query) in enumerate(zip(self.scores, queries, strict=True)):
            with w.turns(self.keys // scored, AxisStep(self.k.keys, scored), AxisStep(self.line, scored)):
                self._drain(product.sums(product.load(0), query), i, self.line, scored)

    def _sum(self) -> None:
        """Weights by values of a piece of the keys, to their workspace."""
        columns = self.s.columns
        assert columns
        values, weights = self._operands()
        with self.w.turns(self.k.wide // columns, AxisStep(self.k.feature, columns), AxisStep(self.column, columns)):
            self._drain(self.values.sums(values, weights), self._of_parts, self.column, columns)

    def _operands(self) -> tuple[list[Ref], list[Ref]]:
        """Loads values and weights of a piece of the keys: values first, as the vector cores may still work on the
        weights."""
        return self.values.load(0), [self._load_weights()]

    def _load_weights(self) -> Ref:
        with self.w.tiled({self.row_of_tile: self.rows}):
            box = self._box(self._of_weights, [self.line, self.row_of_tile])
            op = LoadHanded(self._input(self._of_weights), box, (self.line, self.row_of_tile))
            return self.w.put(op, [self.k.weighed], op.moves)

    def _drain(self, sums: Ref, workspace: int, along: int, lines: int) -> None:
        """Stores so many lines that the cube has summed up, the rows of each vector core side by side."""
        whole, each, units = self.frame.workspaces[workspace], self.own_rows, self.k.units
        *lead, _, all_lines, _ = whole.shape
        axes = [*self.here.values(), self.room, along, self.unit, self.row_of_unit]
        strides = [*whole.strides[: len(lead)], each, all_lines * each, 1]
        with self.w.tiled({along: lines, self.unit: units}):
            op = StoreSums(output=self._output(workspace), box=boxed([*lead, all_lines, units, each], strides, axes))
            self.w.put(op, [], op.moves, [sums])

    # -- workspaces --------------------------------------------------------------------------------------------

    def _output(self, workspace: int) -> int:
        """The number of a workspace among what is stored; `_input`: among all tensors."""
        return len(self.frame.outputs) + workspace

    def _input(self, workspace: int) -> int:
        return len(self.frame.inputs) + self._output(workspace)

    def _box(self, workspace: int, axes: Sequence[int]) -> tuple[BoxDim, ...]:
        """A workspace, walked along the cores, its rooms and these axes."""
        whole = self.frame.workspaces[workspace]
        return boxed(whole.shape, whole.strides, [*self.here.values(), self.room, *axes])

    # -- the vector cores --------------------------------------------------------------------------------------

    def shape(self, lines: int) -> tuple[int, ...]:
        """The axes of a vector core's tile that has its lines along this one, and a row of scores in each column."""
        return (*self.k.others, lines, self.k.row)

    def row_of(self, value: float) -> Ref:
        """A number for each row of scores."""
        return self.w.fill(value, f32, self.shape(self.k.keys), frozenset({self.k.row}))

    def masked(self, x: Ref, value: float) -> Ref:
        """A tile with a value in the place of keys behind the last one."""
        k, stage = self.k, self.w.graph[x[0]]
        op = Mask(((k.keys, k.whole[k.keys]),), value)
        return self.w.put(op, stage.elements, stage.axes, [x], stage.tile_axes)

    def _load_scores(self, i: int) -> Ref:
        return self._load_own(i, self.k.keys, self.line, self.k.scored[i])

    def _load_part(self) -> Ref:
        return self._load_own(self._of_parts, self.k.feature, self.column, f32)

    def _load_own(self, workspace: int, lines: int, along: int, element: Attribute) -> Ref:
        """This vector core's part of what the cube has summed up."""
        op = StageLoadBox(self._input(workspace), self._box(workspace, [self.unit, along, self.row_of_unit]))
        return self.w.put(op, [element], frozenset({lines, self.k.row}), (), self.shape(lines))

    def _hand_over(self, weights: Ref) -> None:
        """Stores weights from the line on where the nest is."""
        workspace = self._of_weights
        self.w.store(self._output(workspace), self._box(workspace, [self.line, self.row_of_tile]), weights)

    def _zero_weights(self) -> None:
        """Weights of zero in the place of those before the first piece."""
        k, w, few = self.k, self.w, self.k.zeros_stored(self.keys)
        with self._vector_cores(), w.tiled({k.keys: few, self.line: few}):
            nothing = w.fill(0.0, k.weighed, self.shape(k.keys), frozenset({k.keys, k.row}))
            with w.turns(BEHIND, AxisStep(self.room, 1)), w.turns(self.keys // few, AxisStep(self.line, few)):
                self._hand_over(nothing)

    def _store_statistics(self, statistics: Sequence[Ref]) -> None:
        """Stores what else is needed of each row: nothing."""

    def _finish(self, result: Ref, statistics: Sequence[Ref]) -> None:
        """Divides by the sums if there are some, turns rows of scores into rows, and stores: a part of the columns
        after the other, as each takes room until it is stored. statistics: the maximum and the sum of each row."""
        self._store_statistics(statistics)
        k, w, each, rank = self.k, self.w, self.k.columns_stored, len(self.k.others)
        lines, rows = self.shape(k.feature), (*k.others, k.row, k.feature)
        with w.turns(k.wide // each, AxisStep(k.feature, each)), w.tiled({k.feature: each}):
            part = result
            if each != k.wide:
                part = w.put(Extract((), moved=((rank, k.feature, 1),)), [f32], frozenset(lines), [result], lines)
            quotient = w.converted(w.apply("div", part, statistics[1]) if statistics else part, k.result)
            perm = (*range(rank), rank + 1, rank)
            out = w.put(Transpose(perm), [k.result], frozenset(rows), [quotient], rows)
            for i, value, base in k.results:
                if base is k.at.product.result:
                    strides = result_strides(k.at, value)
                    whole = [k.whole.get(a, 1) for a in rows]
                    w.store(i, boxed(whole, [strides.get(a, 1) for a in rows], rows), out)
