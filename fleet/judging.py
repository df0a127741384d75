"""What becomes of a rollout: a function of where it is, what devices have reported, and the time. No clock, no files.

    running --(a stage's devices run it, and are healthy for the soak)--> running, next stage --> done
    running --(a limit is passed, or somebody asks)--> stopping --(devices that can be reached are back)--> stopped
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from .policy import Policy

RUNNING, DONE, STOPPING, STOPPED = "running", "done", "stopping", "stopped"
"""States of a rollout."""

LOST = "lost"
"""What is wrong with a device that fell silent with a release, or went back as it had no contact with it."""


@dataclass(frozen=True)
class Progress:
    """Where a rollout is. full: since when devices of the stage that can be reached run the release, in seconds; None
    while they do not; why: what stopped it."""

    state: str = RUNNING
    stage: int = 0
    full: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Evidence:
    """What is known of a release in its rollout.

    Attributes:
        offered: Devices of the stages so far.
        given: Those of them that were given the order.
        running: Those that run the release.
        pending: Those that can be reached and neither run nor failed it.
        failed: Those that refused or failed it, or whose canary has wrong values.
        left: Those that refused or failed it, or went back as they had no contact with it: they do not try again.
        lost: Those that stopped reporting with it.
        leaving: Those that can be reached and are to go back.
        calls, errors: Of the programs that were called with the release.
        reports: Performance logs since the stage is full.
        latencies: By chip, microseconds with the release and with the one before.
        example: What one device that failed has said.
    """

    offered: int = 0
    given: int = 0
    running: int = 0
    pending: int = 0
    failed: int = 0
    left: int = 0
    lost: int = 0
    leaving: int = 0
    calls: int = 0
    errors: int = 0
    reports: int = 0
    latencies: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    example: str = ""


def step(policy: Policy, at: Progress, evidence: Evidence, now: float) -> Progress:
    """Where a rollout is next; the same where nothing happens."""
    if at.state == STOPPING:
        return at if evidence.leaving else replace(at, state=STOPPED)
    if at.state != RUNNING:
        return at
    if why := fault(policy, evidence):
        return replace(at, state=STOPPING, why=why)
    if at.full is None:
        full = not evidence.pending and 2 * evidence.running >= evidence.offered
        return replace(at, full=now) if full else at
    if now - at.full < policy.soak or evidence.reports < policy.least_reports:
        return at
    if at.stage + 1 < len(policy.shares):
        return replace(at, stage=at.stage + 1, full=None)
    return replace(at, state=DONE)


def fault(policy: Policy, e: Evidence) -> str:
    """Why a release is faulty, in a sentence; empty for one that is not known to be."""
    if e.failed > policy.most_errors * e.given:
        return f"{e.failed} of {e.given} devices failed it: {e.example}"
    if e.lost > max(1.0, policy.most_silent * e.given):
        return f"{e.lost} of {e.given} devices that have it stopped reporting"
    if not e.pending and 2 * e.left > e.offered:  # the stage would never be full
        return f"{e.left} of the {e.offered} devices of the stages so far left it{': ' if e.example else ''}{e.example}"
    if e.errors > max(1.0, policy.most_errors * e.calls):
        return f"{e.errors} of {e.calls} calls failed"
    for chip, (new, before) in sorted(e.latencies.items()):
        if len(new) >= policy.least_reports and len(before) >= policy.least_reports:
            now, then = percentile(new, policy.percentile), percentile(before, policy.percentile)
            if now > policy.most_latency * then:
                return f"on {chip} a call takes {now:.6g} us, {now / then:.2f} times as long as before"
    return ""


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that `share` of them do not exceed (the nearest rank)."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]
