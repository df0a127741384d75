"""A server, devices that load real files over HTTP, and what strangers send."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import (
    CHIP,
    OTHER_CHIP,
    QUICK,
    canary_file,
    model_file,
    place,
    program,
    running,
    served,
    signing_keys,
    wait_for,
)

from tilewright.fleet.base import FleetBase
from tilewright.fleet.controller import Controller
from tilewright.fleet.device import FleetDevice
from tilewright.fleet.orders import MOST_BODY, REQUEST, Key, proof, request_text
from tilewright.fleet.policy import DeviceGroups, FleetError
from tilewright.fleet.releases import Release, digest_of_file, make_canary
from tilewright.fleet.server import FleetServer


class Site:
    """A fleet of three devices with a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret, self.trusted = signing_keys(folder, "release", 1)
        self.stranger, _ = signing_keys(folder, "stranger", 2)
        self.base = FleetBase(folder / "fleet.sqlite", make=True)
        self.controller = Controller(self.base, Key.made(), poll=0.05)
        places = [place(0), place(1), place(2, OTHER_CHIP)]
        self.tokens = self.controller.add(places, time.time())
        self.canary = canary_file(folder)

    def release(self, sequence: int, scale: float = 1.0, like: float | None = None) -> int:
        """Begins to roll a release out; its canary has the values of another scale, where that is said."""
        scales = scale, scale if like is None else like
        paths = [model_file(self.folder, sequence, self.secret, each) for each in scales]
        release, expected = (Release.read(path, [self.trusted]) for path in paths)
        canary = make_canary(expected, self.canary, None, [CHIP, OTHER_CHIP], None, 0.01)
        return self.controller.begin(release, QUICK, DeviceGroups(), time.time(), canary, self.canary)

    def forged(self, sequence: int, path: Path) -> int:
        """The same for any file, as who has the server but no key for releases can."""
        sha, size = digest_of_file(path)
        release = Release(sequence, sha, "0" * 64, size, str(path), "0" * 64, (CHIP,), True)
        everybody = replace(QUICK, shares=(1.0,), most_errors=1.0)  # it goes on until all have refused
        return self.controller.begin(release, everybody, DeviceGroups(), time.time())

    def ends(self, rollout: int, state: str) -> None:
        """Waits until a rollout is in a state."""
        wait_for(lambda: self.base.rows("SELECT state FROM rollouts WHERE id = ?", rollout) == [(state,)])

    def refused(self, sequence: int, count: int) -> list[str]:
        """Waits until so many devices have refused a release; why they did."""
        found = "SELECT about FROM audit WHERE what = 'refused' AND json_extract(about, '$.release') = ?"
        wait_for(lambda: len(self.base.rows(found, sequence)) == count)
        return [json.loads(about)["why"] for (about,) in self.base.rows(found, sequence)]

    def run(self) -> dict[str, int]:
        return dict(self.base.rows("SELECT name, running FROM devices"))

    def audited(self, what: str) -> list[dict[str, Any]]:
        return [row["about"] for row in self.base.audited() if row["what"] == what]

    def device(self, server: FleetServer, name: str) -> FleetDevice:
        return FleetDevice(self.folder / name, server.url, name, self.trusted, self.tokens[name])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.base.close()


def test_three_devices(site: Site) -> None:
    """A good release goes everywhere, a faulty one nowhere but to its first stage, forged files nowhere."""
    with served(site.controller) as server, ExitStack() as stack:
        for name in site.tokens:
            stack.enter_context(running(site.device(server, name)))
        for sequence in (1, 2):
            rollout = site.release(sequence)
            site.ends(rollout, "done")
            assert set(site.run().values()) == {sequence}
        logs = site.base.rows("SELECT DISTINCT device, latency, wrong FROM health WHERE release = 2")
        said = {name: program(1.0, CHIP).report().microseconds for name in ("d0", "d1")}
        assert {(name, wrong) for name, _, wrong in logs} == {(name, 0) for name in site.tokens}
        assert {name: latency for name, latency, _ in logs if name != "d2"} == pytest.approx(said)

        rollout = site.release(3, scale=5.0, like=1.0)
        site.ends(rollout, "stopped")
        wait_for(lambda: set(site.run().values()) == {2})
        (failed,) = site.audited("failed")
        assert failed["fault"] == "canary" and failed["why"].startswith("its values have the SHA-256")
        offered = {about["device"] for about in site.audited("install") if about["release"] == 3}
        assert offered == {failed["device"]}

        for sequence, path, why in (
            (4, model_file(site.folder, 4, site.stranger), "is signed by the key"),
            (5, model_file(site.folder, 1, site.secret), "its release is 1, and none before 5 is taken"),
            (6, model_file(site.folder, 7, site.secret), "its release is 7, and the order is for 6"),
            (8, _flipped(model_file(site.folder, 8, site.secret)), "its"),
        ):
            rollout = site.forged(sequence, path)
            assert all(why in said for said in site.refused(sequence, 3))
            site.ends(rollout, "stopped")  # by itself: nobody is left to take it
            assert set(site.run().values()) == {2}


def _flipped(path: Path) -> Path:
    """A file with a bit of its manifest flipped."""
    content = bytearray(path.read_bytes())
    content[content.index(b'"sequence":') + 11] ^= 1
    other = path.with_suffix(".flipped.twm")
    other.write_bytes(content)
    return other


def test_a_file_for_another_chip(site: Site) -> None:
    path = site.folder / "other.twm"
    import tilewright as tw

    packed = tw.compile(lambda x: x @ np.ones((16, 8), np.float32), np.ones((4, 16), np.float32), target=OTHER_CHIP,
                        options=tw.Options(schedule=tw.Schedule(base_m=16)))  # fmt: skip
    packed.save(path, sign=site.secret, sequence=1)
    release = Release.read(path, [site.trusted])
    with pytest.raises(FleetError, match=f"d0 has {CHIP}, and the file is for {OTHER_CHIP} alone"):
        site.controller.begin(release, QUICK, DeviceGroups(), time.time())
    with served(site.controller) as server, running(site.device(server, "d0")):
        wait_for(lambda: site.base.rows("SELECT seen FROM devices WHERE name = 'd0'")[0][0] is not None)
        site.forged(1, path)
        assert f"alone, and this is {CHIP}" in site.refused(1, 1)[0]


def test_a_file_that_is_replaced_on_the_server(site: Site) -> None:
    rollout = site.release(1)
    (path,) = (Path(p) for (p,) in site.base.rows("SELECT path FROM releases"))
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with served(site.controller) as server, ExitStack() as stack:
        for name in site.tokens:
            stack.enter_context(running(site.device(server, name)))
        site.ends(rollout, "stopped")
        assert "its SHA-256 is" in site.audited("refused")[0]["why"]
        assert set(site.run().values()) == {0}


def test_a_download_goes_on(site: Site) -> None:
    site.release(1)
    digest, size = site.base.rows("SELECT sha256, size FROM releases")[0]
    path = Path(site.base.rows("SELECT path FROM releases")[0][0])
    with served(site.controller) as server:
        device = site.device(server, "d0")
        part = device.folder / f"{digest}.part"
        part.write_bytes(path.read_bytes()[:1000])
        (device.folder / "old.part").write_bytes(b"what another order had begun")
        asked: list[int] = []
        original = server.RequestHandlerClass._send  # pyright: ignore[reportAttributeAccessIssue]

        def noting(self: Any, path: Path, begin: int) -> None:
            asked.append(begin)
            original(self, path, begin)

        server.RequestHandlerClass._send = noting  # pyright: ignore[reportAttributeAccessIssue]
        try:
            assert device._brought(device.folder / "0.twm", digest, size) == ""
        finally:
            server.RequestHandlerClass._send = original  # pyright: ignore[reportAttributeAccessIssue]
            device.close()
        assert asked == [1000] and (device.folder / "0.twm").read_bytes() == path.read_bytes()
        assert not [*device.folder.glob("*.part")]


# -- strangers -----------------------------------------------------------------------------------------------


def asked(server: FleetServer, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    status, content = response.status, response.read()
    connection.close()
    return status, json.loads(content)


def signed(key: Key, name: str, method: str, path: str, body: bytes, stamp: int | None = None) -> dict[str, str]:
    at = time.time_ns() if stamp is None else stamp
    signature = key.sign(REQUEST, request_text(name, method, path, at, body))
    return {"X-Fleet-Device": name, "X-Fleet-Stamp": str(at), "X-Fleet-Signature": signature}


GOOD = {"running": 0, "order": 0, "log": None, "outcome": None}
LOG = {"calls": 1, "errors": 0, "latency": 1.0, "digest": None, "error": None, "wrong": False}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 30000, "no JSON"),
        (b"[]", "no table"),
        (b"{}", "a report has the fields"),
        ({**GOOD, "more": 1}, "a report has the fields"),
        ({**GOOD, "running": "1"}, "no such running"),
        ({**GOOD, "running": True}, "no such running"),
        ({**GOOD, "running": -1}, "no such running"),
        ({**GOOD, "running": 10**300}, "no such running"),
        ({**GOOD, "running": 7}, "7 is no release"),
        ({**GOOD, "log": []}, "no such log"),
        ({**GOOD, "log": {**LOG, "latency": float("nan")}}, "no such latency"),
        ({**GOOD, "log": {**LOG, "latency": float("inf")}}, "no such latency"),
        ({**GOOD, "log": {**LOG, "errors": 2}}, "more errors than calls"),
        ({**GOOD, "log": {**LOG, "digest": "x" * 301}}, "no such digest"),
        ({**GOOD, "log": {**LOG, "digest": "\ud800"}}, "no such digest"),
        ({**GOOD, "outcome": {"order": 1, "fault": "boot", "why": "\udfff"}}, "no such why"),
        ({**GOOD, "outcome": {"order": 1, "fault": "unknown", "why": ""}}, "no known fault"),
        ({**GOOD, "outcome": {"order": 1, "fault": "boot", "why": {"a": 1}}}, "no such why"),
    ],
)
def test_bodies_that_are_no_reports(site: Site, body: bytes | dict[str, Any], why: str) -> None:
    key = Key.made()
    site.controller.enrol("d0", key.public, time.time())
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with served(site.controller) as server:
        status, said = asked(server, "POST", "/report", content, **signed(key, "d0", "POST", "/report", content))
        assert status == 400 and why in said["error"]
        good = json.dumps({**GOOD, "log": LOG, "outcome": {"order": 5, "fault": "boot", "why": ""}}).encode()
        status, said = asked(server, "POST", "/report", good, **signed(key, "d0", "POST", "/report", good))
        assert (status, said) == (200, {"order": None, "poll": 0.05})


def test_requests_that_are_not_served(site: Site) -> None:
    key, other = Key.made(), Key.made()
    site.controller.enrol("d0", key.public, time.time())
    body = json.dumps(GOOD).encode()
    with served(site.controller) as server:
        headers = signed(key, "d0", "POST", "/report", body)
        assert asked(server, "POST", "/report", body, **headers)[0] == 200
        assert asked(server, "POST", "/report", body, **headers) == (401, {"error": "the request was sent before"})
        older = signed(key, "d0", "POST", "/report", body, int(headers["X-Fleet-Stamp"]) - 1)
        assert asked(server, "POST", "/report", body, **older)[0] == 401
        for name, signer, stamp, path in (
            ("d0", other, None, "/report"),
            ("d1", key, None, "/report"),
            ("nobody", key, None, "/report"),
            ("d0", key, None, "/other"),
            ("d0", key, time.time_ns() - 10**12, "/report"),
            ("d0", key, time.time_ns() + 10**12, "/report"),
        ):
            status, _ = asked(server, "POST", "/report", body, **signed(signer, name, "POST", path, body, stamp))
            assert status == 401
        for changed in ({"X-Fleet-Stamp": "x"}, {"X-Fleet-Stamp": "9" * 400}, {"X-Fleet-Signature": "zz"}):
            headers = {**signed(key, "d0", "POST", "/report", body), **changed}
            assert asked(server, "POST", "/report", body, **headers)[0] == 401
        assert asked(server, "POST", "/report", body + b" ", **signed(key, "d0", "POST", "/report", body))[0] == 401
        short = "/file/" + "0" * 63
        for path in ("/file/../fleet.sqlite", "/file/%2e%2e/fleet.sqlite", short, "/file//etc/passwd", "/"):
            assert asked(server, "GET", path, **signed(key, "d0", "GET", path, b""))[0] == 404
        path = "/file/" + "0" * 64
        said = asked(server, "GET", path, **signed(key, "d0", "GET", path, b""))
        assert said == (404, {"error": "there is no such file"})
        assert asked(server, "GET", path)[0] == 401
        assert asked(server, "POST", "/report", b"x" * (MOST_BODY + 1))[0] == 413
        assert asked(server, "POST", "/report", body, **{"Content-Length": "-1"})[0] == 411
        assert asked(server, "POST", "/report", b"", **{"Transfer-Encoding": "chunked"})[0] == 411
        with socket.create_connection(("127.0.0.1", server.server_port)) as cut:
            cut.sendall(b"POST /report HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc")
            cut.shutdown(socket.SHUT_WR)
            assert b" 400 " in cut.recv(4096)
        assert asked(server, "POST", "/report", body, **signed(key, "d0", "POST", "/report", body))[0] == 200


def test_a_request_that_trickles(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly it comes, it is waited for no longer than one that does not come."""
    monkeypatch.setattr("tilewright.fleet.server.PATIENCE", 0.3)
    with served(site.controller) as server:
        for head in (b"POST /rep", b"POST /report HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"):
            began = time.monotonic()
            with socket.create_connection(("127.0.0.1", server.server_port)) as slow, suppress(OSError):
                slow.sendall(head)
                while time.monotonic() - began < 10:
                    time.sleep(0.02)
                    slow.sendall(b"a")
            assert time.monotonic() - began < 10


def test_enrolment(site: Site) -> None:
    """Each side proves that it knows the token; it is spent when the device has reported."""
    key, token = Key.made(), site.tokens["d0"]

    def enrol(name: str, public: str, token: str) -> tuple[int, dict[str, Any]]:
        body = {"name": name, "key": public, "proof": proof(token, "device", name, public)}
        return asked(server, "POST", "/enrol", json.dumps(body).encode())

    with served(site.controller) as server:
        assert enrol("d0", key.public, "wrong")[0] == 401
        assert enrol("nobody", key.public, token)[0] == 401
        assert enrol("d0", "z" * 64, token)[0] == 400
        for odd in ({"name": "\ud800", "proof": ""}, {"name": "d0", "proof": "\ud800"}):
            assert asked(server, "POST", "/enrol", json.dumps({"key": key.public, **odd}).encode())[0] == 400
        for _ in range(2):  # the answer may get lost
            status, said = enrol("d0", key.public, token)
            fleet = site.controller.key.public
            assert status == 200 and said["fleet"] == fleet
            assert said["proof"] == proof(token, "fleet", "d0", key.public, "eu", CHIP, fleet)
        body = json.dumps(GOOD).encode()
        assert asked(server, "POST", "/report", body, **signed(key, "d0", "POST", "/report", body))[0] == 200
        assert enrol("d0", Key.made().public, token)[0] == 401
        with pytest.raises(FleetError, match=r"d1 cannot enrol: this device is not to be enrolled"):
            FleetDevice(site.folder / "d1", server.url, "d1", site.trusted, "wrong")
        with pytest.raises(FleetError, match=r"give the --token that fleet add has printed"):
            FleetDevice(site.folder / "d1", server.url, "d1", site.trusted)
        device = site.device(server, "d1")
        with pytest.raises(FleetError, match=r"another agent runs in this folder"):
            site.device(server, "d1")
        device.close()
        with pytest.raises(FleetError, match=r"it is the folder of d1"):
            FleetDevice(site.folder / "d1", server.url, "d2", site.trusted, site.tokens["d2"])
        (site.folder / "d1" / "state.json").write_text("{}")
        with pytest.raises(FleetError, match=r"its state.json is damaged"):
            site.device(server, "d1")


def test_answers_of_somebody_else(site: Site) -> None:
    """A device takes no answer that its fleet has not signed for this very request."""
    with served(site.controller) as server:
        device = site.device(server, "d0")
        assert device._send(json.dumps(GOOD).encode()) == {"order": None, "poll": 0.05}
        site.controller.key = Key.made()
        assert device._send(json.dumps(GOOD).encode()) is None
        device.close()
