"""Why kernels that hand on a value are not one: what the rules that decide it answered, kept only where somebody asks.

A rule that may refuse gives the sentence why, or None where it does not. Passes that run inside `reasons_asked` note
these sentences with the ops that they are about; elsewhere they are dropped where they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from xdsl.ir import Operation

ReasonKind = Literal["not fused", "not attention", "not chained", "not joined", "turned", "not turned"]


@dataclass(frozen=True)
class Reason:
    """Why something was done or not. "not fused": ops are the fusion that makes a value and one that reads it, result
    the number of the value among the results of the first; "not attention", "not chained": the product at its end; "not
    joined": a launch and the one before it; "turned", "not turned": the product of which an operand might be turned.
    why: a clause that goes on after a colon."""

    kind: ReasonKind
    ops: tuple[Operation, ...]
    why: str
    result: int = 0


_ASKED: ContextVar[list[Reason] | None] = ContextVar("reasons", default=None)


@contextmanager
def reasons_asked() -> Iterator[list[Reason]]:
    """Passes note their reasons in the list that this gives, inside of it."""
    found: list[Reason] = []
    token = _ASKED.set(found)
    try:
        yield found
    finally:
        _ASKED.reset(token)


def asked_reasons() -> list[Reason] | None:
    """Where reasons are noted; None where nobody asks for them."""
    return _ASKED.get()
