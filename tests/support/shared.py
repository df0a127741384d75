"""What lies beside the repository and is no part of it: published measurements and StableHLO's conformance suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("TILEWRIGHT_SHARED") or Path(__file__).resolve().parents[3] / "shared")
"""`../shared`, or what `TILEWRIGHT_SHARED` names."""


def needs(path: Path) -> pytest.MarkDecorator:
    """Skips a test where `path` is absent."""
    return pytest.mark.skipif(not path.exists(), reason=f"there is no {path}: see docs/testing.md")
