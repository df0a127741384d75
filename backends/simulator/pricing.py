"""Busy cycles of the instructions of a section, with its share of the chip's bandwidth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from ...dialects.npu import Cost
from ...machine import Machine
from .nodes import LOOP, WORK, Env, TimedInstruction, TimedNode
from .section import TimedLoop, TimedSection

Counts = Counter[tuple[int, int]]
"""How often a core runs each instruction: (number, variant) -> times."""

HBM, L2_CACHE = "HBM", "L2"


class Price:
    """What each instruction costs where `cores` cores share the bandwidth of the chip evenly, and `beside` more that
    run other kernels.

    `missing` is, for each operand of the kernel, the share of its bytes that crosses HBM. An instruction spends
    that share of its time on misses, the rest on hits. Each part takes the longer of the instruction's own cycles
    for it, misses with what their bytes take more, and its bytes over the core's share of HBM or L2. Cores that
    read the same addresses at the same time wait for each other, and get them at a lower rate.
    """

    def __init__(
        self,
        section: TimedSection,
        cores: int,
        machine: Machine,
        missing: Sequence[float],
        beside: int = 0,
    ) -> None:
        self.section = section
        self.busy: list[list[int]] = []
        self.limiter: list[list[str | None]] = []
        self.matrices: dict[Hashable, Any] = {}
        crowd = _crowd(cores, section.core, machine)
        for work in section.works:
            share = 0.0 if work.operand is None else missing[work.operand]
            together = crowd if section.shares(work) else 0.0
            priced = [price(cost, cores + beside, share, together, machine) for cost in work.variants]
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


def price(
    cost: Cost, cores: int, missing: float, together: float, machine: Machine
) -> tuple[int, str | None]:
    """(busy cycles, the bandwidth that sets most of them or None) of an instruction on one of `cores` cores;
    `together`: what share of the chip's cores reads the same bytes at the same time."""
    if not cost.bus_bytes:
        return cost.cycles, None
    missing = 0.0 if cost.write else missing  # L2 takes what is written; it drains to HBM on the side.
    missed, hit = cost.bus_bytes * missing, cost.bus_bytes * (1 - missing)
    own_missed, own_hit = cost.cycles * missing, cost.cycles * (1 - missing)
    alone = own_missed + missed * cost.miss_cycles
    if together:
        own_hit += together * max(0.0, hit / cost.shared_rate - own_hit)
    hbm, l2 = missed * cores / machine.hbm_bytes_per_cycle, hit * cores / machine.l2_bytes_per_cycle
    cycles = max(alone, hbm) + max(own_hit, l2)
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
