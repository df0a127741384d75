"""In which way a product takes least: on the cube or the vector cores, with whole sums, or with sums that are cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, isfinite, isinf
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from ...dialects.base import describe
from ...dialects.graph import CubeSchedule, FusionOp, VectorSchedule
from ...dialects.graph.schedules import Schedule, schedule_attr
from ...dialects.schedule_text import parse_schedule, schedule_text
from ..alternatives import SPLIT_K, STREAM_K, VECTOR_PRODUCTS
from ..decisions import Option
from ..errors import PassError, TooLarge
from ..forms.fingerprint import structure
from ..launch_groups import Together
from ..lower.cube.split import every_number_of_parts, parts_worth_trying, product_of, split_extents
from ..lower.cube.spreading import why_not_spread
from ..lower.cube.vector_product import vector_parts
from ..lower.scheduled import as_cube, cannot_obey
from ..order.launch_order import base
from ..pins import cores_pinned, pinned_for
from ..reasons import Reason, asked_reasons
from .epilogue_fusion import is_for_split_sums
from .launches import LaunchPlan
from .names import Memo
from .pareto import Chosen, best_of
from .stream import cut_fusion, cuts_worth_trying

if TYPE_CHECKING:
    from .choose import Scheduler

Kinds = tuple[type[CubeSchedule | VectorSchedule], ...]
"""Kinds of schedules that a product may have: which cores compute it."""

KINDS: Kinds = (CubeSchedule, VectorSchedule)

WITHIN_ERROR = 0.97
"""Sums that keep cores from being idle take less than so many times as long: more is within the error of the bound."""


class ProductWays:
    """Schedules products and convolutions for a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.machine = scheduler, scheduler.machine
        self.free: Memo[Chosen] = Memo()
        """The best schedules of products of which nothing is asked, split or not."""
        self.cut: Memo[Chosen] = Memo()
        """Those of their split sums."""

    @property
    def kinds(self) -> Kinds:
        """The kinds of schedules that are considered where none is asked for."""
        return KINDS if self.scheduler.may(VECTOR_PRODUCTS) else (CubeSchedule,)

    def best(self, fusion: FusionOp, plan: LaunchPlan, name: str, asked: Schedule | None) -> Chosen:
        """The best schedules of a contraction: of those for the cores that are asked for, or for either."""
        free = asked is None and cores_pinned(self.scheduler.pins, name)[0] is None
        asked = asked or self._pinned(fusion, plan, name)
        if not isinstance(asked, CubeSchedule | VectorSchedule):
            asked = as_cube(name, asked)
        if (fault := asked.fault()) is not None:
            raise cannot_obey(name, fault)
        if asked.parts is not None:
            return self._split(fusion, name, asked, asked.parts)
        if asked.chosen() or (self.scheduler.no_further_cuts and not is_for_split_sums(fusion)):
            return self.scheduler.whole(plan.kernel(name, asked), name, asked)
        kinds = self.kinds if free and self.scheduler.static_shapes else (type(asked),)
        if is_for_split_sums(fusion):
            return self.free_split(fusion, name, kinds)
        return self.free_best(fusion, plan, name, kinds)

    def _pinned(self, fusion: FusionOp, plan: LaunchPlan, name: str) -> CubeSchedule | VectorSchedule:
        """What is pinned of a contraction, for the cores that it is pinned to, or for the cube. Raises PassError."""
        cores, named = cores_pinned(self.scheduler.pins, name)
        choices: type[CubeSchedule | VectorSchedule] = CubeSchedule
        if cores == "vector" and (named or why_not_spread(fusion, self.machine) is None):
            choices = VectorSchedule
        asked = pinned_for(self.scheduler.pins, name, choices, plan.obeys_all, product=True)
        assert isinstance(asked, choices)
        return asked

    def free_best(self, fusion: FusionOp, plan: LaunchPlan, name: str, kinds: Kinds) -> Chosen:
        """The best schedules of a contraction of which nothing is asked but the cores it is on, whole or in parts."""
        key = plan.key, kinds
        known = self.free.find(key, plan.details)
        if known is not None:
            return known
        whole: list[Chosen] = []
        for kind in kinds:
            if kind is CubeSchedule or len(kinds) == 1 or why_not_spread(fusion, self.machine) is None:
                whole.append(self.scheduler.whole(plan.kernel(name, kind()), name, kind()))
        best = min(whole, key=lambda chosen: chosen.microseconds)
        # what is better on vector cores waits for HBM, and has cuts of its own
        tried = list(self._cut_where_idle(fusion, name, best)) if best.on_cube else []
        cut = [c for c in tried if c.microseconds < WITHIN_ERROR * best.microseconds]
        with suppress(TooLarge):
            split = self.free_split(fusion, name, kinds)
            cut += [replace(split, others=()), *split.others]
        judged = best.microseconds, min((c.microseconds for c in [*tried, *cut]), default=inf)
        found = self._decided(fusion, name, kinds, [*whole, *cut], tried)
        return self.free.keep(key, plan.details, replace(found, judged=judged))

    def _decided(
        self, fusion: FusionOp, name: str, kinds: Kinds, found: Sequence[Chosen], tried: Sequence[Chosen]
    ) -> Chosen:
        """The way that takes least alone, with others near it, or the one that is known to be better for a program.
        tried: cuts that do not save enough."""
        best, plans = best_of(found), self.scheduler.plans
        if plans is None or not plans.asked:
            return best
        ways = {_way(c): c for c in (*tried, *reversed(found)) if isfinite(c.microseconds)}
        product = product_of(fusion)

        def options() -> list[Option]:
            more = every_number_of_parts(product, self.machine) if plans.explores and product is not None else ()
            for asked in (kind(split_k=n) for kind in kinds for n in more):
                self._add(ways, fusion, name, asked)
            return [Option(way, chosen.microseconds) for way, chosen in ways.items()]

        said = plans.decided(SPLIT_K, [fusion], options, default := _way(best), "sums")
        if said not in ways:
            with suppress(ValueError):
                asked = parse_schedule(said)
                if isinstance(asked, kinds) and asked.parts is not None:
                    self._add(ways, fusion, name, asked)
        return best if said == default or said not in ways else replace(ways[said], others=())

    def _add(
        self, ways: dict[str, Chosen], fusion: FusionOp, name: str, asked: CubeSchedule | VectorSchedule
    ) -> None:
        """Judges a cut of a contraction's sums, where it is not judged yet and they can be cut so."""
        if (way := schedule_text(asked)) not in ways:
            with suppress(PassError):
                made = self._split(fusion, name, asked, asked.parts or 0)
                if isfinite(made.microseconds):
                    ways[way] = made

    def free_split(self, fusion: FusionOp, name: str, kinds: Kinds) -> Chosen:
        """The best schedules of a contraction of which nothing is asked but the cores it is on, its sums in parts.
        Raises TooLarge where there are none."""
        key, details = structure(fusion)
        known = self.cut.find((key, kinds), details)
        if known is not None:
            return known
        found: list[Chosen] = []
        for asked in self.splits(fusion):
            if isinstance(asked, kinds) and asked.parts is not None:
                with suppress(TooLarge):
                    found.append(self._split(fusion, name, asked, asked.parts))
        if not found:
            raise TooLarge(f"{describe(fusion)}: its sums are not cut")
        return self.cut.keep((key, kinds), details, best_of(found))

    def splits(self, fusion: FusionOp) -> list[CubeSchedule | VectorSchedule]:
        """The cuts of a contraction's sums that are worth judging."""
        product = product_of(fusion)
        if product is None or self.scheduler.no_further_cuts or not self.scheduler.may(SPLIT_K):
            return []
        return [
            *(CubeSchedule(split_k=n) for n in parts_worth_trying(product, self.machine)),
            *(VectorSchedule(split_k=n) for n in vector_parts(fusion, self.machine)),
        ]

    def _cut_where_idle(self, fusion: FusionOp, name: str, whole: Chosen) -> Iterator[Chosen]:
        """A contraction with its sums cut, or those of its last tiles, where cores are idle with `whole` sums."""
        product, schedule = product_of(fusion), whole.fronts[0].kept
        if self.scheduler.no_further_cuts or not self.scheduler.may(STREAM_K):
            return
        if product is None or not isinstance(schedule, CubeSchedule):
            return
        for asked in cuts_worth_trying(product, schedule, whole.microseconds, self.machine):
            with suppress(PassError):
                yield self._split(fusion, name, asked, asked.parts or 0)

    def may_split(self, fusion: FusionOp) -> bool:
        """Whether it is judged if vector cores should add up the parts of a contraction's sums."""
        product = None if self.scheduler.no_further_cuts else product_of(fusion)
        return is_for_split_sums(fusion) or (
            product is not None and bool(parts_worth_trying(product, self.machine))
        )

    def _split(self, fusion: FusionOp, name: str, asked: Schedule, parts: int) -> Chosen:
        """The schedules of a contraction whose sums are cut into parts. Raises TooLarge, and PassError where they
        cannot be."""
        whole = product_of(fusion)
        extents = [] if whole is None else split_extents(whole)
        if not extents:
            raise cannot_obey(name, f"split_k={parts}: its sums cannot be cut")
        if not 2 <= parts <= max(extents):
            raise cannot_obey(
                name, f"split_k={parts} is not between 2 and the {max(extents)} of k that there are"
            )
        block = cut_fusion(fusion, name, parts, asked.stream, self.machine)
        pieces = [op for op in block.ops if isinstance(op, FusionOp)]
        first = max((op for op in pieces if product_of(op) is not None), key=FusionOp.flops)
        if asked.whole().chosen() or isinstance(asked, VectorSchedule):
            first.schedule = schedule_attr([asked.whole()])
        found: list[Chosen] = []
        beside, free, product, many = Together[SSAValue](), set[int](), 0, 0
        for op in pieces:
            if op is first:
                product = many
            if beside.joined_by({base(v) for v in op.inputs}, set(op.results)):
                free.add(many)
            chosen = self.scheduler.inner.fusion(op)
            many += sum(len(each.fronts) for each in chosen)
            found += chosen
        fronts = tuple(front for chosen in found for front in chosen.fronts)
        outer = dict(zip(block.args, fusion.inputs, strict=True))
        for front in fronts:
            front.outer = {**outer, **front.outer}
        microseconds = self.scheduler.microseconds(found, free)
        return Chosen(fronts, microseconds, product, asked.cuts, frozenset(free))


def _way(chosen: Chosen) -> str:
    """What is asked of a contraction for it to be computed so: the cores, and the cut of its sums."""
    asked = CubeSchedule() if chosen.on_cube else VectorSchedule()
    return schedule_text(replace(asked, **dict(chosen.cuts)))


def say_cut(fusion: FusionOp, judged: tuple[float, float], taken: Chosen) -> None:
    """Notes why the sums of a product are cut as is `taken`, or not, where both were judged; nothing where nobody asks
    for reasons."""
    reasons, (whole, cut) = asked_reasons(), judged
    if reasons is None or isinf(whole) or isinf(cut):
        return
    if taken.cuts:
        how = ", ".join(f"{name}={value}" for name, value in taken.cuts)
        why = f"{how} takes {taken.microseconds:.1f} us alone, and whole sums {whole:.1f}"
        reasons.append(Reason("cut", (fusion,), why))
    else:
        why = f"whole sums take {whole:.1f} us alone, and sums in parts at least {cut:.1f}"
        reasons.append(Reason("not cut", (fusion,), why))
