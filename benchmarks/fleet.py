"""The table of docs/fleet.md: releases with faults, rolled out to 1,200 devices that are modelled.

    python benchmarks/fleet.py --runs 2 --page docs/fleet.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tilewright.fleet import SIMULATED_FAULTS
from tilewright.fleet.policy import Policy
from tilewright.fleet.simulation import World, simulate, summary
from tilewright.support.files import write_part

EVERYWHERE = 330.0
"""Seconds after which the last stage has the release, and soaks."""


def rows(devices: int, runs: int) -> Iterator[str]:
    """The lines of the table, the worst of the runs: each fault at once, and once all devices have the release."""
    yield "| fault | shows | ever ran it faulty, % | to the stop, s | back, s | stopped | still run it |"
    yield "|---|---|---|---|---|---|---|"
    for after, shows in ((0.0, "at once"), (EVERYWHERE, f"after {EVERYWHERE:.0f} s")):
        for fault in SIMULATED_FAULTS:
            if after and fault in ("none", "forged", "offline"):  # who cannot be reached keeps it
                continue
            found = summary([simulate(World(devices, after=after), Policy(), fault, seed) for seed in range(runs)])
            numbers = [_worst(found["faulty_share"], 100.0), _worst(found["detection"]), _worst(found["rollback"])]
            yield f"| {fault} | {shows} | {' | '.join(numbers)} | {found['stopped']} of {runs} | {found['stranded']} |"


def _worst(found: dict[str, float] | None, scale: float = 1.0) -> str:
    return "" if found is None else f"{found['worst'] * scale:.1f}"


def main() -> None:
    """Prints the table, or writes it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=1200)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--page")
    args = parser.parse_args()
    lines: list[str] = []
    for line in rows(args.devices, args.runs):
        print(line, flush=True)
        lines.append(line)
    table = "\n".join(lines)
    if args.page is not None:
        write_part(args.page, "<!-- fleet begins -->", "<!-- fleet ends -->", table)


if __name__ == "__main__":
    main()
