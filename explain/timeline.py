"""What one launch of each kernel does in time, and what is where in each memory: from the simulator's events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from ..backends.simulator import KernelRun, Placed, Rest, TimedKernel
from ..backends.simulator.section import TimedSection
from ..backends.spans import Span
from ..dialects.base import integer
from ..dialects.graph.donation import donated
from ..dialects.module import find_main
from ..dialects.npu import AllocOp, BufferType, NpuOp, ViewOp, buffer, gm
from ..dialects.npu.places import addresses_of
from ..dialects.npu.structure import CallOp, GmAllocOp, GmConstantOp

EVENTS = 1200
"""Instructions shown of one launch of a kernel."""

Json = dict[str, Any]


# -- one kernel ----------------------------------------------------------------------------------------------


@dataclass
class _Span:
    """A slot of a buffer while it holds one piece of data."""

    core: str
    alloc: AllocOp
    slot: int
    begin: int
    end: int
    read: bool = False


def kernel_timeline(kernel: TimedKernel, run: KernelRun, number: dict[Operation, int]) -> Json:
    """The events and buffers of the heaviest core of a launch, in cycles; ops by `number`.

    {"cycles": of the launch, "shown": cycles up to which everything is shown, "complete": whether that is all,
     "lanes": ["cube MTE2", ...],
     "events": [lane, op, begin, end, bytes of device memory, slots as text index, ...] flat, six for each,
     "texts": [str], "buffers": [{"core", "space", "op", "slots", "address", "bytes"}],
     "spans": [buffer, slot, begin, end, ...] flat, four for each}
    """
    lanes: dict[str, int] = {}
    texts: dict[str, int] = {"": 0}
    events: list[int] = []
    spans: list[_Span] = []
    buffers: dict[tuple[str, Operation], int] = {}
    described: list[Json] = []
    shown = 0
    complete = True
    for trace in kernel.trace(run, EVENTS):
        for _, pipe in sorted({(event.work.pipe, event.work.op.PIPE) for event in trace.events}):
            lanes.setdefault(f"{trace.core} {pipe}", len(lanes))
        open_spans: dict[tuple[Operation, int], _Span] = {}
        for event in trace.events:
            op = event.work.op
            used = _slots_used(op, trace.section, event.env)
            for key, (alloc, read, written) in used.items():
                span = open_spans.get(key)
                if span is None or (written and not read and span.read):
                    # what an instruction computes in place begins where what it reads ends
                    begin = (
                        event.end
                        if any(r and _share(key, other) for other, (_, r, _) in used.items())
                        else event.start
                    )
                    span = open_spans[key] = _Span(trace.core, alloc, key[1], begin, event.end)
                    spans.append(span)
                span.end, span.read = max(span.end, event.end), span.read or read
            said = ", ".join(
                f"{kind.space}[{slot}]" if kind.slots > 1 else kind.space
                for (alloc, slot) in used
                for kind in [buffer(alloc.results[0])]
            )
            lane = lanes[f"{trace.core} {op.PIPE}"]
            cost = event.work.variants[event.variant]
            text = texts.setdefault(said, len(texts))
            events += [lane, number[op], event.start, event.end, cost.gm_bytes, text]
        last = max((event.end for event in trace.events), default=0)
        # of several cores the first to be cut off decides
        shown = max(shown, last) if complete and trace.complete else last if complete else min(shown, last)
        complete = complete and trace.complete
    flat: list[int] = []
    for span in spans:
        key = (span.core, span.alloc)
        if key not in buffers:
            kind = buffer(span.alloc.result)
            buffers[key] = len(described)
            described.append(
                {
                    "core": span.core,
                    "space": kind.space,
                    "op": number[span.alloc],
                    "slots": kind.slots,
                    "address": None if span.alloc.address is None else integer(span.alloc.address),
                    "bytes": kind.slot_bytes,
                }
            )
        flat += [buffers[key], span.slot, span.begin, span.end]
    return {
        "cycles": run.cycles,
        "shown": shown or run.cycles,
        "complete": complete,
        "lanes": list(lanes),
        "texts": list(texts),
        "events": events,
        "buffers": described,
        "spans": flat,
    }


def _slots_used(
    op: NpuOp, section: TimedSection, env: Sequence[int]
) -> dict[tuple[Operation, int], tuple[AllocOp, bool, bool]]:
    """The slots that an instruction uses in an environment: their allocation, whether it reads and whether it writes
    them."""
    used: dict[tuple[Operation, int], tuple[AllocOp, bool, bool]] = {}
    for value, write in [*((v, False) for v in op.reads()), *((v, True) for v in op.writes())]:
        if isinstance(value.type, BufferType):
            alloc, slot = section.slot(value, env)
            _, read, written = used.get((alloc, slot), (alloc, False, False))
            used[alloc, slot] = (alloc, read or not write, written or write)
    return used


def _share(one: tuple[Operation, int], other: tuple[Operation, int]) -> bool:
    """Whether two slots of different buffers have an address in common."""
    (a, i), (b, j) = one, other
    assert isinstance(a, AllocOp) and isinstance(b, AllocOp)
    if a is b or a.address is None or b.address is None:
        return False
    x, y = buffer(a.result), buffer(b.result)
    first, second = integer(a.address) + i * x.slot_bytes, integer(b.address) + j * y.slot_bytes
    return x.space == y.space and first < second + y.slot_bytes and second < first + x.slot_bytes


# -- the host program ----------------------------------------------------------------------------------------


def program_timeline(spans: Sequence[Span], number: dict[Operation, int]) -> list[list[Any]]:
    """[name, kind, op, begin us, end us, overhead us, queue, passes] of each span, as the trace has them."""
    return [
        [s.name, s.kind, number[_op(s.placed)], *_rounded(s.begin, s.end, s.overhead), s.queue, s.passes]
        for s in spans
    ]


def _op(placed: Placed | Rest) -> Operation:
    return placed.op if isinstance(placed, Rest) else placed.step.op


def _rounded(*microseconds: float) -> list[float]:
    """To a tenth of a nanosecond."""
    return [round(time, 4) for time in microseconds]


def device_memory(module: ModuleOp, spans: Sequence[Span], number: dict[Operation, int]) -> list[Json]:
    """Tensors in device memory: {"value": name, "op": index or -1, "kind", "address", "bytes", "begin", "end"} (us).

    A tensor lives from the step of its first use to that of its last in the block that makes it, once for each call and
    each pass of that; arguments (unless donated), constants and results to the end. Tensors without an address (before
    npu-plan-memory) are left out, and those of functions and loops in the passes that are not shown one by one.
    """
    main = find_main(module)
    if main is None:
        return []
    total = max((s.end for s in spans), default=0.0)
    used = _uses(spans, number)
    found: list[Json] = []

    def add(value: SSAValue, kind: str, address: int, begin: float, end: float) -> None:
        op = value.owner if isinstance(value.owner, Operation) else None
        found.append(
            {
                "op": -1 if op is None else number[op],
                "name": value.name_hint or "",
                "type": str(value.type).removeprefix("!npu.gm<").removesuffix(">"),
                "kind": kind,
                "address": address,
                "bytes": gm(value).bytes,
                "begin": round(begin, 4),
                "end": round(end, 4),
            }
        )

    for value, at, free in zip(main.body.block.args, addresses_of(main) or (), donated(main)):
        users = _tops(value, main.body.block)
        times = next(iter(used.get(main.body.block, {}).get((), [])), {})
        kept = not free or main.body.block.last_op in users
        end = total if kept else max((times[top][1] for top in users if top in times), default=0.0)
        add(value, "argument", at, 0.0, end)
    for func in module.ops:
        if not isinstance(func, FuncOp) or not func.body.blocks:
            continue
        block = func.body.block
        for op in func.walk():
            if isinstance(op, GmConstantOp) and op.address is not None:
                add(op.result, "constant", integer(op.address), 0.0, total)
            elif isinstance(op, GmAllocOp) and op.address is not None:
                assert op.parent is not None
                users = _tops(op.result, op.parent)
                result = func is main and op.parent is block and block.last_op in users
                kind = "result" if result else "workspace" if _only_scratch(op.result) else "tensor"
                for times in (times for passes in used.get(op.parent, {}).values() for times in passes):
                    here = [times[top] for top in users if top in times]
                    if here:
                        end = total if result else max(end for _, end in here)
                        add(op.result, kind, integer(op.address), min(begin for begin, _ in here), end)
    return found


Times = dict[Operation, tuple[float, float]]
"""When each op of a block ran, those inside it included."""


def _uses(spans: Sequence[Span], number: dict[Operation, int]) -> dict[Block, dict[tuple[int, ...], list[Times]]]:
    """The times of each pass of a block, by the numbers of the calls that it is in. Of passes that are not shown one by
    one only those of the function's block are known."""
    found: dict[Block, dict[tuple[int, ...], list[Times]]] = {}
    last: dict[tuple[Block, tuple[int, ...]], Operation] = {}
    for span in spans:
        calls = span.placed.calls
        numbers = tuple(number for _, number in calls)
        for depth, op in enumerate([*(op for op, _ in calls), _op(span.placed)]):
            around = list(_around(op))
            for top, block in around[-1:] if isinstance(span.placed, Rest) else around:
                key = block, numbers[:depth]
                passes = found.setdefault(block, {}).setdefault(key[1], [{}])
                before = last.get(key)
                if before is not None and not isinstance(block.parent_op(), FuncOp):
                    many = top is before and (top.regions or isinstance(top, CallOp))
                    if number[top] <= number[before] and not many:
                        passes.append({})
                last[key] = top
                begin, end = passes[-1].get(top, (span.begin, span.end))
                passes[-1][top] = min(begin, span.begin), max(end, span.end)
    return found


def _around(op: Operation) -> Iterator[tuple[Operation, Block]]:
    """The ops that are `op` or have it inside, and their blocks, up to the block of its function."""
    while not isinstance(op, FuncOp):
        block, parent = op.parent, op.parent_op()
        assert block is not None
        assert parent is not None
        yield op, block
        op = parent


def _users(value: SSAValue) -> Iterator[Operation]:
    for use in value.uses:
        yield use.operation
        if isinstance(use.operation, ViewOp):
            yield from _users(use.operation.result)


def _tops(value: SSAValue, block: Block) -> set[Operation]:
    """The ops of a block that use a value or have a use of it inside."""
    return {top for user in _users(value) if (top := block.find_ancestor_op_in_block(user)) is not None}


def _only_scratch(value: SSAValue) -> bool:
    """Whether a tensor is only ever handed to kernels as private scratch."""
    for use in value.uses:
        spaces = use.operation.properties.get("workspaces")
        if spaces is None or use.index < len(use.operation.operands) - integer(spaces):
            return False
    return True
