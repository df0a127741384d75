"""What the cores of a block come to next, and what each pipe waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from ..backends.stepper.cores import SteppedCore
from ..backends.stepper.instructions import StoreBox, Work
from ..backends.stepper.marks import Mark
from ..backends.stepper.nodes import Cross, Flag, IssuedNode, Loop, PipeBarrier
from ..backends.stepper.order import BlockOrder
from .listing import Listing

AHEAD = 10_000
"""Instructions of a core that are looked through for the next one of each pipe."""

Arrival = tuple[IssuedNode, tuple[int, ...]]
"""An instruction and the indices with which a core came to it."""


def rest(nodes: Sequence[IssuedNode], env: list[int], at: IssuedNode) -> Iterator[IssuedNode]:
    """What is left of a program whose core is at a node, that included; env: the core's indices, which follow."""
    path = _path(nodes, at)
    if path is not None:
        yield from _from(nodes, env, path)


def _path(nodes: Sequence[IssuedNode], at: IssuedNode) -> list[int] | None:
    """The places of a node in the lists around it, outermost first."""
    for i, node in enumerate(nodes):
        if node is at:
            return [i]
        if isinstance(node, Loop):
            inner = _path(node.body, at)
            if inner is not None:
                return [i, *inner]
    return None


def _from(nodes: Sequence[IssuedNode], env: list[int], path: Sequence[int]) -> Iterator[IssuedNode]:
    first = nodes[path[0]]
    if isinstance(first, Loop) and len(path) > 1:
        now = env[first.index]
        yield from _from(first.body, env, path[1:])
        for value in first.places[first.places.index(now) + 1 :]:
            env[first.index] = value
            yield from _all(first.body, env)
    else:
        yield first
    yield from _all(nodes[path[0] + 1 :], env)


def _all(nodes: Sequence[IssuedNode], env: list[int]) -> Iterator[IssuedNode]:
    for node in nodes:
        if isinstance(node, Loop):
            for value in node.places:
                env[node.index] = value
                yield from _all(node.body, env)
        else:
            yield node


def left_of(
    core: SteppedCore, seen: Mapping[SteppedCore, Arrival], current: SteppedCore | None, env: list[int]
) -> Iterator[IssuedNode]:
    """What a core still has to run. seen: the last instruction that each core came to and was let run; current: the
    core whose instruction is next."""
    if not hasattr(core, "node"):
        return _all(core.section.nodes, env)
    if core is not current and seen.get(core) == (core.node, tuple(core.env)):
        return iter(())  # it ran its last instruction
    return rest(core.section.nodes, env, core.node)


def waits_of(
    core: SteppedCore, seen: Mapping[SteppedCore, Arrival], current: SteppedCore | None, listing: Listing
) -> Iterator[str]:
    """Lines for each pipe of a core: how many instructions it began, its next one, and what that needs."""
    env = list(core.env)
    following: dict[int, tuple[IssuedNode, list[int]]] = {}
    pipes = core.section.pipes
    for node in islice(left_of(core, seen, current, env), AHEAD):
        if node.queue not in following:
            following[node.queue] = (node, list(env))
            if len(following) == len(pipes):
                break
    for queue, pipe in enumerate(pipes):
        number = core.first_queue + queue
        begun = f"  {pipe}, {core.order.begun[number]} begun"
        if queue not in following:
            yield f"{begun}: is done"
            continue
        node, at = following[queue]
        yield f"{begun}: {listing.said(node.op)}"
        yield from (f"    {need}" for need in list(_needs(core, node, at, listing)) or ["can begin"])


def _needs(core: SteppedCore, node: IssuedNode, env: list[int], listing: Listing) -> Iterator[str]:
    order = core.order
    if isinstance(node, Flag):
        channel = node.channel(env)
        event = order.events.get((core.number, *node.pair, channel))
        raised = event is not None and bool(event.clocks)
        if node.sets:
            yield f"raises flag {channel} for {node.pair[1]}{', which is raised already' * raised}"
        else:
            yield f"waits for flag {channel} of {node.pair[0]}: {'raised' if raised else 'not raised yet'}"
    elif isinstance(node, Cross):
        if node.sets:
            yield f"raises event {node.event} for other cores"
        else:
            ready = order.ready(core, node.event)
            yield f"waits for event {node.event} of other cores: {'raised' if ready else 'not raised yet'}"
    elif isinstance(node, Work):
        queue = core.first_queue + node.queue
        for place, does in (*((p, "reads") for p in node.reads), *((p, "writes") for p in node.writes)):
            if place is node.sums and isinstance(node, StoreBox):
                raised = all(cell.flagged for cell in core.cells(place, place.slot(env)))
                said = "raised" if raised else "not raised yet"
                yield f"drains {listing.buffer(place.buffer)} by unit flags: {said}"
                continue
            name, meets = listing.buffer(place.buffer), dict[int, Mark]()
            for cell in core.memory.cells[place.buffer.number][place.slot(env)]:
                readers = cell.readers.values() if does == "writes" else ()
                for mark in readers or (cell.writer,):  # who knows of a reader's end knows of the writer's
                    if mark is not None:
                        meets[mark.step] = mark
            if not meets and does == "reads":
                yield f"{does} {name}, which nothing wrote yet"
            for mark in (meets[step] for step in sorted(meets)):
                if mark.queue == queue and not node.unordered:
                    continue
                if mark.number > order.clocks[queue][mark.queue]:
                    said = f"{listing.said(mark.op)} on {mark.core.pipe_of(mark)}"
                    yield f"{does} {name}, and knows of no end of {said}"
    elif isinstance(node, PipeBarrier):
        yield "waits until all that it began is over"
    else:
        yield "waits until all pipes are idle"


def flags_of(order: BlockOrder, core: SteppedCore) -> Iterator[str]:
    """A line for each flag of a core, and each event to it, that is raised and not consumed."""
    for (number, source, target, channel), event in sorted(order.events.items(), key=lambda item: item[0]):
        if number == core.number and event.clocks:
            yield f"  raised: flag {channel} of {source} for {target}"
    for (sender, receiver, event_number), fifo in sorted(order.cross.items()):
        if receiver == core.number and fifo:
            yield f"  raised: event {event_number} of {order.cores[sender]}{f', {len(fifo)} times' * (len(fifo) > 1)}"
