"""Device memory that the calls of a program with open dimensions share: a pool, from which each takes what it needs.

A call takes a block for each input, one for the constants of its version, one for its arena, which holds what the plan
of device memory places behind these, and one for each result, to which that is copied before the arena is given back.
An array of JAX keeps its block as long as it lives, so weights, and results that become arguments again, are there
already; other arguments are copied to the device for each call. All blocks of a call are pinned while it runs.

The pool keeps the books: how much memory calls of these sizes take in this order, what moves, what goes to the host.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from ...backends.pool import Allocation, Pool, PoolError, PoolStatistics
from ...dialects.graph.donation import donated
from ...dialects.npu import gm
from ...dialects.npu.places import arena_of
from ...dialects.npu.structure import GmConstantOp
from ...dialects.open_sizes import value_at
from ...dialects.sizes import Sizes
from ...machine import Machine
from ...passes.errors import CompileError
from ..sources import entry_of

Owner = Hashable
"""Who a block belongs to: an array, an input that is the same for all calls, the constants of a version."""


@dataclass(frozen=True)
class Demand:
    """Bytes of device memory that a call takes: for each input and result, for all constants together, and for the
    arena, which has everything else."""

    inputs: tuple[int, ...]
    results: tuple[int, ...]
    constants: int
    arena: int


def demand_of(module: ModuleOp, machine: Machine, sizes: Sizes | None = None) -> Demand:
    """What calls of a planned module take, at given sizes where it has open ones. Raises ValueError where it has no
    plan."""

    def number(n: int) -> int:
        return value_at(n, sizes or {})

    def aligned(n: int) -> int:
        return -(-n // machine.gm_align) * machine.gm_align

    main = entry_of(module)
    arena = arena_of(main)
    if arena is None:
        raise ValueError("the module has no plan of device memory")
    arguments = [number(gm(a).bytes) for a in main.body.block.args]
    last = main.body.block.last_op
    results = () if last is None else tuple(number(gm(v).bytes) for v in last.operands)
    functions = [f for f in module.ops if isinstance(f, FuncOp)]
    constants = sum(
        aligned(number(gm(op.result).bytes)) for f in functions for op in f.walk() if isinstance(op, GmConstantOp)
    )
    fixed = sum(aligned(n) for n, free in zip(arguments, donated(main), strict=True) if not free)
    return Demand(tuple(arguments), results, constants, number(arena) - fixed - constants)


@dataclass
class _Block:
    """A block that stays between calls. users: calls that run and have it."""

    allocation: Allocation
    users: int = 0


@dataclass
class PooledCall:
    """A call that runs. title: what messages call it; kept: blocks that stay, own: those that go with it."""

    title: str
    demand: Demand
    kept: list[_Block] = field(default_factory=list[_Block])
    own: list[Allocation] = field(default_factory=list[Allocation])


class ProgramPool:
    """The pool of a program on a machine. policy, capacity_bytes: as `Pool` has them; all of device memory where no
    capacity is given. Raises CompileError for what `Pool` refuses."""

    def __init__(self, machine: Machine, policy: str = "best-fit", capacity_bytes: int | None = None) -> None:
        capacity = machine.spaces["gm"].bytes if capacity_bytes is None else capacity_bytes
        try:
            self._pool = Pool(capacity, machine.gm_align, policy)
        except PoolError as error:
            raise CompileError(f"pool: {error}") from None
        self.machine = machine
        self.calls = 0
        """How many calls took memory from it."""
        self._kept: dict[Owner, _Block] = {}
        self._gone: deque[Owner] = deque()
        """Owners that are no more. They are noted here by the garbage collector, which may come at any time."""
        self._lock = threading.Lock()

    @property
    def statistics(self) -> PoolStatistics:
        """What it holds now and has done so far."""
        with self._lock:
            self._sweep()
            return self._pool.statistics()

    @property
    def link_microseconds(self) -> float:
        """What spilling to the host and back took, over the machine's link."""
        return self.statistics.link_microseconds(self.machine)

    @property
    def overhead(self) -> float:
        """The watermark over the most bytes that were live at one time: 1 is the best possible."""
        found = self.statistics
        return found.watermark_bytes / found.peak_bytes if found.peak_bytes else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what `PoolStatistics` gives, and the properties of the pool."""
        own = {"calls": self.calls, "overhead": self.overhead, "link_microseconds": self.link_microseconds}
        return {**self.statistics.to_dict(), **own}

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def __repr__(self) -> str:
        return f"<ProgramPool {self.calls} calls, {self.statistics.summary()}>"

    def __str__(self) -> str:
        return self.table()

    def table(self, width: int = 100, borders: bool = True) -> str:
        """The statistics as plain text of at most `width` columns, and a line with what the calls make of them."""
        calls = f"{self.calls} call{'s' * (self.calls != 1)}"
        line = f"{calls}; watermark {self.overhead:.3f} times the peak of live bytes"
        return (
            self.statistics.table(width, borders)
            + f"{line}; {self.link_microseconds:,.1f} us over the link to the host\n"
        )

    # -- calls ---------------------------------------------------------------------------------------------

    @contextmanager
    def call(
        self, title: str, demand: Demand, owners: Sequence[Owner | None], version: Owner
    ) -> Iterator[PooledCall]:
        """Device memory for a call while it runs. owners: of each input, None for one that goes with the call.

        Raises CompileError where all that the call needs at once does not fit.
        """
        with self._lock:
            self._sweep()
            running = PooledCall(title, demand)
            try:
                self._begin(running, owners, version)
            except PoolError as error:
                self._end(running)
                raise CompileError(f"{title}: {error}") from None
            self.calls += 1
        try:
            yield running
        finally:
            with self._lock:
                self._end(running)

    def hand_over(self, running: PooledCall, owners: Sequence[Owner | None]) -> None:
        """Gives the results of a call blocks of their own, which stay with their owners, where all have some. Raises
        CompileError where they do not fit beside the rest of the call."""
        results = running.demand.results
        known = owners if len(owners) == len(results) else [None] * len(results)
        with self._lock:
            try:
                for owner, bytes_ in zip(known, results, strict=True):
                    self._take(running, owner, bytes_)
            except PoolError as error:
                raise CompileError(f"{running.title}: {error}") from None

    def watch(self, array: Any) -> Owner | None:
        """An array of JAX as the owner of a block, which is given back when the array is gone; None for others, which
        are copied to the device for each call."""
        import jax

        if not isinstance(array, jax.Array):
            return None
        owner = ("array", id(array))
        with self._lock:
            self._sweep()
            if owner not in self._kept:
                weakref.finalize(array, self._gone.append, owner).atexit = False
        return owner

    def drop(self, owner: Owner | None) -> None:
        """Gives the block of an owner back, if it has one: what was donated is gone."""
        if owner is not None:
            self._gone.append(owner)

    def _begin(self, running: PooledCall, owners: Sequence[Owner | None], version: Owner) -> None:
        demand = running.demand
        for owner, bytes_ in zip_longest(owners, demand.inputs):  # numbers come behind the inputs
            self._take(running, owner, bytes_ or 0)
        self._take(running, ("constants", version), demand.constants)
        self._take(running, None, demand.arena)

    def _take(self, running: PooledCall, owner: Owner | None, bytes_: int) -> None:
        """A pinned block for a call: that of the owner, where it has one."""
        if not bytes_:
            return
        if owner is None:
            running.own.append(self._pool.allocate(bytes_, pinned=True))
            return
        block = self._kept.get(owner)
        if block is None:
            block = self._kept[owner] = _Block(self._pool.allocate(bytes_, pinned=True))
        else:
            self._pool.pin(block.allocation)
        block.users += 1
        running.kept.append(block)

    def _end(self, running: PooledCall) -> None:
        for allocation in running.own:
            self._pool.free(allocation)
        for block in running.kept:
            block.users -= 1
            if not block.users:
                self._pool.unpin(block.allocation)
        running.own, running.kept = [], []

    def _sweep(self) -> None:
        """Frees the blocks of owners that are no more, and of which no call runs."""
        for _ in range(len(self._gone)):
            owner = self._gone.popleft()
            block = self._kept.get(owner)
            if block is not None and block.users:
                self._gone.append(owner)
            elif block is not None:
                del self._kept[owner]
                self._pool.free(block.allocation)
