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

from xdsl.ir import SSAValue

from ....dialects.graph import AttentionSchedule
from ....dialects.graph.interface import element_of
from ....dialects.graph.schedules import Schedule
from ....kernels.nest import Nest
from ....kernels.stage import BoxDim, Reduce, Ref, StageLoadBox
from ..scheduled import as_attention
from .attention_parts import result_strides
from .chain import ChainKernel, ChainNest, f32

LOWEST = -3.4028234663852886e38
"""The least finite f32: what a maximum begins as, so that minus infinity less it is not NaN."""


class AttentionKernel(ChainKernel):
    """Lowers attention on a chip whose cube and vector cores exchange tiles through device memory."""

    def _rooms(self, s: AttentionSchedule) -> tuple[int, int]:
        rooms, _ = super()._rooms(s)
        return rooms, rooms

    def nest(self, schedule: Schedule) -> Nest:
        return AttentionNest(self, as_attention("", schedule)).written()


class AttentionNest(ChainNest):
    """Attention on its way into a nest. Its state is the maximum of each row, the sum, the last two corrections, the
    last two sums of pieces, and the result."""

    def _begin(self) -> list[Ref]:
        k = self.k
        states = [self.row_of(value) for value in (LOWEST, 0.0, 1.0, 1.0, 0.0, 0.0)]
        return [*states, self.w.fill(0.0, f32, self.shape(k.feature), frozenset({k.feature, k.row}))]

    def _add_part(self, state: list[Ref]) -> None:
        """Weights by values of a piece of the keys, to their workspace, from where the vector cores add them."""
        self._sum()

    def _behind_scores(self, state: Sequence[Ref]) -> list[Ref]:
        peak, total, last, correction, sums, due, result = state
        with self._vector_cores():
            total, due = self._added(total, correction, due), self._copied(sums)
            result = self._corrected(result, correction)
            return [peak, total, last, self._copied(last), sums, due, result]

    def _end(self, state: Sequence[Ref]) -> None:
        with self._vector_cores():
            self._finish(state[-1], state[:2])

    def _store_statistics(self, statistics: Sequence[Ref]) -> None:
        """Stores the maximum and the sum of each row, where something else needs them."""
        k, w, softmax = self.k, self.w, self.k.softmax
        assert softmax is not None
        peak, total = statistics
        made: Mapping[SSAValue, Ref] = {softmax.peak.result: peak, softmax.total.result: total}
        for i, value, base in k.statistics:
            strides = result_strides(k.at, value)
            *outer, rows = [BoxDim(k.whole.get(a, 1), strides.get(a, 1), a) for a in (*k.others, k.row)]
            w.store(i, (*outer, BoxDim(1, 1, None), rows), w.converted(made[base], element_of(base)))

    # -- the softmax -------------------------------------------------------------------------------------------

    def _scored(self) -> Ref:
        """What the softmax is of, of one tile of scores."""
        k, w, done = self.k, self.w, self.taken(self.k.chain)
        if self.s.buffered == 1 and k.chain.over is not None and k.chain.stages[k.chain.over[0]].kind != "load":
            w.over(done[k.chain.over])
        x = w.converted(done[k.chain.result], f32)
        return self.masked(x, float("-inf")) if k.is_masked(self.s) else x

    def _reduced(self, kind: str, x: Ref) -> Ref:
        k = self.k
        return self.w.put(Reduce(kind, ((k.keys, self.keys),)), [f32], frozenset({k.row}), [x], self.shape(k.keys))

    def _exponentials(self, x: Ref, peak: Ref) -> Ref:
        w = self.w
        difference = w.apply("sub", x, peak)
        if not isinstance(w.graph[x[0]].op, StageLoadBox) or self.s.buffered == 1:
            w.over(difference)
        return w.over(w.apply("exp", difference))

    def _weights_of(self, e: Ref) -> Ref:
        """What the second product takes, of exponentials that are not divided by their sum."""
        k, w = self.k, self.w
        assert k.softmax is not None and k.behind is not None
        given = w.converted(e, element_of(k.softmax.quotient.results[0]))
        weights = self.taken(k.behind, given)[k.behind.result]
        # of what is behind the last key, it may make anything
        if k.is_masked(self.s) and k.behind.computes:
            weights = self.masked(weights, 0.0)
        return w.converted(weights, k.weighed)

    def _alone(self) -> tuple[Ref, Sequence[Ref]]:
        x, w = self._scored(), self.w
        least = self._reduced("max", x), w.fill(LOWEST, f32, self.shape(self.k.keys))
        peak = w.apply("max", *least)
        e = self._exponentials(x, peak)
        return self._weights_of(e), (peak, self._reduced("sum", e))

    def _step(self, state: Sequence[Ref]) -> list[Ref]:
        """The state behind this piece. What it writes over is read before: a loop has one place for each tile."""
        x, w = self._scored(), self.w
        peak, total, last, correction, sums, due, result = state
        here = self._reduced("max", x)
        now = w.apply("max", peak, here)
        change = w.apply("sub", peak, now)
        e = self._exponentials(x, now)
        self._hand_over(self._weights_of(e))
        total, due = self._added(total, correction, due), self._copied(sums)
        sums = self._reduced("sum", e)
        result = self._corrected(result, correction)
        correction = self._copied(last)
        peak = w.apply("max", peak, here)
        return [peak, total, w.apply("exp", change), correction, sums, due, result]

    def _added(self, total: Ref, correction: Ref, due: Ref) -> Ref:
        """The sum with that of a piece."""
        return self.w.apply("add", self.w.apply("mul", total, correction), due)

    def _copied(self, ref: Ref) -> Ref:
        """The same numbers in a tile of their own, which a loop needs to carry them twice."""
        return self.w.apply("max", ref, ref)

    def _corrected(self, result: Ref, correction: Ref) -> Ref:
        """The result with the part that is in its workspace."""
        w = self.w
        return w.apply("add", w.over(w.apply("mul", result, correction)), self._load_part())
