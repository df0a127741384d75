"""Derives the candidate flags of a section from its buffers, as plain data; inserts nothing.

For each buffer that several pipes use, the home is the innermost block around its uses, where its slots advance.
Positions count the ops of that block; a use in an inner loop counts as the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from xdsl.ir import Block, Operation, SSAValue

from ...dialects.npu import AllocOp, NpuOp, Pipe, SlotOp, buffer
from .check.model import LOOP, WORK, CheckedNode, CheckedSection, Place, TouchedBytes

Pair = tuple[Pipe, Pipe]


@dataclass(frozen=True)
class BufferUse:
    """One use of a buffer, lifted to its home block: position there, pipe, and whether it writes."""

    position: int
    pipe: Pipe
    write: bool


@dataclass
class SyncPair:
    """One set/wait pair in a block: after item `after` on the pair's first pipe, before item `before` on the
    second; `backward` ones belong to the next round of the slot."""

    pair: Pair
    after: int
    before: int
    slots: int
    counter: SlotOp | None
    backward: bool
    event: int = 0
    block: Block | None = None
    """The home block, in whose items `after` and `before` count."""


@dataclass
class Home:
    """The buffers whose slots advance in one block, and the flags they need there."""

    block: Block
    items: list[Operation]
    flags: list[SyncPair] = field(default_factory=list)
    place: dict[Operation, int] = field(default_factory=dict)
    """Positions of the items."""


@dataclass(frozen=True)
class Use:
    """One use of a buffer: where it stands, as (block, op in that block) from the section inwards."""

    path: tuple[tuple[Block, Operation], ...]
    pipe: Pipe
    reads: bool
    writes: bool


def plan_flags(section: CheckedSection, turns: Collection[frozenset[Pipe]]) -> dict[Block, Home]:
    """All flags that the buffers of a section ask for, with one event for each slot but between pipes in
    `turns`. Sums with unit flags ask for none."""
    uses: dict[SSAValue | TouchedBytes, list[Use]] = {}
    rounds: dict[Block, int] = {}
    _collect(section.nodes, section.op.body.block, (), 1, uses, rounds)
    homes: dict[Block, Home] = {}
    flagged = {node.sums.alloc for node in section.works if node.sums is not None}
    for alloc, members in uses.items():
        if len({use.pipe for use in members}) < 2 or alloc in flagged:
            continue
        depth = 0
        while all(
            len(use.path) > depth + 1 and use.path[depth + 1][0] is members[0].path[depth + 1][0]
            for use in members
        ):
            depth += 1
        block = members[0].path[depth][0]
        home = homes.get(block)
        if home is None:
            home = homes[block] = Home(block, list(block.ops))
            home.place = {op: i for i, op in enumerate(home.items)}
        accesses = []
        for use in members:
            position = home.place[use.path[depth][1]]
            accesses += [BufferUse(position, use.pipe, True)] if use.writes else []
            accesses += [BufferUse(position, use.pipe, False)] if use.reads else []
        slot, slots = None, 1
        if isinstance(alloc, SSAValue):
            slot = next((u.operation for u in alloc.uses if isinstance(u.operation, SlotOp)), None)
            slots = buffer(alloc).slots
        found = forward_flags(accesses, slots, slot)
        if depth:
            found += backward_flags(accesses, slots, slot)
        for flag in found:
            if frozenset(flag.pair) in turns:
                flag.slots, flag.counter = 1, None
        home.flags += [f for f in found if not f.backward or f.slots < rounds[block]]
    for home in homes.values():
        home.flags = reduce_flags(home.flags)
        for flag in home.flags:
            flag.block = home.block
    return homes


def _collect(
    nodes: Sequence[CheckedNode],
    block: Block,
    path: tuple[tuple[Block, Operation], ...],
    times: int,
    uses: dict[SSAValue | TouchedBytes, list[Use]],
    rounds: dict[Block, int],
) -> None:
    """Adds the uses of each buffer below `block`, or of the bytes of those that share them, and how often each block
    runs in one pass of its section."""
    rounds[block] = times
    for node in nodes:
        here = (*path, (block, node.op))
        if node.kind == LOOP:
            inner = node.op.regions[0].block
            _collect(node.body, inner, here, times * node.trips, uses, rounds)
        elif node.kind == WORK:
            assert isinstance(node.op, NpuOp)
            read = {used for p in node.reads for used in _used(p)}
            written = {used for p in node.writes for used in _used(p)}
            for alloc in read | written:
                uses.setdefault(alloc, []).append(Use(here, node.op.PIPE, alloc in read, alloc in written))


def _used(place: Place) -> Sequence[SSAValue | TouchedBytes]:
    """What an operand has for itself: its buffer, or the bytes of one that is shared."""
    alloc = place.alloc.owner
    return place.slots[0] if isinstance(alloc, AllocOp) and alloc.shared is not None else (place.alloc,)


def forward_flags(accesses: list[BufferUse], slots: int, slot: SlotOp | None) -> list[SyncPair]:
    """Orders within one iteration: for each use, the latest earlier conflicting use on each other pipe."""
    out = []
    latest: dict[Pipe, int] = {}
    written: dict[Pipe, int] = {}
    for position, here in groupby(sorted(accesses, key=lambda a: a.position), key=lambda a: a.position):
        uses = list(here)
        for later in uses:
            before = (latest if later.write else written).items()
            out += [
                SyncPair((p, later.pipe), at, position, slots, slot, False) for p, at in before if p != later.pipe
            ]
        latest |= {use.pipe: position for use in uses}
        written |= {use.pipe: position for use in uses if use.write}
    return out


def backward_flags(accesses: list[BufferUse], slots: int, slot: SlotOp | None) -> list[SyncPair]:
    """Orders one round of a slot before the next: last conflicting use on p, then first use on q, unless q's
    use already follows p's within the iteration."""
    positions: dict[tuple[Pipe, bool], list[int]] = {}
    for use in accesses:
        positions.setdefault((use.pipe, use.write), []).append(use.position)
    spans = {uses: (min(at), max(at)) for uses, at in positions.items()}
    out = []
    pipes = {a.pipe for a in accesses}
    for p in pipes:
        for q in pipes - {p}:
            pairs = [
                (spans[p, early], spans[q, late])
                for early, late in ((True, True), (True, False), (False, True))
                if (p, early) in spans and (q, late) in spans
            ]
            if not pairs:
                continue
            last, first = max(end for (_, end), _ in pairs), min(begin for _, (begin, _) in pairs)
            if not any(end == last and later > last for (_, end), (_, later) in pairs):
                out.append(SyncPair((p, q), last, first, slots, slot, True))
    return out


def _counter_key(flag: SyncPair) -> tuple:
    if flag.counter is None or flag.slots == 1:
        return (1,)
    return (flag.slots, tuple(flag.counter.indices), flag.counter.properties["offsets"])


def reduce_flags(flags: list[SyncPair]) -> list[SyncPair]:
    """Merges flags of equal purpose and drops those that another one covers."""
    out: list[SyncPair] = []
    pairs = {f.pair for f in flags}
    for pair in sorted(pairs):
        ahead = sorted((f for f in flags if f.pair == pair and not f.backward), key=lambda f: f.before)
        merged: dict[int, SyncPair] = {}
        for f in ahead:
            known = merged.get(f.before)
            if known is None or f.after > known.after:
                merged[f.before] = SyncPair(
                    pair,
                    f.after,
                    f.before,
                    max(f.slots, known.slots if known else 1),
                    f.counter if f.slots > 1 or known is None else known.counter,
                    False,
                )
            elif f.slots > known.slots:
                known.slots, known.counter = f.slots, f.counter
        covered = -1
        for f in merged.values():
            if f.after > covered:
                out.append(f)
                covered = f.after
        back: dict[tuple, SyncPair] = {}
        for f in flags:
            if f.pair != pair or not f.backward:
                continue
            known = back.get(_counter_key(f))
            if known is None:
                back[_counter_key(f)] = SyncPair(pair, f.after, f.before, f.slots, f.counter, True)
            else:
                known.after, known.before = max(known.after, f.after), min(known.before, f.before)
        out += back.values()
    return out


def number_events(flags: list[SyncPair], events: int) -> tuple[list[SyncPair], set[Pair]]:
    """Gives each flag its events, `slots` of them. Where a pair of pipes runs out, its forward flags of one block
    are joined: all their sources first, then all their consumers. Returns the flags that are left, and the pairs
    that still run out."""
    out: list[SyncPair] = []
    full: set[Pair] = set()
    for pair in sorted({f.pair for f in flags}):
        mine = [f for f in flags if f.pair == pair]
        if sum(f.slots for f in mine) > events:
            mine = _join_forward(mine)
        number = 0
        for f in mine:
            f.event = number
            number += f.slots
        if number > events:
            full.add(pair)
        out += mine
    return out, full


def merged_pairs(flags: list[SyncPair], left: list[SyncPair]) -> set[Pair]:
    """The pairs of pipes of which `left` has fewer flags."""
    before, after = Counter(f.pair for f in flags), Counter(f.pair for f in left)
    return {pair for pair, count in before.items() if after[pair] < count}


def _join_forward(mine: list[SyncPair]) -> list[SyncPair]:
    keep: list[SyncPair] = []
    hosts: dict[Block | None, SyncPair] = {}
    for f in sorted((f for f in mine if not f.backward), key=lambda f: f.after):
        host = hosts.get(f.block)
        if host is None or host.before <= f.after:
            keep.append(f)
            hosts[f.block] = f
            continue
        host.after, host.before = max(host.after, f.after), min(host.before, f.before)
        if f.slots > host.slots:
            host.slots, host.counter = f.slots, f.counter
    return keep + [f for f in mine if f.backward]
