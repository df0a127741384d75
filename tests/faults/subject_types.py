"""What a fault campaign injects into: a compiled program; the targets; and where the tests' generators lie."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    p
    for p in map(str, (ROOT / "tests", *(ROOT / "tests" / d for d in ("ops", "quantized", "support"))))
    if p not in sys.path
]

TARGETS = ("ascend-910b1", "ascend-310")

NARROW_TARGET = "ascend-950pr"
"""The machine with 8-bit floats."""


@dataclass(frozen=True)
class Subject:
    """A compiled program."""

    name: str
    module: ModuleOp
    target: str
