"""A sample of the mutants of npu programs as text: see npu_text.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from .npu_text import run

SAMPLE = 6
"""Mutants of each program."""


@pytest.mark.parametrize("name", ["softmax", "product", "moves", "search"])
def test_what_npu_check_lets_pass_runs(name: str, tmp_path: Path) -> None:
    found = run(range(SAMPLE), tmp_path, [name])
    assert not found.faults
    assert sum(found.counts.values()) == SAMPLE and found.counts["refused"]
