"""The database of a fleet: one SQLite file. Every change is a transaction that is there as a whole or not at all, and
says in the audit log what it did. Several processes may write at once."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..modelfile.manifest import canonical
from ..support.files import open_plain
from .policy import FleetError

VERSION = 1
"""Of the tables of a file."""

APPLICATION = 0x5457464C
"""What SQLite notes in the head of a file of ours."""

PATIENCE = 30.0
"""Seconds that a write waits for those of others."""

MEMORY = ":memory:"
"""The path of a database without a file, for simulations."""

SCHEMA = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE devices (
    name TEXT PRIMARY KEY, region TEXT NOT NULL, chip TEXT NOT NULL,
    key TEXT, token TEXT,                                -- the public key, and the token of enrolment until it reports
    seen REAL, stamp INTEGER NOT NULL DEFAULT 0,         -- its last report, and its last request
    running INTEGER NOT NULL DEFAULT 0,                  -- the sequence that it runs, 0 for none
    wanted INTEGER NOT NULL DEFAULT 0,                   -- the one that it is to run
    hold REAL NOT NULL DEFAULT 0,                        -- no orders before
    CHECK (key IS NOT NULL OR token IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE TABLE releases (
    sequence INTEGER PRIMARY KEY CHECK (sequence > 0), sha256 TEXT NOT NULL, manifest TEXT NOT NULL,
    size INTEGER NOT NULL, path TEXT NOT NULL, key TEXT NOT NULL,
    withdrawn INTEGER NOT NULL DEFAULT 0                 -- rolled back: offered to nobody
) STRICT;
CREATE TABLE rollouts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, release INTEGER NOT NULL REFERENCES releases, policy TEXT NOT NULL,
    groups TEXT NOT NULL, canary TEXT, canary_path TEXT, entry TEXT, force INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'stopping', 'stopped')),
    stage INTEGER NOT NULL, "full" REAL, why TEXT NOT NULL, begun REAL NOT NULL
) STRICT;
CREATE TABLE assignments (
    rollout INTEGER NOT NULL REFERENCES rollouts, device TEXT NOT NULL REFERENCES devices, stage INTEGER NOT NULL,
    before INTEGER NOT NULL,                             -- what it was to run, and comes back to
    state TEXT NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'offered', 'running', 'failed', 'leaving', 'back', 'skipped')),
    given REAL,                                          -- since when it has the order
    fault TEXT NOT NULL DEFAULT '', why TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (rollout, device)
) STRICT, WITHOUT ROWID;
CREATE INDEX assigned ON assignments (device, state);
CREATE TABLE orders (
    number INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL, kind TEXT NOT NULL, source INTEGER NOT NULL,
    target INTEGER NOT NULL, body BLOB NOT NULL, signature TEXT NOT NULL, valid REAL NOT NULL
) STRICT;
CREATE INDEX ordered ON orders (device, source, target);
CREATE TABLE health (
    time REAL NOT NULL, device TEXT NOT NULL REFERENCES devices, release INTEGER NOT NULL REFERENCES releases,
    latency REAL, calls INTEGER NOT NULL, errors INTEGER NOT NULL, digest TEXT, error REAL, wrong INTEGER NOT NULL
) STRICT;
CREATE INDEX reported ON health (release, time);
CREATE INDEX aged ON health (time);
CREATE TABLE audit (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, what TEXT NOT NULL, about TEXT NOT NULL, before TEXT NOT NULL,
    sha256 TEXT NOT NULL
) STRICT;
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_keeps BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
"""


class FleetBase:
    """A file of a fleet that is open."""

    def __init__(self, path: str | Path, make: bool = False) -> None:
        """make: writes a new one. Raises FleetError for a file that is none of ours, is damaged, or is there already,
        and OSError."""
        self.path = path
        self._lock = threading.RLock()
        self._depth = 0
        if make and path != MEMORY:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        elif not make:
            open_plain(path).close()
        place = path if path == MEMORY else os.path.abspath(path)
        self._db = sqlite3.connect(place, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            with self._as_sentence():
                self._db.execute("PRAGMA foreign_keys = ON")
                if make:
                    self._db.execute("PRAGMA journal_mode = WAL")
                    with self.transaction() as db:
                        for statement in _statements(SCHEMA):
                            db.execute(statement)
                        db.execute(f"PRAGMA application_id = {APPLICATION}")
                        db.execute(f"PRAGMA user_version = {VERSION}")
                self._check()
        except BaseException:
            self._db.close()
            if make and path != MEMORY:
                self.remove()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def remove(self) -> None:
        """Removes the file that is closed, and what SQLite has beside it. Raises OSError."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _check(self) -> None:
        """Raises FleetError for a file that is none of ours."""
        if self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise FleetError(f"{self.path}: it is no database of a fleet; tilewright fleet init makes one")
        if (version := self._db.execute("PRAGMA user_version").fetchone()[0]) != VERSION:
            raise FleetError(f"{self.path}: it is of version {version}, and {VERSION} is read")

    @contextmanager
    def _as_sentence(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise FleetError(f"{self.path}: it is no database of a fleet, or cannot be used: {error}") from None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """What is done inside is there as a whole, or not at all; one inside of another is a part of it. Raises
        FleetError where the file cannot be written."""
        with self._lock, self._as_sentence():
            if self._depth:
                yield self._db
                return
            self._db.execute("BEGIN IMMEDIATE")
            self._depth = 1
            try:
                yield self._db
                self.commit()
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._depth = 0

    def commit(self) -> None:
        """Ends a transaction."""
        self._db.execute("COMMIT")

    def rows(self, query: str, *given: Any) -> list[tuple[Any, ...]]:
        """What a query finds. Raises FleetError."""
        with self._lock, self._as_sentence():
            return self._db.execute(query, given).fetchall()

    def setting(self, name: str) -> str:
        """What `fleet init` has said. Raises FleetError."""
        found = self.rows("SELECT value FROM settings WHERE name = ?", name)
        if not found:
            raise FleetError(f"{self.path}: it has no {name}")
        return found[0][0]

    # -- the audit log -----------------------------------------------------------------------------------------

    def audit(self, time: float, what: str, **about: Any) -> None:
        """Adds a row to the log, within a transaction. time: in seconds since 1970."""
        last = self.rows("SELECT number, sha256 FROM audit ORDER BY number DESC LIMIT 1")
        number, before = last[0] if last else (0, "")
        text = canonical(about).decode()
        row = number + 1, float(time), what, text, before
        self._db.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", (*row, _link(*row)))

    def audited(self) -> list[dict[str, Any]]:
        """The log, after its chain is checked. Raises FleetError that names the first row that is not as it was
        written."""
        found: list[dict[str, Any]] = []
        head = ""
        for row in self.rows("SELECT number, time, what, about, before, sha256 FROM audit ORDER BY number"):
            number, time, what, about, before, digest = row
            if number != len(found) + 1 or before != head or digest != _link(*row[:5]):
                raise FleetError(f"{self.path}: row {len(found) + 1} of the audit log is not as it was written")
            head = digest
            found.append({"number": number, "time": time, "what": what, "about": json.loads(about), "sha256": digest})
        return found


def _link(number: int, time: float, what: str, about: str, before: str) -> str:
    """The SHA-256 of a row of the audit log, which has that of the one before in it."""
    return sha256(canonical([number, time, what, about, before])).hexdigest()


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: sqlite3 would end the transaction before it runs a script."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
