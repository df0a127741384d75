"""A sample of ONNX's own backend suite at the npu level; `make test-all` runs all of it (run_onnx.py)."""

from __future__ import annotations

import pytest
from onnx_suite import KINDS, cases, run_case
from run_onnx import main, summary
from tiering import sampled

EVERY = 12
"""One case in so many is run here: some 170."""

PARTS = 6
"""Tests that share them."""


@sampled(6)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_sample_of_the_suite(part: int) -> None:
    wanted = range(0, len(cases(KINDS)), EVERY)[part::PARTS]
    outcomes = [run_case(i, in_bytes=n % 8 == 0) for n, i in enumerate(wanted)]
    bad = [o for o in outcomes if o.status == "failed"]
    assert not bad, summary(bad, 0)
    refused = [o for o in outcomes if o.status == "refused"]
    assert len(refused) <= len(outcomes) // 30
    assert all("\n" not in o.why for o in refused)


def test_the_runner_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "^test_(relu|string_concat)$", "--kind", "node", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "2 cases: 1 left out" in said
    assert "of the other 1 1 pass (100.0%)" in said
