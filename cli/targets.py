"""The chip of a command: with figures of its own (`--set`), or several of them side by side (`report --target a,b`)."""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..machine import DEFAULT_TARGET, Machine, MachineError
from ..machine.sources import figures
from ..support.files import real_path, toml_of, write_whole
from ..support.sentences import suggestion
from .common import CliError, table

if TYPE_CHECKING:
    from ..backends.report import Report


def settle_target(args: argparse.Namespace) -> None:
    """Makes `args.target` the chip with the figures of `--set`. Raises CliError, and MachineError for a figure that the
    chip does not have."""
    given = getattr(args, "set", None)
    if not given:
        return
    base = args.target or DEFAULT_TARGET
    if "," in base:
        raise CliError(f"--set changes one chip, and --target {base} names several")
    Machine.load(base)  # which says what is wrong with it, and not with what is made of it
    path = real_path(base) if base.endswith(".toml") else None
    keys = [key for key, _, _ in (text.partition("=") for text in given)]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise CliError(f"--set gives {twice.strip()} twice")
    lines = [f"extends = {json.dumps(base if path is None else str(path))}", *map(_line, given)]
    text = "\n".join(lines) + "\n"
    name = f"{Path(base).stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.toml"
    folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_whole(folder / name, text)
    args.target = str(folder / name)
    try:
        Machine.load(args.target)
    except MachineError as error:
        said = str(error).removeprefix(f"{args.target}: ")
        unknown = re.fullmatch(r"key '(.*)' is not known", said)
        near = suggestion(unknown[1], [f.key for f in figures(base)[1]]) if unknown else ""
        raise CliError(f"--set: {said}{near}") from None


def _line(text: str) -> str:
    """`memory.hbm_tb_per_s=2.9` as a line of a machine file."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise CliError(f"--set {text}: write KEY=VALUE, as in memory.hbm_tb_per_s=2.9")
    line = f"{key} = {value}"
    try:
        toml_of(line)
    except ValueError:
        raise CliError(f"--set {text}: the key is a name as `machines` lists it, the value a number") from None
    return line


def several(args: argparse.Namespace) -> list[str]:
    """The chips of `--target a,b`; none where it is one, or a path."""
    given = getattr(args, "target", None) or ""
    names = [n.strip() for n in given.split(",")]
    if len(names) < 2 or os.path.lexists(given):
        return []
    for name in names:
        Machine.load(name)
    return names


def side_by_side(name: str, found: Mapping[str, Report]) -> None:
    """Prints what a program costs on several chips."""
    rows = [
        [
            target,
            f"{r.microseconds:,.1f}",
            f"{r.floor_microseconds:,.1f}",
            f"{r.energy_joules * 1e3:.3g}",
            f"{r.memory.arena_bytes:,}",
            str(len(r.kernels)),
            max(r.kernels, key=lambda k: k.microseconds).bound if r.kernels else "",
        ]
        for target, r in found.items()
    ]
    head = ["chip", "us", "floor, us", "mJ", "device bytes", "kernels", "bound"]
    table(f"{name} on {len(found)} chips", head, rows)
