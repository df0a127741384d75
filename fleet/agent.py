"""What a device does, without files, network or clock: a generator that yields actions and is sent their results.

A device has two slots for releases. The one in use stays as it is while another release goes into the other slot, is
tried there, and becomes the one in use only when its values are right and the server was reached with it. What is
saved is saved before it is acted on, so that a device that loses power goes on from there: a release that does not
come up in `BOOTS` boots is left for the other slot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from .judging import LOST
from .orders import INSTALL, ORDER, FleetOrder, is_signed
from .policy import FleetError
from .reports import DeviceReport, Log, OrderOutcome

BOOTS = 2
"""How often a new release may fail to come up."""

CONTACT = 30.0
"""Seconds within which a new release has to reach the server, or it is left."""

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before a request is sent again: at most, twice as many each time, up to the second."""

LEAST_POLL, MOST_POLL = 0.01, 3600.0
"""What a server may ask for, in seconds."""


@dataclass(frozen=True)
class AgentSlot:
    """A release on the device, and the order that brought it."""

    order: FleetOrder

    @property
    def sequence(self) -> int:
        """Its number."""
        return self.order.target


@dataclass(frozen=True)
class AgentState:
    """What a device remembers.

    Attributes:
        name, region, chip: Which one it is.
        slots: The two releases that it has.
        active: The slot in use; None where there is none.
        trial: The slot that is tried.
        boots: How often that was begun, or the one in use since it last stayed up.
        floor: The lowest sequence that may be installed.
        done: The number of the last order that it was done with.
        left: Sequences that it was ordered to leave.
        outcome: What the server is still to hear.
    """

    name: str
    region: str
    chip: str
    slots: tuple[AgentSlot | None, AgentSlot | None] = (None, None)
    active: int | None = None
    trial: int | None = None
    boots: int = 0
    floor: int = 0
    done: int = 0
    left: tuple[int, ...] = ()
    outcome: OrderOutcome | None = None

    @property
    def current(self) -> int | None:
        """The slot that it runs."""
        return self.active if self.trial is None else self.trial

    @property
    def running(self) -> int:
        """The sequence that it runs, 0 for none."""
        slot = None if self.current is None else self.slots[self.current]
        return 0 if slot is None else slot.sequence

    @property
    def spare(self) -> int:
        """The slot that is not in use."""
        return 0 if self.active is None else 1 - self.active

    def with_slot(self, number: int, slot: AgentSlot | None) -> AgentState:
        """The same with another release in a slot."""
        return replace(self, slots=(slot, self.slots[1]) if number == 0 else (self.slots[0], slot))

    def to_json(self) -> str:
        """As it is saved."""
        slots = [None if slot is None else slot.order.to_bytes().decode() for slot in self.slots]
        return json.dumps({**asdict(self), "slots": slots})

    @staticmethod
    def of_json(text: str) -> AgentState:
        """Raises FleetError for what was not saved so."""
        try:
            said = json.loads(text)
            first, second = (None if s is None else AgentSlot(FleetOrder.of_bytes(s.encode())) for s in said["slots"])
            outcome = None if said["outcome"] is None else OrderOutcome(**said["outcome"])
            return AgentState(**{**said, "slots": (first, second), "outcome": outcome, "left": tuple(said["left"])})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FleetError("what the device remembers cannot be read") from None


# -- actions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Save:
    """Keep a state, so that it is there after a loss of power."""

    state: AgentState


@dataclass(frozen=True)
class Fetch:
    """Bring the file of an order into a slot. The result: "" where it is there and right, why it is refused, or None
    where it could not be brought."""

    order: FleetOrder
    slot: int


@dataclass(frozen=True)
class Try:
    """Load the release of a slot and run its canary. The result: "" where its values are right, or what is wrong."""

    slot: int
    order: FleetOrder


@dataclass(frozen=True)
class AgentWork:
    """Serve for so many seconds. The result: a log, or None where nothing runs."""

    seconds: float


@dataclass(frozen=True)
class Send:
    """Report to the server. The result: its answer, or None where there was none."""

    report: DeviceReport


Action = Save | Fetch | Try | AgentWork | Send


@dataclass(frozen=True)
class AgentOutside:
    """What decisions need besides: the fleet's public key, the time in seconds since 1970, and what jitter is drawn
    from."""

    fleet: str
    clock: Callable[[], float]
    random: Random = field(default_factory=Random)


def agent(state: AgentState, out: AgentOutside, poll: float) -> Generator[Action, Any, None]:
    """Runs a device from a state that was saved; it does not end. poll: seconds between reports until the server says
    otherwise."""
    restarted = state.trial is None and state.active is not None  # the server is asked first, then it is loaded
    if restarted:
        state = _restarted(state)
        yield Save(state)
    loaded = False  # the release in use, by this process
    failures, contact, wait = 0, out.clock(), 0.0
    while True:
        current = state.current
        if not loaded and not restarted and current is not None:
            if state.trial is not None and state.boots >= BOOTS:
                state = _back(state, "boot", f"it did not come up in {BOOTS} boots")
                yield Save(state)
                continue
            if state.trial is not None:
                state = replace(state, boots=state.boots + 1)
                yield Save(state)
            slot = state.slots[current]
            assert slot is not None
            wrong = yield Try(current, slot.order)
            if wrong and state.trial is not None:
                state = _back(state, "canary", wrong)
                yield Save(state)
                continue
            if wrong:  # what was good once is damaged: it is brought again
                state = replace(state.with_slot(current, None), active=None)
                yield Save(state)
            elif state.trial is not None and slot.order.kind != INSTALL:
                state = _taken(state)
                yield Save(state)
            loaded, contact, wait = True, out.clock(), 0.0
        log: Log | None = yield AgentWork(wait)
        answer: dict[str, Any] | None = yield Send(DeviceReport(state.running, state.done, log, state.outcome))
        restarted = False
        if answer is None:
            failures += 1
            longest = LONGEST_WAIT if state.trial is None else CONTACT / 4
            wait = out.random.uniform(0.1, 1) * min(longest, FIRST_WAIT * 2 ** min(failures, 10))
            if state.trial is not None and out.clock() - contact > CONTACT:
                state, loaded = _back(state, LOST, f"it had no contact for {CONTACT:.0f} s"), False
                yield Save(state)
            continue
        failures, stayed = 0, loaded and wait > 0
        poll = _seconds(answer.get("poll"), poll)
        wait = poll * out.random.uniform(0.8, 1.2)
        heard = _taken(state) if state.trial is not None else state
        heard = replace(heard, outcome=None, boots=0 if stayed else heard.boots)
        if heard != state:
            state = heard
            yield Save(state)
        order = opened(answer.get("order"), out.fleet)
        if order is None:
            continue
        before = state
        state = yield from _obey(state, order, out.clock())
        if state is not before:
            loaded, wait = state.current == before.current, 0.0


def _obey(state: AgentState, order: FleetOrder, now: float) -> Generator[Action, Any, AgentState]:
    """The state after an order was refused, or its release is in a slot and to be tried; the same where the file could
    not be brought."""
    if order.number <= state.done:
        return state  # replayed, or sent again before the server heard
    if why := refusal(state, order, now):
        return (yield from _refused(state, order, why))
    if not order.target:
        state = replace(state, active=None, floor=0, done=order.number, left=(*state.left, order.source))
        yield Save(state)
        return state
    slot, there = state.spare, state.slots[state.spare]
    if there is None or (there.order.sha256, there.order.canary) != (order.sha256, order.canary):
        if there is not None:
            state = state.with_slot(slot, None)
            yield Save(state)
        why = yield Fetch(order, slot)
        if why is None:
            return state
        if why:
            return (yield from _refused(state, order, why))
    state = replace(state.with_slot(slot, AgentSlot(order)), trial=slot, boots=0, done=order.number)
    yield Save(state)
    return state


def _refused(state: AgentState, order: FleetOrder, why: str) -> Generator[Action, Any, AgentState]:
    state = replace(state, done=order.number, outcome=OrderOutcome(order.number, "refused", why))
    yield Save(state)
    return state


def opened(said: Any, fleet: str) -> FleetOrder | None:
    """The order in an answer, None where there is none that the fleet has signed."""
    if not isinstance(said, dict) or not all(isinstance(said.get(key), str) for key in ("body", "signature")):
        return None
    body = said["body"].encode()
    if not is_signed(fleet, said["signature"], ORDER, body):
        return None
    try:
        return FleetOrder.of_bytes(body)
    except FleetError:
        return None


def refusal(state: AgentState, order: FleetOrder, now: float) -> str:
    """Why a device does not obey an order that the fleet has signed; empty where it does."""
    if order.valid < now:
        return "the order is too old"
    if order.device not in ("", state.name) or not order.groups.has(state.region, state.chip):
        return "the order is for other devices"
    if order.kind == INSTALL:
        if not order.device:
            return "the order to install is for no device in particular"
        if order.target < state.floor or order.target <= state.running:
            return f"release {order.target} is below {max(state.floor, state.running + 1)}"
        if order.target in state.left and not order.force:
            return f"release {order.target} was rolled back"
    elif order.source != state.running or order.target >= order.source:
        return f"the order leads from {order.source} to {order.target}, and {state.running} runs"
    return ""


def least_sequence(state: AgentState, order: FleetOrder) -> int:
    """The earliest release that the file of an order may be."""
    return max(state.floor, order.target) if order.kind == INSTALL else order.target


def _taken(state: AgentState) -> AgentState:
    """The slot that was tried is the one in use: installing raises the floor, and an order to go back lowers it to
    exactly where that leads."""
    assert state.trial is not None
    slot = state.slots[state.trial]
    assert slot is not None
    order, left = slot.order, state.left
    if order.kind == INSTALL:
        left = tuple(n for n in left if n != order.target)
    elif order.source not in left:
        left = (*left, order.source)
    return replace(state, active=state.trial, trial=None, boots=0, floor=order.target, left=left)


def _restarted(state: AgentState) -> AgentState:
    """A release that goes down again and again is told to the server, as one that did not come up is."""
    slot = None if state.active is None else state.slots[state.active]
    assert slot is not None
    boots = state.boots + 1
    why = OrderOutcome(slot.order.number, "boot", f"it went down {boots} times in a row")
    return replace(state, boots=boots, outcome=why if boots >= BOOTS else state.outcome)


def _back(state: AgentState, fault: str, why: str) -> AgentState:
    """The other slot is in use again, and the server is to hear why."""
    assert state.trial is not None
    slot = state.slots[state.trial]
    assert slot is not None
    outcome = OrderOutcome(slot.order.number, fault, why)
    return replace(state.with_slot(state.trial, None), trial=None, boots=0, outcome=outcome)


def _seconds(said: Any, otherwise: float) -> float:
    fits = isinstance(said, int | float) and not isinstance(said, bool) and LEAST_POLL <= said <= MOST_POLL
    return float(said) if fits else otherwise
