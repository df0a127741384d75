"""Schedules as text: `#graph.vector_schedule<tile = [8, 512], grid = [48, 1], ub = 2>`."""

from __future__ import annotations

from functools import cache

from xdsl.context import Context
from xdsl.utils.exceptions import ParseError, VerifyException

from . import make_context
from .graph.schedules import Schedule, schedule_attr, to_schedules
from .text import TextParser


def schedule_text(schedule: Schedule) -> str:
    """The text of a schedule."""
    return str(schedule_attr([schedule]))


def parse_schedule(text: str) -> Schedule:
    """The schedule of a text. Raises ValueError for what is none."""
    try:
        (schedule,) = to_schedules(TextParser(_context(), text).parse_attribute())
    except (ParseError, VerifyException, ValueError) as error:
        raise ValueError(f"{text!r} is no schedule: {' '.join(str(error).split())}") from None
    return schedule


@cache
def _context() -> Context:
    return make_context()
