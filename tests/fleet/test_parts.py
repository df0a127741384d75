"""The parts of a fleet that decide, and its database."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fleets import CHIP, canary_file, model_file, place, signing_keys, unread
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

from tilewright.fleet.base import MEMORY, FleetBase
from tilewright.fleet.controller import Controller
from tilewright.fleet.judging import (
    DONE,
    RUNNING,
    STOPPED,
    STOPPING,
    Evidence,
    Progress,
    fault,
    percentile,
    step,
)
from tilewright.fleet.orders import ORDER, FleetOrder, Key, is_signed
from tilewright.fleet.policy import DeviceGroups, FleetError, Policy, factor_in, share_in, shares_in
from tilewright.fleet.releases import CanaryRun, Release, make_canary
from tilewright.fleet.stages import DevicePlace, stage_sizes, stages_of

POLICY = Policy()


# -- stages ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
@examples(100)
def test_stages_are_spread(count: int, regions: int, chips: int, key: int) -> None:
    places = [DevicePlace(f"d{n}", f"r{n % regions}", f"c{n % 7 % chips}") for n in range(count)]
    stages = stages_of(places, POLICY.shares, str(key))
    assert stages == stages_of(reversed(places), POLICY.shares, str(key))
    strata = Counter(place[1:] for place in places)
    for number, size in enumerate(stage_sizes(count, POLICY.shares)):
        first = [place for place in places if stages[place.name] <= number]
        assert len(first) == size <= max(1, POLICY.shares[number] * count + 1e-9)
        for stratum, many in strata.items():
            share = many * size / count
            assert abs(sum(place[1:] == stratum for place in first) - share) <= 1 + len(strata) * many / count


def test_other_devices_come_first_each_time() -> None:
    places = [DevicePlace(f"d{n}", "eu", CHIP) for n in range(1000)]
    first = [{n for n, stage in stages_of(places, POLICY.shares, str(key)).items() if not stage} for key in range(30)]
    assert all(len(names) == 10 for names in first) and len(set.union(*first)) > 240
    silent = {place.name for place in places[:900]}
    assert not silent & {n for n, s in stages_of(places, POLICY.shares, "0", silent).items() if s < 2}


# -- judgements ------------------------------------------------------------------------------------------------

WELL = Evidence(offered=100, given=98, running=98, calls=10_000, errors=50, reports=98)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"failed": 0, "lost": 24, "errors": 100}, ""),
        ({"failed": 1, "example": "it is cold"}, "1 of 98 devices failed it: it is cold"),
        ({"lost": 25}, "25 of 98 devices that have it stopped reporting"),
        ({"given": 2, "lost": 1}, ""),
        ({"offered": 2, "given": 2, "lost": 1, "left": 1}, ""),
        ({"offered": 1, "given": 1, "lost": 1, "left": 1, "pending": 1}, ""),
        ({"offered": 1, "given": 1, "lost": 1, "left": 1}, "1 of the 1 devices of the stages so far left it"),
        ({"errors": 101}, "101 of 10000 calls failed"),
        ({"calls": 10, "errors": 1}, ""),
        ({"latencies": {"a": ([12.0] * 3, [10.0] * 3)}}, ""),
        ({"latencies": {"a": ([12.1] * 3, [10.0] * 3)}}, "on a a call takes 12.1 us, 1.21 times as long as before"),
        ({"latencies": {"a": ([20.0] * 2, [10.0] * 9)}}, ""),
        ({"latencies": {"a": ([20.0] * 9, [10.0] * 2)}}, ""),
        ({"latencies": {"a": ([10.0] * 9 + [99.0], [10.0] * 9)}}, ""),
        ({"latencies": {"a": ([10.0] * 8 + [99.0] * 2, [10.0] * 9)}}, "on a a call takes 99 us"),
    ],
)
def test_what_is_faulty(change: dict[str, object], why: str) -> None:
    found = fault(POLICY, replace(WELL, **change))  # pyright: ignore[reportArgumentType]
    assert found.startswith(why) if why else found == ""
    at = Progress(RUNNING, 1, 5.0)
    then = step(POLICY, at, replace(WELL, **change), 10.0)  # pyright: ignore[reportArgumentType]
    assert then == (replace(at, state=STOPPING, why=found) if why else at)


def test_steps() -> None:
    at = Progress()
    assert step(POLICY, at, replace(WELL, pending=1), 10.0) == at
    assert step(POLICY, at, replace(WELL, running=49), 10.0) == at
    at = step(POLICY, at, replace(WELL, running=50), 10.0)
    assert at == Progress(full=10.0)
    assert step(POLICY, at, WELL, 69.9) == at == step(POLICY, at, replace(WELL, reports=2), 99.0)
    at = step(POLICY, at, WELL, 70.0)
    assert at == Progress(stage=1)
    assert step(POLICY, Progress(stage=3, full=0.0), WELL, 60.0).state == DONE
    gone = Progress(STOPPING, 2, None, "why")
    assert step(POLICY, gone, Evidence(leaving=1), 1e6) == gone
    assert step(POLICY, gone, Evidence(), 1e6) == replace(gone, state=STOPPED)
    for state in (DONE, STOPPED):
        assert step(POLICY, Progress(state), replace(WELL, failed=9), 1e6) == Progress(state)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
@examples(100)
def test_percentiles(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values and sum(v <= found for v in values) >= share * len(values) - 1e-9
    assert sum(v < found for v in values) <= share * len(values)


# -- what people write -------------------------------------------------------------------------------------------


def test_amounts() -> None:
    assert shares_in("1%,10%,0.5,100%") == (0.01, 0.1, 0.5, 1.0)
    assert factor_in("1.2x", "") == factor_in("1.2", "") == 1.2
    assert DeviceGroups.of_text("region=eu,chip=a-1,region=us") == DeviceGroups(("eu", "us"), ("a-1",))
    for text in ("", "x%", "101%", "-1%", "nan", "inf%"):
        with pytest.raises(FleetError, match="is not a share such as 1%"):
            share_in(text, "--loss")
    for text in ("0x", "-1", "nan", "1.2y", "inf"):
        with pytest.raises(FleetError, match=r"is not a factor such as 1\.2x"):
            factor_in(text, "--most-latency")
    for text in ("eu", "region=", "region=a b", "name=x"):
        with pytest.raises(FleetError, match="say region=NAME or chip=NAME"):
            DeviceGroups.of_text(text)
    for shares in ((), (0.0, 1.0), (0.5, 0.5, 1.0), (0.5, 0.1, 1.0), (0.5,)):
        with pytest.raises(FleetError, match="stage"):
            Policy(shares=shares).check()
    with pytest.raises(FleetError, match="soak of a rollout cannot be nan"):
        Policy(soak=float("nan")).check()


# -- orders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"shares": 1}', '{"shares": [1], "unknown": 1}'])
def test_policies_that_are_none(text: str) -> None:
    assert Policy.of_json(POLICY.to_json()) == POLICY
    with pytest.raises(FleetError, match="a policy that is none"):
        Policy.of_json(text)


def test_orders_are_signed() -> None:
    key, other = Key.of_seed(bytes(32)), Key.of_seed(bytes([1] * 32))
    order = FleetOrder("install", 1, "d0", DeviceGroups(("eu",)), 0, 2, "0" * 64, 9, None, None, False, 5.0)
    body = order.to_bytes()
    signature = key.sign(ORDER, body)
    assert is_signed(key.public, signature, ORDER, body)
    assert not is_signed(other.public, signature, ORDER, body)
    assert not is_signed(key.public, signature, b"another domain\0", body)
    assert not is_signed(key.public, "zz", ORDER, body) and not is_signed("", signature, ORDER, body)
    for at in range(len(body)):
        assert not is_signed(key.public, signature, ORDER, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
    for bad in (b"", b"{}", b"[]", b"[" * 9000, body.replace(b"install", b"explode"), body.replace(b":", b": ", 1)):
        with pytest.raises(FleetError, match="the order is none"):
            FleetOrder.of_bytes(bad)


# -- the database ------------------------------------------------------------------------------------------------


def test_files_that_are_no_fleets(tmp_path: Path) -> None:
    path = tmp_path / "f.sqlite"
    with pytest.raises(OSError, match="No such file"):
        FleetBase(path)
    FleetBase(path, make=True).close()
    with pytest.raises(OSError, match="File exists"):
        FleetBase(path, make=True)
    whole = path.read_bytes()
    for content in (b"", b"hello" * 100, whole[:2000], whole[:100] + b"\xff" * 4000):
        path.write_bytes(content)
        with pytest.raises(FleetError, match="it is no database of a fleet"):
            FleetBase(path).audited()
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(FleetError, match=r"f\.sqlite: it is no database of a fleet; tilewright fleet init makes one"):
        FleetBase(path)
    path.write_bytes(whole)
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 9")
    other.close()
    with pytest.raises(FleetError, match="it is of version 9, and 1 is read"):
        FleetBase(path)


def test_the_audit_log_tells_what_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "f.sqlite"
    base = FleetBase(path, make=True)
    for number in range(5):
        with base.transaction():
            base.audit(float(number), "made", number=number)
    assert [row["about"]["number"] for row in base.audited()] == [*range(5)]
    for statement in ("UPDATE audit SET what = 'x' WHERE number = 2", "DELETE FROM audit WHERE number = 2"):
        with pytest.raises(FleetError, match="the audit log is only added to"), base.transaction() as db:
            db.execute(statement)
    base.close()
    whole = path.read_bytes()
    changes = ("UPDATE audit SET what = 'x' WHERE number = 3", "UPDATE audit SET about = '{}' WHERE number = 3",
               "UPDATE audit SET time = 7 WHERE number = 3", "DELETE FROM audit WHERE number = 3",
               "UPDATE audit SET before = '' WHERE number = 3")  # fmt: skip
    for change in changes:
        path.write_bytes(whole)
        with sqlite3.connect(path) as db:
            db.execute("DROP TRIGGER audit_stays")
            db.execute("DROP TRIGGER audit_keeps")
            db.execute(change)
        db.close()
        base = FleetBase(path)
        with pytest.raises(FleetError, match="row 3 of the audit log is not as it was written"):
            base.audited()
        base.close()


def test_what_is_undone_leaves_nothing() -> None:
    base = FleetBase(MEMORY, make=True)
    controller = Controller(base, Key.of_seed(bytes(32)))
    with pytest.raises(FleetError, match="there is a device d0 already"):
        controller.add([place(0), place(1), place(0)], 0.0)
    for name in ("", "a b", "../x", "x" * 65, "é"):
        with pytest.raises(FleetError, match="cannot be the name"):
            controller.add([place(0), DevicePlace(name, "eu", CHIP)], 0.0)
    with pytest.raises(FleetError, match="cannot be the region of d1"):
        controller.add([DevicePlace("d1", "e u", CHIP)], 0.0)
    assert not base.rows("SELECT * FROM devices") and not base.audited()


# -- releases ----------------------------------------------------------------------------------------------------


def test_what_is_rolled_out(tmp_path: Path) -> None:
    secret, trusted = signing_keys(tmp_path, "release", 1)
    base = FleetBase(MEMORY, make=True)
    controller = Controller(base, Key.of_seed(bytes(32)))

    def begin(release: Release, groups: str = "", force: bool = False) -> int:
        return controller.begin(release, POLICY, DeviceGroups.of_text(groups), 0.0, force=force)

    with pytest.raises(FleetError, match="no device is in these groups"):
        begin(unread(5))
    controller.add([place(0), place(1)], 0.0)
    with pytest.raises(FleetError, match="no device is in these groups"):
        begin(unread(5), "region=mars")
    with pytest.raises(FleetError, match=r"d0 has ascend-310p3, and the file is for ascend-310 alone"):
        begin(replace(unread(5), chips=("ascend-310",), portable=False))
    assert not base.rows("SELECT * FROM releases")
    rollout = begin(unread(5), "region=eu")
    with pytest.raises(FleetError, match="d0 is in rollout 1, which has not ended"):
        begin(unread(6))
    begin(unread(6), "region=us")
    assert controller.rollback(0.0) == [2] and controller.rollback(0.0) == [rollout]
    controller.tick(0.0)
    with pytest.raises(FleetError, match="release 5 was rolled back: --force offers it again"):
        begin(unread(5))
    with pytest.raises(FleetError, match="release 5 is another file: give it a number of its own"):
        begin(replace(unread(5), sha256="1" * 64))
    begin(unread(5), "region=us", force=True)
    with pytest.raises(FleetError, match="d1 is in rollout 3"):
        begin(unread(4))
    base.rows("UPDATE rollouts SET state = 'done' WHERE id = 3")
    with pytest.raises(FleetError, match="d1 is to run release 5, and 4 is not above"):
        begin(unread(4), "region=us")
    controller.add([place(3)], 0.0)  # of us, where release 5 is everywhere
    assert base.rows("SELECT wanted FROM devices WHERE name = 'd3'") == [(5,)]
    with pytest.raises(FleetError, match="--to 9: this release is none of this fleet"):
        controller.rollback(0.0, 9)
    with pytest.raises(FleetError, match="--to 6: this release was rolled back itself"):
        controller.rollback(0.0, 6)
    unnumbered = model_file(tmp_path, 0, secret)
    with pytest.raises(FleetError, match="its release has no number"):
        Release.read(unnumbered, [trusted])


def test_canaries(tmp_path: Path) -> None:
    secret, trusted = signing_keys(tmp_path, "release", 1)
    release = Release.read(model_file(tmp_path, 1, secret), [trusted])
    canary = canary_file(tmp_path)
    made = make_canary(release, canary, None, [CHIP], None, 0.01)
    values = CanaryRun(release.path, CHIP, None, canary).call()
    assert made.digest == {CHIP: values.digest} and values.error is None and not values.fault(made, CHIP)
    assert "its values have the SHA-256" in replace(values, digest="0" * 64).fault(made, CHIP)
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    expected = x @ np.ones((16, 8), np.float32)
    for factor, shape, why in ((1.0, (4, 8), ""), (1.001, (4, 8), ""), (1.5, (4, 8), "its values are off by 0.333"),
                               (1.0, (8, 4), "its outputs have other shapes")):  # fmt: skip
        np.savez(tmp_path / "e.npz", x=x, expected=(expected * factor).reshape(shape))
        if why:
            with pytest.raises(FleetError, match=why):
                make_canary(release, tmp_path / "e.npz", None, [CHIP], None, 0.01)
        else:
            assert make_canary(release, tmp_path / "e.npz", None, [CHIP], None, 0.01).digest == {}
    (tmp_path / "e.npz").write_bytes(b"no arrays")
    with pytest.raises(FleetError, match=r"e\.npz: is no \.npz file"):
        make_canary(release, tmp_path / "e.npz", None, [CHIP], None, 0.01)
    chips = [CHIP, "other"]
    assert make_canary(release, canary, None, chips, "0" * 64, 0.01).digest == dict.fromkeys(chips, "0" * 64)
