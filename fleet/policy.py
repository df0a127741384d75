"""What a rollout obeys: stages, groups and limits, also as people write them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any

from ..support.sentences import SentenceError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""Names of devices, regions and chips."""


class FleetError(SentenceError):
    """What a fleet cannot do; the message is one sentence."""


@dataclass(frozen=True)
class DeviceGroups:
    """Devices of these regions and chips; of all where none is named."""

    regions: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()

    def has(self, region: str, chip: str) -> bool:
        """Whether a device belongs to it."""
        return (not self.regions or region in self.regions) and (not self.chips or chip in self.chips)

    @staticmethod
    def of_text(text: str) -> DeviceGroups:
        """`region=eu,region=us,chip=ascend-310p3`; the empty text is all devices. Raises FleetError."""
        found: dict[str, list[str]] = {"region": [], "chip": []}
        for part in filter(None, text.split(",")):
            kind, _, name = part.partition("=")
            if kind not in found or NAME.fullmatch(name) is None:
                raise FleetError(f"--groups {text}: say region=NAME or chip=NAME, with commas between them")
            found[kind].append(name)
        return DeviceGroups(tuple(found["region"]), tuple(found["chip"]))


@dataclass(frozen=True)
class Policy:
    """Limits of a rollout. Times are seconds, shares are of 1.

    Attributes:
        shares: The share of devices that may have the release at each stage; they grow, and the last one is 1.
        soak: How long a stage has to be healthy after its devices run the release.
        most_latency: The latency of the release over that of the one before, at most, at `percentile` on each chip.
        most_errors: The share of calls that fail, and of devices that refuse or fail the release, at most.
        most_silent: The share of devices with the release that stop reporting, at most, if they are several.
        percentile: Which latency is compared.
        least_reports: Performance logs that a judgement needs, of a chip and of a stage.
        heartbeat: A device that has not reported for so long is silent.
        install: A device that was given the release and is silent for so long has lost it.
        window: How far back logs count.
    """

    shares: tuple[float, ...] = (0.01, 0.1, 0.5, 1.0)
    soak: float = 60.0
    most_latency: float = 1.2
    most_errors: float = 0.01
    most_silent: float = 0.25
    percentile: float = 0.9
    least_reports: int = 3
    heartbeat: float = 30.0
    install: float = 300.0
    window: float = 60.0

    def check(self) -> None:
        """Raises FleetError for limits that none may have."""
        if not self.shares or list(self.shares) != sorted({*self.shares}) or not self.shares[0] > 0:
            raise FleetError("the shares of stages have to grow, from more than 0%: 1%,10%,50%,100%")
        if self.shares[-1] != 1:
            raise FleetError("the last stage of a rollout has to be 100%")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "shares" and not (isfinite(value) and value >= 0):
                raise FleetError(f"{field.name} of a rollout cannot be {value}")

    def to_json(self) -> str:
        """As the database has it."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> Policy:
        """The policy of a row. Raises FleetError for what is none, as in a database of another version."""
        try:
            said: Mapping[str, Any] = json.loads(text)
            return Policy(**{**said, "shares": tuple(said["shares"])})
        except (ValueError, TypeError, KeyError):
            raise FleetError(f"a rollout has a policy that is none: {text[:60]}") from None


def shares_in(text: str) -> tuple[float, ...]:
    """`1%,10%,50%,100%` as shares. Raises FleetError."""
    return tuple(share_in(part, f"--stages {text}") for part in text.split(","))


def share_in(text: str, option: str) -> float:
    """`1%` or `0.01` as a share from 0 to 1. Raises FleetError, which names the option."""
    number = text.strip()
    scale = 100.0 if number.endswith("%") else 1.0
    return _number(number.removesuffix("%"), option, lambda x: 0 <= x <= scale, "a share such as 1%") / scale


def factor_in(text: str, option: str) -> float:
    """`1.2x` or `1.2` as a factor above 0. Raises FleetError, which names the option."""
    return _number(text.strip().removesuffix("x"), option, lambda x: x > 0, "a factor such as 1.2x")


def _number(text: str, option: str, good: Callable[[float], bool], what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and good(value)):
        raise FleetError(f"{option}: {text!r} is not {what}")
    return value
