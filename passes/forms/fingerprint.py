"""What makes two fusions the same kernel: as a key inside one process, and as a fingerprint that outlives it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from ...dialects.base import text, to_ints
from ...dialects.graph import FusionOp
from ...machine import Machine

VERSION = "2"
"""Of the form that is hashed: another one makes all stored fingerprints unknown."""


def structure(fusion: FusionOp) -> tuple[tuple, tuple]:
    """What makes two fusions the same kernel, not names or places: kind, domain, ops and wiring; and schedule,
    properties and types, whose hashes would take longer than all else."""
    block = fusion.body.block
    numbers: dict[SSAValue, int] = {a: i for i, a in enumerate(block.args)}
    shape: list[Any] = [text(fusion.kind), to_ints(fusion.domain)]
    details: list[Any] = [fusion.schedule, *(a.type for a in block.args)]
    for op in block.ops:
        shape += (op.name, tuple(numbers[v] for v in op.operands))
        details += (op.properties, op.attributes, op.result_types)
        if isinstance(op, FusionOp):
            key, inside = structure(op)
            shape.append(key)
            details.append(inside)
        for r in op.results:
            numbers[r] = len(numbers)
    return tuple(shape), tuple(details)


def fingerprint(fusion: FusionOp, machine: Machine) -> str:
    """64 hexadecimal digits that stand for a fusion on a machine.

    They change with shapes, element types, ops and their wiring, and with any number of the machine; not with names,
    places, the schedule, what else the program has, the order of compilation or the version of Python.
    """
    lines = [VERSION, machine.fingerprint, *description(fusion)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def decision_key(kind: str, fusions: Sequence[FusionOp], machine: Machine, of: str = "") -> str:
    """64 hexadecimal digits that find a decision about fusions on a machine again. kind, of: what it is about."""
    lines = [kind, of, *(fingerprint(fusion, machine) for fusion in fusions)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def family(fusion: FusionOp) -> tuple[str, tuple[int, ...]]:
    """16 hexadecimal digits that fusions have in common which differ in sizes alone, on any machine; and the sizes of
    one, in an order that is the same for all of them."""
    lines = "\n".join(description(fusion))
    sizes = tuple(int(n) for n in _SIZE.findall(lines))
    return hashlib.sha256(_SIZE.sub("#", lines).encode()).hexdigest()[:16], sizes


_SIZE = re.compile(r"(?<=x)\d+(?=x)|(?<=<)\d+(?=x)|(?<=[\[(, ])\d{2,}(?=[\]),])")
"""A number that may be an extent: a dimension in a type, and what has two digits in a list."""


def description(fusion: FusionOp) -> list[str]:
    """Lines that say all of a fusion but names and places."""
    block = fusion.body.block
    numbers: dict[SSAValue, int] = {a: i for i, a in enumerate(block.args)}
    lines = [text(fusion.kind), str(to_ints(fusion.domain)), *(str(a.type) for a in block.args)]
    for op in block.ops:
        words = [op.name, *(str(numbers[v]) for v in op.operands)]
        for named in (op.properties, op.attributes):
            words += [f"{name}={named[name]}" for name in sorted(named)]
        words += ["{", *description(op), "}"] if isinstance(op, FusionOp) else []
        lines.append(" ".join([*words, *(str(t) for t in op.result_types)]))
        for r in op.results:
            numbers[r] = len(numbers)
    return lines
