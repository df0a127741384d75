"""`tilewright cache`: what a directory keeps, and what the command line keeps there of XLA's."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from ...api.kept import EXECUTABLES, PROGRAMS, cache_directory, usable_directory
from ...support.cache import LIMIT_BYTES, CacheDirectory, File, files_in, trim
from ..common import CliError, print_json, table, tell

_XLA = re.compile(r".+-(cache|atime)")
"""The names of JAX's files."""


def keep_executables(given: str | None) -> None:
    """Has JAX keep what XLA compiles for this process in the directory of `--cache`, or of the environment, unless JAX
    is told of another one. JAX has no such setting for single calls, so only the command line does this. Of more than
    `LIMIT_BYTES` what was written first goes."""
    import jax

    directory = usable_directory(given)
    if directory is None or jax.config.values["jax_compilation_cache_dir"] or not _is_text(directory):
        return
    jax.config.update("jax_compilation_cache_dir", str(directory / EXECUTABLES))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    trim(_executables(directory), LIMIT_BYTES)


def _is_text(path: Path) -> bool:
    """Whether a path is UTF-8, as JAX takes it."""
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def cache(args: argparse.Namespace) -> int:
    """Lists what a directory keeps, or removes it."""
    directory = cache_directory(args.directory)
    if directory is None:
        raise CliError("which directory? give it, or set TILEWRIGHT_CACHE")
    if not directory.is_dir():
        raise CliError(f"{directory}: there is no such directory")
    programs = CacheDirectory(directory / PROGRAMS)
    kept, executables = programs.entries(), list(_executables(directory))
    size = sum(s for _, s, _ in executables)
    if args.clear:
        cleared = programs.clear()
        trim(executables, -1)
    if args.json:
        found = {
            "schema": "tilewright.cache/1",
            "directory": str(directory),
            "entries": [{**kept_.about, "bytes": kept_.bytes, "used": kept_.used} for kept_ in kept],
            "executables": {"files": len(executables), "bytes": size},
            "cleared": args.clear,
        }
        print_json(found)
        return 0
    if args.clear:
        removed = _counted(cleared, "program"), _counted(len(executables), "executable")
        tell(f"removed {' and '.join(removed)} of XLA from {directory}")
        return 0
    rows = [
        [
            k.about.get("program", ""),
            k.about.get("sizes", ""),
            k.about.get("target", ""),
            f"{k.bytes:,}",
            datetime.fromtimestamp(k.used).isoformat(" ", "seconds"),
        ]
        for k in kept
    ]
    total = sum(k.bytes for k in kept)
    title = (
        f"{directory}: {_counted(len(kept), 'program')}, {total:,} bytes; "
        f"{_counted(len(executables), 'executable')} of XLA, {size:,} bytes"
    )
    table(title, ["program", "sizes", "target", "bytes", "last use"], rows)
    return 0


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _executables(directory: Path) -> Iterator[File]:
    """The files of JAX's own cache."""
    return files_in(directory / EXECUTABLES, _XLA)
