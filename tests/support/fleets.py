"""Parts of tests of fleets: keys, signed model files, a server and devices in threads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ed25519

import tilewright as tw
from tilewright.fleet.agent import AgentOutside, AgentState, AgentWork, Fetch, Save, Send, Try, agent
from tilewright.fleet.controller import Controller
from tilewright.fleet.device import FleetDevice
from tilewright.fleet.orders import FleetOrder
from tilewright.fleet.policy import Policy
from tilewright.fleet.releases import Release
from tilewright.fleet.reports import DeviceReport, Log
from tilewright.fleet.server import FleetServer
from tilewright.fleet.stages import DevicePlace

CHIP, OTHER_CHIP = "ascend-310p3", "ascend-910b1"
QUICK = Policy(shares=(0.34, 1.0), soak=0.2, heartbeat=20.0, least_reports=1)


def signing_keys(folder: Path, name: str, seed: int) -> tuple[Path, Path]:
    """The PEM files of a private key and of its public one."""
    private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes([seed] * 32))
    secret, public = folder / f"{name}.pem", folder / f"{name}.pub"
    how = forms.PrivateFormat.PKCS8, forms.NoEncryption()
    secret.write_bytes(private.private_bytes(forms.Encoding.PEM, *how))
    how = forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(private.public_key().public_bytes(*how))
    return secret, public


@cache
def program(scale: float, chip: str = CHIP) -> tw.Program:
    """A small program, whose values are other ones for another scale."""
    weights = np.full((16, 8), scale, np.float32)
    return tw.compile(lambda x: x @ weights, np.ones((4, 16), np.float32), target=chip)


def model_file(folder: Path, sequence: int, key: Path, scale: float = 1.0, chip: str = CHIP) -> Path:
    """A signed release with the graph level, so that all chips can run it."""
    path = folder / f"{sequence}-{scale}-{key.stem}.twm"
    program(scale, chip).save(path, sign=key, sequence=sequence)
    return path


def canary_file(folder: Path) -> Path:
    """Inputs of the program."""
    path = folder / "canary.npz"
    np.savez(path, x=np.arange(64, dtype=np.float32).reshape(4, 16))
    return path


def place(number: int, chip: str = CHIP) -> DevicePlace:
    """A device of eu or us."""
    return DevicePlace(f"d{number}", ("eu", "us")[number % 2], chip)


def unread(sequence: int) -> Release:
    """A release without a file, where nobody reads it."""
    return Release(sequence, f"{sequence:064x}", "0" * 64, 1000, f"{sequence}.twm", "0" * 64, (CHIP,), True)


@contextmanager
def served(controller: Controller, interval: float = 0.05) -> Iterator[FleetServer]:
    """A server of it in a thread."""
    server = FleetServer(controller, interval=interval)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


@contextmanager
def running(device: FleetDevice, poll: float = 0.05) -> Iterator[FleetDevice]:
    """A device in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=device.serve, args=(stop, poll))
    thread.start()
    try:
        yield device
    finally:
        stop.set()
        thread.join()
        device.close()


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until something is so. Raises AssertionError after so many seconds."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)



class Stepped:
    """A device that is driven by hand, one report at a time; what it saves goes through JSON. moods: what releases do
    there, "" for good ones, what is wrong with their values, or "crash"."""

    def __init__(self, place: DevicePlace, controller: Controller, clock: Callable[[], float]) -> None:
        self.controller, self.clock = controller, clock
        self.saved = AgentState(*place).to_json()
        self.moods: dict[int, str] = {}
        self.log = Log(100, 0, 10.0)
        self.orders: list[FleetOrder] = []
        self.start()

    def start(self) -> None:
        """It comes up, from what it has saved."""
        out = AgentOutside(self.controller.key.public, self.clock, Random(0))
        self.steps, self.result = agent(AgentState.of_json(self.saved), out, 10.0), None

    @property
    def state(self) -> AgentState:
        """What it has saved."""
        return AgentState.of_json(self.saved)

    def report(self, lost: str = "") -> None:
        """Goes on until it has reported, or crashed. lost: `request` or `answer` does not come through."""
        while True:
            action = self.steps.send(self.result)
            self.result = None
            match action:
                case Save(state):
                    self.saved = state.to_json()
                case Fetch():
                    self.result = ""
                case Try(_, order):
                    self.result = self.moods.get(order.target, "")
                    if self.result == "crash":
                        self.start()
                        return
                case AgentWork():
                    self.result = self.log if self.state.running else None
                case Send(said):
                    if lost != "request":
                        report = DeviceReport.of_json(json.loads(json.dumps(said.to_json())))
                        answer = self.controller.report(self.state.name, report, self.clock())
                        self.result = None if lost else answer.to_json()
                        if answer.order is not None:
                            self.orders.append(FleetOrder.of_bytes(answer.order[0]))
                    return
