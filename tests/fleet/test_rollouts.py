"""A controller and devices that report, crash, lose messages and are ordered about in any order."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from fleets import CHIP, Stepped, place, unread
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tiering import examples

from tilewright.fleet.agent import AgentSlot, AgentState, refusal
from tilewright.fleet.base import MEMORY, FleetBase
from tilewright.fleet.controller import Controller
from tilewright.fleet.orders import INSTALL, ROLLBACK, VALID, FleetOrder, Key
from tilewright.fleet.policy import DeviceGroups, FleetError, Policy
from tilewright.fleet.reports import Log
from tilewright.fleet.stages import stage_sizes

DEVICES = 12
POLICY = Policy(shares=(0.1, 0.4, 1.0), soak=5.0, least_reports=1)
MOODS = ("", "", "", "its values are off", "crash")
NUMBERS = st.integers(0, DEVICES - 1)
GROUPS = st.sampled_from([DeviceGroups(), DeviceGroups(("eu",)), DeviceGroups(("us",)), DeviceGroups(chips=(CHIP,))])


class FleetMachine(RuleBasedStateMachine):
    """What may happen to a fleet, and what must never be."""

    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.base = FleetBase(MEMORY, make=True)
        self.key = Key.of_seed(bytes(32))
        self.controller = Controller(self.base, self.key)
        self.controller.add([place(n) for n in range(DEVICES)], self.now)
        self.devices = [Stepped(place(n), self.controller, lambda: self.now) for n in range(DEVICES)]
        self.sequence = 0
        self.before: dict[str, AgentState] = {d.state.name: d.state for d in self.devices}
        for device in self.devices:
            device.report()

    @rule(seconds=st.sampled_from([1.0, 5.0, 40.0, VALID]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def controller_looks(self) -> None:
        self.controller.tick(self.now)

    @rule()
    def controller_restarts(self) -> None:
        self.controller = Controller(self.base, self.key)
        for device in self.devices:
            device.controller = self.controller

    @rule(groups=GROUPS, mood=st.sampled_from(MOODS))
    def release(self, groups: DeviceGroups, mood: str) -> None:
        for device in self.devices:
            device.moods[self.sequence + 1] = mood
        try:
            self.controller.begin(unread(self.sequence + 1), POLICY, groups, self.now)
        except FleetError:
            assert self.base.rows("SELECT 1 FROM rollouts WHERE state IN ('running', 'stopping')")
            return
        self.sequence += 1

    @precondition(lambda self: self.sequence > 0)
    @rule(back=st.integers(0, 3), groups=GROUPS, force=st.booleans())
    def release_again(self, back: int, groups: DeviceGroups, force: bool) -> None:
        sequence = max(1, self.sequence - back)
        gone = self.withdrawn()
        try:
            self.controller.begin(unread(sequence), POLICY, groups, self.now, force=force)
        except FleetError:
            return
        assert sequence not in gone or force

    @rule(to=st.none() | st.integers(0, 4))
    def somebody_rolls_back(self, to: int | None) -> None:
        with suppress(FleetError):  # there is none, or no such release
            self.controller.rollback(self.now, to)

    @rule(numbers=st.sets(NUMBERS, min_size=1), lost=st.sampled_from(["", "", "", "request", "answer"]),
          log=st.sampled_from([Log(100, 0, 10.0), Log(100, 0, 10.0), Log(100, 0, 20.0), Log(100, 50, 10.0),
                               Log(100, 0, 10.0, wrong=True)]))  # fmt: skip
    def devices_report(self, numbers: set[int], lost: str, log: Log) -> None:
        for number in sorted(numbers):
            device = self.devices[number]
            device.log, orders = log, len(device.orders)
            device.report(lost)
            gone = self.withdrawn()
            assert not any(order.target in gone for order in device.orders[orders:]), "it was offered again"

    @rule()
    def all_report(self) -> None:
        self.now += 10
        self.devices_report({*range(DEVICES)}, "", Log(100, 0, 10.0))
        self.controller.tick(self.now)

    @precondition(lambda self: len(self.devices) < DEVICES + 4)
    @rule()
    def device_is_added(self) -> None:
        new = place(len(self.devices))
        self.controller.add([new], self.now)
        self.devices.append(Stepped(new, self.controller, lambda: self.now))
        self.devices[-1].moods = {**self.devices[0].moods}
        self.before[new.name] = self.devices[-1].state

    @rule(number=NUMBERS)
    def device_loses_power(self, number: int) -> None:
        self.devices[number].start()

    def withdrawn(self) -> set[int]:
        return {n for (n,) in self.base.rows("SELECT sequence FROM releases WHERE withdrawn")}

    @invariant()
    def no_stage_is_passed(self) -> None:
        """Of the devices of a rollout, no more run a release that is not known to be good than its stage allows."""
        active = "SELECT id, release, stage FROM rollouts WHERE state = 'running'"
        for rollout, release, stage in self.base.rows(active):
            members = {n for (n,) in self.base.rows("SELECT device FROM assignments WHERE rollout = ?", rollout)}
            run = sum(d.state.name in members and d.state.running == release for d in self.devices)
            was = "SELECT count(*) FROM assignments WHERE rollout = ? AND before = ?"
            ((again,),) = self.base.rows(was, rollout, release)
            left = [d for d in self.devices if release in d.state.left and d.state.running == release]
            assert run - len(left) <= stage_sizes(len(members), POLICY.shares)[stage] + again

    @invariant()
    def sequences_grow(self) -> None:
        """A device goes below what it had only where it was ordered to, or leaves what it was trying."""
        for device in self.devices:
            now, then = device.state, self.before[device.state.name]
            if now.floor < then.floor:
                ordered = [o for o in device.orders if o.kind == ROLLBACK and o.source == then.running]
                assert ordered and now.floor == ordered[-1].target
            assert now.done >= then.done
            self.before[now.name] = now

    @invariant()
    def audit_log_is_whole(self) -> None:
        self.base.audited()

    def teardown(self) -> None:
        """When all is well again, every device comes to what it is to run."""
        if not hasattr(self, "base"):
            return
        for device in self.devices:
            device.moods = {}
        for _ in range(60):
            self.now += 20
            self.devices_report({*range(len(self.devices))}, "", Log(100, 0, 10.0))
            self.controller.tick(self.now)
        self.now += 2 * VALID
        for _ in range(8):
            self.now += 20
            self.devices_report({*range(len(self.devices))}, "", Log(100, 0, 10.0))
            self.controller.tick(self.now)
        active = self.base.rows("SELECT id, state FROM rollouts WHERE state IN ('running', 'stopping')")
        assert not active
        apart = self.base.rows("SELECT name, running, wanted FROM devices WHERE running <> wanted")
        assert not apart, apart
        gone = self.withdrawn()
        assert not [d.state.name for d in self.devices if d.state.running in gone]
        self.base.close()


def test_anything_may_happen() -> None:
    run_state_machine_as_test(FleetMachine, settings=settings(examples(60), stateful_step_count=30, deadline=None))


# -- what a device obeys ---------------------------------------------------------------------------------------

OLD, NOW = (
    FleetOrder(INSTALL, number, "d0", DeviceGroups(), 0, number, f"{number:064x}", 1000, None, None, False, 1e9)
    for number in (4, 5)
)
STATE = AgentState("d0", "eu", CHIP, (AgentSlot(OLD), AgentSlot(NOW)), 1, floor=5, done=9, left=(6,))
NEXT = replace(NOW, number=10, target=7)
BACK = replace(NOW, kind=ROLLBACK, number=10, device="", source=5, target=4)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (NEXT, ""),
        (replace(NEXT, valid=10.0), "too old"),
        (replace(NEXT, device="d1"), "for other devices"),
        (replace(NEXT, groups=DeviceGroups(("us",))), "for other devices"),
        (replace(NEXT, groups=DeviceGroups(chips=("ascend-910b1",))), "for other devices"),
        (replace(NEXT, device=""), "no device in particular"),
        (replace(NEXT, target=5), "release 5 is below 6"),
        (replace(NEXT, target=4), "release 4 is below 6"),
        (replace(NEXT, target=6), "release 6 was rolled back"),
        (replace(NEXT, target=6, force=True), ""),
        (BACK, ""),
        (replace(BACK, target=0), ""),
        (replace(BACK, source=6), "leads from 6 to 4, and 5 runs"),
        (replace(BACK, target=5), "leads from 5 to 5"),
        (replace(BACK, target=9), "leads from 5 to 9"),
        (replace(BACK, groups=DeviceGroups(("us",))), "for other devices"),
        (replace(BACK, valid=10.0), "too old"),
    ],
)
def test_what_a_device_obeys(order: FleetOrder, why: str) -> None:
    said = refusal(STATE, order, 1000.0)
    assert why in said if why else said == ""
    assert FleetOrder.of_bytes(order.to_bytes()) == order
    assert AgentState.of_json(STATE.to_json()) == STATE


def test_a_release_that_does_not_come_up() -> None:
    """Two slots and a counter of boots: the device is back by itself, and its server hears why."""
    now = [0.0]
    controller = Controller(FleetBase(MEMORY, make=True), Key.of_seed(bytes(32)))
    controller.add([place(0)], 0.0)
    device = Stepped(place(0), controller, lambda: now[0])
    device.report()
    for sequence, mood in ((1, ""), (2, "crash"), (3, "its values are off"), (4, "")):
        device.moods[sequence] = mood
        controller.begin(unread(sequence), replace(POLICY, shares=(1.0,)), DeviceGroups(), now[0])
        for _ in range(8):
            now[0] += 10
            device.report()
            controller.tick(now[0])
        assert device.state.running == (sequence if not mood else 1)
    why = {r["about"]["release"]: r["about"]["why"] for r in controller.base.audited() if r["what"] == "failed"}
    assert why == {2: "it did not come up in 2 boots", 3: "its values are off"}
    controller.rollback(now[0])
    for _ in range(3):
        now[0] += 10
        device.report()
    assert device.state.running == 1 and device.state.left == (4,) and device.state.floor == 1
    with pytest.raises(FleetError, match=r"release 4 was rolled back: --force offers it again"):
        controller.begin(unread(4), POLICY, DeviceGroups(), now[0])
    controller.tick(now[0])
    controller.begin(unread(4), POLICY, DeviceGroups(), now[0], force=True)
    for _ in range(3):
        now[0] += 10
        device.report()
    assert device.state.running == 4 and device.state.left == ()


def test_what_is_withdrawn_runs_nowhere() -> None:
    """Neither on a device that was added when its rollout was done, or while it ran, nor on one that was off for all of
    it and got it later, as the next release was taken back."""
    now = [0.0]
    controller = Controller(FleetBase(MEMORY, make=True), Key.of_seed(bytes(32)))
    controller.add([place(n) for n in range(4)], 0.0)
    devices = [Stepped(place(n), controller, lambda: now[0]) for n in range(6)]

    def go_on(*numbers: int) -> None:
        for _ in range(8):
            now[0] += 10
            for number in numbers:
                devices[number].report()
            controller.tick(now[0])

    policy = replace(POLICY, shares=(1.0,), soak=0.0)
    controller.begin(unread(1), policy, DeviceGroups(), now[0])
    controller.add([place(4)], now[0])
    go_on(0, 1, 4)  # two of four are off
    controller.add([place(5)], now[0])
    go_on(0, 1, 2, 4, 5)
    controller.begin(unread(2), policy, DeviceGroups(), now[0])
    assert controller.rollback(now[0]) == [2]
    go_on(*range(6))
    assert [d.state.running for d in devices] == [1] * 6
    assert controller.rollback(now[0]) == [1]
    go_on(*range(6))
    assert [d.state.running for d in devices] == [0] * 6


def test_a_new_release_without_contact_is_left() -> None:
    now = [0.0]
    controller = Controller(FleetBase(MEMORY, make=True), Key.of_seed(bytes(32)))
    controller.add([place(0)], 0.0)
    device = Stepped(place(0), controller, lambda: now[0])
    for sequence in (1, 2):
        controller.begin(unread(sequence), replace(POLICY, shares=(1.0,), soak=0.0), DeviceGroups(), now[0])
        for number in range(6):
            now[0] += 10
            device.report("request" if sequence == 2 and number else "")
            controller.tick(now[0])
            assert sequence == 1 or number != 1 or device.state.running == 2
    device.report()
    device.report()
    assert [r["about"]["fault"] for r in controller.base.audited() if r["what"] == "failed"] == ["lost"]
    assert controller.base.rows("SELECT running, wanted FROM devices") == [(1, 1)]


def test_a_release_that_goes_down_later() -> None:
    """The server is asked before it is loaded again, so that a device in a circle of crashes is reached."""
    now = [0.0]
    controller = Controller(FleetBase(MEMORY, make=True), Key.of_seed(bytes(32)))
    controller.add([place(0)], 0.0)
    device = Stepped(place(0), controller, lambda: now[0])
    for sequence in (1, 2):
        controller.begin(unread(sequence), replace(POLICY, shares=(1.0,), soak=0.0), DeviceGroups(), now[0])
        for _ in range(8):
            now[0] += 10
            device.report()
            controller.tick(now[0])
    device.moods[2] = "crash"
    device.start()
    for _ in range(12):
        now[0] += 10
        device.report()
        controller.tick(now[0])
    assert device.state.running == 1
    why = [r["about"]["why"] for r in controller.base.audited() if r["what"] == "failed"]
    assert why == ["it went down 2 times in a row"]
