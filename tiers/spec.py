"""What a TOML file says of tiers: a table for each, the data that accuracy is measured on, and what may be pruned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..api.arguments.signature import CompileError
from ..support.files import FilePath, read_plain, toml_of
from ..support.sentences import quoted, suggestion

MOST_BYTES = 1 << 20
"""Bytes of a file that says what tiers there are, at most."""

MOST_TIERS = 100
"""Tiers of a file, at most: each is compiled."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names of tiers, which files are called by."""

_DATA: Mapping[str, type] = {"batches": str, "calibration": str, "accuracy": str, "method": str}
_PRUNING: Mapping[str, type] = {"units": str, "retrain": str, "multiple": int}


@dataclass(frozen=True)
class TierSpec:
    """What is asked for. tiers: for each name its choices, as `build` takes them; data: where batches and calibration
    come from and how accuracy is measured, as text; pruning: the same of what may be pruned."""

    tiers: Mapping[str, Mapping[str, Any]]
    data: Mapping[str, str] = field(default_factory=dict[str, str])
    pruning: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_spec(path: FilePath) -> TierSpec:
    """The tiers that a TOML file asks for. Raises CompileError, which names the file and the key, for what is wrong in
    it, and OSError."""
    content = read_plain(path)
    try:
        if len(content) > MOST_BYTES:
            raise CompileError(f"it has {len(content):,} bytes, and {MOST_BYTES:,} at most are read")
        return _spec_of(toml_of(content.decode()))
    except UnicodeDecodeError:
        raise CompileError(f"{path}: it is not UTF-8") from None
    except CompileError as error:
        raise CompileError(f"{path}: {error}") from None
    except ValueError as error:
        raise CompileError(f"{path}: it is no TOML: {error}") from None


def _spec_of(found: Mapping[str, Any]) -> TierSpec:
    _check_known(found, ("tiers", "data", "pruning"), "")
    tiers = found.get("tiers")
    if not isinstance(tiers, dict) or not tiers:
        said = "write a table for each, such as [tiers.edge] with target, precision and batch"
        raise CompileError(f"it has no tiers: {said}")
    for name, choices in tiers.items():
        if not isinstance(choices, dict):
            raise CompileError(f"tiers.{name} must be a table, not {quoted(choices)}")
    return TierSpec(tiers, _strings(found, "data", _DATA), _strings(found, "pruning", _PRUNING))


def _strings(found: Mapping[str, Any], name: str, kinds: Mapping[str, type]) -> Mapping[str, Any]:
    """The table of this name, whose values have their types."""
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise CompileError(f"{name} must be a table, not {quoted(table)}")
    _check_known(table, kinds, f"{name}.")
    for key, value in table.items():
        if type(value) is not kinds[key]:
            wanted = "a text" if kinds[key] is str else "a whole number"
            raise CompileError(f"{name}.{key} must be {wanted}, not {quoted(value)}")
    return table


def _check_known(table: Mapping[str, Any], known: Any, place: str) -> None:
    for key in table:
        if key not in known:
            said = f"there are {', '.join(known)}{suggestion(key, known)}"
            raise CompileError(f"{place}{key}: there is no such key; {said}")


def check_names(tiers: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises CompileError for no tiers, for too many, and for names that no file has."""
    if not tiers:
        raise CompileError("there are no tiers: give choices of at least one, as {'edge': {'precision': 'f16'}}")
    if len(tiers) > MOST_TIERS:
        raise CompileError(f"{len(tiers)} tiers, of which each is compiled; the most is {MOST_TIERS}")
    lower: dict[str, str] = {}
    for name in tiers:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise CompileError(f"tiers.{name}: a tier is called by letters, digits, _ and -, as its file is")
        if lower.setdefault(name.lower(), name) != name:
            raise CompileError(f"tiers.{name}: {lower[name.lower()]} would be the same file on some computers")
