"""Files of Python as modules, and the example models as functions with their inputs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def module_at(path: Path) -> ModuleType:
    """The module that a file has, run anew."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def example_module(file: str) -> ModuleType:
    """`examples/file.py`, run anew."""
    return module_at(EXAMPLES / f"{file}.py")


def load(model: str) -> tuple[Any, tuple[Any, ...]]:
    """The function of `file:name`, and its example inputs."""
    file, name = model.split(":")
    found = example_module(file)
    return getattr(found, name), getattr(found, f"{name}_inputs")()
