"""A sample of the mutants of npu programs as text: see npu_text.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .npu_text import judged, run, seed_program

SAMPLE = 6
"""Mutants of each program."""


@pytest.mark.parametrize("name", ["softmax", "product", "moves", "search"])
def test_what_npu_check_lets_pass_runs(name: str, tmp_path: Path) -> None:
    found = run(range(SAMPLE), tmp_path, [name])
    assert not found.faults
    assert sum(found.counts.values()) == SAMPLE and found.counts["refused"]


@pytest.mark.parametrize(("by", "word"), [("2147483648", "refused"), ("2000000000", "runs"), ("100000", "runs")])
def test_boxes_that_begin_far_outside(by: str, word: str, tmp_path: Path) -> None:
    """They are clipped, without what lies between; a position is a number of 32 bits."""
    text, args = seed_program("split", "ascend-310")
    moved, count = re.subn(r"\[%0 \* 8 (\+ %\d+, 0\])", rf"[%0 * {by} \1", text, count=1)
    assert count == 1
    found, said = judged(moved, args, "ascend-310", tmp_path)
    assert found == word, said
    assert word == "runs" or "which is no number of 32 bits" in said
