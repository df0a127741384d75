"""Faults of a program that the stepping executor meets: what it read, wrote or waited for, and where."""

from __future__ import annotations

from typing import Literal

from xdsl.ir import Operation

from ...dialects.base import describe, source_of

Kind = Literal[
    "uninitialised", "out-of-bounds", "overlap", "race", "deadlock", "reused-flag", "unpaired-flag"
]
"""What went wrong:

uninitialised   an instruction reads bytes that nothing wrote
out-of-bounds   an access leaves its memory or its tensor
overlap         an instruction reads a buffer or a tensor over which another one was written
race            two accesses to the same bytes, one of them to write, that nothing orders
deadlock        an instruction waits for what never comes
reused-flag     a flag is raised again before it was surely consumed
unpaired-flag   a flag is raised and never consumed
"""


class StepFault(Exception):
    """A fault at an instruction.

    kind: as `Kind` says; op: the instruction; place: the buffer or tensor and its bytes, empty where there is none;
    location: `file:line` of the user's source, None where it is not known.
    """

    def __init__(self, kind: Kind, op: Operation, what: str, place: str = "") -> None:
        """what: a clause whose subject is the instruction, "reads bytes that nothing wrote"."""
        self.kind: Kind = kind
        self.op, self.place, self.location = op, place, source_of(op)
        super().__init__(f"{kind}: {describe(op)} {what}{f': {place}' if place else ''}")


class UninitialisedRead(StepFault):
    """A read of bytes that nothing wrote."""


class OutOfBounds(StepFault):
    """An access that leaves its memory."""


class Overwritten(StepFault):
    """A read of what another buffer or tensor was written over."""


class Race(StepFault):
    """Two accesses to the same bytes that nothing orders. `before` is the earlier one."""

    def __init__(
        self, kind: Kind, op: Operation, what: str, place: str = "", before: Operation | None = None
    ) -> None:
        super().__init__(kind, op, what, place)
        self.before = before


class Deadlock(StepFault):
    """A wait for what never comes."""


class FlagFault(StepFault):
    """A flag that is raised twice, or that nothing consumes."""


FAULTS: dict[Kind, type[StepFault]] = {
    "uninitialised": UninitialisedRead,
    "out-of-bounds": OutOfBounds,
    "overlap": Overwritten,
    "race": Race,
    "deadlock": Deadlock,
    "reused-flag": FlagFault,
    "unpaired-flag": FlagFault,
}


def fault(kind: Kind, op: Operation, what: str, place: str = "") -> StepFault:
    """A fault of the class that its kind has."""
    return FAULTS[kind](kind, op, what, place)
