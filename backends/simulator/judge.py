"""Which judge a time comes from: a digest of the numbers and rules that times follow from."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from ...dialects.npu import interface
from ...machine import Machine, parts

COSTS = (
    "cube",
    "cumulate",
    "interface",
    "numbers",
    "scatter",
    "sorting",
    "streams",
    "synchronization",
    "transfers",
    "vector",
)
"""Modules of dialects/npu that say what an instruction costs."""

DIGITS = 12


def judge(machine: Machine) -> str:
    """Twelve hexadecimal digits that stand for all numbers of a machine, the text of the simulator, and that of the
    modules that say what an instruction costs. Where they are equal, times can be compared."""
    return hashlib.sha256(f"{machine.fingerprint} {_rules()}".encode()).hexdigest()[:DIGITS]


@cache
def _rules() -> str:
    found = hashlib.sha256()
    for path in rules():
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def rules() -> list[Path]:
    """The files whose text counts."""
    costs = Path(interface.__file__).parent
    return [
        *sorted(Path(__file__).parent.glob("*.py")),
        *(costs / f"{name}.py" for name in COSTS),
        Path(parts.__file__),
    ]
