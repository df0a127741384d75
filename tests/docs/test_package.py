"""What the package says of itself: its version, its licence, and who to ask."""

from __future__ import annotations

import tomllib
from pathlib import Path

import tilewright as tw

ROOT = Path(__file__).resolve().parents[2]


def test_version_licence_and_links() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]  # that of the package
    assert f"## [{tw.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert project["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
    assert project["authors"] and project["urls"]
    assert "pip install ." in (ROOT / "README.md").read_text()
