"""The knowledge base: one SQLite file with the best plan that is known of each kernel.

A plan is found by the fingerprint of its kernel, which has all numbers of the machine in it, and by the version of the
price. What stands in a file decides how fast a program is, never what it computes: a plan is checked before it is
taken, and one that cannot be read is none. Several processes may write at once; a write that was cut off leaves what
was there before.
"""

from __future__ import annotations

import json
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from .goals import LATENCY, Goal

VERSION = 2
"""Of the tables of a file."""

APPLICATION = 0x54574B42
"""What SQLite notes in the head of a file of ours."""

DECISIONS = "decisions"
"""The family of entries that are decisions about fusions: their plan is the name of an option."""

PATIENCE = 30.0
"""Seconds that a write waits for those of others."""


class KnowledgeWarning(UserWarning):
    """A knowledge base, or an entry of it, is not used; the message is one sentence."""


class KnowledgeError(Exception):
    """A knowledge base cannot be written or read as asked; the message is one sentence."""


@dataclass(frozen=True)
class Entry:
    """What is known of a kernel, or of a decision of the compiler about fusions: its plan is an option of that then,
    and times are those of the program for which it was found.

    Attributes:
        kernel: Its fingerprint, 64 hexadecimal digits, or the key of a decision.
        price: The version of the price that judged.
        goal: What it is good for, as the text of a goal (goals.py).
        joined: Whether the plan is the best one for a stage of a launch of several, where the start of cores is not
            counted; else for a launch by itself.
        plan: The schedule, as text, or the option of a decision.
        microseconds: What a launch takes with it by itself, or its work where it is joined, as `judge` says.
        joules: The energy of that, modelled; 0 where the judge does not say.
        before: The microseconds with the plan that graph-schedule chooses.
        scaled: What the price would have to say of a launch by itself, for the two to compare as the judge says.
        bound: What no plan takes less than, by the price; 0 where nothing is proven.
        priced: What the price says of the best plan by the price.
        certified: Whether it is proven that no plan has a lower price.
        withdrawn: Whether it made its program no better: no compilation takes it.
        judge: Who said what it takes.
        how: How it was found, in a few words.
        name: What the kernel is called.
        machine: The chip's name.
        family: What kernels have in common that differ in sizes alone.
        sizes: Its sizes, in an order that is the same for all of a family.
        seconds: When it was found, in seconds since 1970.
    """

    kernel: str
    price: str
    goal: str
    joined: bool
    plan: str
    microseconds: float
    joules: float
    before: float
    scaled: float
    bound: float
    priced: float
    certified: bool
    withdrawn: bool
    judge: str
    how: str
    name: str
    machine: str
    family: str
    sizes: tuple[int, ...]
    seconds: float = 0.0

    @property
    def value(self) -> float:
        """What is to be least, as its goal has it. Raises ValueError."""
        return Goal.parse(self.goal).value(self.microseconds, self.joules or None)

    def to_json(self) -> dict[str, Any]:
        """As a line of an exported file has it."""
        return asdict(self)

    @staticmethod
    def of_json(given: Mapping[str, Any]) -> Entry:
        """Raises KnowledgeError for what is no entry."""
        if not isinstance(given, dict):
            raise KnowledgeError("an entry of plans is a table of JSON")
        try:
            made = {f.name: given[f.name] for f in fields(Entry)}
            entry = Entry(**{**made, "sizes": tuple(made["sizes"])})
        except (KeyError, TypeError) as error:
            raise KnowledgeError(f"an entry of plans lacks {error}") from None
        if (wrong := entry.fault()) is not None:
            raise KnowledgeError(f"an entry of plans has {wrong}")
        return entry

    def fault(self) -> str | None:
        """What is wrong with it, as the rest of a sentence."""
        for f in fields(self):
            value = getattr(self, f.name)
            if f.type == "str" and not isinstance(value, str):
                return f"no text as its {f.name}"
            if f.type == "float" and not (isinstance(value, int | float) and isfinite(value) and value >= 0):
                return f"no time as its {f.name}"
        if not all(isinstance(n, int) for n in self.sizes):
            return "no numbers as its sizes"
        try:
            Goal.parse(self.goal)
        except ValueError as error:
            return f"no goal: {error}"
        return None


_COLUMNS = [f.name for f in fields(Entry)]
_VALUE = "value"
"""The column of what is to be least, which follows from others."""


class Plans(Protocol):
    """Where plans are known from."""

    def find(self, kernel: str, price: str, goal: str = LATENCY) -> list[Entry]:
        """What is known of a kernel."""
        ...

    def warn(self, what: str) -> None:
        """Is told what is wrong with an entry."""
        ...


class KnowledgeBase:
    """A file of plans. One that is not there is empty, and made by the first write."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._refused = False

    # -- reading -----------------------------------------------------------------------------------------------

    def find(self, kernel: str, price: str, goal: str = LATENCY) -> list[Entry]:
        """What is known of a kernel: for a launch by itself, and for a stage of one."""
        found = self._read("kernel = ? AND price = ? AND goal = ?", (kernel, price, goal))
        return sorted(found, key=lambda e: e.joined)

    def family(self, family: str, price: str, goal: str, machine: str) -> list[Entry]:
        """What is known of kernels that differ in sizes alone."""
        given = family, price, goal, machine
        return [*self._read("family = ? AND price = ? AND goal = ? AND machine = ?", given)]

    def entries(self) -> list[Entry]:
        """All of them, by machine and name."""
        return sorted(self._read("1", ()), key=lambda e: (e.machine, e.name, e.kernel, e.price, e.goal))

    def stamp(self) -> str:
        """What changes with each write: a part of keys of what is compiled with it."""
        return "".join(str(writes) for (writes,) in self._rows("SELECT writes FROM state"))

    def _read(self, condition: str, given: tuple[str, ...]) -> Iterator[Entry]:
        for row in self._rows(f"SELECT {', '.join(_COLUMNS)} FROM plans WHERE {condition}", given):
            values = dict(zip(_COLUMNS, row, strict=True))
            try:
                flags = {name: bool(values[name]) for name in ("certified", "joined", "withdrawn")}
                yield Entry.of_json({**values, **flags, "sizes": json.loads(values["sizes"])})
            except (KnowledgeError, OverflowError, RecursionError, TypeError, ValueError):
                self.warn(f"an entry for {values['name']!r} cannot be read, and is left out")

    def _rows(self, query: str, given: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
        """What a query finds; nothing, with one warning, where the file is none of ours or damaged."""
        if self._refused or not self.path.exists():
            return []
        # to be written, where it may be: what a write that was cut off has left is taken back
        place = f"{self.path.resolve().as_uri()}?mode=rw"
        try:
            with closing(sqlite3.connect(place, uri=True, timeout=PATIENCE)) as db:
                self._check(db)
                return db.execute(query, given).fetchall()
        except (sqlite3.DatabaseError, KnowledgeError) as error:
            self._refused = True
            self.warn(f"it is not used: {error}")
            return []

    def _check(self, db: sqlite3.Connection) -> None:
        """Raises KnowledgeError for a file that is none of ours."""
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise KnowledgeError("it is no knowledge base of plans")
        if (version := db.execute("PRAGMA user_version").fetchone()[0]) != VERSION:
            raise KnowledgeError(f"it is of version {version}, and {VERSION} is read")

    def warn(self, what: str) -> None:
        """One line about it."""
        warnings.warn(f"plans: {self.path}: {what}", KnowledgeWarning, stacklevel=3)

    # -- writing -----------------------------------------------------------------------------------------------

    def add(self, entries: Iterable[Entry], always: bool = False) -> int:
        """Keeps entries, of one kernel and goal the one that is best for it, or the new one `always`; how many were
        kept. Raises KnowledgeError where the file cannot be written."""
        rows, written = [self._row(e) for e in entries], [*_COLUMNS, _VALUE]
        marks = ", ".join("?" * len(written))
        better = "excluded.value < plans.value OR (excluded.certified > plans.certified AND "
        better += "excluded.value <= plans.value)"
        better = "TRUE" if always else better
        sets = ", ".join(f"{name} = excluded.{name}" for name in written)
        upsert = (
            f"INSERT INTO plans ({', '.join(written)}) VALUES ({marks}) "
            f"ON CONFLICT (kernel, price, goal, joined) DO UPDATE SET {sets} WHERE {better}"
        )
        with self._writing() as db:
            before = db.total_changes
            db.executemany(upsert, rows)
            return db.total_changes - before
        return 0

    def _row(self, entry: Entry) -> tuple[Any, ...]:
        given = asdict(entry) | {"seconds": entry.seconds or time.time(), "sizes": json.dumps(entry.sizes)}
        return (*(given[name] for name in _COLUMNS), entry.value)

    def remove(self, kernels: Iterable[str]) -> int:
        """Forgets what is known of kernels; how many entries went. Raises KnowledgeError."""
        with self._writing() as db:
            before = db.total_changes
            db.executemany("DELETE FROM plans WHERE kernel = ?", [(k,) for k in kernels])
            return db.total_changes - before
        return 0

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """The file within a transaction that is there as a whole, or not at all."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    self._make(db)
                    yield db
                    db.execute("UPDATE state SET writes = writes + 1")
                    db.execute("COMMIT")
                except BaseException:
                    db.execute("ROLLBACK")
                    raise
        except (sqlite3.DatabaseError, OSError) as error:
            raise KnowledgeError(f"plans: {self.path} cannot be written: {error}") from None

    def _make(self, db: sqlite3.Connection) -> None:
        """The tables of a file that has none. Raises KnowledgeError for a file that is none of ours."""
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            try:
                self._check(db)
            except KnowledgeError as error:
                raise KnowledgeError(f"plans: {self.path} cannot be written: {error}") from None
            return
        kinds = {"str": "TEXT", "float": "REAL", "bool": "INTEGER"}
        columns = ", ".join(f"{f.name} {kinds.get(str(f.type), 'TEXT')} NOT NULL" for f in fields(Entry))
        columns += f", {_VALUE} REAL NOT NULL, PRIMARY KEY (kernel, price, goal, joined)"
        db.execute(f"CREATE TABLE plans ({columns}) WITHOUT ROWID")
        db.execute("CREATE INDEX families ON plans (family, price, machine)")
        db.execute("CREATE TABLE state (writes INTEGER NOT NULL)")
        db.execute("INSERT INTO state VALUES (0)")
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {VERSION}")

    # -- files of lines ----------------------------------------------------------------------------------------

    def export(self) -> Iterator[str]:
        """Its entries as lines of JSON, in an order that does not change."""
        for entry in self.entries():
            yield json.dumps(entry.to_json(), sort_keys=True)


def read_lines(lines: Iterable[str], source: str) -> Iterator[Entry]:
    """The entries in lines of JSON. Raises KnowledgeError that names the line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield Entry.of_json(json.loads(line))
        except RecursionError:
            raise KnowledgeError(f"{source}, line {number}: it is nested too deeply") from None
        except (ValueError, OverflowError, KnowledgeError, AttributeError, TypeError) as error:
            raise KnowledgeError(f"{source}, line {number}: {error}") from None
