"""The exceptions that passes raise for a program they cannot compile as asked."""

from __future__ import annotations

from collections.abc import Container, Sequence


class CompileError(Exception):
    """A program that cannot be compiled or called as asked: one sentence with the op and the place."""


class PassError(CompileError):
    """One clear sentence: the op, its place, and what to do."""


class TooLarge(PassError):
    """A fusion whose values do not fit on chip together; in parts it may."""


class SeveralErrors(PassError):
    """Faults that do not depend on each other. As text the first, and how many more there are."""

    def __init__(self, errors: Sequence[Exception]):
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{errors[0]}{more}")
        self.errors = tuple(errors)

    def blaming(self, ran: Container[str]) -> SeveralErrors:
        """The same faults, where the passes `ran` made the program, and not a person."""
        return self
