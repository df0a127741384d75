"""Records of measured kernels. A record is data from documents: every field may be missing, null or odd, so
each is read through a method that gives None instead of failing."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from ..support.files import read_plain


class CalibrationError(Exception):
    """A file of records that cannot be read; the message is one sentence."""


NOT_BY_HAND = ("torch_npu", "library", "generated", "reference implementation")
"""Words in `impl` of kernels without a schedule of their own: library operators and generated code."""

FAMILY = ("a2", "a3", "910b", "910c", "910_93")
"""How names of the chips begin that the model is calibrated for: one core design, arch 2201."""


@dataclass(frozen=True)
class Record:
    """One measured kernel. Times are microseconds."""

    id: str
    chip: str
    data: Mapping[str, Any]

    def part(self, name: str) -> Mapping[str, Any]:
        """A nested table; empty where it is missing or is none."""
        value = self.data.get(name)
        return value if isinstance(value, Mapping) else {}

    def text(self, part: str, key: str) -> str:
        """A string of a nested table; '' where it is missing."""
        value = self.part(part).get(key)
        return "" if value is None else str(value)

    def integer(self, part: str, key: str) -> int | None:
        """A positive integer of a nested table; None for anything else."""
        return positive(self.part(part).get(key))

    def integers(self, part: str, key: str) -> tuple[int, ...] | None:
        """A list of positive integers; None for anything else."""
        value = self.part(part).get(key)
        if not isinstance(value, list) or not value:
            return None
        found = tuple(n for n in map(positive, value) if n is not None)
        return found if len(found) == len(value) else None

    def flag(self, part: str, key: str) -> bool | None:
        """A boolean; None for anything else."""
        value = self.part(part).get(key)
        return value if isinstance(value, bool) else None

    @property
    def engine(self) -> str:
        """cube, vector or mix."""
        return str(self.data.get("engine") or "")

    @property
    def measured(self) -> dict[str, float]:
        """The published times in microseconds."""
        return {k: float(v) for k, v in self.part("measured_us").items() if _is_time(v)}

    @property
    def family(self) -> bool:
        """Whether its chip is of the 910B family or A2/A3."""
        return self.chip.lower().removeprefix("ascend").strip(" -_").startswith(FAMILY)

    @property
    def by_hand(self) -> bool:
        """Whether its schedule is published: a hand-written kernel with its blocks, tiles or addresses."""
        impl = self.text("schedule", "impl").lower()
        if any(word in impl for word in NOT_BY_HAND) or not impl:
            return False
        schedule = self.part("schedule")
        cube = all(schedule.get(key) is not None for key in ("base_m", "base_n"))
        keys = ("tile_elems", "tile_shape", "copy_bytes", "tile_config", "src0_addr")
        return cube or any(schedule.get(key) is not None for key in keys)

    @property
    def fitted(self) -> bool:
        """Whether the machine's parameters were fitted on it. The split is fixed: every second record by a hash of
        its id, so that it does not depend on order or on what else a file has."""
        return self.family and self.by_hand and hashlib.sha256(self.id.encode()).digest()[0] % 2 == 0


def positive(value: object) -> int | None:
    """A positive integer, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value >= 1 and value == int(value) else None


def _is_time(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def load_records(path: str | Path) -> list[Record]:
    """The records of a JSON file. Raises CalibrationError with one sentence."""
    try:
        found = json.loads(read_plain(path))
    except OSError as error:
        raise CalibrationError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CalibrationError(f"{path}: not JSON ({error})") from error
    if isinstance(found, dict):
        found = next((found[k] for k in ("records", "measurements") if isinstance(found.get(k), list)), None)
    if not isinstance(found, list):
        raise CalibrationError(f"{path}: holds no list of records")
    records = []
    for number, entry in enumerate(found):
        if not isinstance(entry, dict):
            raise CalibrationError(f"{path}: record {number} is not a table")
        records.append(
            Record(str(entry.get("id") or f"record {number}"), str(entry.get("chip") or ""), entry)
        )
    return records
