"""Frontends of plugins: other files that hold programs."""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from ..support.plugins import FAILURES, PluginEntry, PluginError, entries
from .errors import FrontendError

FILE_TYPES = ("mlir", "mlirbc", "tw", "py")
"""Extensions of the files that we read ourselves."""


def frontend_of(path: str | Path) -> PluginEntry | None:
    """The frontend of a plugin for a file, by the file's extension; None where there is none."""
    return entries("frontends", FILE_TYPES).get(Path(path).suffix.removeprefix("."))


def read_with(entry: PluginEntry, content: bytes, filename: str) -> ModuleOp:
    """The module in the content of a file. Raises PluginError where the frontend cannot be loaded or gives no module;
    FrontendError, which names the file, where it refuses the content (ValueError)."""
    read = entry.function()
    try:
        module = read(content, filename)
    except (ValueError, FrontendError) as error:
        raise FrontendError(f"{filename}: {error}") from error
    except FAILURES as error:
        said = f"{type(error).__name__}: {error}".strip(": ")
        raise PluginError(f"{entry.found}: the frontend for .{entry.name} failed on {filename}: {said}") from error
    if not isinstance(module, ModuleOp):
        raise PluginError(f"{entry.found}: the frontend for .{entry.name} gave no module")
    return module
