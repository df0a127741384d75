"""When requests arrive: from a table, or drawn."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from ..support.amounts import seconds_in
from ..support.files import FilePath, open_plain
from ..support.sentences import SentenceError, quoted, suggestion

MOST_ARRIVALS = 10_000_000
"""Arrivals of a simulation, at most."""

MOST_ENTRIES = 1000
"""Entries that a table names, at most."""

MOST_ITEMS = 1 << 20
"""Items of a request, at most."""

MOST_LINE = 1 << 16
"""Bytes of a line of a table, at most."""

COLUMNS = ("seconds", "entry", "size", "deadline")
"""What is read of a table. The first one has to be there."""


class ServingError(SentenceError):
    """A service cannot be simulated as asked; the message is one sentence."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Requests in the order in which they arrive.

    Attributes:
        seconds: When each arrives, f64[n], from any time on.
        sizes: How many items of a batch each is, i64[n].
        entries: Which entry each calls, as an index into `names`, i64[n].
        names: The entries; one empty name where nobody says.
        deadlines: How many seconds after its arrival each is to be answered, f64[n]; inf where nobody says.
        title: What messages call them.
    """

    seconds: np.ndarray
    sizes: np.ndarray
    entries: np.ndarray
    names: tuple[str, ...]
    deadlines: np.ndarray
    title: str

    @staticmethod
    def at(seconds: np.ndarray, title: str = "arrivals") -> Arrivals:
        """Requests of one item each at times in seconds, f64[n]. Raises ServingError where these are not finite or not
        in order, and where there are none or too many."""
        times = np.asarray(seconds, np.float64)
        _check_count(title, times.size)
        if not np.isfinite(times).all() or (np.diff(times) < 0).any():
            raise ServingError(f"{title}: times are finite numbers of seconds, each at least the one before")
        one, none = np.ones(times.size, np.int64), np.zeros(times.size, np.int64)
        return Arrivals(times, one, none, ("",), np.full(times.size, math.inf), title)

    @staticmethod
    def poisson(rate: float, seconds: float = 10.0, seed: int = 0) -> Arrivals:
        """Arrivals that know nothing of each other, `rate` per second on the mean. Raises ServingError."""
        title = f"poisson:{rate:g}"
        _check_drawn(title, rate, seconds, rate * seconds)
        draw = np.random.default_rng(seed)
        return Arrivals.at(np.sort(draw.uniform(0, seconds, draw.poisson(rate * seconds))), title)

    @staticmethod
    def burst(
        count: int, every: float = 1.0, within: float = 0.0, seconds: float = 10.0, seed: int = 0
    ) -> Arrivals:
        """`count` arrivals in the first `within` of each `every` seconds, drawn evenly; all at once where that is 0.
        Raises ServingError."""
        title = f"burst:{count}"
        _check_drawn(title, every, seconds, count * (seconds / every) if every > 0 else 0)
        if count < 1 or not 0 <= within <= every:
            raise ServingError(f"{title}: a burst has at least one arrival, within no more than every={every:g}s")
        begins = np.arange(0, seconds, every).repeat(count)
        drawn = np.random.default_rng(seed).uniform(0, within, begins.size)
        return Arrivals.at(np.sort(begins + drawn), title)

    @staticmethod
    def of(text: str) -> Arrivals:
        """`trace.csv`, `poisson:200,seconds=60,seed=1` or `burst:32,every=1s,within=10ms,seconds=60,seed=1`. Raises
        ServingError and OSError."""
        kind, colon, rest = text.partition(":")
        if colon and kind in _DRAWN:
            first, *more = rest.split(",")
            options = _options(text, more, ("seconds", "seed", *(("every", "within") if kind == "burst" else ())))
            return _DRAWN[kind](_number(text, first, kind == "burst"), **options)
        if Path(text).suffix.lower() != ".csv":
            raise ServingError(f"{text}: arrivals are a .csv file, poisson:RATE or burst:COUNT")
        return Arrivals.read(text)

    @staticmethod
    def read(path: FilePath) -> Arrivals:
        """A table with a line for each request and a column `seconds`; it may have `entry`, `size` (items, 1 where it
        is empty) and `deadline` (seconds after the arrival, none where it is empty). Raises ServingError, which names
        the line, and OSError."""
        times, sizes, entries, deadlines = list[float](), list[int](), list[int](), list[float]()
        names: dict[str, int] = {}
        last = 0.0
        for line, time, entry, size, after in _rows(path):
            found = _finite(path, line, "seconds", time)
            if found < last and times:
                raise ServingError(f"{path}:{line}: {found:g} seconds is before the line above, {last:g}")
            if len(times) == MOST_ARRIVALS:
                raise ServingError(f"{path}:{line}: no more than {MOST_ARRIVALS:,} arrivals are read")
            times.append(found)
            last = found
            sizes.append(_items(path, line, size) if size else 1)
            entries.append(names.setdefault(entry, len(names)))
            if len(names) > MOST_ENTRIES:
                raise ServingError(f"{path}:{line}: no more than {MOST_ENTRIES:,} entries are read")
            deadlines.append(_finite(path, line, "deadline", after) if after else math.inf)
        _check_count(str(path), len(times))
        if "" in names and len(names) > 1:
            raise ServingError(f"{path}: some lines have no entry, and others have one")
        columns = np.array(sizes), np.array(entries), tuple(names), np.array(deadlines)
        return Arrivals(np.array(times), *columns, str(path))

    @property
    def rate(self) -> float:
        """Requests per second from the first to the last; 0 where all arrive at once."""
        span = float(self.seconds[-1] - self.seconds[0])
        return (len(self.seconds) - 1) / span if span else 0.0


_DRAWN: dict[str, Any] = {"poisson": Arrivals.poisson, "burst": Arrivals.burst}


def _check_count(title: str, count: int) -> None:
    if not 0 < count <= MOST_ARRIVALS:
        said = "no request arrives" if not count else f"no more than {MOST_ARRIVALS:,} arrivals are simulated"
        raise ServingError(f"{title}: {said}")


def _check_drawn(title: str, positive: float, seconds: float, count: float) -> None:
    """Raises ServingError before anything is drawn that is endless."""
    if not (0 < positive < math.inf and 0 < seconds < math.inf):
        raise ServingError(f"{title}: rates and times are finite and above 0")
    if count > MOST_ARRIVALS:
        raise ServingError(f"{title}: {count:,.0f} arrivals are asked for, and {MOST_ARRIVALS:,} are the most")


# -- text ----------------------------------------------------------------------------------------------------


def _options(text: str, parts: list[str], known: tuple[str, ...]) -> dict[str, Any]:
    """`seconds=60` and the like. Raises ServingError."""
    found: dict[str, Any] = {}
    for part in parts:
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in known or name in found:
            again = "is said twice" if name in found else f"is not known{suggestion(name, known)}"
            raise ServingError(f"{text}: {name!r} {again}; there are {', '.join(known)}")
        if name == "seed":
            found[name] = int(_number(text, value, whole=True))
            continue
        try:
            found[name] = seconds_in(value)
        except ValueError as error:
            raise ServingError(f"{text}: {name}: {error}") from None
    return found


def _number(text: str, said: str, whole: bool) -> Any:
    """A number that a text says. Raises ServingError."""
    if whole and re.fullmatch(r"\s*[0-9]{1,18}\s*", said):
        return int(said)
    if not whole and re.fullmatch(r"\s*[0-9]{1,18}(\.[0-9]+)?\s*", said):
        return float(said)
    raise ServingError(f"{text}: {said!r} is no {'whole ' if whole else ''}number")


# -- tables --------------------------------------------------------------------------------------------------


def _rows(path: FilePath) -> Iterator[tuple[int, str, str, str, str]]:
    """The lines of a table below its header: the number of each, and its values of `COLUMNS`, empty where it has
    none."""
    with open_plain(path) as stream:
        reader = csv.reader(_lines(stream, path), strict=True)
        try:
            header = [name.strip() for name in next(reader, ())]
            if "seconds" not in header:
                raise ServingError(f"{path}:1: the header has no column seconds")
            twice = [name for name in COLUMNS if header.count(name) > 1]
            if twice:
                raise ServingError(f"{path}:1: the header has {twice[0]} twice")
            first, *more = (header.index(name) if name in header else len(header) for name in COLUMNS)
            entry, size, deadline = more
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    said = f"{len(row)} values, and the header has {len(header)}"
                    raise ServingError(f"{path}:{reader.line_num}: {said}")
                row.append("")  # of columns that there are not
                yield reader.line_num, row[first], row[entry].strip(), row[size].strip(), row[deadline].strip()
        except csv.Error as error:
            raise ServingError(f"{path}:{reader.line_num}: {error}") from None


def _lines(stream: BufferedReader, path: FilePath) -> Iterator[str]:
    """The lines of a file as text. Raises ServingError for what is none, and for a line without an end."""
    for number, line in enumerate(iter(partial(stream.readline, MOST_LINE), b""), 1):
        if len(line) == MOST_LINE:
            raise ServingError(f"{path}:{number}: the line is longer than any of a table")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise ServingError(f"{path}:{number}: it is not UTF-8") from None


def _finite(path: FilePath, line: int, column: str, text: str) -> float:
    """Raises ServingError for what is no finite number of at least 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        said = f"{column} is {quoted(text.strip())}, and has to be a finite number of at least 0"
        raise ServingError(f"{path}:{line}: {said}")
    return found


def _items(path: FilePath, line: int, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or not 0 < int(text) <= MOST_ITEMS:
        raise ServingError(f"{path}:{line}: size is {quoted(text)}, and has to be 1 to {MOST_ITEMS:,} items")
    return int(text)
