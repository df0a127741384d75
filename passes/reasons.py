"""Why kernels that hand on a value are not one: what the rules that decide it answered, kept only where somebody asks.

A rule that may refuse gives the sentence why, or None where it does not. Passes that run inside `reasons_asked` note
these sentences with the ops that they are about; elsewhere they are dropped where they are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal

from xdsl.ir import Operation, OpResult

from ..support.collecting import collecting

ReasonKind = Literal[
    "not fused",
    "not attention",
    "not chained",
    "not joined",
    "not recomputed",
    "transposed",
    "not transposed",
    "padded",
    "not padded",
    "cut",
    "not cut",
]


@dataclass(frozen=True)
class Reason:
    """Why something was done or not. "not fused": ops are the fusion that makes a value and one that reads it, result
    the number of the value among the results of the first; "not recomputed": the same of launches; "not attention",
    "not chained": the product at its end; "not joined": a launch and the one before it; "transposed", "not transposed",
    "padded", "not padded": the product of which an operand might be so; "cut", "not cut": the one of which the sums
    might be. why: a clause that goes on after a colon."""

    kind: ReasonKind
    ops: tuple[Operation, ...]
    why: str
    result: int = 0


_ASKED: ContextVar[list[Reason] | None] = ContextVar("reasons", default=None)


def reasons_asked() -> AbstractContextManager[list[Reason]]:
    """Passes note their reasons in the list that this gives, inside of it."""
    return collecting(_ASKED, [])


def asked_reasons() -> list[Reason] | None:
    """Where reasons are noted; None where nobody asks for them."""
    return _ASKED.get()


def say_apart(
    maker: Operation,
    reader: Operation,
    why: str,
    results: Iterable[int] = (0,),
    kind: Literal["not fused", "not recomputed"] = "not fused",
) -> None:
    """Notes why a fusion and one that reads these results of it are two, or a launch and one that does not make them
    itself, in the place of what was said of that before. Nothing is done where nobody asks for reasons."""
    reasons = asked_reasons()
    if reasons is not None:
        reasons[:] = [r for r in reasons if r.kind != kind or r.ops != (maker, reader)]
        reasons += [Reason(kind, (maker, reader), why, number) for number in results]


def join_reasons(joined: Operation, parts: Sequence[Operation], results: Sequence[OpResult]) -> None:
    """Lets what was said of several ops be said of the one that takes their place. results: those of their results that
    it gives, in its order. What was said of two of them, or of a result that is inside now, is dropped. Nothing is done
    where nobody asks for reasons."""
    reasons = asked_reasons()
    if reasons is None:
        return
    inside, kept = set(parts), list[Reason]()
    numbers = {(result.op, result.index): number for number, result in enumerate(results)}
    for reason in reasons:
        number = reason.result
        if len(reason.ops) == 2 and inside.issuperset(reason.ops):
            continue
        if reason.kind == "not fused" and reason.ops[0] in inside:
            if (reason.ops[0], reason.result) not in numbers:
                continue
            number = numbers[reason.ops[0], reason.result]
        ops = tuple(joined if op in inside else op for op in reason.ops)
        kept.append(replace(reason, ops=ops, result=number))
    reasons[:] = kept


def share_reasons(op: Operation, takers: Sequence[Operation]) -> None:
    """Lets what was said of an op that reads a value be said of those, too, which compute it themselves now. Nothing is
    done where nobody asks for reasons."""
    reasons = asked_reasons()
    if reasons is None:
        return
    inside = set(takers)
    reasons[:] = [r for r in reasons if r.kind != "not fused" or r.ops[0] is not op or r.ops[1] not in inside]
    said = {(r.kind, r.ops, r.result) for r in reasons}
    for reason in [r for r in reasons if len(r.ops) == 2 and r.ops[1] is op]:
        for taker in takers:
            ops = reason.ops[0], taker
            if taker is not ops[0] and (reason.kind, ops, reason.result) not in said:
                reasons.append(replace(reason, ops=ops))
