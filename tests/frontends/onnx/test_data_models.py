"""Random models whose sizes data decides: a sample here, three hundred in the second tier."""

from __future__ import annotations

from collections import Counter

import pytest
from data_models import judge
from tiering import later

import tilewright as tw

STEPS = tw.Options(memory="step")


@pytest.mark.parametrize("seed", [3, 6, 9, 14, 18, 56, 77, 138, 422])
def test_random_models(seed: int) -> None:
    verdict = judge(seed, STEPS)
    assert verdict.status == "equal", verdict.why
    assert verdict.calls >= 3


@later()
def test_most_random_models_are_compiled() -> None:
    """Refused are models of which no bound is known, or whose numbers are computed on the host."""
    verdicts = {seed: judge(seed, STEPS) for seed in range(300)}
    count = Counter(v.status for v in verdicts.values())
    apart = {seed: v.why for seed, v in verdicts.items() if v.status != "equal"}
    assert count["wrong"] == 0, apart
    assert count["refused"] <= 10, apart
