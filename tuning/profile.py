"""Profiles: what launches took, by their names, as a trace of ours or of a device's profiler has it.

Read are trace events as Chrome and Perfetto have them (a list, or an object with `traceEvents`), which
`tilewright trace` and msprof write, and msprof's table of ops (`op_summary_*.csv`), of which the columns `Op Name` and
`Task Duration(us)` count.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

from ..api.program import CompileError

NAME, DURATION = "Op Name", "Task Duration(us)"
"""Columns of msprof's table of ops."""


@dataclass(frozen=True)
class Profile:
    """microseconds: of each name the mean of what has it; source: where it was read."""

    microseconds: Mapping[str, float]
    source: str = "profile"


def read_profile(path: str | Path) -> Profile:
    """The profile in a file. Raises CompileError, in one sentence, for what is none."""
    try:
        text = Path(path).read_text()
        found = [*(_rows(text) if Path(path).suffix.lower() == ".csv" else _events(text))]
    except OSError as error:
        raise CompileError(f"tune: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CompileError(f"tune: {path}: it is no text") from None
    except ValueError as error:
        raise CompileError(f"tune: {path}: {error}") from None
    sums: dict[str, list[float]] = {}
    for name, us in found:
        sums.setdefault(name, []).append(us)
    if not sums:
        raise CompileError(f"tune: {path}: it has no durations")
    return Profile({name: sum(each) / len(each) for name, each in sums.items()}, str(path))


def _events(text: str) -> Iterator[tuple[str, float]]:
    """Names and microseconds of complete events. Raises ValueError."""
    try:
        given: Any = json.loads(text)
    except ValueError:
        raise ValueError(f"it is neither JSON of trace events nor a .csv with {NAME!r} and {DURATION!r}") from None
    events: Any = given.get("traceEvents") if isinstance(given, dict) else given
    if not isinstance(events, list):
        raise ValueError("it has no list of trace events")
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X" and isinstance(event.get("name"), str):
            yield from _duration(event["name"], event.get("dur"))


def _rows(text: str) -> Iterator[tuple[str, float]]:
    """Names and microseconds of the rows of a table. Raises ValueError."""
    rows: Iterable[dict[str, Any]] = csv.DictReader(StringIO(text, newline=""))
    for row in rows:
        if NAME not in row or DURATION not in row:
            raise ValueError(f"it has no columns {NAME!r} and {DURATION!r}")
        yield from _duration(str(row[NAME]), row[DURATION])


def _duration(name: str, given: object) -> Iterator[tuple[str, float]]:
    """A name with its microseconds, where these are some."""
    try:
        us = float(str(given).strip())
    except ValueError:
        return
    if isfinite(us) and us >= 0:
        yield name, us
