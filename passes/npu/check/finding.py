"""What the checker says: one finding for each fault, with the two ops, the bytes and the reason."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from ....dialects.base import describe
from ...errors import PassError, SeveralErrors

BLAME = {
    "wrong-machine": "graph-to-tile",
    "race": "npu-synchronize",
    "unpaired-flag": "npu-synchronize",
    "reused-flag": "npu-synchronize",
    "event-overflow": "npu-synchronize",
    "deadlock": "npu-synchronize",
    "overlap": "npu-allocate",
    "uninitialised": "tile-to-npu",
    "out-of-bounds": "npu-allocate",
    "misaligned": "npu-allocate",
    "bad-box": "tile-to-npu",
    "bad-call": "tile-to-npu",
    "uncovered": "graph-to-tile",
    "core-race": "graph-to-tile",
    "in-place": "tile-to-npu",
    "device-overlap": "npu-plan-memory",
    "device-bounds": "npu-plan-memory",
    "device-uninitialised": "tile-to-npu",
    "stream-race": "npu-schedule-host",
    "barrier-race": "npu-join-launches",
    "core-bounds": "npu-join-launches",
    "unrecorded-event": "npu-schedule-host",
    "event-deadlock": "npu-schedule-host",
}
"""Every kind of finding, with the pass whose duty it is to prevent it."""


def plain(said: str) -> str:
    """Text as a part of what a finding formats."""
    return said.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True)
class Bytes:
    """Bytes [start, end) of a memory space of one core, or of device memory."""

    space: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"bytes {self.start}..{self.end - 1} of {self.space}"


@dataclass(frozen=True)
class Finding:
    """One fault.

    `first` comes before `second` in program order; `second` is None where one op is at fault alone. `at` and
    `then` say at which loop indices they run, `path` why nothing orders them, step by step. `what` is the fault
    in words, with {first} and {second} for the ops.
    """

    kind: str
    what: str
    first: Operation
    second: Operation | None = None
    bytes: Bytes | None = None
    at: str = ""
    then: str = ""
    path: tuple[str, ...] = ()
    kernel: str = ""

    @property
    def blame(self) -> str:
        """The pass whose duty it is to prevent this."""
        return BLAME[self.kind]

    def __str__(self) -> str:
        """One sentence."""
        second = "" if self.second is None else describe(self.second) + self.then
        said = self.what.format(first=describe(self.first) + self.at, second=second)
        where = "" if self.bytes is None else f", {self.bytes}"
        kernel = f"kernel @{self.kernel}: " if self.kernel else ""
        path = f" ({'; '.join(self.path)})" if self.path else ""
        return f"{kernel}{self.kind}: {said}{where}{path}"


class Hazards(SeveralErrors):
    """The findings of npu-check, at least one. ran: passes that made the program, which are blamed; what a person
    wrote has no pass to blame."""

    def __init__(self, findings: Sequence[Finding], ran: Container[str] = ()):
        self.findings = tuple(findings)
        blame = (f"; {f.blame} is to blame" if f.blame in ran else "" for f in findings)
        super().__init__([PassError(f"{f}{b}") for f, b in zip(findings, blame, strict=True)])

    def blaming(self, ran: Container[str]) -> Hazards:
        """The same, where `ran` are the passes that made the program."""
        return Hazards(self.findings, ran)
