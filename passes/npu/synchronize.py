"""npu-synchronize: orders the pipes of a core with flags, and the cores of a block with cross flags.

For every buffer that several pipes touch, in the block where its slots advance (its home):

  * forward: a later conflicting use on another pipe waits for the earlier one in the same iteration
    (load on MTE2, then use on V: set_flag [MTE2 -> V] after the load, wait_flag before the use);
  * backward: the next iteration's first use waits until this iteration's last conflicting use is over
    (V done reading, then the next load into the slot); such flags are raised once for each slot before the
    section's loops and consumed once after them.

Pipes run in order, so a wait also covers everything its source pipe did before: only the last producer before
each consumer sets a flag, and a dependence that an earlier wait covers adds no flag. A flag of a multi-buffer
has one event for each slot; a pair of pipes has 8 events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr
from xdsl.dialects.scf import ForOp
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.affine import Expr
from ...dialects.base import describe, integer_attr, ints
from ...dialects.npu import (
    AllocOp,
    NpuOp,
    Pipe,
    PipeBarrierOp,
    SetCrossOp,
    SetFlagOp,
    SizeOp,
    SyncOp,
    TransferOp,
    WaitCrossOp,
    WaitFlagOp,
)
from ...dialects.npu.handing import Handed, blocks_around, handed_over, in_turns, moved_by
from ...dialects.npu.structure import KernelOp, SectionOp
from ...dialects.open_sizes import assuming, certain, choosing, example_sizes, size_of, value_at
from ...dialects.sizes import Sizes, symbols_of
from ...machine import Machine
from ..alternatives import UNIT_FLAGS
from ..base import ChoosingPass
from ..errors import PassError
from .check.clocks import Clocks
from .check.minimal import irredundant
from .check.model import LOOP, SET, WAIT, WORK, CheckedKernel, CheckedNode, CheckedSection
from .check.waits import WaitGraph
from .flags import Home, Pair, SyncPair, merged_pairs, number_events, plan_flags
from .pipe_barriers import interleave, needing_barriers, put_barrier
from .reorder import gather, wall_off
from .unit_flags import give_unit_flags


@dataclass(frozen=True)
class NpuSynchronizePass(ChoosingPass):
    """Inserts set_flag / wait_flag pairs and cross-core flags."""

    name = "npu-synchronize"

    def run_for(self, module: ModuleOp, machine: Machine) -> None:
        for kernel in module.ops:
            if not isinstance(kernel, KernelOp):
                continue
            if self.may(UNIT_FLAGS) and machine.unit_flags:
                for section in kernel.sections():
                    give_unit_flags(section)
            # flags are those for a few sizes; npu-check sees whether they do for others
            with choosing():
                models = models_of(kernel, machine)
                for number in range(len(models[0].sections)):
                    models = synchronize_section(models, number, machine.flags)
                synchronize_cores(kernel)


STEADY = 8
"""Iterations that a loop of an open number of them is looked at for, at least: it may run for many."""

_DOUBLINGS = 10
_MOST_WALLS = 32
"""Rounds of barriers in one section, each for pairs of pipes that still lack events."""


class _Apart(dict[str, int]):
    """Sizes of which some are others than those of an example."""

    def __init__(self, example: Sizes) -> None:
        super().__init__()
        self.example = example

    def __missing__(self, name: str) -> int:
        return self.example[name]


def long_running(kernel: KernelOp) -> Sizes:
    """Sizes at which each loop of an open number of iterations has several, where there are such: those of the example,
    some of them doubled until it has. What counts the iterations of several loops (the slot of a buffer) goes with
    them."""
    sizes = _Apart(example_sizes())
    numbers = [op.number for op in kernel.walk() if isinstance(op, SizeOp)]
    for _ in range(_DOUBLINGS):
        short = {s.name for n in numbers if value_at(n, sizes) < STEADY for s in symbols_of(size_of(n))}
        if not short:
            break
        sizes.update({name: 2 * sizes[name] for name in short})
    return sizes


def models_of(kernel: KernelOp, machine: Machine) -> list[CheckedKernel]:
    """A kernel, ready to be checked, at sizes that its flags must do for: where loops run for long, for the example,
    and for the least that there are, of all sizes and of each. Where nothing is open, these are one."""
    numbers = [op.number for op in kernel.walk() if isinstance(op, SizeOp)]
    long, most = long_running(kernel), example_sizes()
    least = {s.name: max(s.lower, 1) for n in numbers for s in symbols_of(size_of(n))}
    wanted: list[Sizes] = [long, most]
    for changed in (least, *({name: low} for name, low in least.items())):
        wanted.append(sizes := _Apart(most))
        sizes.update(changed)
    apart = {tuple(value_at(n, sizes) for n in numbers): sizes for sizes in reversed(wanted)}
    models: list[CheckedKernel] = []
    for sizes in reversed(apart.values()):
        with assuming(sizes), choosing():
            models.append(CheckedKernel(kernel, machine))
    return models


def _lift(op: Operation, block: Block) -> Operation:
    lifted = block.find_ancestor_op_in_block(op)
    assert lifted is not None
    return lifted


def synchronize_section(models: list[CheckedKernel], number: int, events: int) -> list[CheckedKernel]:
    """Inserts the flags of one section, where a pair of pipes has `events`. Takes and returns the kernel's models
    (`models_of`), those returned with the flags.

    A pair of pipes may run out of events. Its flags are then joined, where each may stand in the other's
    place. If that does not suffice, these steps follow, one after the other: the instructions move, so that
    more flags can be joined; each buffer gets one event for all its slots, in both directions, so that the
    slots take turns and no longer overlap; barriers replace the flags.
    """
    section = models[0].sections[number]
    if any(isinstance(op, SyncOp | PipeBarrierOp) for op in section.op.body.walk()):
        return models
    if interleave(section):
        models = models_of(models[0].op, models[0].machine)
        section = models[0].sections[number]
    turns: set[frozenset[Pipe]] = set()
    gathered: set[Pair] = set()
    walls = 0
    while True:
        homes = plan_flags(section, turns)
        flags = needed_flags([f for h in homes.values() for f in h.flags], homes, models, number)
        chosen, full = number_events(flags, events)
        if not full and len(chosen) < len(
            flags
        ):  # joined ones may order too little, or make others superfluous
            if is_unsafe(chosen, homes, models, number):
                full = merged_pairs(flags, chosen)
            else:
                chosen = needed_flags(chosen, homes, models, number)
        if not full:
            break
        short = {frozenset(pair) for pair in full}
        top = section.op.body.block
        moved = [gather(top, *pair) for pair in sorted(full - gathered)]
        gathered |= full
        if not any(moved):
            if not short <= turns:
                turns |= short
                continue
            walls += 1
            if walls > _MOST_WALLS:
                raise PassError(f"{describe(section.op)} cannot be ordered by flags and barriers")
            wall_off(homes.values(), [f for f in flags if frozenset(f.pair) in short])
        models = models_of(models[0].op, models[0].machine)
        section = models[0].sections[number]
    with _inserted(chosen, homes, models, number):
        dependent = needing_barriers(models, number)
    for home in homes.values():
        home.flags = [f for f in chosen if f.block is home.block]
        insert(home, section.op.body.block)
    for op in dependent:
        put_barrier(op)
    return models


def needed_flags(
    flags: list[SyncPair], homes: Mapping[Block, Home], models: Sequence[CheckedKernel], number: int
) -> list[SyncPair]:
    """`flags` without those that the order of all others already implies: none that is left can go."""
    with _inserted(flags, homes, models, number) as virtual:
        numbers = {id(node): i for i, nodes in enumerate(virtual) for node in nodes}
        graphs: list[WaitGraph] = []
        for model in models:
            for start in model.starts():
                graphs.append(WaitGraph(model, numbers, only=model.sections[number], start=start, in_order=True))
                if not graphs[-1].safe:
                    return flags
        kept = set(irredundant(graphs, sorted(range(len(flags)), key=lambda i: not flags[i].backward)))
        # a flag in a loop that runs at none of the sizes looked at may be needed at others
        return [f for i, f in enumerate(flags) if i in kept or not virtual[i]]


def is_unsafe(
    flags: list[SyncPair], homes: Mapping[Block, Home], models: Sequence[CheckedKernel], number: int
) -> bool:
    """Whether `flags` leave something unordered."""
    with _inserted(flags, homes, models, number):
        return any(
            Clocks(model, only=model.sections[number], start=start, in_order=True).unsafe()
            for model in models
            for start in model.starts()
        )


@contextmanager
def _inserted(
    flags: list[SyncPair], homes: Mapping[Block, Home], models: Sequence[CheckedKernel], number: int
) -> Iterator[list[list[CheckedNode]]]:
    """The nodes of each flag, which are in the section for as long as this lasts."""
    virtual: list[list[CheckedNode]] = [[] for _ in flags]
    without: list[tuple[list[CheckedNode], list[CheckedNode]]] = []
    for model in models:
        inserting = _Insertion(model, model.sections[number])
        for i, flag in enumerate(flags):
            virtual[i] += inserting.add(flag, i, homes)
        without += inserting.insert()
    try:
        yield virtual
    finally:
        for nodes, before in without:
            nodes[:] = before


class _Insertion:
    """Adds the nodes of flags to a section, with events of their own."""

    def __init__(self, model: CheckedKernel, section: CheckedSection) -> None:
        self.model, self.section = model, section
        self.first: list[CheckedNode] = []
        self.last: list[CheckedNode] = []
        self.waits: dict[Operation, list[CheckedNode]] = {}
        self.sets: dict[Operation, list[CheckedNode]] = {}
        self.running = set(_running(section.nodes))

    def add(self, flag: SyncPair, number: int, homes: Mapping[Block, Home]) -> list[CheckedNode]:
        """The nodes of a flag: none if it stands in a loop of no iterations. What such a flag raises before the
        section's loops is consumed after them, and orders nothing there."""
        assert flag.block is not None
        items = homes[flag.block].items
        after, before = items[flag.after], items[flag.before]
        if after not in self.running:
            return []
        model = self.model
        source, target = (model.queue(self.section, p) for p in flag.pair)
        counter: Expr[int] = Expr()
        if flag.counter is not None and flag.slots > 1:
            (counter,) = model.rows(flag.counter.offsets, flag.counter.indices, flag.counter)
            model.counted(counter, flag.slots)

        def made(kind: int, at: Expr[int]) -> CheckedNode:
            queue, op = (source, after) if kind == SET else (target, before)
            return CheckedNode(kind, op, queue, pair=flag.pair, event=number * 64, slots=flag.slots, counter=at)

        raised, waited = made(SET, counter), made(WAIT, counter)
        self.sets.setdefault(after, []).append(raised)
        self.waits.setdefault(before, []).append(waited)
        if not flag.backward:
            return [raised, waited]
        first = [made(SET, Expr(slot)) for slot in range(flag.slots)]
        last = [made(WAIT, Expr(slot)) for slot in range(flag.slots)]
        self.first += reversed(first)
        self.last += last
        return [raised, waited, *first, *last]

    def insert(self) -> list[tuple[list[CheckedNode], list[CheckedNode]]]:
        """Puts all nodes in their places; returns each list of nodes with what it held before."""
        nodes = self.section.nodes
        before = self._fill(nodes)
        nodes[:0] = reversed(self.first)
        nodes += self.last
        return before

    def _fill(self, nodes: list[CheckedNode]) -> list[tuple[list[CheckedNode], list[CheckedNode]]]:
        before = [(nodes, nodes.copy())]
        filled: list[CheckedNode] = []
        for node in nodes:
            if node.kind in (WORK, LOOP):
                sets = self.sets.get(node.op, ())
                filled += [*self.waits.get(node.op, ()), node, *reversed(sets)]
                before += self._fill(node.body) if node.body else []
            else:
                filled.append(node)
        nodes[:] = filled
        return before


def _running(nodes: Sequence[CheckedNode]) -> Iterator[Operation]:
    """The instructions and loops that run at all."""
    for node in nodes:
        if node.kind in (WORK, LOOP):
            yield node.op
            yield from _running(node.body)


@cache
def _string(value: str) -> StringAttr:
    return StringAttr(value)


def _make(cls: type[SyncOp], flag: SyncPair, indices: Iterable[SSAValue], offsets: DenseArrayBase) -> SyncOp:
    return cls.create(
        operands=list(indices),
        properties={
            "offsets": offsets,
            "source": _string(flag.pair[0]),
            "target": _string(flag.pair[1]),
            "event": integer_attr(flag.event),
            "slots": integer_attr(flag.slots),
        },
    )


def _at_slot(cls: type[SyncOp], flag: SyncPair) -> SyncOp:
    if flag.counter is None or flag.slots == 1:
        return _make(cls, flag, (), ints([0]))
    return _make(cls, flag, flag.counter.indices, flag.counter.offsets)


def insert(home: Home, top: Block) -> None:
    """Writes the flags of one home block into the program."""
    for flag in home.flags:
        after, before = home.items[flag.after], home.items[flag.before]
        home.block.insert_op_after(_located(_at_slot(SetFlagOp, flag), after), after)
        home.block.insert_op_before(_located(_at_slot(WaitFlagOp, flag), before), before)
        if flag.backward:
            first = next(op for op in top.ops if not isinstance(op, AllocOp))
            last = top.last_op
            assert last is not None
            for slot in range(flag.slots):
                top.insert_op_before(_located(_make(SetFlagOp, flag, (), ints([slot])), after), first)
                drain = _located(_make(WaitFlagOp, flag, (), ints([slot])), before)
                top.insert_op_after(drain, last)
                last = drain


def _located(op: SyncOp, like: Operation) -> SyncOp:
    if isinstance(like, ForOp):
        like = next((o for o in like.body.block.ops if isinstance(o, NpuOp)), like)
    op.location = like.location
    return op


# -- between cores -----------------------------------------------------------------------------------------------


def _depth(op: Operation, section: SectionOp) -> int:
    return len(blocks_around(op, section.body.block)) - 1


def synchronize_cores(kernel: KernelOp) -> None:
    """A section waits for each tile of a workspace that another one brings into it.

    Where tiles go one way, a workspace has room for all of them. Both sections walk it in the same order, in loops that
    go on by as much. The writer signals inside the loops that both have, and behind those of its own; the reader waits
    before its own. Where tiles go both ways, or into a ring, a workspace has room for few, each of which is read once:
    then the writer waits, too, until there is room.
    """
    if any(isinstance(op, SetCrossOp) for op in kernel.body.walk()):
        return
    forth, back = handed_over(kernel)
    event, turns = 0, in_turns(forth, back)
    for handed in (*forth, *back):
        if turns:
            _in_turns(handed, event)
            event += 2
            continue
        for store in handed.stores:
            _forward(handed, store, event)
            event += 1


def _forward(handed: Handed, store: TransferOp, event: int) -> None:
    """Raises an event behind a store, and waits for it before the first load, inside the loops that both go through
    alike."""
    load = handed.loads[0]
    written, read = (
        list(reversed(blocks_around(op, section.body.block)))
        for op, section in ((store, handed.writer), (load, handed.reader))
    )
    alike = 0
    for one, other in zip(written[1:], read[1:], strict=False):
        if not _go_alike(one, store, other, load):
            break
        alike += 1
    _raise_after(_lift(store, written[alike]), store, event)
    _wait_before(_lift(load, read[alike]), load, event)


def _go_alike(one: Block, store: TransferOp, other: Block, load: TransferOp) -> bool:
    """Whether the loops with these bodies make as many iterations, and each of them moves a store and a load of one
    tensor as far on."""
    loops = one.parent_op(), other.parent_op()
    if not all(isinstance(loop, ForOp) for loop in loops):
        return False
    first, second = (loop.operands[:3] for loop in loops if loop is not None)
    if not all(map(_equal, first, second)):
        return False
    return certain(moved_by(one, store), "==", moved_by(other, load))


def _equal(one: SSAValue, other: SSAValue) -> bool:
    """Whether two bounds of loops are known to be the same number."""
    if one is other:
        return True
    numbers = [v.owner.value for v in (one, other) if isinstance(v.owner, ConstantOp)]
    return len(numbers) == 2 and numbers[0] == numbers[1]


def _in_turns(handed: Handed, event: int) -> None:
    """Each load waits for a store (`event`), and each store for the load of what was there before it (the next event):
    for the first ones, that is raised at the start, for each tile that there is room for, and what the last loads raise
    is consumed at the end. A tile that a loop moves piece by piece is one."""
    for store in handed.stores:
        _raise_after(handed.of_tile(store), store, event)
        _wait_before(handed.of_tile(store), store, event + 1)
    for load in handed.loads:
        _raise_after(handed.of_tile(load), load, event + 1)
        _wait_before(handed.of_tile(load), load, event)
    first = next(op for op in handed.reader.body.block.ops if not isinstance(op, AllocOp))
    last = handed.writer.body.block.last_op
    assert last is not None
    for _ in range(handed.room):
        free = _cross(SetCrossOp, "source", handed.loads[0], event + 1)
        handed.reader.body.block.insert_op_before(free, first)
        taken = _cross(WaitCrossOp, "target", handed.stores[0], event + 1)
        handed.writer.body.block.insert_op_after(taken, last)


def _cross(cls: type[SetCrossOp | WaitCrossOp], side: str, like: TransferOp, event: int) -> Operation:
    """A signal of the pipe of a transfer, or a wait of it."""
    return cls.create(
        properties={side: _string(like.PIPE), "event": integer_attr(event)}, location=like.location
    )


def _raise_after(at: Operation, op: TransferOp, event: int) -> None:
    block = at.parent
    assert block is not None
    block.insert_op_after(_cross(SetCrossOp, "source", op, event), at)


def _wait_before(at: Operation, op: TransferOp, event: int) -> None:
    block = at.parent
    assert block is not None
    block.insert_op_before(_cross(WaitCrossOp, "target", op, event), at)
