"""What makes two pieces of IR the same code: ops, wiring, properties and types, without names and places."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from xdsl.ir import Operation, SSAValue

from ..dialects.npu import AllocOp, PipeBarrierOp, SetCrossOp, SyncOp, WaitCrossOp

SYNCHRONISATION = (SyncOp, PipeBarrierOp, SetCrossOp, WaitCrossOp)
"""Flags: instructions run in program order, so flags change no value."""


HIDDEN = ("sym_name", "schedule")
"""Properties that change no value: a schedule says how a fusion is computed, and not what."""


def structure(op: Operation, addresses: bool = True) -> Hashable:
    """A key that ops with equal values share, their regions included; values from outside count by first use.

    Flags are left out. addresses=False also leaves out what changes no value in typed memory: addresses, and
    allocations nobody uses.
    """
    return _key(op, {}, addresses)


def _key(op: Operation, numbers: dict[SSAValue, int], addresses: bool) -> Hashable:
    def number(value: SSAValue) -> int:
        return numbers.setdefault(value, len(numbers))

    operands = tuple(number(v) for v in op.operands)
    hidden = HIDDEN if addresses else (*HIDDEN, "address")
    properties = tuple((k, v) for k, v in sorted(op.properties.items()) if k not in hidden)
    dropped = SYNCHRONISATION if addresses else (*SYNCHRONISATION, AllocOp)
    regions = tuple(
        tuple(
            (
                tuple((number(a), a.type) for a in block.args),
                tuple(_key(o, numbers, addresses) for o in block.ops if not isinstance(o, dropped)),
            )
            for block in region.blocks
        )
        for region in op.regions
    )
    results = tuple((number(r), r.type) for r in op.results)
    types = tuple(v.type for v in op.operands)
    return (op.name, operands, types, properties, results, regions)


class Cache:
    """Compiled functions by the structure of what they compute; shared by all runs of one verification."""

    def __init__(self) -> None:
        self.functions: dict[Hashable, Any] = {}
        self.numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        """A number that a structure has alone, in its place: a structure takes long to hash."""
        return self.numbers.setdefault(key, len(self.numbers))

    def get(self, key: Hashable, make: Any) -> Any:
        """The function under `key`, made by `make()` where there is none."""
        found = self.functions.get(key)
        if found is None:
            found = self.functions[key] = make()
        return found
