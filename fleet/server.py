"""The server of a fleet: HTTP on this computer's own address, for devices that sign their requests.

    POST /enrol          {"name", "key", "proof"}: a device that was added says its key, once
    POST /report         what a device reports (reports.py); the answer is what it is to do, signed
    GET  /file/SHA256    a release or a canary, from a place on where the request has a Range
"""

from __future__ import annotations

import hmac
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from pathlib import Path
from socket import socket
from typing import Any

from ..support.files import open_plain
from .controller import Controller
from .orders import ANSWER, MOST_BODY, REQUEST, SKEW, answer_text, is_signed, proof, request_text
from .policy import FleetError
from .reports import DeviceReport, check, table_of

MOST_REQUESTS = 64
"""Requests that are served at once; others are told to come back."""

PATIENCE = 10.0
"""Seconds in which a request has to come, and that a device may keep an answer waiting."""

INTERVAL = 2.0
"""Seconds between looks at the rollouts."""

CHUNK = 1 << 16
"""Bytes of a file that are sent at once."""


class RefusedRequest(Exception):
    """A request that is not served: its status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class FleetServer(ThreadingHTTPServer):
    """Serves the devices of a controller, and moves its rollouts on. interval: seconds between looks at these."""

    daemon_threads = True

    def __init__(
        self, controller: Controller, port: int = 0, interval: float = INTERVAL, clock: Callable[[], float] = time.time
    ) -> None:
        """Raises OSError where the port is taken."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.controller, self.interval, self.clock = controller, interval, clock
        self.room = threading.BoundedSemaphore(MOST_REQUESTS)
        self._ended = threading.Event()

    @property
    def url(self) -> str:
        """Where devices find it."""
        return f"http://127.0.0.1:{self.server_port}"

    def run(self) -> None:
        """Serves until `stop` is called."""
        ticking = threading.Thread(target=self._tick, daemon=True)
        ticking.start()
        try:
            self.serve_forever(0.05)
        finally:
            self._ended.set()
            ticking.join()
            self.server_close()

    def stop(self) -> None:
        """Has `run` end; from another thread than that."""
        self.shutdown()

    def _tick(self) -> None:
        while not self._ended.wait(self.interval):
            try:
                self.controller.tick(self.clock())
            except FleetError as error:  # such as a database that is locked for long: the next look is another try
                print(f"fleet: {error}", file=sys.stderr, flush=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A device that hangs up is no error of the server."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Patient(RawIOBase):
    """What a device sends: all of it has to come within `PATIENCE`, however slowly it does."""

    def __init__(self, connection: socket) -> None:
        self._connection, self._until = connection, time.monotonic() + PATIENCE

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Raises TimeoutError, and OSError."""
        self._connection.settimeout(max(1e-3, self._until - time.monotonic()))
        count = self._connection.recv_into(buffer)
        self._connection.settimeout(PATIENCE)
        if time.monotonic() > self._until:
            raise TimeoutError
        return count


class _Handler(BaseHTTPRequestHandler):
    server: FleetServer
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def setup(self) -> None:
        super().setup()
        self.rfile = BufferedReader(_Patient(self.connection))

    def do_POST(self) -> None:
        self._serve({"/enrol": self._enrol, "/report": self._report})

    def do_GET(self) -> None:
        name = self.path.removeprefix("/file/")
        known = self.path != name and re.fullmatch("[0-9a-f]{64}", name) is not None
        self._serve({self.path: lambda: self._file(name)} if known else {})

    def log_message(self, format: str, *args: Any) -> None:
        """The audit log has what matters."""

    def _serve(self, paths: dict[str, Callable[[], None]]) -> None:
        self.close_connection = True
        if not self.server.room.acquire(blocking=False):
            self._say(503, {"error": "too many devices at once"}, {"Retry-After": "5"})
            return
        try:
            if self.path not in paths:
                raise RefusedRequest(404, "there is no such path")
            self.body = self._read()
            paths[self.path]()
        except RefusedRequest as refused:
            self._say(refused.status, {"error": str(refused)})
        except FleetError as error:
            self._say(400, {"error": str(error)})
        finally:
            self.server.room.release()

    def _read(self) -> bytes:
        """The body. Raises Refused for one that is too long, or that does not say how long it is."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit() and len(length) < 10):
            raise RefusedRequest(411, "the body does not say how long it is")
        if int(length) > MOST_BODY:
            raise RefusedRequest(413, f"a body has {MOST_BODY} bytes at most")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise RefusedRequest(400, "the body was cut off")
        return body

    def _say(self, status: int, said: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    # -- what is served ----------------------------------------------------------------------------------------

    def _device(self) -> tuple[str, int]:
        """The device that has signed the request, and the stamp of it. Raises Refused."""
        name, stamp, signature = (self.headers.get(f"X-Fleet-{what}", "") for what in ("Device", "Stamp", "Signature"))
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 20):
            raise RefusedRequest(401, "the request has no stamp")
        base, now = self.server.controller.base, self.server.clock()
        found = base.rows("SELECT key FROM devices WHERE name = ? AND key IS NOT NULL", name)
        text = request_text(name, self.command, self.path, int(stamp), self.body)
        if not found or not is_signed(found[0][0], signature, REQUEST, text):
            raise RefusedRequest(401, "the request is not signed by a device of this fleet")
        if abs(int(stamp) / 1e9 - now) > SKEW:
            raise RefusedRequest(401, f"the clock of the device is more than {SKEW:.0f} s off")
        with base.transaction() as db:
            taken = db.execute("UPDATE devices SET stamp = ?1 WHERE name = ?2 AND stamp < ?1", (int(stamp), name))
            if not taken.rowcount:
                raise RefusedRequest(401, "the request was sent before")
        return name, int(stamp)

    def _report(self) -> None:
        name, stamp = self._device()
        report = DeviceReport.of_json(table_of(self.body))
        answer = self.server.controller.report(name, report, self.server.clock()).to_json()
        text = answer_text(name, stamp, json.dumps(answer).encode())
        self._say(200, answer, {"X-Fleet-Signature": self.server.controller.key.sign(ANSWER, text)})

    def _enrol(self) -> None:
        said = table_of(self.body)
        check(said, "an enrolment", name=str, key=str, proof=str)
        name, key = said["name"], said["key"]
        if re.fullmatch("[0-9a-f]{64}", key) is None:
            raise RefusedRequest(400, "an enrolment has no such key")
        controller = self.server.controller
        with controller.base.transaction():
            found = controller.base.rows("SELECT token, region, chip FROM devices WHERE name = ? AND token > ''", name)
            right = proof(found[0][0] if found else "", "device", name, key)
            if not found or not hmac.compare_digest(said["proof"].encode(), right.encode()):
                raise RefusedRequest(401, "this device is not to be enrolled, or its token is another")
            controller.enrol(name, key, self.server.clock())
        token, region, chip = found[0]
        fleet = controller.key.public
        proved = proof(token, "fleet", name, key, region, chip, fleet)
        self._say(200, {"region": region, "chip": chip, "fleet": fleet, "proof": proved})

    def _file(self, digest: str) -> None:
        self._device()
        rows = self.server.controller.base.rows
        found = rows("SELECT path FROM releases WHERE sha256 = ? AND NOT withdrawn", digest) or rows(
            "SELECT canary_path FROM rollouts WHERE json_extract(canary, '$.sha256') = ? ORDER BY id DESC", digest
        )
        if not found:
            raise RefusedRequest(404, "there is no such file")
        begin = re.fullmatch(r"bytes=(\d{1,15})-", self.headers.get("Range", "bytes=0-"))
        if begin is None:
            raise RefusedRequest(416, "a range is bytes=N-")
        self._send(Path(found[0][0]), int(begin[1]))

    def _send(self, path: Path, begin: int) -> None:
        """Sends a file from a byte on."""
        try:
            stream = open_plain(path)
        except OSError:
            raise RefusedRequest(503, "the file cannot be read") from None
        with stream:
            size = stream.seek(0, 2)
            if begin > size:
                raise RefusedRequest(416, "the file is not so long")
            stream.seek(begin)
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(size - begin))
            self.send_header("Connection", "close")
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{size - 1}/{size}")
            self.end_headers()
            left = size - begin
            while left and (chunk := stream.read(min(CHUNK, left))):
                self.wfile.write(chunk)
                left -= len(chunk)
