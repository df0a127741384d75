"""What a device says of itself, as JSON that anyone may have sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from .judging import LOST
from .policy import FleetError

MOST = 1 << 53
"""The largest number in a report."""

MOST_TEXT = 300
"""Characters of a text, at most."""

FAULTS = ("refused", "boot", "canary", LOST)
"""What may be wrong with a release on a device: it is not taken; it does not come up; its values are wrong; the device
has no contact with it."""


@dataclass(frozen=True)
class Log:
    """A performance log: how often a release was called, how many of these failed, the 90th percentile of microseconds
    of a call, None where none succeeded, and the values of the canary where it has one; wrong: whether they are."""

    calls: int
    errors: int
    latency: float | None = None
    digest: str | None = None
    error: float | None = None
    wrong: bool = False

    def to_json(self) -> dict[str, Any]:
        """As a report has it: JSON has no infinity."""
        error = self.error if self.error is None or isfinite(self.error) else float(MOST)
        return {**vars(self), "error": error}


@dataclass(frozen=True)
class OrderOutcome:
    """What became of an order that was not obeyed: its number, which of `FAULTS`, and why."""

    order: int
    fault: str
    why: str

    def to_json(self) -> dict[str, Any]:
        """As a report has it."""
        return {**vars(self), "why": self.why[:MOST_TEXT].encode(errors="replace").decode()}


@dataclass(frozen=True)
class DeviceReport:
    """What a device runs, 0 for nothing; the last order that it was done with; its log of the release since its last
    report; and what went wrong."""

    running: int
    order: int
    log: Log | None = None
    outcome: OrderOutcome | None = None

    def to_json(self) -> dict[str, Any]:
        """The body of a request."""
        log = None if self.log is None else self.log.to_json()
        outcome = None if self.outcome is None else self.outcome.to_json()
        return {"running": self.running, "order": self.order, "log": log, "outcome": outcome}

    @staticmethod
    def of_json(said: Mapping[str, Any]) -> DeviceReport:
        """Raises FleetError for what is none."""
        check(said, "a report", running=int, order=int, log=dict | None, outcome=dict | None)
        log, outcome = said["log"], said["outcome"]
        if log is not None:
            optional = {"latency": float | None, "digest": str | None, "error": float | None}
            check(log, "a log", calls=int, errors=int, wrong=bool, **optional)
            if log["errors"] > log["calls"]:
                raise FleetError("a log has more errors than calls")
        if outcome is not None:
            check(outcome, "an outcome", order=int, fault=str, why=str)
            if outcome["fault"] not in FAULTS:
                raise FleetError("an outcome has no known fault")
        made = None if log is None else Log(**log)
        return DeviceReport(said["running"], said["order"], made, None if outcome is None else OrderOutcome(**outcome))


def table_of(body: bytes) -> dict[str, Any]:
    """The table that JSON of a stranger is. Raises FleetError."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise FleetError("the body is no JSON") from None
    if not isinstance(said, dict):
        raise FleetError("the body is no table")
    return said


def check(said: Mapping[str, Any], what: str, /, **kinds: Any) -> None:
    """Raises FleetError unless a table has these fields and no others, of these types: numbers are finite, from 0 to
    `MOST`, and texts are short and can be written."""
    if said.keys() != kinds.keys():
        raise FleetError(f"{what} has the fields {', '.join(kinds)}, and no others")
    for name, kind in kinds.items():
        value = said[name]
        fits = isinstance(value, kind) or (isinstance(value, int) and kind in (float, float | None))
        if isinstance(value, bool) and kind is not bool:
            fits = False
        if isinstance(value, int | float) and not 0 <= value <= MOST:  # nor NaN
            fits = False
        if isinstance(value, str) and (len(value) > MOST_TEXT or re.search("[\ud800-\udfff]", value)):
            fits = False  # half of a surrogate pair is no text
        if not fits:
            raise FleetError(f"{what} has no such {name}")
