"""Where machine files are: beside this module, in plugins, or wherever a path says."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from ..support.files import mode_of
from ..support.plugins import PluginEntry, PluginError, entries
from .parts import MachineError


@cache
def known_machines() -> Mapping[str, Path | PluginEntry]:
    """Ours and those of plugins, by target."""
    ours = {path.stem: path for path in Path(__file__).parent.glob("*.toml")}
    return {**ours, **entries("machines", ours)}


def find(name: str, beside: Path | None = None) -> Path:
    """The file of a target, or of a path to a .toml (from the folder of the file `beside`). Raises MachineError."""
    there = known_machines().get(name)
    if isinstance(there, Path):
        return there
    if there is not None:
        try:
            return there.file()
        except PluginError as error:
            raise MachineError(str(error)) from error
    path = Path(name) if beside is None else beside.parent / name
    if path.suffix != ".toml":
        close = get_close_matches(name.lower(), known_machines(), 3, 0.5)
        listed = ", ".join(sorted(known_machines())) + ", or a path to a .toml"
        listed += f"; did you mean {' or '.join(close)}?" if close else ""
        if beside is not None:
            raise MachineError(f"{beside}: key 'extends' must name another target: {listed}")
        raise MachineError(f"unknown target '{name}': known are {listed}")
    place = f"{beside}: key 'extends': " if beside is not None else ""
    try:
        mode = mode_of(path)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero in it
        raise MachineError(f"{place}{path}: {getattr(error, 'strerror', None) or error}") from error
    if mode is None or not stat.S_ISREG(mode):
        raise MachineError(f"{place}{path}: {'no such file' if mode is None else 'not a file'}")
    return path


def stamps(paths: Iterable[Path]) -> dict[Path, int]:
    """When files were changed last, in ns; -1 for those that are gone."""
    found = {}
    for path in paths:
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:
            found[path] = -1
    return found
