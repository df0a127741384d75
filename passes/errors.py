"""The exceptions that passes raise for a program they cannot compile as asked."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import TypeVar

from ..support.sentences import SentenceError

T = TypeVar("T")


class CompileError(SentenceError):
    """A program that cannot be compiled or called as asked: one sentence with the op and the place."""


class PassError(CompileError):
    """One clear sentence: the op, its place, and what to do."""


class StateMissing(PassError):
    """A module lacks what a pass requires; the pass has not begun."""


class NoKernel(PassError):
    """A fusion that no kernel computes; in parts it may."""


class TooLarge(NoKernel):
    """A fusion whose values do not fit on chip together; in parts it may."""


class FusionWarning(UserWarning):
    """Something that would make a program faster failed and was left out: one sentence with the fault."""


def attempted(what: str, attempt: Callable[[], T], otherwise: T) -> T:
    """What an attempt to make a program faster gives; `otherwise`, with a warning, where it fails by a fault of the
    compiler. It has changed nothing by then. Raises PassError where it does."""
    try:
        return attempt()
    except PassError:
        raise
    except Exception as fault:
        said = f"{what} failed ({fault_of(fault)}) and is left out; please report it"
        warnings.warn(said, FusionWarning, stacklevel=2)
        return otherwise


def fault_of(fault: Exception) -> str:
    """What a fault is, and the line of ours that raised it."""
    last = traceback.extract_tb(fault.__traceback__)[-1]
    place = f"{Path(last.filename).parent.name}/{Path(last.filename).name}:{last.lineno}"
    said = str(fault).split("\n")[0]
    return f"{type(fault).__name__} in {place}" + (f": {said}" if said else "")


class SeveralErrors(PassError):
    """Faults that do not depend on each other. As text the first, and how many more there are."""

    def __init__(self, errors: Sequence[Exception]):
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{errors[0]}{more}")
        self.errors = tuple(errors)

    def blaming(self, ran: Container[str]) -> SeveralErrors:
        """The same faults, where the passes `ran` made the program, and not a person."""
        return self
