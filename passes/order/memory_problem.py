"""What a function's launches need of device memory, as plain numbers: ops in order, values, and when each is live.

A program is a list of `MemoryRun`s. A run of an op makes its values, and the same op may run again later: its values
then are there once more, and who comes behind uses the new ones. Between its last use before that and the new run a
value takes no memory. A value may also be moved to the host (`out`) and back (`back`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...packing import Buffer, PackingProblem


@dataclass(frozen=True)
class MemoryOp:
    """An op: how long it takes, and without its launch, which may be that of another op, too; the values that it uses
    and makes, bytes that only it needs, and whether it may run again, to the same values."""

    microseconds: float
    least: float
    uses: tuple[int, ...]
    makes: tuple[int, ...]
    alone: int = 0
    again: bool = True


@dataclass(frozen=True)
class MemoryValue:
    """A value in device memory. given: it is there from the start; kept: and to the end, from its last run on;
    over: the value whose memory it takes over, where nobody needs that behind the op that makes it; until: the op
    behind which its memory is another value's, so that nobody can use it there; -1 where there is none."""

    bytes: int
    given: bool = False
    kept: bool = False
    over: int = -1
    until: int = -1


@dataclass(eq=False)
class MemoryRun:
    """A run of op `op`, the first or another one, or a move of value `value` between device and host. Before
    the run, or behind the move, kernels wait `stall` microseconds for the link."""

    op: int = -1
    again: bool = False
    value: int = -1
    out: bool = False
    stall: float = 0.0

    @property
    def moves(self) -> bool:
        return self.op < 0

    @property
    def back(self) -> bool:
        return self.moves and not self.out


@dataclass
class Spell:
    """A time for which a value is in device memory: from the run at `first` on to that at `last`; `touches`: the
    positions of the runs that make it and use it, in order."""

    value: int
    first: int
    last: int
    touches: list[int]


@dataclass(frozen=True)
class MemoryProblem:
    """All ops and values of a function, and the bytes that are taken all the time."""

    ops: Sequence[MemoryOp]
    values: Sequence[MemoryValue]
    fixed: int
    makers: Sequence[int] = field(init=False)
    """The op that makes each value, -1 for what is given."""

    def __post_init__(self) -> None:
        makers = [-1] * len(self.values)
        for i, op in enumerate(self.ops):
            for v in op.makes:
                makers[v] = i
        object.__setattr__(self, "makers", makers)

    def start(self) -> list[MemoryRun]:
        """Every op once, in order."""
        return [MemoryRun(i) for i in range(len(self.ops))]


class MemoryState:
    """A program and what follows from it: positions, spells, and the bytes that are live at each position."""

    def __init__(self, problem: MemoryProblem, runs: Sequence[MemoryRun]) -> None:
        self.problem, self.runs = problem, list(runs)
        self.place = {run: at for at, run in enumerate(self.runs)}
        self.spells: list[list[Spell]] = [
            [Spell(v, -1, -1, [-1])] if value.given else [] for v, value in enumerate(problem.values)
        ]
        ops = problem.ops
        n = len(self.runs)
        changes = np.zeros(n + 2, np.int64)
        alone = np.zeros(n, np.int64)
        self.starts = np.zeros(n + 1)
        """When each run starts at the earliest, in microseconds, one behind the other."""
        self.first = [-1] * len(ops)
        """The position of the first run of each op."""
        for at, run in enumerate(self.runs):
            self.starts[at + 1] = self.starts[at]
            self.starts[at + 1] += run.stall
            if run.moves:
                if run.out:
                    self._touch(run.value, at)
                else:
                    self.spells[run.value].append(Spell(run.value, at, at, [at]))
                continue
            op = ops[run.op]
            if not run.again:
                self.first[run.op] = at
            for v in op.uses:
                self._touch(v, at)
            for v in op.makes:
                self.spells[v].append(Spell(v, at, at, [at]))
            alone[at] = op.alone
            self.starts[at + 1] += op.least
        for v, spells in enumerate(self.spells):
            value = problem.values[v]
            if value.kept and spells:
                spells[-1].last = n
            for spell in spells:
                first = self.begin(spell)
                if first <= spell.last:
                    changes[first] += value.bytes
                    changes[spell.last + 1] -= value.bytes
        self.across: NDArray[np.int64] = np.cumsum(changes)[:n] + problem.fixed
        """Bytes of values that are live at each position."""
        self.live: NDArray[np.int64] = self.across + alone

    def _touch(self, v: int, at: int) -> None:
        spell = self.spells[v][-1]
        spell.last = at
        spell.touches.append(at)

    def _ends(self, v: int, at: int) -> bool:
        return any(spell.last == at for spell in self.spells[v])

    def packing(self) -> PackingProblem:
        """What has to find a place, as the plan of device memory sees it: spells, and what single runs need."""
        found: list[Buffer] = []
        for v, value in enumerate(self.problem.values):
            for spell in self.spells[v]:
                if value.bytes and self.begin(spell) <= spell.last:
                    found.append(Buffer(str(len(found)), self.begin(spell), spell.last + 1, value.bytes))
        for at, run in enumerate(self.runs):
            if not run.moves and (alone := self.problem.ops[run.op].alone):
                found.append(Buffer(str(len(found)), at, at + 1, alone))
        return PackingProblem(tuple(found))

    def begin(self, spell: Spell) -> int:
        """The position from which a spell takes memory of its own."""
        over = self.problem.values[spell.value].over
        taken = over >= 0 and spell.first >= 0 and self._ends(over, spell.first)
        return max(spell.first, 0) + taken

    @property
    def peak(self) -> int:
        return int(self.live.max(initial=self.problem.fixed))

    def spell_before(self, v: int, at: int) -> Spell | None:
        """The spell of a value that a run put before position `at` would use; None where it was not made before."""
        found = None
        for spell in self.spells[v]:
            if spell.first >= at:
                break
            found = spell
        return found

