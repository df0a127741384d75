"""What people look at: releases, rollouts and devices."""

from __future__ import annotations

from typing import Any

from .base import FleetBase
from .policy import Policy
from .stages import stage_sizes


def status(base: FleetBase) -> dict[str, Any]:
    """Releases, rollouts, and devices by what they run, as plain data. Raises FleetError."""
    rows = base.rows
    with base.transaction():
        releases = rows("SELECT sequence, sha256, path, key, withdrawn FROM releases ORDER BY sequence")
        rollouts = rows("SELECT id, release, state, stage, policy, why FROM rollouts ORDER BY id")
        counts = rows("SELECT rollout, state, count(*) FROM assignments GROUP BY rollout, state ORDER BY 1, 2")
        devices = rows("SELECT running, wanted, count(*), max(seen) FROM devices GROUP BY 1, 2 ORDER BY 1, 2")
        sizes = dict(rows("SELECT rollout, count(*) FROM assignments GROUP BY rollout"))
    return {
        "devices": [dict(zip(("running", "wanted", "count", "seen"), row, strict=True)) for row in devices],
        "releases": [
            {"sequence": number, "sha256": sha, "path": path, "key": key, "withdrawn": bool(gone)}
            for number, sha, path, key, gone in releases
        ],
        "rollouts": [
            {
                "rollout": number,
                "release": release,
                "state": state,
                "stage": stage + 1,
                "stages": len(Policy.of_json(policy).shares),
                "most": stage_sizes(sizes[number], Policy.of_json(policy).shares)[stage],
                "devices": {kind: count for rollout, kind, count in counts if rollout == number},
                "why": why,
            }
            for number, release, state, stage, policy, why in rollouts
        ],
    }
