"""Values and instructions as the debugger prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ..backends.stepper.cores import SteppedCore
from ..backends.stepper.marks import Mark
from ..dialects.base import source_of
from .expressions import plain
from .listing import Listing
from .scopes import ByteRange, NameScope, Written, indices_of

SHOWN = 64
"""Of a larger array, in elements, only its ends are shown."""

LISTED = 8
"""Lines of `who` at most."""

Listings = Callable[[Any], Listing]
"""The listing of the kernel or function that an op is in."""


def array_text(values: Any, unwritten: np.ndarray | None = None) -> str:
    """An array or a number; elements that nothing wrote as --."""
    if not isinstance(values, np.ndarray):
        return str(values)
    shown: Any = plain(values)
    if unwritten is not None:
        if unwritten.all():
            return "nothing wrote it"
        shown = np.ma.masked_array(shown, unwritten)
    with np.printoptions(precision=6, threshold=SHOWN, edgeitems=3, linewidth=100, suppress=False):
        return str(shown)


def indices_text(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in pairs)


def core_text(scope: NameScope, core: SteppedCore) -> str:
    """`@exp_0, vector core 0 of block [1], %0 = 1, %5 = 0`."""
    return ", ".join(
        filter(None, (f"@{core.launch.plan.name}", str(core), indices_text(list(scope.indices()))))
    )


def mark_text(mark: Mark, listings: Listings) -> str:
    """Who ran: an instruction of a core, or a command of the host program."""
    if mark.core is None and not mark.step:
        return "the caller, as an argument or a constant"
    return listings(mark.op).said(mark.op)


def place_text(mark: Mark, listings: Listings) -> str:
    """Where it ran: line of the source, pipe, core and indices; empty where there is nothing to say."""
    listing, place = listings(mark.op), source_of(mark.op) if mark.step else None
    if mark.core is None:
        return place or ""
    known = mark.core.launch.plan.indices
    pairs = [(listing.name(v), mark.env[known[v]]) for v in indices_of(mark.op) if v in known]
    where = f"{mark.core.pipe_of(mark)} of {mark.core} of @{mark.core.launch.plan.name}"
    return ", ".join(filter(None, (place, where, indices_text(pairs))))


def writes_text(writes: Sequence[Written], listings: Listings) -> Iterator[str]:
    """A line for each run of bytes that one instruction wrote."""
    count = 0
    for (by, foreign), group in groupby(writes, lambda w: (w.by, w.foreign)):
        members = list(group)
        count += 1
        if count > LISTED:
            continue
        span = ByteRange(members[0].span.space, members[0].span.start, members[-1].span.end)
        if by is None:
            yield f"{span}: nothing wrote it"
        else:
            yield f"{span}: {mark_text(by, listings)}{f', as {foreign}' if foreign else ''}"
            place = place_text(by, listings)
            if place:
                yield f"  {place}"
    if count > LISTED:
        yield f"and {count - LISTED} more runs of bytes"
