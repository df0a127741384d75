"""A sample of the campaign that runs random programs one instruction at a time."""

from __future__ import annotations

from collections import Counter

from fuzz.step_compare import stepped

SAMPLE = 8
"""Programs of the sample, from seed 0 on."""


def test_a_sample_of_the_campaign() -> None:
    found = {seed: stepped(seed) for seed in range(SAMPLE)}
    wrong = {seed: each for seed, each in found.items() if each.kind in ("different", "fault")}
    assert not wrong, wrong
    assert Counter(each.kind for each in found.values())["equal"] >= SAMPLE - 3
