"""Attention in one kernel: as chained products (chain.py), but the maximum and the sum of each row are carried over the
keys, and the result is corrected where a maximum grows.

for each tile of rows of this block of cores:                 load q                                    cube
  for each piece i of the keys, and the lines with i-2 for two that follow:
    scores(i) = q k(i)           to a workspace                                                         cube
    part(i-2) = weights(i-2) v(i-2)  to a workspace                                                     cube
    x = f(scores(i)); m' = max(m, max(x)); weights(i) = exp(x - m'), to a workspace                     vector
    s(i) = sum(weights(i));  c(i) = exp(m - m')                                                         vector
    l = l c(i-2) + s(i-2);  o = o c(i-2) + part(i-2)                                                    vector
  result = o / l

Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al., FlashAttention, 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr, ints
from ....dialects.graph.interface import element_of
from ....dialects.tile import TileType
from .attention_parts import result_strides
from .chain import F32, Between, ChainKernel, write_over

LOWEST = -3.4028234663852886e38
"""The least finite f32: what a maximum begins as, so that minus infinity less it is not NaN."""


class AttentionKernel(ChainKernel):
    """Lowers attention on a chip whose cube and vector cores exchange tiles through device memory."""

    @property
    def _part_rooms(self) -> int:
        return self._rooms

    def _between(self, position: Mapping[int, Expr], slot: Expr) -> Between:
        return _Softmax(self, position, slot)

    def _begin(self) -> list[SSAValue]:
        """The state before the first piece: maximum, sum, the last two corrections and sums of pieces, result."""
        row = self.tile(1, F32)
        states = [self.fill(value, row) for value in (LOWEST, 0.0, 1.0, 1.0, 0.0, 0.0)]
        return [*states, self.fill(0.0, self.tile(self.wide, F32))]

    def _add_part(
        self, state: list[SSAValue], position: Mapping[int, Expr], keys: Expr, slot: Expr, turn: Expr
    ) -> None:
        """Weights by values of a piece of the keys, to their workspace, from where the vector cores add them."""
        self._sum(position, keys, slot)

    def _behind_scores(self, state: Sequence[SSAValue], slot: Expr) -> list[SSAValue]:
        peak, total, last, correction, sums, due, result = state
        total, due = self.op("add", self.op("mul", total, correction), due), self.copied(sums)
        result = self._corrected(result, correction, slot)
        return [peak, total, last, self.copied(last), sums, due, result]

    def _end(self, position: Mapping[int, Expr], state: Sequence[SSAValue]) -> None:
        self._finish(position, state[-1], state[:2])

    def _store_statistics(self, position: Mapping[int, Expr], statistics: Sequence[SSAValue]) -> None:
        """Stores the maximum and the sum of each row, where something else needs them."""
        assert self.softmax is not None
        b, ones = self.b, [1 for _ in self.others]
        peak, total = statistics
        made: dict[SSAValue, SSAValue] = {self.softmax.peak.result: peak, self.softmax.total.result: total}
        axes = [*self.others, self.row]
        for i, value, base in self.statistics:
            strides = result_strides(self.at, value)
            *outer, rows = [self.whole.get(a, 1) for a in axes]
            *steps, step = [strides.get(a, 1) for a in axes]
            view = b.view(b.output(i), [*outer, 1, rows], [*steps, 1, step])
            at = [*(position[a] for a in self.others), Expr(), position[self.row] + self.unit]
            b.store(self.cast(made[base], element_of(base)), view, at, [*ones, 1, self._extent(self.row)])

    def copied(self, value: SSAValue) -> SSAValue:
        """The same numbers in a tile of their own, which a loop needs to carry them twice."""
        return self.op("max", value, value)

    def _corrected(self, result: SSAValue, correction: SSAValue, slot: Expr) -> SSAValue:
        """The result with the part that is in its workspace."""
        return self.op("add", write_over(self.op("mul", result, correction)), self._load_part(slot))


class _Softmax(Between):
    """The softmax of one tile of scores."""

    k: AttentionKernel

    def __init__(self, kernel: AttentionKernel, position: Mapping[int, Expr], slot: Expr) -> None:
        super().__init__(kernel, position, slot)
        k, done, steps = kernel, self.done, kernel.chain.stages
        if k.s.buffered == 1 and k.chain.over is not None and steps[k.chain.over[0]].kind != "load":
            write_over(done[k.chain.over])
        x = k.cast(done[k.chain.result], F32)
        self.x = self.masked(x, float("-inf")) if k.is_masked(k.s) else x

    def reduced(self, kind: str, x: SSAValue) -> SSAValue:
        k = self.k
        return k.b.add(
            ops.ReduceOp,
            [x],
            [k.tile(1, F32)],
            kind=StringAttr(kind),
            dims=ints([k._chain_axes.index(k.keys)]),
        ).results[0]

    def exponentials(self, peak: SSAValue) -> SSAValue:
        k = self.k
        difference = k.op("sub", self.x, peak)
        loaded = isinstance(self.x.owner, ops.LoadOp)
        if not loaded or k.s.buffered == 1:
            write_over(difference)
        return write_over(k.op("exp", difference))

    def weights(self, e: SSAValue) -> SSAValue:
        """What the second product takes, of exponentials that are not divided by their sum."""
        k = self.k
        assert k.softmax is not None and k.behind is not None
        k.given = k.cast(e, element_of(k.softmax.quotient.results[0]))
        weights = k.emitted(k.behind)[k.behind.result]
        # of what is behind the last key, it may make anything
        if k.is_masked(k.s) and k.behind.computes:
            weights = self.masked(weights, 0.0)
        return k.cast(weights, k.weighed)

    def alone(self) -> tuple[SSAValue, Sequence[SSAValue]]:
        k = self.k
        peak = k.op(
            "max",
            self.reduced("max", self.x),
            k.fill(LOWEST, TileType.of([1] * len(k._chain_axes), F32, "ub")),
        )
        e = self.exponentials(peak)
        return self.weights(e), (peak, self.reduced("sum", e))

    def step(self, state: Sequence[SSAValue], slot: Expr) -> list[SSAValue]:
        """The state behind this piece. What it writes over is read before: a loop has one place for each tile."""
        k = self.k
        peak, total, last, correction, sums, due, result = state
        here = self.reduced("max", self.x)
        now = k.op("max", peak, here)
        change = k.op("sub", peak, now)
        e = self.exponentials(now)
        k._hand_over(self.weights(e), slot, Expr())
        total, due = k.op("add", k.op("mul", total, correction), due), k.copied(sums)
        sums = self.reduced("sum", e)
        result = k._corrected(result, correction, slot)
        correction = k.copied(last)
        peak = k.op("max", peak, here)
        return [peak, total, k.op("exp", change), correction, sums, due, result]
