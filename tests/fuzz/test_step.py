"""A sample of the campaign that runs random programs one instruction at a time."""

from __future__ import annotations

from collections import Counter

from fuzz.campaign import DYNAMIC, RANDOM
from fuzz.step_compare import outcome


def test_a_sample_of_the_campaign() -> None:
    """Some for one size, some for many."""
    found = {(seed, kind): outcome(seed, "", kind) for kind in (RANDOM, DYNAMIC) for seed in range(4)}
    wrong = {key: each for key, each in found.items() if each[0] in ("different", "fault")}
    assert not wrong, wrong
    assert Counter(kind for kind, *_ in found.values())["equal"] >= 6
