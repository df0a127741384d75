"""The controller of a fleet: what is done with reports and with time, each in one transaction of the database. What is
decided is in judging.py and stages.py; a controller that was killed goes on from the database."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .base import FleetBase
from .judging import DONE, LOST, RUNNING, STOPPING, Evidence, Progress, step
from .orders import INSTALL, ORDER, ROLLBACK, VALID, Canary, FleetOrder, Key
from .policy import NAME, DeviceGroups, FleetError, Policy
from .releases import Release
from .reports import MOST, DeviceReport
from .stages import DevicePlace, stages_of

KEPT = 3600.0
"""Seconds that performance logs are kept."""

POLL = 10.0
"""Seconds between the reports of a device."""

AGAIN = 20.0
"""Seconds before an order is made again for who says to be done with it and does not run what it is to run."""

Now = float
"""Seconds since 1970, or of a model."""


@dataclass(frozen=True)
class Answer:
    """What a device is told: an order and its signature, or none, and after how many seconds to report again."""

    order: tuple[bytes, str] | None
    poll: float

    def to_json(self) -> dict[str, Any]:
        """The body of an answer."""
        order = None if self.order is None else {"body": self.order[0].decode(), "signature": self.order[1]}
        return {"order": order, "poll": self.poll}


class _Device(NamedTuple):
    name: str
    region: str
    chip: str
    running: int
    wanted: int
    hold: float


class Controller:
    """Who decides for the devices of a database. key: signs orders; poll: how often devices report, in seconds."""

    def __init__(self, base: FleetBase, key: Key, poll: float = POLL) -> None:
        self.base, self.key, self.poll = base, key, poll

    # -- what people ask for -----------------------------------------------------------------------------------

    def add(self, places: Sequence[DevicePlace], now: Now) -> dict[str, str]:
        """Adds devices, all or none; the tokens that they enrol with. Raises FleetError."""
        tokens = {place.name: secrets.token_hex(16) for place in places}
        with self.base.transaction() as db:
            known = {name for (name,) in db.execute("SELECT name FROM devices")}
            for place in places:
                for what, name in place._asdict().items():
                    if NAME.fullmatch(name) is None:
                        what = "name" if what == "name" else f"{what} of {place.name}"
                        raise FleetError(f"{name!r} cannot be the {what}: letters, digits, dots, - and _, at most 64")
                if place.name in known:
                    raise FleetError(f"there is a device {place.name} already")
                known.add(place.name)
                db.execute(
                    "INSERT INTO devices (name, region, chip, token) VALUES (?, ?, ?, ?)", (*place, tokens[place.name])
                )
            self.base.audit(now, "added", devices=[list(place) for place in places])
            done = "SELECT id FROM rollouts JOIN releases ON sequence = release WHERE state = 'done' AND NOT withdrawn"
            for (rollout,) in self.base.rows(f"{done} ORDER BY release"):
                self._adopt(rollout)
        return tokens

    def _adopt(self, rollout: int) -> None:
        """Has devices that were added since a rollout began take its release, which is done, within a transaction."""
        with self.base.transaction() as db:
            ((release, groups, policy),) = self.base.rows(
                "SELECT release, groups, policy FROM rollouts WHERE id = ?", rollout
            )
            later = self.base.rows(
                "SELECT name, region, chip, wanted FROM devices WHERE wanted < ? AND NOT EXISTS (SELECT 1 FROM "
                "assignments JOIN rollouts ON id = rollout WHERE device = name AND "
                "(rollout = ? OR rollouts.state IN ('running', 'stopping')))",
                *(release, rollout),
            )
            for name, region, chip, wanted in later:
                if _groups(groups).has(region, chip):
                    last = len(Policy.of_json(policy).shares) - 1
                    for statement, given in (
                        ("UPDATE assignments SET state = 'skipped' WHERE device = ? AND state = 'offered'", (name,)),
                        ("UPDATE devices SET hold = 0, wanted = ? WHERE name = ?", (release, name)),
                        ("INSERT INTO assignments (rollout, device, stage, before, state) "
                         "VALUES (?, ?, ?, ?, 'offered')", (rollout, name, last, wanted)),
                    ):  # fmt: skip
                        db.execute(statement, given)

    def enrol(self, name: str, public: str, now: Now) -> None:
        """Notes the public key of a device; its token is good until it reports, as it may not hear the answer."""
        with self.base.transaction() as db:
            db.execute("UPDATE devices SET key = ? WHERE name = ?", (public, name))
            self.base.audit(now, "enrolled", device=name, key=public)

    def begin(
        self,
        release: Release,
        policy: Policy,
        groups: DeviceGroups,
        now: Now,
        canary: Canary | None = None,
        canary_path: Path | None = None,
        entry: str | None = None,
        force: bool = False,
    ) -> int:
        """Begins to roll a release out; the number of the rollout. force: also one that was rolled back. Raises
        FleetError where that cannot be."""
        policy.check()
        with self.base.transaction() as db:
            self._register(release, force)
            wanted: dict[str, int] = {}
            places, silent = list[DevicePlace](), set[str]()
            every = self.base.rows("SELECT name, region, chip, wanted, ifnull(seen, 0) FROM devices")
            for name, region, chip, now_wanted, seen in every:
                if seen < now - policy.heartbeat:
                    silent.add(name)
                if groups.has(region, chip):
                    release.check_chip(chip, name)
                    wanted[name] = now_wanted
                    places.append(DevicePlace(name, region, chip))
            if not places:
                raise FleetError("no device is in these groups")
            busy = self.base.rows(
                "SELECT id, device, rollouts.state = 'stopping' FROM rollouts JOIN assignments ON rollout = id "
                "WHERE rollouts.state IN ('running', 'stopping')"
            )
            for number, name, stopping in busy:
                if name in wanted:
                    what = "is being taken back: wait" if stopping else "has not ended: wait, or roll it back"
                    raise FleetError(f"{name} is in rollout {number}, which {what}")
            newer = [name for name, sequence in wanted.items() if sequence >= release.sequence]
            if newer:
                said = f"{newer[0]} is to run release {wanted[newer[0]]}"
                raise FleetError(f"{said}, and {release.sequence} is not above: fleet rollback --to goes back")
            made = db.execute(
                "INSERT INTO rollouts (release, policy, groups, canary, canary_path, entry, force, state, stage, why, "
                "begun) VALUES (?, ?, ?, ?, ?, ?, ?, 'running', -1, '', ?)",
                (
                    release.sequence,
                    policy.to_json(),
                    json.dumps(asdict(groups)),
                    None if canary is None else json.dumps(asdict(canary)),
                    None if canary_path is None else str(canary_path.resolve()),
                    entry,
                    force,
                    now,
                ),
            )
            rollout = made.lastrowid
            assert rollout is not None
            stages = stages_of(places, policy.shares, f"{rollout} {release.sha256}", silent)
            db.executemany(
                "INSERT INTO assignments (rollout, device, stage, before) VALUES (?, ?, ?, ?)",
                [(rollout, name, stage, wanted[name]) for name, stage in sorted(stages.items())],
            )
            self.base.audit(now, "rollout", rollout=rollout, release=release.sequence, sha256=release.sha256,
                            groups=asdict(groups), devices=len(places), policy=policy.to_json())  # fmt: skip
            self._move(rollout, release.sequence, Progress(stage=-1), Progress(), now)
        return rollout

    def _register(self, release: Release, force: bool) -> None:
        """Notes a release, within a transaction. Raises FleetError for another file with its number, and for one that
        was rolled back."""
        known = self.base.rows("SELECT sha256, withdrawn FROM releases WHERE sequence = ?", release.sequence)
        if known and known[0][0] != release.sha256:
            raise FleetError(f"{release.path}: release {release.sequence} is another file: give it a number of its own")
        if known and known[0][1] and not force:
            raise FleetError(f"release {release.sequence} was rolled back: --force offers it again")
        with self.base.transaction() as db:
            db.execute(
                "INSERT INTO releases (sequence, sha256, manifest, size, path, key) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET withdrawn = 0, path = excluded.path",
                (release.sequence, release.sha256, release.manifest, release.size, release.path, release.key),
            )

    def rollback(self, now: Now, to: int | None = None, why: str = "asked for") -> list[int]:
        """Stops rollouts, and has their devices go back: the last one that was not, to what each device had before; or
        all of releases above `to`, to that one. The numbers of the rollouts. Raises FleetError."""
        with self.base.transaction() as db:
            open_ = "SELECT id, release FROM rollouts WHERE state IN ('running', 'done')"
            found = self.base.rows(f"{open_} ORDER BY id DESC LIMIT 1")
            if to is not None:
                number = to if 0 <= to <= MOST else -1
                known = self.base.rows("SELECT withdrawn FROM releases WHERE sequence = ?", number)
                if to and (not known or known[0][0]):
                    what = "was rolled back itself" if known else "is none of this fleet"
                    raise FleetError(f"--to {to}: this release {what}")
                found = self.base.rows(f"{open_} AND release > ? ORDER BY id", to)
            if not found:
                raise FleetError("there is no rollout to take back")
            for rollout, release in found:
                if to is not None:
                    db.execute("UPDATE assignments SET before = min(before, ?) WHERE rollout = ?", (to, rollout))
                at = self._progress(rollout)
                self._move(rollout, release, at, Progress(STOPPING, at.stage, at.full, why), now)
        return [rollout for rollout, _ in found]

    # -- time --------------------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Moves each rollout on, as what is known of it says."""
        active = self.base.rows("SELECT id, release, policy FROM rollouts WHERE state IN ('running', 'stopping')")
        for rollout, release, policy in active:
            with self.base.transaction():
                at = self._progress(rollout)
                limits = Policy.of_json(policy)
                then = step(limits, at, self._evidence(rollout, release, limits, at, now), now)
                if then != at:
                    self._move(rollout, release, at, then, now)
        with self.base.transaction() as db:
            db.execute("DELETE FROM health WHERE time < ?", (now - KEPT,))

    def _progress(self, rollout: int) -> Progress:
        (row,) = self.base.rows('SELECT state, stage, "full", why FROM rollouts WHERE id = ?', rollout)
        return Progress(*row)

    def _move(self, rollout: int, release: int, at: Progress, then: Progress, now: Now) -> None:
        """Writes a transition and what follows from it, within a transaction."""
        with self.base.transaction() as db:
            db.execute(
                'UPDATE rollouts SET state = ?, stage = ?, "full" = ?, why = ? WHERE id = ?',
                (then.state, then.stage, then.full, then.why, rollout),
            )
            if then.state == RUNNING and then.stage > at.stage:
                opened = "SELECT device FROM assignments WHERE rollout = ?1 AND state = 'waiting' AND stage <= ?2"
                for statement in (
                    "UPDATE assignments SET state = 'skipped' WHERE rollout <> ?1 AND state IN ('offered', 'leaving') "
                    f"AND device IN ({opened})",
                    "UPDATE devices SET hold = 0, wanted = (SELECT release FROM rollouts WHERE id = ?1) "
                    f"WHERE name IN ({opened})",
                    f"UPDATE assignments SET state = 'offered' WHERE rollout = ?1 AND device IN ({opened})",
                ):
                    db.execute(statement, (rollout, then.stage))
                self.base.audit(now, "stage", rollout=rollout, release=release, stage=then.stage)
            elif then.state == STOPPING:
                db.execute(
                    "UPDATE devices SET hold = 0, wanted = (SELECT before FROM assignments WHERE rollout = ?1 AND "
                    "device = name) WHERE name IN (SELECT device FROM assignments WHERE rollout = ?1) AND wanted = ?2",
                    (rollout, release),
                )
                db.execute(
                    "UPDATE assignments SET state = iif(state IN ('offered', 'running') AND given IS NOT NULL "
                    "OR device IN (SELECT name FROM devices WHERE running = ?2), 'leaving', 'skipped') "
                    "WHERE rollout = ?1 AND state IN ('waiting', 'offered', 'running', 'skipped')",
                    (rollout, release),
                )
                db.execute(
                    "UPDATE assignments SET before = mine.before FROM assignments mine WHERE mine.rollout = ?1 AND "
                    "mine.device = assignments.device AND assignments.rollout <> ?1 AND assignments.before = ?2",
                    (rollout, release),
                )
                db.execute("UPDATE releases SET withdrawn = 1 WHERE sequence = ?", (release,))
                self.base.audit(now, "stopped", rollout=rollout, release=release, why=then.why)
                others = "SELECT id FROM rollouts WHERE release = ? AND state IN ('running', 'done')"
                for (other,) in self.base.rows(others, release):
                    was = self._progress(other)
                    why = f"rollout {rollout} of this release was stopped"
                    self._move(other, release, was, Progress(STOPPING, was.stage, was.full, why), now)
            elif then.state != at.state:
                if then.state == DONE:
                    self._adopt(rollout)
                self.base.audit(now, "ended", rollout=rollout, release=release, state=then.state)

    def _evidence(self, rollout: int, release: int, policy: Policy, at: Progress, now: Now) -> Evidence:
        """What is known of a release in its rollout, within a transaction."""
        lately = now - policy.heartbeat
        if at.state == STOPPING:
            query = "SELECT count(*) FROM assignments JOIN devices ON name = device WHERE rollout = ? AND "
            ((leaving,),) = self.base.rows(f"{query} assignments.state = 'leaving' AND seen >= ?", rollout, lately)
            return Evidence(leaving=leaving)
        ((begun,),) = self.base.rows("SELECT begun FROM rollouts WHERE id = ?", rollout)
        ((offered, given, running, pending, failed, left, lost, example),) = self.base.rows(
            "SELECT count(*), count(given), sum(state = 'running'), sum(state = 'offered' AND seen >= ?2), "
            "sum(state = 'failed' AND fault <> ?4), sum(state = 'failed'), "
            "sum(iif(state = 'failed', fault = ?4, seen < ?2 AND (state = 'running' OR given < ?3))), "
            "max(iif(fault = ?4, '', why)) FROM assignments JOIN devices ON name = device "
            "WHERE rollout = ?1 AND state IN ('offered', 'running', 'failed')",
            *(rollout, lately, now - policy.install, LOST),
        )
        logs = self.base.rows(
            "SELECT chip, device, latency, calls, errors, wrong, time FROM health CROSS JOIN devices ON name = device "
            "WHERE release = ?2 AND time >= ?3 AND EXISTS (SELECT 1 FROM assignments a WHERE a.rollout = ?1 AND "
            "a.device = health.device AND a.state = 'running')",
            *(rollout, release, max(begun, now - policy.window)),
        )
        new: dict[str, list[float]] = defaultdict(list)
        for chip, _, latency, *_ in logs:
            if latency is not None:
                new[chip].append(latency)
        before: dict[str, list[float]] = defaultdict(list)
        for chip, latency in self.base.rows(
            "SELECT chip, latency FROM health CROSS JOIN devices ON name = health.device WHERE "
            "release IN (SELECT DISTINCT before FROM assignments WHERE rollout = ?1) AND time BETWEEN ?2 AND ?3 "
            "AND latency IS NOT NULL AND EXISTS (SELECT 1 FROM assignments a WHERE a.rollout = ?1 AND "
            "a.device = health.device AND a.before = release)",
            *(rollout, begun - policy.window, begun),
        ):
            before[chip].append(latency)
        wrong = {device for _, device, _, _, _, bad, _ in logs if bad}
        return Evidence(
            offered=offered,
            given=given,
            running=running or 0,
            pending=pending or 0,
            failed=(failed or 0) + len(wrong),
            left=left or 0,
            lost=lost or 0,
            calls=sum(row[3] for row in logs),
            errors=sum(row[4] for row in logs),
            reports=0 if at.full is None else sum(row[6] >= at.full for row in logs),
            latencies={chip: (found, before[chip]) for chip, found in new.items() if chip in before},
            example=example or (f"the values of the canary are wrong on {min(wrong)}" if wrong else ""),
        )

    # -- reports -----------------------------------------------------------------------------------------------

    def report(self, name: str, said: DeviceReport, now: Now) -> Answer:
        """Notes what a device reports, and says what it is to do. Raises FleetError for what is no release."""
        with self.base.transaction() as db:
            if said.running and not self.base.rows("SELECT 1 FROM releases WHERE sequence = ?", said.running):
                raise FleetError(f"{said.running} is no release of this fleet")
            db.execute(
                "UPDATE devices SET seen = ?, running = ?, token = iif(key IS NULL, token, NULL) WHERE name = ?",
                (now, said.running, name),
            )
            if (log := said.log) is not None and said.running:
                db.execute(
                    "INSERT INTO health VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (now, name, said.running, log.latency, log.calls, log.errors, log.digest, log.error, log.wrong),
                )
            if said.outcome is not None:
                self._failed(name, said, now)
            for rollout, state, before, release in self.base.rows(
                "SELECT rollout, a.state, before, release FROM assignments a JOIN rollouts ON id = rollout "
                "WHERE device = ? AND a.state IN ('offered', 'leaving')",
                name,
            ):
                goal, then, what = (release, "running", "installed") if state == "offered" else (before, "back", "back")
                if said.running == goal or (state == "leaving" and said.running != release):
                    db.execute(
                        "UPDATE assignments SET state = ? WHERE rollout = ? AND device = ?", (then, rollout, name)
                    )
                    self.base.audit(now, what, device=name, rollout=rollout, release=said.running)
            row = db.execute("SELECT name, region, chip, running, wanted, hold FROM devices WHERE name = ?", (name,))
            return Answer(self._order(_Device(*row.fetchone()), said.order, now), self.poll)

    def _failed(self, name: str, said: DeviceReport, now: Now) -> None:
        """Notes that a device did not obey an order, once."""
        assert said.outcome is not None
        number, fault, why = said.outcome.order, said.outcome.fault, said.outcome.why
        found = self.base.rows("SELECT kind, target FROM orders WHERE number = ? AND device IN (?, '')", number, name)
        if not found:
            return
        kind, target = found[0]
        with self.base.transaction() as db:
            if kind == ROLLBACK:
                held = db.execute("UPDATE devices SET hold = ? WHERE name = ? AND hold <= ?", (now + VALID, name, now))
                if held.rowcount:
                    self.base.audit(now, "failed", device=name, order=number, release=target, fault=fault, why=why)
                return
            changed = db.execute(
                "UPDATE assignments SET state = iif(state = 'leaving', 'back', 'failed'), fault = ?, why = ? "
                "WHERE device = ? AND state IN ('offered', 'running', 'leaving') AND "
                "rollout IN (SELECT id FROM rollouts WHERE release = ?) "
                "RETURNING before",
                (fault, why, name, target),
            ).fetchall()
            for (before,) in changed:
                db.execute("UPDATE devices SET wanted = ? WHERE name = ? AND wanted = ?", (before, name, target))
            if changed:
                what = "refused" if fault == "refused" else "failed"
                self.base.audit(now, what, device=name, order=number, release=target, fault=fault, why=why)
            elif not self.base.rows(
                "SELECT 1 FROM assignments JOIN rollouts ON id = rollout WHERE device = ? AND release = ?", name, target
            ):  # a device that was not in its rollout; one that says it again is known
                db.execute("UPDATE devices SET hold = ? WHERE name = ?", (now + VALID, name))

    def _order(self, device: _Device, last: int, now: Now) -> tuple[bytes, str] | None:
        """What a device is told to do, signed: nothing where it runs what it is to run. last: the number of the last
        order that it was done with."""
        if device.running == device.wanted or device.hold > now:
            return None
        if self.base.rows("SELECT 1 FROM releases WHERE sequence = ? AND withdrawn", device.wanted):
            return None
        kind = INSTALL if device.wanted > device.running else ROLLBACK
        source, who = (0, device.name) if kind == INSTALL else (device.running, "")
        known = self.base.rows(
            "SELECT number, valid, body, signature FROM orders WHERE device = ? AND source = ? AND target = ? "
            "ORDER BY number DESC LIMIT 1",
            *(who, source, device.wanted),
        )
        number, valid, *order = known[0] if known else (0, 0.0)
        if number <= last and valid > now + VALID - AGAIN:
            return None
        if number <= last or valid < now + VALID / 2:
            order = self._signed(kind, source, who, device.wanted, now)
        if kind == INSTALL:
            with self.base.transaction() as db:
                db.execute(
                    "UPDATE assignments SET given = ? WHERE device = ? AND state = 'offered' AND given IS NULL AND "
                    "rollout IN (SELECT id FROM rollouts WHERE release = ?)",
                    (now, device.name, device.wanted),
                )
        body, signature = order
        return body, signature

    def _signed(self, kind: str, source: int, who: str, target: int, now: Now) -> tuple[bytes, str]:
        """A new order, within a transaction."""
        release = self.base.rows("SELECT sha256, size FROM releases WHERE sequence = ?", target)
        sha, size = release[0] if release else ("", 0)
        of = "FROM rollouts WHERE release = ? ORDER BY id DESC LIMIT 1"
        made = self.base.rows(f"SELECT canary, entry, force {of}", target)
        canary, entry, force = made[0] if made else (None, None, False)
        left = self.base.rows(f"SELECT groups {of}", source) if kind == ROLLBACK else []
        valid = now + VALID
        with self.base.transaction() as db:
            cursor = db.execute(
                "INSERT INTO orders (device, kind, source, target, body, signature, valid) "
                "VALUES (?, ?, ?, ?, x'', '', ?)",
                (who, kind, source, target, valid),
            )
            number = cursor.lastrowid
            assert number is not None
            groups = _groups(left[0][0]) if left else DeviceGroups()
            tried = None if canary is None else Canary(**json.loads(canary))
            order = FleetOrder(kind, number, who, groups, source, target, sha, size, tried, entry, bool(force), valid)
            body = order.to_bytes()
            signature = self.key.sign(ORDER, body)
            db.execute("UPDATE orders SET body = ?, signature = ? WHERE number = ?", (body, signature, number))
            self.base.audit(now, kind, order=number, device=who, source=source, release=target, valid=valid)
        return body, signature


def _groups(text: str) -> DeviceGroups:
    return DeviceGroups(**{name: tuple(names) for name, names in json.loads(text).items()})
