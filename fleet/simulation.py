"""A fleet on a virtual clock: the controller and the decisions of devices as they are, with links, programs and faults
that are modelled. One seed gives one course of events."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from math import exp
from random import Random
from statistics import median
from typing import Any

from .agent import Action, AgentOutside, AgentState, AgentWork, Fetch, Save, Send, Try, agent
from .base import MEMORY, FleetBase
from .controller import POLL, Controller
from .judging import RUNNING
from .orders import Key
from .policy import DeviceGroups, Policy
from .releases import Release
from .reports import Log
from .stages import DevicePlace

GOOD, NEW = 1, 2
"""The releases: the one that all devices run at first, and the one that is rolled out."""

SLOWER = 1.5
"""What a fault of latency multiplies by."""

LATENCY = {"ascend-310p3": 800.0, "ascend-310": 1900.0, "ascend-910b4": 350.0}
"""Chips of the fleet, and microseconds of a call on them with the good release."""

REGIONS = {"eu": 0.5, "us": 0.3, "apac": 0.2}
"""Regions, and which share of the devices is there."""


@dataclass(frozen=True)
class World:
    """What is assumed of devices and links; none of it was measured. Times are seconds.

    Attributes:
        devices: How many there are.
        poll: Between reports.
        tick: Between the controller's looks.
        loss: The share of messages that are lost.
        delay: The median of a message's way; its logarithm is normal with deviation 0.5.
        timeout: What a device waits for an answer.
        size: Bytes of a release.
        rate: Bytes per second of a link.
        slow: The share of links with a tenth of that, and ten times the delay.
        offline: The share of devices that are off from before the rollout until it ended.
        switch: What it takes to load a release and run its canary.
        boot: What a device takes to come up after a crash.
        calls: Calls of a release per second.
        noise: The relative deviation of latencies.
        errors: The share of calls that fail with any release.
        after: When the fault shows, since the rollout began; before that, the release behaves.
    """

    devices: int = 1200
    poll: float = POLL
    tick: float = 2.0
    loss: float = 0.01
    delay: float = 0.05
    timeout: float = 5.0
    size: int = 20_000_000
    rate: float = 4e6
    slow: float = 0.05
    offline: float = 0.03
    switch: float = 4.0
    boot: float = 8.0
    calls: float = 10.0
    noise: float = 0.03
    errors: float = 1e-4
    after: float = 0.0


WARM = 30.0
"""Seconds of the good release before the rollout."""

LONGEST = 7200.0
"""Seconds of a simulation, at most."""

SETTLING = 120.0
"""Seconds that devices have once all are online again."""


@dataclass
class SimulatedDevice:
    """A device and its link. state: what it would find after a loss of power; ran: when it first ran the new release;
    bad: when it first ran it while the fault shows; back: when it last left it."""

    place: DevicePlace
    slow: bool
    offline: bool
    state: AgentState
    steps: Any = None
    running: int = 0
    ran: float | None = None
    bad: float | None = None
    back: float | None = None


@dataclass
class Course:
    """What came to pass, in seconds since the rollout began. None: it did not.

    Attributes:
        devices: How many there are, and how many were offline for the whole rollout.
        ran: Devices that ever ran the new release; `faulty`: while the fault showed.
        first: When the first one ran it while the fault showed.
        reported: When the first report of what is wrong came in.
        stopped: When the controller stopped the rollout; `why`: its reason.
        back: When the last device that can be reached had left the release.
        stranded: Devices that can be reached and still run it at the end.
        right: Devices, and offline ones, that run what they are to run at the end.
        timeline: (seconds, what happened, devices that run the new release).
    """

    devices: int
    offline: int
    state: str = ""
    why: str = ""
    ran: int = 0
    faulty: int = 0
    first: float | None = None
    reported: float | None = None
    stopped: float | None = None
    back: float | None = None
    stranded: int = 0
    right: int = 0
    offline_right: int = 0
    refused: int = 0
    messages: int = 0
    timeline: list[tuple[float, str, int]] = field(default_factory=list)

    @property
    def detection(self) -> float | None:
        """Seconds from the first device with the fault, or for a file that none takes from the first that refused, to
        the stop."""
        began = self.reported if self.first is None else self.first
        return None if self.stopped is None or began is None else self.stopped - began

    @property
    def rollback(self) -> float | None:
        """Seconds from the first report of what is wrong to the last device back; None where a device is not back, or
        none ever ran it; 0 where they had left it by themselves."""
        if self.stranded or self.back is None or self.reported is None:
            return None
        return max(0.0, self.back - self.reported)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        own = {**vars(self), "detection": self.detection, "rollback": self.rollback}
        timeline = [dict(zip(("seconds", "what", "running"), row, strict=True)) for row in self.timeline]
        return {**own, "timeline": timeline}


def simulate(world: World, policy: Policy, fault: str, seed: int) -> Course:
    """Rolls a release out to a fleet. fault: one of `SIMULATED_FAULTS`. Raises FleetError for a policy that none may
    have."""
    return FleetSimulation(world, policy, fault, seed).run()


class FleetSimulation:
    """A fleet, its controller, and what happens next."""

    def __init__(
        self, world: World, policy: Policy, fault: str, seed: int, base: FleetBase | None = None
    ) -> None:
        """base: where the controller keeps what it knows; in memory where it is None."""
        self.world, self.policy, self.fault, self.random = world, policy, fault, Random(f"{seed} {fault}")
        self.now, self.began = 0.0, float("inf")  # the rollout has not begun
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        key = Key.of_seed(sha256(b"simulated fleet").digest())
        self.controller = Controller(base or FleetBase(MEMORY, make=True), key, world.poll)
        self.devices: dict[str, SimulatedDevice] = {}
        self.rollout = 0
        self._seen = RUNNING, 0
        self._counts = Counter[int]()
        self.course = Course(0, 0)

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """Has something happen in so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), do))

    def run(self) -> Course:
        """The course of a rollout, until all devices are online again and had time to settle."""
        self.begin()
        while self._events and self.now < LONGEST:
            self.now, _, do = heapq.heappop(self._events)
            do()
        return self._ended()

    # -- the fleet ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Makes the devices, all of which run the good release, and plans what comes."""
        world, draw = self.world, self.random
        regions = _shared(world.devices, REGIONS)
        for number in range(world.devices):
            place = DevicePlace(f"store-{number + 1:04}", regions[number], draw.choice([*LATENCY]))
            state = AgentState(*place)
            slow, offline = draw.random() < world.slow, draw.random() < world.offline
            self.devices[place.name] = SimulatedDevice(place, slow, offline, state)
        self.course = Course(world.devices, sum(d.offline for d in self.devices.values()))
        self.controller.add([d.place for d in self.devices.values()], self.now)
        everywhere = Policy(shares=(1.0,), soak=0.0)
        self.controller.begin(_release(GOOD, world), everywhere, DeviceGroups(), self.now)
        for device in self.devices.values():
            self._start(device, draw.uniform(0, world.poll))
        self.at(world.tick, self._tick)
        self.at(WARM, self._settle)

    def _settle(self) -> None:
        """Waits until the good release is everywhere, and begins then."""
        behind = sum(d.running != GOOD for d in self.devices.values())
        if behind or self.controller.base.rows("SELECT 1 FROM rollouts WHERE state = 'running'"):
            self.at(self.world.poll, self._settle)
            return
        for device in self.devices.values():
            if device.offline:
                device.steps = None  # its power is off
        self.at(WARM, self._roll_out)

    def _roll_out(self) -> None:
        self.rollout = self.controller.begin(_release(NEW, self.world), self.policy, DeviceGroups(), self.now)
        self.began = self.now
        self._note("rollout begins")
        if self.world.after:
            self.at(self.world.after, self._fault_shows)
        self.at(self.world.tick, self._watch)

    def _fault_shows(self) -> None:
        self._note("the fault shows")
        for device in self.devices.values():
            self._runs(device, device.running)

    def _watch(self) -> None:
        """Notes what became of the rollout, and ends it."""
        (state, stage, why), = self.controller.base.rows(
            "SELECT state, stage, why FROM rollouts WHERE id = ?", self.rollout
        )  # fmt: skip
        if (state, stage) != self._seen:
            self._seen = state, stage
            share = self.policy.shares[stage]
            self._note(f"stage {share:.0%} opens" if state == RUNNING else f"{state}{': ' + why if why else ''}")
            if state == "stopping":
                self.course.stopped, self.course.why = self.now - self.began, why
                self._bad_report()  # who fell silent has reported nothing
        if state == RUNNING or state == "stopping":
            if self.now - self.began < LONGEST / 2:
                self.at(self.world.tick / 4, self._watch)
                return
            self._note("nothing more happens")
        self.course.state = state
        for device in self.devices.values():
            if device.offline:
                self._start(device, self.random.uniform(0, self.world.poll))
        self._note("devices that were offline are back")
        self.at(SETTLING, self._events.clear)

    def _tick(self) -> None:
        self.controller.tick(self.now)
        self.at(self.world.tick, self._tick)

    def _note(self, what: str) -> None:
        self.course.timeline.append((self.now - self.began, what, self._counts[NEW]))

    def _ended(self) -> Course:
        course, wanted = self.course, GOOD if self.course.stopped is not None else NEW
        for device in self.devices.values():
            course.ran += device.ran is not None
            course.faulty += device.bad is not None
            course.right += device.running == wanted
            course.offline_right += device.offline and device.running == wanted
            course.stranded += course.stopped is not None and device.running == NEW
        bad = [d.bad - self.began for d in self.devices.values() if d.bad is not None]
        back = [d.back - self.began for d in self.devices.values() if d.ran is not None and d.back is not None]
        course.first = min(bad, default=None)
        course.back = max(back, default=None) if course.stopped is not None else None
        refused = "SELECT count(*) FROM audit WHERE what = 'refused'"
        ((course.refused,),) = self.controller.base.rows(refused)
        return course

    # -- a device ----------------------------------------------------------------------------------------------

    def _start(self, device: SimulatedDevice, seconds: float) -> None:
        """Switches a device on, from what it has saved."""
        public = self.controller.key.public
        out = AgentOutside(public, lambda: self.now, Random(f"{device.place.name} {self.random.random()}"))
        steps = device.steps = agent(device.state, out, self.world.poll)
        self.at(seconds, lambda: self._step(device, steps, None))

    def _step(self, device: SimulatedDevice, steps: Any, result: Any) -> None:
        """Goes on with a device whose action has a result, unless it was switched off meanwhile."""
        while device.steps is steps:
            action: Action = steps.send(result)
            if not isinstance(action, Save):
                self._act(device, steps, action)
                return
            device.state, result = action.state, None
            self._runs(device, action.state.running)

    def _act(self, device: SimulatedDevice, steps: Any, action: Action) -> None:
        world = self.world

        def then(seconds: float, result: Any) -> None:
            self.at(seconds, lambda: self._step(device, steps, result))

        match action:
            case Fetch(order):
                forged = order.target == NEW and self.fault == "forged"
                seconds = world.size / (world.rate * (0.1 if device.slow else 1.0))
                if forged:
                    self._bad_report()
                then(seconds, "it is signed by another key, which is not trusted" if forged else "")
            case Try():
                if self._shows(device, "crash"):
                    self._crash(device)
                else:
                    then(world.switch, "its values are off" if self._shows(device, "values") else "")
            case AgentWork(seconds):
                if seconds and self._shows(device, "crash"):
                    self._crash(device)
                else:
                    then(seconds, self._log(device, seconds))
            case Send(report):
                self._send(device, steps, report)

    def _send(self, device: SimulatedDevice, steps: Any, report: Any) -> None:
        """A report on its way, and the answer on its own."""
        there, back = self._delay(device), self._delay(device)
        lost = [self._shows(device, "offline") or self.random.random() < self.world.loss for _ in range(2)]
        self.course.messages += 1
        if lost[0]:
            self.at(self.world.timeout, lambda: self._step(device, steps, None))
            return
        if report.outcome is not None or (report.log is not None and self._is_bad(device, report.log)):
            self.at(there, self._bad_report)

        def arrives() -> None:
            answer = self.controller.report(device.place.name, report, self.now).to_json()
            self.at(
                self.world.timeout if lost[1] else back, lambda: self._step(device, steps, None if lost[1] else answer)
            )

        self.at(there, arrives)

    def _log(self, device: SimulatedDevice, seconds: float) -> Log | None:
        if not device.running:
            return None
        draw, calls = self.random, round(self.world.calls * seconds)
        slower = SLOWER if self._shows(device, "latency") else 1.0
        latency = LATENCY[device.place.chip] * slower * exp(draw.gauss(0, self.world.noise))
        errors = int(draw.random() < self.world.errors * calls)  # rare: two at once do not matter
        return Log(calls, errors, latency if calls else None, wrong=self._shows(device, "values"))

    def _crash(self, device: SimulatedDevice) -> None:
        self._start(device, self.world.boot)

    def _shows(self, device: SimulatedDevice, fault: str) -> bool:
        """Whether a device shows a fault now."""
        runs = self.fault == fault and device.running == NEW
        return runs and self.now - self.began >= self.world.after

    def _is_bad(self, device: SimulatedDevice, log: Log) -> bool:
        """Whether a report has what is wrong in it."""
        shows = any(self._shows(device, fault) for fault in ("latency", "values", "crash"))
        return shows and (log.errors > 0 or log.latency is not None)

    def _bad_report(self) -> None:
        if self.course.reported is None and self.rollout:
            self.course.reported = self.now - self.began

    def _runs(self, device: SimulatedDevice, sequence: int) -> None:
        """Notes what a device runs from now on."""
        if sequence != device.running:
            self._counts[device.running] -= 1
            self._counts[sequence] += 1
            if device.running == NEW:
                device.back = self.now
            device.running = sequence
        if sequence == NEW:
            device.ran = self.now if device.ran is None else device.ran
            if self.fault != "none" and device.bad is None and self.now - self.began >= self.world.after:
                device.bad = self.now

    def _delay(self, device: SimulatedDevice) -> float:
        """Seconds of a message's way."""
        return self.world.delay * (10 if device.slow else 1) * exp(self.random.gauss(0, 0.5))


def _release(sequence: int, world: World) -> Release:
    digest = sha256(f"release {sequence}".encode()).hexdigest()
    return Release(sequence, digest, digest, world.size, f"release-{sequence}.twm", "", tuple(sorted(LATENCY)), True)


def _shared(count: int, shares: dict[str, float]) -> list[str]:
    """So many names, each by its share."""
    found = [name for name, share in shares.items() for _ in range(round(count * share))]
    return (found + [next(iter(shares))] * count)[:count]


def summary(courses: Sequence[Course]) -> dict[str, Any]:
    """The median and the worst of several courses: of the share of devices that ran the release with its fault, of
    seconds of detection and of rollback; and what went wrong in any of them."""

    def two(values: list[float]) -> dict[str, float] | None:
        return {"median": median(values), "worst": max(values)} if values else None

    return {
        "runs": len(courses),
        "stopped": sum(c.stopped is not None for c in courses),
        "faulty_share": two([c.faulty / c.devices for c in courses]),
        "detection": two([c.detection for c in courses if c.detection is not None]),
        "rollback": two([c.rollback for c in courses if c.rollback is not None]),
        "stranded": max(c.stranded for c in courses),
        "wrong_at_the_end": max(c.devices - c.right for c in courses),
    }
