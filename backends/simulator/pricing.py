"""Busy cycles of the instructions of a section, with its share of the chip's bandwidth."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...dialects.npu import Cost
from ...machine import Machine
from .nodes import LOOP, WORK, Env, TimedInstruction, TimedNode
from .section import TimedLoop, TimedSection

Counts = Counter[tuple[int, int]]
"""How often a core runs each instruction: (number, variant) -> times."""

HBM, L2_CACHE = "HBM", "L2"


@dataclass(frozen=True)
class Sharing:
    """With whom an instruction shares the chip.

    cores: that are at work; missing: share of its bytes that crosses HBM; crowd: how far the way from a core alone
    (0) to all cores of the chip (1) is, where others read the same bytes; sharers: cores that read the same bytes at
    the same time; at_once: share of the cores that load over HBM at the same time; bypassing: whether L2 does not
    keep the bytes.
    """

    cores: int
    missing: float = 0.0
    crowd: float = 0.0
    sharers: float = 1.0
    at_once: float = 1.0
    bypassing: bool = False

    def parts(self, cost: Cost) -> tuple[float, float, float, float]:
        """(cycles of what misses, of what hits, bytes that miss, that hit) of an instruction that has HBM for itself.
        L2 gets lines while the instruction asks for the next ones; what it does not keep, each run waits for."""
        missed, hit = cost.bus_bytes * self.missing, cost.bus_bytes * (1 - self.missing)
        own_hit = cost.cycles * (1 - self.missing)
        if self.crowd:
            own_hit += self.crowd * max(0.0, hit / cost.shared_rate - own_hit)
        waiting = max(cost.cycles, cost.bypassed_cycles if self.bypassing else cost.missed_cycles)
        return waiting * self.missing, own_hit, missed, hit


class InstructionPrices:
    """What each instruction costs where `cores` cores share the bandwidth of the chip, and `beside` more that run other
    kernels.

    `missing` is, for each operand of the kernel, the share of its bytes that crosses HBM. An instruction spends
    that share of its time on misses, the rest on hits. Each part takes the longer of the instruction's own cycles
    for it, misses with what their bytes take more, and its bytes over the core's share of HBM or L2. Cores that
    read the same addresses at the same time wait for each other, and get them at a lower rate; requests for one line
    take turns. Where some operands miss and others do not, some cores get bytes of L2 while others load over HBM:
    `runs` says how often a core runs each instruction.
    """

    def __init__(
        self,
        section: TimedSection,
        cores: int,
        machine: Machine,
        missing: Sequence[float],
        beside: int = 0,
        runs: Counts | None = None,
        bypassing: frozenset[int] = frozenset(),
    ) -> None:
        """runs: where None, all cores load over HBM at the same time; bypassing: operands that L2 does not keep."""
        self.section = section
        self.busy: list[list[int]] = []
        self.limiter: list[list[str | None]] = []
        self.matrices: dict[Hashable, Any] = {}
        crowd = _crowd(cores, section.core, machine)
        sharing = [
            Sharing(
                (1 if machine.in_turn else cores) + beside,
                0.0 if work.operand is None else missing[work.operand],
                crowd if section.shares(work) else 0.0,
                section.sharers(work, cores),
                bypassing=work.operand in bypassing,
            )
            for work in section.works
        ]
        at_once = {} if runs is None else _at_once(section, runs, sharing, machine)
        for work, shared in zip(section.works, sharing, strict=True):
            shared = replace(shared, at_once=at_once.get(work.operand, 1.0))
            priced = [price(cost, shared, machine) for cost in work.variants]
            self.busy.append([cycles for cycles, _ in priced])
            self.limiter.append([limiter for _, limiter in priced])

    def pipes(self, counts: Counts) -> tuple[Counter[str], dict[str, Counter[str]]]:
        """Busy cycles by pipe, and those that a bandwidth sets, by pipe and HBM or L2."""
        busy: Counter[str] = Counter()
        limited: dict[str, Counter[str]] = {}
        for (number, variant), times in counts.items():
            pipe = self.section.works[number].op.PIPE
            cycles = self.busy[number][variant] * times
            busy[pipe] += cycles
            limiter = self.limiter[number][variant]
            if limiter is not None:
                limited.setdefault(pipe, Counter())[limiter] += cycles
        return busy, limited


def _crowd(cores: int, kind: str, machine: Machine) -> float:
    """How far the way from a core alone (0) to all cores of the chip (1) is: readers of one line that wait for each
    other."""
    most = machine.vector_cores if kind == "vector" else machine.cube_cores
    return min(1.0, (cores - 1) / (most - 1)) if most > 1 else 0.0


def _at_once(
    section: TimedSection, runs: Counts, sharing: Sequence[Sharing], machine: Machine
) -> dict[int | None, float]:
    """For each operand the share of the cores that load it over HBM at the same time, as the rest of them load other
    operands from L2 meanwhile. All begin at once, and drift apart over the loads that follow."""
    alone, hits, over_hbm = (defaultdict[int | None, float](float) for _ in range(3))
    loads: Counter[int | None] = Counter()
    for work, shared in zip(section.works, sharing, strict=True):
        for variant, cost in enumerate(work.variants):
            times = runs.get((work.number, variant), 0)
            if not times or not cost.bus_bytes or cost.write:
                continue
            own_missed, own_hit, missed, hit = shared.parts(cost)
            alone[work.operand] += times * own_missed
            hits[work.operand] += times * max(own_hit, hit * shared.cores / machine.l2_bytes_per_cycle)
            over_hbm[work.operand] += times * missed * shared.cores / machine.hbm_bytes_per_cycle / cost.hbm_share
            loads[work.operand] += times
    total, found = sum(hits.values()), {}
    for operand, cycles in over_hbm.items():
        if cycles > alone[operand]:
            apart = max(0.0, cycles - (total - hits[operand])) / cycles
            found[operand] = apart + (1 - apart) / loads[operand]
    return found


def price(cost: Cost, shared: Sharing, machine: Machine) -> tuple[int, str | None]:
    """(busy cycles, the bandwidth that sets most of them or None) of an instruction."""
    if not cost.bus_bytes:
        return cost.cycles, None
    if cost.write:  # L2 takes what is written; it drains to HBM on the side.
        shared = replace(shared, missing=0.0)
    alone, own_hit, missed, hit = shared.parts(cost)
    hbm = missed * shared.cores * shared.at_once / machine.hbm_bytes_per_cycle / cost.hbm_share
    l2 = hit * shared.cores / machine.l2_bytes_per_cycle
    cycles = max(max(alone, hbm) + max(own_hit, l2), shared.sharers * cost.turn)
    by_level = {HBM: hbm if hbm > alone else 0.0, L2_CACHE: l2 if l2 > own_hit else 0.0}
    limiter = max(by_level, key=lambda level: by_level[level])
    return math.ceil(cycles), limiter if by_level[limiter] * 2 > cycles else None


class Tally:
    """Counts what a section runs in an environment; with `extrapolate`, loops that are alike only once."""

    def __init__(self, section: TimedSection, extrapolate: bool) -> None:
        self.section, self.extrapolate = section, extrapolate
        self._loops: dict[Hashable, Counts] = {}

    def count(self, env: Env) -> Counts:
        """Times that each instruction and variant runs."""
        return self._nodes(self.section.body, env)

    def _nodes(self, nodes: Sequence[TimedNode], env: Env) -> Counts:
        total: Counts = Counter()
        for node in nodes:
            if node.kind == WORK:
                assert isinstance(node, TimedInstruction)
                total[node.number, node.variant(env)] += 1
            elif node.kind == LOOP:
                assert isinstance(node, TimedLoop)
                total.update(self._loop(node, env))
        return total

    def _loop(self, loop: TimedLoop, env: Env) -> Counts:
        first, trips = loop.extent(env)
        if not self.extrapolate:
            return self._trips(loop, env, first, [(0, trips, False)])
        key = (loop.number, loop.key(env))
        found = self._loops.get(key)
        if found is None:
            found = self._loops[key] = self._trips(loop, env, first, loop.runs(env, first, trips))
        return found

    def _trips(self, loop: TimedLoop, env: Env, first: int, runs: Sequence[tuple[int, int, bool]]) -> Counts:
        total: Counts = Counter()
        for start, count, steady in runs:
            for trip in range(start, start + (1 if steady else count)):
                env[loop.variable] = first + loop.step * trip
                times = count if steady else 1
                total.update({k: n * times for k, n in self._nodes(loop.body, env).items()})
        return total
