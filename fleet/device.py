"""A device that is real: its folder, its requests over HTTP, and its releases on the model of its chip."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from ..modelfile.archive import ModelFileError
from ..modelfile.signing import public_keys
from ..support.files import FilePath, read_plain
from ..support.sentences import shortened
from .agent import Action, AgentOutside, AgentState, AgentWork, Fetch, Save, Send, Try, agent, least_sequence
from .controller import POLL
from .orders import ANSWER, MOST_BODY, REQUEST, FleetOrder, Key, answer_text, is_signed, proof, request_text
from .policy import NAME, FleetError
from .releases import CanaryRun, digest_of_file, open_release
from .reports import Log

SECONDS = 10.0
"""That a request may take without a byte."""

CHUNK = 1 << 16
"""Bytes of a file that are read at once."""


class FleetDevice:
    """A device in a folder: `key.pem`, its own key; `state.json`, what it remembers; `0.twm` and `1.twm`, its slots,
    with the canaries beside them; and what is not yet whole, as `.part`."""

    def __init__(
        self, folder: FilePath, server: str, name: str, trusted: FilePath, token: str | None = None
    ) -> None:
        """Takes the folder for this process alone, and enrols where that was not done. Raises FleetError and
        OSError."""
        if NAME.fullmatch(name) is None:
            raise FleetError(f"{name!r} cannot be the name of a device")
        try:
            place = urlsplit(server)
            self.host = (place.hostname or "").encode("idna").decode()
        except ValueError:
            place, self.host = urlsplit(""), ""
        if place.scheme != "http" or not self.host:
            raise FleetError(f"--server {server}: say http://HOST:PORT")
        try:
            self.port = place.port or 80
        except ValueError:
            raise FleetError(f"--server {server}: it has no such port") from None
        public_keys([trusted])
        self.folder, self.name, self.trusted = Path(folder), name, trusted
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        self._stamp = 0
        self.run: CanaryRun | None = None
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FleetError(f"{folder}: another agent runs in this folder") from None
            if not (self.folder / "key.pem").exists():
                Key.made().write(self.folder / "key.pem")
            self.key = Key.read(self.folder / "key.pem")
            if not (self.folder / "state.json").exists():
                self._enrol(token)
            text = read_plain(self.folder / "state.json").decode()
            self.fleet: str = json.loads(text)["fleet"]
            self.state = AgentState.of_json(json.dumps(json.loads(text)["state"]))
            if self.state.name != name:
                raise FleetError(f"{folder}: it is the folder of {self.state.name}")
        except (ValueError, KeyError, TypeError):
            self._lock.close()
            raise FleetError(f"{folder}: its state.json is damaged") from None
        except BaseException:
            self._lock.close()
            raise

    def _enrol(self, token: str | None) -> None:
        """Tells the server the own key, and learns that of the fleet: each proves to the other that it knows the token,
        which is not sent."""
        if token is None:
            raise FleetError(f"{self.folder}: this device is not enrolled: give the --token that fleet add has printed")
        public = self.key.public
        body = {"name": self.name, "key": public, "proof": proof(token, "device", self.name, public)}
        try:
            response, content = self._request("POST", "/enrol", json.dumps(body).encode(), {})
        except (OSError, HTTPException) as error:
            where = f"http://{self.host}:{self.port}"
            raise FleetError(f"{self.name} cannot enrol: {where} does not answer: {error}") from None
        try:
            said = json.loads(content)
            if response.status != 200:
                raise FleetError(f"{self.name} cannot enrol: {said['error']}")
            region, chip, fleet = (str(said[key]) for key in ("region", "chip", "fleet"))
            if said["proof"] != proof(token, "fleet", self.name, public, region, chip, fleet):
                raise FleetError(f"{self.name} cannot enrol: the server does not know the token")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise FleetError(f"{self.name} cannot enrol: the answer is none of a fleet's server") from None
        self.fleet = fleet
        self._save(AgentState(self.name, region, chip))

    def close(self) -> None:
        """Gives the folder free."""
        self._lock.close()

    def serve(self, stop: threading.Event, poll: float = POLL) -> None:
        """Runs until somebody asks it to stop. Raises OSError where the folder cannot be written."""
        stamps = Random(self.name + self.key.public)
        steps = agent(self.state, AgentOutside(self.fleet, time.time, stamps), poll)
        result: Any = None
        while not stop.is_set():
            result = self._act(steps.send(result), stop)

    def _act(self, action: Action, stop: threading.Event) -> Any:
        """Does what a device has decided; the result is as the action says."""
        match action:
            case Save(state):
                self._save(state)
                return None
            case Fetch(order, slot):
                return self._fetch(order, slot)
            case Try(slot, order):
                return self._try(slot, order)
            case AgentWork(seconds):
                stop.wait(seconds)
                return self._log()
            case Send(report):
                return self._send(json.dumps(report.to_json()).encode())

    def _save(self, state: AgentState) -> None:
        self.state = state
        text = json.dumps({"fleet": self.fleet, "state": json.loads(state.to_json())})
        _replace(self.folder / "state.json", text.encode())

    # -- programs ----------------------------------------------------------------------------------------------

    def _try(self, slot: int, order: FleetOrder) -> str:
        """Loads a slot and runs its canary once; what is wrong with it, or empty."""
        self.run = None
        path = self._slot(slot)
        canary = None if order.canary is None else path.with_suffix(".npz")
        trust = {"trusted": self.trusted, "least_sequence": least_sequence(self.state, order)}
        try:
            run = CanaryRun(path, self.state.chip, order.entry, canary, **trust)
            if order.canary is not None:
                if wrong := run.call().fault(order.canary, self.state.chip):
                    return wrong
        except Exception as error:  # whatever a release raises that does not run
            return shortened(f"{type(error).__name__}: {' '.join(str(error).split())}")
        self.run = run
        return ""

    def _log(self) -> Log | None:
        """A performance log of one call of what runs: its values, and what it takes by the model of the chip."""
        slot = None if self.state.current is None else self.state.slots[self.state.current]
        if self.run is None or slot is None:
            return None
        if slot.order.canary is None:
            return Log(1, 0, self.run.latency)
        try:
            values = self.run.call()
        except Exception:  # as above: a call that fails is counted
            return Log(1, 1)
        wrong = bool(values.fault(slot.order.canary, self.state.chip))
        return Log(1, 0, values.latency, values.digest, values.error, wrong)

    def _slot(self, slot: int) -> Path:
        return self.folder / f"{slot}.twm"

    def _fetch(self, order: FleetOrder, slot: int) -> str | None:
        """Brings the file of an order into a slot, and its canary; why it is refused, or None where the server cannot
        be reached."""
        wanted = [(self._slot(slot), order.sha256, order.size)]
        if order.canary is not None:
            wanted.append((self._slot(slot).with_suffix(".npz"), order.canary.sha256, order.canary.size))
        for path, digest, size in wanted:
            found = self._brought(path, digest, size)
            if found is None or found:
                return found
        try:
            file = open_release(self._slot(slot))
            file.trusted_by([self.trusted])
            file.no_older_than(least_sequence(self.state, order))
            if file.manifest.sequence != order.target:
                return f"its release is {file.manifest.sequence}, and the order is for {order.target}"
            for name, entry in file.manifest.entries.items():
                if self.state.chip not in entry.npu and not entry.graph:
                    return f"{name} is for {', '.join(sorted(entry.npu))} alone, and this is {self.state.chip}"
        except ModelFileError as error:
            return str(error).removeprefix(f"{self._slot(slot)}: ")
        return ""

    def _brought(self, path: Path, digest: str, size: int) -> str | None:
        """Brings a file, from where it was left off the last time. The result is as that of `_fetch`."""
        with suppress(FileNotFoundError):
            if digest_of_file(path) == (digest, size):
                return ""
        part = self.folder / f"{digest}.part"
        for old in self.folder.glob("*.part"):
            if old != part:
                old.unlink()
        with part.open("ab") as stream:
            begin = stream.tell()
            if begin < size:
                try:
                    self._download(f"/file/{digest}", stream, size)
                except (OSError, HTTPException):
                    return None
            stream.flush()
            os.fsync(stream.fileno())
        found = digest_of_file(part)
        if found[1] < size:
            return None
        if found != (digest, size):
            part.unlink()
            return f"its SHA-256 is {found[0][:16]}, and that of the order is {digest[:16]}"
        os.replace(part, path)
        _sync(self.folder)
        return ""

    # -- requests ----------------------------------------------------------------------------------------------

    def _download(self, path: str, stream: Any, size: int) -> None:
        """Adds what is missing of a file of so many bytes, as far as it comes. Raises OSError and HTTPException."""
        begin = stream.tell()
        connection = HTTPConnection(self.host, self.port, timeout=SECONDS)
        try:
            connection.request("GET", path, headers={"Range": f"bytes={begin}-", **self._signed("GET", path, b"")[0]})
            response = connection.getresponse()
            if response.status not in (200, 206) or (begin and response.status == 200):
                return
            while begin < size and (chunk := response.read(min(CHUNK, size - begin))):
                stream.write(chunk)
                begin += len(chunk)
        finally:
            connection.close()

    def _send(self, body: bytes) -> dict[str, Any] | None:
        """The answer to a report, None where there is none that the fleet has signed."""
        headers, stamp = self._signed("POST", "/report", body)
        try:
            response, content = self._request("POST", "/report", body, headers)
            signature = response.headers.get("X-Fleet-Signature", "")
            text = answer_text(self.name, stamp, content)
            if response.status != 200 or not is_signed(self.fleet, signature, ANSWER, text):
                return None
            said = json.loads(content)
        except (OSError, HTTPException, ValueError, RecursionError):
            return None
        return said if isinstance(said, dict) else None

    def _signed(self, method: str, path: str, body: bytes) -> tuple[dict[str, str], int]:
        """The headers of a request, and its stamp."""
        self._stamp = max(self._stamp + 1, time.time_ns())
        text = request_text(self.name, method, path, self._stamp, body)
        said = {"Device": self.name, "Stamp": str(self._stamp), "Signature": self.key.sign(REQUEST, text)}
        return {f"X-Fleet-{name}": value for name, value in said.items()}, self._stamp

    def _request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        """A response and what is in it. Raises OSError and HTTPException."""
        connection = HTTPConnection(self.host, self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read(MOST_BODY + 1)
            if len(content) > MOST_BODY:
                raise HTTPException("the answer is too large")
            return response, content
        finally:
            connection.close()


def _replace(path: Path, content: bytes) -> None:
    """Writes a file in one step, so that it is there after a loss of power. Raises OSError."""
    draft = path.with_suffix(".new")
    with draft.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
