"""A sample of the mutants of each kind of file: see files.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from .files import KINDS, MEGABYTES, run_kind

SAMPLE = 12
"""Mutants of each kind."""


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_are_refused_or_accepted(kind: str, tmp_path: Path) -> None:
    found = run_kind(kind, tmp_path, range(SAMPLE))
    assert not found.faults
    assert sum(found.counts.values()) == SAMPLE
    assert found.megabytes < MEGABYTES
