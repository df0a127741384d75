"""Names of model files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ENTRY = "main"
"""What the function of a file is called where nobody says."""

SUFFIX = ".twm"
"""What names of model files end with."""


def named_file(source: Any) -> tuple[Path, str | None] | None:
    """The path and the function that a source names, as in `model.twm` and `model.twm:prefill`; None for another
    source."""
    if not isinstance(source, str | Path) or "\n" in str(source):
        return None
    path, colon, entry = str(source).rpartition(":")
    if colon and path.endswith(SUFFIX):
        return Path(path), entry
    return (Path(source), None) if str(source).endswith(SUFFIX) else None
