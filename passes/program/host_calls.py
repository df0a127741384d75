"""Host ops of a block: merges neighbours into one call, and lists all host ops of a program that may have none.

Before:  %s = graph.host %x {op = "sort"} ; %r = graph.host %s, %x {op = "scatter"}
After:   %r = graph.host %x {op = "sort, scatter"}

Host ops are neighbours if no device op lies on a def-use path between them. One runtime call then executes them all,
values between them stay in the host's memory, and shared operands cross the link once.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Block, Operation, SSAValue

from ...dialects.base import integer_attr, source_of, text
from ...dialects.graph import HostOp
from ...dialects.host_text import host_text, open_form, tensor_in_text
from ..errors import PassError

DEFINITION = re.compile(r"func\.func\s+(?:public\s+|private\s+)?@([\w$.-]+)")
VISIBILITY = re.compile(r"func\.func\s+public\s")
HEADER = re.compile(r"\s*module\s*(@[\w$.-]+\s*)?(?=\{)")


def refuse(blocks: Sequence[Block]) -> None:
    """Raises PassError with all host ops and their lines, if there are any."""
    found = Counter(
        f"'{text(op.op)}' ({place})" if (place := source_of(op)) else f"'{text(op.op)}'"
        for block in blocks
        for op in block.ops
        if isinstance(op, HostOp)
    )
    if found:
        ops = ", ".join(name if times == 1 else f"{name} {times} times" for name, times in found.items())
        raise PassError(
            f"the program may not use the host, but the device has no {ops}: allow the host, or write it otherwise"
        )


def join_host_ops(block: Block) -> None:
    """Makes one host op of those that need no work of the device in between."""
    ops = list(block.ops)
    if sum(isinstance(op, HostOp) for op in ops) < 2:
        return
    rounds: dict[Operation, int] = {}
    groups: dict[int, list[HostOp]] = {}
    joins = {op for op in ops if isinstance(op, HostOp) and body_of(open_form(op.module)) is not None}
    for op in ops:
        makers = [m for v in operands_within(op) if (m := owner_in(v, block)) is not None]
        # a round of the host ends where one of its results goes to somebody else
        rounds[op] = max((rounds[m] + (m in joins and op not in joins) for m in makers), default=0)
        if isinstance(op, HostOp) and op in joins:
            groups.setdefault(rounds[op], []).append(op)
    merged = [group for group in groups.values() if len(group) > 1]
    if merged:
        reorder(block, merged)
        for group in merged:
            merge(block, group)


def operands_within(op: Operation) -> list[SSAValue]:
    """What an op and the ops inside it use."""
    return [v for inner in op.walk() for v in inner.operands]


def owner_in(value: SSAValue, block: Block) -> Operation | None:
    """The op of the block that makes a value."""
    owner = value.owner
    return owner if isinstance(owner, Operation) and owner.parent is block else None


def reorder(block: Block, groups: Sequence[Sequence[HostOp]]) -> None:
    """Puts the ops of each group next to each other, everything else as early as it was."""
    ops = list(block.ops)
    leader: dict[Operation, Operation] = {op: group[-1] for group in groups for op in group}
    units: dict[Operation, list[Operation]] = {}
    for op in ops:
        units.setdefault(leader.get(op, op), []).append(op)
    position = {op: i for i, op in enumerate(ops)}
    waits = dict.fromkeys(units, 0)
    users: dict[Operation, list[Operation]] = {unit: [] for unit in units}
    for unit, members in units.items():
        makers = {
            leader.get(m, m)
            for op in members
            for v in operands_within(op)
            if (m := owner_in(v, block)) is not None
        }
        for maker in makers - {unit}:
            waits[unit] += 1
            users[maker].append(unit)
    ready = [(position[unit], unit) for unit, n in waits.items() if n == 0]
    heapq.heapify(ready)
    order: list[Operation] = []
    last = block.last_op
    while ready:
        _, unit = heapq.heappop(ready)
        order += units[unit]
        for user in users[unit]:
            waits[user] -= 1
            if waits[user] == 0:
                heapq.heappush(ready, (position[user], user))
    assert last is not None
    order.remove(last)
    for op in ops:
        op.detach()
    block.add_ops([*order, last])


def merge(block: Block, group: Sequence[HostOp]) -> None:
    """One host op in the place of several that follow each other."""
    inside = set(group)
    inputs = list(dict.fromkeys(v for op in group for v in op.operands if v.owner not in inside))
    outputs = [r for op in group for r in op.results if any(use.operation not in inside for use in r.uses)]
    new = HostOp.create(
        operands=inputs,
        result_types=[r.type for r in outputs],
        properties={
            "op": StringAttr(", ".join(dict.fromkeys(text(op.op) for op in group))),
            "module": host_text(joined_module(group, inputs, outputs)),
            "work": integer_attr(sum(op.host_bytes() for op in group)),
        },
        location=group[0].location,
    )
    block.insert_op_before(new, group[0])
    for old, result in zip(outputs, new.results, strict=True):
        result.name_hint = old.name_hint
        old.replace_all_uses_with(result)
    for op in reversed(group):
        op.detach()
        op.erase()


@dataclass
class SsaNames:
    """SSA names in the text of @main."""

    of: dict[SSAValue, str]

    def listed(self, values: Sequence[SSAValue]) -> str:
        return ", ".join(self.of[v] for v in values)


def joined_module(group: Sequence[HostOp], inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> str:
    """The open text of a module whose @main runs the modules of all ops in order; equal ones are there once."""
    names = SsaNames({v: f"%a{i}" for i, v in enumerate(inputs)})
    parts: dict[str, str] = {}
    lines: list[str] = []
    for number, op in enumerate(group):
        part = parts.setdefault(open_form(op.module), f"part{len(parts)}")
        arguments, n = names.listed(op.operands), len(op.results)
        lines.append(
            f"    %r{number}{f':{n}' if n > 1 else ''} = func.call @{part}({arguments}) : {signature(op)}"
        )
        names.of.update((r, f"%r{number}#{i}" if n > 1 else f"%r{number}") for i, r in enumerate(op.results))
    arguments = ", ".join(f"{names.of[v]}: {host_type(v)}" for v in inputs)
    types = ", ".join(map(host_type, outputs))
    bodies = "\n".join(renamed(module, part) for module, part in parts.items())
    calls = "\n".join(lines)
    return (
        f"module {{\n{bodies}\n  func.func public @main({arguments}) -> ({types}) {{\n{calls}\n"
        f"    return {names.listed(outputs)} : {types}\n  }}\n}}\n"
    )


def signature(op: HostOp) -> str:
    given, made = (", ".join(map(host_type, values)) for values in (op.operands, op.results))
    return f"({given}) -> ({made})"


def host_type(value: SSAValue) -> str:
    """The type of a value in the open text of a module."""
    assert isinstance(value.type, TensorType)
    return tensor_in_text(value.type)


def body_of(module: str) -> str | None:
    """The functions of a module's text; None for text that has more to it than functions."""
    header = HEADER.match(module)
    end = module.rfind("}")
    if header is None or end < header.end() or module[end + 1 :].strip():
        return None
    return module[header.end() + 1 : end]


def renamed(module: str, part: str) -> str:
    """The functions of a module with names of their own: @main as `part`, the others behind it."""
    body = body_of(module)
    assert body is not None
    for name in set(DEFINITION.findall(body)):
        new = part if name == "main" else f"{part}_{name}"
        body = re.sub(rf"@{re.escape(name)}(?![\w$.-])", f"@{new}", body)
    return VISIBILITY.sub("func.func private ", body)
