"""A wheel has all that the tree has: each package, and each file beside the modules that they read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from test_layers import FOLDERS, ROOT
from tiering import whole

TOOL: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def _package(folder: Path) -> str:
    return ".".join(("tilewright", *folder.relative_to(ROOT).parts))


@whole()
def test_each_package_is_listed() -> None:
    found = {_package(p.parent) for name in FOLDERS for p in (ROOT / name).rglob("__init__.py")}
    assert {"tilewright", *found} == {*TOOL["packages"]}


@whole()
def test_each_file_of_data_is_listed() -> None:
    """Also those of folders that are no packages."""
    listed = {
        path
        for package, patterns in TOOL["package-data"].items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")[1:]).glob(pattern)
    }
    found = {
        path
        for name in FOLDERS
        for path in (ROOT / name).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and not path.name.startswith(".")
    }
    assert found <= listed, sorted(str(p.relative_to(ROOT)) for p in found - listed)
