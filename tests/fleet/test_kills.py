"""A controller and devices that are killed at any point go on from what they have saved."""

from __future__ import annotations

import json
import operator
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fleets import (
    CHIP,
    QUICK,
    Stepped,
    canary_file,
    model_file,
    place,
    running,
    signing_keys,
    unread,
    wait_for,
)
from tiering import ALL, later

from tilewright.fleet.base import FleetBase
from tilewright.fleet.controller import Controller
from tilewright.fleet.device import FleetDevice
from tilewright.fleet.orders import Key
from tilewright.fleet.policy import DeviceGroups, Policy
from tilewright.fleet.releases import Release, make_canary

POLICY = Policy(shares=(0.3, 1.0), soak=5.0, least_reports=1)


class Killed(Exception):
    """The process ends here."""


class DyingBase(FleetBase):
    """A database whose process is killed at a commit: right before it, or right behind it."""

    left = 1 << 60
    behind = False

    def commit(self) -> None:
        DyingBase.left -= 1
        if DyingBase.left:
            super().commit()
            return
        if self.behind:
            super().commit()
        raise Killed


def course(path: Path, at: int, behind: bool) -> tuple[Any, int]:
    """What a fleet comes to whose controller is killed at a commit: release 1 everywhere, release 2 tried and taken
    back. The result, and how many commits there were."""
    DyingBase.left, DyingBase.behind = at, behind
    now, key = [1000.0], Key.of_seed(bytes(32))
    controller = Controller(FleetBase(path, make=True), key)
    controller.base.close()

    def open_() -> None:
        controller.base.close()
        controller.base = DyingBase(path)

    def survived(do: Any) -> bool:
        try:
            do()
        except Killed:
            open_()
            return False
        return True

    def known(table: str) -> bool:
        return bool(controller.base.rows(f"SELECT 1 FROM {table} LIMIT 1"))

    open_()
    if not survived(lambda: controller.add([place(n) for n in range(4)], now[0])) and not known("devices"):
        controller.add([place(n) for n in range(4)], now[0])
    devices = [Stepped(place(n), controller, lambda: now[0]) for n in range(4)]
    for sequence in (1, 2):
        for device in devices:
            device.moods[2] = "its values are off"
        begun = lambda s=sequence: controller.begin(unread(s), POLICY, DeviceGroups(), now[0])  # noqa: E731
        if not survived(begun) and not controller.base.rows("SELECT 1 FROM rollouts WHERE release = ?", sequence):
            begun()
        for _ in range(9):
            now[0] += 10
            for device in devices:
                survived(device.report)
            survived(lambda: controller.tick(now[0]))
    base = controller.base
    states = base.rows("SELECT release, state FROM rollouts ORDER BY id")
    devices_ = base.rows("SELECT name, running, wanted FROM devices ORDER BY name")
    failed = [r["about"]["device"] for r in base.audited() if r["what"] == "failed"]
    running_ = [d.state.running for d in devices]
    base.close()
    return (states, devices_, failed, running_), (1 << 60) - DyingBase.left


def test_a_controller_that_is_killed_at_any_commit(tmp_path: Path) -> None:
    whole, commits = course(tmp_path / "whole.sqlite", 1 << 60, False)
    assert whole[0] == [(1, "done"), (2, "stopped")] and whole[3] == [1] * 4 and len(whole[2]) == 1
    assert commits > 100
    draw = Random(0)
    for number, at in enumerate(sorted(draw.sample(range(1, commits + 1), 100 if ALL else 10))):
        found, _ = course(tmp_path / f"{number}.sqlite", at, draw.random() < 0.5)
        assert found == whole, f"killed at commit {at}"


def test_a_device_that_loses_power_at_any_action(tmp_path: Path) -> None:
    """It is started again from its last `Save` after each number of actions, and comes to the same release."""
    for at in range(1, 60 if ALL else 20):
        controller = Controller(FleetBase(":memory:", make=True), Key.of_seed(bytes(32)))
        controller.add([place(0)], 0.0)
        now = [0.0]
        device = Stepped(place(0), controller, partial(operator.getitem, now, 0))
        left = [at]
        start = device.start

        def dying(device: Stepped = device, left: list[int] = left) -> None:
            steps = device.steps

            class Steps:
                def send(self, result: Any) -> Any:
                    left[0] -= 1
                    if not left[0]:
                        raise Killed
                    return steps.send(result)

            device.steps = Steps()  # pyright: ignore[reportAttributeAccessIssue]

        dying()
        for sequence in (1, 2):
            controller.begin(unread(sequence), Policy(shares=(1.0,), soak=0.0, least_reports=1), DeviceGroups(), now[0])
            for _ in range(8):
                now[0] += 10
                try:
                    device.report()
                except Killed:
                    start()
                controller.tick(now[0])
        assert device.state.running == 2 and device.state.trial is None, f"lost power at action {at}"


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "tilewright.cli.main", "fleet", *args]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process at once."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@later()
def test_processes_that_are_killed(tmp_path: Path) -> None:
    """A server and a device are killed by SIGKILL again and again during a rollout, which ends all the same."""
    secret, trusted = signing_keys(tmp_path, "release", 1)
    db, draw = tmp_path / "fleet.sqlite", Random(3)
    subprocess.run(command("init", "--db", str(db), "--trusted", str(trusted)), check=True, capture_output=True)
    base = FleetBase(db)
    controller = Controller(base, Key.read(Path(f"{db}.key.pem")))
    tokens = controller.add([place(0), place(1)], time.time())
    canary = canary_file(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "TILEWRIGHT_PLANS": ""}

    def serve() -> subprocess.Popen[bytes]:
        line = command("serve", "--db", str(db), "--port", port, "--poll", "0.2s")
        process = subprocess.Popen(line, stdout=subprocess.PIPE, env=environment)
        assert process.stdout is not None and b"serving" in process.stdout.readline()
        return process

    def be_device() -> subprocess.Popen[bytes]:
        who = ("--name", "d1", "--folder", str(tmp_path / "d1"), "--token", tokens["d1"])
        line = command("agent", "--server", f"http://127.0.0.1:{port}", *who, "--trusted", str(trusted))
        return subprocess.Popen(line, env=environment)

    server, other = serve(), be_device()
    device = FleetDevice(tmp_path / "d0", f"http://127.0.0.1:{port}", "d0", trusted, tokens["d0"])
    with running(device, 0.2):
        try:
            wait_for(partial(base.rows, "SELECT 1 FROM devices WHERE name = 'd1' AND seen > 0"), 120)
            for sequence in (1, 2):
                release = Release.read(model_file(tmp_path, sequence, secret), [trusted])
                made = make_canary(release, canary, None, [CHIP], None, 0.01)
                rollout = controller.begin(release, QUICK, DeviceGroups(), time.time(), made, canary)
                for _ in range(2):
                    time.sleep(draw.uniform(0.1, 2.0))
                    kill(server)
                    server = serve()
                kill(other)  # once: a release that does not come up in two boots is left, as it should be
                other = be_device()
                ended = partial(base.rows, "SELECT 1 FROM rollouts WHERE id = ? AND state = 'done'", rollout)
                wait_for(ended, 120)
            assert base.rows("SELECT running, wanted FROM devices") == [(2, 2)] * 2
            assert base.rows("PRAGMA integrity_check") == [("ok",)] and base.audited()
            said = json.loads((tmp_path / "d1" / "state.json").read_text())["state"]
            assert said["floor"] == 2 and said["trial"] is None
        finally:
            kill(server)
            kill(other)
    base.close()
