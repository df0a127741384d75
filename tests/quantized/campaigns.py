"""The command line of the campaigns of this folder."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Campaign:
    """what: what is counted; check: raises for a seed, in some memories, where something is wrong; summary: lines to
    print at the end, and whether they tell of something wrong; count: how many programs there are by default."""

    what: str
    check: Callable[[int, tuple[str, ...]], None]
    summary: Callable[[], tuple[list[str], bool]] = lambda: ([], False)
    count: int = 1000


def run(campaign: Campaign) -> None:
    """Runs what the command line asks for; exits with 1 where something is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=campaign.count)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no program after so many")
    parser.add_argument(
        "--bytes-every", type=int, default=1, help="one program in so many in addressed memory too"
    )
    args = parser.parse_args()
    wrong = done = 0
    end = time.monotonic() + args.seconds
    for seed in range(args.first, args.first + args.programs):
        if time.monotonic() > end:
            break
        done += 1
        try:
            campaign.check(seed, ("typed", "bytes") if seed % args.bytes_every == 0 else ("typed",))
        except Exception as error:
            wrong += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    lines, failed = campaign.summary()
    print("\n".join([f"from {args.first} on {done} {campaign.what}, {wrong} of them wrong", *lines]))
    sys.exit(bool(wrong or failed))
